"""The choice among candidates by their held-out losses, and what it weighs.

Candidates are compared on the same rows, so differences between them have far smaller errors than
their risks. The rule has three steps:

1. A candidate must beat the plain average on the worst group: by one percent, and in 95 % of the
   samples that the held-out rows could have been (`HeldOut.draws`).
2. Those whose worst group is within one standard error of the best one's count as equally good;
   the error is that of the difference.
3. Among these, the one with the lowest average wins.

If no candidate passes the first step, the plain average is chosen. It is also chosen if the choices
that are made without each fold, judged on that fold, do not help the worst group. The rule and its
numbers were settled on half of the tables of ``benchmarks/choosing.py``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from counterpoise.assessment.held_out import HeldOut

Array = np.ndarray

# Share of the samples on which a candidate must beat the plain average, and by how much on average.
SURE, NEEDED_GAIN = 0.95, 0.01
# Standard errors within which two candidates are equally good for the worst group.
EQUAL = 1.0
# A fold is reported if its worst-group risk is this many times the median.
STRIKING = 3.0


@dataclass(frozen=True)
class CostLimits:
    """Limits on the price of robustness: relative rises of held-out errors, as they are shown.

    ``average`` limits the error over all rows, and ``group`` that of any group; None for no limit.
    """

    average: float | None = None
    group: float | None = None

    def allows(self, heldout: HeldOut, plain: int, folds: Sequence[int] | None) -> Array:
        """Mark the candidates within the limits: (C,)."""
        averages = heldout.shown(heldout.average_of(folds))
        out = np.ones(len(averages), dtype=bool)
        if self.average is not None:
            out &= averages <= (1.0 + self.average) * averages[plain]
        if self.group is not None:
            risks = heldout.shown(heldout.risks(folds))
            with np.errstate(invalid="ignore"):
                out &= ~(risks > (1.0 + self.group) * risks[plain]).any(axis=1)
        return out


NO_LIMITS = CostLimits()


@dataclass(frozen=True)
class Choice:
    """A choice among candidates.

    Attributes
    ----------
    chosen : int
    best : int
        The candidate with the lowest expected worst-group risk.
    spoken : int
        The candidate to report on: the chosen one or, if that is the plain average, the best.
    sure : array of shape (C,)
        Share of the samples on which each candidate beats the plain average.
    error : array of shape (C,)
        Standard error of each worst-group risk.
    striking : int
        Folds on which the worst-group risk of the candidate to report on is far above the median.
    dearer : bool
        Whether a candidate with a lower worst-group risk was left out for its cost.
    overruled : bool
        Whether a candidate was dropped because choices by fold did not hold up.
    """

    chosen: int
    best: int
    spoken: int
    sure: Array
    error: Array
    striking: int
    dearer: bool = False
    overruled: bool = False


def choose(
    heldout: HeldOut,
    plain: int = 0,
    excluded: Sequence[int] = (),
    limits: CostLimits = NO_LIMITS,
    folds: Sequence[int] | None = None,
) -> Choice:
    """Choose a candidate, or the ``plain`` average.

    Parameters
    ----------
    excluded : sequence of int
        Candidates that are not to be chosen.
    folds : sequence of int, optional
        The folds to judge by; all of them if None.
    """
    draws = heldout.draws(folds)
    expected, beaten = draws.mean(axis=0), draws[:, [plain]]
    sure = (draws < beaten).mean(axis=0)
    open_ = np.ones(len(expected), dtype=bool)
    open_[[i for i in (*excluded, plain) if 0 <= i < len(open_)]] = False
    pays = open_ & (sure >= SURE) & (expected <= (1.0 - NEEDED_GAIN) * expected[plain])
    allowed = pays & limits.allows(heldout, plain, folds)
    best = int(np.argmin(np.where(open_, expected, np.inf))) if open_.any() else plain
    chosen = plain
    if allowed.any():
        lowest = int(np.argmin(np.where(allowed, expected, np.inf)))
        gap = draws - draws[:, [lowest]]
        alike = allowed & (gap.mean(axis=0) <= EQUAL * gap.std(axis=0))
        chosen = int(np.argmin(np.where(alike, heldout.average_of(folds), np.inf)))
    spoken = best if chosen == plain else chosen
    used = slice(None) if folds is None else list(folds)
    worst = heldout.fold_worst[used, spoken]
    striking = int(np.sum(worst > STRIKING * float(np.median(worst))))
    return Choice(
        chosen=chosen,
        best=best,
        spoken=spoken,
        sure=sure,
        error=draws.std(axis=0),
        striking=0 if heldout.bounded else striking,
        dearer=bool((pays & ~allowed & (expected < expected[chosen])).any()),
    )


def choices_by_fold(
    heldout: HeldOut, plain: int, excluded: Sequence[int], limits: CostLimits
) -> list[int]:
    """Choose for every fold of the first partition without its rows.

    The losses of these choices are fair: if folds are disjoint, no row has a say in the choice that
    it judges.
    """
    folds = range(heldout.per_partition)
    return [
        choose(heldout, plain, excluded, limits, [g for g in folds if g != f]).chosen for f in folds
    ]


def confirmed(heldout: HeldOut, choice: Choice, plain: int, fair: Sequence[int]) -> Choice:
    """Return the choice, or the plain average if choices by fold do not help the worst group.

    ``fair`` are the choices that every fold of the first partition had no part in.
    """
    if choice.chosen == plain:
        return choice
    folds = range(len(fair))
    totals = heldout.totals[list(folds)].sum(axis=0)
    seen = totals > 0
    own = sum(heldout.sums[f, fair[f]] for f in folds)
    before = sum(heldout.sums[f, plain] for f in folds)
    if (own[seen] / totals[seen]).max() < (before[seen] / totals[seen]).max():
        return choice
    return replace(choice, chosen=plain, spoken=choice.best, overruled=True)
