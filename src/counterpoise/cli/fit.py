"""``counterpoise fit``: fit a model to a table, assess it, store it."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from contextlib import contextmanager
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
    from counterpoise.assessment.record import FitRecord

NOT_CONVERGED = 5
# Groups in the printed table; the report has all of them.
MOST_SHOWN = 12


@click.command()
@table_options
@model_options
@click.option("--nu", type=Strength(), help="Strength of the pull toward the average: 0 is the "
              "worst group alone, inf the average.  [default: auto]")  # fmt: skip
@click.option("--cv", is_flag=True, help="Choose nu, truncation and references on held-out rows.")
@click.option("--group-known/--group-unknown", default=None, help="Whether the group is known when "
              "you predict, and may be used. If known, fits that use it are tried, too; implies "
              "--cv.  [default: unknown]")  # fmt: skip
@click.option("--max-cost", type=Amount(0), help="With --cv, the largest relative rise of the "
              "error over all rows: 0.1 allows 10 %.")  # fmt: skip
@click.option("--max-group-cost", type=Amount(0),
              help="With --cv, the largest relative rise of the error of any group.")  # fmt: skip
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

    request.check()
    replaced = out is not None and (Path(out) / "model.json").exists()
    with _ready(out):
        from counterpoise.tabular.fit import fit_table

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
        say(f"Stored in {folder}{instead}. For a report, run: counterpoise report {folder}")
    if not record.neuron.converged_:
        ctx.exit(NOT_CONVERGED)


@contextmanager
def _ready(out: str | None) -> Iterator[None]:
    """Create a folder before the work begins; remove it if nothing was written to it."""
    if out is None:
        yield
        return
    from counterpoise.storage.folders import removed_if_empty

    with removed_if_empty(out):
        from counterpoise.storage.models import ready_folder

        ready_folder(out)  # also checks what is stored there
        yield


def _settings(options: dict[str, Any], folds: int) -> dict[str, Any]:
    """The options of the estimator, by the names of its arguments; None for those not given."""
    nu, cv, checkpoint = options.pop("nu"), options.pop("cv"), options.pop("checkpoint")
    cv = cv or bool(options["group_known"])
    for name in ("max_cost", "max_group_cost"):
        if options[name] is not None and not cv:
            raise click.UsageError(f"--{name.replace('_', '-')} is for cross-validation; use --cv")
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
    held_out = _held_out(record) if found else {}
    certificate = getattr(neuron, "certificate_", None)
    return {
        "out": out,
        "answer": record.answer,
        "price": record.price,
        "proved": _proved(record),
        "next": next_step(record),
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
        "uses_group": getattr(neuron, "uses_group_", None) or None,
        "certificate": None if certificate is None else str(certificate),
        "regions": [asdict(region) for region in getattr(certificate, "regions", ())],
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
            "plain": _side(record, "plain"),
            "ours": _side(record, "ours"),
            "group_as_a_feature": record.beside and asdict(record.beside),
        },
    }  # fmt: skip


def _side(record: FitRecord, name: str) -> dict[str, Any]:
    """Held-out figures of a model: risks, and of squared errors also roots and absolute errors."""
    found, words = record.comparison, record.words
    assert found is not None
    risks, average = getattr(found, name), getattr(found, f"{name}_average")
    out: dict[str, Any] = {"worst": risks.worst, "average": average}
    if words.rooted:
        out["rmse"] = {"worst": words.shown(risks.worst.value), "average": words.shown(average)}
    if found.absolute is not None:
        by_group = getattr(found.absolute, name)
        out["mae"] = {
            "worst": float(max(x for x in by_group.tolist() if x == x)),
            "average": getattr(found.absolute, f"{name}_average"),
        }
    return out


def _held_out(record: FitRecord) -> dict[Any, dict[str, Any]]:
    """Every group's risks, and the number of equally weighted rows behind them."""
    found, words = record.comparison, record.words
    assert found is not None
    out: dict[Any, dict[str, Any]] = {}
    for k, label in enumerate(found.ours):
        sides = {name: getattr(found, name).intervals()[k] for name in ("plain", "ours")}
        out[label] = {"effective_rows": found.ours.sizes[k], **sides}
        if words.rooted:
            out[label]["rmse"] = {n: words.shown(risk.value) for n, risk in sides.items()}
        if found.absolute is not None:
            out[label]["mae"] = {name: getattr(found.absolute, name)[k] for name in sides}
    return out


def _proved(record: FitRecord) -> str | None:
    """What is proved about the fit, in a sentence; None if nothing is claimed."""
    from counterpoise.solver.proved import proved_sentence

    certificate = getattr(record.neuron, "certificate_", None)
    return None if certificate is None else proved_sentence(certificate, record.proof)


def described(record: FitRecord) -> str:
    """The fit on one screen: the answer, the price, the groups, what is proved, what to do."""
    from counterpoise.common.text import count

    def told(text: str) -> str:
        return wrapped(in_options(text, fit))

    neuron, data = record.neuron, record.data
    lines = [wrapped(record.answer)]
    if record.price:
        lines.append(wrapped(record.price))
    lines += ["", f"{told(record.caption)}:", "", record.table(MOST_SHOWN), ""]
    chosen = _chosen(record)
    if chosen:
        lines.append(told(chosen))
    proved = _proved(record)
    if proved:
        lines.append(told(proved))
    lines.append(told(f"Next: {next_step(record)}"))
    sizes = ((data.rows, "row"), (data.encoded, "feature"), (len(neuron.groups_), "group"))
    lines += ["", "Data: " + ", ".join(count(size, noun) for size, noun in sizes) + "."]
    lines += [told(f"Note: {note.rstrip('.')}.") for note in data.notes]
    return "\n".join(lines)


def _chosen(record: FitRecord) -> str:
    """What cross-validation chose, in the first sentence of its verdict; else the strength."""
    from counterpoise.common.text import number

    verdict = getattr(record.neuron, "verdict_", None)
    if not verdict:
        return f"Fitted with nu = {number(record.neuron.nu_)}."
    if not record.neuron.robust_ and not record.neuron.uses_group_:
        return str(verdict)
    first, _, others = str(verdict).partition(". On held-out rows, ")
    # After the two sentences with figures, which stand above: what to beware of.
    *_, beware = [*others.split("). ", 2), ""][:3]
    return f"{first}. {beware}".strip()


def next_step(record: FitRecord) -> str:
    """What to do next, in a sentence."""
    from counterpoise.assessment.diagnosis.worth import the

    neuron = record.neuron
    if not neuron.converged_:
        return f"{neuron.status_[:1].lower()}{neuron.status_[1:]}"
    if len(neuron.groups_) < 2:
        return "name the groups with --group; with one group, this is the plain average."
    uses = getattr(neuron, "uses_group_", "")
    known = f"if {record.if_known}. Add --group-known." if record.if_known else ""
    if hasattr(neuron, "verdict_"):
        if known:
            return known
        if not (neuron.robust_ or uses):
            return (
                f"keep {the(record.plain_name)}; `counterpoise diagnose` says why robustness does "
                "not pay here."
            )
        if record.most_get_worse:
            return (
                "decide whether the worst group is worth it, because most groups get worse; "
                "--max-cost limits the price."
            )
        return "look at every group in the report, and predict with `counterpoise predict`."
    if not record.helps_worst_group:
        return "choose on held-out rows with --cv; this fit does not help the worst group."
    if known:
        return known
    return "choose the strength on held-out rows with --cv."
