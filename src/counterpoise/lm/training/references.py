"""Reference losses: given, a model's, or what a scaling law foretells from smaller models."""

from __future__ import annotations

import logging
from dataclasses import asdict
from pathlib import Path
from typing import Any

from counterpoise.lm.corpus.tokens import Corpus
from counterpoise.lm.training.domains import domains_of
from counterpoise.lm.training.settings import Settings
from counterpoise.storage.files import probed, read_json, write_json

logger = logging.getLogger("counterpoise")

FORMAT, VERSION = "counterpoise references", 1
OPTIMIZER = "optimizer.safetensors"
TRAIN = "train"  # the reference model is to be trained here


def known_references(settings: Settings, domains: list[str]) -> dict[str, float] | None:
    """Reference losses of the domains; None where the settings name none.

    Those of a model or of a scaling law are read from ``references.file``, which
    `find_references` writes.
    """
    known = _known(settings)
    return None if known is None else _chosen(known["losses"], domains)


def reported_references(settings: Settings, domains: list[str]) -> list[dict[str, float] | None]:
    """Reference losses on the split that is reported: on as much of it as evaluations see, and as
    the closer look at finished models does.

    Losses that were given are the same for all.
    """
    known = _known(settings)
    if known is None:
        return [None, None]
    if settings.references.losses is not None or known["from"] == "given":
        return [_chosen(known["losses"], domains)] * 2
    asked = settings.evaluate
    found: list[dict[str, float] | None] = []
    for name, sequences in (("reported", asked.sequences), ("final", asked.final)):
        if name == "final" and not asked.final:
            found.append(None)
            continue
        part = known.get(name, {"of": None})
        if part["of"] != (of := _of(settings, sequences)):
            raise ValueError(
                f"references.file={settings.references.file!r} has losses of {part['of']}, and "
                f"excesses are wanted of {of}; run `counterpoise lm references` again"
            )
        found.append(_chosen(part["losses"], domains))
    return found


def _of(settings: Settings, sequences: int) -> dict[str, Any]:
    """What the losses above which excesses are shown were measured on."""
    return {
        "split": settings.evaluate.report,
        "sequences": sequences,
        "length": settings.train.length,
    }


def _known(settings: Settings) -> dict[str, Any] | None:
    asked = settings.references
    if asked.losses is not None:
        return {"losses": asked.losses}
    if asked.file is not None:
        path = Path(asked.file)
        if not path.is_file():
            raise FileNotFoundError(
                f"references.file={asked.file!r} is not there yet; run `counterpoise lm "
                "references` with this configuration first"
            )
        return read_json(path, FORMAT, VERSION)
    if asked.model is not None or asked.sizes is not None:
        raise ValueError("references.file must be set: it is where reference losses are kept")
    return None


def _chosen(losses: dict[str, Any], domains: list[str]) -> dict[str, float]:
    missing = [name for name in domains if name not in losses]
    if missing:
        raise ValueError(
            f"there is no reference loss for {missing!r}; there is for {list(losses)!r}"
        )
    return {name: float(losses[name]) for name in domains}


def inputs_of(settings: Settings) -> dict[str, Any]:
    """What files decide of a run besides its settings: corpus, reference losses, models."""
    corpus = Corpus.open(settings.corpus.folder)
    found = known_references(settings, domains_of(settings, corpus))
    return {
        "corpus": corpus.fingerprint(),
        "references": found,
        "checkpoint": _fingerprint(settings.model.checkpoint),
        "reference model": _fingerprint(settings.reweight.reference_model),
    }


def _fingerprint(model: str | None) -> str | None:
    """Of the weights of a model on this disk; None for one that is not."""
    if model is None:
        return None
    path = Path(model)
    files = (
        [path] if path.is_file() else sorted([*path.glob("*.safetensors"), *path.glob("*.gguf")])
    )
    names = [file for file in files if file.name != OPTIMIZER]
    return probed(names) if names else None


def find_references(settings: Settings, *, progress: bool = True) -> dict[str, float]:
    """Find the reference losses and write them to ``references.file``: of the split that drives,
    which are returned, and of the one that is reported, by which excesses are shown."""
    from counterpoise.lm.training.ranks import take_place

    asked = settings.references
    if asked.file is None:
        raise ValueError("references.file must be set: it is where reference losses are kept")
    check_references(settings)
    path = Path(asked.file)
    with take_place(settings.train.threads) as place:  # ranks meet once for all that follows
        if asked.losses is not None:
            found: dict[str, Any] = {"losses": asked.losses, "from": "given"}
        elif asked.model == TRAIN:
            found = _of_model(settings, _trained(settings, {}, progress)["path"])
        elif asked.model is not None:
            found = _of_model(settings, asked.model)
        elif asked.sizes is not None:
            found = _foretold(settings, progress)
        else:
            raise ValueError(
                "the configuration names no references: set references.losses, references.model "
                "or references.sizes"
            )

        def write() -> None:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_json(path, {"format": FORMAT, "version": VERSION, **found})

        place.first_does(write)
    return found["losses"]


def _of_model(settings: Settings, model: str) -> dict[str, Any]:
    return {**_measured(settings, model), "from": "model", "model": model}


def _measured(settings: Settings, model: str) -> dict[str, Any]:
    """Losses of a model on the split that drives, and on the one that is reported."""
    from counterpoise.lm.training.measure import losses_of

    asked = settings.evaluate
    found: dict[str, Any] = {"losses": losses_of(settings, model, asked.driving)}
    for name, sequences in (("reported", asked.sequences), ("final", asked.final)):
        if name == "reported" or sequences:
            losses = losses_of(settings, model, asked.report, sequences)
            found[name] = {"of": _of(settings, sequences), "losses": losses}
    return found


def _foretold(settings: Settings, progress: bool) -> dict[str, Any]:
    """Train the smaller models, and fit a law to each domain's losses."""
    from counterpoise.lm.training.scaling import ScalingLaw, fit_scaling_law
    from counterpoise.lm.training.shape import shape_of

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
                "domain %s: losses do not fall as models grow (%s), so the law foretells their "
                "mean; train the models longer, or use references.model",
                name, ", ".join(f"{m['losses'][name]:.3f}" for m in measured),
            )  # fmt: skip
    found: dict[str, Any] = {"losses": {name: float(law(target)) for name, law in laws.items()}}
    for part in ("reported", "final"):
        if part in measured[0]:
            others = laws_of([m[part]["losses"] for m in measured])
            losses = {name: float(law(target)) for name, law in others.items()}
            found[part] = {"of": measured[0][part]["of"], "losses": losses}
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
    """What a model that is trained for its losses alone ended with, and where it is."""
    from counterpoise.lm.training.train import train

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


def check_references(settings: Settings) -> None:
    """Refuse reference models that would not be what they are said to be."""
    asked, checkpoint = settings.references, settings.model.checkpoint
    for name in ("model", "sizes"):
        trained = name == "sizes" or asked.model == TRAIN
        if getattr(asked, name) is not None and trained and checkpoint is not None:
            raise ValueError(
                f"references.{name} trains models from nothing, which tell little of what "
                f"model.checkpoint={checkpoint!r} can reach; name a model in references.model, or "
                "give references.losses"
            )
