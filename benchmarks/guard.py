"""What got slower since the last record: ratios of times, measured in a few minutes.

    python benchmarks/guard.py                 # compare with benchmarks/record.json
    python benchmarks/guard.py --record        # measure twice and write a new record

Times of two machines, or of two days, do not compare. Ratios do: a pass beside a read of the same
rows, a fit beside that of a peer, rows in chunks beside rows in memory, each pair in turns. A ratio
that looks worse is measured up to twice more before it is blamed. The first line is the answer.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from resource import RUSAGE_CHILDREN, getrusage
from typing import Any

import numpy as np
import solvers
from datasets.synthetic import neurons
from objectives.risk import risk
from one_pass import take_turns, works
from problem import Problem
from ratios import (
    Ratio,
    checked,
    exit_code,
    from_record,
    headline,
    judged,
    merged,
    ratio_of,
    table,
    to_record,
)
from run import machine, write_json
from worker import once

RECORD = Path(__file__).with_name("record.json")
SMALL, LARGE = (5, 2_000, 20), (5, 20_000, 50)
# A peer has arrived when its risk is within this share of ours, and is given up after seconds.
NEAR, LIMIT = 1e-3, 10.0
PASSES = {
    "float64": (200_000, 50, 10, np.float64),
    "float32": (200_000, 50, 10, np.float32),
    "narrow": (1_000_000, 8, 10, np.float64),
    "wide": (10_000, 2_000, 10, np.float64),
    "wide float32": (10_000, 2_000, 10, np.float32),
    "many groups": (200_000, 50, 10_000, np.float64),
}
FIT = (
    "import numpy as np, counterpoise as c; r = np.random.default_rng(0); "
    "X, g = r.normal(size=(500, 5)), r.integers(0, 3, 500); "
    "c.GroupDRONeuron('identity').fit(X, X.sum(axis=1), groups=g)"
)
WRONG_PATH = "from counterpoise.cli.main import main; main(['fit', 'nowhere.csv', '-y', 'y'])"

Measured = Callable[[], Ratio]


def problem(size: tuple[int, int, int], model: str) -> Problem:
    """The synthetic problem of `run.py` with the risk between average and worst group."""
    X, y, groups = neurons(*size, model)
    return Problem(X, y, groups, model, 0.1 * float(y.var()))


def one_pass(case: tuple[Any, ...]) -> Ratio:
    """A pass beside a read of X."""
    ours, read, *_ = works(*case)
    return ratio_of(*take_turns(ours, read, repeats=60))


def beside_peer(size: tuple[int, int, int], model: str, repeats: int) -> Ratio:
    """Our fit beside the fastest peer of `run.py` that needs no environment of its own."""
    given, ours = problem(size, model), solvers.get("ours")
    found = ours.fit(given, **ours.SHIPPED)
    if model == "logistic":
        peer = solvers.get("sklearn_logistic")
        other = partial(peer.fit, given, **peer.LEVELS[0])
        return ratio_of(
            *take_turns(partial(ours.fit, given, **ours.SHIPPED), other, repeats=repeats)
        )
    peer, target = solvers.get("lbfgs"), risk(given, found)
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(repeats):
        times[0].extend(take_turns(partial(ours.fit, given, **ours.SHIPPED), repeats=1)[0])
        points = once(peer, given, None, peer.SETTINGS[0], LIMIT, target).points
        near = [p["wall"] for p in points if p["risk"] <= target * (1.0 + NEAR)]
        times[1].append(near[0] if near else LIMIT)
    return ratio_of(*times)


def cross_validation() -> Ratio:
    """Cross-validation beside a single fit."""
    from counterpoise import GroupDRONeuron, GroupDRONeuronCV

    rows = problem(SMALL, "identity")
    fits = [
        lambda: GroupDRONeuronCV("identity", cv=3).fit(rows.X, rows.y, groups=rows.groups),
        lambda: GroupDRONeuron("identity").fit(rows.X, rows.y, groups=rows.groups),
    ]
    fits[0]()
    return ratio_of(*take_turns(*fits, repeats=6))


def outside_of_passes(size: tuple[int, int, int]) -> Ratio:
    """A whole fit beside its passes alone, each at the speed of the engine."""
    from counterpoise import solve
    from counterpoise.activations import relu
    from counterpoise.rows.engines.memory import make_engine
    from counterpoise.rows.groups import GroupedData

    rows = problem(size, "relu")
    fit = partial(solve, rows.X, rows.y, rows.groups, activation="relu", nu=rows.nu)
    passes, w = fit().n_passes, np.zeros(rows.X.shape[1] + 1)
    engine = make_engine(GroupedData.build(rows.X, rows.y, rows.groups), relu())

    def read() -> None:
        for _ in range(passes):
            engine.evaluate(w, surrogate=True)

    return ratio_of(*take_turns(fit, read, repeats=8))


def chunked() -> Ratio:
    """Rows in files beside rows in memory."""
    from counterpoise import GroupDRONeuron, Npy

    rows = problem(LARGE, "identity")
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder, f"{name}.npy") for name in ("X", "y", "groups")]
        for file, array in zip(files, (rows.X, rows.y, rows.groups), strict=True):
            np.save(file, array)

        def fit(*given: Any, **more: Any) -> None:
            GroupDRONeuron("identity", nu=rows.nu).fit(*given, **more)

        fit(Npy(*files))
        return ratio_of(
            *take_turns(
                lambda: fit(Npy(*files)), lambda: fit(rows.X, rows.y, groups=rows.groups),
                repeats=6,
            )
        )  # fmt: skip


def on_dask() -> Ratio:
    """One Dask worker of one thread beside rows in memory."""
    import dask.array as da
    from dask_workers import make_rows
    from distributed import Client, LocalCluster

    from counterpoise import solve

    options = {"n_workers": 1, "threads_per_worker": 1, "dashboard_address": None}
    with LocalCluster(**options) as cluster, Client(cluster):
        lazy = make_rows(100_000)
        held = da.compute(*lazy)
        kept = [da.from_array(one, chunks=(12_500, *one.shape[1:])).persist() for one in held]
        fit = partial(solve, activation="relu", nu=0.1)
        fit(*kept)
        return ratio_of(*take_turns(lambda: fit(*kept), lambda: fit(*held), repeats=4))


def processor_seconds(code: str, cache: str) -> float:
    """Processor time of a fresh interpreter that runs this code."""
    environment = {**os.environ, "NUMBA_CACHE_DIR": cache, "PYTHONWARNINGS": "ignore"}
    before = getrusage(RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", code], env=environment, check=True, capture_output=True)
    after = getrusage(RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def first_seconds(code: str, base: str, *, warm: bool) -> Ratio:
    """Processor time of a process of its own beside another's, with kernels cached or not."""
    times: tuple[list[float], list[float]] = ([], [])
    with tempfile.TemporaryDirectory() as cache:
        if warm:
            processor_seconds(code, cache)
        for i in range(4):
            times[0].append(processor_seconds(code, cache if warm else f"{cache}/{i}"))
            times[1].append(processor_seconds(base, cache))
    return ratio_of(*times)


