"""``counterpoise fit``: from a table to a stored model that holds up on the worst group."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import numpy as np

from counterpoise.cli.options import (
    FILE,
    Strength,
    as_json,
    command_line,
    model_options,
    read_table,
    table_options,
)
from counterpoise.cli.printing import SHOWN, clipped, columns, number, show_json, wrapped

if TYPE_CHECKING:
    from counterpoise.assessment.record import FitRecord
    from counterpoise.tabular.fit import Fitted

NOT_CONVERGED = 5


@click.command()
@table_options
@model_options
@click.option("--nu", type=Strength(), help="Strength of the pull to the prior; 0 is the worst "
              "group alone, inf the average.  [default: auto]")  # fmt: skip
@click.option("--cv", is_flag=True, help="Let held-out rows choose nu, truncation and references.")
@click.option("--out", type=click.Path(file_okay=False), help="Folder to store the model in.")
@click.option("--folds", type=click.IntRange(2), default=5, show_default=True,
              help="For held-out risks and --cv.")  # fmt: skip
@click.option("--truncate", type=float, help="Clip labels to [-X, X] before the fit.")
@click.option("--radius", type=float, help="Largest norm of the coefficients.")
@click.option("--no-intercept", is_flag=True, help="Fit without an intercept.")
@click.option("--no-polish", is_flag=True, help="Stop at Algorithm 1; for studies of it.")
@click.option("--max-iter", type=int, default=1000, show_default=True)
@click.option("--tol", type=float, default=1e-6, show_default=True)
@click.option("--bare", is_flag=True, help="The fit alone: no held-out risks, no diagnosis.")
@click.option("--chunked/--in-memory", default=None,
              help="How to read the rows; by default in chunks if they are too many.")  # fmt: skip
@click.option("--checkpoint", type=click.Path(dir_okay=False),
              help="A file to go on from if a long fit is stopped.")  # fmt: skip
@as_json
@click.pass_context
def fit(ctx: click.Context, as_json: bool, **options: Any) -> None:
    """Fit a neuron whose worst group counts, and say what it is worth.

    DATA is a CSV, Parquet (a file or a folder), Arrow or .npz file. Text columns become
    indicators. Parquet that does not fit in memory is read in chunks, pass by pass.

    \b
    counterpoise fit diamonds.csv --target price --group clarity --out fit
    counterpoise fit flights.csv -y air_time -g carrier --features distance,hour,origin \\
        --missing drop --cv --out fit
    counterpoise fit patients/ -y days -g hospital -g sex --drop id --activation relu
    """
    out = options.pop("out")
    bare, chunked, folds = options.pop("bare"), options.pop("chunked"), options.pop("folds")
    if out is not None and Path(out).exists() and not Path(out).is_dir():
        raise click.UsageError(f"--out: {out!r} is a file; give a folder")
    table = {name: options.pop(name) for name in TABLE}
    model = _model(options, folds)

    from counterpoise.storage.models import save
    from counterpoise.tabular.fit import fit_table

    with _kept_if_used(out):
        asked = read_table(table)
        made = fit_table(
            model, asked.table, asked.learned,
            command=command_line(ctx), bare=bare, chunked=chunked, folds=folds,
        )  # fmt: skip
        failure: OSError | RuntimeError | None = None
        try:
            if out is not None:
                save(made.model, out, made.record)
        except (OSError, RuntimeError) as error:  # what was found is told all the same
            failure = error
        if as_json:
            show_json(summary(made, None if failure else out))
        else:
            click.echo(told(made))
        if failure is not None:
            raise failure
    if out is not None and not as_json:
        place = shlex.quote(out)
        click.echo(f"\nStored in {place}; `counterpoise report {place}` makes a page of it.")
    if not made.converged:
        ctx.exit(NOT_CONVERGED)


@contextmanager
def _kept_if_used(out: str | None) -> Iterator[None]:
    """A folder that can be written to, known before the work begins; taken away again if nothing
    was written."""
    from counterpoise.storage.models import ready_folder

    fresh = out is not None and not Path(out).exists()
    if out is not None:
        ready_folder(out)
    try:
        yield
    finally:
        if fresh and out is not None:
            with suppress(OSError):  # it is not empty
                Path(out).rmdir()


TABLE = (
    "data", "target", "group", "weight", "features", "drop", "categorical", "missing",
    "max_levels", *FILE,
)  # fmt: skip


def _model(options: dict[str, Any], folds: int) -> Any:
    """The estimator that the options ask for."""
    from counterpoise.estimators.cross_validation import GroupDRONeuronCV
    from counterpoise.estimators.neuron import GroupDRONeuron

    nu, cv, checkpoint = options.pop("nu"), options.pop("cv"), options.pop("checkpoint")
    truncate = options.pop("truncate")
    options["fit_intercept"] = not options.pop("no_intercept")
    polish = not options.pop("no_polish")
    if not cv:
        return GroupDRONeuron(
            **options, nu="auto" if nu is None else nu, truncate=truncate, checkpoint=checkpoint,
            polish=polish,
        )  # fmt: skip
    if not polish:
        raise click.UsageError("--no-polish does not go with --cv")
    for name, value in (("nu", nu), ("truncate", truncate), ("checkpoint", checkpoint)):
        if value is not None:
            raise click.UsageError(f"--cv chooses by itself; leave --{name} out, or --cv")
    return GroupDRONeuronCV(**options, cv=folds)


def summary(made: Fitted, out: str | None) -> dict[str, Any]:
    """The fit for machines."""
    model, record = made.model, made.record
    judged = record.judged
    return {
        "out": out,
        "rows": record.data.rows,
        "features": record.data.encoded,
        "engine": record.data.engine,
        "notes": record.data.notes,
        "nu": model.nu_,
        "risk": model.risk_,
        "iterations": model.n_iter_,
        "passes": model.n_passes_,
        "seconds": record.seconds,
        "converged": made.converged,
        "status": model.status_,
        "verdict": getattr(model, "verdict_", None),
        "certificate": str(model.certificate_),
        "groups": [
            {
                "group": label,
                "weight": model.group_weights_[k],
                "risk": record.risks[k],
                "plain_risk": record.plain_risks[k],
                **(held_out(record, label) if judged else {}),
            }
            for k, label in enumerate(model.groups_.tolist())
        ],
        "held_out": judged and {
            "how": judged.how,
            "held_out": judged.held_out,
            "plain": {"worst": judged.plain.worst, "average": judged.plain_average},
            "ours": {"worst": judged.ours.worst, "average": judged.ours_average},
        },
    }  # fmt: skip


def held_out(record: FitRecord, label: Any) -> dict[str, Any]:
    """One group's judged risks, and how many rows of equal weight they are worth."""
    judged = record.judged
    assert judged is not None
    size = dict(zip(judged.ours, judged.ours.sizes, strict=True))[label]
    return {"effective_rows": size, "plain": judged.plain[label], "ours": judged.ours[label]}


