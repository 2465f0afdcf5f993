"""Megatron-style blends: the list that ``--data-path`` takes, and a blend that changes mid-run.

Megatron-LM decides for the whole run which dataset sample ``n`` comes from, from one set of
weights: always the dataset that is furthest behind its share. If it is started again with other
weights, it decides anew from sample 0, so that some samples come twice and others never.
`BlendSchedule` makes the same decisions for weights that change at known samples.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from counterpoise.common.arguments import check_weights, check_whole
from counterpoise.lm.published import PublishedWeights
from counterpoise.lm.sealed import read_sealed, write_sealed
from counterpoise.reweight.checks import check_domains
from counterpoise.storage.files import write_text

Array = np.ndarray
Name = str | int

FORMAT = "counterpoise blend schedule"
VERSION = 1
# Megatron's index of datasets has 16 bits.
MOST_DATASETS = 1 << 15


def blend(published: PublishedWeights, paths: Mapping[Name, str]) -> list[str]:
    """List weights and paths in turn, as ``--data-path`` takes them.

    Domains without weight are left out, because Megatron accepts only positive weights.

    Parameters
    ----------
    published : PublishedWeights
    paths : mapping of domains to str
        Path of each domain's dataset, without its suffix.

    Examples
    --------
    >>> published = PublishedWeights({"web": 0.25, "code": 0.75}, update=4)
    >>> blend(published, {"web": "data/web_text_document", "code": "data/code_text_document"})
    ['0.25', 'data/web_text_document', '0.75', 'data/code_text_document']
    """
    published.check_same(paths, None, "published")
    words: list[str] = []
    for name, path in paths.items():
        if published.weights[name] > 0:
            words += [repr(published.weights[name]), os.fspath(path)]
    return words


def write_blend(
    path: str | os.PathLike[str], published: PublishedWeights, paths: Mapping[Name, str]
) -> None:
    """Write a blend to a file for ``--data-args-path``."""
    words = blend(published, paths)
    spaced = [word for word in words if len(word.split()) != 1]
    if spaced:
        raise ValueError(
            f"paths must not contain blanks, which separate the entries of this file; got "
            f"{spaced[0]!r}. Rename it, or pass blend() to --data-path"
        )
    write_text(Path(path), " ".join(words) + "\n")


class Blended(NamedTuple):
    """Where consecutive samples of a blend come from, in Megatron's types."""

    dataset_index: Array
    dataset_sample_index: Array


