"""The page about a fit: title, lead, key figures, and the list of its sections."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from counterpoise.common.text import (
    change,
    count,
    figure,
    listed,
    percent,
    percent_at_most,
    rounded_down,
)
from counterpoise.report import blocks as b
from counterpoise.report.blocks import Block
from counterpoise.report.fit.assumptions import assumption_section
from counterpoise.report.fit.certificate import certificate_section, region_proof
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

if TYPE_CHECKING:
    from counterpoise.assessment.record import FitRecord

# A smaller relative change of a risk is called neither better nor worse.
MATTERS = 0.005

Section = Callable[[FitView], Block | None]

# In the order of the page; a section that has nothing to show returns None.
SECTIONS: tuple[Section, ...] = (
    accuracy_section,
    risk_section,
    calibration_section,
    confusion_section,
    path_section,
    frontier_section,
    residual_section,
    assumption_section,
    certificate_section,
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
        lead=_lead(fit),
        figures=_figures(fit),
        sections=[part for section in sections if (part := section(fit)) is not None],
        made=record.made or "",
    ).html()


def _title(fit: FitView) -> str:
    """What was fitted, and the outcome in a few words."""
    data = fit.record.data
    names = ["class" if name == data.target else name for name in data.group]
    by = " and ".join(names) or ("groups" if len(fit.names) > 1 else "no group")
    return f"{data.target or 'Label'} by {by}: {_outcome(fit)}"


def _outcome(fit: FitView) -> str:
    if len(fit.names) == 1:
        return "one group, nothing to balance"
    sides = accuracies(fit)
    if sides is not None:
        before, after = (percent(side.least) for side in sides)
        if before == after:
            return f"the worst group's accuracy stays at {after}"
        return f"the worst group's accuracy goes from {before} to {after}"
    return f"the worst group's risk is {change(fit.before.worst, fit.after.worst)}"


def _lead(fit: FitView) -> list[str]:
    """The answer, its cost, and what it was measured on."""
    before, after, sides = fit.before, fit.after, accuracies(fit)
    if sides is None:
        out = [" ".join([_answer(fit), _cost(fit), _setting(fit)])]
    else:
        out = [_accuracy_answer(fit, *sides), " ".join([_answer(fit), _cost(fit), _setting(fit)])]
    if _tone(before.worst, after.worst) == "bad":
        out.append(
            f"The worst group fares worse than with {before.name} on these rows, so this fit is no "
            "improvement for it. Check the intervals, and the advice below."
        )
    if not fit.held_out:
        out.append("Both models were fitted to these rows; expect larger risks on new ones.")
    verdict = getattr(fit.model, "verdict_", None)
    if verdict:
        out.append(str(verdict))
    return out


def _accuracy_answer(fit: FitView, before: Side, after: Side) -> str:
    worst, previous = (fit.names[int(np.nanargmin(side.values))] for side in (before, after))
    said = (
        f"In the worst group, {previous}, {percent(after.least)} of the rows get the right class; "
        f"with {before.name}, it is {percent(before.least)} in its worst, {worst}."
    )
    if before.average is not None and after.average is not None:
        said += f" Over all rows it is {percent(after.average)}, and was {percent(before.average)}."
    return said


def _answer(fit: FitView) -> str:
    before, after = fit.before, fit.after
    compared = _compared(before, before.worst, after.worst)
    return (
        f"The worst group, {fit.names[after.hardest]}, has a {fit.words.loss} of "
        f"{figure(after.worst)}, {compared} ({figure(before.worst)}, {fit.names[before.hardest]})."
    )


def _cost(fit: FitView) -> str:
    before, after = fit.before, fit.after
    if before.average is None or after.average is None:
        said = "The average over all rows is not known here."
    else:
        compared = _compared(before, before.average, after.average)
        said = (
            f"The average over all rows is {figure(after.average)}, {compared} "
            f"({figure(before.average)})."
        )
    if len(fit.names) > 1:
        verb = "fares" if fit.better == 1 else "fare"
        said += f" {count(fit.better, 'group')} {verb} better, {fit.worse:,} worse."
    return said


def _compared(side: Side, before: float, after: float) -> str:
    moved = change(before, after)
    if moved == "unchanged":
        return f"the same as with {side.name}"
    if moved == "not comparable":
        return f"not comparable with {side.name}"
    return f"{moved} than with {side.name}"


def _setting(fit: FitView) -> str:
    data, activation = fit.record.data, getattr(fit.model, "activation_", None)
    what = "A linear classifier" if fit.words.classifies else "A linear model"
    if activation is not None and not activation.is_identity:
        what = f"A neuron with activation {getattr(activation, 'name', None) or 'custom'}"
    path = f" of {data.path}" if data.path else ""
    return (
        f"{what} was fitted to {count(data.rows, 'row')}{path} in "
        f"{count(len(fit.model.groups_), 'group')}; risks are measured on {fit.how}."
    )


def _figures(fit: FitView) -> list[Block]:
    """The numbers to remember."""
    before, after = fit.before, fit.after
    where = "held out" if fit.held_out else "on the training rows"
    out = _accuracy_figures(fit, where)
    remark = f"{change(before.worst, after.worst)}, {where}"
    if fit.words.rooted:
        remark += f"; a typical error of {fit.words.figure(after.worst)} in {fit.unit}"
    name = fit.words.risk_title
    out.append(
        b.key_figure(
            f"{name} of the worst group",
            f"{figure(before.worst)} → {figure(after.worst)}",
            remark,
            _tone(before.worst, after.worst),
        )
    )
    if len(out) == 1 and before.average is not None and after.average is not None:
        out.append(
            b.key_figure(
                "Average risk",
                f"{figure(before.average)} → {figure(after.average)}",
                f"{change(before.average, after.average)}, over all rows, {where}",
                _tone(before.average, after.average),
            )
        )
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
        return f"{percent(old)} → {percent(new)}", f"{100 * (new - old):+.1f} points", tone

    value, points, tone = moved(before.least, after.least)
    out = [b.key_figure("Accuracy of the worst group", value, f"{points}, {where}", tone)]
    if before.average is not None and after.average is not None:
        value, points, tone = moved(before.average, after.average)
        out.append(b.key_figure("Accuracy over all rows", value, f"{points}, {where}", tone))
    return out


def _certified(fit: FitView) -> list[Block]:
    certificate = getattr(fit.model, "certificate_", None)
    if certificate is None:
        return []
    gap = certificate.duality_gap
    if gap is not None and math.isfinite(gap):
        share = gap / abs(certificate.risk) if certificate.risk else 0.0
        value, remark = f"{share:.1g}", "of the risk, at most, is left to gain (duality gap)"
    elif not hasattr(certificate, "running_slack"):
        value, remark = "none", "no duality gap could be proved: see Certificate"
    elif (widest := _widest(fit)) is not None:
        share, radius = widest
        value = f"≤ {percent_at_most(share)}"
        reach = "admissible coefficients" if math.isinf(radius) else (
            f"coefficients whose scores change by up to {rounded_down(radius, 3)}"
        )  # fmt: skip
        remark = f"of the risk is the most that {reach} can gain"
    elif certificate.running_slack <= 0:
        value, remark = "slack ≤ 0", "the theorem's inequality holds for this run"
    else:
        value, remark = "slack > 0", "the theorem's bound is looser for this run: see Certificate"
    return [b.key_figure("Certificate", value, remark)]


def _widest(fit: FitView) -> tuple[float, float] | None:
    """Return the largest gain and the radius of the widest certified region."""
    proof = region_proof(fit)
    region = None if proof is None else proof.widest()
    return None if proof is None or region is None else (proof.share(region), region.radius)


def _heaviest(fit: FitView) -> list[str]:
    return [fit.names[i] for i in np.argsort(-fit.weights, kind="stable")[:3]]


def _tone(before: float, after: float) -> str:
    if not (math.isfinite(before) and math.isfinite(after)):
        return ""
    if after < before * (1.0 - MATTERS):
        return "good"
    return "bad" if after > before * (1.0 + MATTERS) else ""
