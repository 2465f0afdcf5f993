"""Messages of the library in the words of the command line.

The library names Python arguments, as in ``missing='drop'``. Here they become options of the
command that was called, as in ``--missing drop``: whatever option has the name of the argument.
"""

from __future__ import annotations

import ast
import re
import shlex
from typing import Any

import click

_TEXT = r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\""
# An argument and its value: text, a list, or a word such as a number or True.
SETTING = re.compile(rf"\b([a-z]\w*)=({_TEXT}|\[(?:{_TEXT}|[^\]'\"])*\]|-?\w+(?:\.\w+)?)")


def in_options(message: str, command: click.Command | None) -> str:
    """Rewrite arguments in a message as options of a command.

    >>> from counterpoise.cli.fit import fit
    >>> in_options("use missing='drop', drop=['row id'] or max_levels=1000", fit)
    "use --missing drop, --drop 'row id' or --max-levels 1000"
    """
    if command is None:
        return message
    options = {one.name: one for one in command.params if isinstance(one, click.Option)}

    def option(found: re.Match[str]) -> str:
        known = options.get(found[1])
        return found[0] if known is None else _written(known, found[2]) or found[0]

    return SETTING.sub(option, message)


def _written(option: click.Option, literal: str) -> str | None:
    """An option with its value as a shell has it; None if it cannot have that value."""
    try:
        value: Any = ast.literal_eval(literal)
    except (SyntaxError, ValueError):
        return None
    name = max(option.opts, key=len)
    if option.is_flag:
        return name if value is True else None
    if isinstance(value, list):  # commas separate names; a doubled comma is part of one
        value = ",".join(str(item).replace(",", ",,") for item in value)
    return None if value is None else f"{name} {shlex.quote(str(value))}"
