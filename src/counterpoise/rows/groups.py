"""GroupedData: checked rows, sorted by group and never modified."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from scipy import sparse

from counterpoise.rows.frames import given

Array = np.ndarray


class OverlappingGroups(ValueError):
    """Memberships were given where every row needs one label."""


@dataclass(frozen=True)
class GroupedData:
    """Rows sorted by group.

    Attributes
    ----------
    X : C-ordered float32 or float64 array, `IndexedRows` of one, or CSR matrix, of shape (n, d)
    y : float64 array of shape (n,)
    labels : array of shape (K,)
        The sorted group labels; group ``i`` owns rows ``offsets[i] : offsets[i+1]``.
    row_weights : float64 array of shape (n,), or empty if all rows have equal weight
    intercept : bool
        Whether there is an implicit constant feature after the last column.
    """

    X: Any
    y: Array
    labels: Array
    offsets: Array
    row_weights: Array
    intercept: bool = True
    totals: Array = field(init=False)

    def __post_init__(self) -> None:
        sizes = np.diff(self.offsets).astype(float)
        if self.row_weights.size:
            sizes = np.add.reduceat(self.row_weights, self.offsets[:-1])
        object.__setattr__(self, "totals", sizes)

    @classmethod
    def build(
        cls,
        X: Any,
        y: Array,
        groups: Any = None,
        sample_weight: Array | None = None,
        *,
        intercept: bool = True,
    ) -> GroupedData:
        """Sort checked rows by group, leaving out rows of zero weight.

        ``X`` is copied only if its rows are not in group order, or not C-ordered floats. Rows for
        whose copy there is no room are read through an index.
        """
        n = X.shape[0]
        if len(y) != n:
            raise ValueError(f"X has {n} rows but y has {len(y)}")
        labels, codes = encode_groups(groups, n)
        weights = check_sample_weight(sample_weight, n)
        keep: Array | None = None
        if weights is not None:
            largest = float(weights.max())
            if not 1e-100 < largest < 1e100:  # sums of squares must not overflow
                weights = weights / max(largest, np.finfo(float).tiny)
            keep = np.flatnonzero(weights > 0)
            if keep.size == 0:
                raise ValueError("sample_weight is zero for every row; leave it out, or correct it")
            if keep.size == n:
                keep = None
            else:
                present, codes = np.unique(codes[keep], return_inverse=True)
                labels, weights = labels[present], weights[keep]
            if np.ptp(weights) == 0:
                weights = None
        return cls.sort(X, y, codes, labels, weights, keep=keep, intercept=intercept)

    @classmethod
    def sort(
        cls,
        X: Any,
        y: Array,
        codes: Array,
        labels: Array,
        weights: Array | None,
        *,
        intercept: bool,
        keep: Array | None = None,
    ) -> GroupedData:
        """Sort checked rows whose ``codes`` index ``labels``; every label must have rows.

        ``keep`` selects rows of ``X`` and ``y``; ``codes`` and ``weights`` hold only those.
        """
        from counterpoise.rows.indexed import IndexedRows, as_floats, in_order
        from counterpoise.rows.sorting import sorted_order

        order, offsets = sorted_order(codes, len(labels))
        rows = keep if order is None else order if keep is None else keep[order]
        if sparse.issparse(X):
            X = X.tocsr() if rows is None else X.tocsr()[rows]
            if X.dtype not in (np.float32, np.float64):
                X = X.astype(float)
        elif rows is not None:
            X = in_order(X, rows)
        elif not isinstance(X, IndexedRows):
            X = np.ascontiguousarray(as_floats(X))
        y = np.asarray(y, dtype=float)
        if weights is not None and order is not None:
            weights = weights[order]
        return cls(
            X=X,
            y=np.ascontiguousarray(y if rows is None else y[rows]),
            labels=labels,
            offsets=offsets,
            row_weights=np.empty(0) if weights is None else np.ascontiguousarray(weights),
            intercept=intercept,
        )

    @property
    def is_sparse(self) -> bool:
        return sparse.issparse(self.X)

    @property
    def n_groups(self) -> int:
        return len(self.labels)

    @property
    def n_features(self) -> int:
        return int(self.X.shape[1])

    @property
    def codes(self) -> Array:
        """Index of every row's group."""
        return np.repeat(np.arange(self.n_groups), np.diff(self.offsets))

    @property
    def n_coef(self) -> int:
        """Number of coefficients, including the intercept."""
        return self.n_features + int(self.intercept)

    def weights_of(self, lo: int, hi: int) -> Array:
        """Return the weights of rows ``lo:hi``; ones if all rows have equal weight."""
        return self.row_weights[lo:hi] if self.row_weights.size else np.ones(hi - lo)

    def copied(self) -> GroupedData:
        """Return the same rows as an array in the order of their groups, if not sparse."""
        return self if self.is_sparse else replace(self, X=np.asarray(self.X))

    def alone(self, rows: Any, weights: Array, labels: Array) -> GroupedData:
        """Return some rows as one group, with their own weights (empty if all are equal)."""
        y = self.y[rows]
        return GroupedData(
            X=self.X[rows],
            y=y,
            labels=labels,
            offsets=np.array([0, len(y)]),
            row_weights=weights,
            intercept=self.intercept,
        )

    def centre(self) -> tuple[Array, float]:
        """Return a centre of the features and of the labels, from evenly spaced rows.

        The features' centre is zero for sparse rows, and without an intercept to absorb a shift.
        """
        step = max(1, self.X.shape[0] // 4096)
        pivot = float(np.median(self.y[::step]))
        if self.is_sparse or not self.intercept:
            return np.zeros(self.n_features), pivot
        with np.errstate(over="ignore", invalid="ignore"):  # the solver refuses rows that large
            return np.asarray(self.X[::step], dtype=float).mean(axis=0), pivot


def encode_groups(groups: Any, n: int) -> tuple[Array, Array]:
    """Return the sorted distinct labels, and the index of every row's label."""
    if groups is None:
        return np.array([0]), np.zeros(n, dtype=np.intp)
    if sparse.issparse(groups) or hasattr(groups, "patterns"):  # as counterpoise.Memberships has
        raise OverlappingGroups("groups must hold one label per row here; got memberships")
    values = as_labels(groups)
    if values.ndim == 2 and len(values) == n and values.shape[1] > 1:
        raise OverlappingGroups(
            f"groups must hold one label for each of the {n} rows here; got shape {values.shape}"
        )
    if values.ndim == 2 and 1 in values.shape:
        values = values.ravel()
    if values.shape != (n,):
        raise ValueError(
            f"groups must hold one label for each of the {n} rows; got shape {values.shape}"
        )
    missing = missing_labels(values)
    if missing.any():
        where = int(np.flatnonzero(missing)[0])
        raise ValueError(
            f"groups is missing at {int(missing.sum())} row(s), first at row {where}. "
            "Give these rows a label, or leave them out."
        )
    try:
        return _number(values)
    except TypeError as error:
        kinds = sorted({type(v).__name__ for v in values.tolist()})
        raise TypeError(
            f"groups mixes labels that cannot be sorted together ({', '.join(kinds)}); "
            "convert them to one type, for example with str()"
        ) from error


def _number(values: Array) -> tuple[Array, Array]:
    """Return ``np.unique`` with its inverse, without sorting the rows if possible."""
    if values.dtype.kind in "iu" and values.size:
        low, high = int(values.min()), int(values.max())
        if high - low < 4 * len(values) + 1024 and abs(low) < 1 << 62:
            shifted = values.astype(np.int64) - low
            there = np.bincount(shifted) > 0
            numbers = np.cumsum(there) - 1
            return (np.flatnonzero(there) + low).astype(values.dtype), numbers[shifted]
    if values.dtype.kind in "OUS":
        rows = values.tolist()
        known = sorted(dict.fromkeys(rows))
        number = {label: i for i, label in enumerate(known)}
        labels = np.empty(len(known), dtype=values.dtype)
        if values.dtype.kind == "O":
            for i, label in enumerate(known):  # one by one, since tuples stay whole
                labels[i] = label
        else:
            labels[:] = known
        return labels, np.fromiter(map(number.__getitem__, rows), np.int64, len(rows))
    labels, codes = np.unique(values, return_inverse=True)
    return labels, codes.reshape(-1)


def places_of(labels: Array, known: Array, where: str) -> Array:
    """Return the indices of labels among the sorted ones that are known from the first pass."""
    place = np.minimum(np.searchsorted(known, labels), len(known) - 1)
    new = np.flatnonzero(known[place] != labels)
    if len(new):
        raise ValueError(
            f"{where}: group {label_list(labels[new])[0]!r} was not there on the first pass; a "
            "source must give the same chunks every time"
        )
    return place


def label_list(labels: Array) -> list[Any]:
    """Return labels as plain Python values; dates keep their type, and so their unit."""
    return list(labels) if labels.dtype.kind in "mM" else labels.tolist()


def check_sample_weight(sample_weight: Any, n: int) -> Array | None:
    """Check for one finite weight >= 0 per row; None stays None."""
    if sample_weight is None:
        return None
    weights = np.asarray(given(sample_weight, "sample_weight"), dtype=float)
    if weights.shape != (n,):
        raise ValueError(f"sample_weight must have shape ({n},); got {weights.shape}")
    bad = ~(np.isfinite(weights) & (weights >= 0))
    if bad.any():
        where = int(np.flatnonzero(bad)[0])
        raise ValueError(
            f"sample_weight must be finite and not negative; it is {weights[where]} at row {where}"
        )
    return weights


def as_labels(groups: Any) -> Array:
    """Return labels as an array; in a list, numbers and missing values do not become text."""
    groups = given(groups, "groups")
    values = np.asarray(groups)
    if isinstance(groups, (list, tuple)) and values.dtype.kind in "US":
        kinds = {str, np.str_} if values.dtype.kind == "U" else {bytes, np.bytes_}
        if not {type(v) for v in groups} <= kinds:
            values = np.empty(len(groups), dtype=object)
            values[:] = groups
    return values


def missing_labels(values: Array) -> Array:
    """Mark missing labels: None, NaN and the like."""
    if values.dtype.kind in "fc":
        return np.isnan(values)
    if values.dtype.kind in "mM":
        return np.isnat(values)
    if values.dtype.kind == "O":
        # None, NaN, pandas.NA and NaT.
        return np.array([_ismissing_labels(v) for v in values.tolist()], dtype=bool)
    return np.zeros(values.shape, dtype=bool)


def _ismissing_labels(value: Any) -> bool:
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return True
    return isinstance(value, (float, np.datetime64, np.timedelta64)) and bool(value != value)
