"""Weights and references of a run's domains, from its settings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from counterpoise.lm.corpus.tokens import CORPUS, Corpus
from counterpoise.lm.training.settings import Settings
from counterpoise.reweight.reweighter import Reweighter
from counterpoise.reweight.rules import NAMED

Array = np.ndarray


def domains_of(settings: Settings, corpus: Corpus) -> list[str]:
    """The domains of a run: those that are named, or all of the corpus."""
    names = list(settings.corpus.domains or corpus.domains)
    unknown = [n for n in names if n not in corpus.domains]
    if unknown:
        raise ValueError(
            f"corpus.domains names {unknown!r}, which the corpus in {str(corpus.folder)!r} does "
            f"not have; it has {corpus.domains!r}"
        )
    return names


def known_domains(settings: Settings, corpus: Corpus | None) -> list[str] | None:
    """The domains of a run, also where there is no corpus yet and only weights or references tell
    them; None where nothing does."""
    if corpus is not None:
        return domains_of(settings, corpus)
    if settings.corpus.domains is not None:
        return list(settings.corpus.domains)
    r = settings.reweight
    for named in (r.prior, r.start, settings.references.losses):
        if isinstance(named, dict):
            return list(named)
    return None


def corpus_of(settings: Settings) -> Corpus | None:
    """The prepared corpus; None before there is one."""
    folder = Path(settings.corpus.folder)
    return Corpus.open(folder) if (folder / CORPUS).is_file() else None


def check_splits(settings: Settings, corpus: Corpus | None) -> None:
    """Whether the corpus has the splits that are asked for, each with some of every domain."""
    there = list(settings.corpus.splits) if corpus is None else corpus.splits
    wanted = {
        "train": "a corpus to train on",
        settings.evaluate.driving: f"evaluate.driving={settings.evaluate.driving!r}",
        settings.evaluate.report: f"evaluate.report={settings.evaluate.report!r}",
    }
    for split, asked in wanted.items():
        if split not in there:
            of = "corpus.splits" if corpus is None else f"the corpus in {str(corpus.folder)!r}"
            raise ValueError(f"{asked} needs the split {split!r}; {of} has {there!r}")
    if corpus is None:
        return
    for split in wanted:
        sizes = corpus.sizes(split)
        for name in known_domains(settings, corpus) or ():
            if sizes[name] < settings.train.length:
                raise ValueError(
                    f"train.length={settings.train.length} is longer than all of the split "
                    f"{split!r} of {name!r}, which has {sizes[name]} tokens"
                )


def named_weights(
    value: Any, domains: list[str], corpus: Corpus | None, setting: str = "weights"
) -> Any:
    """Weights that a setting means: ``uniform``, ``size``, or those given, which it makes to sum
    to one as printed tables seldom do."""
    if value is None or value == "uniform":
        return dict.fromkeys(domains, 1.0 / len(domains))
    if value == "size":
        if corpus is None:
            raise ValueError(f"{setting}='size' is not known before the corpus is prepared")
        sizes = corpus.sizes("train")
        total = sum(sizes[name] for name in domains)
        return {name: sizes[name] / total for name in domains}
    total = sum(value.values())
    if not abs(total - 1.0) < 0.01:
        raise ValueError(f"{setting} must sum to 1; {value!r} sum to {total:g}")
    return {name: weight / total for name, weight in value.items()}


def make_reweighter(
    settings: Settings,
    domains: list[str],
    corpus: Corpus | None,
    references: dict[str, float] | None,
) -> Reweighter:
    """The reweighter that ``[reweight]`` describes."""
    r = settings.reweight
    prior = named_weights(r.prior, domains, corpus, "reweight.prior")
    start = prior
    if r.start is not None:
        start = named_weights(r.start, domains, corpus, "reweight.start")
    try:
        rule = NAMED[r.rule](**r.options)
    except TypeError:
        raise ValueError(
            f"reweight.options={r.options!r} are not those of the rule {r.rule!r}"
        ) from None
    return Reweighter(
        domains,
        rule,
        step=r.step,
        nu=r.nu,
        extrapolation=r.extrapolation,
        smoothing=r.smoothing,
        prior=prior,
        start=start,
        reference=None if references is None else {n: references[n] for n in domains},
        clip=r.clip,
        ema=r.ema,
        floor=r.floor,
        cap=r.cap,
    )
