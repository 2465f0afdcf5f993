"""``counterpoise predict | show | report | export``: what is done with a stored model."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
import numpy as np

from counterpoise.cli.options import as_json, file_options, names
from counterpoise.cli.printing import SHOWN, clipped, columns, number, show_json, wrapped

PREDICTION = "prediction"
# Files that tell a run of a language model, or a comparison of runs.
LM_FILES = ("evaluations.jsonl", "study.json", "results/study.json")


@click.command()
@click.argument("model", type=click.Path())
@click.argument("data", type=click.Path())
@click.option("--out", type=click.Path(dir_okay=False),
              help="A .csv, .parquet or .arrow file.  [default: CSV to the screen]")  # fmt: skip
@click.option("--with", "extra", multiple=True, metavar="COLUMN,...", callback=names,
              help="Write these columns of the data too.")  # fmt: skip
@click.option("--unseen", type=click.Choice(["refuse", "base"]), default="refuse",
              show_default=True, help="Categories the fit never saw: an error, or the commonest "
              "level in their place.")  # fmt: skip
@click.option("--score", is_flag=True,
              help="The data have the target too: print risks by group instead.")  # fmt: skip
@file_options
@as_json
@click.pass_context
def predict(
    ctx: click.Context, model: str, data: str, out: str | None, extra: tuple[str, ...],
    unseen: str, score: bool, as_json: bool, **written: Any,
) -> None:  # fmt: skip
    """Predict rows of a table with a stored model.

    MODEL is the folder that `counterpoise fit --out` made. A row in which a feature is missing
    has no prediction if the fit left such rows out.

    \b
    counterpoise predict fit new.csv > predictions.csv
    counterpoise predict fit new.parquet --out predictions.parquet --with id
    counterpoise predict fit labelled.csv --score
    """
    from counterpoise.storage.models import load
    from counterpoise.tabular import open_table

    fitted = load(model)
    found = _columns(fitted, model)
    table = open_table(data, **written, text=found.text, words=found.words)
    if score:
        if out is not None or extra:
            raise click.UsageError("--score prints risks alone; leave --out and --with out")
        _score(fitted, table, unseen, as_json)
        return
    if as_json:
        raise click.UsageError("--json goes with --score; predictions are CSV, Parquet or Arrow")
    from counterpoise.tabular.predict import predictions

    batches = predictions(fitted, table, extra=extra, unseen=unseen, name=PREDICTION)
    count, without = 0, 0
    with _writer(out) as write:
        for batch in batches:
            write(batch)
            count += batch.num_rows
            without += batch.column(PREDICTION).null_count
    if without and ctx.obj["progress"]:
        click.echo(f"{without:,} of {count:,} rows miss a feature and have no prediction",
                   err=True)  # fmt: skip
    if out is not None:
        click.echo(f"{count:,} predictions: {out}")


def _columns(fitted: Any, folder: str) -> Any:
    if not hasattr(fitted, "columns_"):
        raise click.UsageError(
            f"the model in {folder!r} was fitted to arrays, not to a table; use it from Python: "
            "counterpoise.load(...).predict(X)"
        )
    return fitted.columns_


@contextmanager
def _writer(out: str | None) -> Iterator[Callable[[Any], None]]:
    """Writes batches to the screen, or to a file that is whole or not there."""
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
    from counterpoise.tabular import DataError, read_rows
    from counterpoise.tabular.errors import check_names

    columns = fitted.columns_
    check_names((columns.target,), table.names, table.where, "target")
    rows = read_rows(table, columns, labelled=False, unseen=unseen)
    y = np.full(len(rows), np.nan) if rows.y is None else rows.y
    groups = np.zeros(len(rows), int) if rows.groups is None else rows.groups
    w = np.ones(len(rows)) if rows.sample_weight is None else rows.sample_weight
    used = np.flatnonzero(np.isfinite(y) & (w > 0))
    if not len(used):
        raise DataError(f"no row of {table.where} has a number for {columns.target!r}")
    y, groups, w, predicted = y[used], groups[used], w[used], fitted.predict(rows.X)[used]
    weights = None if rows.sample_weight is None else w
    risks = risk_intervals(y, predicted, groups=groups, sample_weight=weights)
    average = float(np.average((y - predicted) ** 2, weights=w))
    left_out = table.n_rows - len(used)
    if as_json:
        by_group = {str(label): risks[label] for label in risks}
        found = {"rows": len(used), "left_out": left_out, "average": average}
        show_json({**found, "worst": risks.worst, "groups": by_group})
        return
    click.echo(f"{risks}\n\naverage over rows: {number(average)}")
    if left_out:
        click.echo(f"{left_out:,} of {table.n_rows:,} rows miss a value and were left out")


@click.command()
@click.argument("model", type=click.Path())
@as_json
def show(model: str, as_json: bool) -> None:
    """Tell what a stored model is: its data, its groups, its coefficients, its certificate.

    \b
    counterpoise show fit
    counterpoise show fit --json
    """
    from counterpoise.storage.models import load, load_record

    fitted, record = load(model), load_record(model)
    names = getattr(fitted, "feature_names_in_", [f"x{j}" for j in range(len(fitted.coef_))])
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
            f"Fitted to {data.path} ({data.rows:,} rows; target {data.target}, group "
            f"{' x '.join(data.group) or 'none'}) on {record.made}, with counterpoise "
            f"{record.versions.get('counterpoise', '?')}:",
            f"  {record.command}",
        ]
    order = np.argsort(-np.abs(fitted.coef_))[:SHOWN]
    rows = [[clipped(str(names[j])), number(fitted.coef_[j])] for j in order]
    lines += ["", columns(["feature", "coefficient"], [["(intercept)",
              number(fitted.intercept_)], *rows])]  # fmt: skip
    if len(names) > SHOWN:
        lines.append(f"... and {len(names) - SHOWN} smaller ones")
    heavy = np.argsort(-fitted.group_weights_)[:SHOWN]
    rows = [
        [clipped(str(fitted.groups_[k])), number(fitted.group_risks_[k]),
         f"{fitted.group_weights_[k]:.3f}"] for k in heavy
    ]  # fmt: skip
    lines += ["", columns(["group", "risk", "weight"], rows)]
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
    """Write a page about a fit or a language-model run: one HTML file, to open anywhere.

    FOLDER is what `counterpoise fit --out` or `counterpoise lm train --out` made.

    \b
    counterpoise report fit
    counterpoise report out/one-run --out run.html
    """
    place = Path(folder)
    if not place.is_dir():
        raise FileNotFoundError(
            f"there is no folder {folder!r}; give one that counterpoise fit --out, lm train or "
            "lm compare wrote"
        )
    if (place / "model.json").is_file():
        from counterpoise.report import write_report
    elif any((place / name).is_file() for name in LM_FILES):
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
@click.option("--single", is_flag=True, help="Single precision; double by default.")
def export(model: str, out: str, single: bool) -> None:
    """Write a stored model as ONNX, for serving.

    The graph takes encoded features (see `counterpoise show`) as X and gives predictions.

    \b
    counterpoise export fit model.onnx
    """
    from counterpoise.storage.models import load
    from counterpoise.storage.onnx import to_onnx

    to_onnx(load(model), out, dtype="float32" if single else "float64")
    click.echo(out)
