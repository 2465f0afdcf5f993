"""Sums over groups that are unions of cells: parts of the rows that an engine has as its groups.

A cross-validation cuts every group into folds. The training rows of a fold are all cells but those
that it holds out, so the sums of all folds follow from those of the cells, in one read.
"""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import numpy as np
from scipy import sparse

from counterpoise.rows.engines.base import SumEngine
from counterpoise.rows.engines.memory import MemoryEngine
from counterpoise.rows.engines.overlapping import sum_patterns
from counterpoise.rows.engines.questions import Question
from counterpoise.rows.groups import GroupedData

Array = np.ndarray


class CellsEngine(SumEngine):
    """Some cells of another engine, added up to groups.

    ``codes_A`` are the indices in ``labels`` of the cells' groups, and ``kept_A`` marks the cells
    whose rows take part. Groups without rows are left out. ``rows`` is the engine of the cells
    itself, if ``inner`` only passes questions on to it.
    """

    def __init__(
        self,
        inner: SumEngine,
        codes_A: Array,
        labels: Array,
        kept_A: Array,
        rows: SumEngine | None = None,
    ) -> None:
        totals = np.bincount(codes_A[kept_A], inner.census.totals[kept_A], len(labels))
        present = np.flatnonzero(totals > 0)
        place = np.full(len(labels), -1)
        place[present] = np.arange(len(present))
        self.inner, self.kept_A = inner, np.flatnonzero(kept_A)
        self.place_A = place[codes_A]
        own = (np.ones(len(self.kept_A)), (self.kept_A, self.place_A[self.kept_A]))
        self.shares_AK: Any = sparse.csr_matrix(own, shape=(len(codes_A), len(present)))
        self._rows = inner if rows is None else rows
        census = replace(inner.census, labels=labels[present], totals=totals[present])
        super().__init__(census, inner.loss)

    def over(self, inner: SumEngine) -> CellsEngine:
        """Return the same groups of the same rows, with questions passed on to ``inner``."""
        twin = copy.copy(self)
        twin.inner = inner
        return twin

    def ask(self, question: Question) -> Array:
        self.counter.count += 1
        return sum_patterns(self.inner, question, self.shares_AK, self.place_A)

    def group_rows(self, k: int) -> GroupedData | None:
        if not isinstance(self._rows, MemoryEngine):
            return None
        data = self._rows.data
        cells = self.kept_A[self.place_A[self.kept_A] == k]
        rows = np.concatenate([np.arange(*data.offsets[cell : cell + 2]) for cell in cells])
        weights = data.row_weights[rows] if data.row_weights.size else data.row_weights
        return data.alone(rows, weights, self.census.labels[k : k + 1])

    def effective_sizes(self) -> Array:
        # n rows worth m rows of equal weight have squared weights total^2 / m.
        squares = self.inner.census.totals**2 / self.inner.effective_sizes()
        return np.asarray(self.census.totals**2 / (self.shares_AK.T @ squares))

    @property
    def rounding(self) -> float:
        return self.inner.rounding

    @property
    def additions(self) -> int:
        return self.inner.additions + self.shares_AK.shape[0]
