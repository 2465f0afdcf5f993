"""Risks by group: a chart of the hardest groups, a table of all."""

from __future__ import annotations

from typing import Any

import numpy as np

from counterpoise.common.text import count, figure
from counterpoise.report import blocks as b
from counterpoise.report.blocks import Block
from counterpoise.report.curves import wide
from counterpoise.report.fit.view import AFTER, FitView, Side

Array = np.ndarray

# Groups that a chart with one row for each has room for.
ROWS = 40


def risk_section(fit: FitView) -> Block:
    """Compare the risks of every group before and after."""
    words = "Neither model was fitted to these rows."
    if not fit.held_out:
        words = "Risks are measured on the training rows; expect larger ones on new rows."
    return b.section(
        "risks", f"{fit.words.risks} by group", b.text(words), _chart(fit), _table(fit)
    )


def _chart(fit: FitView) -> Block:
    at = fit.order[:ROWS]
    drawn = [series(side, at) for side in fit.sides]
    values = np.concatenate([side.values[at] for side in fit.sides])
    values = values[np.isfinite(values)]
    positive = values[values > 0]
    log = wide(positive)
    floor = float(positive.min()) / 2.0 if len(positive) else 1.0
    say = fit.words
    caption = f"{say.title}{say.squared_unit(fit.unit)}, lower is better, on {fit.how}."
    if fit.level is not None:
        caption += (
            f" Bars are {100 * fit.level:g}% intervals, each for its group alone; some may extend "
            "beyond the plot."
        )
    if len(fit.names) > len(at):
        caption += f" The {len(at)} hardest of {len(fit.names):,} groups; the table has all."
    return b.chart(
        "risks",
        "rows",
        f"{say.risk_title} of each group: {fit.before.name} and this fit",
        f"{fit.better:,} of {count(len(fit.names), 'group')} have a lower risk than with "
        f"{fit.before.name}; the largest risk goes from {figure(fit.before.worst)} to "
        f"{figure(fit.after.worst)}.",
        caption,
        names=[fit.names[i] for i in at],
        series=drawn,
        x=f"{say.loss}{', log scale' if log else ''}",
        log=log,
        floor=floor,
        range=_range(drawn, values, floor, log),
        remarks=[fit.remark(i) for i in at],
    )


def series(side: Side, at: list[int]) -> dict[str, Any]:
    """The values and intervals of some groups, for a chart with a row for each."""
    found: dict[str, Any] = {"name": side.name, "colour": "ours" if side.name == AFTER else "plain"}
    found["values"] = side.values[at]
    if side.low is not None and side.high is not None:
        found |= {"low": side.low[at], "high": side.high[at]}
    return found


def _range(drawn: list[dict[str, Any]], values: Array, floor: float, log: bool) -> Any:
    """Where the axis ends; a few wide intervals must not squeeze all the others."""
    if not len(values) or not values.max() > 0:
        return None
    top = float(values.max())
    highs = np.concatenate([one.get("high", one["values"]) for one in drawn])
    highs = highs[np.isfinite(highs)]
    end = min(float(highs.max(initial=top)), 2.0 * top)
    return [0.8 * floor if log else 0.0, 1.05 * end]


def _table(fit: FitView) -> Block:
    kind = "number" if fit.level is None else "interval"
    columns = [("Group", "text")]
    if fit.rows is not None:
        columns.append(("Rows", "count"))
    columns += [(f"{fit.words.risk_title}, {side.name}", kind) for side in fit.sides]
    columns += [("Change", "change"), ("Weight", "share")]
    rows = [_row(fit, i) for i in fit.order]
    say = fit.words
    caption = f"All {count(len(rows), 'group')}: {say.loss}{say.squared_unit(fit.unit)}"
    if fit.level is not None:
        caption += f", with {100 * fit.level:g}% intervals"
    return b.table("risk-table", f"{caption}.", columns, rows, search=True)


def _row(fit: FitView, i: int) -> list[Any]:
    row: list[Any] = [fit.names[i]]
    if fit.rows is not None:
        row.append(round(float(fit.rows[i])))
    row += [_cell(side, i, fit.level is not None) for side in fit.sides]
    before, after = fit.before.values[i], fit.after.values[i]
    return [*row, after / before - 1.0 if before > 0 else np.nan, fit.weights[i]]


def _cell(side: Side, i: int, interval: bool) -> Any:
    if not interval:
        return side.values[i]
    low = None if side.low is None else side.low[i]
    high = None if side.high is None else side.high[i]
    return [side.values[i], low, high]
