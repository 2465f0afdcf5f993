"""Messages of the library in the words of the command line.

The library names Python arguments, as in ``missing='drop'``. Here they become options of the
command that was called, as in ``--missing drop``: whatever option has the name of the argument. A
flag such as ``--no-polish`` stands for ``polish=False``.
"""

from __future__ import annotations

import ast
import re
import shlex
from typing import Any

import click

_TEXT = r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\""
# An argument and its value: text, a list, or a word such as a number or True.
_VALUE = rf"{_TEXT}|\[(?:{_TEXT}|[^\]'\"])*\]|-?\w+(?:\.\w+)?"
# With the word before it, which a negated flag replaces.
SETTING = re.compile(rf"\b((?:use|with) )?\b([a-z]\w*)=({_VALUE})")
# An argument without a value, if its name is not a word of English that a message may also use.
BARE = re.compile(r"(?<![\w'\"=./-])(?:tol|[a-z]+(?:_[a-z]+)+)(?![\w'\"=./-]\w|[\w'\"=/(])")


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
        verb, name, literal = found[1] or "", found[2], found[3]
        if name in options:
            text = _written(options[name], literal)
            return found[0] if text is None else verb + text
        negated = options.get(f"no_{name.removeprefix('fit_')}")
        if negated is None or literal not in ("True", "False"):
            return found[0]
        flag = _flag(negated)
        if literal == "False":
            return verb + flag
        return f"without {flag}" if verb == "with " else f"leave out {flag}"

    def bare(found: re.Match[str]) -> str:
        return _flag(options[found[0]]) if found[0] in options else found[0]

    return BARE.sub(bare, SETTING.sub(option, message))


def _written(option: click.Option, literal: str) -> str | None:
    """An option with its value as a shell has it; None if it cannot have that value."""
    try:
        value: Any = ast.literal_eval(literal)
    except (SyntaxError, ValueError):
        return None
    name = _flag(option)
    if option.is_flag:
        return name if value is True else None
    if isinstance(value, list):  # commas separate names; a doubled comma is part of one
        value = ",".join(str(item).replace(",", ",,") for item in value)
    return None if value is None else f"{name} {_quoted(str(value))}"


def _flag(option: click.Option) -> str:
    return max(option.opts, key=len)


def _quoted(text: str) -> str:
    """Quote for a shell, and punctuation alone for the reader, who could take it for ours."""
    quoted = shlex.quote(text)
    return quoted if quoted != text or any(map(str.isalnum, text)) else f"'{text}'"
