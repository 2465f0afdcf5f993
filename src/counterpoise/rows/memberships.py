"""Groups that overlap: which share of every row belongs to each of K groups.

A row may belong to several groups, in parts, or to none. Rows with the same memberships have one
*pattern*; usually there are far fewer patterns than rows.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from scipy import sparse

from counterpoise.common.text import count
from counterpoise.rows.frames import given
from counterpoise.rows.groups import encode_groups, label_list

Array = np.ndarray

# Pairs of nested groups that a note names, and numbers that are compared at a time.
NAMED, COMPARED = 3, 1 << 20


class Memberships:
    """Which share of every row belongs to each of K groups; pass it as ``groups``.

    A group's loss is the mean over its rows, weighted by their shares, as if the data had a copy
    of the row for every group that it belongs to. Shares of a row need not add up to one. Rows
    that belong to no group count in averages over all rows only.

    Parameters
    ----------
    matrix : array, SciPy sparse matrix or data frame of shape (n, K)
        0 and 1 (or booleans), or shares >= 0.
    labels : sequence of str or of int, optional
        Names of the groups. By default the columns of a data frame, or 0, ..., K - 1.

    Attributes
    ----------
    matrix : CSR matrix of shape (n, K)
    labels : array of shape (K,)
        Sorted; the order of the columns of ``matrix``.

    Examples
    --------
    >>> import numpy as np
    >>> groups = Memberships([[1, 0], [1, 1], [0, 0.5]], labels=["north", "women"])
    >>> groups
    Memberships of 3 rows in 2 groups: 'north', 'women'
    """

    matrix: Any
    labels: Array

    def __init__(self, matrix: Any, labels: Sequence[Any] | None = None) -> None:
        matrix = given(matrix, "groups")
        if labels is None and hasattr(matrix, "columns"):
            labels = list(matrix.columns)
        matrix = _checked_matrix(matrix)
        names = np.arange(matrix.shape[1]) if labels is None else _checked_labels(labels)
        if len(names) != matrix.shape[1]:
            raise ValueError(
                f"labels must name each of the {matrix.shape[1]} groups; got {len(names)} labels"
            )
        order = np.argsort(names, kind="stable")
        if not np.array_equal(order, np.arange(len(order))):
            matrix = matrix[:, order]
        self.matrix, self.labels = canonical(matrix), names[order]

    @classmethod
    def of(cls, matrix: Any, labels: Array) -> Memberships:
        """Make memberships without checks, from a CSR matrix and sorted labels."""
        found = cls.__new__(cls)
        found.matrix, found.labels = matrix, labels
        return found

    @property
    def shape(self) -> tuple[int, int]:
        return self.matrix.shape[0], self.matrix.shape[1]

    def __len__(self) -> int:
        return int(self.matrix.shape[0])

    def __getitem__(self, rows: Any) -> Memberships:
        """Select rows by indices, a slice or a mask, as scikit-learn does for splits."""
        if isinstance(rows, tuple):
            rows = rows[0]
        return Memberships.of(self.matrix[rows], self.labels)

    def __repr__(self) -> str:
        n, K = self.shape
        names = ", ".join(repr(label) for label in label_list(self.labels)[:6])
        return f"Memberships of {n} rows in {K} groups: {names}{', ...' if K > 6 else ''}"

    @cached_property
    def patterns(self) -> tuple[Array, Any]:
        """Index of every row's pattern, and the patterns as a CSR matrix (A, K)."""
        hashes = _row_hashes(self.matrix)
        _, first, codes = np.unique(hashes, return_index=True, return_inverse=True)
        codes = codes.reshape(-1)
        patterns = self.matrix[first]
        if (self.matrix != patterns[codes]).nnz:  # two patterns with one hash
            keys = {key: i for i, key in enumerate(dict.fromkeys(self._row_bytes()))}
            codes = np.array([keys[key] for key in self._row_bytes()], dtype=np.int64)
            _, first = np.unique(codes, return_index=True)
            patterns = self.matrix[first]
        return codes, patterns

    def overlap(self) -> Overlap:
        """Return how the groups overlap."""
        codes, patterns = self.patterns
        rows_A = np.bincount(codes, minlength=patterns.shape[0])
        return Overlap().add(Memberships.of(patterns, self.labels), rows_A)

    def _row_bytes(self) -> list[bytes]:
        m = self.matrix
        ends = zip(m.indptr[:-1], m.indptr[1:], strict=True)
        return [m.indices[a:b].tobytes() + m.data[a:b].tobytes() for a, b in ends]

    def keys(self) -> Array:
        """Return each row's pattern as text, which is the same in every chunk of the data."""
        codes, patterns = self.patterns
        names = label_list(self.labels)
        texts = np.empty(patterns.shape[0], dtype=object)
        for a in range(len(texts)):
            lo, hi = patterns.indptr[a], patterns.indptr[a + 1]
            pairs = zip(patterns.indices[lo:hi], patterns.data[lo:hi].tolist(), strict=True)
            texts[a] = json.dumps([[names[k], share] for k, share in pairs])
        return texts[codes]


