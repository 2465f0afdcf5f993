"""Read the folders of finished runs: ``<run>/seed-<n>/evaluations.jsonl``.

Each line is an evaluation: ``{"step": ..., "tokens": ..., "report": {domain: loss}, "driving":
{domain: loss}, "weights": {domain: weight}, "shares": {domain: share}, "epochs": {domain:
epochs}}``. A run is finished if it has a ``result.json``. ``scores.jsonl``, if it exists,
has a line for each measured checkpoint: ``{"step": ..., "tokens": ..., "losses": {domain:
loss}, "losses_of": how, "tasks": [{"task": ..., "metric": ..., "value": ..., "stderr": ...,
"shots": ..., "n": ..., "source": ...}]}``.
"""

from __future__ import annotations

import logging
import math
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from counterpoise.common.arguments import check_whole, is_number
from counterpoise.lm.compare.scores import TASK_KINDS
from counterpoise.lm.logs import JsonLines
from counterpoise.lm.sealed import open_line
from counterpoise.lm.training.run_folder import RunFolder

EVALUATIONS, RESULT, SCORES = "evaluations.jsonl", "result.json", "scores.jsonl"
# Names of an evaluation's numbers per domain, and of the columns that they become.
QUANTITIES = {
    "report": "loss",
    "driving": "driving_loss",
    "weights": "weight",
    "shares": "share",
    "epochs": "epochs",
}
NEEDED = ("report", "weights")

logger = logging.getLogger("counterpoise")


FinishedRun = tuple[str, int, Path]  # name, seed, folder


def read_runs(runs: Iterable[FinishedRun]) -> dict[str, Any]:
    """Read evaluations into columns, run by run and line by line."""
    columns: dict[str, list[Any]] = {
        name: [] for name in ("run", "seed", "step", "tokens", "domain", *QUANTITIES.values())
    }
    for run, seed, path in runs:
        step: int | None = None
        for step, tokens, quantities in _evaluations(path / EVALUATIONS):
            for domain in quantities["report"]:
                columns["run"].append(run)
                columns["seed"].append(seed)
                columns["step"].append(step)
                columns["tokens"].append(tokens)
                columns["domain"].append(domain)
                for key, column in QUANTITIES.items():
                    columns[column].append(quantities[key].get(domain, math.nan))
        RunFolder(path).check_end(step)
    return columns


def read_scores(runs: Iterable[FinishedRun]) -> dict[str, Any]:
    """Read task scores into columns."""
    rows = [
        {"run": run, "seed": seed, "tokens": record["tokens"], **score}
        for run, seed, path in runs
        for record in JsonLines(path / SCORES).read()
        for score in record.get("tasks", [])
    ]
    columns = {"score": "value"}
    return {
        name: [math.nan if (v := row[columns.get(name, name)]) is None else v for row in rows]
        for name in TASK_KINDS
    }


def read_finals(runs: Iterable[FinishedRun], closer_look: dict[str, Any]) -> dict[str, Any]:
    """Read the final losses of runs that were measured in this way into columns."""
    columns: dict[str, list[Any]] = {
        name: [] for name in ("run", "seed", "step", "tokens", "domain", "loss")
    }
    for run, seed, path in runs:
        last = (RunFolder(path).result or {})["steps"]
        for record in JsonLines(path / SCORES).read():
            if record["step"] != last or record.get("losses_of") != closer_look:
                continue
            for domain, loss in record["losses"].items():
                known = (run, seed, last, record["tokens"], domain, loss)
                for column, value in zip(columns.values(), known, strict=True):
                    column.append(value)
    return columns


def find_runs(folder: str | os.PathLike[str]) -> list[FinishedRun]:
    """Find finished runs; a warning names the others."""
    root = Path(folder)
    if not root.is_dir():
        raise FileNotFoundError(f"{str(root)!r} is not a folder; give the one that holds all runs")
    found: list[FinishedRun] = []
    unfinished: list[FinishedRun] = []
    for path in root.glob("*/seed-*"):
        match = re.fullmatch(r"seed-(\d+)", path.name)
        if match is None or not path.is_dir():
            continue
        whole = (path / RESULT).is_file() and (path / EVALUATIONS).is_file()
        (found if whole else unfinished).append((path.parent.name, int(match[1]), path))
    if unfinished:
        names = ", ".join(f"{run}/{path.name}" for run, _, path in sorted(unfinished))
        logger.warning("leaving out unfinished runs: %s", names)
    if not found:
        raise ValueError(
            f"{str(root)!r} holds no finished run, which would be a folder <run>/seed-<n> with "
            f"{EVALUATIONS} and {RESULT}"
        )
    return sorted(found)


def _evaluations(path: Path) -> Iterator[tuple[int, int, dict[str, dict[str, float]]]]:
    with open(path, encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            try:
                yield _evaluation(line)
            except ValueError as error:
                raise ValueError(f"{str(path)!r}, line {number}: {error}") from None


def _evaluation(line: str) -> tuple[int, int, dict[str, dict[str, float]]]:
    record = open_line(line.rstrip("\n"))
    if not isinstance(record, dict):
        raise ValueError(f"an evaluation must be an object; got {line.strip()[:60]!r}")
    step, tokens = (check_whole(key, record.get(key)) for key in ("step", "tokens"))
    quantities = {key: _numbers(record, key) for key in QUANTITIES}
    for key, values in quantities.items():
        unknown = [name for name in values if name not in quantities["report"]]
        if unknown:
            raise ValueError(f"{key} names domains that report does not: {unknown!r}")
    return step, tokens, quantities


def _numbers(record: dict[str, Any], key: str) -> dict[str, float]:
    """Read numbers per domain; null, infinity and optional numbers left out become NaN."""
    values = record.get(key)
    if values is None and key not in NEEDED:
        return {}
    if not isinstance(values, dict) or not values:
        raise ValueError(f"{key} must map domains to numbers; got {values!r}")
    for domain, value in values.items():
        if value is not None and not is_number(value):
            raise ValueError(f"{key} of domain {domain!r} must be a number; got {value!r}")
    known = {name: v is not None and math.isfinite(v) for name, v in values.items()}
    return {name: float(v) if known[name] else math.nan for name, v in values.items()}
