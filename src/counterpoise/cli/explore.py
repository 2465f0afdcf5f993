"""``counterpoise diagnose | frontier | compare``: look at the data before choosing a method."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import numpy as np

from counterpoise.cli.options import TableRequest, as_json, model_options, table_options
from counterpoise.cli.printing import as_text, show_json, wrapped


@click.command()
@table_options
@click.option("--activation", "-a", default="identity", show_default=True,
              help="Activation of the neuron.")  # fmt: skip
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
        show_json(result)
    else:
        click.echo(str(result))


PICTURES = (".png", ".svg", ".pdf", ".jpg")


def _check_parent(option: str, path: str) -> None:
    """Check that a file can be written before the work begins."""
    folder = Path(path).parent
    if not folder.is_dir():
        raise click.UsageError(f"{option}: there is no folder {str(folder)!r}; make it first")
    if not os.access(folder, os.W_OK):
        raise click.UsageError(f"{option}: the folder {str(folder)!r} cannot be written to")


def _all_rows(request: TableRequest, command: str) -> Any:
    """The rows in memory, as cross-validation needs them; a sample if they do not fit."""
    from counterpoise.tabular import fits_in_memory, read_rows, sample_rows
    from counterpoise.tabular.fit import CHOOSING_ROWS

    table, learned = request.read()
    if fits_in_memory(table, learned.layout):
        return read_rows(table, learned.layout)
    click.echo(
        f"{command}: uses {CHOOSING_ROWS:,} rows drawn at random, because the table does not fit "
        "in memory",
        err=True,
    )
    return sample_rows(table, learned.layout, CHOOSING_ROWS, 0)


@click.command()
@table_options
@model_options
@click.option("--folds", type=click.IntRange(2), default=5, show_default=True,
              help="Folds of the cross-validation.")  # fmt: skip
@click.option("--repeats", type=click.IntRange(1), default=1, show_default=True,
              help="Number of cross-validations, with other folds each.")  # fmt: skip
@click.option("--plot", type=click.Path(dir_okay=False),
              help="Write a plot to this file (PNG, SVG).")  # fmt: skip
@as_json
def frontier(
    as_json: bool, folds: int, repeats: int, plot: str | None, activation: str, divergence: str,
    **options: Any,
) -> None:  # fmt: skip
    """Show what robustness costs on average and gains on the worst group, on held-out rows.

    Fits a range of nu, from the plain average to the worst group alone, with and without truncated
    targets and reference risks, and marks the best.

    \b
    counterpoise frontier diamonds.csv -y price -g clarity --plot frontier.png
    """
    from counterpoise.assessment.convergence import collecting_convergence
    from counterpoise.estimators.cross_validation import GroupDRONeuronCV

    if plot is not None:
        if Path(plot).suffix.lower() not in PICTURES:
            raise click.UsageError(f"--plot: {plot!r} must end with one of {', '.join(PICTURES)}")
        _check_parent("--plot", plot)
    rows = _all_rows(TableRequest.of(options), "frontier")
    model = GroupDRONeuronCV(activation, divergence=divergence, cv=folds, repeats=repeats)
    with collecting_convergence() as missed:
        model.fit(rows.X, rows.y, groups=rows.groups, sample_weight=rows.sample_weight)
    found = model.frontier_
    if plot is not None:
        found.plot(path=plot)
    if as_json:
        show_json(
            {
                "verdict": model.verdict_,
                "robust": model.robust_,
                "chosen": found.chosen,
                "not_converged": missed,
                "candidates": [
                    {
                        "family": found.family[i],
                        "nu": "inf" if np.isinf(found.nu[i]) else found.nu[i],
                        "average": found.average[i],
                        "worst": found.worst[i],
                        "standard_error": found.error[i],
                    }
                    for i in range(len(found))
                ],
            }
        )
        return
    click.echo(f"{wrapped(model.verdict_)}\n\n{found}")
    for status in missed:
        click.echo("\n" + wrapped(f"Note: the chosen fit did not converge. {status}"))
    if plot is not None:
        click.echo(f"\nPlot: {plot}")


METHODS = (
    "least-squares", "average", "ours", "ours-cv", "group-dro-eg", "primal", "mirror", "tilted",
    "group-cvar", "row-chi2",
)  # fmt: skip


def _methods(names: tuple[str, ...], activation: str, divergence: str) -> dict[str, Any]:
    from counterpoise import baselines
    from counterpoise.estimators.cross_validation import GroupDRONeuronCV
    from counterpoise.estimators.neuron import GroupDRONeuron

    made: dict[str, Callable[[], Any]] = {
        "least-squares": lambda: GroupDRONeuron("identity", nu=np.inf, prior="rows"),
        "average": lambda: GroupDRONeuron(activation, nu=np.inf, prior="rows"),
        "ours": lambda: GroupDRONeuron(activation, divergence=divergence),
        "ours-cv": lambda: GroupDRONeuronCV(activation, divergence=divergence),
        "group-dro-eg": lambda: baselines.ExponentiatedGradientNeuron(activation, random_state=0),
        "primal": lambda: baselines.PrimalExtrapolationNeuron(activation),
        "mirror": lambda: baselines.StochasticMirrorNeuron(activation, random_state=0),
        "tilted": lambda: baselines.TiltedNeuron(activation),
        "group-cvar": lambda: baselines.GroupCVaRNeuron(activation),
        "row-chi2": lambda: baselines.RowChiSquareNeuron(activation),
    }
    chosen = names or tuple(
        name for name in METHODS if not (name == "average" and activation == "identity")
    )
    return {name: made[name]() for name in chosen}


@click.command()
@table_options
@model_options
@click.option("--method", "-m", "names", multiple=True, type=click.Choice(METHODS),
              help="Method to compare; can be repeated.  [default: all]")  # fmt: skip
@click.option("--folds", type=click.IntRange(2), default=5, show_default=True,
              help="Folds of the cross-validation.")  # fmt: skip
@click.option("--out", type=click.Path(dir_okay=False), help="Write all figures to this JSON file.")
@as_json
def compare(
    as_json: bool, names: tuple[str, ...], folds: int, out: str | None, activation: str,
    divergence: str, **options: Any,
) -> None:  # fmt: skip
    """Compare group DRO with least squares and other methods on held-out rows.

    Every method is fitted to the same folds with its default settings, and scored on the rows it
    has not seen.

    \b
    least-squares  the linear model of the average      group-dro-eg  exponentiated gradient
    average        the neuron of the average            primal        primal extrapolation
    ours           GroupDRONeuron, nu = auto            mirror        stochastic mirror descent
    ours-cv        GroupDRONeuronCV, nu chosen          tilted        tilted (log-sum-exp) risk
    group-cvar     CVaR over groups                     row-chi2      chi-squared DRO over rows

    \b
    counterpoise compare diamonds.csv --target price --group clarity
    counterpoise compare diamonds.csv -y price -g clarity -m least-squares -m ours-cv --json
    """
    from counterpoise.assessment.comparison import cross_predict, held_out_intervals, usable_folds
    from counterpoise.assessment.convergence import collecting_convergence
    from counterpoise.common.text import clipped, figure, number, text_table
    from counterpoise.rows.groups import encode_groups
    from counterpoise.storage.files import write_text

    if out is not None:
        _check_parent("--out", out)
    request = TableRequest.of(options)
    rows = _all_rows(request, "compare")
    models = _methods(names, activation, divergence)
    found = []
    for name, model in models.items():
        began = time.perf_counter()
        with collecting_convergence() as missed:
            made = cross_predict(
                {name: model}, rows.X, rows.y, rows.groups, rows.sample_weight, folds=folds
            )
        seconds = time.perf_counter() - began
        risks, average = held_out_intervals(rows.y, made[name], rows.groups, rows.sample_weight)
        worst = int(np.nanargmax(risks.values))
        found.append(
            {
                "method": name,
                "average": average,
                "worst": risks.worst,
                "worst_group": risks.labels.tolist()[worst],
                "seconds": seconds,
                "not_converged": len(missed),
                "status": missed[0] if missed else None,
                "groups": {
                    str(label): risks[label] for label in risks
                },
            }
        )  # fmt: skip
    found.sort(key=lambda row: row["worst"].value)
    if out is not None:
        write_text(Path(out), as_text(found) + "\n")
    if as_json:
        show_json(found)
        return
    best, unit = found[0], request.layout["target"]
    click.echo(wrapped(
        f"Best on the worst group: {best['method']}, with an error of "
        f"{figure(best['worst'].value ** 0.5)} there and {figure(best['average'] ** 0.5)} over all "
        f"rows. Root mean squared error, held out, in units of {unit}."
    ))  # fmt: skip
    head = ["method", "worst group's risk", "95% interval", "worst group", "average", "seconds"]
    body = [
        [
            row["method"] + ("*" if row["not_converged"] else ""),
            number(row["worst"].value),
            f"{number(row['worst'].low)} .. {number(row['worst'].high)}",
            clipped(str(row["worst_group"])),
            number(row["average"]),
            f"{row['seconds']:.1f}",
        ]
        for row in found
    ]
    used = usable_folds(folds, encode_groups(rows.groups, len(rows))[1])
    click.echo(f"\nMean squared error on rows held out in {used} folds, default settings:\n")
    click.echo(text_table(head, body))
    for row in found:
        if row["not_converged"]:
            fits = f"{row['not_converged']} of its fits did not converge"
            click.echo(wrapped(f"* {row['method']}: {fits}. {row['status']}"))
