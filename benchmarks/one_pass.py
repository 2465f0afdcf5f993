"""One pass (losses and all group gradients) beside the time to read X once.

    python benchmarks/one_pass.py

And beside the same pass through an index, as over rows in random order for whose sorted copy there
is no room, and beside one made of BLAS products on blocks of rows. All use the same threads;
compilation happens before the timing. Best of several runs, in alternation, so that a busy
machine disturbs all alike.
"""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np
from numba import njit

from counterpoise.activations import relu
from counterpoise.rows.engines.memory import make_engine
from counterpoise.rows.groups import GroupedData
from counterpoise.rows.indexed import IndexedRows
from counterpoise.rows.threads import n_threads, over_ranges, single_threaded_blas

CASES = [
    # rows, features, groups, dtype
    (100_000, 50, 10, np.float64),
    (100_000, 50, 10, np.float32),
    (1_000_000, 50, 10, np.float64),
    (1_000_000, 50, 1, np.float64),
    (1_000_000, 50, 10_000, np.float64),
    (4_000_000, 8, 10, np.float64),
    (1_000_000, 64, 5_000, np.float64),
    (200_000, 200, 10, np.float64),
    (200_000, 300, 10, np.float64),
    (200_000, 300, 10, np.float32),
    (40_000, 1_000, 10, np.float64),
    (20_000, 2_000, 10, np.float64),
    (20_000, 2_000, 10, np.float32),
]


@njit(nogil=True, fastmath=True)
def total(X, lo, hi):
    s = 0.0
    for j in range(lo, hi):
        for k in range(X.shape[1]):
            s += X[j, k]
    return s


def blocked(engine, w, rows):
    """One pass by two matrix-vector products on every block of rows."""
    data, seg = engine.data, engine.part.segments
    loss, grad = np.zeros(len(seg.starts)), np.zeros((len(seg.starts), data.n_features))
    coef = w[:-1].astype(data.X.dtype)

    def work(first, last):
        for s in range(first, last):
            for lo in range(seg.starts[s], seg.stops[s], rows):
                X = data.X[lo : min(lo + rows, seg.stops[s])]
                z = X @ coef + w[-1]
                r = np.maximum(z, 0) - data.y[lo : lo + len(X)]
                loss[s] += r @ r
                grad[s] += r.astype(X.dtype) @ X

    over_ranges(work, len(seg.starts))
    return loss, grad


def take_turns(*works, repeats=9):
    """The seconds of every run, by work."""
    times = [[] for _ in works]
    for _ in range(repeats):
        for f, kept in zip(works, times, strict=True):
            start = time.perf_counter()
            f()
            kept.append(time.perf_counter() - start)
    return times


def works(n, d, K, dtype):
    """One pass, one read of X, and the pass by BLAS and through an index; compiled already."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, d)).astype(dtype)
    y, w = rng.normal(size=n), rng.normal(size=d + 1)
    data = GroupedData.build(X, y, np.sort(rng.integers(0, K, n)))
    engine = make_engine(data, relu())
    indexed = make_engine(replace(data, X=IndexedRows(X, rng.permutation(n))), relu())

    def one_pass():
        engine.evaluate(w, surrogate=True)

    def by_index():
        indexed.evaluate(w, surrogate=True)

    def read():
        over_ranges(lambda lo, hi: total(X, lo * n // 64, hi * n // 64), 64)

    def by_blas():
        blocked(engine, w, max(16, (1 << 18) // (d * X.itemsize)))

    one_pass()
    read()
    return one_pass, read, by_blas, by_index


def main() -> None:
    print(f"{n_threads()} threads")
    print(
        f"{'rows':>10}{'features':>10}{'groups':>8}{'type':>9}"
        f"{'read ms':>10}{'pass ms':>10}{'ratio':>7}{'blocked BLAS ms':>17}{'ratio':>7}"
        f"{'index ms':>10}{'ratio':>7}"
    )
    for n, d, K, dtype in CASES:
        with single_threaded_blas():
            ours, floor, blas, index = map(min, take_turns(*works(n, d, K, dtype)))
        print(
            f"{n:>10,}{d:>10,}{K:>8,}{np.dtype(dtype).name:>9}{floor * 1e3:>10.2f}"
            f"{ours * 1e3:>10.2f}{ours / floor:>7.2f}{blas * 1e3:>17.2f}{blas / floor:>7.2f}"
            f"{index * 1e3:>10.2f}{index / floor:>7.2f}"
        )


if __name__ == "__main__":
    main()
