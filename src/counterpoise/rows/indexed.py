"""Rows in the order of an index: sorted by group without a copy of the array that holds them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from counterpoise.common.machine import memory_left
from counterpoise.rows.compilation import frozen
from counterpoise.rows.sorting import take_rows

Array = np.ndarray

# Rows are copied in the order of their groups unless the copy takes more than this share of the
# memory that is left. Passes over a copy are faster, since it is read from front to back.
MOST_OF_MEMORY = 0.5
# Smaller arrays, in bytes, are copied without a look at the memory.
LARGE = 1 << 24
# The order of rows that are sorted already.
ORDERED = np.empty(0, dtype=np.int64)


class IndexedRows:
    """The rows ``array[order]``, of which only those that are asked for are copied.

    It stands in for a two-dimensional array: slices, masks and numbers of rows select rows.
    """

    ndim = 2

    def __init__(self, array: Array, order: Array) -> None:
        self.array, self.order = array, np.ascontiguousarray(order, dtype=np.int64)

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.order), self.array.shape[1]

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.array.dtype

    def __len__(self) -> int:
        return len(self.order)

    def __getitem__(self, rows: Any) -> Array:
        return self.array[self.order[rows]]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        if copy is False:
            raise ValueError("copy=False, but rows are in the order of an index")
        return np.asarray(self[:], dtype=dtype)


def in_order(X: Any, rows: Array) -> Array | IndexedRows:
    """Return rows of ``X`` as floats: a copy in C order if there is room for one."""
    if isinstance(X, IndexedRows):
        array, rows = X.array, X.order[rows]
    else:
        array = as_floats(X)
    if array.flags.c_contiguous and array.nbytes >= LARGE:
        size = len(rows) * array.shape[1] * array.itemsize
        if size > MOST_OF_MEMORY * memory_left():
            return IndexedRows(array, rows)
    return take_rows(array, rows)


def as_floats(X: Any) -> Array:
    """Return an array of single or double precision."""
    X = np.asarray(X)
    return X if X.dtype in (np.float32, np.float64) else X.astype(float)


def flat_rows(X: Array | IndexedRows) -> tuple[Array, Array]:
    """Return a flat vector of rows and where the rows are in it, as kernels read them."""
    array, order = (X.array, X.order) if isinstance(X, IndexedRows) else (X, ORDERED)
    return frozen(array.reshape(-1)), order