def from_keys(keys: Sequence[str]) -> Memberships:
    """Return the patterns that texts of `Memberships.keys` stand for, with the groups of all."""
    parsed = [json.loads(key) for key in keys]
    names = sorted({label for pattern in parsed for label, _ in pattern})
    number = {label: k for k, label in enumerate(names)}
    indptr = np.cumsum([0, *map(len, parsed)])
    indices = [number[label] for pattern in parsed for label, _ in pattern]
    data = [share for pattern in parsed for _, share in pattern]
    shape = (len(parsed), len(names))
    matrix = sparse.csr_matrix((np.array(data, dtype=float), indices, indptr), shape=shape)
    return Memberships.of(canonical(matrix), _label_array(names))


def side_by_side(columns: Any) -> Memberships:
    """Make a group of every level of every column; a row belongs to one group per column.

    Crossing the columns would make a group of every combination instead, many of them small.

    Parameters
    ----------
    columns : data frame, or mapping name -> labels of the rows
        The groups are named ``column=level``.

    Examples
    --------
    >>> side_by_side({"sex": ["f", "m", "f"], "region": ["north", "north", "south"]}).labels
    array(['region=north', 'region=south', 'sex=f', 'sex=m'], dtype='<U12')
    """
    columns = given(columns, "columns")
    if not isinstance(columns, Mapping):
        if not hasattr(columns, "columns"):
            raise TypeError(
                "columns must be a data frame or a mapping name -> labels; got "
                f"{type(columns).__name__}. For a matrix of 0 and 1, use Memberships"
            )
        frame = columns
        columns = {name: frame[name] for name in frame.columns}
    if not columns:
        raise ValueError("columns must name at least one column of labels; got none")
    blocks, names, n = [], [], len(next(iter(columns.values())))
    for name, values in columns.items():
        try:
            labels, codes = encode_groups(values, n)
        except (TypeError, ValueError) as error:
            raise type(error)(f"column {name!r}: {error}") from None
        ones = np.ones(n)
        blocks.append(sparse.csr_matrix((ones, codes, np.arange(n + 1)), (n, len(labels))))
        names += [f"{name}={label}" for label in label_list(labels)]
    return Memberships(sparse.hstack(blocks, format="csr"), names)


def as_memberships(groups: Any, n: int | None = None) -> Memberships | None:
    """Return the memberships that ``groups`` holds; None if it has one label per row.

    These are `Memberships`, sparse matrices, and arrays or data frames of several columns of
    numbers between 0 and 1. ``n`` is the number of rows, if known: an array of shape (1, m) holds
    labels of m rows otherwise.
    """
    if isinstance(groups, Memberships) or groups is None:
        return groups
    if sparse.issparse(groups):
        return _implied(groups)
    shape = getattr(groups, "shape", None)
    if shape is None and isinstance(groups, (list, tuple)):
        if not len(groups) or not isinstance(groups[0], (list, np.ndarray)):
            return None
        groups = np.asarray(groups)
        shape = groups.shape
    if shape is None or len(shape) != 2 or shape[1] == 1:
        return None
    if shape[0] == 1 and n != 1 and not hasattr(groups, "columns"):
        return None
    return _implied(groups)


