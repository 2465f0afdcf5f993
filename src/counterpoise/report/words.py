"""Group labels and settings as text."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

import numpy as np

Array = np.ndarray

# In English, whatever the locale.
MONTHS = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September",
    "October", "November", "December",
)  # fmt: skip
# A number of at least four digits before the point, or with an exponent; no part of a word.
_LONG = re.compile(r"(?<![\w.,])\d(?:\.\d+)?e[+-]\d+(?!\w)|(?<![\w.,])\d{4,}(?:\.\d+)?(?![\w,])")


def with_thousands(words: str) -> str:
    """Separate the thousands of the numbers in a text that a model or certificate wrote.

    >>> with_thousands("Risk 82967.7, slack -3e+05, gap 1e-07 of 1.525e+05, Algorithm 1.")
    'Risk 82,967.7, slack -300,000, gap 1e-07 of 152,500, Algorithm 1.'
    """

    def separated(found: re.Match[str]) -> str:
        text = found[0]
        if "e" not in text:
            whole, point, decimals = text.partition(".")
            return f"{int(whole):,}{point}{decimals}"
        value = float(text)
        return f"{value:,.0f}" if 1e3 <= value < 1e7 else text

    return _LONG.sub(separated, words)


def moment(made: str | None) -> str:
    """A date and time as people write them; what is none stays as it is.

    >>> moment("2026-01-02T03:04:05+00:00"), moment("yesterday"), moment(None)
    ('2 January 2026, 03:04 UTC', 'yesterday', '')
    """
    try:
        found = datetime.fromisoformat(made or "")
    except ValueError:
        return made or ""
    zone = f" {found.tzname()}" if found.tzinfo else ""
    return f"{found.day} {MONTHS[found.month - 1]} {found:%Y, %H:%M}{zone}"


def names_of(labels: Iterable[Any]) -> list[str]:
    """Group labels as text; an empty label becomes "(empty)"."""
    return [str(label) or "(empty)" for label in labels]


def setting(value: Any) -> str:
    """An option as the user would write it."""
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, np.ndarray):
        return setting(value.tolist())
    shown = value if isinstance(value, str) else repr(value)
    return shown if len(shown) <= 300 else shown[:297] + "..."


def settings(table: Mapping[str, Any], path: str = "") -> dict[str, str]:
    """Flatten nested tables of settings.

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
