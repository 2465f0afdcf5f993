"""Numbers and names as a reader meets them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from counterpoise.rows.groups import label_list

Array = np.ndarray


def figure(value: float | None) -> str:
    """A number with four significant digits.

    >>> [figure(x) for x in (0.0123456, 3.0, 1234.56, 1e-9, float("inf"), None)]
    ['0.01235', '3', '1,235', '1e-09', 'no bound', 'unknown']
    """
    if value is None or math.isnan(value):
        return "unknown"
    if math.isinf(value):
        return "no bound" if value > 0 else "minus infinity"
    if value == 0 or (value == int(value) and abs(value) < 1e7):
        return f"{int(value):,}"
    if not 1e-4 <= abs(value) < 1e7:
        return f"{value:.3g}"
    decimals = max(0, 3 - math.floor(math.log10(abs(value))))
    shown = f"{value:,.{decimals}f}"
    return shown.rstrip("0").rstrip(".") if "." in shown else shown


def change(before: float, after: float) -> str:
    """What became of a number, in words.

    >>> change(4.0, 1.0), change(1.0, 1.5), change(1.0, 1.0001)
    ('75% lower', '50% higher', 'unchanged')
    """
    if not (math.isfinite(before) and math.isfinite(after)):
        return "not comparable"
    if before <= 0:
        return "unchanged" if after == before else ("higher" if after > before else "lower")
    ratio = after / before - 1.0
    if abs(ratio) < 5e-4:
        return "unchanged"
    size = f"{abs(ratio):.0%}" if abs(ratio) >= 0.095 else f"{abs(ratio):.1%}"
    return f"{size} {'lower' if ratio < 0 else 'higher'}"


def count(number: int, noun: str) -> str:
    """
    >>> count(1, "group"), count(1200, "group")
    ('1 group', '1,200 groups')
    """
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


def size(number: int) -> str:
    """Bytes for a reader.

    >>> size(999), size(12345678)
    ('999 bytes', '12.3 MB')
    """
    if number < 1000:
        return f"{number} bytes"
    value = float(number)
    for unit in ("kB", "MB", "GB"):
        value /= 1000.0
        if value < 1000.0:
            return f"{value:.3g} {unit}"
    return f"{value / 1000.0:.3g} TB"


def names_of(labels: Array) -> list[str]:
    """Labels as text; never empty, or nothing would be there to see or to click."""
    return [str(label) or "(empty)" for label in label_list(np.asarray(labels))]


def listed(names: Iterable[str], most: int = 4) -> str:
    """
    >>> listed(["a", "b", "c"], most=2)
    'a, b and 1 more'
    """
    every = list(names)
    shown = ", ".join(every[:most])
    return shown + (f" and {len(every) - most} more" if len(every) > most else "")


def setting(value: Any) -> str:
    """An option as a reader would write it."""
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, np.ndarray):
        return setting(value.tolist())
    shown = value if isinstance(value, str) else repr(value)
    return shown if len(shown) <= 300 else shown[:297] + "..."


def settings(table: Mapping[str, Any], path: str = "") -> dict[str, str]:
    """Tables within tables as one list.

    >>> settings({"train": {"seed": 0}, "out": "runs"})
    {'train.seed': '0', 'out': 'runs'}
    """
    out: dict[str, str] = {}
    for key, value in table.items():
        if isinstance(value, Mapping) and value:
            out |= settings(value, f"{path}{key}.")
        else:
            out[f"{path}{key}"] = setting(value)
    return out
