"""Average risk against worst-group risk, for every candidate that was tried."""

from __future__ import annotations

from typing import Any

import numpy as np

from counterpoise.common.text import count, figure
from counterpoise.report import blocks as b
from counterpoise.report.blocks import Block
from counterpoise.report.fit.view import FitView

NAME, TITLE = "frontier", "Average against worst group"


def frontier_section(fit: FitView) -> Block | None:
    """Show what robustness costs; without candidates, say how to get them."""
    found = getattr(fit.model, "frontier_", None)
    if found is not None:
        summary = _summary(found)
        every = b.fold("All candidates", _table(found))
        return b.section(NAME, TITLE, b.text(summary), _chart(found, summary), every)
    nu = getattr(fit.model, "nu_", None)
    if nu is None:
        return None
    remedy = "fit GroupDROClassifierCV" if fit.words.classifies else "fit GroupDRONeuronCV"
    if fit.record.command:
        remedy = "fit again with --cv, or run counterpoise frontier"
    words = (
        f"This fit used one robustness strength, nu = {figure(float(nu))}. To see what other "
        f"strengths cost on average and gain on the worst group, {remedy}."
    )
    return b.section(NAME, TITLE, b.text(words))


def _summary(found: Any) -> str:
    i = found.chosen
    return (
        f"Chosen: nu = {figure(float(found.nu[i]))}, average {figure(float(found.average[i]))}, "
        f"worst group {figure(float(found.worst[i]))}. The plain average has "
        f"{figure(float(found.average[0]))} and {figure(float(found.worst[0]))}."
    )


def _chart(found: Any, summary: str) -> Block:
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
    caption = (
        "Each point is one way to fit, measured on rows it was not fitted to. Lines join the "
        "strengths nu of one family. The ring marks the choice; its bar is one standard error."
    )
    if left:
        caption += f" {count(left, 'candidate')} far away not shown."
    return b.chart(
        "frontier",
        "frontier",
        "Held-out risks of all candidates",
        summary,
        caption,
        families=families,
        chosen={key: getattr(found, key)[i] for key in ("average", "worst", "error")},
        x="average risk",
        y="risk of the worst group",
        log=bool(worst.min() > 0 and worst.max() > 10 * worst.min()),
    )


def _table(found: Any) -> Block:
    rows = [
        [family + (" (chosen)" if k == found.chosen else ""), *values]
        for k, (family, *values) in enumerate(
            zip(found.family, found.nu, found.average, found.worst, found.error, strict=True)
        )
    ]
    columns = [("Family", "text"), ("nu", "number"), ("Average risk", "number")]
    columns += [("Worst group's risk", "number"), ("Standard error", "number")]
    return b.table("frontier-table", "All candidates, on held-out rows.", columns, rows)
