"""A sample of rows by group: small enough to keep, and mergeable like a scan."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

Array = np.ndarray

# Numbers that a sample may hold, and rows that it keeps of every group in any case.
BUDGET, LEAST = 1 << 18, 16
# How many times the budget that may take.
SOME_MORE = 8


@dataclass(frozen=True)
class RowSample:
    """Rows drawn uniformly from every group.

    Each row of the data draws a key, and the rows of the smallest keys are kept: so the sample
    of two runs of rows is made from theirs.

    Attributes
    ----------
    X, y, weights : the rows; ``weights`` is None when all count alike
    codes : array of shape (m,), numbering ``labels``
    labels : array of shape (K,)
    counts : array of shape (K,)
        Rows of every group in the data.
    keys : array of shape (m,)
    budget : int
        Numbers to hold, more or less.
    """

    X: Any
    y: Array
    weights: Array | None
    codes: Array
    labels: Array
    counts: Array
    keys: Array
    budget: int = BUDGET

    @classmethod
    def draw(
        cls, X: Any, y: Array, codes: Array, labels: Array, weights: Array | None,
        *, seed: int = 0, budget: int = BUDGET,
    ) -> RowSample:  # fmt: skip
        """Of rows whose ``codes`` number ``labels``, in any order."""
        counts = np.bincount(codes, minlength=len(labels))
        keys = np.random.default_rng(seed).random(len(codes))
        cap = _cap(budget, X.shape[1], len(labels))
        rows: Any = slice(None)
        if counts.max(initial=0) > cap:
            # Most rows are left out at a glance; those left are more than enough.
            likely = np.minimum(1.0, (cap + 6.0 * np.sqrt(cap) + 20.0) / np.maximum(counts, 1))
            rows = np.flatnonzero(keys < likely[codes])
            rows = rows[_smallest(keys[rows], codes[rows], cap)]
        return cls(
            X=X[rows].copy(),  # rows of the user's own are his to change
            y=y[rows].copy(),
            weights=None if weights is None else weights[rows].copy(),
            codes=codes[rows],
            labels=labels,
            counts=counts,
            keys=keys[rows],
            budget=budget,
        )

    def merge(self, other: RowSample, labels: Array) -> RowSample:
        """The sample of both; ``labels`` are those of both."""
        mine, theirs = (np.searchsorted(labels, part.labels) for part in (self, other))
        counts = np.zeros(len(labels), dtype=np.int64)
        np.add.at(counts, mine, self.counts)
        np.add.at(counts, theirs, other.counts)
        codes = np.concatenate([mine[self.codes], theirs[other.codes]])
        keys = np.concatenate([self.keys, other.keys])
        rows = _smallest(keys, codes, _cap(self.budget, self.X.shape[1], len(labels)))
        if sparse.issparse(self.X) or sparse.issparse(other.X):
            X = sparse.vstack([sparse.csr_matrix(self.X), sparse.csr_matrix(other.X)]).tocsr()
        else:
            X = np.concatenate([self.X, other.X])
        weights = None
        if self.weights is not None or other.weights is not None:
            weights = np.concatenate([self._all_weights(), other._all_weights()])[rows]
        y = np.concatenate([self.y, other.y])
        return RowSample(
            X[rows], y[rows], weights, codes[rows], labels, counts, keys[rows], self.budget
        )

    def _all_weights(self) -> Array:
        return np.ones(len(self.y)) if self.weights is None else self.weights


def _cap(budget: int, n_features: int, n_groups: int) -> int:
    """Rows kept of every group: an even share of the budget, or a few even where that takes some
    more; with very many groups, one."""
    share = budget // max(1, n_features * n_groups)
    return max(share, min(LEAST, SOME_MORE * share), 1)


def _smallest(keys: Array, codes: Array, cap: int) -> Array:
    """Rows with the ``cap`` smallest keys of their code, sorted by code."""
    order = np.lexsort((keys, codes))
    sorted_codes = codes[order]
    first = np.searchsorted(sorted_codes, sorted_codes)  # where the row's own code begins
    return order[np.arange(len(order)) - first < cap]
