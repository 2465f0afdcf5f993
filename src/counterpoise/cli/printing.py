"""What commands print: tables for people, JSON for machines."""

from __future__ import annotations

import json
import math
import shutil
import sys
from collections.abc import Sequence
from typing import Any

import click

from counterpoise.common.jsonable import plain

# Groups that are printed at most; a report or --json has all.
SHOWN = 30


def show_json(value: Any) -> None:
    click.echo(as_text(value))


def as_text(value: Any) -> str:
    """Anything as text of JSON."""
    return json.dumps(plain(value), indent=2, ensure_ascii=False, allow_nan=False)


def columns(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table of text: the first column to the left, the others to the right.

    >>> print(columns(["group", "risk"], [["north", "1.5"], ["s", "12"]]))
    group  risk
    north   1.5
    s        12
    """
    table = [list(head), *map(list, rows)]
    widths = [max(len(row[j]) for row in table) for j in range(len(head))]
    lines = []
    for row in table:
        cells = [row[0].ljust(widths[0])]
        cells += [cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def number(value: float) -> str:
    """Four digits, or a dash where nothing is known.

    >>> number(1234.5), number(float("nan"))
    ('1234', '-')
    """
    return "-" if math.isnan(value) else f"{value:.4g}"


def clipped(text: str, width: int = 28) -> str:
    """A name that does not break a table or a terminal.

    >>> clipped("a name that nobody could ever want to read whole")
    'a name that nobody could ...'
    """
    text = "".join(c if c.isprintable() else " " for c in " ".join(text.split()))
    return text if len(text) <= width else f"{text[: width - 3]}..."


def wrapped(text: str) -> str:
    """A paragraph as wide as the terminal, or as is good to read."""
    wide = shutil.get_terminal_size().columns if sys.stdout.isatty() else 80
    return click.wrap_text(text, width=min(wide, 100))
