"""Verdicts on the assumptions: which figures count as holding, doubtful or violated."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from counterpoise.assessment.diagnosis.assumptions import Sharpness, TailShape

HOLDS, DOUBTFUL, VIOLATED = "holds", "doubtful", "violated"

# Standard errors (and ratio) by which a tail must exceed an exponential one to be doubtful, or
# violated. The largest of many scores is judged: among hundreds of exponential tails, one reaches
# three standard errors. The ratio matters because with many rows any difference is significant.
HEAVY, HEAVIER = (3.0, 4.5), (1.2, 1.5)
# Tail parameters above this make every constant of the theory useless.
LARGE_B = 10.0
# Shares of a group's loss in its worst hundredth of rows; 0.085 for normal errors.
CARRIED = (0.25, 0.5)
# Smallest eigenvalues within the margin, and sharpness along the fit relative to a linear model.
THIN, FLAT = (0.01, 0.001), (0.02, 0.002)
# With fewer rows per coefficient than this, a group's own neuron cannot be estimated.
ROWS_PER_COEFFICIENT = 5.0


class Verdict(NamedTuple):
    """The status of one assumption in one group, with evidence."""

    status: str
    evidence: str

    def __str__(self) -> str:
        return f"{self.status}: {self.evidence}"


def tail_verdict(B: float, shape: TailShape, names: list[str], rows: int) -> Verdict:
    """Judge whether projections of the features have exponential tails.

    A direction without a name is random, not a feature.
    """
    score = np.where(np.isfinite(shape.score), shape.score, -np.inf)
    ratio = np.where(np.isfinite(shape.ratio), shape.ratio, 0.0)
    for status, least, factor in (
        (VIOLATED, HEAVY[1], HEAVIER[1]),
        (DOUBTFUL, HEAVY[0], HEAVIER[0]),
    ):
        # Mixtures of few values look heavy along random directions, so these need more evidence.
        needed = np.where([name != "" for name in names], factor, 2.0 * factor)
        found = np.flatnonzero((score > least) & (ratio > needed))
        if len(found):
            # A named feature is better evidence than a random direction.
            j = int(max(found, key=lambda i: (names[i] != "", score[i])))
            return Verdict(
                status,
                f"along {names[j] or 'a random direction'}, outlying rows spread "
                f"{math.sqrt(ratio[j]):.2g} times as widely as under an exponential tail "
                f"({score[j]:.1f} standard errors)",
            )
    if not np.isfinite(shape.score).any() and rows < 200:
        return Verdict(DOUBTFUL, f"{rows} rows are too few to estimate a tail")
    if not B < LARGE_B:
        return Verdict(DOUBTFUL, f"B = {B:.3g} is large: some rows are outliers")
    return Verdict(HOLDS, f"no tail heavier than exponential; B = {B:.3g}")


def margin_verdict(
    sharp: Sharpness, at_fit: float, rows: int, size: int | None, *, linear: bool
) -> Verdict:
    """Judge whether active rows span all features, for any neuron or at least for the fit."""
    if size is None:
        return Verdict(DOUBTFUL, "not checked: too many features")
    if size == 0:
        return Verdict(VIOLATED, "no feature varies")
    if linear:
        evidence = f"the second moment is at least {at_fit:.2g}, which suffices for a linear model"
    else:
        evidence = f"zeta = {sharp.zeta:.2g} at gamma = {sharp.gamma:.2g}"
        if sharp.zeta > THIN[0]:
            return Verdict(HOLDS, evidence)
        evidence += f" for some neuron, and {at_fit:.2g} on the active rows of the fit"
    few = f"; {rows} rows are few for {size} features" if rows < ROWS_PER_COEFFICIENT * size else ""
    if at_fit > THIN[0]:
        return Verdict(HOLDS if linear else DOUBTFUL, evidence)
    if not few:
        few = "; these rows hardly vary in some direction"
    return Verdict(DOUBTFUL if at_fit > THIN[1] else VIOLATED, evidence + few)


def sharpness_verdict(activity: float) -> Verdict:
    """Judge how well the neuron's outputs distinguish iterates, relative to a linear model."""
    if math.isnan(activity):
        return Verdict(DOUBTFUL, "not measured: the iterates do not differ in this group")
    evidence = f"outputs of different iterates differ by {activity:.2g} of a linear model's"
    if activity > FLAT[0]:
        return Verdict(HOLDS, evidence)
    evidence += "; the neuron is inactive on nearly all rows of this group"
    return Verdict(DOUBTFUL if activity > FLAT[1] else VIOLATED, evidence)


def label_verdict(share: float, rows: int) -> Verdict:
    """Judge whether a few rows dominate the group's loss."""
    if math.isnan(share):
        return Verdict(DOUBTFUL, f"{rows} rows are too few to judge")
    evidence = f"the worst 1% of the rows account for {share:.0%} of the loss"
    if share <= CARRIED[0]:
        return Verdict(HOLDS, evidence)
    evidence += " (8% for normal errors)"
    return Verdict(DOUBTFUL if share <= CARRIED[1] else VIOLATED, evidence)


def rows_verdict(rows: int, size: int, needed: float) -> Verdict:
    """Judge whether there are as many rows as the theorem requires."""
    evidence = f"{rows:,} rows; the theorem requires about {needed:.2g}, up to constants"
    if rows < ROWS_PER_COEFFICIENT * size:
        return Verdict(VIOLATED, f"only {rows / size:.1f} rows per coefficient ({evidence})")
    return Verdict(HOLDS if rows >= needed else DOUBTFUL, evidence)