def _implied(groups: Any) -> Memberships:
    """Return memberships from a matrix that might also be meant as columns of labels."""
    meant = (
        "groups has several columns, so it must be a membership matrix of numbers between 0 and 1"
    )
    remedy = (
        "Use side_by_side(columns) to make a group of every level of every column, join the labels "
        "of a row to cross the columns, or pass Memberships(matrix) for other shares"
    )
    try:
        found = Memberships(groups)
    except TypeError as error:
        raise TypeError(f"{meant}: {error}. {remedy}") from None
    if found.matrix.data.size and found.matrix.data.max() > 1.0:
        raise ValueError(f"{meant}; got {found.matrix.data.max():g}. {remedy}")
    return found


def canonical(matrix: Any) -> Any:
    """Return a CSR matrix of doubles with sorted indices, no zeros and no duplicates."""
    matrix = sparse.csr_matrix(matrix, dtype=float)
    if not matrix.has_canonical_format or not matrix.data.all():
        matrix = matrix.copy()
        matrix.sum_duplicates()
        matrix.eliminate_zeros()
    return matrix


def _checked_matrix(matrix: Any) -> Any:
    """Return a matrix of finite numbers >= 0, as CSR."""
    if not sparse.issparse(matrix):
        matrix = np.asarray(matrix)
    if matrix.ndim != 2:
        raise ValueError(
            "groups: memberships must be a matrix with a row for every row of X and a column for "
            f"every group; got shape {matrix.shape}"
        )
    try:
        numbers = matrix.astype(float)
    except (TypeError, ValueError):
        raise TypeError(f"memberships must be numbers; got {matrix.dtype}") from None
    values = numbers.data if sparse.issparse(numbers) else numbers
    bad = ~(np.isfinite(values) & (values >= 0))
    if bad.any():
        raise ValueError(
            "groups: memberships must be finite and not negative; found "
            f"{values[bad].reshape(-1)[0]}; give 0 for rows outside a group"
        )
    if not numbers.shape[1]:
        raise ValueError("groups: memberships must have at least one column; got none")
    return sparse.csr_matrix(numbers)


def _checked_labels(labels: Any) -> Array:
    names = [n.item() if isinstance(n, np.generic) else n for n in labels]
    whole = all(isinstance(n, int) and not isinstance(n, bool) for n in names)
    if not whole and not all(isinstance(n, str) for n in names):
        raise TypeError(
            f"labels of groups must be all text or all whole numbers; got {names[:5]!r}; convert "
            "them, for example with str()"
        )
    if len(set(names)) < len(names):
        twice = sorted({n for n in names if names.count(n) > 1})
        raise ValueError(f"labels of groups must differ; named more than once: {twice[:5]!r}")
    return _label_array(names)


def _label_array(names: list[Any]) -> Array:
    return np.array(names, dtype=np.int64 if not names or isinstance(names[0], int) else str)


def _row_hashes(matrix: Any) -> Array:
    """Return a 64-bit hash of every row of a canonical CSR matrix."""
    with np.errstate(over="ignore"):
        mixed = matrix.indices.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        mixed ^= matrix.data.view(np.uint64) * np.uint64(0xC2B2AE3D27D4EB4F)
        for shift, factor in ((33, 0xFF51AFD7ED558CCD), (29, 0xC4CEB9FE1A85EC53)):
            mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
        mixed ^= mixed >> np.uint64(32)
        sums = np.concatenate([np.zeros(1, np.uint64), np.cumsum(mixed, dtype=np.uint64)])
        return sums[matrix.indptr[1:]] - sums[matrix.indptr[:-1]]


