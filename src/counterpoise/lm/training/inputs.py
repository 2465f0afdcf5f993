"""Files that decide a run besides its settings: the corpus, reference losses, models."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from counterpoise.lm.corpus.tokens import Corpus
from counterpoise.lm.training.domains import domains_of
from counterpoise.lm.training.run_folder import OPTIMIZER
from counterpoise.lm.training.settings import Settings
from counterpoise.storage.files import probed, read_json
from counterpoise.storage.remembered import checksums_once

FORMAT, VERSION = "counterpoise references", 1
TRAIN = "train"  # value of references.model: train the reference model here


def inputs_of(settings: Settings) -> dict[str, Any]:
    """Describe the input files of a run, so that changed ones are recognised."""
    corpus = Corpus.open(settings.corpus.folder)
    found = known_references(settings, domains_of(settings, corpus))
    return {
        "corpus": corpus.fingerprint(),
        "references": found,
        "checkpoint": _fingerprint(settings.model.checkpoint),
        "reference model": _fingerprint(settings.reweight.reference_model),
    }


def known_references(settings: Settings, domains: list[str]) -> dict[str, float] | None:
    """Return the reference losses of the domains; None if the settings name none.

    Those of a model or of a scaling law are read from ``references.file``, which
    `find_references` writes.
    """
    known = _known(settings)
    return None if known is None else _chosen(known["losses"], domains)


def reported_references(settings: Settings, domains: list[str]) -> list[dict[str, float] | None]:
    """Return reference losses on the reported split, twice.

    The first are for the sequences that evaluations read, the second for those that finished
    models are measured on. Losses given in the settings serve both.
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
        section = known.get(name, {"of": None})
        if section["of"] != (of := measured_on(settings, sequences)):
            raise ValueError(
                f"references.file={settings.references.file!r} holds losses of {section['of']}, "
                f"but excesses are wanted of {of}; run `counterpoise lm references` again"
            )
        found.append(_chosen(section["losses"], domains))
    return found


def measured_on(settings: Settings, sequences: int) -> dict[str, Any]:
    """Describe what reported reference losses are measured on."""
    return {
        "split": settings.evaluate.report,
        "sequences": sequences,
        "length": settings.train.length,
    }


def check_references(settings: Settings) -> None:
    """Refuse to train reference models from scratch for a model that starts from a checkpoint."""
    asked, checkpoint = settings.references, settings.model.checkpoint
    for name in ("model", "sizes"):
        trained = name == "sizes" or asked.model == TRAIN
        if getattr(asked, name) is not None and trained and checkpoint is not None:
            raise ValueError(
                f"references.{name} trains models from scratch, which says little about what "
                f"model.checkpoint={checkpoint!r} can reach; name a model in references.model, or "
                "give references.losses"
            )


def _known(settings: Settings) -> dict[str, Any] | None:
    asked = settings.references
    if asked.losses is not None:
        return {"losses": asked.losses}
    if asked.file is not None:
        path = Path(asked.file)
        if not path.is_file():
            raise FileNotFoundError(
                f"references.file={asked.file!r} does not exist yet; run `counterpoise lm "
                "references` with this configuration first"
            )
        return read_json(path, FORMAT, VERSION)
    if asked.model is not None or asked.sizes is not None:
        raise ValueError("references.file must be set: reference losses are stored there")
    return None


def _chosen(losses: dict[str, Any], domains: list[str]) -> dict[str, float]:
    missing = [name for name in domains if name not in losses]
    if missing:
        raise ValueError(
            f"there is no reference loss for {missing!r}, only for {list(losses)!r}; add them to "
            "references.losses, or run `counterpoise lm references` again"
        )
    return {name: float(losses[name]) for name in domains}


def _fingerprint(model: str | None) -> str | None:
    """Fingerprint a model's weights on this disk; None if they are elsewhere.

    It has two parts: what release 0.1 wrote, which reads little of the files, and their checksums.
    """
    if model is None:
        return None
    path = Path(model)
    files = (
        [path] if path.is_file() else sorted([*path.glob("*.safetensors"), *path.glob("*.gguf")])
    )
    names = [file for file in files if file.name != OPTIMIZER]
    return "-".join([probed(names), *checksums_once(names)]) if names else None
