"""The page about a fit."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from counterpoise.assessment.record import FitRecord
from counterpoise.common.text import change, count, figure, listed
from counterpoise.report import blocks as b
from counterpoise.report.blocks import Block
from counterpoise.report.fit_charts import (
    frontier_section,
    path_section,
    residual_section,
    risk_section,
)
from counterpoise.report.fit_sections import certificate_section, repeat_section, verdict_section
from counterpoise.report.judgement import Judgement
from counterpoise.report.page import Page

# By how much a risk must change to be called better or worse.
MATTERS = 0.005


def fit_page(model: Any, record: FitRecord) -> str:
    """A page about a fit, as the text of one HTML file that needs nothing else.

    Parameters
    ----------
    model : GroupDRONeuron or GroupDRONeuronCV, fitted
    record : FitRecord
    """
    seen = Judgement.of(model, record)
    sections = [
        risk_section(seen, record),
        path_section(model, seen),
        frontier_section(model, record),
        residual_section(seen, record),
        verdict_section(record),
        certificate_section(model),
        repeat_section(model, record),
    ]
    return Page(
        kind="fit",
        title=_title(record, seen),
        lead=_lead(model, record, seen),
        figures=_figures(model, record, seen),
        sections=sections,
        made=record.made,
    ).html()


def _title(record: FitRecord, seen: Judgement) -> str:
    by = " and ".join(record.data.group) or "no group"
    return f"{record.data.target} by {by}: {_outcome(seen)}"


def _outcome(seen: Judgement) -> str:
    """The whole report in a few words."""
    if len(seen.names) == 1:
        return "one group, nothing to balance"
    return f"the worst group's risk is {change(seen.before.worst, seen.after.worst)}"


def _lead(model: Any, record: FitRecord, seen: Judgement) -> list[str]:
    """What was fitted on what, and what came of it, good or bad."""
    data, before, after = record.data, seen.before, seen.after
    unit = getattr(model.activation_, "name", None) or "custom"
    first = (
        f"A neuron with the activation {unit} was fitted to {count(data.rows, 'row')} of "
        f"{data.path}, in {count(len(seen.names), 'group')}. Risks are mean squared errors of "
        f"{seen.how}. That of the worst group is {figure(after.worst)} "
        f"({seen.names[after.hardest]}) in place of {figure(before.worst)} "
        f"({seen.names[before.hardest]}) for {before.name}, {change(before.worst, after.worst)}"
    )
    if before.average is None or after.average is None:
        first += ". The average over all rows is not known here."
    else:
        first += (
            f"; the average over all rows is {figure(after.average)} in place of "
            f"{figure(before.average)}, {change(before.average, after.average)}."
        )
    if len(seen.names) > 1:
        first += f" {count(seen.better, 'group')} fare better, {seen.worse:,} worse."
    out = [first.replace("1 group fare ", "1 group fares ")]
    if _tone(before.worst, after.worst) == "bad":
        out.append(
            f"The worst group fares worse than under {before.name} on these rows: this fit is "
            "not to be preferred for its sake. Look at the intervals, and at the advice below."
        )
    if not seen.held_out:
        out.append(
            "These rows were seen by both fits, so that both look better here than they will be "
            "on others."
        )
    verdict = getattr(model, "verdict_", None)
    if verdict:
        out.append(str(verdict))
    return out


def _figures(model: Any, record: FitRecord, seen: Judgement) -> list[Block]:
    """The numbers to remember."""
    before, after = seen.before, seen.after
    where = "held out" if seen.held_out else "on the rows of the fit"
    root = math.sqrt(max(after.worst, 0.0)) if math.isfinite(after.worst) else math.nan
    out = [
        b.key_figure(
            "Risk of the worst group",
            f"{figure(before.worst)} → {figure(after.worst)}",
            f"{change(before.worst, after.worst)}, {where}; an error of about {figure(root)} in "
            f"the unit of {record.data.target}",
            _tone(before.worst, after.worst),
        )
    ]
    if before.average is not None and after.average is not None:
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
            f"{seen.better:,} of {len(seen.names):,}",
            f"most weight: {listed(_heaviest(seen), most=3)}",
        )
    )
    certificate = model.certificate_
    gap = certificate.duality_gap
    if gap is not None and math.isfinite(gap):
        share = gap / abs(certificate.risk) if certificate.risk else 0.0
        value, remark = f"{share:.1g}", "of the risk at most is left to gain (duality gap)"
    elif certificate.running_slack <= 0:
        value, remark = "slack ≤ 0", "the theorem's inequality holds for this run"
    else:
        value, remark = "slack > 0", "the steps' errors are not all paid for: see the bounds"
    return [*out, b.key_figure("Certificate", value, remark)]


def _heaviest(seen: Judgement) -> list[str]:
    return [seen.names[i] for i in np.argsort(-seen.weights, kind="stable")[:3]]


def _tone(before: float, after: float) -> str:
    if not (math.isfinite(before) and math.isfinite(after)):
        return ""
    if after < before * (1.0 - MATTERS):
        return "good"
    return "bad" if after > before * (1.0 + MATTERS) else ""
