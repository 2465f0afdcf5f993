"""Scores of a model on downstream tasks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from counterpoise.common.text import count


@dataclass(frozen=True)
class Score:
    """The score of a model on one task.

    Attributes
    ----------
    task, metric : str
    value : float
    stderr : float or None
        Standard error of a mean; None for other metrics and for a single document.
    shots : int
        Solved examples before every question.
    n : int
        Number of scored documents.
    source : str
        "hub" or "local".
    split : str
        The split that was scored.
    shots_from : str or None
        The split of the examples, and whether they may include the scored document.
    """

    task: str
    metric: str
    value: float
    stderr: float | None
    shots: int
    n: int
    source: str
    split: str
    shots_from: str | None

    def row(self) -> dict[str, Any]:
        """Return plain numbers and strings, for JSON or a table."""
        return asdict(self)


class TasksFailed(RuntimeError):
    """Some tasks could not be scored; the others were.

    Attributes
    ----------
    failures : dict of str
        Reasons by task.
    scores : list
        What was measured all the same.
    """

    def __init__(self, failures: Mapping[str, str], scores: Sequence[Any] = ()) -> None:
        self.failures, self.scores = dict(failures), list(scores)
        reasons = "; ".join(f"{name}: {reason}" for name, reason in self.failures.items())
        super().__init__(
            f"{count(len(self.failures), 'task')} could not be scored, the others were. {reasons}"
        )


def average(scores: Sequence[Score]) -> float:
    """Return the mean of the scores; every task counts the same."""
    if not scores:
        raise ValueError("scores must hold at least one Score; got none")
    return sum(score.value for score in scores) / len(scores)