@dataclass(frozen=True)
class RowGroups:
    """The groups of some rows, which may overlap.

    ``index``, ``codes`` and ``shares`` list every membership: the row, the group and the share
    (None if all are one). ``strata`` numbers rows that belong to the same groups. ``overlap`` is
    None if every row has one label.
    """

    labels: Array
    strata: Array
    index: Array
    codes: Array
    shares: Array | None = None
    overlap: Memberships | None = None

    @classmethod
    def of_codes(cls, labels: Array, codes: Array) -> RowGroups:
        """Make the groups of rows with one label each, from its index in ``labels``."""
        return cls(labels, codes, np.arange(len(codes)), codes)

    @classmethod
    def of(cls, groups: Any, n: int) -> RowGroups:
        """Encode labels or memberships of ``n`` rows."""
        found = as_memberships(groups, n)
        if found is None:
            return cls.of_codes(*encode_groups(groups, n))
        check_length(found, n)
        m = found.matrix
        there = np.flatnonzero(np.bincount(m.indices, minlength=m.shape[1]))
        if len(there) < m.shape[1]:
            found = Memberships.of(canonical(m[:, there]), found.labels[there])
            m = found.matrix
        shares = None if (m.data == 1.0).all() else m.data
        index = np.repeat(np.arange(n), np.diff(m.indptr))
        return cls(found.labels, found.patterns[0], index, m.indices, shares, found)

    @property
    def given(self) -> Any:
        """The groups as a fit takes them: a label per row, or memberships."""
        return self.labels[self.codes] if self.overlap is None else self.overlap

    @property
    def n_rows(self) -> int:
        return len(self.strata)

    @property
    def n_groups(self) -> int:
        return len(self.labels)

    @property
    def sizes(self) -> Array:
        """Number of rows in every group."""
        return np.bincount(self.codes, minlength=self.n_groups)

    def listed(self, values: Array) -> Array:
        """Return a value per row as one per membership."""
        return values if self.overlap is None else values[self.index]

    def weights(self, weights: Array | None) -> Array | None:
        """Return the weight of every membership, from the weights of rows; None if all are one."""
        if weights is None:
            return self.shares
        weights = self.listed(weights)
        return weights if self.shares is None else weights * self.shares

    def sums(self, values: Array, weights: Array | None = None) -> Array:
        """Sum a value per row over the rows of every group."""
        values = values if weights is None else values * weights
        return np.bincount(self.codes, self.weights(values), self.n_groups)

    def take(self, rows: Array) -> RowGroups:
        """Return the groups of some rows; groups without rows stay."""
        found = self.overlap
        if found is None:
            return RowGroups.of_codes(self.labels, self.strata[rows])
        part = found[rows]
        m = part.matrix
        index = np.repeat(np.arange(len(rows)), np.diff(m.indptr))
        shares = None if self.shares is None else m.data
        return RowGroups(self.labels, self.strata[rows], index, m.indices, shares, part)

    def places(self, rows: Array) -> tuple[Array, Array]:
        """Return the memberships of some rows, and for each the position of its row in ``rows``."""
        if self.overlap is None:
            return rows, np.arange(len(rows))
        first = self.overlap.matrix.indptr
        counts = np.diff(first)[rows]
        position = np.repeat(np.arange(len(rows)), counts)
        before = np.repeat(first[rows] - np.cumsum(counts) + counts, counts)
        return before + np.arange(len(position)), position

    def among(self, labels: Array) -> RowGroups:
        """Return the same groups numbered by their positions in all sorted ``labels``."""
        place = np.minimum(np.searchsorted(labels, self.labels), len(labels) - 1)
        if not np.array_equal(labels[place], self.labels):
            new = label_list(self.labels[labels[place] != self.labels])[0]
            raise ValueError(f"groups has {new!r}, which is not a group of the fit")
        return replace(self, labels=labels, codes=place[self.codes])

    def notes(self) -> list[str]:
        """Sentences about how the groups overlap; none if every row has one label."""
        return [] if self.overlap is None else self.overlap.overlap().summary()


