"""``counterpoise diagnose | frontier | compare``: look before choosing."""

from __future__ import annotations

import os
import time
import warnings
from pathlib import Path
from typing import Any

import click
import numpy as np

from counterpoise.cli.options import Asked, as_json, model_options, read_table, table_options
from counterpoise.cli.printing import as_text, clipped, columns, number, show_json, wrapped


@click.command()
@table_options
@click.option("--activation", "-a", default="identity", show_default=True, help="The neuron's.")
@as_json
def diagnose(as_json: bool, activation: str, **options: Any) -> None:
    """Does the theory speak about these rows, and is worst-group training wise here?

    Looks at tails, margins, noise and sizes group by group, and gives advice.

    \b
    counterpoise diagnose diamonds.csv --target price --group clarity
    """
    from counterpoise.assessment.diagnosis import diagnose as diagnosis
    from counterpoise.common.progress import stage
    from counterpoise.tabular import RowSource, fits_in_memory, read_rows

    asked = read_table(options)
    table, found = asked.table, asked.learned.columns
    stage("diagnosing")
    if fits_in_memory(table, found):
        rows = read_rows(table, found)
        result = diagnosis.diagnose(
            rows.X, rows.y, rows.groups, rows.sample_weight,
            activation=activation, feature_names=rows.feature_names,
        )  # fmt: skip
    else:
        source = RowSource(table, found, n_rows=asked.learned.used)
        result = diagnosis.diagnose(source, activation=activation)
    stage(None)
    if as_json:
        show_json(result)
    else:
        click.echo(str(result))


PICTURES = (".png", ".svg", ".pdf", ".jpg")


def _check_parent(option: str, path: str) -> None:
    """A file that can be written, known before the work begins."""
    folder = Path(path).parent
    if not folder.is_dir():
        raise click.UsageError(f"{option}: there is no folder {str(folder)!r}; make it first")
    if not os.access(folder, os.W_OK):
        raise click.UsageError(f"{option}: the folder {str(folder)!r} cannot be written to")


def _all_rows(asked: Asked, command: str) -> Any:
    """The rows in memory, which cross-validation needs; a sample if they are too many."""
    from counterpoise.tabular import fits_in_memory, read_rows, sample_rows
    from counterpoise.tabular.fit import CHOOSING_ROWS

    table, found = asked.table, asked.learned.columns
    if fits_in_memory(table, found):
        return read_rows(table, found)
    click.echo(f"{command}: on {CHOOSING_ROWS:,} rows drawn at random; all are too many", err=True)
    return sample_rows(table, found, CHOOSING_ROWS, 0)


@click.command()
@table_options
@model_options
@click.option("--folds", type=click.IntRange(2), default=5, show_default=True)
@click.option("--repeats", type=click.IntRange(1), default=1, show_default=True,
              help="How many times to make such folds.")  # fmt: skip
@click.option("--plot", type=click.Path(dir_okay=False), help="Draw it to this file (PNG, SVG).")
@as_json
def frontier(
    as_json: bool, folds: int, repeats: int, plot: str | None, activation: str, divergence: str,
    **options: Any,
) -> None:  # fmt: skip
    """What robustness costs on average and gains on the worst group, held out.

    Fits along nu, from the plain average to the worst group alone, with and without truncated
    labels and reference risks; the best is marked.

    \b
    counterpoise frontier diamonds.csv -y price -g clarity --plot frontier.png
    """
    from counterpoise.estimators.cross_validation import GroupDRONeuronCV

    if plot is not None:
        if Path(plot).suffix.lower() not in PICTURES:
            raise click.UsageError(f"--plot: {plot!r} must end with one of {', '.join(PICTURES)}")
        _check_parent("--plot", plot)
    rows = _all_rows(read_table(options), "frontier")
    model = GroupDRONeuronCV(activation, divergence=divergence, cv=folds, repeats=repeats)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
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
    click.echo(f"{found}\n\n{wrapped(model.verdict_)}")
    if plot is not None:
        click.echo(f"\nPicture: {plot}")


METHODS = (
    "least-squares", "average", "ours", "ours-cv", "group-dro-eg", "primal", "mirror", "tilted",
    "group-cvar", "row-chi2",
)  # fmt: skip


def _methods(names: tuple[str, ...], activation: str, divergence: str) -> dict[str, Any]:
    from counterpoise import baselines
    from counterpoise.estimators.cross_validation import GroupDRONeuronCV
    from counterpoise.estimators.neuron import GroupDRONeuron

    made = {
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
              help="Only this one. Can be repeated.")  # fmt: skip
@click.option("--folds", type=click.IntRange(2), default=5, show_default=True)
@click.option("--out", type=click.Path(dir_okay=False), help="Write all figures to this JSON file.")
@as_json
def compare(
    as_json: bool, names: tuple[str, ...], folds: int, out: str | None, activation: str,
    divergence: str, **options: Any,
) -> None:  # fmt: skip
    """Group DRO against least squares and what people use instead, on rows held out.

    Every method is fitted to the same folds with its default settings, and judged on the rows it
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
    from counterpoise.rows.groups import encode_groups
    from counterpoise.storage.files import write_text

    if out is not None:
        _check_parent("--out", out)
    rows = _all_rows(read_table(options), "compare")
    models = _methods(names, activation, divergence)
    found = []
    for name, model in models.items():
        began = time.perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
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
    head = ["method", "worst group's risk", "95% interval", "worst group", "average", "seconds"]
    body = [
        [
            row["method"],
            number(row["worst"].value),
            f"{number(row['worst'].low)} .. {number(row['worst'].high)}",
            clipped(str(row["worst_group"])),
            number(row["average"]),
            f"{row['seconds']:.1f}",
        ]
        for row in found
    ]
    used = usable_folds(folds, encode_groups(rows.groups, len(rows))[1])
    click.echo(f"Mean squared error of rows held out, in {used} folds, default settings:\n")
    click.echo(columns(head, body))
