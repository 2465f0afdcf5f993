"""``counterpoise predict | show | report | export``: use a stored model."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
import numpy as np

from counterpoise.cli.options import as_json, file_options, names
from counterpoise.cli.printing import show_json, wrapped

PREDICTION = "prediction"
# Most features and groups that are printed; JSON has all.
SHOWN = 30
# Files in the folder of a language-model run or of a comparison of runs.
LM_FILES = ("evaluations.jsonl", "study.json", "results/study.json")


@click.command()
@click.argument("model", type=click.Path())
@click.argument("data", type=click.Path())
@click.option("--out", type=click.Path(dir_okay=False),
              help="A .csv, .parquet or .arrow file.  [default: print CSV]")  # fmt: skip
@click.option("--with", "extra", multiple=True, metavar="COLUMN,...", callback=names,
              help="Columns of the data to write, too.")  # fmt: skip
@click.option("--unseen", type=click.Choice(["refuse", "base"]), default="refuse",
              show_default=True, help="Categories that the fit never saw: report an error, or "
              "count them as the most frequent level.")  # fmt: skip
@click.option("--score", is_flag=True,
              help="Print risks by group instead; the data must have the target.")  # fmt: skip
@file_options
@as_json
@click.pass_context
def predict(
    ctx: click.Context, /, model: str, data: str, out: str | None, extra: list[str],
    unseen: str, score: bool, as_json: bool, **options: Any,
) -> None:  # fmt: skip
    """Predict the rows of a table with a stored model.

    MODEL is a folder written by `counterpoise fit --out`. A row with a missing feature has no
    prediction if the fit left such rows out.

    \b
    counterpoise predict fit new.csv > predictions.csv
    counterpoise predict fit new.parquet --out predictions.parquet --with id
    counterpoise predict fit labelled.csv --score
    """
    from counterpoise.storage.models import load
    from counterpoise.tabular import open_table

    fitted = load(model)
    layout = _layout(fitted, model)
    table = open_table(data, **options, text=layout.text, words=layout.words)
    if score:
        if out is not None or extra:
            raise click.UsageError("--score prints only risks; leave out --out and --with")
        _score(fitted, table, unseen, as_json)
        return
    if as_json:
        raise click.UsageError("--json needs --score; predictions are CSV, Parquet or Arrow")
    from counterpoise.tabular.predict import predictions

    batches = predictions(fitted, table, extra=extra, unseen=unseen, name=PREDICTION)
    count, without = 0, 0
    with _writer(out) as write:
        for batch in batches:
            write(batch)
            count += batch.num_rows
            without += batch.column(PREDICTION).null_count
    if without and ctx.obj["progress"]:
        click.echo(f"{without:,} of {count:,} rows have a missing feature and no prediction",
                   err=True)  # fmt: skip
    if out is not None:
        click.echo(f"Wrote {count:,} predictions to {out}")


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
        stream: Any = sys.stdout.buffer
        made: list[Any] = []

        def show(batch: Any) -> None:
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
    from counterpoise.assessment.intervals import risk_intervals
    from counterpoise.common.text import figure, number
    from counterpoise.tabular import DataError, read_rows
    from counterpoise.tabular.errors import check_names

    layout, neuron = fitted.steps[0][1].layout_, fitted.steps[-1][1]
    check_names((layout.target,), table.names, table.where, "target")
    rows = read_rows(table, layout, labelled=False, unseen=unseen)
    y = np.full(len(rows), np.nan) if rows.y is None else rows.y
    groups = np.zeros(len(rows), int) if rows.groups is None else rows.groups
    w = np.ones(len(rows)) if rows.sample_weight is None else rows.sample_weight
    used = np.flatnonzero(np.isfinite(y) & (w > 0))
    if not len(used):
        raise DataError(
            f"no row of {table.where} has a number in {layout.target!r}; use other data"
        )
    y, groups, w, predicted = y[used], groups[used], w[used], neuron.predict(rows.X)[used]
    weights = None if rows.sample_weight is None else w
    risks = risk_intervals(y, predicted, groups=groups, sample_weight=weights)
    average = float(np.average((y - predicted) ** 2, weights=w))
    left_out = table.n_rows - len(used)
    if as_json:
        by_group = {str(label): risks[label] for label in risks}
        found = {"rows": len(used), "left_out": left_out, "average": average}
        show_json({**found, "worst": risks.worst, "groups": by_group})
        return
    root = np.sqrt([risks.worst.value, average])
    click.echo(
        f"Worst group's error: {figure(root[0])}; all rows: {figure(root[1])}. Root mean squared "
        f"error, in units of {layout.target}.\n\nMean squared error by group:\n\n{risks}"
    )
    click.echo(f"\naverage over rows: {number(average)}")
    if left_out:
        click.echo(f"{left_out:,} of {table.n_rows:,} rows have a missing value and were left out")


@click.command()
@click.argument("model", type=click.Path())
@as_json
def show(model: str, as_json: bool) -> None:
    """Describe a stored model: its data, coefficients, groups and certificate.

    \b
    counterpoise show fit
    counterpoise show fit --json
    """
    from counterpoise.common.text import clipped, number, text_table
    from counterpoise.storage.models import load, load_record

    loaded, record = load(model), load_record(model)
    fitted = loaded.steps[-1][1] if hasattr(loaded, "steps") else loaded
    if fitted is loaded:
        names = getattr(fitted, "feature_names_in_", [f"x{j}" for j in range(len(fitted.coef_))])
    else:
        names = loaded[:-1].get_feature_names_out()
    if as_json:
        show_json(
            {
                "class": type(fitted).__name__,
                "activation": fitted.activation_.name,
                "nu": getattr(fitted, "nu_", None),
                "intercept": fitted.intercept_,
                "coefficients": dict(zip(map(str, names), fitted.coef_, strict=True)),
                "groups": dict(zip(map(str, fitted.groups_), fitted.group_weights_, strict=True)),
                "status": fitted.status_,
                "certificate": str(getattr(fitted, "certificate_", "")) or None,
                "record": record,
            }
        )
        return
    lines = [f"{type(fitted).__name__}, activation {fitted.activation_.name}. {fitted.status_}"]
    if record is not None:
        data = record.data
        lines += [
            f"Fitted to {data.path or 'rows in memory'} ({data.rows:,} rows; target "
            f"{data.target or 'y'}, group {' x '.join(data.group) or 'none'}) on {record.made}, "
            f"with counterpoise {record.versions.get('counterpoise', '?')}"
            + (f":\n  {record.command}" if record.command else "."),
        ]
    order = np.argsort(-np.abs(fitted.coef_))[:SHOWN]
    rows = [[clipped(str(names[j])), number(fitted.coef_[j])] for j in order]
    lines += ["", text_table(["feature", "coefficient"], [["(intercept)",
              number(fitted.intercept_)], *rows])]  # fmt: skip
    if len(names) > SHOWN:
        lines.append(f"... and {len(names) - SHOWN} smaller coefficients")
    heavy = np.argsort(-fitted.group_weights_)[:SHOWN]
    rows = [
        [clipped(str(fitted.groups_[k])), number(fitted.group_risks_[k]),
         f"{fitted.group_weights_[k]:.3f}"] for k in heavy
    ]  # fmt: skip
    lines += ["", text_table(["group", "risk", "weight"], rows)]
    if len(fitted.groups_) > SHOWN:
        lines.append(f"... and {len(fitted.groups_) - SHOWN} groups with less weight")
    if hasattr(fitted, "verdict_"):
        lines += ["", wrapped(fitted.verdict_)]
    if hasattr(fitted, "certificate_"):
        lines += ["", wrapped(f"Certificate. {fitted.certificate_}")]
    click.echo("\n".join(lines))


@click.command()
@click.argument("folder", type=click.Path())
@click.option("--out", type=click.Path(dir_okay=False), help="[default: FOLDER/report.html]")
def report(folder: str, out: str | None) -> None:
    """Write an HTML report on a fit or a language-model run: one file that opens anywhere.

    FOLDER was written by `counterpoise fit --out` or `counterpoise lm train --out`.

    \b
    counterpoise report fit
    counterpoise report out/one-run --out run.html
    """
    path = Path(folder)
    if not path.is_dir():
        raise FileNotFoundError(
            f"there is no folder {folder!r}; give one that counterpoise fit --out, lm train or "
            "lm compare wrote"
        )
    if (path / "model.json").is_file():
        from counterpoise.report import write_report
    elif any((path / name).is_file() for name in LM_FILES):
        from counterpoise.lm.report import write_report
    else:
        raise FileNotFoundError(
            f"{folder!r} holds neither a fit (model.json), nor a training run "
            "(evaluations.jsonl), nor a comparison (study.json); give the folder of one"
        )
    click.echo(str(write_report(folder, out)))


@click.command()
@click.argument("model", type=click.Path())
@click.argument("out", type=click.Path(dir_okay=False))
@click.option("--single", is_flag=True, help="Use single precision instead of double.")
def export(model: str, out: str, single: bool) -> None:
    """Write a stored model as ONNX, for serving.

    The graph takes encoded features as X (see `counterpoise show`) and returns predictions.

    \b
    counterpoise export fit model.onnx
    """
    from counterpoise.storage.models import load
    from counterpoise.storage.onnx import to_onnx

    to_onnx(load(model), out, dtype="float32" if single else "float64")
    click.echo(out)
