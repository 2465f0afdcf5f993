"""What the page about a fit draws: risks, the way there, the frontier, residuals."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from counterpoise.assessment.record import FitRecord
from counterpoise.common.text import count, figure, listed
from counterpoise.report import blocks as b
from counterpoise.report.blocks import Block
from counterpoise.report.curves import CURVES, SHOWN, curve, foremost, thinned, wide
from counterpoise.report.judgement import AFTER, Judgement, Side
from counterpoise.rows.groups import label_list

Array = np.ndarray

# Groups that a chart with a row for each has room for.
ROWS = 40


def risk_section(seen: Judgement, record: FitRecord) -> Block:
    """Risks of every group before and after: a chart of the hardest, a table of all."""
    at = seen.order[:ROWS]
    names = [seen.names[i] for i in at]
    series = [_shown(side, at) for side in (seen.before, seen.after)]
    values = np.concatenate([side.values[at] for side in (seen.before, seen.after)])
    values = values[np.isfinite(values)]
    positive = values[values > 0]
    log = wide(positive)
    floor = float(positive.min()) / 2.0 if len(positive) else 1.0
    bounds = ""
    if seen.level is not None:
        bounds = (
            f" Bars are {100 * seen.level:g}% intervals, each for its group alone; those that "
            "leave the picture go on."
        )
    caption = f"Mean squared error in squared units of {record.data.target}, of {seen.how}.{bounds}"
    if len(seen.names) > len(at):
        caption += f" The {len(at)} hardest of {len(seen.names):,} groups; the table has all."
    picture = b.chart(
        "risks",
        "rows",
        f"Risk of each group, {seen.before.name} against this fit",
        f"{seen.better:,} of {count(len(seen.names), 'group')} have a lower risk than under "
        f"{seen.before.name}; the largest goes from {figure(seen.before.worst)} to "
        f"{figure(seen.after.worst)}.",
        caption,
        names=names,
        series=series,
        x=f"risk{', logarithmic' if log else ''}",
        log=log,
        floor=floor,
        range=_range(series, values, floor, log),
        remarks=[_remark(seen, i) for i in at],
    )
    words = (
        "Neither fit had seen these rows."
        if seen.held_out
        else "Both fits had seen these rows: on others, risks will be larger."
    )
    return b.section("risks", "Risks by group", b.text(words), picture, _risk_table(seen, record))


def _shown(side: Side, at: list[int]) -> dict[str, Any]:
    found: dict[str, Any] = {"name": side.name, "colour": "ours" if side.name == AFTER else "plain"}
    found["values"] = side.values[at]
    if side.low is not None and side.high is not None:
        found |= {"low": side.low[at], "high": side.high[at]}
    return found


def _range(series: list[dict[str, Any]], values: Array, floor: float, log: bool) -> Any:
    """Where the axis ends: a few wide intervals are not to squeeze all the others."""
    if not len(values) or not values.max() > 0:
        return None
    top = float(values.max())
    highs = np.concatenate([one.get("high", one["values"]) for one in series])
    highs = highs[np.isfinite(highs)]
    end = min(float(highs.max(initial=top)), 2.0 * top)
    return [0.8 * floor if log else 0.0, 1.05 * end]


def _remark(seen: Judgement, i: int) -> str:
    rows = "" if seen.rows is None else f"{count(round(float(seen.rows[i])), 'row')}, "
    return f"{rows}weight {seen.weights[i]:.3g}"


def _risk_table(seen: Judgement, record: FitRecord) -> Block:
    def cell(side: Side, i: int) -> list[Any]:
        low = None if side.low is None else side.low[i]
        high = None if side.high is None else side.high[i]
        return [side.values[i], low, high]

    kind = "number" if seen.level is None else "interval"
    columns = [("Group", "text"), (f"Risk, {seen.before.name}", kind), (f"Risk, {AFTER}", kind)]
    columns += [("Change", "change"), ("Weight", "share")]
    if seen.rows is not None:
        columns.insert(1, ("Rows judged" if seen.level is not None else "Rows", "count"))
    rows = []
    for i in seen.order:
        before, after = cell(seen.before, i), cell(seen.after, i)
        moved = after[0] / before[0] - 1.0 if before[0] > 0 else np.nan
        row: list[Any] = [seen.names[i], before, after, moved, seen.weights[i]]
        if seen.level is None:
            row[1:3] = [before[0], after[0]]
        if seen.rows is not None:
            row.insert(1, round(float(seen.rows[i])))
        rows.append(row)
    caption = f"All {count(len(rows), 'group')}: risk in squared units of {record.data.target}"
    if seen.level is not None:
        caption += f", with {100 * seen.level:g}% intervals"
    return b.table("risk-table", f"{caption}.", columns, rows, search=True)


def path_section(model: Any, seen: Judgement) -> Block:
    """Weights and risks along the iterations of Algorithm 1."""
    way = _Way.of(model)
    at = foremost(way.weights[-1], way.risks[-1], most=CURVES)
    picked = np.argsort(-way.weights[-1][at], kind="stable")[:SHOWN]
    names = [seen.names[i] for i in at]
    common: dict[str, Any] = {"x": "iteration", "whole": True, "logx": len(way.x) > 100}
    few = ""
    if len(at) < len(seen.names):
        few = f" {len(at)} of {len(seen.names):,} groups are kept: those of most weight or risk."
    end = "The last point is the fit as returned, after polish."
    caption = f"{end}{few}{thinned(len(way.x))}"
    parts = [
        b.chart(
            "progress",
            "curves",
            "Risk along the iterations",
            f"From {figure(float(way.risk[0]))} to {figure(float(way.risk[-1]))}.",
            "The risk that is minimised, and the largest risk of any group, on the rows of the "
            f"fit. {end}{thinned(len(way.x))}",
            y="risk",
            series=[
                curve("risk minimised", way.x, way.risk, colour="ours"),
                curve("worst group", way.x, way.worst, colour="plain", dash="dash"),
            ],
            logy=wide(np.append(way.risk, way.worst)),
            **common,
        ),
        b.choice("groups", "group", names, picked.tolist()),
        b.chart(
            "weights",
            "curves",
            "Weights of groups",
            f"At the end most weight is on {listed([names[i] for i in picked], most=3)}.",
            f"The mixture of groups that the fit is trained for. {caption}",
            y="weight",
            percent=True,
            choice="groups",
            series=_curves(names, way.x, way.weights[:, at]),
            **common,
        ),
    ]
    if len(way.risks) == len(way.x):
        parts.append(
            b.chart(
                "group-risks",
                "curves",
                "Risks of groups",
                f"The largest at the end is {figure(float(way.risks[-1].max()))}.",
                f"Mean squared error on the rows of the fit. {caption}",
                y="risk",
                choice="groups",
                logy=wide(way.risks[:, at]),
                series=_curves(names, way.x, way.risks[:, at]),
                **common,
            )
        )
    return b.section("path", "Weights and risks along the way", b.text(model.status_), *parts)


class _Way(NamedTuple):
    """The iterations, and the returned fit as one more; of the group risks the last row alone if
    no others were kept."""

    x: Array
    risk: Array
    worst: Array
    weights: Array
    risks: Array

    @classmethod
    def of(cls, model: Any) -> _Way:
        history = model.history_
        weights = np.vstack([history["weights"], model.group_weights_])
        risks = np.asarray(model.group_risks_, dtype=float)[None, :]
        if "group_risks" in history:
            risks = np.vstack([history["group_risks"], risks])
        return cls(
            np.arange(1, len(weights) + 1),
            np.append(history["risk"], model.risk_),
            np.append(history["worst"], np.max(model.group_risks_)),
            weights,
            risks,
        )


def _curves(names: list[str], x: Array, values: Array) -> list[dict[str, Any]]:
    return [curve(name, x, values[:, k], pick=k) for k, name in enumerate(names)]


def frontier_section(model: Any, record: FitRecord) -> Block:
    """Average against worst-group risk, where candidates were tried."""
    title, name = "Average against worst group", "frontier"
    found = getattr(model, "frontier_", None)
    if found is None:
        words = (
            f"This fit was made with one strength, nu = {figure(float(model.nu_))}. To see what "
            "every strength costs on average and gains on the worst group, held out, and to let "
            "the rows choose, fit again with --cv, or run counterpoise frontier."
        )
        return b.section(name, title, b.text(words))
    near, i = found.near(), found.chosen
    families = []
    for family in dict.fromkeys(found.family):
        at = [k for k, own in enumerate(found.family) if own == family and near[k]]
        columns = {"nu": found.nu, "average": found.average, "worst": found.worst}
        columns["error"] = found.error
        if at:
            families.append({"name": family} | {key: col[at] for key, col in columns.items()})
    left = int(np.sum(~near))
    worst = found.worst[near]
    summary = (
        f"Chosen: nu = {figure(float(found.nu[i]))}, average {figure(float(found.average[i]))}, "
        f"worst group {figure(float(found.worst[i]))}; the plain average has "
        f"{figure(float(found.average[0]))} and {figure(float(found.worst[0]))}."
    )
    picture = b.chart(
        "frontier",
        "frontier",
        "Held-out risks of all candidates",
        summary,
        "Each point is a way to fit, judged on rows it had not seen; lines join strengths nu of "
        "one family. The ring is what was chosen, its bar one standard error."
        + (f" {count(left, 'candidate')} far off are not shown." if left else ""),
        families=families,
        chosen={key: getattr(found, key)[i] for key in ("average", "worst", "error")},
        x="average risk",
        y="risk of the worst group",
        log=bool(worst.min() > 0 and worst.max() > 10 * worst.min()),
    )
    rows = [
        [own + (" (chosen)" if k == i else ""), *values]
        for k, (own, *values) in enumerate(
            zip(found.family, found.nu, found.average, found.worst, found.error, strict=True)
        )
    ]
    columns_of = [("Family", "text"), ("nu", "number"), ("Average risk", "number")]
    columns_of += [("Worst group's risk", "number"), ("Standard error", "number")]
    every = b.table("frontier-table", "All candidates, held out.", columns_of, rows)
    return b.section(name, title, b.text(summary), picture, b.fold("All candidates", every))


def residual_section(seen: Judgement, record: FitRecord) -> Block:
    """What is left of the labels, by group."""
    found = record.residuals
    if found is None:
        words = "No residuals were kept with this fit."
        return b.section("residuals", "Residuals by group", b.text(words))
    place = {label: i for i, label in enumerate(label_list(found.labels))}
    shown = [i for i in seen.order if seen.labels[i] in place][:ROWS]
    at = [place[seen.labels[i]] for i in shown]
    names = [seen.names[i] for i in shown]
    middle = len(found.levels) // 2
    worst = at[0]
    few = "" if len(at) == len(place) else f" The {len(at)} hardest of {len(place):,} groups."
    picture = b.chart(
        "residuals",
        "boxes",
        "Label minus prediction",
        f"In {names[0]}, the hardest group, the median goes from "
        f"{figure(float(found.plain[worst, middle]))} to "
        f"{figure(float(found.ours[worst, middle]))}.",
        f"In units of {record.data.target}, of the fits to all rows. Boxes are quartiles, whiskers "
        f"end at the 5% and 95% quantiles. A box away from zero is a group that is missed on one "
        f"side.{few}",
        names=names,
        levels=found.levels,
        x="label minus prediction",
        series=[
            {"name": seen.before.name, "colour": "plain", "quantiles": found.plain[at]},
            {"name": AFTER, "colour": "ours", "quantiles": found.ours[at]},
        ],
    )
    return b.section("residuals", "Residuals by group", picture)
