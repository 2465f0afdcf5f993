"""The page about a fit: title, lead, key figures, and the list of its sections."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from counterpoise.common.text import change, count, figure, listed, percent
from counterpoise.report import blocks as b
from counterpoise.report.blocks import Block
from counterpoise.report.fit.assumptions import assumption_section
from counterpoise.report.fit.certificate import certificate_section, certified_gain
from counterpoise.report.fit.classes import (
    accuracies,
    accuracy_section,
    calibration_section,
    confusion_section,
)
from counterpoise.report.fit.frontier import frontier_section
from counterpoise.report.fit.path import path_section
from counterpoise.report.fit.provenance import provenance_section
from counterpoise.report.fit.residuals import residual_section
from counterpoise.report.fit.risks import risk_section
from counterpoise.report.fit.view import FittedModel, FitView, Side
from counterpoise.report.page import Page
from counterpoise.report.words import moment

if TYPE_CHECKING:
    from counterpoise.assessment.record import FitRecord

# A smaller relative change of a risk is called neither better nor worse.
MATTERS = 0.005

Section = Callable[[FitView], Block | None]

# In the order of the page; a section that has nothing to show returns None.
SECTIONS: tuple[Section, ...] = (
    accuracy_section,
    risk_section,
    frontier_section,
    calibration_section,
    confusion_section,
    residual_section,
    assumption_section,
    certificate_section,
    path_section,
    provenance_section,
)


def fit_page(model: Any, record: FitRecord, *, sections: Sequence[Section] = SECTIONS) -> str:
    """Build the page about a fit: one HTML file that needs nothing else.

    Parameters
    ----------
    model : fitted estimator
        A neuron of Counterpoise, or a pipeline that ends in one.
    record : FitRecord
        Facts that are not known for rows in memory (path, format, digest, command) may be None.
    sections : functions from `FitView` to a section or None

    Returns
    -------
    str
        The text of the file.
    """
    neuron: FittedModel = model.steps[-1][1] if hasattr(model, "steps") else model
    fit = FitView.of(neuron, record)
    return Page(
        kind="fit",
        title=_title(fit),
        subject=_subject(fit),
        lead=_lead(fit),
        figures=_figures(fit),
        sections=[part for section in sections if (part := section(fit)) is not None],
        made=moment(record.made),
    ).html()


def _subject(fit: FitView) -> str:
    """What was fitted, by which groups."""
    data = fit.record.data
    names = ["class" if name == data.target else name for name in data.group]
    by = " and ".join(names) or ("groups" if len(fit.names) > 1 else "no group")
    return f"{data.target or 'Label'} by {by}"


def _title(fit: FitView) -> str:
    """The outcome in a few words."""
    whose = "The worst group's" if len(fit.names) > 1 else "One group, nothing to balance: its"
    sides, say = accuracies(fit), fit.words
    if sides is not None:
        old, new = (side.least for side in sides)
        return f"{whose} accuracy {_moved(percent(old), percent(new), new - old)}"
    target = fit.record.data.target
    what = f"{say.rate} in {target}" if say.rooted and target else say.rate
    before, after = fit.before.worst, fit.after.worst
    share, *_ = say.change(before, after).split()
    by = f" by {share}," if share.endswith("%") else ""
    return f"{whose} {what} {_moved(say.figure(before), say.figure(after), after - before, by)}"


def _moved(before: str, after: str, difference: float, by: str = "") -> str:
    if before == after:
        return f"stays at {after}"
    return f"{'rises' if difference > 0 else 'falls'}{by} from {before} to {after}"


def _lead(fit: FitView) -> list[str]:
    """The answer and its cost, what it was measured on, and what to do."""
    before, after, sides = fit.before, fit.after, accuracies(fit)
    out = [] if sides is None else [_accuracy_answer(fit, *sides)]
    out += [f"{_answer(fit)} {_cost(fit)}"]
    if _tone(before.worst, after.worst) == "bad":
        out.append(
            f"The worst group fares worse than with {before.called} on these rows, so this fit is "
            "no improvement for it. Check the intervals, and the advice below."
        )
    out.append(_setting(fit))
    known = fit.record.if_known
    if known:
        out.append(f"If {known}.")
        return out
    found = fit.record.diagnosis
    # Without the evidence, which the section on assumptions has.
    advice = found.advice[0].split(" (")[0] if found is not None and found.advice else ""
    if advice and not advice.startswith("proceed"):
        out.append(f"Advice: {advice.rstrip('.')}.")
    return out


def _accuracy_answer(fit: FitView, before: Side, after: Side) -> str:
    worst, previous = (fit.called(int(np.nanargmin(side.values))) for side in (after, before))
    said = (
        f"In the worst group, {worst}, {percent(after.least)} of the rows get the right class; "
        f"with {before.called}, it is {percent(before.least)} in its worst, {previous}."
    )
    if before.average is not None and after.average is not None:
        said += f" Over all rows it is {percent(after.average)}, and was {percent(before.average)}."
    return said


def _answer(fit: FitView) -> str:
    before, after = fit.shown
    compared = _compared(before, before.worst, after.worst)
    target = fit.record.data.target
    units = f" in units of {target}" if fit.words.rooted and target else ""
    return (
        f"The worst group, {fit.called(after.hardest)}, has a {fit.measure} of "
        f"{figure(after.worst)}{units}, {compared} ({figure(before.worst)}, "
        f"{fit.called(before.hardest)})."
    )


def _cost(fit: FitView) -> str:
    before, after = fit.shown
    if before.average is None or after.average is None:
        said = f"The {fit.measure} over all rows is not known here."
    else:
        compared = _compared(before, before.average, after.average)
        said = (
            f"Over all rows it is {figure(after.average)}, {compared} ({figure(before.average)})."
        )
    if len(fit.names) > 1:
        verb = "fares" if fit.better == 1 else "fare"
        said += f" {count(fit.better, 'group')} {verb} better, {fit.worse:,} worse."
    return said


def _compared(side: Side, before: float, after: float) -> str:
    moved = change(before, after)
    if moved == "unchanged":
        return f"the same as with {side.called}"
    if moved == "not comparable":
        return f"not comparable with {side.called}"
    return f"{moved} than with {side.called}"


def _setting(fit: FitView) -> str:
    data, activation = fit.record.data, getattr(fit.model, "activation_", None)
    what = "A linear classifier" if fit.words.classifies else "A linear model"
    if activation is not None and not activation.is_identity:
        what = f"A neuron with activation {getattr(activation, 'name', None) or 'custom'}"
    path = f" of {data.path}" if data.path else ""
    said = (
        f"{what} was fitted to {count(data.rows, 'row')}{path} in "
        f"{count(len(fit.model.groups_), 'group')}; all figures above are measured on {fit.how}."
    )
    if not fit.held_out:
        said += " Both models were fitted to these rows; expect larger errors on new ones."
    return said


def _figures(fit: FitView) -> list[Block]:
    """The numbers to remember; four, or what is known of them."""
    where = "held out" if fit.held_out else "on the training rows"
    out, say = _accuracy_figures(fit, where), fit.words
    rate = say.rate[:1].upper() + say.rate[1:]
    before, after = fit.shown

    def moved(name: str, old: float, new: float, more: str = "") -> Block:
        value = f"{figure(old)} → {figure(new)}"
        return b.key_figure(name, value, f"{change(old, new)}, {where}{more}", _tone(old, new))

    units = say.of_target(fit.record.data.target)
    worst = moved(f"{rate} of the worst group", before.worst, after.worst, units)
    if out:
        return [*out, worst, *_certified(fit)]
    out.append(worst)
    if before.average is not None and after.average is not None:
        out.append(moved(f"{rate} over all rows", before.average, after.average, units))
    out.append(
        b.key_figure(
            "Groups that fare better",
            f"{fit.better:,} of {len(fit.names):,}",
            f"largest weights: {listed(_heaviest(fit), most=3)}",
        )
    )
    return [*out, *_certified(fit)]


def _accuracy_figures(fit: FitView, where: str) -> list[Block]:
    sides = accuracies(fit)
    if sides is None:
        return []
    before, after = sides

    def moved(old: float, new: float) -> tuple[str, str, str]:
        tone = "good" if new > old + MATTERS else "bad" if new < old - MATTERS else ""
        return (
            f"{percent(old)} → {percent(new)}",
            f"{100 * (new - old):+.1f} points".replace("-", "\N{MINUS SIGN}"),
            tone,
        )

    value, points, tone = moved(before.least, after.least)
    out = [b.key_figure("Accuracy of the worst group", value, f"{points}, {where}", tone)]
    if before.average is not None and after.average is not None:
        value, points, tone = moved(before.average, after.average)
        out.append(b.key_figure("Accuracy over all rows", value, f"{points}, {where}", tone))
    return out


def _certified(fit: FitView) -> list[Block]:
    if getattr(fit.model, "certificate_", None) is None:
        return []
    value, remark = certified_gain(fit)
    return [b.key_figure("Left to gain, proved", value, remark)]


def _heaviest(fit: FitView) -> list[str]:
    return [fit.names[i] for i in np.argsort(-fit.weights, kind="stable")[:3]]


def _tone(before: float, after: float) -> str:
    if not (math.isfinite(before) and math.isfinite(after)):
        return ""
    if after < before * (1.0 - MATTERS):
        return "good"
    return "bad" if after > before * (1.0 + MATTERS) else ""
