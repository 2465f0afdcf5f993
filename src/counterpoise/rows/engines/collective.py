"""The engine for rows that several ranks hold: each answers for its own, and the sums are added.

A rank reads its rows with the engine for their kind, which knows only the groups of this rank. What
a rank found on the first look travels to all others, so that all have the same census and sample.
From then on, only sums travel.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import TypeVar

import numpy as np
from scipy import sparse

from counterpoise.activations import Activation
from counterpoise.losses import Loss
from counterpoise.rows.collective import Collective
from counterpoise.rows.engines.base import SumEngine
from counterpoise.rows.engines.journal import digest_question
from counterpoise.rows.engines.questions import Question
from counterpoise.rows.engines.scanned import ScannedEngine
from counterpoise.rows.engines.tally import merge_scans, widened
from counterpoise.rows.parcels import (
    from_parcel,
    numbered,
    scan_of,
    scan_tree,
    split_numbers,
    to_parcel,
)
from counterpoise.rows.sample import RowSample
from counterpoise.rows.scan import NoRows, Scan, union_labels

Array = np.ndarray
T = TypeVar("T")


@dataclass(frozen=True)
class Own:
    """The rows of this rank: their engine and scan; neither if it has no rows.

    ``overlapping`` is whether the groups are memberships, which are then still to be read.
    ``scale`` is what the engine divided the weights by.
    """

    engine: SumEngine | None = None
    scan: Scan | None = None
    overlapping: bool = False
    scale: float = 1.0


class CollectiveEngine(ScannedEngine):
    """Sums over the rows of all ranks; every rank has such an engine, and asks the same."""

    def __init__(
        self, collective: Collective, own: Own, loss: Loss | Activation,
        *, names: list[str] | None = None, intercept: bool = True, centred: bool = True,
    ) -> None:  # fmt: skip
        self.collective: Collective = collective
        own = self._own = _thinned(collective, own)
        told = {
            "scan": None if own.scan is None else scan_tree(numbered(own.scan, collective.rank)),
            "rounding": 0.0 if own.engine is None else own.engine.rounding,
            "names": names,
        }
        packed = collective.attempt("packing the first look", lambda: to_parcel(told))
        heard = [from_parcel(data) for data in collective.gather_bytes(packed)]
        self.feature_names = _same_names([rank["names"] for rank in heard])
        self._rounding = max(rank["rounding"] for rank in heard)
        scan = _merged([scan_of(rank["scan"]) for rank in heard if rank["scan"] is not None])
        self.scan = replace(scan, sample=self._drawn(scan))
        super().__init__(self.scan.census(intercept=intercept, centred=centred), loss)
        self._codes = np.arange(0)
        if own.scan is not None:
            self._codes = np.searchsorted(self.scan.labels, own.scan.labels)
        self.counter.count = 1

    def _drawn(self, scan: Scan) -> RowSample:
        """Exchange the rows of the sample, which has numbers in their place."""
        ranks, places = split_numbers(scan.sample.X[:, 0])
        mine, own = places[ranks == self.collective.rank], self._own.scan
        packed = to_parcel(None if own is None or not mine.size else own.sample.X[mine])
        parts = [from_parcel(data) for data in self.collective.gather_bytes(packed)]
        some = [part for part in parts if part is not None]
        if any(sparse.issparse(part) for part in some):
            X = sparse.vstack([sparse.csr_matrix(part) for part in some]).tocsr()
        else:
            X = np.concatenate(some)
        # Rows arrive by rank, and in the order of the sample within a rank.
        order = np.argsort(ranks, kind="stable")
        back = np.empty_like(order)
        back[order] = np.arange(len(order))
        return scan.sample.with_rows(X[back], scan.sample.budget * max(1, scan.n_features))

    @property
    def rounding(self) -> float:
        return self._rounding

    def ask(self, question: Question) -> Array:
        (answer,) = self.ask_all([question])
        return answer

    def ask_all(self, questions: Sequence[Question]) -> Sequence[Array]:
        """Answer questions with as few reads as this rank can; add up the answers of all ranks."""
        if not questions:
            return []
        found: list[Array] = []
        error = None
        before = 0 if self._own.engine is None else self._own.engine.passes
        try:
            found = self._answers(questions)
        except Exception as failure:  # all ranks raise it
            error = failure
        # The shape of one answer, or else how many numbers describe all shapes.
        told = [number for sums in found for number in (sums.ndim, *sums.shape)]
        shape = told[1:] if len(questions) == 1 else [len(told)]
        agreed = self.collective.meet(
            ", ".join(dict.fromkeys(type(question).__name__ for question in questions)), error,
            signature=signature(*questions), shape=shape if found else None,
        )  # fmt: skip
        assert agreed is not None  # some rank has rows
        shapes, reads = [agreed], 1
        if len(questions) > 1:
            after = 0 if self._own.engine is None else self._own.engine.passes
            heard = self.collective.gather(
                np.array([after - before, *(told or [0] * agreed[0])], dtype=float)
            ).astype(int)
            reads, known = int(heard[:, 0].max()), iter(heard[heard[:, 1:].any(axis=1)][0, 1:])
            shapes = [tuple(int(next(known)) for _ in range(ndim)) for ndim in known]
        self.counter.count += reads
        sizes = [math.prod(shape) for shape in shapes]
        flat = [sums.reshape(-1) for sums in found] or [np.zeros(sum(sizes))]
        parts = np.split(self.collective.sum(np.concatenate(flat)), np.cumsum(sizes)[:-1])
        return [part.reshape(shape) for part, shape in zip(parts, shapes, strict=True)]

    def _answers(self, questions: Sequence[Question]) -> list[Array]:
        """Return the sums over the rows of this rank, with zeros for groups that it lacks."""
        engine, codes = self._own.engine, self._codes
        if engine is None:
            return []
        if len(codes) < self.n_groups:
            own = [question.for_groups(codes) for question in questions]
            answers = [
                sums if question.pooled else widened(sums, codes, self.n_groups)
                for question, sums in zip(questions, engine.ask_all(own), strict=True)
            ]
        else:
            answers = list(engine.ask_all(questions))
        scale = self._own.scale
        return answers if scale == 1.0 else [sums * scale for sums in answers]


def _thinned(collective: Collective, own: Own) -> Own:
    """Return rows with as much of their sample as all ranks together may keep of it."""
    scan = own.scan
    told = None if scan is None else {
        "labels": scan.labels, "counts": scan.sample.counts, "grouped": scan.grouped,
    }  # fmt: skip
    packed = collective.attempt("packing the groups", lambda: to_parcel(told))
    heard = [from_parcel(data) for data in collective.gather_bytes(packed)]
    some = [rank for rank in heard if rank is not None]
    if len({rank["grouped"] for rank in some}) != 1:
        return own  # no rank has rows, or else merging the scans says what is wrong
    labels = _of_ranks(lambda: reduce(union_labels, [rank["labels"] for rank in some]))
    counts = np.zeros(len(labels), dtype=np.int64)
    for rank in some:
        counts[np.searchsorted(labels, rank["labels"])] += rank["counts"]
    if scan is None:
        return own
    sample = scan.sample.thinned(scan.n_features, labels, counts)
    return replace(own, scan=replace(scan, sample=sample))


def _of_ranks(work: Callable[[], T]) -> T:
    """Return ``work()``, with errors about ranks instead of chunks."""
    try:
        return work()
    except (TypeError, ValueError) as error:
        raise type(error)(str(error).replace("chunks", "ranks")) from None


def signature(*questions: Question) -> int:
    """Return a checksum of questions, which must be the same on all ranks."""
    return zlib.crc32("".join(map(digest_question, questions)).encode())


def _merged(scans: list[Scan]) -> Scan:
    """Merge the scans of ranks in their order; errors are about ranks."""
    if not scans:
        raise NoRows("no rank has any rows (with positive weight) to fit")
    return _of_ranks(lambda: merge_scans(*scans))


def _same_names(heard: list[list[str] | None]) -> list[str] | None:
    """Return the names of features that all ranks have which have any."""
    known = [(rank, names) for rank, names in enumerate(heard) if names is not None]
    for rank, names in known:
        if names != known[0][1]:
            raise ValueError(
                f"the features of rank {known[0][0]} are {known[0][1][:20]!r}, and those of rank "
                f"{rank} are {names[:20]!r}; give all ranks the same columns in the same order"
            )
    return known[0][1] if known else None
