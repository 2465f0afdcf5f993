"""Targets: numbers to fit, or classes; and weights of rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from pyarrow.types import is_dictionary

from counterpoise.tabular.cells import (
    BOOLEAN,
    LARGEST_WHOLE,
    NUMBER,
    TIME,
    WORD,
    check_size,
    described,
    kind_of,
    numbers,
    words,
)
from counterpoise.tabular.errors import POINTS, DataError, listed
from counterpoise.tabular.layout import CLASSIFY, REGRESS
from counterpoise.tabular.spelling import text_kind
from counterpoise.tabular.table import Table

Array = np.ndarray

# Different values of a target up to which it may name classes, and rows that each needs.
FEW, OFTEN = 5, 10
# Pairs of numbers that stand for no and yes, however few the rows.
PAIRS = ({0.0, 1.0}, {-1.0, 1.0})


def check_target(table: Table, name: str, task: str | None = None) -> None:
    """Check that a column can be a target: of classes, or of numbers if the task is to regress.

    Text that looks like numbers or dates is refused, unless it is said to name classes.
    """
    kind = table.schema.field(name).type
    found = kind_of(kind)
    if found in (NUMBER, BOOLEAN):
        return
    text = f"target column {name!r} holds {described(kind)}"
    remedy = "give a column of numbers or text"
    if found == TIME:
        remedy = "write numbers instead, such as days since the first one"
    if found == WORD:
        if task == CLASSIFY or (task is None and is_dictionary(kind)):
            return
        seems = text_kind(_some_words(table, name), lax=True)
        if seems.kind == "text" and task is None:
            return
        text += f", such as {listed(seems.strays or [seems.example], 3)}"
        remedy = {
            "marked": POINTS,
            "numbers": "save them as numbers",
            "dates": "write numbers instead, such as days since the first one",
        }.get(seems.kind, "write numbers instead")
        if seems.strays and seems.kind != "dates":
            remedy = "leave a cell empty where there is no number, and use missing='drop'"
            if seems.kind == "marked":
                remedy += f"; in place of {seems.example!r}, {POINTS}"
        remedy += f"; if they name classes, use task={CLASSIFY!r}"
    raise DataError(f"{text}; {remedy}")


@dataclass
class TargetTally:
    """The different values of a target, as long as they are few, and what follows for the task.

    Attributes
    ----------
    name, kind : str
        The column, and what it holds: "number", "boolean" or "word".
    task : {"classify", "regress"} or None
        What was asked for; by default, the values decide.
    most : int
        Classes at most.
    """

    name: str
    kind: str
    task: str | None = None
    most: int = 100
    rows: int = 0
    counts: Counter[Any] = field(default_factory=Counter)
    fraction: float | None = None

    @property
    def limit(self) -> int:
        """Different values to keep: all classes, or enough to see that numbers are no classes."""
        return self.most if self.task == CLASSIFY or self.kind == WORD else FEW

    def add(self, column: Any) -> Array:
        """Count the values of a batch; returns them as numbers, NaN where missing.

        Of two classes that are text, the first that is met is 0.
        """
        if self.kind == WORD:
            return self._add_words(column)
        y = numbers(column, self.name)
        check_size(y, self.name)
        there = y[~np.isnan(y)]
        self.rows += len(there)
        if self.fraction is None:
            odd = there[(there != np.rint(there)) | (np.abs(there) > LARGEST_WHOLE)]
            self.fraction = float(odd[0]) if len(odd) else None
        if not self.many:
            values, counts = np.unique(there, return_counts=True)
            self._count(values.tolist(), counts.tolist())
        return y

    def _add_words(self, column: Any) -> Array:
        codes, values = words(column)
        there = codes[codes >= 0]
        self.rows += len(there)
        counts = np.bincount(there, minlength=len(values)).tolist()
        self._count(values, counts)
        first = next(iter(self.counts), None)
        place = np.array([*(float(value != first) for value in values), np.nan])
        return place[codes]

    def _count(self, values: Sequence[Any], counts: Sequence[int]) -> None:
        for value, count in zip(values, counts, strict=True):
            if count and (value in self.counts or len(self.counts) <= self.limit):
                self.counts[value] += count

    @property
    def many(self) -> bool:
        """Whether there are more different values than classes may be."""
        return len(self.counts) > self.limit

    @property
    def two_sided(self) -> bool:
        """Whether the values are two whole numbers that every row has one of."""
        if self.fraction is not None or len(self.counts) != 2:
            return False
        return set(self.counts) in PAIRS or self.rows >= 2 * OFTEN

    @property
    def classes(self) -> tuple[Any, ...]:
        """The classes in order; none if the target is a number to fit."""
        if self.task == REGRESS or not (
            self.task == CLASSIFY or self.kind != NUMBER or self.two_sided
        ):
            return ()
        return tuple(sorted(map(self._named, self.counts)))

    @property
    def class_counts(self) -> dict[Any, int]:
        """Rows of every class, in order."""
        found = {self._named(value): count for value, count in self.counts.items()}
        return {label: found[label] for label in self.classes}

    def _named(self, value: Any) -> Any:
        """A value as a class: text, a boolean or an integer."""
        if self.kind == WORD:
            return value
        return bool(value) if self.kind == BOOLEAN else int(value)

    def problem(self) -> str | None:
        """What is wrong with the classes, if the target names classes."""
        if not self.classes:
            return None
        if self.kind == NUMBER and self.fraction is not None:
            return (
                f"target column {self.name!r} holds numbers that are not whole, such as "
                f"{self.fraction:g}, which cannot name classes; use task={REGRESS!r}, or put them "
                "into bins first"
            )
        if len(self.counts) > self.most:
            return (
                f"target column {self.name!r} has more than {self.most:,} classes, such as "
                f"{listed(self.classes, 3)}; use another target, or allow more, such as "
                f"max_levels={10 * self.most}"
            )
        if len(self.counts) == 1:
            return (
                f"every row has {self.classes[0]!r} in the target column {self.name!r}, and "
                "classes differ between rows; use other rows, or another target"
            )
        return None

    def note(self) -> str | None:
        """A remark for the reader on how few numbers are understood."""
        if self.kind != NUMBER or self.task is not None:
            return None
        few = 1 < len(self.counts) <= min(FEW, self.rows / OFTEN)
        if not few and not self.classes:
            return None
        values = [f"{value:g}" for value in sorted(self.counts)]
        said = f"{', '.join(values[:-1])} and {values[-1]}"
        if self.classes:
            return (
                f"the target {self.name!r} has two values, {said}, which are taken for classes; "
                f"if they are amounts, use task={REGRESS!r}"
            )
        return (
            f"the target {self.name!r} has only {len(values)} values, {said}: they are fitted as "
            f"numbers, by squared error; if they name classes, use task={CLASSIFY!r}"
        )


def class_codes(batch: Any, name: str, classes: Sequence[Any]) -> Array:
    """The position of every row's class; -1 where it is missing."""
    column = batch.column(name)
    if isinstance(classes[0], str):
        codes, values = words(column)
        known = {label: i for i, label in enumerate(classes)}
        place = np.array([*(known.get(value, -2) for value in values), -1])
        found = place[codes]
        strange: list[Any] = [values[code] for code in np.unique(codes[found == -2])]
    else:
        y = numbers(column, name)
        known_numbers = np.array(classes, dtype=float)
        found = np.minimum(np.searchsorted(known_numbers, y), len(classes) - 1)
        found = np.where(np.isnan(y), -1, np.where(known_numbers[found] == y, found, -2))
        strange = [f"{value:g}" for value in np.unique(y[found == -2])]
    if strange:
        raise DataError(
            f"target column {name!r} has values that the fit never saw: {listed(strange, 5)}; it "
            f"knows the classes {listed(classes)}. Correct them, or leave these rows out"
        )
    return found


