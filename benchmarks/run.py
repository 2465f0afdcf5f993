"""The grid: dataset x model x objective x solver, on one machine, one after the other.

    python benchmarks/run.py [--quick] [--datasets NAME ...] [--models NAME ...]
                             [--solvers NAME ...] [--out DIR]

``--quick`` takes the small synthetic problems and the solvers that need no environment of their
own. Finished cells are kept in the output folder and not run again unless ``--fresh``; ours are,
once our code has changed. The reference of a problem is the lowest risk that any solver found for
it; tables show the time to come within 1e-2, 1e-3, 1e-4 and 1e-6 of it, and how that compares with
ours, losses like wins.

A run ends at the time limit, or earlier once it has taken ``--patience`` times as long as our
solver needed (but never less than MIN_LIMIT); the tables then say "> limit".
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.metadata
import importlib.util
import json
import math
import os
import platform
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import report
import solvers
from datasets import SOURCES
from environments import MAIN, Unavailable, python_of
from objectives import OBJECTIVES
from problem import MODELS, save_rows

HERE = Path(__file__).resolve().parent
MIN_LIMIT = {"run": 3.0, "fit": 20.0}  # seconds, for iterative methods and for black boxes


@dataclass(frozen=True)
class Options:
    """What a call of this script asks for."""

    out: Path
    datasets: list[str]
    models: list[str]
    solvers: list[str]
    limit: float = 120.0
    patience: float = 4.0
    fresh: bool = False


def write_json(path: Path, content) -> None:
    """All or nothing: a reader never sees half a file."""
    scratch = path.with_suffix(".part")
    scratch.write_text(json.dumps(content, indent=1))
    scratch.replace(path)


def our_code() -> str:
    """A fingerprint of the counterpoise that is imported, so that no two are mixed in one table."""
    home = Path(importlib.util.find_spec("counterpoise").origin).parent
    digest = hashlib.sha256()
    for path in sorted(home.rglob("*.py")):
        digest.update(path.relative_to(home).as_posix().encode() + path.read_bytes())
    return digest.hexdigest()[:12]


def finished(path: Path, code: str):
    """The cell kept there, unless it measured another version of our code."""
    if not path.exists():
        return None
    cell = json.loads(path.read_text())
    return cell if cell["solver"] != "ours" or cell.get("code") == code else None


def prepare(source, model, out: Path):
    """Rows on disk for the workers, and their shape."""
    folder = out / "rows"
    folder.mkdir(parents=True, exist_ok=True)
    X, y, groups = source.load(model, out / "packages")
    path = folder / f"{source.name}.{model}.npz"
    save_rows(path, np.ascontiguousarray(X, float), np.asarray(y, float), groups)
    return path, X.shape, int(groups.max()) + 1, y


def run_cell(name, rows, nu, model, about, path, limit, target):
    """One solver on one problem in its own process and environment; returns the cell."""
    solver = solvers.get(name)
    why = solver.refuses(solvers.Shape(**about["shape"], model=model, nu=nu))
    if why:
        return {**about, "runs": [], "left_out": why}
    try:
        python = python_of(solver.ENVIRONMENT)
    except Unavailable as error:
        return {**about, "runs": [], "left_out": str(error)}
    scratch = path.with_suffix(".answer")
    scratch.unlink(missing_ok=True)
    request = {
        "rows": str(rows), "model": model, "nu": nu, "solver": name, "limit": limit,
        "target": target, "answer": str(scratch), "about": about,
    }  # fmt: skip
    asked = path.with_suffix(".request")
    write_json(asked, request)
    command = [str(python), str(HERE / "worker.py"), str(asked)]
    done = subprocess.run(command, capture_output=True, text=True)
    answer = json.loads(scratch.read_text()) if scratch.exists() else {**about, "runs": []}
    if not answer.get("done"):
        running = answer.pop("running", None)
        if running and "Timeout" in done.stderr:
            answer["runs"].append({"label": running["label"], "ended": "killed", "points": []})
        else:
            last = (done.stderr.strip().splitlines() or ["no message"])[-1]
            answer["failed"] = f"exit {done.returncode}: {last}"
    scratch.unlink(missing_ok=True)
    asked.unlink()
    return answer


def limit_for(options: Options, name, cells) -> float:
    """How long a solver may try: ``patience`` times our time, within bounds."""
    ours = [cell for cell in cells if cell["solver"] == "ours"]
    times = [run["points"][-1]["wall"] for cell in ours for run in cell["runs"] if run["points"]]
    if not times:
        return options.limit
    least = MIN_LIMIT["fit" if hasattr(solvers.get(name), "fit") else "run"]
    return min(options.limit, max(least, options.patience * float(np.median(times))))


def grid(options: Options):
    """Run what is missing, yield every cell."""
    kept = options.out / "cells"
    kept.mkdir(parents=True, exist_ok=True)
    for dataset in options.datasets:
        source = SOURCES[dataset]
        for model in [model for model in source.models if model in options.models]:
            rows = None
            for objective in OBJECTIVES.values():
                cells = []
                for name in options.solvers:
                    path = kept / f"{dataset}.{model}.{objective.NAME}.{name}.json"
                    code = our_code()
                    cell = None if options.fresh else finished(path, code)
                    if cell:
                        cells.append(cell)
                        continue
                    if rows is None:
                        try:
                            rows, (n, d), K, y = prepare(source, model, options.out)
                        except Unavailable as error:
                            print(f"{dataset}: left out; {error}", flush=True)
                            break
                    about = {
                        "dataset": dataset, "model": model, "solver": name,
                        "objective": objective.NAME, "shape": {"n": n, "d": d, "K": K},
                    }  # fmt: skip
                    limit = limit_for(options, name, cells)
                    about |= {"limit": limit, "code": code}
                    print(f"{path.stem:<60}", end=" ", flush=True)
                    start = time.perf_counter()
                    best = report.reference(cells)
                    target = best if math.isfinite(best) else None
                    cell = run_cell(
                        name, rows, objective.nu(y, model), model, about, path, limit, target
                    )
                    write_json(path, cell)
                    cells.append(cell)
                    print(_line(cell, time.perf_counter() - start), flush=True)
                yield from cells
            if rows is not None:
                rows.unlink()


def _line(cell, seconds) -> str:
    if cell.get("left_out") or cell.get("failed"):
        return cell.get("left_out") or cell["failed"]
    points = [point for run in cell["runs"] for point in run["points"]]
    if not points:
        return f"nothing within {cell['limit']:.3g} s"
    best = min(points, key=lambda point: point["risk"])
    return f"risk {best['risk']:.6g} in {best['wall']:.3g} s ({seconds:.0f} s in all)"


def machine() -> dict:
    """What the figures were measured on."""
    versions = {}
    for package in ("counterpoise", "numpy", "scipy", "numba", "cvxpy", "clarabel"):
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return {
        "python": platform.python_version(), "system": platform.system(),
        "processor": _processor(), "cores": os.cpu_count(), "versions": versions,
    }  # fmt: skip


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    found = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return found[0] if found else platform.machine()


def parse(arguments=None) -> Options:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="small problems, no environments")
    parser.add_argument("--datasets", nargs="+", choices=list(SOURCES), metavar="NAME")
    parser.add_argument("--models", nargs="+", choices=MODELS, default=MODELS, metavar="NAME",
                        help="identity, relu (neurons), logistic")  # fmt: skip
    parser.add_argument("--solvers", nargs="+", choices=solvers.NAMES, metavar="NAME")
    parser.add_argument("--out", type=Path, default=Path("out/bench"))
    parser.add_argument("--limit", type=float, default=120.0, help="seconds per run")
    parser.add_argument("--patience", type=float, default=4.0, help="in multiples of our time")
    parser.add_argument("--fresh", action="store_true", help="run finished cells again")
    given = parser.parse_args(arguments)
    datasets = given.datasets or [s.name for s in SOURCES.values() if s.quick or not given.quick]
    local = [name for name in solvers.NAMES if solvers.get(name).ENVIRONMENT == MAIN]
    chosen = given.solvers or (local if given.quick else list(solvers.NAMES))
    out = given.out.resolve()
    return Options(out, datasets, given.models, chosen, given.limit, given.patience, given.fresh)


def main(arguments=None) -> None:
    options = parse(arguments)
    start = time.perf_counter()
    cells = list(grid(options))
    measured = {cell["code"] for cell in cells if cell["solver"] == "ours"}
    if len(measured) > 1:
        print(f"warning: our code changed during the run ({len(measured)} versions measured)")
    results = {"machine": machine(), "cells": cells, "summary": report.summarise(cells)}
    write_json(options.out / "results.json", results)
    report.write(results, options.out)
    minutes = (time.perf_counter() - start) / 60
    where = os.path.relpath(options.out / "results.md")
    print(f"{len(cells)} cells, {minutes:.1f} minutes; see {where}")


if __name__ == "__main__":
    main()
