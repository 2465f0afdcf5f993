"""Held-out loss of every domain over all ranks: sums of token losses, never means of means."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
import torch
from torch.nn.functional import cross_entropy

from counterpoise.common.arguments import check_whole
from counterpoise.lm.corpus.tokens import Corpus
from counterpoise.lm.mixture.samples import IGNORED, Samples, collated
from counterpoise.torch.distributed import rank_of, reduce_sums, world_size
from counterpoise.torch.mesh import agree, data_group

Array = np.ndarray
Batch = dict[str, torch.Tensor]


K = TypeVar("K")

MOMENTS = 6


class Sequences(Protocol):
    """A map-style dataset of token batches."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> Batch: ...


@dataclass(frozen=True)
class DomainLosses(Generic[K]):
    """Mean loss per token of each domain, its standard error, and the tokens behind it.

    Unpacks to losses and counts.
    """

    losses: dict[K, float]
    counts: dict[K, float]
    errors: dict[K, float]

    def __iter__(self) -> Iterator[dict[K, float]]:
        return iter((self.losses, self.counts))

    def only(self, names: Mapping[K, Any]) -> DomainLosses[Any]:
        """Return the part under some of the keys, renamed to their values."""
        return DomainLosses(
            *({new: table[old] for old, new in names.items()} for table in vars(self).values())
        )


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


def sequence_loss(model: Any, batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the sum of token losses of each sequence in a batch, and their numbers.

    The model must return ``.logits`` of next tokens, as those of transformers do. For one that
    returns only the mean ``.loss``, the batch counts as one sequence.
    """
    labels = batch["labels"][:, 1:]
    counts = (labels != IGNORED).sum(1)
    found = model(**batch)
    logits = getattr(found, "logits", None)
    if logits is None or logits.shape[:2] != batch["labels"].shape:
        return found.loss.float() * counts.sum(), counts.sum()
    losses = cross_entropy(
        logits[:, :-1].float().flatten(0, 1), labels.flatten(), ignore_index=IGNORED,
        reduction="none",
    )  # fmt: skip
    return losses.view(labels.shape).double().sum(1), counts


@torch.no_grad()
def domain_losses(
    model: Any,
    samples: Mapping[K, Sequences],
    *,
    batch_size: int = 8,
    loss: Callable[[Any, Batch], tuple[torch.Tensor, torch.Tensor]] = sequence_loss,
    device: Any = None,
    group: Any = None,
    mesh: Any = None,
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
    loss : callable, default `sequence_loss`
        ``(model, batch) -> (sums, counts)``, one of each per sequence, or one for the batch.
        Standard errors count each of them as one independent piece of text. With a mesh, they
        must be those of whole sequences on every rank: sum them over context-parallel ranks, and
        send them on from the last stage of a pipeline.
    device : optional
        Device of the batches; the model's by default.
    group : optional
        Process group of torch.distributed whose ranks share the samples; all ranks if None.
    mesh : torch.distributed.device_mesh.DeviceMesh, optional
        Instead of a group: the data-parallel ranks of the mesh share the samples, each counted
        once, and all ranks of the mesh get the same numbers to the bit.
    """
    if mesh is not None:
        if group is not None:
            raise ValueError("give mesh or group, not both; the group follows from the mesh")
        group = data_group(mesh)
    rank, world = rank_of(group), world_size(group)
    check_whole("batch_size", batch_size, 1)
    if device is None:
        first_of = next(iter(model.parameters()), None) if hasattr(model, "parameters") else None
        device = "cpu" if first_of is None else first_of.device
    table = torch.zeros(MOMENTS, len(samples), dtype=torch.float64)
    with evaluating(model):
        for k, data in enumerate(samples.values()):
            for first in range(0, len(data), batch_size * world):
                mine = range(first + rank * batch_size, first + (rank + 1) * batch_size)
                taken = [i for i in mine if i < len(data)]
                batch = collated([data[i] for i in taken or [0]])
                found = loss(model, {name: t.to(device) for name, t in batch.items()})
                if taken:
                    table[:, k] += _moments(*found)
    summed = reduce_sums(table, group)
    total = (summed if mesh is None else agree(summed, mesh)).numpy()
    with np.errstate(divide="ignore", invalid="ignore"):
        means = total[0] / total[1]
        errors = _standard_errors(total, means)
    columns = (means.tolist(), total[1].tolist(), errors.tolist())
    return DomainLosses(*(dict(zip(samples, column, strict=True)) for column in columns))


def _moments(sums: torch.Tensor, counts: torch.Tensor) -> torch.Tensor:
    """Return sums over pieces of text of loss, tokens, 1, loss^2, loss * tokens and tokens^2."""
    s, n = sums.double().cpu().flatten(), counts.double().cpu().flatten()
    return torch.stack([s.sum(), n.sum(), (n > 0).sum(), s @ s, s @ n, n @ n])


def _standard_errors(total: Array, means: Array) -> Array:
    """Return the standard errors of ratios of sums over pieces of text; NaN for fewer than two."""
    _, tokens, pieces, ss, sn, nn = total
    squares = np.maximum(ss - 2.0 * means * sn + means**2 * nn, 0.0)
    found = np.sqrt(squares * pieces / (pieces - 1.0)) / tokens
    return np.where(pieces > 1, found, np.nan)


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
