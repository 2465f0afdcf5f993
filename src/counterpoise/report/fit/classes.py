"""Classes by group: accuracies, calibration, and which class is taken for which."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from counterpoise.common.text import count, percent
from counterpoise.report import blocks as b
from counterpoise.report.blocks import Block
from counterpoise.report.curves import CURVES, SHOWN
from counterpoise.report.fit.risks import ROWS, series
from counterpoise.report.fit.view import AFTER, FitView, Side, side_of
from counterpoise.rows.groups import label_list

if TYPE_CHECKING:
    from counterpoise.assessment.classes import ClassComparison, ClassScores

Array = np.ndarray

# Classes that a table with a column for each has room for.
COLUMNS = 12


def accuracies(fit: FitView) -> tuple[Side, Side] | None:
    """Accuracies before and after, in the order of the groups; None for a model of numbers."""
    found = fit.record.classes
    if found is None:
        return None
    sides = zip((fit.before.name, AFTER), both(found), strict=True)
    before, after = (
        side_of(name, scores.accuracies, fit.labels, 1.0 - scores.average_error)
        for name, scores in sides
    )
    return before, after


def both(found: ClassComparison) -> tuple[ClassScores, ClassScores]:
    """The scores of the plain average and of this fit."""
    plain, *others = found.scores.values()
    return plain, others[-1]


def accuracy_section(fit: FitView) -> Block | None:
    """Compare the accuracies of every group before and after."""
    sides = accuracies(fit)
    if sides is None:
        return None
    before, after = sides
    lower = np.fmin(before.values, after.values)
    order = np.argsort(np.nan_to_num(lower, nan=2.0), kind="stable").tolist()
    words = "The share of rows whose class is right."
    if not fit.held_out:
        words += " Both models were fitted to these rows; expect lower shares on new ones."
    return b.section(
        "accuracies",
        "Accuracy by group",
        b.text(words),
        _accuracy_chart(fit, sides, order[:ROWS]),
        _accuracy_table(fit, sides, order),
    )


def _accuracy_chart(fit: FitView, sides: tuple[Side, Side], at: list[int]) -> Block:
    before, after = sides
    lows = np.concatenate([_known(side.low, side.values)[at] for side in sides])
    lowest = float(np.nanmin(lows)) if np.isfinite(lows).any() else 0.0
    better = int(np.sum(after.values > before.values))
    caption = f"Higher is better, on {fit.how}."
    if fit.level is not None:
        caption += f" Bars are {100 * fit.level:g}% intervals (Wilson), each for its group alone."
    if len(fit.names) > len(at):
        caption += f" The {len(at)} hardest of {len(fit.names):,} groups; the table has all."
    return b.chart(
        "accuracies",
        "rows",
        f"Accuracy of each group: {before.called} and this fit",
        f"{better:,} of {count(len(fit.names), 'group')} have a higher accuracy than with "
        f"{before.called}; the lowest goes from {percent(before.least)} to {percent(after.least)}.",
        caption,
        names=[fit.names[i] for i in at],
        series=[series(side, at) for side in sides],
        x="accuracy",
        percent=True,
        log=False,
        floor=0.0,
        range=[max(0.0, lowest - 0.04), 1.02],
        remarks=[fit.remark(i) for i in at],
    )


def _accuracy_table(fit: FitView, sides: tuple[Side, Side], order: list[int]) -> Block:
    columns = [("Group", "text"), ("Rows", "count")]
    columns += [(side.name[:1].upper() + side.name[1:], "share-interval") for side in sides]
    columns += [("Change", "points"), ("Difference", "text"), ("Balanced accuracy", "share")]
    before, after = sides
    found = fit.record.classes
    assert found is not None
    scores = both(found)[1]
    place = {label: k for k, label in enumerate(label_list(scores.labels))}
    rows = []
    for i in order:
        k = place.get(fit.labels[i])
        known = None if k is None else 1.0 - scores.balanced_errors[k]
        size = None if k is None else round(float(scores.errors.sizes[k]))
        moved = after.values[i] - before.values[i]
        cells = [_cell(side, i) for side in sides]
        rows.append([fit.names[i], size, *cells, moved, _difference(found, k), known])
    caption = (
        f"Accuracy in all {count(len(rows), 'group')}. The balanced accuracy of this fit counts "
        "every class of a group alike."
    )
    if found.errors:
        caption += (
            " A difference is called clear if its interval, which holds for all groups together, "
            "does not include zero."
        )
    return b.table("accuracy-table", caption, columns, rows, search=True)


def _cell(side: Side, i: int) -> list[float]:
    bounds = (_known(bound, side.values)[i] for bound in (side.low, side.high))
    return [side.values[i], *bounds]


def _difference(found: ClassComparison, k: int | None) -> str:
    paired = list(found.errors.values())
    if k is None or not paired:
        return ""
    said = paired[-1].verdict(k)
    return {"lower": "clearly better", "higher": "clearly worse"}.get(said, "not clear")


def calibration_section(fit: FitView) -> Block | None:
    """Show predicted against observed shares; None without probabilities of single rows."""
    if fit.record.classes is None:
        return None
    found = both(fit.record.classes)[1].calibration
    if found is None:
        return None
    # In a group of one class, such as one crossed with the label, only 0 or 1 could be right.
    mixed = (both(fit.record.classes)[1].confusion.sum(axis=2) > 0).sum(axis=1) > 1
    off = {
        k: group.ece - group.ece_by_chance
        for k, group in enumerate(found.groups)
        if group is not None and mixed[k]
    }
    if not off:
        return None
    names = dict(zip(fit.labels, fit.names, strict=True))
    shown = {k: names.get(label, str(label)) for k, label in enumerate(label_list(found.labels))}
    # The groups whose probabilities are furthest from what was observed, beyond chance.
    at = sorted(off, key=lambda k: -off[k])
    classes = label_list(found.classes)
    what = f"the probability of {classes[1]}" if len(classes) == 2 else "the largest probability"
    return b.section(
        "calibration",
        "Calibration by group",
        b.text(
            f"Whether probabilities mean what they say: among rows with {what} near 30%, 30% "
            + (f"should be {classes[1]}." if len(classes) == 2 else "should have that class.")
        ),
        *_calibration_chart(fit, found, at[:CURVES], shown, what),
        _calibration_table(found, at, shown),
    )


def _calibration_chart(
    fit: FitView, found: Any, at: list[int], names: dict[int, str], what: str
) -> list[Block]:
    curves = [
        {
            "name": names[k],
            "x": [part.predicted for part in found.groups[k].bins],
            "y": [part.observed for part in found.groups[k].bins],
            "pick": pick,
        }
        for pick, k in enumerate(at)
    ]
    ideal = {"name": "perfect", "x": [0.0, 1.0], "y": [0.0, 1.0], "colour": "soft", "dash": "dot"}
    few = ""
    if len(at) < len(found.groups):
        few = f" {len(at)} of {len(found.groups):,} groups: the worst calibrated ones."
    choice = b.choice("calibrated", "group", [names[k] for k in at], range(min(SHOWN, len(at))))
    chart = b.chart(
        "calibration",
        "curves",
        "Predicted and observed shares",
        f"{names[at[0]]} is furthest from the diagonal, by "
        f"{percent(found.groups[at[0]].ece)} on average.",
        f"Each point is a bin of rows with similar probabilities, on {fit.how}. Below the dotted "
        f"line, {what} is too high.{few}",
        x="predicted",
        y="observed",
        percent=True,
        shares=True,
        choice="calibrated",
        series=[ideal, *curves],
    )
    return [choice, chart]


def _calibration_table(found: Any, at: list[int], names: dict[int, str]) -> Block:
    classes = label_list(found.classes)
    binary = len(classes) == 2
    columns = [("Group", "text"), ("Rows", "count")]
    columns += [("Observed minus predicted", "points-interval")] if binary else []
    columns += [("Slope", "interval"), ("Calibration error", "share"), ("By chance", "share")]
    rows = []
    for k in at:
        group = found.groups[k]
        large = [list(group.in_the_large[1])] if binary else []
        figures = [list(group.slope), group.ece, group.ece_by_chance]
        rows.append([names[k], round(group.rows), *large, *figures])
    caption = (
        "Slope, below 1 if probabilities are too extreme; mean distance of observed from predicted "
        "shares, beside what chance alone would give."
    )
    if binary:
        caption = f"Observed minus predicted share of {classes[1]}. {caption}"
    return b.table("calibration-table", caption, columns, rows, search=True)


def confusion_section(fit: FitView) -> Block | None:
    """Show which class is taken for which, group by group."""
    if fit.record.classes is None:
        return None
    scores = both(fit.record.classes)[1]
    classes = label_list(scores.classes)
    names = dict(zip(fit.labels, fit.names, strict=True))
    wide = len(classes) <= COLUMNS
    columns = [("Group", "text"), ("Class", "text"), ("Rows", "count"), ("Right", "share")]
    columns += (
        [(f"Taken for {c}", "share") for c in classes] if wide else [("Most taken for", "text")]
    )
    rows = []
    for k, label in enumerate(label_list(scores.labels)):
        totals = scores.confusion[k].sum(axis=1)
        for c in np.flatnonzero(totals > 0):
            told = scores.confusion[k][c] / totals[c]
            row: list[Any] = [names.get(label, str(label)), str(classes[c])]
            row += [round(float(totals[c])), told[c]]
            rows.append([*row, *(told if wide else [_mistaken(told, int(c), classes)])])
    rows.sort(key=lambda row: row[3])
    caption = (
        f"Rows of each class in each group, by what this fit says, on {fit.how}; the least "
        "recognised first."
    )
    if fit.record.data.weight is not None:
        caption += " Rows are counted with their weights."
    table = b.table("confusion-table", caption, columns, rows, search=True)
    return b.section("confusion", "Which class is taken for which", table)


def _mistaken(told: Array, own: int, classes: list[Any]) -> str:
    other = np.where(np.arange(len(told)) == own, -1.0, told)
    best = int(np.argmax(other))
    return f"{classes[best]} ({percent(float(other[best]))})" if other[best] > 0 else ""


def _known(bound: Array | None, values: Array) -> Array:
    return values if bound is None else bound
