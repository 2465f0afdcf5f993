"""The first pass over rows that may not fit in memory: groups, totals and a centre.

Scans of two runs of rows merge into the :class:`Scan` of both, in any grouping. So a scan can be
made chunk by chunk, or as a tree across machines.
"""

from __future__ import annotations

import hashlib
import zlib
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy import sparse

from counterpoise.rows.census import Census
from counterpoise.rows.fold_cut import FoldCut
from counterpoise.rows.frames import given
from counterpoise.rows.groups import check_sample_weight, encode_groups
from counterpoise.rows.sample import RowSample

Array = np.ndarray

# Sums of squares times weights must stay far from the largest double.
LARGEST_WEIGHT = 1e100


class NoRows(ValueError):
    """There are no rows, or none of positive weight."""


@dataclass(frozen=True)
class Rows:
    """Checked rows of one chunk; ``codes`` index the chunk's own sorted ``labels``.

    ``n_read`` includes rows of zero weight; ``grouped`` is whether the chunk has labels.
    """

    X: Any
    y: Array
    labels: Array
    codes: Array
    weights: Array | None
    grouped: bool
    n_read: int


def check_chunk(
    X: Any, y: Any, groups: Any, weights: Any, where: str,
    *, seen: bool = False, cut: FoldCut | None = None,
) -> Rows:  # fmt: skip
    """Check a chunk and return arrays of finite numbers, without rows of zero weight.

    If the chunk was ``seen`` before, its features are not checked for finiteness again. With a
    ``cut``, the labels are those of cells.
    """
    try:
        X, y = given(X, "X"), given(y, "y")
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None
    X = X.tocsr() if sparse.issparse(X) else np.asarray(X)
    if X.ndim != 2:
        raise ValueError(f"{where}: X must have two dimensions; got shape {X.shape}")
    X = _floating(X, where)
    values = X.data if sparse.issparse(X) else X
    y = np.asarray(y, dtype=float)
    if y.shape != (X.shape[0],):
        raise ValueError(f"{where}: X has {X.shape[0]} rows but y has shape {y.shape}")
    for name, numbers in (("X", values), ("y", y)):
        if not (seen and name == "X") and not np.isfinite(numbers).all():
            raise ValueError(
                f"{where}: {name} has missing or infinite values; impute or leave out these rows"
            )
    n_read = len(y)
    try:
        labels, codes = encode_groups(groups, n_read)
        weights = check_sample_weight(weights, n_read)
    except (TypeError, ValueError) as error:
        raise type(error)(f"{where}: {error}") from None
    if weights is not None and weights.max(initial=0.0) > LARGEST_WEIGHT:
        raise ValueError(
            f"{where}: sample_weight has {weights.max():g}, above {LARGEST_WEIGHT:g}; only ratios "
            "of weights matter, so divide all by a common number"
        )
    X = X if sparse.issparse(X) else np.ascontiguousarray(X)
    if weights is not None and not weights.all():
        keep = np.flatnonzero(weights)
        X, y, weights = X[keep], y[keep], weights[keep]
        present, codes = np.unique(codes[keep], return_inverse=True)
        labels = labels[present]
    if cut is not None:
        cells = cut.cells(X, y, cut.numbers(labels, where)[codes], weights)
        labels, codes = np.unique(cells, return_inverse=True)
    return Rows(X, y, labels, codes, weights, groups is not None, n_read)


