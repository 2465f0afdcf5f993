"""One pass (losses and all group gradients) beside the time to read X once.

    python benchmarks/one_pass.py

Both use the same threads; compilation happens before the timing. Best of several runs, in
alternation, so that a busy machine disturbs both alike.
"""

from __future__ import annotations

import time

import numpy as np
from numba import njit

from counterpoise.activations import relu
from counterpoise.engines import make_engine
from counterpoise.engines.threads import n_threads, over_ranges
from counterpoise.groups import GroupedData

CASES = [
    # rows, features, groups, dtype
    (100_000, 50, 10, np.float64),
    (100_000, 50, 10, np.float32),
    (1_000_000, 50, 10, np.float64),
    (1_000_000, 50, 10_000, np.float64),
    (4_000_000, 8, 10, np.float64),
    (40_000, 1_000, 10, np.float64),
]


@njit(nogil=True, fastmath=True)
def total(X, lo, hi):
    s = 0.0
    for j in range(lo, hi):
        for k in range(X.shape[1]):
            s += X[j, k]
    return s


def best(work, other, repeats=9):
    times = [[], []]
    for _ in range(repeats):
        for f, kept in zip((work, other), times, strict=True):
            start = time.perf_counter()
            f()
            kept.append(time.perf_counter() - start)
    return min(times[0]), min(times[1])


def main() -> None:
    rng = np.random.default_rng(0)
    print(f"{n_threads()} threads")
    print(
        f"{'rows':>10}{'features':>10}{'groups':>8}{'type':>9}"
        f"{'pass ms':>10}{'read ms':>10}{'ratio':>7}"
    )
    for n, d, K, dtype in CASES:
        X = rng.normal(size=(n, d)).astype(dtype)
        y, w = rng.normal(size=n), rng.normal(size=d + 1)
        engine = make_engine(GroupedData.build(X, y, np.sort(rng.integers(0, K, n))), relu())

        def one_pass(engine=engine, w=w):
            engine.evaluate(w, surrogate=True)

        def read(X=X, n=n):
            over_ranges(lambda lo, hi: total(X, lo * n // 64, hi * n // 64), 64)

        one_pass()
        read()
        ours, floor = best(one_pass, read)
        print(f"{n:>10,}{d:>10,}{K:>8,}{X.dtype.name:>9}{ours * 1e3:>10.2f}{floor * 1e3:>10.2f}"
              f"{ours / floor:>7.2f}")  # fmt: skip


if __name__ == "__main__":
    main()
