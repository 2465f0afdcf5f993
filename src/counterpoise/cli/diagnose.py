"""``counterpoise diagnose``: check whether worst-group training suits the data."""

from __future__ import annotations

from typing import Any

import click

from counterpoise.activations import NAMED as ACTIVATIONS
from counterpoise.cli.options import TableRequest, as_json, table_options
from counterpoise.cli.printing import say, say_notes, show_json
from counterpoise.cli.wording import in_options
from counterpoise.common.jsonable import plain


@click.command()
@table_options
@click.option("--activation", "-a", type=click.Choice(list(ACTIVATIONS)), default="identity",
              show_default=True, help="Activation of the neuron.")  # fmt: skip
@as_json
def diagnose(as_json: bool, activation: str, **options: Any) -> None:
    """Check whether worst-group training suits the data, and whether the theory covers it.

    Measures tails, margins, noise and sizes group by group, and gives advice.

    \b
    counterpoise diagnose diamonds.csv --target price --group clarity
    """
    from counterpoise.assessment.diagnosis import diagnose as diagnosis
    from counterpoise.common.progress import stage
    from counterpoise.tabular import TableSource, fits_in_memory, read_rows

    table, learned = TableRequest.of(options).read()
    layout = learned.layout
    stage("diagnosing")
    given: tuple[Any, ...] = (TableSource(table, layout, n_rows=learned.used),)
    if fits_in_memory(table, layout):
        rows = read_rows(table, layout)
        given = (rows.X, rows.y, rows.groups, rows.sample_weight)
    result = diagnosis.diagnose(*given, activation=activation, feature_names=layout.names)
    stage(None)
    if as_json:
        show_json({**plain(result), "notes": learned.remarks})
        return
    say(in_options(str(result), diagnose))
    if learned.remarks:
        say("")
        say_notes(learned.remarks, diagnose)
