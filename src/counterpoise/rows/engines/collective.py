"""The engine for rows that several ranks hold: each answers for its own, and the sums are added.

A rank reads its rows with the engine for their kind, which knows only the groups of this rank. What
a rank found on the first look travels to all others, so that all have the same census and sample.
From then on, only sums travel.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass, fields, replace

import numpy as np
from scipy import sparse

from counterpoise.activations import Activation
from counterpoise.losses import Loss
from counterpoise.rows.collective import Collective
from counterpoise.rows.engines.base import SumEngine
from counterpoise.rows.engines.questions import Question
from counterpoise.rows.engines.tally import merge_scans
from counterpoise.rows.parcels import (
    from_parcel,
    numbered,
    scan_of,
    scan_tree,
    split_numbers,
    to_parcel,
)
from counterpoise.rows.sample import RowSample
from counterpoise.rows.scan import NoRows, Scan

Array = np.ndarray


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


class CollectiveEngine(SumEngine):
    """Sums over the rows of all ranks; every rank has such an engine, and asks the same."""

    def __init__(
        self, collective: Collective, own: Own, loss: Loss | Activation,
        *, names: list[str] | None = None, intercept: bool = True, centred: bool = True,
    ) -> None:  # fmt: skip
        self.collective: Collective = collective
        self._own = own
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

    def fingerprint(self) -> str:
        return self.scan.fingerprint

    def checksum(self) -> Array:
        return np.array([self.scan.checksum])

    def sample(self) -> RowSample:
        return self.scan.sample

    @property
    def rounding(self) -> float:
        return self._rounding

    def ask(self, question: Question) -> Array:
        found, error = None, None
        try:
            found = self._answer(question)
        except Exception as failure:  # all ranks raise it
            error = failure
        shape = self.collective.meet(
            type(question).__name__, error, signature=signature(question),
            shape=None if found is None else found.shape,
        )  # fmt: skip
        assert shape is not None  # some rank has rows
        self.counter.count += 1
        return self.collective.sum(np.zeros(shape) if found is None else found)

    def _answer(self, question: Question) -> Array | None:
        """Return the sums over the rows of this rank, with zeros for groups that it lacks."""
        engine, codes = self._own.engine, self._codes
        if engine is None:
            return None
        if len(codes) == self.n_groups:
            sums = engine.ask(question)
        else:
            sums = engine.ask(question.for_groups(codes))
            if not question.pooled:
                wide = np.zeros((self.n_groups, *sums.shape[1:]))
                wide[codes] = sums
                sums = wide
        return sums if self._own.scale == 1.0 else sums * self._own.scale


def signature(question: Question) -> int:
    """Return a checksum of the arrays of a question, which must be the same on all ranks."""
    crc = zlib.crc32(type(question).__name__.encode())
    for field in fields(question):
        value = getattr(question, field.name)
        if isinstance(value, Question):
            crc = zlib.crc32(signature(value).to_bytes(4, "little"), crc)
        elif isinstance(value, np.ndarray):
            crc = zlib.crc32(np.ascontiguousarray(value).tobytes(), crc)
    return crc


def _merged(scans: list[Scan]) -> Scan:
    """Merge the scans of ranks in their order; errors are about ranks."""
    if not scans:
        raise NoRows("no rank has any rows (with positive weight) to fit")
    try:
        return merge_scans(*scans)
    except (TypeError, ValueError) as error:
        raise type(error)(str(error).replace("chunks", "ranks")) from None


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
