"""Domains of a run, their weights and their reweighter, from its settings."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from counterpoise.lm.corpus.metadata import CORPUS
from counterpoise.lm.corpus.tokens import Corpus
from counterpoise.lm.training.settings import ReweightSettings, Settings
from counterpoise.reweight.reweighter import Reweighter
from counterpoise.reweight.rules import NAMED
from counterpoise.reweight.sampling import ByVariance, ByWeights, Fixed, Sampling

Array = np.ndarray


def domains_of(settings: Settings, corpus: Corpus) -> list[str]:
    """List the domains of a run: the named ones, or all of the corpus."""
    names = list(settings.corpus.domains or corpus.domains)
    unknown = [n for n in names if n not in corpus.domains]
    if unknown:
        raise ValueError(
            f"corpus.domains names {unknown!r}, which are not in {str(corpus.folder)!r}; choose "
            f"from {corpus.domains!r}"
        )
    return names


def known_domains(settings: Settings, corpus: Corpus | None) -> list[str] | None:
    """List the domains of a run, as far as they are known.

    Without a corpus, named weights or reference losses may tell them; None if nothing does.
    """
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
    """Open the prepared corpus; None if there is none yet."""
    folder = Path(settings.corpus.folder)
    return Corpus.open(folder) if (folder / CORPUS).is_file() else None


def check_corpus_splits(settings: Settings, corpus: Corpus | None) -> None:
    """Check that the corpus has the needed splits, each with enough of every domain."""
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
                    f"train.length={settings.train.length} is longer than the split {split!r} of "
                    f"{name!r}, which has {sizes[name]} tokens; shorten it, or prepare more"
                )


def named_weights(
    value: Any, domains: list[str], corpus: Corpus | None, setting: str = "weights"
) -> Any:
    """Resolve a setting to weights: ``uniform``, ``size``, or given ones.

    Given weights are scaled to sum to one, which printed tables seldom do exactly.
    """
    if value is None or value == "uniform":
        return dict.fromkeys(domains, 1.0 / len(domains))
    if value == "size":
        if corpus is None:
            raise ValueError(
                f"{setting}='size' needs a prepared corpus; run `counterpoise lm prepare`"
            )
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
    """Make the reweighter of a run."""
    return reweighter_of(settings.reweight, domains, corpus, references)


def reweighter_of(
    r: ReweightSettings,
    domains: list[str],
    corpus: Corpus | None,
    references: Mapping[str, float] | None,
) -> Reweighter:
    """Make the reweighter that ``[reweight]`` describes."""
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


def make_sampling(settings: Settings) -> Sampling:
    """Make the way of sampling that ``[reweight]`` describes."""
    r = settings.reweight
    if r.weigh == "both":
        return ByVariance(r.ratio)
    return Fixed() if r.weigh == "loss" else ByWeights()
