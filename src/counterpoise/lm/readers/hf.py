"""Hugging Face Datasets: `interleave`, whose probabilities are published weights.

``datasets.interleave_datasets`` fixes its probabilities when it is called, and every one of its
streams holds samples in a buffer. New weights would need another stream, which reads these samples
again. `interleave` therefore draws from the datasets itself and never makes them anew.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any

from counterpoise.common.packages import not_installed

try:
    import datasets
    import torch
except ImportError as error:
    who = "the reader for Hugging Face Datasets needs"
    raise not_installed(who, "datasets", "torch", error=error) from error

from torch.utils.data import get_worker_info

from counterpoise.lm.mixture.draws import key_of
from counterpoise.lm.readers.plain import EVERY, MixedStream

Name = str | int


class InterleavedDataset(torch.utils.data.IterableDataset[Any]):
    """Samples of several datasets, drawn by published weights; made by `interleave`.

    A DataLoader's workers share each dataset by its shards, and draw by seeds of their own.
    """

    def __init__(
        self,
        sources: Mapping[Name, Any],
        weights: str | os.PathLike[str],
        *,
        seed: int,
        every: int,
        exhaustion: str,
        corpus: str | None,
        domain_column: str | None,
    ) -> None:
        self.sources = {name: _streamed(name, source) for name, source in sources.items()}
        self.weights, self.seed, self.domain_column = weights, seed, domain_column
        self._options: dict[str, Any] = {
            "every": every, "exhaustion": exhaustion, "corpus": corpus
        }  # fmt: skip
        self._stream: MixedStream | None = None
        self._loaded: Mapping[str, Any] | None = None
        self._opened(seed)  # errors come here, not from a worker

    def __iter__(self) -> Iterator[Any]:
        """Yield samples; after `load_state_dict` from there on, otherwise from the start."""
        info = get_worker_info()
        seed = self.seed
        if info is not None:
            for name, source in self.sources.items():
                if source.num_shards < info.num_workers:
                    raise ValueError(
                        f"domain {name!r} has {source.num_shards} shards for {info.num_workers} "
                        "workers, so some would read none of it; use fewer workers, or cut it "
                        "into more files (to_iterable_dataset(num_shards=...))"
                    )
            seed = key_of(seed, "worker", info.id)
        self._stream = self._opened(seed)
        if self._loaded is not None:
            self._stream.load_state_dict(self._loaded)
            self._loaded = None
        return map(self._sample, self._stream)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_stream": None}  # a worker opens its own

    def _opened(self, seed: int) -> MixedStream:
        return MixedStream(self.sources, self.weights, seed=seed, **self._options)

    def _sample(self, drawn: tuple[Name, Any]) -> Any:
        name, sample = drawn
        return sample if self.domain_column is None else {**sample, self.domain_column: name}

    def state_dict(self) -> dict[str, Any]:
        """Return where the iteration stands; that of a worker, in a worker."""
        if self._loaded is not None:
            return dict(self._loaded)
        return (self._stream or self._opened(self.seed)).state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue where a state was taken, from the next iteration on."""
        self._loaded = state


def interleave(
    sources: Mapping[Name, Any],
    weights: str | os.PathLike[str] = "weights.json",
    *,
    seed: int = 0,
    every: int = EVERY,
    exhaustion: str = "stop",
    corpus: str | None = None,
    domain_column: str | None = None,
) -> InterleavedDataset:
    """Interleave Hugging Face datasets by published weights.

    Parameters
    ----------
    sources : mapping of domains to datasets
        Each a ``datasets.IterableDataset`` or ``datasets.Dataset``. Shuffle them first, and split
        them over nodes with ``datasets.distributed.split_dataset_by_node``.
    weights, seed, every, corpus
        See `counterpoise.lm.readers.plain.mixed`. Each node needs a seed of its own.
    exhaustion : {"stop", "repeat", "drop"}, default "stop"
        ``"stop"`` and ``"drop"`` are ``"first_exhausted"`` and
        ``"all_exhausted_without_replacement"`` of ``interleave_datasets``; ``"repeat"`` starts a
        dataset again when it ends.
    domain_column : str, optional
        Name of a column with each sample's domain.

    Returns
    -------
    samples : InterleavedDataset
        A torch ``IterableDataset`` with ``state_dict`` and ``load_state_dict``, for a DataLoader or
        torchdata's ``StatefulDataLoader``.

    Notes
    -----
    Each worker looks at the file for itself, before every ``every``-th of its own draws. New
    weights neither repeat nor lose a sample, and neither does a resume by a state, unless a source
    has a shuffle buffer: Datasets drops what is in it when it resumes, also after an error.

    A ``StatefulDataLoader`` resumes by the state if its ``snapshot_every_n_steps`` is 1, the
    default. From an older snapshot, its workers draw the batches since then again, by the weights
    that are in the file by then. A Trainer resumes without a state: it draws all batches again that
    it has trained on, so after a change of the weights samples repeat and others are never read.
    For a Trainer, use `counterpoise.lm.adapters.hf`.
    """
    return InterleavedDataset(
        sources,
        weights,
        seed=seed,
        every=every,
        exhaustion=exhaustion,
        corpus=corpus,
        domain_column=domain_column,
    )


def _streamed(name: Name, source: Any) -> Any:
    if isinstance(source, datasets.Dataset):
        return source.to_iterable_dataset()
    if isinstance(source, datasets.IterableDataset):
        return source
    raise TypeError(
        f"sources must be datasets of Hugging Face; domain {name!r} has {type(source).__name__}. "
        "Choose a split if it is a dictionary of splits; for other iterables, use readers.plain"
    )
