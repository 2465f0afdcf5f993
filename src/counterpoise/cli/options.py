"""What commands over tables have in common: their options, and how the table is read.

A new option for reading or encoding tables is one entry in this file: it is passed on by name to
`open_table` or `learn_layout`.
"""

from __future__ import annotations

import math
import os
import shlex
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from counterpoise.cli.printing import say

if TYPE_CHECKING:
    from counterpoise.tabular.encoded_rows import EncodedRows
    from counterpoise.tabular.learning import LearnedLayout
    from counterpoise.tabular.table import Table


class Strength(click.ParamType):  # type: ignore[type-arg]
    """``nu``: a number >= 0, "inf" or "auto"."""

    name = "number|auto"

    def convert(self, value: Any, param: Any, ctx: Any) -> float | str:
        if value == "auto" or isinstance(value, float):
            return value
        try:
            number = float(value)
        except ValueError:
            number = math.nan
        if not number >= 0:
            self.fail(f"{value!r} is not a number >= 0, inf or auto", param, ctx)
        return number


class Amount(click.FloatRange):
    """A finite number with a lower bound."""

    def convert(self, value: Any, param: Any, ctx: Any) -> float:
        number = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value!r} is not a finite number", param, ctx)
        return number


def names(ctx: Any, param: Any, given: tuple[str, ...]) -> list[str]:
    """Split names at commas; a doubled comma is part of a name. Options can be repeated, too."""
    out: list[str] = []
    for text in given:
        out += [part.replace("\0", ",") for part in text.replace(",,", "\0").split(",") if part]
    return out


class OptionGroup:
    """Options that several commands share, as one decorator that knows their names."""

    def __init__(self) -> None:
        self.decorators: list[Callable[..., Any]] = []
        self.names: list[str] = []

    def add(self, *flags: str, **settings: Any) -> None:
        self.decorators.append(click.option(*flags, **settings))
        self.names.append(flags[0].lstrip("-").replace("-", "_"))

    def __call__(self, command: Callable[..., Any]) -> Callable[..., Any]:
        for decorator in reversed(self.decorators):
            command = decorator(command)
        return command

    def taken(self, options: dict[str, Any]) -> dict[str, Any]:
        """Take the options of this group out of the options of a command."""
        return {name: options.pop(name) for name in self.names}


def _columns(metavar: str = "COLUMN,...") -> dict[str, Any]:
    return {"multiple": True, "metavar": metavar, "callback": names}


as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON.")

# Arguments of open_table.
file_options = OptionGroup()
file_options.add(
    "--format", type=click.Choice(["csv", "parquet", "arrow", "npz"]),
    help="File format, if the suffix is ambiguous.",
)  # fmt: skip
file_options.add(
    "--delimiter", metavar="CHARACTER", help="Delimiter of CSV files.  [default: detected]"
)
file_options.add(
    "--decimal", metavar="CHARACTER", default=".", show_default=True,
    help="Decimal mark of numbers in CSV files.",
)  # fmt: skip
file_options.add(
    "--encoding", default="utf-8", show_default=True,
    help="Encoding of CSV files; Excel exports often use cp1252.",
)  # fmt: skip
file_options.add(
    "--numbers", **_columns(),
    help="Columns of CSV files whose leading zeros mean nothing; otherwise 00123 is a code.",
)  # fmt: skip

# Those that can be checked before the table is read.
CHECKED = ("format", "delimiter", "decimal", "encoding")

