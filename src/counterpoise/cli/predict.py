"""``counterpoise predict``: predict the rows of a table with a stored model."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import click

from counterpoise.cli.options import CHECKED, as_json, file_options, names
from counterpoise.cli.printing import say, scores_json, show_json

PREDICTION = "prediction"


@click.command()
@click.argument("model", type=click.Path())
@click.argument("data", type=click.Path())
@click.option("--out", type=click.Path(dir_okay=False),
              help="A .csv, .parquet or .arrow file.  [default: print CSV]")  # fmt: skip
@click.option("--with", "extra", multiple=True, metavar="COLUMN,...", callback=names,
              help="Data columns to include in the output.")  # fmt: skip
@click.option("--proba", is_flag=True,
              help="Add the probability of every class, in columns such as P(yes).")  # fmt: skip
@click.option("--unseen", type=click.Choice(["refuse", "base"]), default="refuse",
              show_default=True, help="Categories that the fit never saw: report an error, or "
              "count them as the most frequent level; a new group gets mean "
              "coefficients.")  # fmt: skip
@click.option("--score", is_flag=True,
              help="Print risks by group instead; the data must have the target.")  # fmt: skip
@click.option("--spreadsheet-safe", is_flag=True, help="Put an apostrophe before text that a "
              "spreadsheet would run as a formula, and escape control characters.")  # fmt: skip
@file_options
@as_json
@click.pass_context
def predict(
    ctx: click.Context, /, model: str, data: str, out: str | None, extra: list[str],
    proba: bool, unseen: str, score: bool, spreadsheet_safe: bool, as_json: bool, **options: Any,
) -> None:  # fmt: skip
    """Predict the rows of a table with a stored model.

    MODEL is a folder written by `counterpoise fit --out`. Predictions are numbers or classes. A row
    with a missing feature has no prediction if the fit left such rows out.

    \b
    counterpoise predict fit new.csv > predictions.csv
    counterpoise predict fit new.parquet --out predictions.parquet --with id
    counterpoise predict fit new.csv --proba
    counterpoise predict fit labelled.csv --score
    """
    if score and (out is not None or extra or proba):
        raise click.UsageError("--score prints only risks; leave out --out, --with and --proba")
    if as_json and not score:
        raise click.UsageError("--json needs --score; predictions are CSV, Parquet or Arrow")
    if spreadsheet_safe and out is not None and Path(out).suffix.lower() != ".csv":
        raise click.UsageError("--spreadsheet-safe is for CSV; leave it out, or write a .csv file")
    _check(model, data, out, options)
    from counterpoise.storage.models import load
    from counterpoise.tabular import open_table

    fitted = load(model)
    layout = _layout(fitted, model)
    options["numbers"] = [*options["numbers"], *layout.numbers]
    table = open_table(data, **options, text=layout.text, words=layout.words)
    if score:
        _score(fitted, table, unseen, as_json)
        return
    from counterpoise.tabular.predict import predictions
    from counterpoise.tabular.safe_text import protected

    batches = predictions(fitted, table, extra=extra, unseen=unseen, name=PREDICTION, proba=proba)
    count, without = 0, 0
    with _writer(out) as write:
        for batch in batches:
            write(protected(batch) if spreadsheet_safe else batch)
            count += batch.num_rows
            without += batch.column(PREDICTION).null_count
    if without and ctx.obj["progress"]:
        say(f"{without:,} of {count:,} rows have a missing feature and no prediction",
                   err=True)  # fmt: skip
    if out is not None:
        say(f"Wrote {count:,} predictions to {out}")


def _check(model: str, data: str, out: str | None, options: dict[str, Any]) -> None:
    """Check what can be known without reading a file, before numpy is imported."""
    from counterpoise.storage.folders import check_stored
    from counterpoise.tabular.requests import check_file, check_written

    check_stored(model)
    check_file(data, **{name: options[name] for name in CHECKED})
    if out is not None:
        check_written(Path(out))


def _layout(fitted: Any, folder: str) -> Any:
    if not hasattr(fitted, "steps"):
        raise click.UsageError(
            f"the model in {folder!r} was fitted to arrays, not to a table; use it from Python: "
            "counterpoise.load(...).predict(X)"
        )
    return fitted.steps[0][1].layout_


@contextmanager
def _writer(out: str | None) -> Iterator[Callable[[Any], None]]:
    """Give a function that writes batches to standard output, or to a file."""
    import pyarrow.csv as csv

    if out is None:
        from counterpoise.tabular.predict import writing
        from counterpoise.tabular.safe_text import shown

        stream: Any = sys.stdout.buffer
        terminal = sys.stdout.isatty()
        made: list[Any] = []

        def show(batch: Any) -> None:
            if terminal:  # which would obey control characters
                batch = shown(batch)
            with writing("standard output"):
                if not made:
                    made.append(csv.CSVWriter(stream, batch.schema))
                made[0].write(batch)
                stream.flush()

        yield show
        if made:
            made[0].close()
        return
    from counterpoise.tabular.predict import file_writer

    with file_writer(Path(out)) as write:
        yield write


def _score(fitted: Any, table: Any, unseen: str, as_json: bool) -> None:
    import numpy as np

    from counterpoise.tabular import DataError, read_rows
    from counterpoise.tabular.errors import check_names
    from counterpoise.tabular.predict import known_groups

    layout, model = fitted.steps[0][1].layout_, fitted.steps[-1][1]
    check_names((layout.target,), table.names, table.where, "target")
    rows = read_rows(table, layout, labelled=False, unseen=unseen)
    y = np.full(len(rows), np.nan) if rows.y is None else rows.y
    known = np.array([label is not None for label in y]) if layout.classes else np.isfinite(y)
    if rows.sample_weight is not None:
        known &= rows.sample_weight > 0
    used = np.flatnonzero(known)
    if not len(used):
        what = "class" if layout.classes else "number"
        raise DataError(
            f"no row of {table.where} has a {what} in {layout.target!r}; use other data"
        )
    groups = np.zeros(len(used), int) if rows.groups is None else rows.groups[used]
    weights = None if rows.sample_weight is None else rows.sample_weight[used]
    left_out = table.n_rows - len(used)
    if getattr(model, "uses_group_", ""):
        check_names(layout.group, table.names, table.where, "group")
        model = _OfGroups(model, known_groups(groups, model, unseen))
    judged = _score_classes if layout.classes else _score_numbers
    found, text = judged(model, rows.X[used], y[used], groups, weights, layout.target)
    if as_json:
        show_json({"rows": len(used), "left_out": left_out, **found})
        return
    say(text)
    if left_out:
        say(f"{left_out:,} of {table.n_rows:,} rows have a missing value and were left out")


class _OfGroups:
    """A model that uses the group, with the groups of the rows to predict."""

    uses_group_ = ""

    def __init__(self, model: Any, groups: Any) -> None:
        self._model, self._groups = model, groups

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._model, name)
        asks = name in ("predict", "predict_proba", "decision_function")
        return partial(found, groups=self._groups) if asks else found


def _score_numbers(
    model: Any, X: Any, y: Any, groups: Any, weights: Any, target: str
) -> tuple[dict[str, Any], str]:
    """Risks by group, as JSON and as text."""
    import numpy as np

    from counterpoise.assessment.intervals import group_intervals
    from counterpoise.assessment.row_losses import prediction_losses
    from counterpoise.common.task_words import words_of
    from counterpoise.common.text import amount, text_table
    from counterpoise.rows.memberships import RowGroups

    predicted = model.predict(X)
    words, losses = words_of(model), prediction_losses(model, y, predicted)
    risks = group_intervals(losses, RowGroups.of(groups, len(y)), weights)
    average = float(np.average(losses, weights=weights))
    found = {
        "average": average,
        "worst": risks.worst,
        "groups": {str(label): risks[label] for label in risks},
    }
    if words.rooted:
        found["rmse"] = {"average": words.shown(average), "worst": words.shown(risks.worst.value)}
        found["mae"] = float(np.average(np.abs(y - predicted), weights=weights))
    rows = [
        [str(label), f"{size:,.0f}", amount(words.shown(one.value)),
         f"{amount(words.shown(one.low))} .. {amount(words.shown(one.high))}"]
        for label, size, one in zip(risks, risks.sizes, risks.intervals(), strict=True)
    ]  # fmt: skip
    shown = text_table(["group", "rows", words.rate, "95% interval"], rows)
    return found, (
        f"Worst group's {words.rate}: {words.figure(risks.worst.value)}; all rows: "
        f"{words.figure(average)}. {words.shown_title}{words.of_target(target)}.\n\n{shown}"
    )


def _score_classes(
    model: Any, X: Any, y: Any, groups: Any, weights: Any, target: str
) -> tuple[dict[str, Any], str]:
    """Accuracies, log losses and calibration by group, as JSON and as text."""
    from counterpoise.assessment.classes import group_scores
    from counterpoise.common.text import number, percent

    scores = group_scores(model, X, y, groups, weights)
    worst, average = scores.accuracies.worst.value, 1.0 - scores.average_error
    text = f"Worst group's accuracy: {percent(worst)}; all rows: {percent(average)}.\n\n{scores}"
    if scores.log_losses is not None:
        text += f"\n\naverage log loss over rows: {number(scores.average_log_loss)}"
    return scores_json(scores), text