def told(made: Fitted) -> str:
    """The fit for people."""
    from counterpoise.assessment.comparison import plain_name
    from counterpoise.common.text import count

    model, record = made.model, made.record
    data, judged = record.data, record.judged
    sizes = ((data.rows, "row"), (data.encoded, "feature"), (len(model.groups_), "group"))
    lines = [", ".join(count(number, noun) for number, noun in sizes) + "."]
    if not data.group:
        lines.append("Note: without --group all rows are one group, and this is the plain average.")
    lines += [f"Note: {note.rstrip('.')}." for note in data.notes]
    plain = record.plain_risks if judged is None else judged.plain.values
    ours = record.risks if judged is None else judged.ours.values
    order = np.argsort(-np.nan_to_num(plain, nan=-1.0), kind="stable")
    name = plain_name(model)
    head = ["group", name, "group DRO", "weight"]
    if judged is not None:
        head[2:3] = ["group DRO", f"{100 * judged.ours.level:g}% interval"]
        head.insert(1, "rows" if data.weight is None else "eff. rows")
    rows = []
    for k in order[:SHOWN]:
        row = [clipped(str(model.groups_[k])), number(plain[k]), number(ours[k])]
        if judged is not None:
            row.append(f"{number(judged.ours.low[k])} .. {number(judged.ours.high[k])}")
            row.insert(1, f"{judged.ours.sizes[k]:.0f}")
        rows.append([*row, f"{model.group_weights_[k]:.3f}"])
    measured = "of the rows of the fit" if judged is None else f"of {judged.how}"
    lines += ["", wrapped(f"Mean squared error {measured}:"), "", columns(head, rows)]
    if len(order) > SHOWN:
        lines.append(f"... and {len(order) - SHOWN} groups that the {name} serves better")
    if judged is not None:
        before, after = judged.plain.worst.value, judged.ours.worst.value
        lines += [
            "",
            f"worst group: {number(before)} -> {number(after)}; average over rows: "
            f"{number(judged.plain_average)} -> {number(judged.ours_average)}",
        ]
        more = after > before * (1.0 + 1e-6) and len(model.groups_) > 1
        if more and not hasattr(model, "verdict_"):
            lines.append(
                "Caution: on these rows the robust fit does not help its worst group. Let held-out "
                "rows choose (--cv), and see what `counterpoise diagnose` says."
            )
    if hasattr(model, "verdict_"):
        lines += ["", wrapped(model.verdict_)]
    lines += ["", wrapped(f"{model.status_} nu = {number(model.nu_)}; {model.n_passes_} passes.")]
    lines += ["", wrapped(f"Certificate. {model.certificate_}")]
    if record.diagnosis is not None and record.diagnosis.advice:
        lines += ["", *(wrapped(f"Advice: {text}") for text in record.diagnosis.advice)]
    return "\n".join(lines)
