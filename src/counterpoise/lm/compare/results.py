"""The results of a study, rules x seeds, as one long table in small files."""

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
    """Every evaluation of every run at every seed, a row for each domain, in columns.

    Attributes
    ----------
    run, seed, step, tokens, domain : arrays of shape (rows,)
        Each evaluation, a run's at a seed and a step, has a row for every domain.
    loss : array
        On the split that is reported.
    driving_loss : array
        On the split that drives the reweighting.
    weight : array
        In force after the evaluation.
    share : array
        Of the training tokens so far.
    epochs : array
        Over the domain, so far.
    tasks : Tasks
    finals : Results or None
        Losses of the finished models on more of the reported split, one evaluation of each run
        and seed that was measured so; nothing but losses is known in it.

    Notes
    -----
    What is not known is NaN. Runs, and domains, are in the order in which they first appear.
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
        _ = self._places  # a table with holes is an error now, and not when it is drawn

    @classmethod
    def from_runs(
        cls,
        folder: str | os.PathLike[str] | Sequence[FinishedRun],
        closer_look: dict[str, Any] | None = None,
    ) -> Results:
        """Gather ``<folder>/<run>/seed-<n>/evaluations.jsonl`` (see `compare.run_files`); runs
        without a ``result.json`` are left out with a warning. Or runs as tuples of name, seed and
        folder. With the losses of finished models that were measured as `closer_look` says."""
        runs = find_runs(folder) if isinstance(folder, (str, os.PathLike)) else folder
        finals = None if closer_look is None else cls.of_losses(read_finals(runs, closer_look))
        return cls(**read_runs(runs), tasks=Tasks(**read_scores(runs)), finals=finals)

    @classmethod
    def of_losses(cls, columns: Mapping[str, Any]) -> Results | None:
        """Results of which the losses alone are known; None without rows."""
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
        """Seeds of a run, sorted; of a metric of tasks, those that have scores."""
        self._check_run(run)
        if is_task(metric):
            return self.tasks.seeds(run)
        return sorted(seed for name, seed in self._places if name == run)

    def select(
        self,
        runs: Iterable[str] | None = None,
        seeds: Iterable[int] | None = None,
        *,
        tasks: Iterable[str] | None = None,
        metrics: Iterable[str] | None = None,
    ) -> Results:
        """Some runs, in the order they are named, and some seeds, tasks and metrics of tasks."""
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
        """Evaluations that a mask chooses, without scores; None if it chooses none."""
        if not which.any():
            return None
        return Results(**{name: getattr(self, name)[which] for name in LOSS_KINDS})

    def with_tasks(self, tasks: Tasks) -> Results:
        """The same results with these scores."""
        return replace(self, tasks=tasks)

    def matrix(self, run: str, seed: int, column: str = "loss") -> tuple[Array, Array]:
        """Tokens of a run's evaluations, and a column as an array of evaluations x domains."""
        self._check_run(run)
        if (run, seed) not in self._places:
            raise ValueError(f"run {run!r} has no seed {seed!r}; it has {self.seeds(run)!r}")
        rows = self._places[run, seed]
        return self.tokens[rows[:, 0]], getattr(self, column)[rows]

    def curve(
        self, run: str, seed: int, metric: str, reference: Reference | None = None
    ) -> tuple[Array, Array]:
        """Tokens and values of a metric.

        Parameters
        ----------
        metric : str
            ``"average"`` (over domains, each counting the same), ``"worst"`` (the largest loss of
            a domain), ``"average excess"``, ``"worst excess"`` (above the reference losses),
            ``"task average"``, ``"task <name>"``, or else a domain's name.
        reference : mapping from domains to losses
            Needed by the excesses alone.
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
    def _places(self) -> dict[tuple[str, int], Array]:
        """Rows of each run and seed, as arrays of evaluations x domains."""
        order = {name: i for i, name in enumerate(self.domains)}
        codes = np.array([order[name] for name in self.domain.tolist()])
        places = {}
        for run in self.runs:
            mine = self.run == run
            for seed in np.unique(self.seed[mine]).tolist():
                rows = np.flatnonzero(mine & (self.seed == seed))
                rows = rows[np.lexsort((codes[rows], self.step[rows]))]
                self._check_whole(rows)
                places[run, seed] = rows.reshape(-1, len(order))
        return places

    def _check_whole(self, rows: Array) -> None:
        """Rows of a run and a seed, in the order of steps and domains."""
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
    """Write ``losses.csv``, ``finals.csv`` and ``tasks.csv``; the same results give the same
    bytes."""
    place = Path(folder)
    texts = {
        LOSSES: csv_text(LOSS_KINDS, vars(results)),
        TASKS: csv_text(TASK_KINDS, vars(results.tasks)),
    }
    if results.finals is not None:
        texts[FINALS] = csv_text(FINAL_KINDS, vars(results.finals))
    place.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        write_text(place / name, text)
    if results.finals is None:
        (place / FINALS).unlink(missing_ok=True)


def read_results(folder: str | os.PathLike[str]) -> Results:
    """What `write_results` wrote; numbers have six significant digits."""
    place = Path(folder)
    losses = read_csv(place / LOSSES, LOSS_KINDS)
    tasks = read_csv(place / TASKS, TASK_KINDS) if (place / TASKS).exists() else {}
    finals = read_csv(place / FINALS, FINAL_KINDS) if (place / FINALS).exists() else None
    try:
        closer = None if finals is None else Results.of_losses(finals)
        return Results(**losses, tasks=Tasks(**tasks), finals=closer)
    except ValueError as error:
        raise ValueError(f"{str(place / LOSSES)!r}: {error}") from None
