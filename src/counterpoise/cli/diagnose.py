"""``counterpoise diagnose``: check whether worst-group training suits the data."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from counterpoise.activations import NAMED as ACTIVATIONS
from counterpoise.cli.options import TableRequest, as_json, table_options
from counterpoise.cli.printing import say, say_notes, show_json
from counterpoise.cli.wording import in_options
from counterpoise.common.jsonable import plain

if TYPE_CHECKING:
    from counterpoise.tabular.layout import TableLayout
    from counterpoise.tabular.learning import LearnedLayout
    from counterpoise.tabular.table import Table


@click.command()
@table_options
@click.option("--activation", "-a", type=click.Choice(list(ACTIVATIONS)), default="identity",
              show_default=True, help="Activation of the neuron.")  # fmt: skip
@as_json
def diagnose(as_json: bool, activation: str, **options: Any) -> None:
    """Check whether worst-group training suits the data, and whether the theory covers it.

    Measures tails, margins, noise and sizes group by group, and gives advice. For classes, which
    the theory does not cover: what a linear score can do for each group.

    \b
    counterpoise diagnose diamonds.csv --target price --group clarity
    """
    from counterpoise.common.progress import stage

    if activation != "identity":  # of a neuron, which fits numbers
        options["task"] = options["task"] or "regress"
    table, learned = TableRequest.of(options).read()
    stage("diagnosing")
    if learned.layout.classes:
        result = _of_classes(table, learned.layout)
    else:
        result = _of_numbers(table, learned, activation)
    stage(None)
    if as_json:
        show_json({**plain(result), "notes": learned.remarks})
        return
    say(in_options(str(result), diagnose))
    if learned.remarks:
        say("")
        say_notes(learned.remarks, diagnose)


def _of_numbers(table: Table, learned: LearnedLayout, activation: str) -> Any:
    from counterpoise.assessment.diagnosis import diagnose as diagnosis
    from counterpoise.tabular import TableSource, fits_in_memory, read_rows

    layout = learned.layout
    given: tuple[Any, ...] = (TableSource(table, layout, n_rows=learned.used),)
    if fits_in_memory(table, layout):
        rows = read_rows(table, layout)
        given = (rows.X, rows.y, rows.groups, rows.sample_weight)
    return diagnosis.diagnose(*given, activation=activation, feature_names=layout.names)


def _of_classes(table: Table, layout: TableLayout) -> Any:
    """The diagnosis of all rows, or of a sample if they do not fit in memory."""
    from counterpoise.assessment.diagnosis.classes import diagnose_classes
    from counterpoise.tabular import fits_in_memory, read_rows, sample_rows
    from counterpoise.tabular.fit import CHOOSING_ROWS

    few = fits_in_memory(table, layout)
    rows = read_rows(table, layout) if few else sample_rows(table, layout, CHOOSING_ROWS)
    return diagnose_classes(rows.X, rows.y, rows.groups, rows.sample_weight)
