"""Everything about a run that can be checked before it is begun."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from counterpoise.common.arguments import check_whole
from counterpoise.lm.corpus.tokens import Corpus
from counterpoise.lm.model_files import is_hub_name, locate
from counterpoise.lm.training.domains import check_splits, corpus_of, known_domains, make_reweighter
from counterpoise.lm.training.model import check_fits
from counterpoise.lm.training.references import TRAIN, check_references, known_references
from counterpoise.lm.training.run_folder import CONFIG, RunFolder
from counterpoise.lm.training.settings import Settings
from counterpoise.lm.training.shape import Shape, local_checkpoint, shape_of


def check_run(settings: Settings, ranks: int = 1) -> list[str]:
    """Check settings, and all runs that they compare, as far as that can be done without training.

    Parameters
    ----------
    settings : Settings
    ranks : int
        Processes that would train.

    Returns
    -------
    notes : list of str
        What is still to be done before the run, and what may not be meant.

    Raises
    ------
    ValueError, FileNotFoundError
        What would end the run; the message names the setting.
    """
    check_whole("ranks", ranks, 1)
    check_references(settings)
    notes = _check_one(settings, ranks)
    if settings.compare.run:
        from counterpoise.lm.compare.plan import plan

        for item in plan(settings, seeds=[settings.compare.seeds[0]]):
            with _named(f"compare.run {item.run.name!r}: "):
                notes += _check_one(item.settings(), ranks, provided=bool(item.needs))
        notes += _check_launcher(settings, ranks)
    elif (Path(settings.out) / CONFIG).is_file():
        RunFolder(Path(settings.out)).check(settings)
    return list(dict.fromkeys(notes))


def _check_one(settings: Settings, ranks: int, *, provided: bool = False) -> list[str]:
    """One run; ``provided`` tells that another one makes the reference model."""
    settings.train.parts_of(ranks)
    notes: list[str] = []
    if ranks == 1 and settings.train.parallel == "fsdp":
        notes.append("train.parallel = 'fsdp' does nothing on one rank; see --ranks")
    corpus = corpus_of(settings)
    if corpus is None:
        where = settings.corpus.folder
        notes.append(f"there is no corpus in {where!r} yet; `counterpoise lm prepare` makes it")
    check_splits(settings, corpus)
    domains = known_domains(settings, corpus)
    if domains is None:
        notes.append("the domains are not known before the corpus is prepared")
    notes += _check_rule(settings, corpus, domains)
    notes += _check_model(settings, corpus, provided)
    _check_smaller_models(settings)
    return notes


def _check_rule(settings: Settings, corpus: Corpus | None, domains: list[str] | None) -> list[str]:
    """Make the reweighter as the run will, with references if they are there."""
    notes: list[str] = []
    asked = settings.references
    if asked.losses is None and asked.file is not None and not Path(asked.file).is_file():
        notes.append(
            f"references.file={asked.file!r} is not there yet; `counterpoise lm references` makes "
            "it"
        )
        if asked.model is None and asked.sizes is None:
            raise FileNotFoundError(
                f"references.file={asked.file!r} is not there, and nothing tells how to make it; "
                "set references.model, references.sizes or references.losses"
            )
    references = None if domains is None or notes else known_references(settings, domains)
    if domains is None:  # made for one that stands for all
        domains = ["any"]
    r = settings.reweight
    changes: dict[str, Any] = {
        f"reweight.{name}": "uniform"
        for name in ("prior", "start")
        if corpus is None and getattr(r, name) == "size"
    }
    with _named("[reweight] "):
        make_reweighter(settings.changed(changes), domains, corpus, references)
    if isinstance(asked.weights, dict) and domains != ["any"]:
        from counterpoise.common.arguments import check_weights
        from counterpoise.lm.training.domains import named_weights

        weights = named_weights(asked.weights, domains, corpus, "references.weights")
        check_weights(weights, domains, "references.weights", zeros=True)
    return notes


def _check_model(settings: Settings, corpus: Corpus | None, provided: bool) -> list[str]:
    """The checkpoint's shape against the one that is described, the corpus and the length."""
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
            with _named(f"{name}: "):
                locate(spec)
        elif is_hub_name(spec):
            notes.append(f"{name}={spec!r} is not on this disk; it is looked for on the hub")
        else:
            notes.append(f"{name}={spec!r} is not there yet")
    shape = shape_of(settings, corpus)
    spec = settings.model.checkpoint
    if spec is None:
        return notes
    local = local_checkpoint(spec) is not None
    check_fits(
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
        f"model.{name}={ours} is not the checkpoint's, which is {its}; its own is used"
        for name, (ours, its) in pairs.items()
        if ours != its
    ]


def _check_smaller_models(settings: Settings) -> None:
    for number, size in enumerate(settings.references.sizes or ()):
        with _named(f"references.sizes[{number}]: "):
            settings.changed({f"model.{key}": value for key, value in size.items()})


def _check_launcher(settings: Settings, ranks: int) -> list[str]:
    """Whether the processes that it starts are those that were asked about."""
    words = [word for part in settings.compare.launcher for word in part.split("=", 1)]
    for name in ("--nproc-per-node", "--nproc_per_node"):
        if name in words[:-1]:
            number = words[words.index(name) + 1]
            if number.isdigit() and "--nnodes" not in words and int(number) != ranks:
                return [f"compare.launcher starts {number} ranks; this is about {ranks} (--ranks)"]
    return []


@contextmanager
def _named(where: str) -> Iterator[None]:
    """Errors say which part of the configuration they are about."""
    try:
        yield
    except FileNotFoundError as error:
        raise FileNotFoundError(f"{where}{error}") from None
    except ValueError as error:
        raise ValueError(f"{where}{error}") from None
