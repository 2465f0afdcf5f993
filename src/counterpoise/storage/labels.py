"""Labels of groups that JSON cannot express, such as dates, periods and UUIDs, as plain trees.

A label comes back equal to what it was, and of the same type. A point in time keeps its zone, or
its offset from UTC where the zone is not known.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from importlib import import_module
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import numpy as np

# Types that are text with an exact inverse, and that text.
TEXTS: dict[type, tuple[Callable[[Any], str], Callable[[str], Any]]] = {
    bytes: (bytes.hex, bytes.fromhex),
    UUID: (str, UUID),
    Decimal: (str, Decimal),
    Fraction: (str, Fraction),
    dt.date: (dt.date.isoformat, dt.date.fromisoformat),
    dt.time: (dt.time.isoformat, dt.time.fromisoformat),
}
NAMES = {made.__name__: inverse for made, (_, inverse) in TEXTS.items()}


def pack_label(value: Any) -> dict[str, Any] | None:
    """Return a label as ``{"!": type, ...}``; None if it is of no type that is known here."""
    made = type(value)
    if made in TEXTS:
        return {"!": made.__name__, "is": TEXTS[made][0](value)}
    if made is dt.timedelta:
        return {"!": "timedelta", "is": [value.days, value.seconds, value.microseconds]}
    if made is dt.datetime:
        if value.tzinfo is None:
            return {"!": "datetime", "is": value.isoformat(), "zone": None}
        utc = value.astimezone(dt.UTC).isoformat()
        return {"!": "datetime", "is": utc, "zone": _zone(value)}
    if made in (np.datetime64, np.timedelta64):
        return {"!": made.__name__, "is": _count(value), "unit": _unit(value)}
    if made.__module__.split(".")[0] == "pandas":
        return _from_pandas(value)
    return None


def _from_pandas(value: Any) -> dict[str, Any] | None:
    made = type(value).__name__
    if made in ("Timestamp", "Timedelta"):
        bare = value.asm8
        known = {"!": made, "is": _count(bare), "unit": _unit(bare)}
        return {**known, "zone": _zone(value)} if made == "Timestamp" else known
    if made == "Period":
        return {"!": made, "is": int(value.ordinal), "freq": value.freqstr}
    if made == "Interval":
        ends = [_end(value.left), _end(value.right)]
        return None if None in ends else {"!": "range", "ends": ends, "closed": value.closed}
    return None


def _end(value: Any) -> Any:
    """Return an end of an interval; floats are written with all digits, and may be infinite."""
    if isinstance(value, (int, np.integer)) and not isinstance(value, bool):
        return int(value)
    if isinstance(value, (float, np.floating)):
        return {"!": "float", "is": repr(float(value))}
    return pack_label(value)


def unpack_label(tree: dict[str, Any]) -> Any:
    """Return the label that `pack_label` made the tree of."""
    kind, found = tree["!"], tree.get("is")
    if kind in NAMES:
        return NAMES[kind](str(found))
    if kind == "timedelta":
        return dt.timedelta(*map(int, tree["is"]))
    if kind == "datetime":
        when = dt.datetime.fromisoformat(str(found))
        return when if tree["zone"] is None else when.astimezone(_zone_of(tree["zone"]))
    if kind in ("datetime64", "timedelta64"):
        return _moment(kind, tree)
    return _to_pandas(tree)


def _to_pandas(tree: dict[str, Any]) -> Any:
    try:
        pd = import_module("pandas")  # which has no types of its own
    except ImportError:
        raise ValueError("its groups are dates of pandas: pip install pandas") from None
    kind = tree["!"]
    if kind == "range":
        left, right = (_end_of(end) for end in tree["ends"])
        return pd.Interval(left, right, closed=tree["closed"])
    if kind == "Period":
        return pd.Period(ordinal=int(tree["is"]), freq=str(tree["freq"]))
    if kind == "Timedelta":
        return pd.Timedelta(_moment("timedelta64", tree))
    when = pd.Timestamp(_moment("datetime64", tree))
    if tree["zone"] is None:
        return when
    return when.tz_localize(dt.UTC).tz_convert(_zone_of(tree["zone"]))


def _end_of(tree: Any) -> Any:
    if not isinstance(tree, dict):
        return int(tree)
    return float(tree["is"]) if tree["!"] == "float" else unpack_label(tree)


LABELS = (
    *NAMES, "timedelta", "datetime", "datetime64", "timedelta64",
    "Timestamp", "Timedelta", "Period", "range",
)  # fmt: skip


def _moment(kind: str, tree: dict[str, Any]) -> Any:
    return np.array(int(tree["is"]), dtype="i8").view(f"{kind}[{tree['unit']}]")[()]


def _count(value: Any) -> int:
    return int(value.view("i8"))


def _unit(value: Any) -> str:
    """Return the unit of a date, such as ``ns``, ``D`` or ``7D``."""
    unit, count = np.datetime_data(value.dtype)
    return unit if count == 1 else f"{count}{unit}"


def _zone(value: Any) -> Any:
    """Return the name of a time zone and the offset in seconds; None without a zone."""
    if value.tzinfo is None:
        return None
    name = getattr(value.tzinfo, "key", None) or getattr(value.tzinfo, "zone", None)
    return [name if isinstance(name, str) else None, value.utcoffset().total_seconds()]


def _zone_of(zone: Any) -> dt.tzinfo:
    name, offset = zone
    if name == "UTC":
        return dt.UTC
    if name is not None:
        try:
            return ZoneInfo(str(name))
        except (KeyError, ValueError, OSError):  # this machine does not know it
            pass
    return dt.timezone(dt.timedelta(seconds=float(offset)))
