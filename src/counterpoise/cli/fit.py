"""``counterpoise fit``: fit a model to a table, assess it, store it."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from counterpoise.cli.models import ModelRequest, model_options, scoring_option
from counterpoise.cli.options import (
    Amount,
    Strength,
    TableRequest,
    as_json,
    command_line,
    table_options,
)
from counterpoise.cli.printing import say, scores_json, show_json, wrapped
from counterpoise.cli.wording import in_options

if TYPE_CHECKING:
    from counterpoise.assessment.record import FitRecord, RiskComparison

NOT_CONVERGED = 5


@click.command()
@table_options
@model_options
@click.option("--nu", type=Strength(), help="Strength of the pull toward the average: 0 is the "
              "worst group alone, inf the average.  [default: auto]")  # fmt: skip
@click.option("--cv", is_flag=True, help="Choose nu, truncation and references on held-out rows.")
@scoring_option
@click.option("--out", type=click.Path(file_okay=False), help="Folder to store the model in.")
@click.option("--folds", type=click.IntRange(2), default=5, show_default=True,
              help="Folds for held-out risks and --cv.")  # fmt: skip
@click.option("--truncate", type=Amount(0, min_open=True),
              help="Clip the target to [-X, X] before the fit.")  # fmt: skip
@click.option("--radius", type=Amount(0, min_open=True),
              help="Upper bound on the norm of the coefficients.")  # fmt: skip
@click.option("--no-intercept", is_flag=True, help="Fit without an intercept.")
@click.option("--no-polish", is_flag=True, help="Stop after Algorithm 1, to study it.")
@click.option("--max-iter", type=click.IntRange(1), default=1000, show_default=True,
              help="Maximum number of iterations of Algorithm 1.")  # fmt: skip
@click.option("--tol", type=Amount(0), default=1e-6, show_default=True,
              help="Relative change of the risk at which to stop.")  # fmt: skip
@click.option("--certificate", type=click.Choice(["region", "theorem", "run"]),
              help="What to prove about a neuron. region: how much better coefficients near it can "
              "be. theorem: what the paper's theorem implies, after a longer run. run: only what "
              "follows from the fit itself.  [default: region]")  # fmt: skip
@click.option("--bare", is_flag=True, help="Only fit: no held-out risks, no diagnosis, no region.")
@click.option("--chunked/--in-memory", default=None, help="Read rows in chunks or all at once.  "
              "[default: in chunks if they do not fit in memory]")  # fmt: skip
@click.option("--checkpoint", type=click.Path(dir_okay=False),
              help="File from which a stopped fit resumes.")  # fmt: skip
@as_json
@click.pass_context
def fit(ctx: click.Context, /, as_json: bool, **options: Any) -> None:
    """Fit a model that holds up on the worst group, and compare it with the plain average.

    DATA is a CSV, Parquet (file or folder), Arrow or .npz file. Text columns become indicators.
    Parquet that does not fit in memory is read in chunks, pass by pass. A target of text,
    true/false, or 0 and 1 is classified, beside logistic regression; other numbers are fitted
    beside least squares.

    \b
    counterpoise fit diamonds.csv --target price --group clarity --out fit
    counterpoise fit flights.csv -y air_time -g carrier --features distance,hour,origin \\
        --missing drop --cv --out fit
    counterpoise fit patients/ -y days -g hospital -g sex --drop id --activation relu
    counterpoise fit adult.csv -y income -g sex -g race --missing impute --out fit
    counterpoise fit photos.parquet -y blond -g sex --with-label --cv
    """
    out = options.pop("out")
    bare, chunked, folds = options.pop("bare"), options.pop("chunked"), options.pop("folds")
    if out is not None and Path(out).exists() and not Path(out).is_dir():
        raise click.UsageError(f"--out: {out!r} is a file; give a folder")
    wanted = ModelRequest.of(options)
    request = TableRequest.of(options)
    settings = _settings(options, folds)

    from counterpoise.tabular.fit import fit_table

    replaced = out is not None and (Path(out) / "model.json").exists()
    with _removed_if_empty(out):
        table, learned = request.read()
        record = fit_table(
            wanted.estimator(learned.layout, proves="run" if bare else "region", **settings), table,
            learned, command=command_line(ctx), bare=bare, chunked=chunked, folds=folds,
        )  # fmt: skip
        failure: OSError | RuntimeError | None = None
        try:
            if out is not None:
                record.save(out)
        except (OSError, RuntimeError) as error:  # print the results all the same
            failure = error
        if as_json:
            show_json(summary(record, None if failure else out))
        else:
            say(described(record))
        if failure is not None:
            raise failure
    if out is not None and not as_json:
        folder = shlex.quote(out)
        instead = ", in place of the model that was there" if replaced else ""
        say(f"\nStored in {folder}{instead}. For a report, run: counterpoise report {folder}")
    if not record.neuron.converged_:
        ctx.exit(NOT_CONVERGED)


@contextmanager
def _removed_if_empty(out: str | None) -> Iterator[None]:
    """Create a folder before the work begins; remove it if nothing was written to it."""
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


def _settings(options: dict[str, Any], folds: int) -> dict[str, Any]:
    """The options of the estimator, by the names of its arguments; None for those not given."""
    nu, cv, checkpoint = options.pop("nu"), options.pop("cv"), options.pop("checkpoint")
    truncate = options.pop("truncate")
    options["fit_intercept"] = not options.pop("no_intercept")
    polish = not options.pop("no_polish")
    if not cv:
        found = {"nu": nu, "truncate": truncate, "checkpoint": checkpoint, "polish": polish}
        return {**options, **found}
    if not polish:
        raise click.UsageError("--no-polish does not go with --cv")
    for name, value in (("nu", nu), ("truncate", truncate), ("checkpoint", checkpoint)):
        if value is not None:
            raise click.UsageError(f"--cv chooses this itself; leave out --{name} or --cv")
    return {**options, "cv": True, "folds": folds}


def summary(record: FitRecord, out: str | None) -> dict[str, Any]:
    """The fit as JSON."""
    neuron, found = record.neuron, record.comparison
    held_out = _held_out(found) if found else {}
    return {
        "out": out,
        "answer": record.answer,
        "rows": record.data.rows,
        "features": record.data.encoded,
        "engine": record.data.engine,
        "notes": record.data.notes,
        "nu": neuron.nu_,
        "risk": neuron.risk_,
        "iterations": neuron.n_iter_,
        "passes": neuron.n_passes_,
        "seconds": record.seconds,
        "converged": neuron.converged_,
        "status": neuron.status_,
        "verdict": getattr(neuron, "verdict_", None),
        "certificate": str(neuron.certificate_),
        "regions": [asdict(region) for region in getattr(neuron.certificate_, "regions", ())],
        "groups": [
            {
                "group": label,
                "weight": neuron.group_weights_[k],
                "risk": record.risks[k],
                "plain_risk": record.plain_risks[k],
                **held_out.get(label, {}),
            }
            for k, label in enumerate(neuron.groups_.tolist())
        ],
        "classes": None if record.classes is None else {
            name: scores_json(scores) for name, scores in record.classes.scores.items()
        },
        "held_out": found and {
            "how": found.how,
            "held_out": found.held_out,
            "plain": {"worst": found.plain.worst, "average": found.plain_average},
            "ours": {"worst": found.ours.worst, "average": found.ours_average},
        },
    }  # fmt: skip


def _held_out(found: RiskComparison) -> dict[Any, dict[str, Any]]:
    """Every group's risks, and the number of equally weighted rows behind them."""
    return {
        label: {"effective_rows": size, "plain": plain, "ours": ours}
        for label, size, plain, ours in zip(
            found.ours, found.ours.sizes, found.plain.intervals(), found.ours.intervals(),
            strict=True,
        )
    }  # fmt: skip


