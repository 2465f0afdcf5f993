"""Held-out loss of every domain over all ranks: sums of token losses, never means of means."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
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
# Documents of a domain that are told apart for its standard error; more of them are merged.
MOST_BLOCKS = 1024


class Sequences(Protocol):
    """A map-style dataset of token batches."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> Batch: ...


@dataclass(frozen=True)
class DomainLosses(Generic[K]):
    """Mean loss per token of each domain, and what is known of its noise.

    Unpacks to losses and counts.

    Attributes
    ----------
    losses, counts : dict
        Mean loss per token, and the tokens behind it.
    errors, pieces : dict
        Standard error of the loss, and the number of independent pieces of text that it rests on:
        documents, where they are known, because parts of one document resemble one another. Of
        unequal documents, it is the number of equal ones that would tell as much.
    spreads : dict
        Standard deviation of the losses of single sequences, times the root of their tokens.
    """

    losses: dict[K, float]
    counts: dict[K, float]
    errors: dict[K, float]
    pieces: dict[K, float] = field(default_factory=dict)
    spreads: dict[K, float] = field(default_factory=dict)

    def __iter__(self) -> Iterator[dict[K, float]]:
        return iter((self.losses, self.counts))

    def only(self, names: Mapping[K, Any]) -> DomainLosses[Any]:
        """Return the part under some of the keys, renamed to their values."""
        tables = vars(self).items()
        return DomainLosses(
            **{key: {new: t[old] for old, new in names.items() if t} for key, t in tables}
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
        If one has an attribute ``document_numbers``, the number of each sample's document,
        neighbouring samples of one document count as one piece of text, as they do for `held_out`.
        Otherwise, and in a single document, standard errors take all samples to be independent.
    batch_size : int, default 8
        On each rank.
    loss : callable, default `sequence_loss`
        ``(model, batch) -> (sums, counts)``, one of each per sequence, or one for the batch, which
        is then one piece of text, whatever its documents. With a mesh, they must be those of whole
        sequences on every rank: sum them over context-parallel ranks, and send them on from the
        last stage of a pipeline.
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
    if not samples:
        return DomainLosses({}, {}, {})
    tallies = [_Tally(name, data) for name, data in samples.items()]
    with evaluating(model):
        for tally, data in zip(tallies, samples.values(), strict=True):
            for first in range(0, len(data), batch_size * world):
                mine = range(first + rank * batch_size, first + (rank + 1) * batch_size)
                taken = [i for i in mine if i < len(data)]
                batch = collated([data[i] for i in taken or [0]])
                found = loss(model, {name: t.to(device) for name, t in batch.items()})
                if taken:
                    tally.add(taken, *found)
    summed = reduce_sums(torch.cat([tally.sums for tally in tallies]), group)
    total = summed if mesh is None else agree(summed, mesh)
    parts = total.split([len(tally.sums) for tally in tallies])
    rows = [tally.measured(part) for tally, part in zip(tallies, parts, strict=True)]
    columns = zip(*rows, strict=True)
    return DomainLosses(*(dict(zip(samples, column, strict=True)) for column in columns))


class _Tally:
    """Sums over the samples of one domain, in one vector that ranks can add.

    It has six moments over samples, and losses and tokens of blocks of samples: documents, or
    neighbouring ones where there are many.
    """

    def __init__(self, name: Any, data: Sequences) -> None:
        numbers = _document_numbers(name, data)
        blocks = np.cumsum(np.diff(numbers, prepend=numbers[:1]) != 0)
        number = int(blocks[-1]) + 1 if len(blocks) else 0
        self.blocks = torch.from_numpy(blocks * MOST_BLOCKS // max(number, MOST_BLOCKS))
        size = min(number, MOST_BLOCKS)
        self.sums = torch.zeros(MOMENTS + 2 * size, dtype=torch.float64)
        self.by_block = self.sums[MOMENTS:].view(2, size)

    def add(self, taken: list[int], sums: torch.Tensor, counts: torch.Tensor) -> None:
        """Add samples, or a batch as a whole, by sums of token losses and numbers of tokens."""
        s, n = sums.double().cpu().flatten(), counts.double().cpu().flatten()
        self.sums[:MOMENTS] += torch.stack([s.sum(), n.sum(), (n > 0).sum(), s @ s, s @ n, n @ n])
        if len(s) == len(taken):
            self.by_block.index_add_(1, self.blocks[taken], torch.stack([s, n]))

    def measured(self, total: torch.Tensor) -> tuple[float, float, float, float, float]:
        """Return loss, tokens, standard error, pieces and spread, from the sums of all ranks.

        Where documents cannot be told apart, samples are the pieces.
        """
        loss, tokens, pieces, *_ = moments = total[:MOMENTS].numpy()
        with np.errstate(divide="ignore", invalid="ignore"):
            mean = loss / tokens
        error = _standard_error(moments, mean)
        spread = error * np.sqrt(tokens)
        s, n = total[MOMENTS:].view(2, -1).numpy()
        s, n = s[n > 0], n[n > 0]
        if len(n) > 1:
            error, pieces = _jackknife_error(s, n, mean), n.sum() ** 2 / (n @ n)
        return float(mean), float(tokens), float(error), float(pieces), float(spread)


def _document_numbers(name: Any, data: Sequences) -> Array:
    """Return the number of each sample's document; without such numbers, of each sample."""
    given = getattr(data, "document_numbers", None)
    if given is None:
        return np.arange(len(data))
    numbers = np.asarray(given)
    if numbers.shape != (len(data),) or numbers.dtype.kind not in "iu":
        raise ValueError(
            f"document_numbers of the samples of {name!r} must be {len(data)} whole numbers, one "
            f"for each sample; got {numbers.dtype} of shape {numbers.shape}"
        )
    return numbers


def _standard_error(moments: Array, mean: float) -> float:
    """Return the standard error of a ratio of sums over pieces of text; NaN for fewer than two."""
    _, tokens, pieces, ss, sn, nn = moments
    if pieces < 2:
        return np.nan
    square = max(ss - 2.0 * mean * sn + mean**2 * nn, 0.0)
    return np.sqrt(square * pieces / (pieces - 1.0)) / tokens


def _jackknife_error(sums: Array, counts: Array, mean: float) -> float:
    """Return the standard error of a ratio of sums over blocks, of which some may be large.

    Each block is left out in turn. A block that holds most of the text pulls the mean towards
    itself, so that its own deviation says too little.
    """
    moved = (sums - mean * counts) / (counts.sum() - counts)
    return float(np.sqrt(moved @ moved * (len(counts) - 1.0) / len(counts)))


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
