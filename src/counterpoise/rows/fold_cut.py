"""Folds of rows that may not fit in memory, from the rows themselves.

The fold of a row follows from its numbers, its group and a seed. So it is the same on every pass,
in any order of the rows, and for any kind of rows: chunks, blocks on workers, or parts that ranks
hold. Only rows that are equal in everything are dealt out in turn, within a chunk, block or part.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

from counterpoise.rows.groups import places_of

Array = np.ndarray

# Makes an array of some rows.
Reader = Callable[[Any], Array]

# Odd constants of the mixing function splitmix64.
STEP, FIRST, SECOND = (
    np.uint64(number) for number in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
)
# Numbers whose bits are mixed at a time.
BLOCK = 1 << 17


@dataclass(frozen=True)
class FoldCut:
    """How to cut the rows of every group into folds: a cell is what a fold has of a group.

    ``labels`` are the groups of all rows, sorted. The label of a cell is
    ``group * n_folds + fold``, with the number of its group.
    """

    labels: Array
    n_folds: int
    seed: int = 0

    def numbers(self, labels: Array, where: str) -> Array:
        """Return the numbers of groups."""
        return places_of(labels, self.labels, where)

    def cells(
        self, X: Any, y: Array, groups: Array, weights: Array | None, read: Reader = np.asarray
    ) -> Array:
        """Return the label of every row's cell; parameters as in `row_hashes`."""
        return groups * self.n_folds + self.folds(X, y, groups, weights, read)

    def folds(
        self,
        X: Any,
        y: Array,
        groups: Array | int = 0,
        weights: Array | None = None,
        read: Reader = np.asarray,
    ) -> Array:
        """Return the fold of every row; equal rows are dealt out in turn."""
        mixed = row_hashes(X, y, groups, weights, self.seed, read)
        turn = _turns(mixed).astype(np.uint64)
        return ((mixed % np.uint64(self.n_folds) + turn) % np.uint64(self.n_folds)).astype(np.int64)

    def origin(self, cells: Array) -> tuple[Array, Array]:
        """Return the groups and the folds of cells."""
        return cells // self.n_folds, cells % self.n_folds


def row_hashes(
    X: Any,
    y: Array,
    groups: Array | int = 0,
    weights: Array | None = None,
    seed: int = 0,
    read: Reader = np.asarray,
) -> Array:
    """Return a random-looking 64-bit number for every row, from all that is known of it.

    ``groups`` are numbers, and ``read`` makes an array of a few rows of ``X`` if it is not one.
    Single and double precision give the same, and so do dense and sparse rows, and weights of one
    and none.
    """
    own = np.asarray(groups, dtype=np.uint64) * FIRST
    if weights is not None:
        own = own + (_bits(weights) - _bits(np.ones(1))) * SECOND
    out = _mixed(_mixed(_bits(y) * STEP + np.uint64(seed % (1 << 64))) + own)
    odd = _mixed(np.arange(1, X.shape[1] + 1, dtype=np.uint64) * STEP) | np.uint64(1)
    if sparse.issparse(X):
        if not X.has_canonical_format:
            X = X.copy()
            X.sum_duplicates()
        terms = _bits(X.data) * odd[X.indices]
        sums = np.concatenate([np.zeros(1, dtype=np.uint64), np.cumsum(terms, dtype=np.uint64)])
        return _mixed(out + (sums[X.indptr[1:]] - sums[X.indptr[:-1]]))
    size = max(1, BLOCK // max(1, X.shape[1]))
    for start in range(0, len(y), size):
        rows = slice(start, start + size)
        out[rows] += (_bits(read(X[rows])) * odd).sum(axis=1, dtype=np.uint64)
    return _mixed(out)


def _bits(values: Array) -> Array:
    # Adding zero makes the two zeros alike, whose bits are then zero.
    return (np.ascontiguousarray(values, dtype=np.float64) + 0.0).view(np.uint64)


def _mixed(values: Array) -> Array:
    """Spread differences over all bits."""
    values = values.astype(np.uint64)
    values = (values ^ (values >> np.uint64(30))) * FIRST
    values = (values ^ (values >> np.uint64(27))) * SECOND
    return values ^ (values >> np.uint64(31))


def _turns(values: Array) -> Array:
    """Count the equal values before each one."""
    order = np.argsort(values, kind="stable")
    ordered = values[order]
    turns = np.empty(len(values), dtype=np.int64)
    turns[order] = np.arange(len(values)) - np.searchsorted(ordered, ordered)
    return turns
