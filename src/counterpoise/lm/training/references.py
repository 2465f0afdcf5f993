"""Find reference losses: given ones, a model's, or a scaling law's prediction."""

from __future__ import annotations

import logging
from dataclasses import asdict
from pathlib import Path
from typing import Any

from counterpoise.lm.corpus.tokens import Corpus
from counterpoise.lm.training.inputs import (
    FORMAT,
    TRAIN,
    VERSION,
    check_references,
    measured_on,
)
from counterpoise.lm.training.measure import losses_of
from counterpoise.lm.training.ranks import join_ranks
from counterpoise.lm.training.scaling import ScalingLaw, fit_scaling_law
from counterpoise.lm.training.settings import Settings
from counterpoise.lm.training.shape import shape_of
from counterpoise.lm.training.train import train
from counterpoise.storage.files import write_json

logger = logging.getLogger("counterpoise")


def find_references(settings: Settings, *, progress: bool = True) -> dict[str, float]:
    """Find the reference losses, write them to ``references.file`` and return them.

    Those returned are of the driving split. The file also holds those of the reported split, which
    tables subtract to show excess losses.
    """
    asked = settings.references
    if asked.file is None:
        raise ValueError("references.file must be set: reference losses are stored there")
    check_references(settings)
    path = Path(asked.file)
    # Ranks meet once for all that follows.
    with join_ranks(settings.train.threads, settings.train.timeout) as process:
        if asked.losses is not None:
            found: dict[str, Any] = {"losses": asked.losses, "from": "given"}
        elif asked.model == TRAIN:
            found = _of_model(settings, _trained(settings, {}, progress)["path"])
        elif asked.model is not None:
            found = _of_model(settings, asked.model)
        elif asked.sizes is not None:
            found = _predicted(settings, progress)
        else:
            raise ValueError(
                "the configuration asks for no references; set references.losses, references.model "
                "or references.sizes"
            )

        def write() -> None:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_json(path, {"format": FORMAT, "version": VERSION, **found})

        process.on_first_rank(write)
    return found["losses"]


def _of_model(settings: Settings, model: str) -> dict[str, Any]:
    return {**_measured(settings, model), "from": "model", "model": model}


def _measured(settings: Settings, model: str) -> dict[str, Any]:
    """Measure a model on the driving split and on the reported one."""
    asked = settings.evaluate
    found: dict[str, Any] = {"losses": losses_of(settings, model, asked.driving)}
    for name, sequences in (("reported", asked.sequences), ("final", asked.final)):
        if name == "reported" or sequences:
            losses = losses_of(settings, model, asked.report, sequences)
            found[name] = {"of": measured_on(settings, sequences), "losses": losses}
    return found


def _predicted(settings: Settings, progress: bool) -> dict[str, Any]:
    """Train smaller models and predict each domain's loss at full size by a scaling law."""
    parameters, measured = [], []
    for number, size in enumerate(sizes := settings.references.sizes or ()):
        logger.info("reference model %d of %d: %s", number + 1, len(sizes), size)
        result = _trained(settings, size, progress)
        parameters.append(result["parameters"])
        measured.append(_measured(settings, result["path"]))
    target = shape_of(settings, Corpus.open(settings.corpus.folder)).parameters

    def laws_of(losses: list[dict[str, float]]) -> dict[str, ScalingLaw]:
        return {n: fit_scaling_law(parameters, [each[n] for each in losses]) for n in losses[0]}

    laws = laws_of([m["losses"] for m in measured])
    for name, law in laws.items():
        if law.scale == 0:
            logger.warning(
                "domain %s: larger models have no lower loss (%s), so the law predicts their mean; "
                "train the models longer, or use references.model",
                name, ", ".join(f"{m['losses'][name]:.3f}" for m in measured),
            )  # fmt: skip
    found: dict[str, Any] = {"losses": {name: float(law(target)) for name, law in laws.items()}}
    for section in ("reported", "final"):
        if section in measured[0]:
            others = laws_of([m[section]["losses"] for m in measured])
            losses = {name: float(law(target)) for name, law in others.items()}
            found[section] = {"of": measured[0][section]["of"], "losses": losses}
    return found | {
        "from": "scaling law",
        "parameters": target,
        "runs": [
            {"parameters": p, "losses": m["losses"]}
            for p, m in zip(parameters, measured, strict=True)
        ],
        "laws": {name: asdict(law) for name, law in laws.items()},
    }


def _trained(settings: Settings, shape: dict[str, Any], progress: bool) -> dict[str, Any]:
    """Train a model only for its losses; return its result and its path."""
    asked = settings.references
    changes = {
        **{f"model.{key}": value for key, value in shape.items()},
        "train.tokens": asked.tokens or settings.train.tokens,
        "train.seed": asked.seed,
        "references": {},
        "reweight": {"rule": "static", "prior": asked.weights},
    }
    name = "-".join(f"{key}-{value}" for key, value in shape.items()) or "model"
    folder = Path(settings.out, "references", name)
    result = train(settings.changed(changes), folder, progress=progress)
    return {**result, "path": str(folder / result["model"])}
