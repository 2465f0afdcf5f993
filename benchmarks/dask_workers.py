"""One Dask worker beside two: the time of a pass and of a whole fit, and what a pass costs.

    python benchmarks/dask_workers.py [rows]

Workers are processes of one thread. Rows are made on the workers, in eight blocks. Runs alternate
between the two clusters, so that a busy machine disturbs both alike. Two workers can be twice as
fast only while nobody else uses the cores, so the last columns are of runs during which others took
less than a tenth of a core: how many there were of each, and the ratio of their medians. The
overhead is a pass over rows too few to matter.
"""

from __future__ import annotations

import os
import sys
import time
from contextlib import ExitStack

import dask.array as da
import numpy as np
import psutil
from distributed import Client, LocalCluster

from counterpoise.activations import relu
from counterpoise.rows.engines.dask import DaskEngine
from counterpoise.solver.solve import solve

BLOCKS, FEATURES, GROUPS = 8, 50, 10


def make_rows(n):
    """Features, labels and groups as lazy arrays: the same on every cluster."""
    rng = da.random.default_rng(0)
    X = rng.normal(size=(n, FEATURES), chunks=(-(-n // BLOCKS), FEATURES))
    slope = np.random.default_rng(1).normal(size=FEATURES) / np.sqrt(FEATURES)
    groups = rng.integers(0, GROUPS, size=n, chunks=X.chunks[0])
    noise = rng.normal(size=n, chunks=X.chunks[0])
    return X, da.maximum(X @ slope, 0.0) + 0.2 * (1.0 + 0.1 * groups) * noise, groups


def cpu_of_others():
    """Seconds of processor time that this process and its children did not take, so far."""
    own = psutil.Process()
    tree = [p.cpu_times() for p in (own, *own.children(recursive=True))]
    busy = psutil.cpu_times()
    total = sum(busy) - busy.idle - getattr(busy, "iowait", 0.0) - getattr(busy, "guest", 0.0)
    return total - sum(t.user + t.system for t in tree)


def alternate(clients, work, repeats):
    """Seconds that ``work(i)`` takes with client ``i``, and cores that others took meanwhile."""
    times, others = np.empty((2, repeats, len(clients)))
    for r in range(repeats):
        for i, client in enumerate(clients):
            with client.as_current():
                taken, start = cpu_of_others(), time.perf_counter()
                work(i)
                times[r, i] = time.perf_counter() - start
                others[r, i] = (cpu_of_others() - taken) / times[r, i]
    return times, others


def report(what, times, others):
    one, two = np.median(times, axis=0)
    quiet = [t[o < 0.1] for t, o in zip(times.T, others.T, strict=True)]
    counts = "/".join(str(len(t)) for t in quiet)
    line = f"{what:<22}{one:>12.3f}{two:>10.3f}{one / two:>8.2f}{others.mean():>8.2f}{counts:>9}"
    if all(len(t) for t in quiet):
        one, two = map(np.median, quiet)
        line += f"{one:>12.3f}{two:>10.3f}{one / two:>8.2f}"
    print(line, flush=True)


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
        print(
            f"{'seconds':<22}{'one worker':>12}{'two':>10}{'ratio':>8}{'others':>8}"
            f"{'quiet':>9}{'one worker':>12}{'two':>10}{'ratio':>8}"
        )
        asked = {
            "overhead of a pass": (100 * BLOCKS, 40, lambda e: e.evaluate(w, surrogate=True)),
            "pass: evaluate": (n, 40, lambda e: e.evaluate(w, surrogate=True)),
            "pass: curvature": (n, 15, lambda e: e.curvature(w, None)),
        }
        engines = {}
        for what, (rows, repeats, ask) in asked.items():
            if rows not in engines:
                engines[rows] = open_engines(clients, rows)
            pair = engines[rows]
            report(what, *alternate(clients, lambda i, ask=ask, pair=pair: ask(pair[i]), repeats))
        del pair
        engines.clear()
        found = {}

        def fit(i):
            found[i] = solve(*make_rows(n))

        report("fit, rows made anew", *alternate(clients, fit, 3))
        same = np.array_equal(found[0].coef, found[1].coef)
        print(f"{found[0].n_passes} passes; the two fits agree {'to the bit' if same else 'not'}")


if __name__ == "__main__":
    main()
