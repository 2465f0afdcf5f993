"""Residuals by group."""

from __future__ import annotations

from counterpoise.common.text import figure
from counterpoise.report import blocks as b
from counterpoise.report.blocks import Block
from counterpoise.report.fit.risks import ROWS
from counterpoise.report.fit.view import AFTER, FitView
from counterpoise.rows.groups import label_list


def residual_section(fit: FitView) -> Block | None:
    """Show quantiles of label minus prediction; None if the record has none."""
    found = fit.record.residuals
    if found is None:
        return None
    position = {label: i for i, label in enumerate(label_list(found.labels))}
    shown = [i for i in fit.order if fit.labels[i] in position][:ROWS]
    at = [position[fit.labels[i]] for i in shown]
    names = [fit.names[i] for i in shown]
    middle, worst = len(found.levels) // 2, at[0]
    few = "" if len(at) == len(position) else f" The {len(at)} hardest of {len(position):,} groups."
    before, after = (figure(float(side[worst, middle])) for side in (found.plain, found.ours))
    what = f"{fit.record.data.target or 'label'} minus prediction"
    chart = b.chart(
        "residuals",
        "boxes",
        f"Residuals: {what}",
        f"In {fit.called(shown[0])}, the hardest group, the median goes from {before} to {after}.",
        f"In {fit.unit}. Boxes show quartiles; whiskers end at the 5% and 95% quantiles. A box "
        f"away from zero is a group whose predictions are too high or too low.{few}",
        names=names,
        levels=found.levels,
        x=what,
        series=[
            {"name": fit.before.name, "colour": "plain", "quantiles": found.plain[at]},
            {"name": AFTER, "colour": "ours", "quantiles": found.ours[at]},
        ],
    )
    return b.section("residuals", "Residuals by group", chart)
