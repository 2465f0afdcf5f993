"""A sample of rows by group, small enough to keep, and mergeable like a scan."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy import sparse

Array = np.ndarray

# Target size of a sample in numbers, and the rows to keep of every group even beyond it.
BUDGET, LEAST = 1 << 18, 16
# Keeping these rows may exceed the budget by at most this factor.
SOME_MORE = 8


@dataclass(frozen=True)
class RowSample:
    """Rows drawn uniformly from every group.

    Each row of the data gets a random key, and the rows with the smallest keys are kept. So the
    samples of two runs of rows can be merged into one of both.

    Attributes
    ----------
    X, y, weights : the rows; ``weights`` is None if all rows have equal weight
    codes : array of shape (m,), indices into ``labels``
    labels : array of shape (K,)
    counts : array of shape (K,)
        Number of rows of every group in the data.
    keys : array of shape (m,)
    budget : int
        Approximate size of the sample, in numbers.
    notes : sentences for the user about groups that overlap
    rows : the numbers of rows in the data and in the sample, if the sample has a copy of a row for
        each of its groups
    """

    X: Any
    y: Array
    weights: Array | None
    codes: Array
    labels: Array
    counts: Array
    keys: Array
    budget: int = BUDGET
    notes: tuple[str, ...] = ()
    rows: tuple[int, int] | None = None

    @property
    def n_rows(self) -> int:
        """Number of rows in the data."""
        return int(self.counts.sum()) if self.rows is None else self.rows[0]

    @property
    def n_drawn(self) -> int:
        """Number of rows in the sample."""
        return len(self.y) if self.rows is None else self.rows[1]

    @classmethod
    def draw(
        cls, X: Any, y: Array, codes: Array, labels: Array, weights: Array | None,
        *, seed: int = 0, budget: int = BUDGET,
    ) -> RowSample:  # fmt: skip
        """Draw from rows in any order, whose ``codes`` index ``labels``."""
        counts = np.bincount(codes, minlength=len(labels))
        keys = np.random.default_rng(seed).random(len(codes))
        cap = _cap(budget, X.shape[1], len(labels))
        rows: Any = slice(None)
        if counts.max(initial=0) > cap:
            # Discard most rows first; more than enough remain.
            rows = np.flatnonzero(keys < _enough(cap, counts)[codes])
            rows = rows[_smallest(keys[rows], codes[rows], cap)]
        return cls(
            X=X[rows].copy(),  # the user may change the originals
            y=y[rows].copy(),
            weights=None if weights is None else weights[rows].copy(),
            codes=codes[rows],
            labels=labels,
            counts=counts,
            keys=keys[rows],
            budget=budget,
        )

    def thinned(self, n_features: int, labels: Array, counts: Array) -> RowSample:
        """Return the rows that may stay in a merge with others.

        ``labels`` and ``counts`` are the groups of all rows that are merged, and their sizes.
        """
        cap = _cap(self.budget, n_features, len(labels))
        bounds = _enough(cap, counts)[np.searchsorted(labels, self.labels)]
        rows = np.flatnonzero(self.keys < bounds[self.codes])
        weights = None if self.weights is None else self.weights[rows]
        return replace(
            self, X=self.X[rows], y=self.y[rows], weights=weights, codes=self.codes[rows],
            keys=self.keys[rows],
        )  # fmt: skip

    def with_rows(self, X: Any, budget: int) -> RowSample:
        """Return the sample with rows in place of their numbers, which were drawn instead."""
        return replace(self, X=X, budget=budget)

    def merge(self, other: RowSample, labels: Array) -> RowSample:
        """Merge two samples; ``labels`` are the labels of both."""
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


def _enough(cap: int, counts: Array) -> Array:
    """Return bounds on the keys: almost surely ``cap`` rows or more of every group lie below."""
    return np.minimum(1.0, (cap + 6.0 * np.sqrt(cap) + 20.0) / np.maximum(counts, 1))


def _cap(budget: int, n_features: int, n_groups: int) -> int:
    """Return the number of rows to keep of every group.

    This is an even share of the budget, raised to ``LEAST`` if that exceeds the budget only
    moderately. It is at least one.
    """
    share = budget // max(1, n_features * n_groups)
    return max(share, min(LEAST, SOME_MORE * share), 1)


def _smallest(keys: Array, codes: Array, cap: int) -> Array:
    """Return the rows with the ``cap`` smallest keys of each code, sorted by code."""
    order = np.lexsort((keys, codes))
    sorted_codes = codes[order]
    first = np.searchsorted(sorted_codes, sorted_codes)  # first row with the same code
    return order[np.arange(len(order)) - first < cap]
