"""Worth: does a worst-group fit pay on these rows? Yes, no, or uncertain, and why."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from counterpoise.common.text import change, clipped, figure

YES, NO, UNCERTAIN = "yes", "no", "uncertain"
# Shares of a group's loss above which noise, or its worst hundredth of rows, decides.
NOISY, HEAVY = 0.9, 0.25
# Held-out gains on the worst group that count as none.
NO_GAIN = 0.01
# Rows per coefficient below which a group is small.
FEW_ROWS = 5.0


class GroupFigures(Protocol):
    """The figures of a group that explain an answer."""

    label: Any
    rows: int
    average_loss: float

    @property
    def noise_floor(self) -> float:
        """The loss of a model fitted to this group alone."""


@dataclass(frozen=True)
class Worth:
    """Whether a worst-group fit pays, from held-out rows; prints as a few sentences.

    Attributes
    ----------
    answer : {"yes", "no", "uncertain"}
    reasons : list of str
    before, after : float
        Held-out error of the worst group: of the plain average, and of the fit that
        cross-validation chose or, if that is the plain average, of the best robust fit.
    average_before, average_after : float
        The same over all rows.
    sure : float
        Share of resamples of the held-out rows in which the robust fit is better for the worst
        group.
    measure : str
        What an error is: "error" (root mean squared), "log loss", ...
    with_group : tuple of two floats, or None
        Held-out errors, of the worst group and of all rows, of the plain average with the group as
        a feature.
    plain : str
        What the plain average is called.
    """

    answer: str
    before: float
    after: float
    average_before: float
    average_after: float
    sure: float
    measure: str = "error"
    with_group: tuple[float, float] | None = None
    plain: str = "plain average"
    reasons: list[str] = field(default_factory=list)

    @property
    def gain(self) -> float:
        """Relative fall of the worst group's error."""
        return 1.0 - self.after / self.before if self.before > 0 else 0.0

    def __str__(self) -> str:
        return "\n".join([self.verdict(), *self.reasons, *self.instead(), self.next()])

    def verdict(self) -> str:
        """The answer in one or two sentences."""
        worst = (
            f"the worst group's {self.measure} is {figure(self.after)} instead of "
            f"{figure(self.before)} ({change(self.before, self.after)})"
        )
        average = (
            f"that over all rows {figure(self.average_after)} instead of "
            f"{figure(self.average_before)} ({change(self.average_before, self.average_after)})"
        )
        if self.answer == YES:
            return f"Yes, a worst-group fit pays here: on held-out rows {worst}, and {average}."
        if self.answer == NO:
            return (
                f"No, a worst-group fit does not pay here: with the best one, {worst} on held-out "
                f"rows. {the(self.plain)[:1].upper()}{the(self.plain)[1:]} is as good."
            )
        return (
            f"Uncertain: with the best worst-group fit, {worst} on held-out rows, but it is better "
            f"in only {self.sure:.0%} of resamples."
        )

    def instead(self) -> list[str]:
        """What to do if the group is known."""
        if self.with_group is None:
            return []
        worst, average = self.with_group
        lead = "If the group is known when you predict, make it a feature"
        if worst > min(self.before, self.after):
            lead = "The group as a feature would not help the worst group as much"
        return [
            f"{lead}: {the(self.plain)} then has {_article(self.measure)} {self.measure} of "
            f"{figure(worst)} on its worst group and {figure(average)} over all rows."
        ]

    def next(self) -> str:
        """What to do."""
        if self.answer == YES:
            return "Next: fit with cross-validation, which chooses how robust to be."
        if self.answer == NO:
            return f"Next: use {the(self.plain)}."
        return (
            "Next: fit with cross-validation, which keeps the plain average unless the gain is "
            "clear; more rows of the worst group would settle it."
        )


def answered(robust: bool, gain: float, sure: float) -> str:
    """Return the answer: yes if a robust fit was chosen, no if nothing is to be gained."""
    if robust:
        return YES
    return NO if gain < NO_GAIN or sure < 0.5 else UNCERTAIN


def reasons(groups: Sequence[GroupFigures], coefficients: int) -> list[str]:
    """Say what stands behind an answer, the weightiest first; at most two sentences."""
    worst = max(groups, key=lambda g: -math.inf if math.isnan(g.average_loss) else g.average_loss)
    name, out = clipped(str(worst.label)), []
    few = [g for g in groups if g.rows < FEW_ROWS * coefficients]
    if worst in few:
        out.append(
            f"The worst group, {name}, has {worst.rows:,} rows for {coefficients} coefficients: "
            "too few to tell a hard group from an unlucky one."
        )
    floor = worst.noise_floor / worst.average_loss if worst.average_loss > 0 else math.nan
    if np.count_nonzero(getattr(worst, "class_counts", [1, 1])) < 2:
        floor = math.nan  # a group of one class is served by a constant
    if floor > NOISY:
        out.append(
            f"{min(floor, 1.0):.0%} of the loss of the worst group, {name}, remains even if a "
            "model is fitted to it alone: it is noise to a model of this kind."
        )
    elif floor < 1.0:
        out.append(
            f"A model fitted to the worst group, {name}, alone would remove {1.0 - floor:.0%} of "
            "its loss."
        )
    share = getattr(worst, "tail_share", math.nan)
    if share > HEAVY:
        out.append(
            f"The worst hundredth of the rows of {name} carries {share:.0%} of its loss; check "
            "these rows first."
        )
    if not out and few:
        out.append(f"{len(few)} of {len(groups)} groups have few rows.")
    return out[:2]


def the(plain: str) -> str:
    """The name of a plain average within a sentence: least squares has no article."""
    return f"the {plain}" if plain == "plain average" else plain


def _article(word: str) -> str:
    return "an" if word[:1] in "aeiou" else "a"
