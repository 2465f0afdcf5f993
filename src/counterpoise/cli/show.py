"""``counterpoise show``: describe a stored model."""

from __future__ import annotations

from typing import Any

import click

from counterpoise.cli.fit import fit
from counterpoise.cli.options import as_json
from counterpoise.cli.printing import say, show_json, wrapped
from counterpoise.cli.wording import in_options
from counterpoise.common.task_words import words_of
from counterpoise.common.text import amount, clipped, number, text_table

# Most features and groups that are printed; JSON has all.
SHOWN = 30


@click.command()
@click.argument("model", type=click.Path())
@click.option("--proof", is_flag=True, help="Print the whole certificate.")
@as_json
def show(model: str, proof: bool, as_json: bool) -> None:
    """Describe a stored model: its data, coefficients, groups and what is proved about it.

    \b
    counterpoise show fit
    counterpoise show fit --proof
    counterpoise show fit --json
    """
    from counterpoise.storage.folders import check_stored

    check_stored(model)
    import numpy as np

    from counterpoise.solver.proved import proved_sentence
    from counterpoise.storage.models import load, load_record

    loaded, record = load(model), load_record(model)
    fitted = loaded.steps[-1][1] if hasattr(loaded, "steps") else loaded
    coef = np.atleast_2d(fitted.coef_)
    if fitted is loaded:
        names = getattr(fitted, "feature_names_in_", [f"x{j}" for j in range(coef.shape[1])])
    else:
        names = loaded[:-1].get_feature_names_out()
    if as_json:
        show_json(
            {
                "class": type(fitted).__name__,
                **_kind(fitted),
                "nu": getattr(fitted, "nu_", None),
                **_numbers(fitted, [str(name) for name in names]),
                "groups": dict(zip(map(str, fitted.groups_), fitted.group_weights_, strict=True)),
                "status": fitted.status_,
                "certificate": str(getattr(fitted, "certificate_", "")) or None,
                "record": record,
            }
        )
        return
    # A model of the command line is fitted again with options.
    made_by = fit if record is not None and record.command else None
    status = in_options(fitted.status_, made_by)
    kind = ", ".join(f"{name} {value}" for name, value in _kind(fitted).items() if value)
    lines = [f"{type(fitted).__name__}, {kind}. {status}"]
    if record is not None:
        data = record.data
        lines += [
            f"Fitted to {data.path or 'rows in memory'} ({data.rows:,} rows; target "
            f"{data.target or 'y'}, group {_grouped(data)}) on {record.made}, "
            f"with counterpoise {record.versions.get('counterpoise', '?')}"
            + (f":\n  {record.command}" if record.command else "."),
        ]
    order = np.argsort(-np.abs(coef).max(axis=0))[:SHOWN]
    rows = [[clipped(str(names[j])), *map(number, coef[:, j])] for j in order]
    base = ["(intercept)", *map(number, np.atleast_1d(fitted.intercept_))]
    lines += ["", text_table(["feature", *_scores(fitted)], [base, *rows])]
    if len(names) > SHOWN:
        lines.append(f"... and {len(names) - SHOWN} smaller coefficients")
    if getattr(fitted, "uses_group_", ""):
        lines.append("These are means over the groups; predictions use those of a row's group.")
    heavy = np.argsort(-fitted.group_weights_)[:SHOWN]
    words = words_of(fitted)
    name = str if record is None else record.data.group_name
    rows = [
        [clipped(name(fitted.groups_[k])), amount(words.shown(float(fitted.group_risks_[k]))),
         f"{fitted.group_weights_[k]:.3f}"] for k in heavy
    ]  # fmt: skip
    lines += ["", text_table(["group", words.rate, "weight"], rows)]
    if len(fitted.groups_) > SHOWN:
        lines.append(f"... and {len(fitted.groups_) - SHOWN} groups with less weight")
    if hasattr(fitted, "verdict_"):
        lines += ["", wrapped(in_options(fitted.verdict_, made_by))]
    if hasattr(fitted, "certificate_"):
        proved = proved_sentence(fitted.certificate_, None if record is None else record.proof)
        lines += ["", wrapped(str(fitted.certificate_) if proof else proved)]
        lines += [] if proof else ["For the whole certificate, add --proof."]
    say("\n".join(lines))


def _grouped(data: Any) -> str:
    between = " and, side by side, " if data.overlapping else " x "
    return between.join(data.group) or "none"


def _kind(fitted: Any) -> dict[str, Any]:
    """The activation of a neuron; the loss and the classes of another model."""
    if hasattr(fitted, "activation_"):
        return {"activation": fitted.activation_.name}
    found = {"loss": getattr(fitted.loss, "name", fitted.loss)}
    return found | ({"classes": fitted.classes_.tolist()} if hasattr(fitted, "classes_") else {})


def _scores(fitted: Any) -> list[str]:
    """What each row of coefficients raises, for the head of a table."""
    classes = getattr(fitted, "classes_", None)
    if classes is None:
        return ["coefficient"]
    names = [clipped(str(label), 16) for label in classes.tolist()]
    return [f"for {names[1]}"] if len(names) == 2 else [f"for {name}" for name in names]


def _numbers(fitted: Any, names: list[str]) -> dict[str, Any]:
    """Intercept and coefficients by feature; by class and feature for several classes."""
    if fitted.coef_.ndim == 1:
        coefficients = dict(zip(names, fitted.coef_, strict=True))
        return {"intercept": fitted.intercept_, "coefficients": coefficients}
    if len(fitted.coef_) == 1:
        coefficients = dict(zip(names, fitted.coef_[0], strict=True))
        return {"intercept": fitted.intercept_[0], "coefficients": coefficients}
    classes = [str(label) for label in fitted.classes_.tolist()]
    return {
        "intercept": dict(zip(classes, fitted.intercept_, strict=True)),
        "coefficients": {
            label: dict(zip(names, row, strict=True))
            for label, row in zip(classes, fitted.coef_, strict=True)
        },
    }
