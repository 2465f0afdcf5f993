"""Held-out loss of every domain over all ranks: sums of token losses, never means of means."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import numpy as np
import torch

from counterpoise.common.arguments import check_whole
from counterpoise.lm.corpus.tokens import Corpus
from counterpoise.lm.mixture.samples import IGNORED, Samples, collated
from counterpoise.torch.distributed import rank_of, reduce_sums, world_size

Array = np.ndarray
Batch = dict[str, torch.Tensor]


K = TypeVar("K")


class Sequences(Protocol):
    """A map-style dataset of token batches."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> Batch: ...


class DomainLosses(NamedTuple, Generic[K]):
    """Mean loss per token of each domain, and the number of tokens behind it."""

    losses: dict[K, float]
    counts: dict[K, float]


def held_out(
    corpus: Corpus | str | os.PathLike[str],
    length: int,
    *,
    split: str = "validation",
    domains: Sequence[str] | None = None,
    limit: int | None = None,
) -> dict[str, Samples]:
    """Make at most ``limit`` samples of each domain's held-out tokens, evenly spread."""
    if not isinstance(corpus, Corpus):
        corpus = Corpus.open(corpus)
    found = {name: corpus.tokens(name, split) for name in domains or corpus.domains}
    for tokens in found.values():
        tokens.verify()
    return {name: Samples(tokens, length, limit=limit) for name, tokens in found.items()}


def token_loss(model: Any, batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the sum of a batch's token losses and their number.

    The model must return the mean as ``.loss`` and shift the labels itself, as those of
    transformers do.
    """
    count = (batch["labels"][:, 1:] != IGNORED).sum()
    return model(**batch).loss.float() * count, count


@torch.no_grad()
def domain_losses(
    model: Any,
    samples: Mapping[K, Sequences],
    *,
    batch_size: int = 8,
    loss: Callable[[Any, Batch], tuple[torch.Tensor, torch.Tensor]] = token_loss,
    device: Any = None,
    group: Any = None,
) -> DomainLosses[K]:
    """Compute the mean loss of each domain's samples.

    Ranks share the samples and run the same number of batches, since a sharded model needs all
    ranks at every layer. Sums and counts of all domains are reduced once.

    Parameters
    ----------
    model : callable
        Switched to evaluation mode meanwhile, if it has one.
    samples : mapping of names to map-style datasets
    batch_size : int, default 8
        On each rank.
    loss : callable, default `token_loss`
        ``(model, batch) -> (sum, count)``.
    device : optional
        Device of the batches; the model's by default.
    group : optional
        Process group of torch.distributed.
    """
    rank, world = rank_of(group), world_size(group)
    check_whole("batch_size", batch_size, 1)
    if device is None:
        first_of = next(iter(model.parameters()), None) if hasattr(model, "parameters") else None
        device = "cpu" if first_of is None else first_of.device
    table = torch.zeros(2, len(samples), dtype=torch.float64)
    with evaluating(model):
        for k, data in enumerate(samples.values()):
            for first in range(0, len(data), batch_size * world):
                mine = range(first + rank * batch_size, first + (rank + 1) * batch_size)
                taken = [i for i in mine if i < len(data)]
                batch = collated([data[i] for i in taken or [0]])
                found = loss(model, {name: t.to(device) for name, t in batch.items()})
                if taken:
                    table[:, k] += torch.stack([t.double().cpu() for t in found])
    sums, counts = reduce_sums(table, group).tolist()
    means = [s / n if n else float("nan") for s, n in zip(sums, counts, strict=True)]
    return DomainLosses(
        dict(zip(samples, means, strict=True)), dict(zip(samples, counts, strict=True))
    )


@contextmanager
def evaluating(model: Any) -> Iterator[None]:
    """Switch to evaluation mode and restore each module's mode: some may be frozen on purpose."""
    modes = [(m, m.training) for m in model.modules()] if hasattr(model, "modules") else []
    if hasattr(model, "eval"):
        model.eval()
    try:
        yield
    finally:
        for module, training in modes:
            module.training = training