# Arguments of learn_layout.
layout_options = OptionGroup()
layout_options.add("--target", "-y", required=True, metavar="COLUMN", help="Column to predict.")
layout_options.add(
    "--task", type=click.Choice(["classify", "regress"]),
    help="Whether the target names classes or is a number.  [default: text, true/false and two "
    "whole numbers such as 0 and 1 are classes]",
)  # fmt: skip
layout_options.add(
    "--group", "-g", **_columns("COLUMN"),
    help="Column with the group of each row. Several columns are crossed.",
)  # fmt: skip
layout_options.add(
    "--with-label", is_flag=True,
    help="Cross the groups with the classes of the target, as for spurious correlations.",
)  # fmt: skip
layout_options.add(
    "--overlapping", is_flag=True,
    help="Do not cross several group columns: every level of each is a group, and groups overlap.",
)  # fmt: skip
layout_options.add("--weight", metavar="COLUMN", help="Column with weights of rows.")
layout_options.add(
    "--features", **_columns(), help="Columns to learn from.  [default: all other columns]"
)
layout_options.add("--drop", **_columns(), help="Columns to leave out.")
layout_options.add(
    "--categorical", **_columns(),
    help="Columns of numbers, or of text that looks like numbers or dates, that name categories.",
)  # fmt: skip
layout_options.add(
    "--dates", **_columns(),
    help="Columns of dates, or of ISO dates as text, whose year, month and weekday are features.",
)  # fmt: skip
layout_options.add(
    "--missing", type=click.Choice(["refuse", "drop", "impute"]), default="refuse",
    show_default=True,
    help="Missing values: report an error, leave the rows out, or fill the values in.",
)  # fmt: skip
layout_options.add(
    "--max-levels", type=click.IntRange(1), default=100, show_default=True,
    help="Maximum number of categories per column, and of classes.",
)  # fmt: skip


def table_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The argument DATA, and how to read it."""
    return click.argument("data", type=click.Path())(layout_options(file_options(command)))


@dataclass(frozen=True)
class TableRequest:
    """The table that a command was given, not read yet."""

    path: str
    file: dict[str, Any]
    layout: dict[str, Any]

    @classmethod
    def of(cls, options: dict[str, Any]) -> TableRequest:
        """Take the options of a table out of those of a command."""
        layout = layout_options.taken(options)
        layout["features"] = layout["features"] or None
        return cls(options.pop("data"), file_options.taken(options), layout)

    def check(self) -> None:
        """Check what can be known without reading the table, before numpy is imported."""
        from counterpoise.tabular.requests import check_file, check_roles

        check_roles(self.layout["target"], self.layout["group"], self.layout["weight"])
        check_file(self.path, **{name: self.file[name] for name in CHECKED})

    def read(self) -> tuple[Table, LearnedLayout]:
        """Open the table and learn its columns."""
        self.check()
        from counterpoise.common.progress import stage
        from counterpoise.tabular import learn_layout, open_table

        layout, reading = self.layout, f"reading {self.path}"
        stage(reading)
        amounts = (None if layout["task"] == "classify" else layout["target"], layout["weight"])
        table = open_table(
            self.path,
            **{**self.file, "numbers": [*self.file["numbers"], *filter(None, amounts)]},
            text=layout["group"],
            words=[*layout["categorical"], *layout["dates"]],
        )
        learned = learn_layout(
            table, **layout, progress=lambda done, rows: stage(reading, done / rows)
        )
        stage(None)
        return table, learned

    def rows_in_memory(self) -> tuple[EncodedRows, LearnedLayout]:
        """The rows as cross-validation needs them, and what was learned of the columns.

        The rows are a sample if they do not fit in memory.
        """
        table, learned = self.read()
        from counterpoise.tabular import fits_in_memory, read_rows, sample_rows
        from counterpoise.tabular.fit import CHOOSING_ROWS

        if fits_in_memory(table, learned.layout):
            return read_rows(table, learned.layout), learned
        say(
            f"Using {CHOOSING_ROWS:,} rows drawn at random, because the table does not fit in "
            "memory.",
            err=True,
        )
        return sample_rows(table, learned.layout, CHOOSING_ROWS, 0), learned


def check_parent(option: str, path: str) -> None:
    """Check that a file can be written before the work begins."""
    folder = Path(path).parent
    if not folder.is_dir():
        raise click.UsageError(f"{option}: there is no folder {str(folder)!r}; make it first")
    if not os.access(folder, os.W_OK):
        raise click.UsageError(f"{option}: the folder {str(folder)!r} cannot be written to")


def command_line(ctx: click.Context) -> str:
    """The command that was called, to call it again."""
    return shlex.join(["counterpoise", *ctx.obj.get("args", sys.argv[1:])])
