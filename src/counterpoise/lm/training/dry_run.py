"""Check a run before it starts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from counterpoise.common.arguments import check_whole
from counterpoise.lm.corpus.tokens import Corpus
from counterpoise.lm.model_files import is_hub_name, locate
from counterpoise.lm.training.domains import (
    check_corpus_splits,
    corpus_of,
    known_domains,
    make_reweighter,
)
from counterpoise.lm.training.inputs import TRAIN, check_references, known_references
from counterpoise.lm.training.model import check_checkpoint
from counterpoise.lm.training.run_folder import CONFIG, RunFolder
from counterpoise.lm.training.settings import Settings
from counterpoise.lm.training.shape import Shape, local_checkpoint, shape_of


def check_run(settings: Settings, ranks: int = 1) -> list[str]:
    """Check everything about one run that can be checked before it starts.

    Parameters
    ----------
    settings : Settings
    ranks : int
        Processes that would train.

    Returns
    -------
    notes : list of str
        What is still to be done before the run, and what may not be intended.

    Raises
    ------
    ValueError, FileNotFoundError
        What would end the run; the message names the setting.
    """
    check_references(settings)
    notes = check_settings(settings, ranks)
    if (Path(settings.out) / CONFIG).is_file():
        RunFolder(Path(settings.out)).check(settings)
    return notes


def check_settings(settings: Settings, ranks: int = 1, *, provided: bool = False) -> list[str]:
    """Check settings against corpus, models and reference losses; return notes.

    ``provided`` means that another run makes the reference model.
    """
    check_whole("ranks", ranks, 1)
    settings.train.micro_batches(ranks)
    notes: list[str] = []
    if ranks == 1 and settings.train.parallel == "fsdp":
        notes.append("train.parallel = 'fsdp' has no effect with one rank")
    corpus = corpus_of(settings)
    if corpus is None:
        where = settings.corpus.folder
        notes.append(f"there is no corpus in {where!r} yet; make it with `counterpoise lm prepare`")
    check_corpus_splits(settings, corpus)
    domains = known_domains(settings, corpus)
    if domains is None:
        notes.append("the domains are unknown until the corpus is prepared")
    notes += _check_rule(settings, corpus, domains)
    notes += _check_model(settings, corpus, provided)
    _check_smaller_models(settings)
    return list(dict.fromkeys(notes))


def _check_rule(settings: Settings, corpus: Corpus | None, domains: list[str] | None) -> list[str]:
    """Make the reweighter as the run will, with reference losses if they exist."""
    notes: list[str] = []
    asked = settings.references
    if asked.losses is None and asked.file is not None and not Path(asked.file).is_file():
        notes.append(
            f"references.file={asked.file!r} does not exist yet; make it with `counterpoise lm "
            "references`"
        )
        if asked.model is None and asked.sizes is None:
            raise FileNotFoundError(
                f"references.file={asked.file!r} does not exist, and no setting says how to make "
                "it; set references.model, references.sizes or references.losses"
            )
    references = None if domains is None or notes else known_references(settings, domains)
    if domains is None:  # one that stands for all
        domains = ["any"]
    r = settings.reweight
    changes: dict[str, Any] = {
        f"reweight.{name}": "uniform"
        for name in ("prior", "start")
        if corpus is None and getattr(r, name) == "size"
    }
    with naming("[reweight] "):
        make_reweighter(settings.changed(changes), domains, corpus, references)
    if isinstance(asked.weights, dict) and domains != ["any"]:
        from counterpoise.common.arguments import check_weights
        from counterpoise.lm.training.domains import named_weights

        weights = named_weights(asked.weights, domains, corpus, "references.weights")
        check_weights(weights, domains, "references.weights", zeros=True)
    return notes


def _check_model(settings: Settings, corpus: Corpus | None, provided: bool) -> list[str]:
    """Check the checkpoint against the described shape, the corpus and the sequence length."""
    notes: list[str] = []
    for name, spec in (
        ("model.checkpoint", settings.model.checkpoint),
        ("references.model", settings.references.model),
        ("reweight.reference_model", None if provided else settings.reweight.reference_model),
    ):
        made = name == "references.model" and spec == TRAIN
        if spec is None or made:
            continue
        if local_checkpoint(spec) is not None:
            with naming(f"{name}: "):
                locate(spec)
        elif is_hub_name(spec):
            notes.append(f"{name}={spec!r} is not on this disk; the hub will be asked for it")
        else:
            notes.append(f"{name}={spec!r} does not exist yet")
    shape = shape_of(settings, corpus)
    spec = settings.model.checkpoint
    if spec is None:
        return notes
    local = local_checkpoint(spec) is not None
    check_checkpoint(
        settings,
        0 if corpus is None else corpus.vocab_size,
        shape.vocab,
        shape.longest if local else None,
    )
    return notes + (_differing(settings, shape) if local else [])


def _differing(settings: Settings, shape: Shape) -> list[str]:
    if not settings.model.described:
        return []
    given = settings.model
    pairs = {
        "hidden_size": (given.hidden_size, shape.hidden),
        "layers": (given.layers, shape.layers),
        "heads": (given.heads, shape.heads),
        "vocab_size": (given.vocab_size or shape.vocab, shape.vocab),
    }
    return [
        f"model.{name}={ours} is not the checkpoint's; the checkpoint's own, {its}, is used"
        for name, (ours, its) in pairs.items()
        if ours != its
    ]


def _check_smaller_models(settings: Settings) -> None:
    for number, size in enumerate(settings.references.sizes or ()):
        with naming(f"references.sizes[{number}]: "):
            settings.changed({f"model.{key}": value for key, value in size.items()})


@contextmanager
def naming(where: str) -> Iterator[None]:
    """Prefix errors with the part of the configuration they are about."""
    try:
        yield
    except FileNotFoundError as error:
        raise FileNotFoundError(f"{where}{error}") from None
    except ValueError as error:
        raise ValueError(f"{where}{error}") from None
