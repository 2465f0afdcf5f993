"""A fit as its page sees it: risks by group, with and without robust training."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from counterpoise.common.task_words import OTHER, TaskWords, words_of
from counterpoise.common.text import count
from counterpoise.report.words import names_of
from counterpoise.rows.groups import label_list

if TYPE_CHECKING:
    from counterpoise.assessment.intervals import RiskIntervals
    from counterpoise.assessment.record import FitRecord

Array = np.ndarray

AFTER = "this fit"


class FittedModel(Protocol):
    """What a page needs of a fitted model.

    It also shows ``activation_``, ``nu_``, ``certificate_``, ``frontier_`` and ``verdict_`` where
    they exist.
    """

    groups_: Array
    group_weights_: Array
    group_risks_: Array
    risk_: float
    history_: Mapping[str, Array]
    status_: str
    n_iter_: int
    n_passes_: int


@dataclass(frozen=True, kw_only=True, eq=False)
class Side:
    """Risks of one model, in the order of the groups; NaN where unknown.

    Attributes
    ----------
    name : str
    values : array of shape (K,)
    low, high : arrays of shape (K,) or None
        Bounds of the intervals.
    average : float or None
        Mean risk over all rows.
    """

    name: str
    values: Array
    low: Array | None = None
    high: Array | None = None
    average: float | None = None

    @property
    def called(self) -> str:
        """The name within a sentence."""
        return f"the {self.name}" if self.name == OTHER.plain else self.name

    @property
    def hardest(self) -> int:
        """The group with the largest risk."""
        return int(np.argmax(np.where(np.isfinite(self.values), self.values, -np.inf)))

    @property
    def worst(self) -> float:
        return float(self.values[self.hardest])

    @property
    def least(self) -> float:
        """The smallest value that is known; NaN if none is."""
        known = self.values[np.isfinite(self.values)]
        return float(known.min()) if len(known) else float("nan")

    def rooted(self) -> Side:
        """The same with roots of all figures."""

        def root(values: Any) -> Any:
            return None if values is None else np.sqrt(np.maximum(values, 0.0))

        average = None if self.average is None else float(root(self.average))
        values, low, high = map(root, (self.values, self.low, self.high))
        return Side(name=self.name, values=values, low=low, high=high, average=average)


@dataclass(frozen=True, kw_only=True, eq=False)
class FitView:
    """A model, its record, and the risks of its groups on one set of rows.

    Attributes
    ----------
    model : FittedModel
    record : FitRecord
    labels, names : lists
        The K groups, as they are and as text.
    rows : array of shape (K,) or None
        Rows behind each risk.
    weights : array of shape (K,)
        Group weights of the fit.
    before : Side
        The plain average over rows (least squares or logistic regression).
    after : Side
        This fit.
    how : str
        Which rows the risks are measured on, in words.
    held_out : bool
        Whether neither model was fitted to these rows.
    level : float or None
        Coverage of the intervals.
    """

    model: FittedModel
    record: FitRecord
    labels: list[Any]
    names: list[str]
    rows: Array | None
    weights: Array
    before: Side
    after: Side
    how: str
    held_out: bool
    level: float | None

    @classmethod
    def of(cls, model: FittedModel, record: FitRecord) -> FitView:
        """Take risks of held-out rows where the record has them, else of the training rows."""
        labels = label_list(model.groups_)
        names = names_of([record.data.group_name(label) for label in labels])
        known: dict[str, Any] = {
            "model": model,
            "record": record,
            "labels": labels,
            "names": names,
            "weights": np.asarray(model.group_weights_, dtype=float),
        }
        found, plain = record.comparison, words_of(model).plain
        if found is None:
            rows = _rows(record, labels)
            # Rows with weights do not count as one each.
            counts = rows if record.data.weight is None else None

            def side(name: str, risks: Any) -> Side:
                values = np.asarray(risks, dtype=float)
                average = None if counts is None else float(np.average(values, weights=counts))
                return Side(name=name, values=values, average=average)

            return cls(
                **known,
                rows=rows,
                before=side(plain, record.plain_risks),
                after=side(AFTER, record.risks),
                how="the training rows",
                held_out=False,
                level=None,
            )
        sizes = dict(zip(found.ours, found.ours.sizes, strict=True))
        return cls(
            **known,
            rows=np.array([float(sizes.get(label, 0.0)) for label in labels]),
            before=side_of(plain, found.plain, labels, found.plain_average),
            after=side_of(AFTER, found.ours, labels, found.ours_average),
            how=found.how,
            held_out=found.held_out,
            level=found.ours.level,
        )

    @property
    def sides(self) -> tuple[Side, Side]:
        return self.before, self.after

    @property
    def words(self) -> TaskWords:
        """The words for the loss of the model."""
        return words_of(self.model)

    @cached_property
    def shown(self) -> tuple[Side, Side]:
        """Both sides in the units of the answer: roots of mean squared errors, or mean losses."""
        if not self.words.rooted:
            return self.sides
        return self.before.rooted(), self.after.rooted()

    @property
    def measure(self) -> str:
        """The name of what `shown` holds, within a sentence."""
        return f"root {self.words.loss}" if self.words.rooted else self.words.loss

    @property
    def axis(self) -> str:
        """The title of an axis with `shown` on it."""
        target = self.record.data.target
        of = f" of {target}" if self.words.rooted and target else ""
        return f"{self.measure}{of}, lower is better"

    def called(self, i: int) -> str:
        """The name of a group within a sentence, with its column if there is one."""
        data = self.record.data
        alone = len(data.group) == 1 and not data.overlapping
        return f"{data.group[0]} = {self.names[i]}" if alone else self.names[i]

    @property
    def unit(self) -> str:
        """The unit of the labels, for a caption."""
        return f"units of {self.record.data.target}" if self.record.data.target else "label units"

    @cached_property
    def order(self) -> list[int]:
        """Groups, hardest first, by the larger of their risks."""
        larger = np.fmax(self.before.values, self.after.values)
        return np.argsort(-np.nan_to_num(larger, nan=-1.0), kind="stable").tolist()

    def remark(self, i: int) -> str:
        """The rows and the weight of a group, to stand beside its figures."""
        rows = "" if self.rows is None else f"{count(round(float(self.rows[i])), 'row')}, "
        return f"{rows}weight {self.weights[i]:.3g}"

    @property
    def better(self) -> int:
        """How many groups have a lower risk than before."""
        return int(np.sum(self.after.values < self.before.values))

    @property
    def worse(self) -> int:
        """How many groups have a higher risk than before."""
        return int(np.sum(self.after.values > self.before.values))


def side_of(name: str, found: RiskIntervals, labels: list[Any], average: float | None) -> Side:
    """Risks with intervals, in the order of ``labels``."""
    position = {label: i for i, label in enumerate(label_list(found.labels))}
    at = np.array([position.get(label, -1) for label in labels])
    values, low, high = (
        np.where(at >= 0, np.asarray(column, dtype=float)[at], np.nan)
        for column in (found.values, found.low, found.high)
    )
    return Side(name=name, values=values, low=low, high=high, average=average)


def _rows(record: FitRecord, labels: list[Any]) -> Array | None:
    """Training rows of every group, where a diagnosis counted them."""
    if record.diagnosis is None:
        return None
    found = {group.label: group.rows for group in record.diagnosis.groups}
    if any(label not in found for label in labels):
        return None
    return np.array([float(found[label]) for label in labels])
