"""Arrow columns as numpy arrays: numbers, or text as codes and values."""

from __future__ import annotations

from math import isfinite
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as kinds

from counterpoise.tabular.errors import DataError

Array = np.ndarray

# The largest allowed feature, target or weight.
LARGEST = 1e100
# Above it, floats cannot represent every whole number.
LARGEST_WHOLE = 2.0**53

NUMBER, BOOLEAN, WORD = "number", "boolean", "word"
TIME, NOTHING, OTHER = "time", "nothing", "other"


def kind_of(kind: Any) -> str:
    """The kind of values that an Arrow type holds."""
    if kinds.is_dictionary(kind):
        return OTHER if kind_of(kind.value_type) == OTHER else WORD
    if kinds.is_boolean(kind):
        return BOOLEAN
    if kinds.is_integer(kind) or kinds.is_floating(kind) or kinds.is_decimal(kind):
        return NUMBER
    if kinds.is_string(kind) or kinds.is_large_string(kind) or kinds.is_string_view(kind):
        return WORD
    if kinds.is_temporal(kind):
        return TIME
    return NOTHING if kinds.is_null(kind) else OTHER


def described(kind: Any) -> str:
    """An Arrow type in words."""
    names = {NUMBER: "numbers", BOOLEAN: "true and false", WORD: "text", NOTHING: "no value"}
    found = kind_of(kind)
    if found == TIME:
        if kinds.is_date(kind):
            return "dates"
        if kinds.is_timestamp(kind):
            return "dates with times"
        return "times of day" if kinds.is_time(kind) else "durations"
    return names.get(found, str(kind))


def numbers(column: Any, name: str) -> Array:
    """Numbers or booleans as float64, NaN where missing; infinite values are an error."""
    if kind_of(column.type) not in (NUMBER, BOOLEAN, NOTHING):
        raise DataError(_not_numbers(column, name))
    if kinds.is_float16(column.type):  # which not every pyarrow casts
        found = np.array(column.to_pylist(), dtype=float)
    else:
        cast = pc.cast(column, pa.float64(), safe=False)  # integers above 2**53 are rounded
        found = cast.to_numpy(zero_copy_only=False)
    wrong = np.isinf(found)
    if wrong.any():
        raise DataError(
            f"column {name!r} has {int(wrong.sum()):,} infinite value(s); replace them with "
            "numbers, or leave these cells empty"
        )
    return found


def check_size(values: Array, name: str) -> None:
    """Check that squares of the numbers, and sums of squares, do not overflow."""
    largest = np.nanmax(np.abs(values), initial=0.0)
    if largest > LARGEST:
        raise DataError(
            f"column {name!r} has numbers as large as {largest:.3g}, whose squares overflow; "
            "divide the column by a common factor"
        )


def _not_numbers(column: Any, name: str) -> str:
    text = f"column {name!r} holds {described(column.type)} where numbers are needed"
    if kind_of(column.type) == WORD:
        _, values = words(column)
        stray = next((value for value in values if not is_numeral(value)), None)
        if stray is not None:
            text += f", such as {stray!r}"
    return f"{text}; write numbers, and leave a cell empty where there is none"


def words(column: Any) -> tuple[Array, list[str]]:
    """For every row the code of its value, -1 if missing; and the distinct values as text."""
    if kind_of(column.type) in (OTHER, NOTHING) and not kinds.is_null(column.type):
        raise DataError(f"a column of {column.type} cannot be read as text")
    if kinds.is_null(column.type):
        return np.full(len(column), -1), []
    if kinds.is_floating(column.type):
        if kinds.is_float16(column.type):
            column = pa.array(numbers(column, "half precision"), from_pandas=True)
        column = pc.if_else(pc.is_nan(column), None, column)
    if not kinds.is_dictionary(column.type):
        if kinds.is_string_view(column.type):
            column = column.cast(pa.string())
        column = column.dictionary_encode()
    codes = column.indices.cast(pa.int64()).fill_null(-1).to_numpy(zero_copy_only=False)
    entries = column.dictionary
    if len(entries) > len(codes):  # a batch of a large dictionary has few of its values
        used = np.unique(codes[codes >= 0])
        entries = entries.take(pa.array(used))
        codes = np.where(codes < 0, -1, np.searchsorted(used, codes))
    given = entries.cast(pa.string()).to_pylist()
    # a dictionary may hold a value twice, or one that is missing
    values = [value for value in dict.fromkeys(given) if value is not None]
    number = {value: i for i, value in enumerate(values)}
    place = np.array([*(number.get(value, -1) for value in given), -1], dtype=np.int64)
    return place[codes], values


def is_missing(column: Any) -> Array:
    """Where a column has no value; NaN counts as missing."""
    if kinds.is_dictionary(column.type):
        nothing = np.append(is_missing(column.dictionary), True)
        codes = column.indices.cast(pa.int64()).fill_null(-1).to_numpy(zero_copy_only=False)
        return nothing[codes]
    return pc.is_null(column, nan_is_null=True).to_numpy(zero_copy_only=False)


def is_numeral(text: str) -> bool:
    """Whether a text is a finite number; unlike Python, ``1_0`` is not."""
    try:
        return isfinite(float(text)) and "_" not in text
    except ValueError:
        return False
