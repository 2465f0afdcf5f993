"""Labels of groups, from one column or several crossed columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow.types as kinds

from counterpoise.tabular.cells import BOOLEAN, NUMBER, WORD, described, kind_of, numbers, words
from counterpoise.tabular.errors import DataError
from counterpoise.tabular.layout import NONE

Array = np.ndarray

BETWEEN = " | "
# Above it, floats cannot represent every whole number.
LARGEST_WHOLE = 2.0**53


def check_group_type(name: str, kind: Any) -> None:
    """Check that a group column holds text, whole numbers, booleans or categories."""
    if kind_of(kind) not in (WORD, NUMBER, BOOLEAN):
        remedy = (
            "derive a text column from it, such as the month or the year"
            if kinds.is_temporal(kind)
            else "use a column of text or whole numbers"
        )
        raise DataError(f"group column {name!r} holds {described(kind)}; {remedy}")


def group_labels(batch: Any, group: Sequence[str], labels: str = "text") -> Array | None:
    """The label of every row, ``"(missing)"`` if it has none; None without group columns."""
    if not group:
        return None
    values, codes = group_codes(batch, group, labels)
    return values[codes]


def group_codes(batch: Any, group: Sequence[str], labels: str = "text") -> tuple[Array, Array]:
    """Labels, and for every row the position of its label; some labels may have no row.

    With ``labels="integer"``, integers, unless a row has something else.
    """
    if labels == "integer":
        found = _integers(batch.column(group[0]), group[0])
        if found is not None:
            return np.unique(found, return_inverse=True)
    parts = [_texts(batch.column(name), name, len(group) > 1) for name in group]
    codes, values = parts[0]
    for more, others in parts[1:]:
        crossed = codes * len(others) + more
        there, codes = np.unique(crossed, return_inverse=True)
        values = [
            f"{values[at // len(others)]}{BETWEEN}{others[at % len(others)]}"
            for at in there.tolist()
        ]
    return np.array(values, dtype=str), codes.reshape(-1)


def check_whole_labels(column: Any, name: str) -> None:
    """Check that numbers that name groups are whole."""
    if kinds.is_floating(column.type) or kinds.is_decimal(column.type):
        found = numbers(column, name)
        wrong = found[~np.isnan(found) & ((found != np.rint(found)) | (abs(found) > LARGEST_WHOLE))]
        if len(wrong):
            raise not_whole(name, f"{wrong[0]:g}")


def not_whole(name: str, example: str) -> DataError:
    return DataError(
        f"group column {name!r} holds numbers that are not whole, such as {example}; put them into "
        f"a few bins first (for example '{name}_bin' with 'low', 'middle', 'high'), or use another "
        "column"
    )


def may_be_integers(kind: Any) -> bool:
    """Whether the numbers of a column can serve as labels unchanged."""
    return kind_of(kind) == NUMBER and not kinds.is_uint64(kind)


def _integers(column: Any, name: str) -> Array | None:
    if column.null_count or not may_be_integers(column.type):
        return None
    if kinds.is_integer(column.type):
        return column.to_numpy(zero_copy_only=False).astype(np.int64)
    found = numbers(column, name)
    whole = (found == np.rint(found)).all() and (abs(found) <= LARGEST_WHOLE).all()
    return found.astype(np.int64) if whole else None


def _texts(column: Any, name: str, crossed: bool) -> tuple[Array, list[str]]:
    codes, values = words(column)
    clash = next((value for value in values if BETWEEN in value), None) if crossed else None
    if clash is not None:
        raise DataError(
            f"group column {name!r} has the value {clash!r}, and labels of crossed groups are "
            f"joined with {BETWEEN!r}; replace it in the column"
        )
    cut = next((value for value in values if value.endswith("\0")), None)
    if cut is not None:
        raise DataError(
            f"group column {name!r} has the value {cut!r}, which ends in a NUL character that "
            "labels cannot keep; remove it"
        )
    return np.where(codes < 0, len(values), codes), [*values, NONE]
