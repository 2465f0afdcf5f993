"""``counterpoise compare``: group DRO, the plain average and other methods on held-out rows."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import numpy as np

from counterpoise.cli.judged import judge
from counterpoise.cli.models import ModelRequest, model_options
from counterpoise.cli.options import TableRequest, as_json, check_parent, table_options
from counterpoise.cli.printing import as_text, say, say_notes, show_json, wrapped
from counterpoise.cli.wording import in_options
from counterpoise.common.task_words import words_of
from counterpoise.common.text import text_table

if TYPE_CHECKING:
    from counterpoise.tabular.layout import TableLayout

FOR_NUMBERS = (
    "least-squares", "average", "ours", "ours-cv", "group-dro-eg", "primal", "mirror", "tilted",
    "group-cvar", "row-chi2",
)  # fmt: skip
FOR_CLASSES = (
    "logistic", "balanced", "subsampled", "ours", "ours-cv", "group-dro-eg", "tilted", "row-cvar",
    "row-chi2",
)  # fmt: skip
METHODS = tuple(dict.fromkeys((*FOR_NUMBERS, *FOR_CLASSES)))


def _for_numbers(activation: str, divergence: str) -> dict[str, Callable[[], Any]]:
    from counterpoise import baselines
    from counterpoise.estimators.cross_validation import GroupDRONeuronCV
    from counterpoise.estimators.neuron import GroupDRONeuron

    return {
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


def _for_classes(wanted: ModelRequest, layout: TableLayout) -> dict[str, Callable[[], Any]]:
    from counterpoise import baselines

    def classifier(**options: Any) -> Any:
        return wanted.estimator(layout, **options)

    def baseline(made: type) -> Any:
        return made(**wanted.baseline_options(), random_state=0)

    return {
        "logistic": lambda: classifier(nu=np.inf, prior="rows"),
        "balanced": lambda: classifier(nu=np.inf),
        "subsampled": lambda: baseline(baselines.SubsampledClassifier),
        "ours": classifier,
        "ours-cv": lambda: classifier(cv=True),
        "group-dro-eg": lambda: baseline(baselines.ExponentiatedGradientClassifier),
        "tilted": lambda: baselines.TiltedClassifier(**wanted.baseline_options()),
        "row-cvar": lambda: baselines.RowCVaRClassifier(**wanted.baseline_options()),
        "row-chi2": lambda: baselines.RowChiSquareClassifier(**wanted.baseline_options()),
    }


def _methods(names: tuple[str, ...], wanted: ModelRequest, layout: TableLayout) -> dict[str, Any]:
    """The methods to compare, by name; those that suit the target if none is named."""
    if layout.classes:
        made = _for_classes(wanted, layout)
    elif wanted.loss in (None, "squared") and wanted.alpha is None:
        made = _for_numbers(wanted.activation, wanted.divergence)
    else:
        made = {
            "average": lambda: wanted.estimator(layout, nu=np.inf, prior="rows"),
            "ours": lambda: wanted.estimator(layout),
        }
    strange = [name for name in names if name not in made]
    if strange:
        kind = "classes" if layout.classes else "numbers"
        raise click.UsageError(
            f"--method {strange[0]} does not fit {kind} with this loss; use {', '.join(made)}"
        )
    linear = wanted.activation == "identity"
    chosen = names or tuple(
        name for name in made if not (name == "average" and linear and "least-squares" in made)
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
    as_json: bool, names: tuple[str, ...], folds: int, out: str | None, **options: Any
) -> None:  # fmt: skip
    """Compare group DRO with the plain average and other methods on held-out rows.

    Every method is fitted to the same folds with its default settings, and scored on the rows it
    has not seen. For numbers:

    \b
    least-squares  the linear model of the average      group-dro-eg  exponentiated gradient
    average        the neuron of the average            primal        primal extrapolation
    ours           GroupDRONeuron, nu = auto            mirror        stochastic mirror descent
    ours-cv        GroupDRONeuronCV, nu chosen          tilted        tilted (log-sum-exp) risk
    group-cvar     CVaR over groups                     row-chi2      chi-squared DRO over rows

    For classes:

    \b
    logistic       logistic regression                  group-dro-eg  exponentiated gradient
    balanced       all groups weighted alike            tilted        tilted (log-sum-exp) risk
    subsampled     as many rows of each group           row-cvar      CVaR over rows
    ours           GroupDROClassifier, nu = auto        row-chi2      chi-squared DRO over rows
    ours-cv        GroupDROClassifierCV, nu chosen

    \b
    counterpoise compare diamonds.csv --target price --group clarity
    counterpoise compare diamonds.csv -y price -g clarity -m least-squares -m ours-cv --json
    counterpoise compare adult.csv -y income -g sex --with-label --missing drop
    """
    from counterpoise.assessment.folds import usable_folds
    from counterpoise.rows.memberships import RowGroups
    from counterpoise.storage.files import write_text

    if out is not None:
        check_parent("--out", out)
    wanted = ModelRequest.of(options)
    rows, learned = TableRequest.of(options).rows_in_memory()
    notes, layout = learned.remarks, learned.layout
    models = _methods(names, wanted, layout)
    found = [
        judge(name, model, rows, folds, classes=bool(layout.classes))
        for name, model in models.items()
    ]
    found.sort(key=lambda row: row.order)
    if out is not None:
        write_text(Path(out), as_text([row.json() for row in found]) + "\n")
    if as_json:
        say_notes(notes, compare, err=True)  # the JSON is a list of methods
        show_json([row.json() for row in found])
        return
    words = words_of(next(iter(models.values())))
    say(wrapped(f"Best on the worst group: {found[0].headline(words, layout.target)}"))
    used = usable_folds(folds, RowGroups.of(rows.groups, len(rows)))
    what = "Accuracy and log loss" if layout.classes else words.title
    say(f"\n{what} on rows held out in {used} folds, default settings:\n")
    say(text_table(found[0].head(), [row.cells() for row in found]))
    for row in found:
        if row.missed:
            fits = f"{len(row.missed)} of its fits did not converge"
            say(wrapped(f"* {row.method}: {fits}. {in_options(row.missed[0], compare)}"))
    if notes:
        say("")
        say_notes(notes, compare)
