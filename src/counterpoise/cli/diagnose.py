"""``counterpoise diagnose``: check whether worst-group training suits the data."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from counterpoise.cli.models import ACTIVATIONS
from counterpoise.cli.options import TableRequest, as_json, table_options
from counterpoise.cli.printing import say, say_notes, show_json, wrapped
from counterpoise.cli.wording import in_options

if TYPE_CHECKING:
    from counterpoise.tabular.layout import TableLayout
    from counterpoise.tabular.learning import LearnedLayout
    from counterpoise.tabular.table import Table


@click.command()
@table_options
@click.option("--activation", "-a", type=click.Choice(list(ACTIVATIONS)), default="identity",
              show_default=True, help="Activation of the neuron.")  # fmt: skip
@click.option("--details", is_flag=True, help="Also print figures by group: the theory's "
              "assumptions or, for classes, what a linear score can do.")  # fmt: skip
@as_json
def diagnose(as_json: bool, activation: str, details: bool, **options: Any) -> None:
    """Answer whether worst-group training pays on this data: yes, no or uncertain, and why.

    Robust fits are compared with the plain average on held-out rows of at most 20,000, and the
    reasons follow from noise, sizes and tails of the groups. --details prints these figures by
    group, with the theory's assumptions.

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
        from counterpoise.common.jsonable import plain

        show_json({**plain(result), "notes": learned.remarks})
        return
    for line in result.summary().splitlines():
        say(wrapped(in_options(line, diagnose)))
    if details:
        say("\n" + in_options(str(result).removeprefix(result.summary()).lstrip(), diagnose))
    else:
        say("\nFor figures by group, add --details.")
    if learned.remarks:
        say("")
        say_notes(learned.remarks, diagnose)


def _of_numbers(table: Table, learned: LearnedLayout, activation: str) -> Any:
    import counterpoise
    from counterpoise.tabular import TableSource, fits_in_memory, read_rows

    layout = learned.layout
    given: tuple[Any, ...] = (TableSource(table, layout, n_rows=learned.used),)
    if fits_in_memory(table, layout):
        rows = read_rows(table, layout)
        given = (rows.X, rows.y, rows.groups, rows.sample_weight)
    return counterpoise.diagnose(*given, activation=activation, feature_names=layout.names)


def _of_classes(table: Table, layout: TableLayout) -> Any:
    """The diagnosis of all rows, or of a sample if they do not fit in memory."""
    import counterpoise
    from counterpoise.tabular import fits_in_memory, read_rows, sample_rows
    from counterpoise.tabular.fit import CHOOSING_ROWS

    few = fits_in_memory(table, layout)
    rows = read_rows(table, layout) if few else sample_rows(table, layout, CHOOSING_ROWS)
    return counterpoise.diagnose_classes(rows.X, rows.y, rows.groups, rows.sample_weight)
