"""Splits of a cross-validation as cells of one engine: one read serves all training sets."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from counterpoise.losses import Loss
from counterpoise.rows.engines.base import SumEngine
from counterpoise.rows.engines.cells import CellsEngine
from counterpoise.rows.engines.memory import MemoryEngine
from counterpoise.rows.groups import GroupedData

Array = np.ndarray

# Splits are fitted together as long as they cut every group into at most this many parts.
MOST_PARTS = 64


@dataclass(frozen=True)
class CutRows:
    """Rows cut into cells, such that every training set is a union of cells.

    ``codes_A`` are the groups of the cells, and ``kept_SA`` marks the cells that the training rows
    of every split consist of.
    """

    engine: SumEngine
    codes_A: Array
    kept_SA: Array
    labels: Array

    @classmethod
    def of(
        cls, data: GroupedData, parts: Array, kept_SP: Array, loss: Loss, *, centred: bool
    ) -> CutRows:
        """Cut rows, sorted by group, into the given parts of every group."""
        P = kept_SP.shape[1]
        cells = data.codes * P + parts
        weights = data.row_weights if data.row_weights.size else None
        cut = GroupedData.build(data.X, data.y, cells, weights, intercept=data.intercept)
        engine = MemoryEngine(cut, loss, centred=centred)
        return cls(engine, cut.labels // P, kept_SP[:, cut.labels % P], data.labels)

    def training(self, split: int, seat: SumEngine | None = None) -> CellsEngine:
        """Return the engine for the training rows of a split; ``seat`` takes its questions."""
        inner = self.engine if seat is None else seat
        return CellsEngine(inner, self.codes_A, self.labels, self.kept_SA[split], self.engine)


def fitted_together(
    splits: Sequence[tuple[Array, Any]], n: int
) -> Iterator[tuple[range, Array, Array]]:
    """Yield runs of splits, the parts of the rows that they cut, and which parts each trains on.

    Rows are in the same part if the splits train on the same ones of them. Parts have the numbers
    0, ..., P - 1; the last result is a mask of shape (splits, P).
    """
    first, parts, kept = 0, np.zeros(n, dtype=np.int64), np.ones((0, 1), dtype=bool)
    for s, (train, _) in enumerate(splits):
        finer, more = _refined(parts, kept, train)
        # Splits whose held-out rows overlap, as those of another repeat, cut parts to pieces.
        if s > first and more.shape[1] > min(MOST_PARTS, s - first + 2):
            yield range(first, s), parts, kept
            first = s
            finer, more = _refined(np.zeros_like(parts), np.ones((0, 1), dtype=bool), train)
        parts, kept = finer, more
    yield range(first, len(splits)), parts, kept


def _refined(parts: Array, kept: Array, train: Array) -> tuple[Array, Array]:
    """Cut parts into rows that one more split trains on, and others."""
    flags = np.zeros(len(parts), dtype=np.int64)
    flags[train] = 1
    finer = 2 * parts + flags
    there = np.bincount(finer, minlength=2 * kept.shape[1]) > 0
    found = np.flatnonzero(there)
    numbers = np.cumsum(there) - 1
    return numbers[finer], np.vstack([kept[:, found // 2], found[None, :] % 2 == 1])
