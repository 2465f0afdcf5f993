"""How our solver's time grows with rows, features, groups and threads.

    python benchmarks/scaling.py [--quick] [--out out/scaling]

One dimension moves at a time. Shown are the whole fit on raw shuffled rows (default settings,
ReLU neuron, KL) and the fit divided by its passes, beside the time to read X once with the same
threads. Every number of threads gets a process of its own, since it is fixed when one starts.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from datasets.synthetic import neurons
from run import machine, write_json

BASE = {"n": 200_000, "d": 50, "K": 10}
SWEEPS = {
    "n": [20_000, 63_000, 200_000, 630_000, 2_000_000],
    "d": [5, 15, 50, 150, 400],
    "K": [2, 10, 50, 250, 1_000],
}
LARGEST = 120_000_000  # numbers in X
LABELS = {"n": "rows", "d": "features", "K": "groups"}


def cases(quick=False):
    """Every (dimension moved, shape); smaller and fewer when quick."""
    shrink = 10 if quick else 1
    for axis, values in SWEEPS.items():
        for value in values[:3] if quick else values:
            shape = {**BASE, "n": BASE["n"] // shrink, axis: value}
            if axis == "n":
                shape["n"] = value // shrink
            if shape["n"] * shape["d"] <= LARGEST:
                yield axis, shape


def read_once(X, pool, threads):
    """Sum every number of X, rows shared between threads."""
    cuts = np.linspace(0, len(X), threads + 1).astype(int)
    return sum(pool.map(lambda i: X[cuts[i] : cuts[i + 1]].sum(), range(threads)))


def clock(work, repeats):
    """Median and spread of the wall seconds of ``work()``."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
        if times[0] > 5.0:
            break
    return {"wall": float(np.median(times)), "least": min(times), "most": max(times)}


def measure(shape, threads):
    """One case, in this process."""
    from counterpoise import solve

    n, d, K = shape["n"], shape["d"], shape["K"]
    X, y, groups = neurons(K, n // K, d, "relu")
    found = []

    def fit():
        found.append(solve(X, y, groups, activation="relu", nu=0.1 * float(y.var())))

    fitted = clock(fit, 3)
    with ThreadPoolExecutor(threads) as pool:
        read_once(X, pool, threads)
        read = clock(lambda: read_once(X, pool, threads), 5)
    passes = found[-1].n_passes
    return {**shape, "threads": threads, "fit": fitted, "passes": passes, "read": read}


def worker(request):
    """All cases of one number of threads; a line of JSON for each."""
    from counterpoise import solve

    X, y, groups = neurons(2, 200, 3, "relu")
    solve(X, y, groups, activation="relu", nu=0.1)  # compile
    for axis, shape in request["cases"]:
        print(json.dumps({"axis": axis, **measure(shape, request["threads"])}), flush=True)


def run(threads, chosen):
    """The worker in a process that may use so many threads."""
    counts = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")
    request = json.dumps({"threads": threads, "cases": chosen})
    command = [sys.executable, str(Path(__file__).resolve()), "--worker", request]
    environment = {**os.environ, **dict.fromkeys(counts, str(threads))}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        for line in process.stdout:
            row = json.loads(line)
            print(_row(row), flush=True)
            yield row
    if process.returncode:
        raise SystemExit(f"the worker with {threads} threads ended with {process.returncode}")


HEAD = (
    "| moved | rows | features | groups | threads | fit, s | passes | ms per pass | ms to read X |"
)


def _row(row) -> str:
    fit, read = row["fit"], row["read"]
    return (
        f"| {LABELS[row['axis']]} | {row['n']:,} | {row['d']} | {row['K']:,} | {row['threads']} | "
        f"{fit['wall']:.3g} ({fit['least']:.3g}-{fit['most']:.3g}) | {row['passes']} | "
        f"{1e3 * fit['wall'] / row['passes']:.3g} | {1e3 * read['wall']:.3g} |"
    )


def draw(rows, path) -> None:
    """Fit, fit per pass, and one read of X, against each dimension; a panel for each."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    lines = [
        ("fit", "#000000", lambda row: row["fit"]["wall"]),
        ("per pass", "#0072B2", lambda row: row["fit"]["wall"] / row["passes"]),
        ("read X once", "#D55E00", lambda row: row["read"]["wall"]),
    ]
    fig, axes = plt.subplots(1, 3, figsize=(12, 4.2), sharey=True, layout="constrained")
    most = max(row["threads"] for row in rows)
    for ax, (axis, label) in zip(axes, LABELS.items(), strict=True):
        for name, colour, value in lines:
            for threads in sorted({row["threads"] for row in rows}):
                here = [row for row in rows if row["axis"] == axis and row["threads"] == threads]
                x, y = [row[axis] for row in here], [value(row) for row in here]
                solid = threads == most
                ax.plot(x, y, color=colour, ls="-" if solid else ":", marker="o", ms=4)
                if solid and x:
                    lift = -14 if name == "read X once" else 7  # clear of the line above
                    ax.annotate(name, (x[-1], y[-1]), (-4, lift), textcoords="offset points",
                                color=colour, ha="right", fontsize=9)  # fmt: skip
        ax.set(xscale="log", yscale="log", xlabel=label)
        ticks = sorted({row[axis] for row in rows if row["axis"] == axis})
        ax.set_xticks(ticks, [f"{tick:,}" for tick in ticks], fontsize=8)
        ax.minorticks_off()
        ax.spines[["top", "right"]].set_visible(False)
    axes[0].set_ylabel("wall time, seconds")
    others = sorted({row["threads"] for row in rows} - {most})
    dotted = f"; dotted: {', '.join(map(str, others))}" if others else ""
    fig.suptitle(f"Our solver, ReLU and KL, {most} threads{dotted}", fontsize=11)
    fig.savefig(path, dpi=130)
    plt.close(fig)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="a tenth of the rows, fewer cases")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--out", type=Path, default=Path("out/scaling"))
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.worker:
        worker(json.loads(given.worker))
        return
    given.out.mkdir(parents=True, exist_ok=True)
    print(HEAD)
    chosen = list(cases(given.quick))
    rows = [row for threads in given.threads for row in run(threads, chosen)]
    write_json(given.out / "scaling.json", {"machine": machine(), "rows": rows})
    table = "\n".join([HEAD, "|---" * 9 + "|", *map(_row, rows)])
    scratch = given.out / "scaling.md.part"
    scratch.write_text(f"# How the time grows\n\n{table}\n\n![scaling](scaling.png)\n")
    scratch.replace(given.out / "scaling.md")
    draw(rows, given.out / "scaling.png")


if __name__ == "__main__":
    main()
