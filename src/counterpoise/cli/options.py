"""What commands over tables have in common: their options, and how the table is read."""

from __future__ import annotations

import math
import shlex
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import click

ACTIVATIONS = ("identity", "relu", "leaky_relu", "softplus", "elu", "huber_relu")


class Strength(click.ParamType):
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


def names(ctx: Any, param: Any, given: tuple[str, ...]) -> tuple[str, ...]:
    """Options can be repeated, or list names with commas; a doubled comma is one of the name."""
    out: list[str] = []
    for text in given:
        out += [part.replace("\0", ",") for part in text.replace(",,", "\0").split(",") if part]
    return tuple(out)


def _stacked(*options: Callable[..., Any]) -> Callable[..., Any]:
    def add(command: Callable[..., Any]) -> Callable[..., Any]:
        for option in reversed(options):
            command = option(command)
        return command

    return add


as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON, for machines.")

# How the file is written.
file_options = _stacked(
    click.option(
        "--format", type=click.Choice(["csv", "parquet", "arrow", "npz"]),
        help="Of the file, where its suffix does not tell.",
    ),
    click.option("--delimiter", metavar="CHARACTER", help="Of CSV; found out by default."),
    click.option(
        "--decimal", metavar="CHARACTER", default=".", show_default=True,
        help="Of numbers in CSV.",
    ),
    click.option(
        "--encoding", default="utf-8", show_default=True, help="Of CSV; cp1252 of many tables.",
    ),
)  # fmt: skip
FILE = ("format", "delimiter", "decimal", "encoding")

# Which columns are what.
table_options = _stacked(
    click.argument("data", type=click.Path()),
    click.option("--target", "-y", required=True, metavar="COLUMN", help="What is predicted."),
    click.option(
        "--group", "-g", multiple=True, metavar="COLUMN", callback=names,
        help="Whose worst case counts. Several are crossed.",
    ),
    click.option("--weight", metavar="COLUMN", help="Weights of rows within their group."),
    click.option(
        "--features", multiple=True, metavar="COLUMN,...", callback=names,
        help="Columns to learn from; by default all others.",
    ),
    click.option(
        "--drop", multiple=True, metavar="COLUMN,...", callback=names,
        help="Columns to leave out.",
    ),
    click.option(
        "--categorical", multiple=True, metavar="COLUMN,...", callback=names,
        help="Numbers, or text that looks like numbers or dates, that name categories.",
    ),
    click.option(
        "--missing", type=click.Choice(["refuse", "drop", "impute"]), default="refuse",
        show_default=True, help="Missing values: an error, rows left out, or filled in.",
    ),
    click.option(
        "--max-levels", type=click.IntRange(1), default=100, show_default=True,
        help="Most categories of a column.",
    ),
    file_options,
)  # fmt: skip

# How the neuron is fitted.
model_options = _stacked(
    click.option(
        "--activation", "-a", type=click.Choice(ACTIVATIONS), default="identity",
        show_default=True, help="The neuron's; identity is a linear model.",
    ),
    click.option(
        "--divergence", type=click.Choice(["kl", "chi2"]), default="kl", show_default=True,
        help="What keeps the mixture of groups near the prior.",
    ),
)  # fmt: skip


@dataclass(frozen=True)
class Asked:
    """A table that a command was given, and its columns."""

    table: Any
    learned: Any


def read_table(options: dict[str, Any]) -> Asked:
    """Open a table and learn its columns; takes its own options out of ``options``."""
    from counterpoise.common.progress import stage
    from counterpoise.tabular import learn_columns, open_table
    from counterpoise.tabular.roles import check_roles

    group, categorical = options.pop("group"), options.pop("categorical")
    path = options.pop("data")
    check_roles(options["target"], group, options["weight"])
    stage(f"reading {path}")
    written = {name: options.pop(name) for name in FILE}
    table = open_table(path, **written, text=group, words=categorical)
    features = options.pop("features")
    learned = learn_columns(
        table,
        target=options.pop("target"),
        group=group,
        weight=options.pop("weight"),
        features=features or None,
        drop=options.pop("drop"),
        categorical=categorical,
        missing=options.pop("missing"),
        max_levels=options.pop("max_levels"),
        progress=lambda done, rows: stage(f"reading {path}", done / rows),
    )
    stage(None)
    return Asked(table, learned)


def command_line(ctx: click.Context) -> str:
    """The command that was called, to call it again."""
    return shlex.join(["counterpoise", *ctx.obj.get("args", sys.argv[1:])])
