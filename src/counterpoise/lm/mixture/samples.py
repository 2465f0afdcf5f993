"""What a model is given at a time: a run of tokens of one domain, always of the same length."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch.utils.data import Dataset

from counterpoise.common.arguments import check_whole
from counterpoise.lm.corpus.tokens import Tokens

Array = np.ndarray

IGNORED = -100  # label of a position that no loss counts; what torch and transformers expect
CHUNK = 1 << 20


class Samples(Dataset[dict[str, torch.Tensor]]):
    """Samples of one domain's tokens, by number: a map-style dataset, also for evaluation.

    Parameters
    ----------
    tokens : Tokens
    length : int
        Tokens in a sample.
    packed : bool, default True
        Whether documents are read on and on, cut every ``length`` tokens (the last incomplete
        piece is left out), or every document is a sample by itself, cut or filled up with its end
        token; filling has label -100 and no attention.
    limit : int, optional
        At most so many samples, evenly spread over all.

    A sample is a dictionary of ``input_ids`` and ``labels`` (the same tokens; models shift them),
    and ``attention_mask`` when documents stand alone.
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
                "leave the domain out (domains=), or give the split a larger share"
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

    def mean_tokens(self) -> float:
        """Tokens per sample of the whole split, filling apart."""
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
    """A batch of samples."""
    return {key: torch.stack([s[key] for s in samples]) for key in samples[0]}


def packed_up(samples: list[dict[str, torch.Tensor]]) -> dict[str, Array]:
    """A batch as a worker sends it: small arrays, without what follows from others. Tensors would
    each take a file of shared memory, which costs more than making the batch."""
    keys = [key for key in samples[0] if key != "labels"]
    return {key: np.stack([s[key].numpy().astype(np.int32) for s in samples]) for key in keys}


def unpacked(batch: dict[str, Array]) -> dict[str, torch.Tensor]:
    """What `collated` would have made of the samples."""
    found = {key: torch.from_numpy(values).long() for key, values in batch.items()}
    labels = found["input_ids"].clone()
    if "attention_mask" in found:
        labels.masked_fill_(found["attention_mask"] == 0, IGNORED)
    return found | {"labels": labels}