@dataclass(frozen=True)
class BlendSchedule:
    """Which dataset, and which of its samples, every sample of a blend is.

    Parameters
    ----------
    domains : tuple of str or int
        In the order of the datasets.
    changes : tuple of pairs
        Samples and the weights that hold from them on; the first is sample 0. Use `starting` and
        `then`. The weights are kept as they are given, and normalised as Megatron does.

    Notes
    -----
    Let ``due`` be the number of samples that the weights asked for so far, by dataset: the sum of
    the weights in force at each sample. The next sample is of the dataset whose ``due`` is
    furthest above what it has given, and the next one in that dataset's own order. Datasets
    without weight give nothing; while there are none, no dataset is ever more than one sample ahead
    of its due. New weights are shares of what follows and do not make up for what came before.

    With one set of weights, the decisions are Megatron's, ties included, where its C++ is compiled
    for x86-64. Compilers for processors such as ARM may fuse its products with its differences, and
    a tie between datasets can then fall otherwise.

    Examples
    --------
    >>> schedule = BlendSchedule.starting({"web": 0.5, "code": 0.5})
    >>> schedule = schedule.then({"web": 0.0, "code": 1.0}, from_sample=4)
    >>> schedule.indices(0, 6).dataset_index.tolist()
    [0, 1, 0, 1, 1, 1]
    >>> schedule.indices(0, 6).dataset_sample_index.tolist()
    [0, 0, 1, 1, 2, 3]
    """

    domains: tuple[Name, ...]
    changes: tuple[tuple[int, tuple[float, ...]], ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "domains", check_domains(self.domains))
        if len(self.domains) >= MOST_DATASETS:
            raise ValueError(
                f"a blend has at most {MOST_DATASETS - 1} datasets; got {len(self.domains)}"
            )
        found: list[tuple[int, tuple[float, ...]]] = []
        for at, weights in self.changes:
            at = check_whole("from_sample", at)
            check_weights(list(weights), self.domains, zeros=True)
            if at <= found[-1][0] if found else at != 0:
                raise ValueError(
                    f"changes must begin at sample 0 and follow one another; sample {at} comes "
                    f"after {found[-1][0] if found else 'none'}"
                )
            found.append((at, tuple(map(float, weights))))
        if not found:
            raise ValueError("changes must hold the weights from sample 0 on; got none")
        object.__setattr__(self, "changes", tuple(found))

    @classmethod
    def starting(cls, weights: PublishedWeights | Mapping[Name, float]) -> BlendSchedule:
        """Begin a schedule with the weights of sample 0."""
        table = weights.weights if isinstance(weights, PublishedWeights) else weights
        return cls(tuple(table), ((0, tuple(table.values())),))

    def then(
        self, weights: PublishedWeights | Mapping[Name, float], from_sample: int | None = None
    ) -> BlendSchedule:
        """Return the schedule with other weights from a sample on.

        Parameters
        ----------
        weights : PublishedWeights or mapping
        from_sample : int, optional
            First sample that nobody has read yet; that of the published weights if not given. All
            ranks must use the same.
        """
        if isinstance(weights, PublishedWeights):
            weights.check_same(self.domains, None, "published")
            from_sample = weights.from_sample if from_sample is None else from_sample
            weights = weights.weights
        check_weights(weights, self.domains, zeros=True)
        if from_sample is None:
            raise ValueError(
                "from_sample is not known; give the first sample that no rank has read yet"
            )
        last = self.changes[-1][0]
        if check_whole("from_sample", from_sample) <= last:
            raise ValueError(
                f"from_sample={from_sample} must be above {last}, where the last change was: "
                "earlier samples may have been read already"
            )
        new = tuple(float(weights[name]) for name in self.domains)
        return BlendSchedule(self.domains, (*self.changes, (from_sample, new)))

    def indices(self, start: int, stop: int) -> Blended:
        """Return the datasets of samples ``start`` up to but without ``stop``, and theirs.

        They do not depend on where one starts, so a run that is started again reads on.
        """
        start, stop = check_whole("start", start), check_whole("stop", stop)
        if stop < start:
            raise ValueError(f"stop={stop} must not be below start={start}")
        datasets = np.empty(stop - start, dtype=np.int16)
        samples = np.empty(stop - start, dtype=np.int64)
        self._run(start, datasets, samples)
        return Blended(datasets, samples)

    def counts(self, sample: int) -> dict[Name, int]:
        """Return how many samples of each dataset come before a sample."""
        nothing = np.empty(0, dtype=np.int16), np.empty(0, dtype=np.int64)
        found = self._run(check_whole("sample", sample), *nothing)
        return dict(zip(self.domains, found.tolist(), strict=True))

    def _run(self, start: int, datasets: Array, samples: Array) -> Array:
        from counterpoise.lm.readers.greedy import choose

        counts = np.zeros(len(self.domains), dtype=np.int64)
        starts = np.array([at for at, _ in self.changes], dtype=np.int64)
        weights = np.array([_normalised(weights) for _, weights in self.changes])
        choose(starts, weights, start, counts, datasets, samples)
        return counts

    def write(self, path: str | os.PathLike[str]) -> None:
        """Write the schedule to a JSON file, whole or not at all."""
        changes = [[at, list(weights)] for at, weights in self.changes]
        entries = {"domains": list(self.domains), "changes": changes}
        write_sealed(Path(path), {"format": FORMAT, "version": VERSION, **entries})

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> BlendSchedule:
        """Read a file that `write` wrote; a damaged one is refused."""
        remedy = "restore it from a copy"
        found: dict[str, Any] = read_sealed(
            Path(path), remedy, kind=FORMAT, versions=(VERSION,), since=VERSION
        )
        changes = tuple((at, tuple(weights)) for at, weights in found["changes"])
        return cls(tuple(found["domains"]), changes)


def _normalised(weights: tuple[float, ...]) -> Array:
    """Divide by the sum twice, as Megatron's builder and blend do, without the zeros it refuses.

    The last digits of the weights decide between datasets that are equally far behind.
    """
    found = np.array(weights)
    positive = found > 0
    for _ in range(2):
        found[positive] /= np.sum(found[positive])
    return found
