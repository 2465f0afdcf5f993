"""Results of a study, rules by seeds, as one long table in small files."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from counterpoise.common.arguments import one_each
from counterpoise.lm.compare.columns import as_columns, csv_text, read_csv
from counterpoise.lm.compare.run_files import (
    FinishedRun,
    find_runs,
    read_finals,
    read_runs,
    read_scores,
)
from counterpoise.lm.compare.scores import TASK_AVERAGE, TASK_KINDS, Tasks, is_task
from counterpoise.storage.files import write_text

Array = np.ndarray
Reference = Mapping[str, float]

LOSSES, FINALS, TASKS = "losses.csv", "finals.csv", "tasks.csv"
LOSS_KINDS = {
    "run": str, "seed": int, "step": int, "tokens": int, "domain": str, "loss": float,
    "driving_loss": float, "weight": float, "share": float, "epochs": float,
}  # fmt: skip
FINAL_KINDS = {
    name: LOSS_KINDS[name] for name in ("run", "seed", "step", "tokens", "domain", "loss")
}
# Metrics besides a domain's name and "task <name>".
METRICS = ("average", "worst", "average excess", "worst excess", TASK_AVERAGE)


@dataclass(frozen=True, eq=False)
class Results:
    """Every evaluation of every run and seed, a row for each domain, in columns.

    Attributes
    ----------
    run, seed, step, tokens, domain : arrays of shape (rows,)
        Each evaluation has a row for every domain.
    loss : array
        Loss on the reported split.
    driving_loss : array
        Loss on the split that drives the reweighting.
    weight : array
        Weight in force after the evaluation.
    share : array
        Share of the training tokens so far.
    epochs : array
        Epochs over the domain so far.
    tasks : Tasks
    finals : Results or None
        Losses of finished models on more of the reported split, one evaluation per measured run and
        seed; only losses are known.

    Notes
    -----
    Unknown values are NaN. Runs and domains are in order of first appearance.
    """

    run: Array
    seed: Array
    step: Array
    tokens: Array
    domain: Array
    loss: Array
    driving_loss: Array
    weight: Array
    share: Array
    epochs: Array
    tasks: Tasks = field(default_factory=Tasks)
    finals: Results | None = None

    def __post_init__(self) -> None:
        for name, column in as_columns(LOSS_KINDS, vars(self)).items():
            object.__setattr__(self, name, column)
        if not len(self.run):
            raise ValueError("results must have at least one row")
        _ = self._rows_of  # refuse an incomplete table now, not when it is drawn

    @classmethod
    def from_runs(
        cls,
        folder: str | os.PathLike[str] | Sequence[FinishedRun],
        closer_look: dict[str, Any] | None = None,
    ) -> Results:
        """Read finished runs, from a folder or as tuples of name, seed and folder.

        The folder has ``<run>/seed-<n>/evaluations.jsonl``; see `run_files`. Final losses are read
        if ``closer_look`` describes how they were measured.
        """
        runs = find_runs(folder) if isinstance(folder, (str, os.PathLike)) else folder
        finals = None if closer_look is None else cls.of_losses(read_finals(runs, closer_look))
        return cls(**read_runs(runs), tasks=Tasks(**read_scores(runs)), finals=finals)

    @classmethod
    def of_losses(cls, columns: Mapping[str, Any]) -> Results | None:
        """Make results that hold only losses; None without rows."""
        rows = len(columns["run"])
        rest: dict[str, Any] = {
            name: np.full(rows, np.nan) for name in LOSS_KINDS if name not in FINAL_KINDS
        }
        return cls(**columns, **rest) if rows else None

    @cached_property
    def runs(self) -> list[str]:
        return list(dict.fromkeys(self.run.tolist()))

    @cached_property
    def domains(self) -> list[str]:
        return list(dict.fromkeys(self.domain.tolist()))

    def seeds(self, run: str, metric: str = "average") -> list[int]:
        """List the seeds of a run, sorted; for a task metric, those with scores."""
        self._check_run(run)
        if is_task(metric):
            return self.tasks.seeds(run)
        return sorted(seed for name, seed in self._rows_of if name == run)

    def select(
        self,
        runs: Iterable[str] | None = None,
        seeds: Iterable[int] | None = None,
        *,
        tasks: Iterable[str] | None = None,
        metrics: Iterable[str] | None = None,
    ) -> Results:
        """Select runs, in the order they are named, and seeds, tasks and metrics of tasks."""
        names = self.runs if runs is None else list(runs)
        for name in names:
            self._check_run(name)
        kept = [(self.run == name) for name in names]
        kept_tasks = [(self.tasks.run == name) for name in names]
        if seeds is not None:
            seeds = list(seeds)
            kept = [rows & np.isin(self.seed, seeds) for rows in kept]
            kept_tasks = [rows & np.isin(self.tasks.seed, seeds) for rows in kept_tasks]
        for column, wanted in ((self.tasks.task, tasks), (self.tasks.metric, metrics)):
            if wanted is not None:
                wanted = list(wanted)
                kept_tasks = [rows & np.isin(column, wanted) for rows in kept_tasks]
        rows = np.concatenate([np.flatnonzero(mask) for mask in kept])
        if not len(rows):
            raise ValueError(f"no row has one of the runs {names!r} and seeds {seeds!r}")
        task_rows = np.concatenate([np.flatnonzero(mask) for mask in kept_tasks])
        columns = {name: getattr(self, name)[rows] for name in LOSS_KINDS}
        finals = self.finals
        if finals is not None:
            there = [name for name in names if name in finals.runs]
            some = finals if seeds is None else finals.rows(np.isin(finals.seed, seeds))
            finals = some and some.rows(np.isin(some.run, there))
        return Results(**columns, tasks=self.tasks.rows(task_rows), finals=finals)

    def rows(self, which: Array) -> Results | None:
        """Select evaluations by a mask, without scores; None if it selects none."""
        if not which.any():
            return None
        return Results(**{name: getattr(self, name)[which] for name in LOSS_KINDS})

    def with_tasks(self, tasks: Tasks) -> Results:
        """Return the same results with these scores."""
        return replace(self, tasks=tasks)

    def matrix(self, run: str, seed: int, column: str = "loss") -> tuple[Array, Array]:
        """Return a run's tokens, and a column as an array of evaluations by domains."""
        self._check_run(run)
        if (run, seed) not in self._rows_of:
            raise ValueError(f"run {run!r} has no seed {seed!r}; it has {self.seeds(run)!r}")
        rows = self._rows_of[run, seed]
        return self.tokens[rows[:, 0]], getattr(self, column)[rows]

    def curve(
        self, run: str, seed: int, metric: str, reference: Reference | None = None
    ) -> tuple[Array, Array]:
        """Return tokens and values of a metric.

        Parameters
        ----------
        metric : str
            ``"average"`` (over domains, equally weighted), ``"worst"`` (largest loss of a domain),
            ``"average excess"``, ``"worst excess"`` (above the reference losses), ``"task
            average"``, ``"task <name>"``, or the name of a domain.
        reference : mapping from domains to losses
            Needed only for excesses.
        """
        self._check_run(run)
        if is_task(metric):
            return self.tasks.curve(run, seed, metric)
        tokens, losses = self.matrix(run, seed)
        if metric.endswith(" excess"):
            if reference is None:
                raise ValueError(f"metric {metric!r} needs reference=, a loss for each domain")
            losses = losses - one_each(reference, self.domains, "reference")
        if metric in ("average", "average excess"):
            return tokens, losses.mean(axis=1)
        if metric in ("worst", "worst excess"):
            return tokens, losses.max(axis=1)
        if metric in self.domains:
            return tokens, losses[:, self.domains.index(metric)]
        raise ValueError(
            f"metric {metric!r} is not known; use one of {', '.join(map(repr, METRICS))}, "
            f"'task <name>', or a domain of {self.domains!r}"
        )

    @cached_property
    def _rows_of(self) -> dict[tuple[str, int], Array]:
        """Rows of each run and seed, as arrays of evaluations by domains."""
        order = {name: i for i, name in enumerate(self.domains)}
        codes = np.array([order[name] for name in self.domain.tolist()])
        found = {}
        for run in self.runs:
            mine = self.run == run
            for seed in np.unique(self.seed[mine]).tolist():
                rows = np.flatnonzero(mine & (self.seed == seed))
                rows = rows[np.lexsort((codes[rows], self.step[rows]))]
                self._check_whole(rows)
                found[run, seed] = rows.reshape(-1, len(order))
        return found

    def _check_whole(self, rows: Array) -> None:
        """Check that the sorted rows of a run and seed are complete."""
        steps = np.unique(self.step[rows])
        where = f"run {str(self.run[rows[0]])!r}, seed {self.seed[rows[0]]}"
        if self.domain[rows].tolist() != self.domains * len(steps):
            for step in steps:
                found = self.domain[rows][self.step[rows] == step].tolist()
                if found != self.domains:
                    raise ValueError(
                        f"{where}, step {step} must have each of the domains {self.domains!r} "
                        f"once; got {found!r}"
                    )
        tokens = self.tokens[rows].reshape(len(steps), -1)
        if (tokens != tokens[:, :1]).any() or (np.diff(tokens[:, 0]) <= 0).any():
            raise ValueError(
                f"{where}: tokens must be one number for all domains of a step, and grow from "
                "step to step"
            )

    def _check_run(self, run: str) -> None:
        if run not in self.runs:
            raise ValueError(f"run {run!r} is not known; there are {self.runs!r}")


def write_results(folder: str | os.PathLike[str], results: Results) -> None:
    """Write losses, final losses and task scores as CSV, always the same bytes."""
    path = Path(folder)
    texts = {
        LOSSES: csv_text(LOSS_KINDS, vars(results)),
        TASKS: csv_text(TASK_KINDS, vars(results.tasks)),
    }
    if results.finals is not None:
        texts[FINALS] = csv_text(FINAL_KINDS, vars(results.finals))
    path.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        write_text(path / name, text)
    if results.finals is None:
        (path / FINALS).unlink(missing_ok=True)


def read_results(folder: str | os.PathLike[str]) -> Results:
    """Read what `write_results` wrote; numbers have six significant digits."""
    path = Path(folder)
    losses = read_csv(path / LOSSES, LOSS_KINDS)
    tasks = read_csv(path / TASKS, TASK_KINDS) if (path / TASKS).exists() else {}
    finals = read_csv(path / FINALS, FINAL_KINDS) if (path / FINALS).exists() else None
    try:
        closer = None if finals is None else Results.of_losses(finals)
        return Results(**losses, tasks=Tasks(**tasks), finals=closer)
    except ValueError as error:
        raise ValueError(f"{str(path / LOSSES)!r}: {error}") from None
