"""``counterpoise frontier``: what robustness costs and gains on held-out rows."""

from __future__ import annotations

import io
import math
from pathlib import Path
from typing import Any

import click

from counterpoise.cli.models import ModelRequest, model_options, scoring_option
from counterpoise.cli.options import (
    TableRequest,
    as_json,
    check_parent,
    table_options,
)
from counterpoise.cli.printing import say, say_notes, show_json, wrapped
from counterpoise.cli.wording import in_options

# Dots per inch of a plot.
DOTS = 150
PLOTS = (".png", ".svg", ".pdf", ".jpg")


@click.command()
@table_options
@model_options
@click.option("--folds", type=click.IntRange(2), default=5, show_default=True,
              help="Folds of the cross-validation.")  # fmt: skip
@click.option("--repeats", type=click.IntRange(1), default=1, show_default=True,
              help="Cross-validation repeats, each with new folds.")  # fmt: skip
@scoring_option
@click.option("--plot", type=click.Path(dir_okay=False),
              help="Write a plot to this file (PNG, SVG).")  # fmt: skip
@as_json
def frontier(
    as_json: bool, folds: int, repeats: int, scoring: str | None, plot: str | None, **options: Any
) -> None:  # fmt: skip
    """Show what robustness costs on average and gains on the worst group, on held-out rows.

    Fits a range of nu, from the plain average to the worst group alone, with and without truncated
    targets and reference risks, and marks the best.

    \b
    counterpoise frontier diamonds.csv -y price -g clarity --plot frontier.png
    """
    if plot is not None:
        if Path(plot).suffix.lower() not in PLOTS:
            raise click.UsageError(f"--plot: {plot!r} must end with one of {', '.join(PLOTS)}")
        check_parent("--plot", plot)
    wanted = ModelRequest.of(options)
    rows, learned = TableRequest.of(options).rows_in_memory()
    from counterpoise.assessment.convergence import collecting_convergence

    notes = learned.remarks
    model = wanted.estimator(learned.layout, cv=True, folds=folds, repeats=repeats, scoring=scoring)
    with collecting_convergence() as missed:
        model.fit(rows.X, rows.y, groups=rows.groups, sample_weight=rows.sample_weight)
    found = model.frontier_
    if plot is not None:
        _write_plot(found, Path(plot))
    if as_json:
        show_json(
            {
                "verdict": model.verdict_,
                "robust": model.robust_,
                "chosen": found.chosen,
                "not_converged": missed,
                "notes": notes,
                "candidates": [
                    {
                        "family": found.family[i],
                        "nu": "inf" if math.isinf(found.nu[i]) else found.nu[i],
                        "average": found.average[i],
                        "worst": found.worst[i],
                        "standard_error": found.error[i],
                    }
                    for i in range(len(found))
                ],
            }
        )
        return
    say(f"{wrapped(in_options(model.verdict_, frontier))}\n\n{found}")
    for status in missed:
        say(
            "\n" + wrapped(f"Note: the chosen fit did not converge. {in_options(status, frontier)}")
        )
    if notes:
        say("")
        say_notes(notes, frontier)
    if plot is not None:
        say(f"\nPlot: {plot}")


def _write_plot(found: Any, path: Path) -> None:
    """Draw in memory first, so that a full disk leaves no part of a plot."""
    from counterpoise.storage.files import write_bytes

    drawn = io.BytesIO()
    found.plot().figure.savefig(drawn, format=path.suffix[1:].lower(), dpi=DOTS)
    write_bytes(path, drawn.getvalue())
