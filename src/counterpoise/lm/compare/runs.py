"""Folders of training runs, as they are left on disk: ``<run>/seed-<n>/evaluations.jsonl``.

Each line is an evaluation: ``{"step": ..., "tokens": ..., "report": {domain: loss}, "driving":
{domain: loss}, "weights": {domain: weight}, "shares": {domain: share}, "epochs": {domain:
epochs}}``. A run is finished when ``result.json`` is beside it. ``scores.jsonl``, if it is there,
has a line for each checkpoint that was measured: ``{"step": ..., "tokens": ..., "losses": {domain:
loss}, "losses_of": how, "tasks": [{"task": ..., "metric": ..., "value": ..., "stderr": ...,
"shots": ..., "n": ..., "source": ...}]}``.
"""

from __future__ import annotations

import json
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


Run = tuple[str, int, Path]


def read_runs(runs: Iterable[Run]) -> dict[str, Any]:
    """Columns of runs, by name, seed and folder, in their order and that of their lines."""
    columns: dict[str, list[Any]] = {
        name: [] for name in ("run", "seed", "step", "tokens", "domain", *QUANTITIES.values())
    }
    for run, seed, path in runs:
        for step, tokens, quantities in _evaluations(path / EVALUATIONS):
            for domain in quantities["report"]:
                columns["run"].append(run)
                columns["seed"].append(seed)
                columns["step"].append(step)
                columns["tokens"].append(tokens)
                columns["domain"].append(domain)
                for key, column in QUANTITIES.items():
                    columns[column].append(quantities[key].get(domain, math.nan))
    return columns


def read_scores(runs: Iterable[Run]) -> dict[str, Any]:
    """Columns of the task scores of runs."""
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


def read_finals(runs: Iterable[Run], closer_look: dict[str, Any]) -> dict[str, Any]:
    """Columns of the losses of finished models, of the runs that were measured in this way."""
    columns: dict[str, list[Any]] = {
        name: [] for name in ("run", "seed", "step", "tokens", "domain", "loss")
    }
    for run, seed, path in runs:
        last = json.loads((path / RESULT).read_text(encoding="utf-8"))["steps"]
        for record in JsonLines(path / SCORES).read():
            if record["step"] != last or record.get("losses_of") != closer_look:
                continue
            for domain, loss in record["losses"].items():
                known = (run, seed, last, record["tokens"], domain, loss)
                for column, value in zip(columns.values(), known, strict=True):
                    column.append(value)
    return columns


def find_runs(folder: str | os.PathLike[str]) -> list[Run]:
    """Names, seeds and folders of finished runs; those left out are named in a warning."""
    root = Path(folder)
    if not root.is_dir():
        raise FileNotFoundError(f"there is no folder {str(root)!r}; give the folder of all runs")
    found: list[Run] = []
    unfinished: list[Run] = []
    for path in root.glob("*/seed-*"):
        match = re.fullmatch(r"seed-(\d+)", path.name)
        if match is None or not path.is_dir():
            continue
        whole = (path / RESULT).is_file() and (path / EVALUATIONS).is_file()
        (found if whole else unfinished).append((path.parent.name, int(match[1]), path))
    if unfinished:
        names = ", ".join(f"{run}/{path.name}" for run, _, path in sorted(unfinished))
        logger.warning("runs that are not finished are left out: %s", names)
    if not found:
        raise ValueError(
            f"{str(root)!r} holds no finished run; one is a folder <run>/seed-<n> with "
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
    record = json.loads(line)
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
    """Numbers per domain; null and infinity, and what may be left out, are NaN."""
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
