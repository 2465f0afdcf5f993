"""``counterpoise show``: describe a stored model."""

from __future__ import annotations

import click
import numpy as np

from counterpoise.cli.fit import fit
from counterpoise.cli.options import as_json
from counterpoise.cli.printing import say, show_json, wrapped
from counterpoise.cli.wording import in_options

# Most features and groups that are printed; JSON has all.
SHOWN = 30


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
    # A model of the command line is fitted again with options.
    made_by = fit if record is not None and record.command else None
    status = in_options(fitted.status_, made_by)
    lines = [f"{type(fitted).__name__}, activation {fitted.activation_.name}. {status}"]
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
        lines += ["", wrapped(in_options(fitted.verdict_, made_by))]
    if hasattr(fitted, "certificate_"):
        lines += ["", wrapped(f"Certificate. {fitted.certificate_}")]
    say("\n".join(lines))
