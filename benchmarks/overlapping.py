"""Time one pass over rows with overlapping groups, beside copies of the rows.

``python benchmarks/overlapping.py [rows] [features]`` prints rows of a table: milliseconds for the
losses and gradients of all groups, the best of several tries.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

import numpy as np

from counterpoise import Memberships, side_by_side
from counterpoise.activations import relu
from counterpoise.rows.backends import open_engine

TRIES = 15


def best(work: Callable[[], object]) -> float:
    """Return the shortest time of several tries, in milliseconds."""
    work()
    times = []
    for _ in range(TRIES):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return 1e3 * min(times)


def cases(n: int, rng: np.random.Generator) -> dict[str, Memberships]:
    columns = {"a": rng.integers(0, 2, n), "b": rng.integers(0, 4, n), "c": rng.integers(0, 5, n)}
    return {
        "columns of 2, 4 and 5 levels side by side": side_by_side(columns),
        "8 groups of random halves of the rows": Memberships(rng.random((n, 8)) < 0.5),
        "8 groups, random shares in all": Memberships(rng.dirichlet(np.ones(8), n)),
    }


def main(n: int = 200_000, d: int = 20) -> None:
    rng = np.random.default_rng(0)
    X, y, w = rng.normal(size=(n, d)), rng.normal(size=n), rng.normal(size=d + 1)

    def timed(X: np.ndarray, y: np.ndarray, groups: object, weights: object = None) -> float:
        engine = open_engine(X, y, groups, weights, relu(), intercept=True, centred=True)
        return best(lambda: engine.evaluate(w, surrogate=False))

    for name, found in cases(n, rng).items():
        m = found.matrix
        index = np.repeat(np.arange(n), np.diff(m.indptr))
        ours = timed(X, y, found)
        copied = timed(X[index], y[index], found.labels[m.indices], m.data)
        labels = timed(X, y, np.arange(n) % found.shape[1])
        patterns = found.patterns[1].shape[0]
        print(f"| {name} | {patterns:,} | {ours:.1f} | {copied:.1f} | {labels:.1f} |")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
