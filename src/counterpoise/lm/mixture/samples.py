"""Samples of one domain: runs of tokens of equal length."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch.utils.data import Dataset

from counterpoise.common.arguments import check_whole
from counterpoise.lm.corpus.tokens import Tokens

Array = np.ndarray

IGNORED = -100  # label of positions without a loss, by torch's convention
LOSS_WEIGHT = "loss_weight"  # entry of a batch: what the loss of each sample counts
CHUNK = 1 << 20


class Samples(Dataset[dict[str, torch.Tensor]]):
    """Samples of one domain's tokens, by number; a map-style dataset.

    Parameters
    ----------
    tokens : Tokens
    length : int
        Tokens per sample.
    packed : bool, default True
        If true, documents follow one another and are cut every ``length`` tokens; an incomplete
        last piece is dropped. Otherwise each document is one sample, cut or padded with its end
        token; padding has the label -100 and no attention.
    limit : int, optional
        At most so many samples, evenly spread over all.

    Notes
    -----
    A sample is a dictionary of ``input_ids`` and ``labels`` (the same tokens; models shift them),
    with an ``attention_mask`` if not packed.
    """

    def __init__(
        self, tokens: Tokens, length: int, *, packed: bool = True, limit: int | None = None
    ) -> None:
        self.tokens, self.length, self.packed = tokens, check_whole("length", length, 1), packed
        self._all = tokens.n_tokens // self.length if packed else tokens.n_documents
        self._count = self._all
        if self._all == 0:
            raise ValueError(
                f"domain {tokens.name!r} has {tokens.n_tokens} tokens in the split "
                f"{tokens.split!r}, fewer than one sample of {self.length}; use a shorter length, "
                "leave out the domain (domains=), or enlarge the split"
            )
        if limit is not None:
            self._count = min(self._count, check_whole("limit", limit, 1))

    @property
    def name(self) -> str:
        return self.tokens.name

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        if not 0 <= index < self._count:
            raise IndexError(f"sample {index} of {self._count} of domain {self.name!r}")
        index = index * self._all // self._count
        if self.packed:
            ids = torch.from_numpy(self.tokens.read(index * self.length, (index + 1) * self.length))
            return {"input_ids": ids, "labels": ids.clone()}
        start, stop = self.tokens.document_bounds(index)
        found = self.tokens.read(start, min(stop, start + self.length))
        ids = torch.full((self.length,), self.tokens.end)
        ids[: len(found)] = torch.from_numpy(found)
        attention = torch.zeros(self.length, dtype=torch.long)
        attention[: len(found)] = 1
        labels = ids.masked_fill(attention == 0, IGNORED)
        return {"input_ids": ids, "labels": labels, "attention_mask": attention}

    @property
    def document_numbers(self) -> Array:
        """The document of each sample; of a packed one, that in its middle."""
        numbers = np.arange(self._count) * self._all // self._count
        if not self.packed:
            return numbers
        ends = self.tokens.ends(0, self.tokens.n_documents)
        return np.searchsorted(ends, numbers * self.length + self.length // 2, side="right")

    def mean_tokens(self) -> float:
        """Mean number of tokens per sample of the split, without padding."""
        if self.packed:
            return float(self.length)
        total, last = 0, 0
        for lo in range(0, self._all, CHUNK):
            ends = self.tokens.ends(lo, min(lo + CHUNK, self._all))
            total += int(np.minimum(np.diff(ends, prepend=last), self.length).sum())
            last = int(ends[-1])
        return total / self._all

    def __repr__(self) -> str:
        kind = "packed" if self.packed else "documents"
        return f"Samples({self.name!r}: {self._count:,} of {self.length} tokens, {kind})"


def collated(samples: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
    """Collate samples into a batch."""
    return {key: torch.stack([s[key] for s in samples]) for key in samples[0]}


def packed_up(samples: list[dict[str, torch.Tensor]]) -> dict[str, Array]:
    """Pack a batch for its way from a worker: small arrays, without what follows from others.

    Tensors would each take a file of shared memory, which costs more than making the batch.
    """
    keys = [key for key in samples[0] if key != "labels"]
    return {key: np.stack([s[key].numpy().astype(np.int32) for s in samples]) for key in keys}


def unpacked(batch: dict[str, Array]) -> dict[str, torch.Tensor]:
    """Unpack to what `collated` would have made."""
    found = {key: torch.from_numpy(values).long() for key, values in batch.items()}
    labels = found["input_ids"].clone()
    if "attention_mask" in found:
        labels.masked_fill_(found["attention_mask"] == 0, IGNORED)
    return found | {"labels": labels}


def with_loss_weights(batch: Any, loss_weights: Array) -> dict[str, Any]:
    """Add an entry ``loss_weight`` to a batch: the factor of each sample's loss."""
    if not isinstance(batch, dict):
        raise TypeError(
            f"the batch is a {type(batch).__name__}, which cannot carry the factors of its losses; "
            "let collate_fn return a dictionary, or draw samples by the weights"
        )
    return {**batch, LOSS_WEIGHT: torch.from_numpy(loss_weights.astype(np.float32))}
