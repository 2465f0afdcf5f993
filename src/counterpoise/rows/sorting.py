"""Sorting of rows by group: a counting sort, and one copy by all threads."""

from __future__ import annotations

import numpy as np

from counterpoise.rows.compilation import frozen, ready
from counterpoise.rows.threads import over_ranges

Array = np.ndarray

# With fewer numbers than this, a compiled kernel is not worthwhile.
SMALL = 1 << 15


def sorted_order(codes: Array, n_codes: int) -> tuple[Array | None, Array]:
    """Return the stable order of rows by code (None if sorted already), and the offsets."""
    if not (codes[1:] < codes[:-1]).any():
        return None, np.searchsorted(codes, np.arange(n_codes + 1))
    if codes.size < SMALL:
        counts = np.bincount(codes, minlength=n_codes)
        return np.argsort(codes, kind="stable"), np.concatenate([[0], np.cumsum(counts)])
    from counterpoise.rows import kernels

    codes = np.ascontiguousarray(codes, dtype=np.int64)
    offsets, free = np.zeros((2, n_codes + 1), dtype=np.int64)
    order = np.empty(codes.size, dtype=np.int64)
    ready("counting_sort", lambda lo, hi: kernels.counting_sort(codes[:0], offsets, free, order))
    kernels.counting_sort(codes, offsets, free, order)
    return order, offsets


def take_rows(X: Array, rows: Array) -> Array:
    """Return ``X[rows]`` in C order."""
    if X.size < SMALL or not X.flags.c_contiguous:
        return np.ascontiguousarray(X[rows])
    from counterpoise.rows import kernels

    flat, out = frozen(X.reshape(-1)), np.empty((len(rows), X.shape[1]), X.dtype)
    rows = np.ascontiguousarray(rows, dtype=np.int64)

    def work(first: int, last: int) -> None:
        n = len(rows)
        kernels.gather_rows(
            flat, X.shape[1], rows, n * first // 64, n * last // 64, out.reshape(-1)
        )

    ready(("gather_rows", X.dtype), work)
    over_ranges(work, 64)
    return out
