"""All rows against the worst group, for every candidate that was tried."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from counterpoise.common.text import count, figure
from counterpoise.report import blocks as b
from counterpoise.report.blocks import Block
from counterpoise.report.fit.view import FitView
from counterpoise.report.words import with_thousands

Array = np.ndarray

NAME, TITLE = "frontier", "What robustness costs"


def frontier_section(fit: FitView) -> Block | None:
    """Show what robustness costs; without candidates, say how to get them."""
    found = getattr(fit.model, "frontier_", None)
    if found is not None:
        shown = _Shown.of(fit, found)
        summary = _summary(found, shown)
        every = [_table(found, shown)]
        verdict = getattr(fit.model, "verdict_", None)
        if verdict:
            every.insert(0, b.text(with_thousands(str(verdict))))
        return b.section(
            NAME, TITLE, b.text(summary), _chart(found, shown, summary),
            b.fold("All candidates, and how one was chosen", *every),
        )  # fmt: skip
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


class _Shown(NamedTuple):
    """Figures of the candidates in the units of the answer, and what they are called."""

    what: str
    average: Array
    worst: Array
    error: Array

    @classmethod
    def of(cls, fit: FitView, found: Any) -> _Shown:
        if not (fit.words.rooted and found.measure == "risk"):
            what = fit.words.loss if found.measure == "risk" else found.measure
            return cls(what, found.average, found.worst, found.error)
        average, worst = (np.sqrt(np.maximum(x, 0.0)) for x in (found.average, found.worst))
        # The standard error of a root, to first order.
        error = found.error / np.maximum(2.0 * worst, np.finfo(float).tiny)
        return cls(fit.measure, average, worst, error)


def _summary(found: Any, shown: _Shown) -> str:
    i, k = found.chosen, found.plain
    of, at = ([figure(float(column[j])) for column in (shown.worst, shown.average)] for j in (i, k))
    if i == k:
        return (
            f"The plain average was chosen, with a {shown.what} of {of[0]} in the worst group and "
            f"{of[1]} over all rows."
        )
    nu = float(found.nu[i])
    which = f"strength, nu = {figure(nu)}" if np.isfinite(nu) else f"fit, {found.family[i]}"
    return (
        f"The chosen {which}, has a {shown.what} of {of[0]} in the worst group and {of[1]} over "
        f"all rows. The plain average has {at[0]} and {at[1]}."
    )


def _chart(found: Any, shown: _Shown, summary: str) -> Block:
    near, i = found.near(), found.chosen
    columns = {"nu": found.nu, "average": shown.average, "worst": shown.worst}
    columns["error"] = shown.error
    families = []
    for family in dict.fromkeys(found.family):
        at = [k for k, own in enumerate(found.family) if own == family and near[k]]
        if at:
            families.append({"name": family} | {key: col[at] for key, col in columns.items()})
    left = int(np.sum(~near))
    worst = shown.worst[near]
    caption = (
        "Each point is one way to fit, measured on rows it was not fitted to; lower and further "
        "left is better. Lines join the strengths nu of one family. The ring marks the choice; its "
        "bar is one standard error. Figures that serve to choose can differ a little from those "
        "above."
    )
    if left:
        caption += f" {count(left, 'candidate')} far away not shown."
    return b.chart(
        "frontier",
        "frontier",
        "Worst group against all rows, for every candidate",
        summary,
        caption,
        families=families,
        chosen={key: getattr(shown, key)[i] for key in ("average", "worst", "error")},
        x=f"{shown.what}, all rows",
        y=f"{shown.what}, worst group",
        log=bool(worst.min() > 0 and worst.max() > 10 * worst.min()),
    )


def _table(found: Any, shown: _Shown) -> Block:
    rows = [
        [family + (" (chosen)" if k == found.chosen else ""), *values]
        for k, (family, *values) in enumerate(
            zip(found.family, found.nu, shown.average, shown.worst, shown.error, strict=True)
        )
    ]
    columns = [("Family", "text"), ("nu", "number"), ("All rows", "number")]
    columns += [("Worst group", "number"), ("Standard error", "number")]
    caption = f"All candidates: {shown.what} on held-out rows."
    return b.table("frontier-table", caption, columns, rows)