def class_labels(codes: Array, classes: Sequence[Any]) -> Array:
    """The class of every row, as an array of text, integers or booleans; None where missing."""
    known = np.array(classes)
    if not len(codes) or codes.min() >= 0:
        return known[codes]
    out = np.array([*classes, None], dtype=object)
    return out[codes]


def _some_words(table: Table, name: str, most: int = 1000) -> list[str]:
    found: dict[str, None] = {}
    for batch in table.batches([name]):
        found.update(dict.fromkeys(words(batch.column(name))[1]))
        if len(found) > most:
            break
    return list(found)


def check_weight_type(name: str, kind: Any) -> None:
    if kind_of(kind) not in (NUMBER, BOOLEAN):
        raise DataError(
            f"weight column {name!r} holds {described(kind)}; give a column of numbers >= 0"
        )


def target_numbers(batch: Any, name: str) -> Array:
    """The targets; NaN where missing."""
    return numbers(batch.column(name), name)


def weight_numbers(batch: Any, name: str) -> Array:
    """The weights; NaN where missing, never negative."""
    found = numbers(batch.column(name), name)
    wrong = found[found < 0]
    if len(wrong):
        raise DataError(
            f"weight column {name!r} has {len(wrong):,} negative value(s), such as {wrong[0]:g}; "
            "weights are numbers >= 0, and 0 leaves a row out"
        )
    return np.asarray(found)


def has_weight(batch: Any, name: str) -> Array:
    """Which rows do not have weight 0; a missing weight could be anything."""
    found = weight_numbers(batch, name)
    check_size(found, name)
    return found != 0
