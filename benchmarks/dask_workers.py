"""One Dask worker beside two: the time of a pass and of a whole fit, and what a pass costs.

    python benchmarks/dask_workers.py [rows]

Workers are processes of one thread. Rows are made on the workers, in eight blocks. Runs alternate
between the two clusters, so that a busy machine disturbs both alike; the ratio is that of the
medians, and beside it that of the best runs. The overhead is a pass over rows too few to matter.
"""

from __future__ import annotations

import os
import sys
import time
from contextlib import ExitStack

import dask.array as da
import numpy as np
from distributed import Client, LocalCluster

from counterpoise.activations import relu
from counterpoise.engines.dask import DaskEngine
from counterpoise.solver import solve

BLOCKS, FEATURES, GROUPS = 8, 50, 10


def make_rows(n):
    """Features, labels and groups as lazy arrays: the same on every cluster."""
    rng = da.random.default_rng(0)
    X = rng.normal(size=(n, FEATURES), chunks=(-(-n // BLOCKS), FEATURES))
    slope = np.random.default_rng(1).normal(size=FEATURES) / np.sqrt(FEATURES)
    groups = rng.integers(0, GROUPS, size=n, chunks=X.chunks[0])
    noise = rng.normal(size=n, chunks=X.chunks[0])
    return X, da.maximum(X @ slope, 0.0) + 0.2 * (1.0 + 0.1 * groups) * noise, groups


def alternate(clients, work, repeats):
    """Seconds that ``work(i)`` takes with client ``i``: an array (repeats, clients)."""
    times = np.empty((repeats, len(clients)))
    for r in range(repeats):
        for i, client in enumerate(clients):
            with client.as_current():
                start = time.perf_counter()
                work(i)
                times[r, i] = time.perf_counter() - start
    return times


def report(what, times):
    one, two = np.median(times, axis=0)
    best = times.min(axis=0)
    print(
        f"{what:<26}{one:>12.3f}{two:>12.3f}{one / two:>8.2f}{best[0] / best[1]:>8.2f}", flush=True
    )


def open_engines(clients, n):
    engines = []
    for client in clients:
        with client.as_current():
            engine = DaskEngine(*make_rows(n), None, relu(), intercept=True, centred=True)
            engine.evaluate(np.zeros(FEATURES + 1), surrogate=True)
            engines.append(engine)
    return engines


def main() -> None:
    n = int(sys.argv[1]) if len(sys.argv) > 1 else 4_000_000
    w = np.random.default_rng(2).normal(size=FEATURES + 1) / FEATURES
    with ExitStack() as stack:
        clients = []
        for count in (1, 2):
            cluster = stack.enter_context(
                LocalCluster(
                    n_workers=count, threads_per_worker=1, processes=True, dashboard_address=":0"
                )
            )
            clients.append(stack.enter_context(Client(cluster, set_as_default=False)))
        print(
            f"{n:,} x {FEATURES} float64, {GROUPS} groups, {BLOCKS} blocks; {os.cpu_count()} cores,"
        )
        print(f"load of the machine before the start {os.getloadavg()[0]:.1f}")
        print(f"{'seconds':<26}{'one worker':>12}{'two':>12}{'ratio':>8}{'best':>8}")
        asked = {
            "overhead of a pass": (100 * BLOCKS, 30, lambda e: e.evaluate(w, surrogate=True)),
            "pass: evaluate": (n, 15, lambda e: e.evaluate(w, surrogate=True)),
            "pass: curvature": (n, 5, lambda e: e.curvature(w, None)),
        }
        engines = {}
        for what, (rows, repeats, ask) in asked.items():
            if rows not in engines:
                engines[rows] = open_engines(clients, rows)
            pair = engines[rows]
            report(what, alternate(clients, lambda i, ask=ask, pair=pair: ask(pair[i]), repeats))
        del pair
        engines.clear()
        found = {}

        def fit(i):
            found[i] = solve(*make_rows(n))

        report("fit, rows made anew", alternate(clients, fit, 2))
        same = np.array_equal(found[0].coef, found[1].coef)
        print(f"{found[0].n_passes} passes; the two fits agree {'to the bit' if same else 'not'}")


if __name__ == "__main__":
    main()