def _floating(X: Any, where: str) -> Any:
    if X.dtype in (np.float32, np.float64):
        return X
    try:
        return X.astype(float)
    except (TypeError, ValueError):
        raise ValueError(f"{where}: X must hold numbers; got an array of dtype {X.dtype}") from None


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
    label_size: float
    is_sparse: bool
    grouped: bool
    n_read: int
    checksum: int
    fingerprint: str
    sample: RowSample

    @classmethod
    def of(cls, rows: Rows) -> Scan:
        """Scan one chunk."""
        n, d = rows.X.shape
        is_sparse, checksum = sparse.issparse(rows.X), _checksum(rows)
        return cls(
            labels=rows.labels,
            totals=np.bincount(rows.codes, weights=rows.weights, minlength=len(rows.labels)) * 1.0,
            n_rows=n,
            n_features=d,
            mean=np.zeros(d) if is_sparse or not n else _mean(rows.X),
            pivot=float(np.median(rows.y[:: max(1, n // 4096)])) if n else 0.0,
            precision=float(np.finfo(rows.X.dtype).eps),
            label_size=float(np.abs(rows.y).max(initial=0.0)),
            is_sparse=is_sparse,
            grouped=rows.grouped,
            n_read=rows.n_read,
            checksum=checksum,
            fingerprint=_fingerprint(rows, checksum),
            sample=RowSample.draw(
                rows.X, rows.y, rows.codes, rows.labels, rows.weights, seed=checksum
            ),
        )

    def merge(self, other: Scan) -> Scan:
        """Merge with the scan of the rows that follow."""
        n_read = self.n_read + other.n_read
        if not self.n_rows or not other.n_rows:
            return replace(self if self.n_rows else other, n_read=n_read)
        if self.grouped != other.grouped:
            raise ValueError(
                "groups are given in some chunks and not in others; give them in all or in none"
            )
        if self.n_features != other.n_features:
            raise ValueError(
                f"chunks differ in their number of features: {self.n_features} and "
                f"{other.n_features}"
            )
        labels = union_labels(self.labels, other.labels)
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
            label_size=max(self.label_size, other.label_size),
            is_sparse=self.is_sparse or other.is_sparse,
            grouped=self.grouped,
            n_read=n_read,
            checksum=zlib.crc32(other.checksum.to_bytes(4, "little"), self.checksum),
            # A CRC of two would be the same if both changed alike, or changed places.
            fingerprint=_sha(f"{self.fingerprint} {other.fingerprint}".encode()),
            sample=self.sample.merge(other.sample, labels),
        )

    def census(self, *, intercept: bool, centred: bool) -> Census:
        if not self.n_rows:
            raise NoRows("there are no rows (with positive weight) to fit")
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
            label_size=self.label_size,
        )


def _mean(X: Array) -> Array:
    with np.errstate(over="ignore", invalid="ignore"):  # the solver refuses rows that large
        return X.mean(axis=0, dtype=float)


def _checksum(rows: Rows) -> int:
    """Return a checksum of all numbers in the chunk, which also seeds its sample.

    `_fingerprint` covers what is not a number.
    """
    X = (rows.X.data, rows.X.indices) if sparse.issparse(rows.X) else (rows.X,)
    arrays = [*X, rows.y, rows.codes, *([] if rows.weights is None else [rows.weights])]
    checksum = 0
    for array in arrays:
        data = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        checksum = zlib.crc32(data, checksum)  # type: ignore[arg-type]
    return checksum


def _fingerprint(rows: Rows, checksum: int) -> str:
    """Return a digest of the chunk: the checksum, and all that it does not cover.

    These are types and shapes, the labels of the chunk, and where sparse rows end.
    """
    labels, parts = rows.labels, [f"{checksum} {rows.X.dtype} {rows.X.shape}".encode()]
    if labels.dtype.kind == "O":
        text = ";".join(f"{type(label).__name__} {label}" for label in labels)
        parts.append(text.encode("utf-8", "surrogatepass"))
    else:
        parts += [labels.dtype.str.encode(), labels.tobytes()]
    if sparse.issparse(rows.X):
        parts.append(rows.X.indptr.tobytes())
    return _sha(*parts)


def _sha(*parts: bytes) -> str:
    sha = hashlib.sha256()
    for part in parts:
        sha.update(len(part).to_bytes(8, "little") + part)
    return sha.hexdigest()


def union_labels(left: Array, right: Array) -> Array:
    """Return the sorted labels of both; text and numbers do not mix."""
    text = [labels.dtype.kind in "US" for labels in (left, right)]
    try:
        if text[0] != text[1] and "O" not in (left.dtype.kind, right.dtype.kind):
            raise TypeError
        both = np.union1d(left, right)
    except TypeError:
        raise TypeError(
            f"groups of different chunks cannot be sorted together ({left.dtype} such as "
            f"{left[0]!r}, and {right.dtype} such as {right[0]!r}); convert them to one type, for "
            "example with str()"
        ) from None
    for labels in (left, right):
        if labels.dtype != both.dtype and not _told_apart(labels, both.dtype):
            raise ValueError(
                f"groups of different chunks are {left.dtype} and {right.dtype}, whose common type "
                f"{both.dtype} cannot hold all of their numbers; convert them to one type"
            )
    return both


def _told_apart(labels: Array, dtype: Any) -> bool:
    """Return whether labels keep their values in another type of numbers or text."""
    if labels.dtype.kind not in "iu" or dtype.kind != "f":
        return True
    largest = max(abs(int(labels.min())), abs(int(labels.max())))
    return largest <= 1 << (np.finfo(dtype).nmant + 1)