def described(record: FitRecord) -> str:
    """The fit as text: the answer, the groups, what to do, then the details."""
    from counterpoise.common.text import count, number

    def told(text: str) -> str:
        return wrapped(in_options(text, fit))

    neuron, data = record.neuron, record.data
    lines = [str(record)]
    verdict = getattr(neuron, "verdict_", None)
    if verdict:
        lines += ["", told(verdict)]
    elif not record.helps_worst_group and len(neuron.groups_) > 1:
        lines += ["", wrapped(
            "Caution: this fit does not help the worst group. Choose on held-out rows with --cv, "
            "and see what `counterpoise diagnose` advises."
        )]  # fmt: skip
    if record.diagnosis is not None:
        lines += ["", *(told(f"Advice: {text}") for text in record.diagnosis.advice)]
    sizes = ((data.rows, "row"), (data.encoded, "feature"), (len(neuron.groups_), "group"))
    lines += ["", "Data: " + ", ".join(count(size, noun) for size, noun in sizes) + "."]
    if not data.group:
        lines.append("Note: without --group all rows are one group, and this is the plain average.")
    lines += [told(f"Note: {note.rstrip('.')}.") for note in data.notes]
    lines += [
        "",
        told(f"{neuron.status_} nu = {number(neuron.nu_)}; {neuron.n_passes_} passes."),
    ]
    lines += ["", told(f"Certificate. {neuron.certificate_}")]
    return "\n".join(lines)
