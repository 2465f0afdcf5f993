"""The first look at rows that do not all fit in memory: groups, totals, a centre, a sample.

A :class:`Scan` of two runs of rows is the merger of theirs, in any grouping of the runs, so it
can be made chunk by chunk or as a tree across machines.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

from counterpoise.engines.base import Census
from counterpoise.groups import GroupedData, check_weights, encode_groups

Array = np.ndarray

# A sample of every group: enough rows that a fit to it is a few percent from that of all, the more
# coefficients the more; fewer if all groups together would take more numbers than this.
SAMPLE_ROWS, SAMPLE_ROWS_PER_COEF, SAMPLE_NUMBERS = 1000, 20, 1 << 25


def sample_size(n_groups: int, n_features: int) -> int:
    """Rows of every group in a sample."""
    wanted = max(SAMPLE_ROWS, SAMPLE_ROWS_PER_COEF * (n_features + 1))
    return max(1, min(wanted, SAMPLE_NUMBERS // max(1, n_groups * n_features)))


@dataclass(frozen=True)
class Rows:
    """Checked rows of one chunk: ``codes`` number the chunk's own sorted ``labels``."""

    X: Any
    y: Array
    labels: Array
    codes: Array
    weights: Array | None


def check_chunk(X: Any, y: Any, groups: Any, weights: Any, where: str) -> Rows:
    """Rows of a chunk as arrays of finite numbers; rows of zero weight are left out."""
    if sparse.issparse(X):
        X = X.tocsr()
        values = X.data
    else:
        X = values = np.asarray(X)
    if X.ndim != 2:
        raise ValueError(f"{where}: X must have two dimensions; got shape {X.shape}")
    if X.dtype not in (np.float32, np.float64):
        try:
            X = X.astype(float)
        except (TypeError, ValueError):
            raise ValueError(
                f"{where}: X must hold numbers; got an array of dtype {X.dtype}"
            ) from None
        values = X.data if sparse.issparse(X) else X
    y = np.asarray(y, dtype=float)
    if y.shape != (X.shape[0],):
        raise ValueError(f"{where}: X has {X.shape[0]} rows but y has shape {y.shape}")
    for name, numbers in (("X", values), ("y", y)):
        if not np.isfinite(numbers).all():
            raise ValueError(
                f"{where}: {name} has missing or infinite values; impute or leave out these rows"
            )
    labels, codes = encode_groups(groups, len(y))
    weights = check_weights(weights, len(y))
    if weights is not None and not weights.all():
        keep = np.flatnonzero(weights)
        X, y, weights = X[keep], y[keep], weights[keep]
        present, codes = np.unique(codes[keep], return_inverse=True)
        labels = labels[present]
    return Rows(X, y, labels, codes, weights)


@dataclass(frozen=True)
class Scan:
    """Groups with their totals, the mean of the features, and the rows drawn so far."""

    labels: Array
    totals: Array
    n_rows: int
    n_features: int
    mean: Array
    pivot: float
    precision: float
    is_sparse: bool
    X: Any
    y: Array
    codes: Array
    weights: Array
    priority: Array

    @classmethod
    def of(cls, rows: Rows, index: int) -> Scan:
        """The scan of chunk number ``index``; its rows are drawn by a seed of their own."""
        n, d = rows.X.shape
        counts = np.ones(n) if rows.weights is None else rows.weights
        is_sparse = sparse.issparse(rows.X)
        priority = np.random.default_rng([0, index]).random(n)
        keep = _lowest(priority, rows.codes, sample_size(len(rows.labels), d))
        return cls(
            labels=rows.labels,
            totals=np.bincount(rows.codes, weights=counts, minlength=len(rows.labels)),
            n_rows=n,
            n_features=d,
            mean=np.zeros(d) if is_sparse or not n else rows.X.mean(axis=0, dtype=float),
            pivot=float(np.median(rows.y[:: max(1, n // 4096)])) if n else 0.0,
            precision=float(np.finfo(rows.X.dtype).eps),
            is_sparse=is_sparse,
            X=rows.X[keep],
            y=rows.y[keep],
            codes=rows.codes[keep],
            weights=counts[keep],
            priority=priority[keep],
        )

    def merge(self, other: Scan) -> Scan:
        """The scan of these rows and then the other's."""
        if not self.n_rows or not other.n_rows:
            return self if self.n_rows else other
        if self.n_features != other.n_features:
            raise ValueError(
                f"chunks differ in their number of features: {self.n_features} and "
                f"{other.n_features}"
            )
        try:
            labels = np.union1d(self.labels, other.labels)
        except TypeError:
            kinds = f"{self.labels.dtype} and {other.labels.dtype}"
            raise TypeError(
                f"groups of different chunks cannot be sorted together ({kinds}); turn them into "
                "one kind, for example with str()"
            ) from None
        if (labels.dtype.kind in "US") != (self.labels.dtype.kind in "US") or (
            (labels.dtype.kind in "US") != (other.labels.dtype.kind in "US")
        ):
            raise TypeError(
                f"groups are text in some chunks and {self.labels.dtype} or {other.labels.dtype} "
                "in others; turn them into one kind"
            )
        places = [np.searchsorted(labels, s.labels) for s in (self, other)]
        totals = np.zeros(len(labels))
        for place, scan in zip(places, (self, other), strict=True):
            totals[place] += scan.totals
        n = self.n_rows + other.n_rows
        codes = np.concatenate([places[0][self.codes], places[1][other.codes]])
        priority = np.concatenate([self.priority, other.priority])
        keep = _lowest(priority, codes, sample_size(len(labels), self.n_features))
        stack = sparse.vstack if self.is_sparse else np.concatenate
        X: Any = stack([self.X, other.X])
        return Scan(
            labels=labels,
            totals=totals,
            n_rows=n,
            n_features=self.n_features,
            mean=self.mean + (other.mean - self.mean) * (other.n_rows / n),
            pivot=self.pivot,
            precision=max(self.precision, other.precision),
            is_sparse=self.is_sparse or other.is_sparse,
            X=(X.tocsr() if self.is_sparse else X)[keep],
            y=np.concatenate([self.y, other.y])[keep],
            codes=codes[keep],
            weights=np.concatenate([self.weights, other.weights])[keep],
            priority=priority[keep],
        )

    def census(self, *, intercept: bool, centred: bool) -> Census:
        if not self.n_rows:
            raise ValueError("there are no rows (with positive weight) to fit")
        shifted = centred and intercept and not self.is_sparse
        return Census(
            labels=self.labels,
            totals=self.totals,
            n_rows=self.n_rows,
            n_features=self.n_features,
            intercept=intercept,
            shift=self.mean if shifted else np.zeros(self.n_features),
            pivot=self.pivot,
            precision=self.precision,
        )

    def sample(self, rows_per_group: int, *, intercept: bool) -> GroupedData:
        """The rows drawn, at most so many of each group, sorted by group."""
        keep = _lowest(self.priority, self.codes, rows_per_group)
        weights = self.weights[keep]
        return GroupedData.sort(
            self.X[keep], self.y[keep], self.codes[keep], self.labels,
            None if np.ptp(weights) == 0 else weights, intercept=intercept,
        )  # fmt: skip


def _lowest(priority: Array, codes: Array, count: int) -> Array:
    """Rows among the ``count`` of lowest priority in their group, in the order of the rows."""
    order = np.lexsort((priority, codes))
    sorted_codes = codes[order]
    first = np.searchsorted(sorted_codes, sorted_codes)
    return np.sort(order[np.arange(len(order)) - first < count])
