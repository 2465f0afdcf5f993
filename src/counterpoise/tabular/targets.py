"""Labels and weights of rows."""

from __future__ import annotations

from typing import Any

import numpy as np

from counterpoise.tabular.cells import BOOLEAN, NUMBER, TIME, WORD, described, kind_of, numbers
from counterpoise.tabular.errors import DataError

Array = np.ndarray


def check_target_type(name: str, kind: Any) -> None:
    found = kind_of(kind)
    if found in (NUMBER, BOOLEAN):
        return
    remedy = {
        WORD: "write numbers instead, such as 0 and 1 for two classes",
        TIME: "write numbers instead, such as days since the first one",
    }.get(found, "give a column of numbers")
    raise DataError(f"target column {name!r} holds {described(kind)}; {remedy}")


def check_weight_type(name: str, kind: Any) -> None:
    if kind_of(kind) not in (NUMBER, BOOLEAN):
        raise DataError(
            f"weight column {name!r} holds {described(kind)}; give a column of numbers >= 0"
        )


def target_numbers(batch: Any, name: str) -> Array:
    """The labels, NaN where they are missing."""
    return numbers(batch.column(name), name)


def weight_numbers(batch: Any, name: str) -> Array:
    """The weights, NaN where they are missing; none is negative."""
    found = numbers(batch.column(name), name)
    wrong = found[found < 0]
    if len(wrong):
        raise DataError(
            f"weight column {name!r} has {len(wrong)} negative value(s), such as {wrong[0]:g}; "
            "weights are numbers >= 0, and 0 leaves a row out"
        )
    return np.asarray(found)
