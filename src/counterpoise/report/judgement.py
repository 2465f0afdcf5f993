"""Risks of every group before and after, from wherever a record has them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from counterpoise.assessment.comparison import plain_name
from counterpoise.assessment.record import FitRecord
from counterpoise.report.words import names_of
from counterpoise.rows.groups import label_list

Array = np.ndarray


@dataclass(frozen=True, kw_only=True, eq=False)
class Side:
    """Risks of one fit, in the order of the groups; bounds are None where none are known."""

    name: str
    values: Array
    low: Array | None = None
    high: Array | None = None
    average: float | None = None

    @property
    def hardest(self) -> int:
        """The group of largest risk."""
        return int(np.argmax(np.where(np.isfinite(self.values), self.values, -np.inf)))

    @property
    def worst(self) -> float:
        return float(self.values[self.hardest])


@dataclass(frozen=True, kw_only=True, eq=False)
class Judgement:
    """The plain average ("before"; of a linear neuron, least squares) against the fit ("after"), on
    the same rows.

    Attributes
    ----------
    labels, names : lists, of the K groups, as they are and as text
    rows : array of shape (K,) or None, rows that judge each
    weights : array of shape (K,), the mixture that the fit found
    before, after : Side
    how : str, which rows, in words
    held_out : bool
    level : float or None, of the intervals
    """

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
    def of(cls, model: Any, record: FitRecord) -> Judgement:
        """From held-out rows where the record has them, else from the rows of the fit."""
        labels = label_list(model.groups_)
        names, weights = names_of(model.groups_), np.asarray(model.group_weights_, dtype=float)
        name_before = plain_name(model)
        judged = record.judged
        if judged is None:
            rows = _rows(record, labels)
            plain, ours = (np.asarray(r, dtype=float) for r in (record.plain_risks, record.risks))
            # Weighted rows do not count as one each.
            known = rows is not None and record.data.weight is None
            return cls(
                labels=labels,
                names=names,
                rows=rows,
                weights=weights,
                before=Side(
                    name=name_before, values=plain, average=_mean(plain, rows if known else None)
                ),
                after=Side(name=AFTER, values=ours, average=_mean(ours, rows if known else None)),
                how="the rows of the fit themselves",
                held_out=False,
                level=None,
            )
        sides = {}
        for name, found, average in (
            (name_before, judged.plain, judged.plain_average),
            (AFTER, judged.ours, judged.ours_average),
        ):
            place = {label: i for i, label in enumerate(label_list(found.labels))}
            at = np.array([place.get(label, -1) for label in labels])
            values, low, high = (
                np.where(at >= 0, np.asarray(column, dtype=float)[at], np.nan)
                for column in (found.values, found.low, found.high)
            )
            sides[name] = Side(name=name, values=values, low=low, high=high, average=average)
        sizes = dict(zip(judged.ours, judged.ours.sizes, strict=True))
        return cls(
            labels=labels,
            names=names,
            rows=np.array([float(sizes.get(label, 0.0)) for label in labels]),
            weights=weights,
            before=sides[name_before],
            after=sides[AFTER],
            how=judged.how,
            held_out=judged.held_out,
            level=judged.ours.level,
        )

    @cached_property
    def order(self) -> list[int]:
        """Groups, the hardest first, by the larger of both risks."""
        larger = np.fmax(self.before.values, self.after.values)
        return np.argsort(-np.nan_to_num(larger, nan=-1.0), kind="stable").tolist()

    @property
    def better(self) -> int:
        """Groups whose risk is lower after than before."""
        return int(np.sum(self.after.values < self.before.values))

    @property
    def worse(self) -> int:
        return int(np.sum(self.after.values > self.before.values))


AFTER = "this fit"


def _rows(record: FitRecord, labels: list[Any]) -> Array | None:
    """Rows of every group of the data, where a diagnosis counted them."""
    if record.diagnosis is None:
        return None
    found = {group.label: group.rows for group in record.diagnosis.groups}
    if any(label not in found for label in labels):
        return None
    return np.array([float(found[label]) for label in labels])


def _mean(risks: Array, rows: Array | None) -> float | None:
    return None if rows is None else float(np.average(risks, weights=rows))
