"""From figures to words: what is thought of an assumption, and what to do about it."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from counterpoise.assessment.diagnosis.assumptions import Sharpness, TailShape

HOLDS, DOUBTFUL, VIOLATED = "holds", "doubtful", "violated"

# Standard errors by which a tail must be heavier than exponential to be doubted, and rejected (the
# largest of many scores is judged: among hundreds of exponential tails one reaches three), and by
# which factor at least: with many rows any difference shows.
HEAVY, HEAVIER = (3.0, 4.5), (1.2, 1.5)
# Tail parameters beyond this make every constant of the theory useless.
LARGE_B = 10.0
# Shares of a group's loss in its worst hundredth of rows; 0.085 for normal errors.
CARRIED = (0.25, 0.5)
# Smallest eigenvalues within the margin, and sharpness along the fit against a linear unit's.
THIN, FLAT = (0.01, 0.001), (0.02, 0.002)
# Rows per coefficient below which a group cannot be learned from.
ROWS_PER_COEFFICIENT = 5.0


class Verdict(NamedTuple):
    """What is thought of one assumption in one group, and why."""

    status: str
    evidence: str

    def __str__(self) -> str:
        return f"{self.status}: {self.evidence}"


def tail_verdict(B: float, shape: TailShape, names: list[str], rows: int) -> Verdict:
    """Whether projections of the features have exponential tails; directions without a name are
    no features."""
    score = np.where(np.isfinite(shape.score), shape.score, -np.inf)
    ratio = np.where(np.isfinite(shape.ratio), shape.ratio, 0.0)
    for status, least, factor in (
        (VIOLATED, HEAVY[1], HEAVIER[1]),
        (DOUBTFUL, HEAVY[0], HEAVIER[0]),
    ):
        # Mixtures of few values look heavy along random directions: more is asked of these.
        needed = np.where([name != "" for name in names], factor, 2.0 * factor)
        found = np.flatnonzero((score > least) & (ratio > needed))
        if len(found):
            # A feature is better evidence than a direction nobody knows.
            j = int(max(found, key=lambda i: (names[i] != "", score[i])))
            return Verdict(
                status,
                f"along {names[j] or 'a random direction'} the far rows spread "
                f"{math.sqrt(ratio[j]):.2g} times as widely as under an exponential tail "
                f"({score[j]:.1f} standard errors)",
            )
    if not np.isfinite(shape.score).any() and rows < 200:
        return Verdict(DOUBTFUL, f"{rows} rows are too few to see a tail")
    if not B < LARGE_B:
        return Verdict(DOUBTFUL, f"B = {B:.3g} is large: some rows are far out")
    return Verdict(HOLDS, f"no tail heavier than exponential; B = {B:.3g}")


def margin_verdict(
    sharp: Sharpness, at_fit: float, rows: int, size: int | None, *, linear: bool
) -> Verdict:
    """Whether the active rows still span all features: for any neuron, or at least at the fit."""
    if size is None:
        return Verdict(DOUBTFUL, "not checked: too many features")
    if size == 0:
        return Verdict(VIOLATED, "no feature varies")
    if linear:
        evidence = f"the second moment is at least {at_fit:.2g}; a linear unit needs no more"
    else:
        evidence = f"zeta = {sharp.zeta:.2g} at gamma = {sharp.gamma:.2g}"
        if sharp.zeta > THIN[0]:
            return Verdict(HOLDS, evidence)
        evidence += f" for some neuron, {at_fit:.2g} on the active rows of the fit"
    few = f"; {rows} rows are few for {size} features" if rows < ROWS_PER_COEFFICIENT * size else ""
    if at_fit > THIN[0]:
        return Verdict(HOLDS if linear else DOUBTFUL, evidence)
    if not few:
        few = "; in some direction these rows hardly vary"
    return Verdict(DOUBTFUL if at_fit > THIN[1] else VIOLATED, evidence + few)


def sharpness_verdict(activity: float) -> Verdict:
    """Whether the neuron's output tells iterates apart as a linear unit's would."""
    if math.isnan(activity):
        return Verdict(DOUBTFUL, "not measured: the iterates do not differ in this group")
    evidence = f"outputs tell iterates apart by {activity:.2g} of what a linear unit's would"
    if activity > FLAT[0]:
        return Verdict(HOLDS, evidence)
    evidence += "; the neuron is nearly silent in this group"
    return Verdict(DOUBTFUL if activity > FLAT[1] else VIOLATED, evidence)


def label_verdict(share: float, rows: int) -> Verdict:
    """Whether a few rows decide the group's loss."""
    if math.isnan(share):
        return Verdict(DOUBTFUL, f"{rows} rows are too few to tell")
    evidence = f"the worst hundredth of the rows carries {share:.0%} of the loss"
    if share <= CARRIED[0]:
        return Verdict(HOLDS, evidence)
    return Verdict(DOUBTFUL if share <= CARRIED[1] else VIOLATED, evidence + " (8% if normal)")


def rows_verdict(rows: int, size: int, needed: float) -> Verdict:
    """Whether there are as many rows as the theorem asks for."""
    evidence = f"{rows:,} rows; the theorem asks for about {needed:.2g}, constants aside"
    if rows < ROWS_PER_COEFFICIENT * size:
        return Verdict(VIOLATED, f"{evidence}, and has {rows / size:.1f} per coefficient")
    return Verdict(HOLDS if rows >= needed else DOUBTFUL, evidence)
