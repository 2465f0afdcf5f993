"""A pass over the same rows in memory, on Dask and on Spark: seconds, and ratios to memory.

    python benchmarks/spark_passes.py [rows]

Dask has two workers of one thread, and Spark two cores, each with half of eight partitions. Runs
alternate between the three, so that a busy machine disturbs all alike; the least of all runs
counts. The overhead is a pass over rows too few to matter, measured last, when Java has compiled
what Spark runs. Spark reads Parquet files.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

import dask.array as da
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from distributed import Client, LocalCluster
from pyspark.sql import SparkSession

from counterpoise.activations import relu
from counterpoise.rows.engines.dask import DaskEngine
from counterpoise.rows.engines.memory import make_engine
from counterpoise.rows.engines.spark import SparkEngine
from counterpoise.rows.groups import GroupedData
from counterpoise.solver.solve import solve

PARTS, FEATURES, GROUPS = 8, 50, 10


def make_rows(n):
    rng = np.random.default_rng(0)
    X, groups = rng.normal(size=(n, FEATURES)), rng.integers(0, GROUPS, size=n)
    slope = np.random.default_rng(1).normal(size=FEATURES) / np.sqrt(FEATURES)
    y = np.maximum(X @ slope, 0.0) + 0.2 * (1.0 + 0.1 * groups) * rng.normal(size=n)
    return X, y, groups


def to_parquet(folder, X, y, groups):
    """One file for every partition, in order."""
    folder.mkdir()
    for i, part in enumerate(np.array_split(np.arange(len(y)), PARTS)):
        columns = {f"x{j}": X[part, j] for j in range(FEATURES)}
        table = pa.table({**columns, "y": y[part], "g": groups[part]})
        pq.write_table(table, folder / f"part-{i:05}.parquet")
    return str(folder)


def least(runs, repeats):
    """The least seconds of every run, which alternate."""
    times = np.empty((repeats, len(runs)))
    for r in range(repeats):
        for i, run in enumerate(runs):
            start = time.perf_counter()
            run()
            times[r, i] = time.perf_counter() - start
    return times.min(axis=0)


def report(what, times):
    ratios = "".join(f"{t / times[0]:>8.2f}" for t in times[1:])
    print(f"{what:<22}" + "".join(f"{t:>10.4f}" for t in times) + ratios, flush=True)


def start_spark():
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": "4g",
        "spark.python.unix.domain.socket.enabled": os.environ.get("UNIX_SOCKETS", "true"),
        # One partition for every file, whatever its size.
        "spark.sql.files.maxPartitionBytes": str(1 << 40),
        "spark.sql.files.openCostInBytes": str(1 << 40),
    }
    session = SparkSession.builder.master("local[2]").config(map=settings).getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session


def engines_of(client, session, folder, rows):
    X, y, groups = rows
    blocks = [da.from_array(v, chunks=(-(-len(y) // PARTS), *v.shape[1:])) for v in rows]
    with client.as_current():
        spread = DaskEngine(*blocks, None, relu())
    frame = session.read.parquet(to_parquet(folder, *rows))
    start = time.perf_counter()
    sparked = SparkEngine(frame, "y", "g", None, relu())
    print(f"Spark read {len(y):,} rows in {time.perf_counter() - start:.2f} s", flush=True)
    return [make_engine(GroupedData.build(X, y, groups), relu()), spread, sparked], frame


def main() -> None:
    n = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    w = np.random.default_rng(2).normal(size=FEATURES + 1) / FEATURES
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        cluster = stack.enter_context(
            LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=":0")
        )
        client = stack.enter_context(Client(cluster))
        session = start_spark()
        stack.callback(session.stop)
        few, _ = engines_of(client, session, folder / "few", make_rows(100 * PARTS))
        rows = make_rows(n)
        many, frame = engines_of(client, session, folder / "many", rows)
        print(f"{n:,} x {FEATURES} float64, {GROUPS} groups, {PARTS} partitions")
        print(f"{'seconds':<22}{'memory':>10}{'Dask':>10}{'Spark':>10}{'Dask':>8}{'Spark':>8}")
        asked = {
            "pass: evaluate": (many, 30, lambda e: e.evaluate(w, surrogate=True)),
            "pass: curvature": (many, 10, lambda e: e.curvature(w, None)),
            "overhead of a pass": (few, 30, lambda e: e.evaluate(w, surrogate=True)),
        }
        for what, (engines, repeats, ask) in asked.items():
            report(what, least([lambda e=e, ask=ask: ask(e) for e in engines], repeats))
        found = {}

        def fit(name, *given):
            found[name] = solve(*given)

        blocks = [da.from_array(v, chunks=(-(-n // PARTS), *v.shape[1:])) for v in rows]
        fits = [("memory", *rows), ("dask", *blocks), ("spark", frame, "y", "g")]
        report("whole fit", least([lambda f=f: fit(*f) for f in fits], 2))
        gap = np.abs(found["spark"].coef - found["memory"].coef).max()
        print(f"{found['spark'].n_passes} passes; coefficients differ from memory by {gap:.1e}")


if __name__ == "__main__":
    main()
