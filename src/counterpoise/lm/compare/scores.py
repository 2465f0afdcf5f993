"""Scores of runs on downstream tasks, in columns."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from counterpoise.lm.compare.columns import as_columns

Array = np.ndarray

TASK_KINDS = {
    "run": str, "seed": int, "tokens": int, "task": str, "metric": str, "score": float,
    "stderr": float, "shots": int, "n": int, "source": str,
}  # fmt: skip
TASK, TASK_AVERAGE = "task ", "task average"


def is_task(metric: str) -> bool:
    """Whether a metric is of tasks, where higher is better; for losses, lower is."""
    return metric.startswith(TASK)


@dataclass(frozen=True, eq=False)
class Tasks:
    """Scores on tasks, a row for each run, seed, number of tokens, task and metric.

    ``metric`` is the task's, such as accuracy. Unknown standard errors are NaN. ``n`` documents
    were scored, from ``source``, "hub" or "local".
    """

    run: Array = field(default_factory=lambda: np.empty(0, str))
    seed: Array = field(default_factory=lambda: np.empty(0, int))
    tokens: Array = field(default_factory=lambda: np.empty(0, int))
    task: Array = field(default_factory=lambda: np.empty(0, str))
    metric: Array = field(default_factory=lambda: np.empty(0, str))
    score: Array = field(default_factory=lambda: np.empty(0))
    stderr: Array = field(default_factory=lambda: np.empty(0))
    shots: Array = field(default_factory=lambda: np.empty(0, int))
    n: Array = field(default_factory=lambda: np.empty(0, int))
    source: Array = field(default_factory=lambda: np.empty(0, str))

    def __post_init__(self) -> None:
        for name, column in as_columns(TASK_KINDS, vars(self)).items():
            object.__setattr__(self, name, column)

    def __len__(self) -> int:
        return len(self.run)

    def rows(self, which: Array) -> Tasks:
        """Select rows by a mask or by numbers."""
        return Tasks(**{name: getattr(self, name)[which] for name in TASK_KINDS})

    def seeds(self, run: str) -> list[int]:
        return sorted(set(self.seed[self.run == run].tolist()))

    def curve(self, run: str, seed: int, metric: str) -> tuple[Array, Array]:
        """Return tokens and scores of ``"task average"`` or ``"task <name>"``.

        Every number of tokens needs the same tasks, each with one metric.
        """
        names = list(dict.fromkeys(self.task.tolist()))
        scores = self.rows((self.run == run) & (self.seed == seed))
        if metric != TASK_AVERAGE:
            name = metric.removeprefix(TASK)
            if name not in names:
                raise ValueError(f"task {name!r} is not known; there are {names!r}")
            scores, names = scores.rows(scores.task == name), [name]
        if not len(scores):
            raise ValueError(f"run {run!r} has no scores for {metric!r} at seed {seed!r}")
        tokens = np.unique(scores.tokens)
        values = []
        for at in tokens:
            now = scores.rows(scores.tokens == at)
            if sorted(now.task.tolist()) != sorted(names):
                found = list(zip(now.task.tolist(), now.metric.tolist(), strict=True))
                raise ValueError(
                    f"run {run!r}, seed {seed!r}, {at} tokens: {metric!r} needs one score for each "
                    f"of {names!r}; got {found!r}. Choose with select(tasks=..., metrics=...)"
                )
            values.append(float(now.score.mean()))
        return tokens, np.array(values)
