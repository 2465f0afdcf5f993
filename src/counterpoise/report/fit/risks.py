"""Errors or losses by group: a chart of the hardest groups, a table of all."""

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
    """Compare the errors of every group before and after, in units of the target."""
    say = fit.words
    words = "Neither model was fitted to these rows."
    if not fit.held_out:
        words = "Both models were fitted to these rows; expect larger figures on new ones."
    title = f"{'Error' if say.rooted else say.title} by group"
    parts = [b.text(words), _chart(fit), _table(fit)]
    if say.rooted:
        parts.append(b.fold("The same as mean squared errors", _squared_table(fit)))
    return b.section("risks", title, *parts)


def _chart(fit: FitView) -> Block:
    at = fit.order[:ROWS]
    before, after = fit.shown
    drawn = [series(side, at) for side in fit.shown]
    values = np.concatenate([side.values[at] for side in fit.shown])
    values = values[np.isfinite(values)]
    positive = values[values > 0]
    log = wide(positive)
    floor = float(positive.min()) / 2.0 if len(positive) else 1.0
    caption = f"{_sentence(fit.measure)}{_in_units(fit)}, on {fit.how}."
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
        f"{_sentence(fit.measure)} of each group: {before.called} and this fit",
        f"{fit.better:,} of {count(len(fit.names), 'group')} have a lower {fit.measure} than with "
        f"{before.called}; the largest goes from {figure(before.worst)} to {figure(after.worst)}.",
        caption,
        names=[fit.names[i] for i in at],
        series=drawn,
        x=f"{fit.axis}{' (log scale)' if log else ''}",
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
    columns, rows = _columns(fit), [_row(fit, fit.shown, i) for i in fit.order]
    caption = f"All {count(len(rows), 'group')}: {fit.measure}{_in_units(fit)}{_with(fit)}. Weight "
    caption += "is the share of the fit's objective that a group carries."
    columns += [("Weight", "share")]
    rows = [[*row, fit.weights[i]] for row, i in zip(rows, fit.order, strict=True)]
    return b.table("risk-table", caption, columns, rows, search=True)


def _squared_table(fit: FitView) -> Block:
    rows = [_row(fit, fit.sides, i) for i in fit.order]
    caption = f"{fit.words.title}{fit.words.squared_unit(fit.unit)}{_with(fit)}."
    return b.table("squared-table", caption, _columns(fit), rows, search=True)


def _columns(fit: FitView) -> list[tuple[str, str]]:
    kind = "number" if fit.level is None else "interval"
    rows = [] if fit.rows is None else [("Rows", "count")]
    sides = [(_sentence(side.name), kind) for side in fit.sides]
    return [("Group", "text"), *rows, *sides, ("Change", "change")]


def _row(fit: FitView, sides: tuple[Side, Side], i: int) -> list[Any]:
    row: list[Any] = [fit.names[i]]
    if fit.rows is not None:
        row.append(round(float(fit.rows[i])))
    row += [_cell(side, i, fit.level is not None) for side in sides]
    before, after = (side.values[i] for side in sides)
    return [*row, after / before - 1.0 if before > 0 else np.nan]


def _cell(side: Side, i: int, interval: bool) -> Any:
    if not interval:
        return side.values[i]
    low = None if side.low is None else side.low[i]
    high = None if side.high is None else side.high[i]
    return [side.values[i], low, high]


def _in_units(fit: FitView) -> str:
    return fit.words.of_target(fit.record.data.target)


def _with(fit: FitView) -> str:
    return "" if fit.level is None else f", with {100 * fit.level:g}% intervals"


def _sentence(words: str) -> str:
    """The words at the beginning of a sentence."""
    return words[:1].upper() + words[1:]
