"""Methods on held-out rows, as ``counterpoise compare`` shows them: numbers, or classes."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from counterpoise.cli.printing import scores_json
from counterpoise.common.task_words import TaskWords
from counterpoise.common.text import clipped, number, percent

if TYPE_CHECKING:
    from counterpoise.assessment.classes import ClassScores
    from counterpoise.assessment.intervals import RiskIntervals
    from counterpoise.tabular.encoded_rows import EncodedRows


@dataclass(frozen=True)
class Judged:
    """A method on held-out rows."""

    method: str
    seconds: float = math.nan
    missed: tuple[str, ...] = ()

    @property
    def marked(self) -> str:
        """The name, with a star if a fit did not converge."""
        return self.method + ("*" if self.missed else "")

    @property
    def order(self) -> Any:
        """The key to sort methods by, the best first."""
        raise NotImplementedError(type(self).__name__)

    def headline(self, words: TaskWords, target: str | None) -> str:
        """The method and its figures in a sentence."""
        raise NotImplementedError(type(self).__name__)

    def head(self) -> list[str]:
        """The headings of a table of methods."""
        raise NotImplementedError(type(self).__name__)

    def cells(self) -> list[str]:
        """The cells of this method in that table."""
        raise NotImplementedError(type(self).__name__)

    def json(self) -> dict[str, Any]:
        """The figures of this method, for JSON."""
        raise NotImplementedError(type(self).__name__)

    @property
    def run(self) -> dict[str, Any]:
        """How the fits went, as JSON."""
        status = self.missed[0] if self.missed else None
        return {"seconds": self.seconds, "not_converged": len(self.missed), "status": status}


@dataclass(frozen=True, kw_only=True)
class JudgedNumbers(Judged):
    """Risks of a method by group."""

    risks: RiskIntervals
    average: float

    @property
    def order(self) -> float:
        return self.risks.worst.value

    @property
    def worst_group(self) -> Any:
        return self.risks.labels.tolist()[int(np.nanargmax(self.risks.values))]

    def headline(self, words: TaskWords, target: str | None) -> str:
        worst, average = words.figure(self.risks.worst.value), words.figure(self.average)
        return (
            f"{self.method}, with an error of {worst} there and {average} over all rows. "
            f"{words.shown_title}, held out{words.of_target(target)}."
        )

    def head(self) -> list[str]:
        return ["method", "worst group's risk", "95% interval", "worst group", "average", "time"]

    def cells(self) -> list[str]:
        worst = self.risks.worst
        return [
            self.marked, number(worst.value), f"{number(worst.low)} .. {number(worst.high)}",
            clipped(str(self.worst_group)), number(self.average), f"{self.seconds:.1f} s",
        ]  # fmt: skip

    def json(self) -> dict[str, Any]:
        return {
            "method": self.method, "average": self.average, "worst": self.risks.worst,
            "worst_group": self.worst_group, **self.run,
            "groups": {str(label): self.risks[label] for label in self.risks},
        }  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class JudgedClasses(Judged):
    """Accuracies and log losses of a method by group."""

    scores: ClassScores

    @property
    def order(self) -> tuple[float, float]:
        losses = self.scores.log_losses
        return self.scores.errors.worst.value, math.nan if losses is None else losses.worst.value

    @property
    def worst_group(self) -> Any:
        return self.scores.labels.tolist()[int(np.nanargmax(self.scores.errors.values))]

    def headline(self, words: TaskWords, target: str | None) -> str:
        right = self.scores.accuracies.worst.value
        return (
            f"{self.method}, which has the right class for {percent(right)} of its rows and for "
            f"{percent(1.0 - self.scores.average_error)} of all rows, held out."
        )

    def head(self) -> list[str]:
        last = ["worst log loss", "all rows", "time"]
        return ["method", "worst accuracy", "95% interval", "worst group", "all rows", *last]

    def cells(self) -> list[str]:
        found, worst = self.scores, self.scores.accuracies.worst
        losses = math.nan if found.log_losses is None else found.log_losses.worst.value
        return [
            self.marked, percent(worst.value), f"{percent(worst.low)} .. {percent(worst.high)}",
            clipped(str(self.worst_group)), percent(1.0 - found.average_error), number(losses),
            number(found.average_log_loss), f"{self.seconds:.1f} s",
        ]  # fmt: skip

    def json(self) -> dict[str, Any]:
        return {
            "method": self.method, "worst_group": self.worst_group, **self.run,
            **scores_json(self.scores),
        }  # fmt: skip


def judge(name: str, model: Any, rows: EncodedRows, folds: int, *, classes: bool) -> Judged:
    """Judge a method on held-out rows, and note how long it took and what did not converge."""
    from counterpoise.assessment.convergence import collecting_convergence

    judged: Callable[..., Judged] = _judge_classes if classes else _judge_numbers
    began = time.perf_counter()
    with collecting_convergence() as missed:
        found = judged(name, model, rows, folds)
    return replace(found, seconds=time.perf_counter() - began, missed=tuple(missed))


def _judge_numbers(name: str, model: Any, rows: EncodedRows, folds: int) -> JudgedNumbers:
    from counterpoise.assessment.comparison import cross_predict, held_out_intervals

    assert rows.y is not None
    made = cross_predict(
        {name: model}, rows.X, rows.y, rows.groups, rows.sample_weight, folds=folds
    )
    risks, average = held_out_intervals(
        rows.y, made[name], rows.groups, rows.sample_weight, model=model
    )
    return JudgedNumbers(name, risks=risks, average=average)


def _judge_classes(name: str, model: Any, rows: EncodedRows, folds: int) -> JudgedClasses:
    from counterpoise.assessment.classes import compare_classifiers

    groups = np.zeros(len(rows), dtype=int) if rows.groups is None else rows.groups
    made = compare_classifiers(
        {name: model}, rows.X, rows.y, groups, rows.sample_weight, folds=folds
    )
    return JudgedClasses(name, scores=made[name])
