"""The first look at rows that do not all fit in memory: groups, totals, a centre.

A :class:`Scan` of two runs of rows is the merger of theirs, in any grouping of the runs, so it
can be made chunk by chunk or as a tree across machines.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

from counterpoise.engines.base import Census
from counterpoise.groups import check_weights, encode_groups

Array = np.ndarray


@dataclass(frozen=True)
class Rows:
    """Checked rows of one chunk: ``codes`` number the chunk's own sorted ``labels``."""

    X: Any
    y: Array
    labels: Array
    codes: Array
    weights: Array | None


def check_chunk(
    X: Any, y: Any, groups: Any, weights: Any, where: str, *, seen: bool = False
) -> Rows:
    """Rows of a chunk as arrays of finite numbers; rows of zero weight are left out.

    Features ``seen`` before are taken to be finite still.
    """
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
        if not (seen and name == "X") and not np.isfinite(numbers).all():
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
    """Groups with their total weights, and the mean of the features."""

    labels: Array
    totals: Array
    n_rows: int
    n_features: int
    mean: Array
    pivot: float
    precision: float
    is_sparse: bool

    @classmethod
    def of(cls, rows: Rows) -> Scan:
        """The scan of one chunk."""
        n, d = rows.X.shape
        is_sparse = sparse.issparse(rows.X)
        return cls(
            labels=rows.labels,
            totals=np.bincount(rows.codes, weights=rows.weights, minlength=len(rows.labels)) * 1.0,
            n_rows=n,
            n_features=d,
            mean=np.zeros(d) if is_sparse or not n else rows.X.mean(axis=0, dtype=float),
            pivot=float(np.median(rows.y[:: max(1, n // 4096)])) if n else 0.0,
            precision=float(np.finfo(rows.X.dtype).eps),
            is_sparse=is_sparse,
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
        labels = _union(self.labels, other.labels)
        totals = np.zeros(len(labels))
        for scan in (self, other):
            totals[np.searchsorted(labels, scan.labels)] += scan.totals
        n = self.n_rows + other.n_rows
        return Scan(
            labels=labels,
            totals=totals,
            n_rows=n,
            n_features=self.n_features,
            mean=self.mean + (other.mean - self.mean) * (other.n_rows / n),
            pivot=self.pivot,
            precision=max(self.precision, other.precision),
            is_sparse=self.is_sparse or other.is_sparse,
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


def _union(left: Array, right: Array) -> Array:
    """Sorted labels of both; text and numbers do not mix."""
    text = [labels.dtype.kind in "US" for labels in (left, right)]
    try:
        if text[0] != text[1] and "O" not in (left.dtype.kind, right.dtype.kind):
            raise TypeError
        return np.union1d(left, right)
    except TypeError:
        raise TypeError(
            f"groups of different chunks cannot be sorted together ({left.dtype} such as "
            f"{left[0]!r}, and {right.dtype} such as {right[0]!r}); turn them into one kind, for "
            "example with str()"
        ) from None