def check_length(found: Memberships, n: int) -> None:
    if len(found) != n:
        raise ValueError(f"groups has memberships of {len(found)} rows, but X has {n} rows")


@dataclass
class Overlap:
    """What is known about the overlap of groups, from memberships added piece by piece."""

    rows: int = 0
    several: int = 0
    outside: int = 0
    least: float = np.inf
    most: float = -np.inf
    labels: list[Any] = field(default_factory=list)
    within: Array = field(default_factory=lambda: np.zeros((0, 0), dtype=bool))
    seen: Array = field(default_factory=lambda: np.zeros(0, dtype=bool))

    def add(self, found: Memberships, rows_A: Array | None = None) -> Overlap:
        """Add rows; ``rows_A`` counts how many of them each row of ``found`` stands for."""
        matrix = found.matrix
        count_A = np.ones(len(found), dtype=np.int64) if rows_A is None else rows_A
        number = np.diff(matrix.indptr)
        self.rows += int(count_A.sum())
        self.several += int(count_A[number > 1].sum())
        self.outside += int(count_A[number == 0].sum())
        shares = np.asarray(matrix.sum(axis=1)).ravel()
        self.least = min(self.least, float(shares.min(initial=np.inf)))
        self.most = max(self.most, float(shares.max(initial=-np.inf)))
        self._compare(matrix, [self._place(label) for label in label_list(found.labels)])
        return self

    @property
    def even(self) -> bool:
        """Whether the shares of every row have the same sum.

        Then the groups, weighted by their rows, mix to the average over rows.
        """
        return 0 < self.most <= self.least * (1.0 + 1e-12)

    def notes(self) -> tuple[str, ...]:
        """Sentences about rows in no group, and about nested groups."""
        out = []
        if self.outside:
            verbs = "row belongs to no group and counts" if self.outside == 1 else (
                "rows belong to no group and count"
            )  # fmt: skip
            out.append(f"{self.outside:,} {verbs} in averages over rows only.")
        names = [repr(label) for label in self.labels]
        both = self.within & self.within.T
        equal, inside = np.argwhere(np.triu(both)), np.argwhere(self.within & ~both)
        said = [f"{names[g]} and {names[h]} have the same rows" for g, h in equal[:NAMED]]
        said += [f"{names[g]} lies within {names[h]}" for g, h in inside[:NAMED]]
        if said:
            more = len(equal) + len(inside) - len(said)
            rest = f", and so on for {count(more, 'more pair')}" if more else ""
            out.append(f"Some groups are nested: {', '.join(said)}{rest}.")
        return tuple(out)

    def summary(self) -> list[str]:
        """The notes after a sentence about rows in several groups."""
        several = f"Groups overlap: {self.several:,} of {self.rows:,} rows belong to several."
        return [*([several] if self.several else []), *self.notes()]

    def _place(self, label: Any) -> int:
        """Return the position of a label, which may be new: then no earlier row belongs to it."""
        if label not in self.labels:
            K = len(self.labels)
            within = np.zeros((K + 1, K + 1), dtype=bool)
            within[:K, :K] = self.within
            within[K, :K] = True
            within[:K, K] = ~self.seen
            self.within, self.seen = within, np.append(self.seen, False)
            self.labels.append(label)
        return self.labels.index(label)

    def _compare(self, matrix: Any, place: list[int]) -> None:
        """Update which groups lie within others: no row has a larger share in them."""
        K = len(self.labels)
        step = max(1, COMPARED // max(1, K))
        for lo in range(0, matrix.shape[0], step):
            block = np.zeros((min(step, matrix.shape[0] - lo), K))
            block[:, place] = matrix[lo : lo + step].toarray()
            there = (block > 0).any(axis=0)
            for g in np.flatnonzero(self.within.any(axis=1) & there):
                rows, others = block[:, g] > 0, np.flatnonzero(self.within[g])
                larger = block[np.ix_(rows, others)] < block[rows, g][:, None]
                self.within[g, others] &= ~larger.any(axis=0)
            self.seen |= there
