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

from counterpoise.activations import Activation
from counterpoise.dual.divergences import SimplexPoint
from counterpoise.rows.engines.base import SumEngine
from counterpoise.rows.engines.questions import Question
from counterpoise.solver.minmax import solve_semidefinite
from counterpoise.solver.problem import Problem

Array = np.ndarray

# Gains below these shares of the risk do not matter; the second is for gains within chance.
NOTABLE, NOTABLE_CHANCE = 1e-3, 1e-2
# Random directions gain more than expected with this probability.
CHANCE = 1e-6


@dataclass(frozen=True, eq=False)
class Along(Question):
    """Sums of ``s^2 r r^T`` and of ``c r`` with ``r = (x - centre, 1) @ directions``: (m, m + 1).

    ``c`` is the residual at ``w`` times the slope ``s``, and rows are weighted by the share of
    their group. Rows are mapped before anything is summed, so that nearly equal columns keep the
    digits of their difference.
    """

    w: Array
    activation: Activation
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
        slope = self.activation.slope(z)
        share = self.share_K[group] * weights
        mapped = (rows - self.centre) @ self.directions[:d]
        if self.intercept:
            mapped += self.directions[d]
        bent = (mapped * (share * slope**2)[:, None]).T @ mapped
        pull = (share * slope * (self.activation.value(z) - labels)) @ mapped
        return np.concatenate([bent, pull[:, None]], axis=1)


class Gain(NamedTuple):
    """By how much directions left out could lower the risk, and whether chance explains that."""

    value: float
    by_chance: bool


def gain_left_out(problem: Problem, u: Array, point: SimplexPoint, size: float) -> Gain | None:
    """Estimate by how much the directions left out could lower a risk of this ``size``.

    The group weights are held fixed, so the true gain is not larger. Returns None if the gain does
    not matter. Takes a pass if directions were left out.
    """
    engine, frame = problem.engine, problem.coordinates
    if frame.left_out is None or not frame.left_out.shape[1]:
        return None
    assert isinstance(engine, SumEngine)
    d = len(frame.shift)
    mean = np.zeros(d) if frame.mean is None else frame.mean
    out, kept = frame.left_out, frame.basis
    if frame.intercept:  # about the mean, where a direction that hardly varies is near zero
        kept = np.vstack([kept[:d], kept[d] + mean @ kept[:d]])
        out = np.vstack([out, np.zeros(out.shape[1])])
    asked = Along(
        frame.to_user(u), engine.activation, engine.truncate,
        point.weights / engine.census.totals, frame.shift + (mean if frame.intercept else 0.0),
        np.hstack([out, kept]), frame.intercept,
    )  # fmt: skip
    sums = engine.ask(asked)
    gain = float(sums[:, -1] @ solve_semidefinite(sums[:, :-1], sums[:, -1]))
    share = engine.census.totals / engine.census.totals.sum()
    rows = engine.census.n_rows / float(np.sum(point.weights**2 / share))
    by_chance = gain <= _by_chance(frame.left_out.shape[1], rows) * size
    least = NOTABLE_CHANCE if by_chance else NOTABLE
    return Gain(gain, by_chance) if gain > least * size else None


def _by_chance(directions: int, rows: float) -> float:
    """Return the share of the variance of noise that random directions hardly ever explain."""
    if rows <= directions + 1:
        return 1.0
    return float(betaincinv(0.5 * directions, 0.5 * (rows - directions), 1.0 - CHANCE))
