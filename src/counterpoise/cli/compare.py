"""``counterpoise compare``: group DRO, the plain average and other methods on held-out rows."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from counterpoise.cli.judged import headlines, judge, needs_group, table
from counterpoise.cli.models import ModelRequest, model_options
from counterpoise.cli.options import TableRequest, as_json, check_parent, table_options
from counterpoise.cli.printing import as_text, say, say_notes, show_json, wrapped
from counterpoise.cli.wording import in_options

if TYPE_CHECKING:
    from counterpoise.tabular.encoded_rows import EncodedRows
    from counterpoise.tabular.layout import TableLayout

FOR_NUMBERS = (
    "least-squares", "average", "equal-weights", "boosting", "ours", "ours-cv", "group-dro-eg",
    "primal", "mirror", "tilted", "group-cvar", "row-chi2", "least-squares+group", "per-group",
    "boosting+group", "ours-cv+group",
)  # fmt: skip
FOR_CLASSES = (
    "logistic", "balanced", "subsampled", "boosting", "boosting-balanced", "ours", "ours-cv",
    "group-dro-eg", "tilted", "row-cvar", "row-chi2", "logistic+group", "per-group",
    "boosting+group", "ours-cv+group",
)  # fmt: skip
METHODS = tuple(dict.fromkeys((*FOR_NUMBERS, *FOR_CLASSES)))
# Boosting stops early by rows that it sets aside, of every class: this many must be there.
RARE = 10


def _for_numbers(activation: str, divergence: str) -> dict[str, Callable[[], Any]]:
    from sklearn.ensemble import HistGradientBoostingRegressor

    from counterpoise import baselines
    from counterpoise.estimators.cross_validation import GroupDRONeuronCV
    from counterpoise.estimators.neuron import GroupDRONeuron

    def average(activation: str) -> Any:
        return GroupDRONeuron(activation, nu=math.inf, prior="rows")

    def chosen(**options: Any) -> Any:
        return GroupDRONeuronCV(activation, divergence=divergence, **options)

    def boosting() -> Any:
        return HistGradientBoostingRegressor(random_state=0)

    return {
        "least-squares": lambda: average("identity"),
        "average": lambda: average(activation),
        "equal-weights": lambda: GroupDRONeuron(activation, nu=math.inf),
        "boosting": boosting,
        "ours": lambda: GroupDRONeuron(activation, divergence=divergence),
        "ours-cv": chosen,
        "group-dro-eg": lambda: baselines.ExponentiatedGradientNeuron(activation, random_state=0),
        "primal": lambda: baselines.PrimalExtrapolationNeuron(activation),
        "mirror": lambda: baselines.StochasticMirrorNeuron(activation, random_state=0),
        "tilted": lambda: baselines.TiltedNeuron(activation),
        "group-cvar": lambda: baselines.GroupCVaRNeuron(activation),
        "row-chi2": lambda: baselines.RowChiSquareNeuron(activation),
        "least-squares+group": lambda: baselines.WithGroup(average("identity")),
        "per-group": lambda: baselines.PerGroup(average(activation)),
        "boosting+group": lambda: baselines.WithGroup(boosting()),
        "ours-cv+group": lambda: chosen(group_known=True),
    }


def _for_classes(
    wanted: ModelRequest, layout: TableLayout, rows: EncodedRows
) -> dict[str, Callable[[], Any]]:
    from sklearn.ensemble import HistGradientBoostingClassifier

    from counterpoise import baselines

    def classifier(**options: Any) -> Any:
        return wanted.estimator(layout, **options)

    def baseline(made: type) -> Any:
        return made(**wanted.baseline_options(), random_state=0)

    def logistic() -> Any:
        return classifier(nu=math.inf, prior="rows")

    def boosting() -> Any:
        import numpy as np

        rarest = np.unique(np.asarray(rows.y), return_counts=True)[1].min()
        early = "auto" if rarest >= RARE else False
        return HistGradientBoostingClassifier(random_state=0, early_stopping=early)

    return {
        "logistic": logistic,
        "balanced": lambda: classifier(nu=math.inf),
        "subsampled": lambda: baseline(baselines.SubsampledClassifier),
        "boosting": boosting,
        "boosting-balanced": lambda: baselines.Balanced(boosting()),
        "ours": classifier,
        "ours-cv": lambda: classifier(cv=True),
        "group-dro-eg": lambda: baseline(baselines.ExponentiatedGradientClassifier),
        "tilted": lambda: baselines.TiltedClassifier(**wanted.baseline_options()),
        "row-cvar": lambda: baselines.RowCVaRClassifier(**wanted.baseline_options()),
        "row-chi2": lambda: baselines.RowChiSquareClassifier(**wanted.baseline_options()),
        "logistic+group": lambda: baselines.WithGroup(logistic()),
        "per-group": lambda: baselines.PerGroup(logistic()),
        "boosting+group": lambda: baselines.WithGroup(boosting()),
        "ours-cv+group": lambda: classifier(cv=True, group_known=True),
    }


def _obstacle(name: str, layout: TableLayout, rows: EncodedRows) -> str:
    """Say why a method cannot be compared on these rows, and what to do; empty if it can."""
    import numpy as np
    from scipy import sparse

    from counterpoise.rows.classes import decides_class
    from counterpoise.rows.memberships import RowGroups

    if name.startswith("boosting") and sparse.issparse(rows.X):
        return "boosting needs dense features; leave out columns of many categories with --drop"
    if not needs_group(name):
        return ""
    if layout.overlapping:
        return "predicting with the group needs one group per row; leave out --overlapping"
    if layout.with_label:
        return "--with-label makes the class part of the group; leave it out to predict with both"
    found = RowGroups.of(rows.groups, len(rows))
    if found.n_groups < 2:
        return "predicting with the group needs several groups; name a column with --group"
    if layout.classes and decides_class(found.codes, np.asarray(rows.y)):
        return "every group has rows of one class only; predicting with it needs other groups"
    return ""


def _methods(
    names: tuple[str, ...], wanted: ModelRequest, layout: TableLayout, rows: EncodedRows
) -> tuple[dict[str, Any], dict[str, list[str]]]:
    """The methods to compare, by name, and the names of those left out, by reason.

    If none is named, these are all that suit the target and the groups.
    """
    if layout.classes:
        made = _for_classes(wanted, layout, rows)
    elif wanted.loss in (None, "squared") and wanted.alpha is None:
        made = _for_numbers(wanted.activation, wanted.divergence)
    else:
        made = {
            "average": lambda: wanted.estimator(layout, nu=math.inf, prior="rows"),
            "ours": lambda: wanted.estimator(layout),
        }
    strange = [name for name in names if name not in made]
    if strange:
        kind = "classes" if layout.classes else "numbers"
        raise click.UsageError(
            f"--method {strange[0]} does not fit {kind} with this loss; use {', '.join(made)}"
        )
    linear = wanted.activation == "identity"
    chosen = dict.fromkeys(names) or dict.fromkeys(
        name for name in made if not (name == "average" and linear and "least-squares" in made)
    )
    left_out: dict[str, list[str]] = {}
    for name in list(chosen):
        if why := _obstacle(name, layout, rows):
            if names:
                raise click.UsageError(f"--method {name} cannot be compared here: {why}")
            left_out.setdefault(why, []).append(name)
            del chosen[name]
    return {name: made[name]() for name in chosen}, left_out


@click.command()
@table_options
@model_options
@click.option("--method", "-m", "names", multiple=True, type=click.Choice(METHODS),
              metavar="METHOD",
              help="Method to compare; can be repeated.  [default: all]")  # fmt: skip
@click.option("--folds", type=click.IntRange(2), default=5, show_default=True,
              help="Folds of the cross-validation.")  # fmt: skip
@click.option("--out", type=click.Path(dir_okay=False), help="Write all figures to this JSON file.")
@as_json
def compare(
    as_json: bool, names: tuple[str, ...], folds: int, out: str | None, **options: Any
) -> None:  # fmt: skip
    """Compare group DRO with simple alternatives and other methods on held-out rows.

    Every method is fitted to the same folds with its default settings, and scored on the rows it
    has not seen. For numbers:

    \b
    least-squares        the linear model of the average
    average              the neuron of the average
    equal-weights        the same, with all groups weighted alike
    boosting             gradient boosting of scikit-learn
    ours                 GroupDRONeuron, nu = auto
    ours-cv              GroupDRONeuronCV, nu chosen
    group-dro-eg         exponentiated gradient
    primal               primal extrapolation
    mirror               stochastic mirror descent
    tilted               tilted (log-sum-exp) risk
    group-cvar           CVaR over groups
    row-chi2             chi-squared DRO over rows
    least-squares+group  least squares, with the group as a feature
    per-group            the average of every group by itself
    boosting+group       boosting, with the group as a feature
    ours-cv+group        GroupDRONeuronCV, with the group known

    For classes:

    \b
    logistic             logistic regression
    balanced             the same, with all groups weighted alike
    subsampled           the same, on as many rows of each group
    boosting             gradient boosting of scikit-learn
    boosting-balanced    the same, with all groups weighted alike
    ours                 GroupDROClassifier, nu = auto
    ours-cv              GroupDROClassifierCV, nu chosen
    group-dro-eg         exponentiated gradient
    tilted               tilted (log-sum-exp) risk
    row-cvar             CVaR over rows
    row-chi2             chi-squared DRO over rows
    logistic+group       logistic regression, with the group as a feature
    per-group            logistic regression of every group by itself
    boosting+group       boosting, with the group as a feature
    ours-cv+group        GroupDROClassifierCV, with the group known

    Methods that end in +group, and per-group, need the group of every row to predict. They are left
    out with --with-label and --overlapping.

    \b
    counterpoise compare diamonds.csv --target price --group clarity
    counterpoise compare diamonds.csv -y price -g clarity -m boosting -m ours-cv --json
    counterpoise compare adult.csv -y income -g sex --with-label --missing drop
    """
    if out is not None:
        check_parent("--out", out)
    wanted = ModelRequest.of(options)
    rows, learned = TableRequest.of(options).rows_in_memory()
    from counterpoise.assessment.folds import usable_folds
    from counterpoise.rows.memberships import RowGroups
    from counterpoise.storage.files import write_text

    notes, layout = learned.remarks, learned.layout
    models, left_out = _methods(names, wanted, layout, rows)
    ours = wanted.estimator(layout)
    found = [judge(name, model, rows, folds, ours) for name, model in models.items()]
    found.sort(key=lambda row: row.order)
    if out is not None:
        write_text(Path(out), as_text([row.json() for row in found]) + "\n")
    if as_json:
        say_notes(notes, compare, err=True)  # the JSON is a list of methods
        show_json([row.json() for row in found])
        return
    for line in headlines(found):
        say(wrapped(line))
    used = usable_folds(folds, RowGroups.of(rows.groups, len(rows)))
    say(f"\n{found[0].title(layout.target)} on rows held out in {used} folds, default settings:\n")
    say(table(found))
    for row in found:
        if row.missed:
            fits = f"{len(row.missed)} of its fits did not converge"
            say(wrapped(f"* {row.method}: {fits}. {in_options(row.missed[0], compare)}"))
    if left_out or notes:
        say("")
    for why, which in left_out.items():
        say(wrapped(f"Left out: {', '.join(which)}, because {why}."))
    say_notes(notes, compare)
