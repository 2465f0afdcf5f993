"""Targets and weights of rows."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from counterpoise.tabular.cells import (
    BOOLEAN,
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
from counterpoise.tabular.spelling import text_kind
from counterpoise.tabular.table import Table

Array = np.ndarray

# Different values of a target up to which it may name classes, and rows that each needs.
FEW, OFTEN = 5, 10


def check_target(table: Table, name: str) -> None:
    """Check that a target holds numbers or booleans; for text, the error guesses what it is."""
    kind = table.schema.field(name).type
    found = kind_of(kind)
    if found in (NUMBER, BOOLEAN):
        return
    text = f"target column {name!r} holds {described(kind)}"
    remedy = "give a column of numbers"
    if found == TIME:
        remedy = "write numbers instead, such as days since the first one"
    if found == WORD:
        seems = text_kind(_some_words(table, name), lax=True)
        text += f", such as {listed(seems.strays or [seems.example], 3)}"
        remedy = {
            "marked": POINTS,
            "numbers": "save them as numbers",
            "dates": "write numbers instead, such as days since the first one",
        }.get(seems.kind, "write numbers instead, such as 0 and 1 for two classes")
        if seems.strays and seems.kind != "dates":
            remedy = "leave a cell empty where there is no number, and use missing='drop'"
            if seems.kind == "marked":
                remedy += f"; in place of {seems.example!r}, {POINTS}"
    raise DataError(f"{text}; {remedy}")


@dataclass
class FewValues:
    """The different values of a target, as long as they are few."""

    values: set[float] = field(default_factory=set)
    rows: int = 0

    def add(self, y: Array) -> None:
        self.rows += len(y)
        if len(self.values) <= FEW:
            self.values.update(np.unique(y[~np.isnan(y)])[: FEW + 1].tolist())

    def note(self, name: str) -> str | None:
        """A remark for the reader on what is fitted to so few values."""
        if not 1 < len(self.values) <= min(FEW, self.rows / OFTEN):
            return None
        values = [f"{value:g}" for value in sorted(self.values)]
        count = "two" if len(values) == 2 else "only " + str(len(values))
        caution = (
            "predictions are not probabilities"
            if len(values) == 2
            else "this suits amounts or grades, not names of classes"
        )
        return (
            f"the target {name!r} has {count} values, {', '.join(values[:-1])} and {values[-1]}: "
            f"they are fitted as numbers, by squared error, and {caution}"
        )


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
            f"weight column {name!r} has {len(wrong)} negative value(s), such as {wrong[0]:g}; "
            "weights are numbers >= 0, and 0 leaves a row out"
        )
    return np.asarray(found)


def has_weight(batch: Any, name: str) -> Array:
    """Which rows do not have weight 0; a missing weight could be anything."""
    found = weight_numbers(batch, name)
    check_size(found, name)
    return found != 0
