"""What commands print: paragraphs, and JSON."""

from __future__ import annotations

import json
import shutil
import sys
from typing import Any

import click

from counterpoise.common.jsonable import plain


def show_json(value: Any) -> None:
    click.echo(as_text(value))


def as_text(value: Any) -> str:
    """Anything as JSON text."""
    return json.dumps(plain(value), indent=2, ensure_ascii=False, allow_nan=False)


def wrapped(text: str) -> str:
    """A paragraph wrapped to the terminal, at most 100 characters wide."""
    wide = shutil.get_terminal_size().columns if sys.stdout.isatty() else 80
    return click.wrap_text(text, width=min(wide, 100))
