"""Methods on held-out rows, as ``counterpoise compare`` shows them: numbers, or classes."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from counterpoise.cli.printing import scores_json
from counterpoise.common.task_words import TaskWords, words_of
from counterpoise.common.text import amount, clipped, number, percent, text_table

if TYPE_CHECKING:
    from counterpoise.assessment.classes import ClassScores
    from counterpoise.assessment.intervals import Interval, RiskIntervals
    from counterpoise.tabular.encoded_rows import EncodedRows

# Rows from which boosting uses several threads.
MANY = 100_000


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

    @property
    def needs_group(self) -> bool:
        """Whether predictions need the group of every row."""
        return needs_group(self.method)

    @property
    def headline(self) -> str:
        """The method and its figures in a sentence."""
        raise NotImplementedError(type(self).__name__)

    def title(self, target: str | None) -> str:
        """What the table shows, at the beginning of a sentence."""
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
        return {
            "uses_group": self.needs_group, "seconds": self.seconds,
            "not_converged": len(self.missed), "status": status,
        }  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class JudgedNumbers(Judged):
    """Risks of a method by group."""

    risks: RiskIntervals
    average: float
    words: TaskWords

    @property
    def order(self) -> float:
        return self.risks.worst.value

    @property
    def worst_group(self) -> Any:
        return self.risks.labels.tolist()[_largest(self.risks.values)]

    @property
    def headline(self) -> str:
        worst, average = (self.words.figure(one) for one in (self.order, self.average))
        return f"{self.method}, {self.words.rate} {worst}; all rows: {average}."

    def title(self, target: str | None) -> str:
        unit = self.words.of_target(target).removeprefix(",")
        return f"{self.words.shown_title}{unit},"

    def head(self) -> list[str]:
        first = f"worst group's {self.words.rate}"
        return ["method", first, "95% interval", "worst group", "all rows", "time"]

    def cells(self) -> list[str]:
        worst = self._shown(self.risks.worst)
        return [
            self.marked, amount(worst.value), f"{amount(worst.low)} .. {amount(worst.high)}",
            clipped(str(self.worst_group)), amount(self.words.shown(self.average)),
            f"{self.seconds:.1f} s",
        ]  # fmt: skip

    def json(self) -> dict[str, Any]:
        groups = {str(label): self.risks[label] for label in self.risks}
        found = {
            "method": self.method, "average": self.average, "worst": self.risks.worst,
            "worst_group": self.worst_group, **self.run, "groups": groups,
        }  # fmt: skip
        if self.words.rooted:
            found["rmse"] = {
                "average": self.words.shown(self.average), "worst": self._shown(self.risks.worst),
                "groups": {label: self._shown(risk) for label, risk in groups.items()},
            }  # fmt: skip
        return found

    def _shown(self, risk: Interval) -> Interval:
        """A risk and its bounds in the units of an answer."""
        low = max(risk.low, 0.0) if self.words.rooted else risk.low
        return risk._replace(
            value=self.words.shown(risk.value), low=self.words.shown(low),
            high=self.words.shown(risk.high),
        )  # fmt: skip


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
        return self.scores.labels.tolist()[_largest(self.scores.errors.values)]

    @property
    def headline(self) -> str:
        worst = percent(self.scores.accuracies.worst.value)
        average = percent(1.0 - self.scores.average_error)
        return f"{self.method}, accuracy {worst}; all rows: {average}."

    def title(self, target: str | None) -> str:
        return "Accuracy and log loss"

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


def _largest(values: Any) -> int:
    import numpy as np

    return int(np.nanargmax(values))


def needs_group(method: str) -> bool:
    """Whether a method needs the group of every row to predict."""
    return method == "per-group" or method.endswith("+group")


def headlines(found: Sequence[Judged]) -> list[str]:
    """The best method that does not need the group to predict, and the best that does."""
    leads = {False: "Best on the worst group: ", True: "With the group as input: "}
    lines = []
    for needed, lead in leads.items():
        some = [row for row in found if row.needs_group == needed]
        if some:
            lines.append(lead + min(some, key=lambda row: row.order).headline)
    return lines


def table(found: Sequence[Judged]) -> str:
    """A line for every method; a column says which need the group, if any does."""
    head, lines = found[0].head(), [row.cells() for row in found]
    if any(row.needs_group for row in found):
        head.insert(1, "uses group")
        for row, cells in zip(found, lines, strict=True):
            cells.insert(1, "yes" if row.needs_group else "no")
    return text_table(head, lines)


def judge(name: str, model: Any, rows: EncodedRows, folds: int, ours: Any) -> Judged:
    """Judge a method on held-out rows, and note how long it took and what did not converge.

    ``ours`` is our own estimator for these rows, whose loss counts.
    """
    from sklearn.base import is_classifier

    from counterpoise.assessment.convergence import collecting_convergence

    began = time.perf_counter()
    found: Judged
    with collecting_convergence() as missed, _threads(len(rows)):
        if is_classifier(ours):
            found = _judge_classes(name, model, rows, folds)
        else:
            found = _judge_numbers(name, model, rows, folds, ours)
    return replace(found, seconds=time.perf_counter() - began, missed=tuple(missed))


def _threads(n_rows: int) -> AbstractContextManager[Any]:
    """Limit boosting to one thread on few rows: on a busy machine, threads mostly wait."""
    from threadpoolctl import threadpool_limits

    return threadpool_limits(1, user_api="openmp") if n_rows < MANY else nullcontext()


def _judge_numbers(
    name: str, model: Any, rows: EncodedRows, folds: int, ours: Any
) -> JudgedNumbers:
    from counterpoise.assessment.comparison import cross_predict, held_out_intervals

    assert rows.y is not None
    made = cross_predict(
        {name: model}, rows.X, rows.y, rows.groups, rows.sample_weight, folds=folds
    )
    risks, average = held_out_intervals(
        rows.y, made[name], rows.groups, rows.sample_weight, model=ours
    )
    return JudgedNumbers(name, risks=risks, average=average, words=words_of(ours))


def _judge_classes(name: str, model: Any, rows: EncodedRows, folds: int) -> JudgedClasses:
    import numpy as np

    from counterpoise.assessment.classes import compare_classifiers

    groups = np.zeros(len(rows), dtype=int) if rows.groups is None else rows.groups
    made = compare_classifiers(
        {name: model}, rows.X, rows.y, groups, rows.sample_weight, folds=folds
    )
    return JudgedClasses(name, scores=made[name])
