"""What the directions that coordinates leave out could still contribute.

Directions in which features hardly vary are left out, because rounding hides them. Usually they
are copies of other columns. If they could lower the risk by more than chance would, the user must
know.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse
from scipy.special import betaincinv

from counterpoise.dual.divergences import SimplexPoint
from counterpoise.losses import Loss
from counterpoise.rows.engines.base import SumEngine
from counterpoise.rows.engines.questions import Question
from counterpoise.solver.coordinates import Coordinates
from counterpoise.solver.problem import Problem
from counterpoise.solver.semidefinite import solve_semidefinite

Array = np.ndarray

# Gains below these shares of the risk do not matter; the second is for gains within chance.
NOTABLE, NOTABLE_CHANCE = 1e-3, 1e-2
# A direction is rounding if rows vary along it by less than this multiple of what they are rounded
# by, unless few rows are so much larger than the others that they decide this.
ROUNDED, UNEVEN = 4.0, 4.0
# Random directions gain more than expected with this probability.
CHANCE = 1e-6


@dataclass(frozen=True, eq=False)
class Along(Question):
    """Sums of ``b r r^T``, ``c r``, ``q`` and ``q^2``: (m, m + 3).

    Here ``r = (x - centre, 1) @ directions``, ``q = |x - centre| @ |directions|``, and ``c``
    and ``b`` are half of the first and second derivative of the loss at ``w``. Rows are
    weighted by the share of their group. They are mapped before anything is summed, so that nearly
    equal columns keep the digits of their difference.
    """

    alike = True

    w: Array
    loss: Loss
    truncate: float | None
    share_K: Array
    centre: Array
    directions: Array
    intercept: bool

    @property
    def pooled(self) -> bool:
        return True

    def of_rows(self, X: Any, y: Array, weights: Array, group: int) -> Array:
        rows = X.toarray() if sparse.issparse(X) else np.asarray(X, dtype=float)
        d = rows.shape[1]
        z = rows @ self.w[:d] + (self.w[d] if self.intercept else 0.0)
        labels = y if self.truncate is None else np.clip(y, -self.truncate, self.truncate)
        share = self.share_K[group] * weights
        centred = rows - self.centre
        mapped = centred @ self.directions[:d]
        sizes = np.abs(centred) @ np.abs(self.directions[:d])
        if self.intercept:
            mapped += self.directions[d]
        bent = (mapped * (0.5 * share * self.loss.bend(z, labels))[:, None]).T @ mapped
        pull = (0.5 * share * self.loss.slope(z, labels)) @ mapped
        return np.column_stack([bent, pull, share @ sizes, share @ sizes**2])


class Gain(NamedTuple):
    """By how much directions left out could lower the risk, and whether chance explains that."""

    value: float
    by_chance: bool


def gain_left_out(problem: Problem, u: Array, point: SimplexPoint, size: float) -> Gain | None:
    """Estimate by how much the directions left out could lower a risk of this ``size``.

    This is what a step along all directions gains over one along those kept. The group weights are
    held fixed, so the true gain is not larger. Returns None if the gain does not matter. Takes a
    pass if directions were left out.
    """
    engine, frame = problem.engine, problem.coordinates
    if not isinstance(frame, Coordinates) or frame.left_out is None or not frame.left_out.shape[1]:
        return None
    assert isinstance(engine, SumEngine)
    d = len(frame.shift)
    mean = np.zeros(d) if frame.mean is None else frame.mean
    out, kept = frame.left_out, frame.basis
    if frame.intercept:  # about the mean, where a direction that hardly varies is near zero
        kept = np.vstack([kept[:d], kept[d] + mean @ kept[:d]])
        out = np.vstack([out, np.zeros(out.shape[1])])
    asked = Along(
        frame.to_user(u), engine.loss, engine.truncate,
        point.weights / engine.census.totals, frame.shift + (mean if frame.intercept else 0.0),
        np.hstack([out, kept]), frame.intercept,
    )  # fmt: skip
    sums = engine.ask(asked)
    everything = np.arange(len(sums))
    m = out.shape[1]
    telling = everything[:m][~_is_rounding(sums, m, engine)]
    if not telling.size:
        return None
    both, kept_alone = np.append(telling, everything[m:]), everything[m:]
    gain = _decrease(sums, both) - _decrease(sums, kept_alone)
    share = engine.census.totals / engine.census.totals.sum()
    rows = engine.census.n_rows / float(np.sum(point.weights**2 / share))
    by_chance = gain <= _by_chance(len(telling), rows) * size
    least = NOTABLE_CHANCE if by_chance else NOTABLE
    return Gain(gain, by_chance) if gain > least * size else None


def _is_rounding(sums: Array, m: int, engine: SumEngine) -> Array:
    """Mark those of the first ``m`` directions along which rows vary by rounding alone."""
    spread, sizes, squares = np.diag(sums)[:m], sums[:m, -2], sums[:m, -1]
    unit = max(engine.census.precision, engine.rounding)
    return (spread <= (ROUNDED * unit) ** 2 * squares) & (squares <= (UNEVEN * sizes) ** 2)


def _decrease(sums: Array, these: Array) -> float:
    """Return by how much the best step along these directions lowers the quadratic."""
    matrix, half_gradient = sums[np.ix_(these, these)], sums[these, -3]
    return float(half_gradient @ solve_semidefinite(matrix, half_gradient))


def _by_chance(directions: int, rows: float) -> float:
    """Return the share of the variance of noise that random directions hardly ever explain."""
    if rows <= directions + 1:
        return 1.0
    return float(betaincinv(0.5 * directions, 0.5 * (rows - directions), 1.0 - CHANCE))