def cases() -> Iterator[tuple[str, Measured]]:
    """Every ratio, by its name: what is measured and beside what."""
    for name, case in PASSES.items():
        yield f"pass / read, {name}", partial(one_pass, case)
    for model in ("identity", "relu", "logistic"):
        peer = "scikit-learn" if model == "logistic" else "L-BFGS"
        for kind, size, repeats in (("small", SMALL, 8), ("large", LARGE, 3)):
            yield f"{model}, {kind} / {peer}", partial(beside_peer, size, model, repeats)
    yield "cross-validation / fit", cross_validation
    for kind, size in (("small", SMALL), ("large", LARGE)):
        yield f"fit / its passes, {kind}", partial(outside_of_passes, size)
    yield "chunks / memory", chunked
    yield "Dask / memory", on_dask
    imports = "import sklearn.linear_model"
    yield "first fit / import sklearn", partial(first_seconds, FIT, imports, warm=False)
    yield "next process / import sklearn", partial(first_seconds, FIT, imports, warm=True)
    yield "wrong path / python", partial(first_seconds, WRONG_PATH, "import json", warm=True)


def measured(measure: Measured) -> Ratio | None:
    """The ratio, or None where a package is missing."""
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(sys.stderr):
            warnings.simplefilter("ignore")
            return measure()
    except ImportError as error:
        print(f"not measured: {error}", file=sys.stderr)
        return None


def main() -> int:
    parser = argparse.ArgumentParser(
        description="Compare ratios of times with the last record, and say what got slower.",
        epilog="Exit codes: 0 if nothing got slower; 1 if something did; 2 for wrong usage. "
        "Nothing else should run on the machine meanwhile.",
    )
    parser.add_argument("--record", action="store_true",
                        help="measure twice, and write a new record")  # fmt: skip
    parser.add_argument(
        "--file", type=Path, default=RECORD, help="the record  [benchmarks/record.json]"
    )
    parser.add_argument("--only", metavar="TEXT", help="only ratios whose names contain this")
    given = parser.parse_args()
    if given.record and given.only:
        parser.error("--record is of all ratios; leave out --only")
    began = time.perf_counter()
    recorded = from_record(json.loads(given.file.read_text())) if given.file.exists() else {}
    chosen = [case for case in cases() if (given.only or "") in case[0]]
    if not chosen:
        parser.error(f"--only {given.only}: no ratio has that in its name")
    verdicts = []
    for number, (name, measure) in enumerate(chosen, 1):
        print(f"{number}/{len(chosen)} {name}", file=sys.stderr, flush=True)
        if given.record:
            pair = [measured(measure), measured(measure)]
            now = merged(*pair) if None not in pair else None
            verdicts.append(judged(name, recorded.get(name), now))
        else:
            verdicts.append(checked(name, recorded.get(name), partial(measured, measure)))
    print(headline(verdicts))
    print(f"\n{table(verdicts)}\n\n{time.perf_counter() - began:.0f} seconds")
    if given.record:
        about = {"machine": machine(), "date": datetime.now(UTC).date().isoformat()}
        write_json(given.file, to_record({v.name: v.now for v in verdicts}, about))
        print(f"recorded in {given.file.name}")
        return 0
    return exit_code(verdicts)


if __name__ == "__main__":
    sys.exit(main())
