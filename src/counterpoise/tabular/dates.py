"""Dates as features: the year, the month and the weekday of each."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as kinds

from counterpoise.tabular.cells import NOTHING, NUMBER, WORD, described, kind_of, words
from counterpoise.tabular.errors import DataError, listed

Array = np.ndarray

MONTHS = tuple(str(number) for number in range(1, 13))
WEEKDAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
# 1 January 1970 was a Thursday.
FIRST_WEEKDAY = WEEKDAYS.index("Thu")
# Ticks per day of Arrow's units of time.
TICKS = {"s": 86_400, "ms": 86_400_000, "us": 86_400_000_000, "ns": 86_400_000_000_000}
# A time zone that is a constant offset, in hours and minutes.
OFFSET = re.compile(r"([+-])(\d\d):(\d\d)")


def may_be_dates(kind: Any) -> bool:
    """Whether an Arrow type can hold dates: as dates, times, text, or numbers like 20200131."""
    if kinds.is_dictionary(kind):
        return may_be_dates(kind.value_type)
    return kinds.is_date(kind) or kinds.is_timestamp(kind) or kind_of(kind) in (WORD, NUMBER)


def date_parts(column: Any, name: str) -> dict[str, Any]:
    """The years, months and weekdays of dates, as Arrow columns with nulls where there is none.

    >>> parts = date_parts(pa.array(["2024-02-29", None]), "when")
    >>> [(part, values.to_pylist()) for part, values in parts.items()]
    [('year', [2024, None]), ('month', ['2', None]), ('weekday', ['Thu', None])]
    """
    found, missing = _days(column, name)
    days = found.astype("M8[D]")
    month = days.astype("M8[M]").astype(np.int64) % 12
    return {
        "year": pa.array(days.astype("M8[Y]").astype(np.int64) + 1970, mask=missing),
        "month": _named(month, missing, MONTHS),
        "weekday": _named((found + FIRST_WEEKDAY) % 7, missing, WEEKDAYS),
    }


def _named(codes: Array, missing: Array, names: tuple[str, ...]) -> Any:
    return pa.DictionaryArray.from_arrays(
        pa.array(codes, pa.int64(), mask=missing), pa.array(names)
    )


def _days(column: Any, name: str) -> tuple[Array, Array]:
    """For every row the days since 1 January 1970, and whether its date is missing."""
    if kinds.is_dictionary(column.type) and kinds.is_temporal(column.type.value_type):
        column = column.dictionary_decode()
    if kinds.is_date(column.type) or kinds.is_timestamp(column.type):
        return _calendar_days(column, name)
    if kind_of(column.type) not in (WORD, NUMBER, NOTHING):
        raise DataError(
            f"column {name!r} holds {described(column.type)} where dates are needed; write dates, "
            "or text such as 2020-12-31"
        )
    codes, values = words(column)
    days = np.array([*(_day(value) for value in values), None], dtype=object)
    wrong = [value for value, day in zip(values, days[:-1], strict=True) if day is None]
    if wrong:
        raise DataError(
            f"column {name!r} has values that are not ISO dates, such as {listed(wrong, 3)}; write "
            "them as 2020-12-31, and leave a cell empty where there is no date"
        )
    days[-1] = 0
    return days.astype(np.int64)[codes], codes < 0


def _calendar_days(column: Any, name: str) -> tuple[Array, Array]:
    """Days of an Arrow column of dates, or of times; those with a zone count by their local day."""
    missing = pc.is_null(column).to_numpy(zero_copy_only=False)
    per_day, shift = 1, 0
    if kinds.is_date64(column.type):
        per_day = TICKS["ms"]
    elif kinds.is_timestamp(column.type):
        per_day = TICKS[column.type.unit]
        offset = OFFSET.fullmatch(column.type.tz or "")
        if offset is not None:
            minutes = 60 * int(offset[2]) + int(offset[3])
            shift = int(f"{offset[1]}1") * minutes * (per_day // 1440)
        elif column.type.tz is not None:
            column = _local(column, name)
    whole = pa.int32() if kinds.is_date32(column.type) else pa.int64()
    ticks = column.cast(whole).fill_null(0).to_numpy(zero_copy_only=False)
    return (ticks.astype(np.int64) + shift) // per_day, missing


def _local(column: Any, name: str) -> Any:
    try:
        return pc.local_timestamp(column)
    except pa.ArrowInvalid:
        raise DataError(
            f"column {name!r} has times in the zone {column.type.tz!r}, which this machine does "
            "not know; convert them to another zone, or write dates without times"
        ) from None


def _day(text: str) -> int | None:
    """Days since 1 January 1970 of an ISO date, with or without a time; None for other text."""
    try:
        return datetime.fromisoformat(text.strip()).toordinal() - _EPOCH
    except ValueError:
        return None


_EPOCH = datetime(1970, 1, 1).toordinal()
