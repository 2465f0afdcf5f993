"""An ellipsoid around all coefficients that ``radius`` admits, the intercept included.

``||coef|| <= radius`` bounds the coefficients, but not the intercept. Coefficients with a risk of
at most ``R`` have outputs of a root mean square of at most ``S`` under the prior, where ``S`` is
that of the labels plus the root of the mean loss that ``R`` allows. Scores are at most outputs
divided by ``alpha`` where they are positive, so the mean score is at most ``S / alpha``, which
bounds the intercept from above. If the slope ``a`` of negative scores is not zero, the mean score
is at least ``-S / a``. If it is zero, an intercept below the least ``-coef.x`` turns every row off,
and such coefficients all have the risk of zero outputs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from counterpoise.losses import NeuronLoss
from counterpoise.losses.minorants import has_two_pieces
from counterpoise.rows.engines.base import SumEngine
from counterpoise.rows.engines.questions import Question
from counterpoise.solver.coordinates import Coordinates
from counterpoise.solver.ellipsoids import Ellipsoid
from counterpoise.solver.problem import Problem

Array = np.ndarray
# Sums of this power of the rows' lengths bound the largest.
POWER = 16
# Lengths are bounded relative to this factor, which covers rounding.
OUTWARDS = 1.0 + 1e-6


class Cover(NamedTuple):
    """An ellipsoid, and a bound on the risk of admissible coefficients outside of it."""

    ellipsoid: Ellipsoid
    elsewhere: float


@dataclass(frozen=True, eq=False)
class Lengths(Question):
    """Sums of ``(||x - shift|| / unit)^(2 POWER)``, whatever the rows' weights: (K, 1)."""

    shift: Array
    unit: float

    def of_rows(self, X: Any, y: Array, weights: Array, group: int) -> Array:
        rows = X.toarray() if sparse.issparse(X) else np.asarray(X, dtype=float)
        squares = np.sum(((rows - self.shift) / self.unit) ** 2, axis=1)
        return np.array([np.sum(squares[weights > 0] ** POWER)])


def cover(problem: Problem, risk: float) -> Cover | None:
    """Cover all coefficients in the ball whose risk is at most ``risk``.

    None if the directions left out are not bounded, or if the intercept is not.
    """
    coordinates, engine, objective = problem.coordinates, problem.engine, problem.objective
    radius = coordinates.radius
    assert isinstance(engine, SumEngine)
    assert isinstance(engine.loss, NeuronLoss)
    if radius is None or not isinstance(coordinates, Coordinates) or not coordinates.size:
        return None
    basis, d = coordinates.map, engine.n_features
    root = basis[:d] / radius  # ||root u|| <= 1
    if not engine.census.intercept:
        return _around(root, np.zeros(d), math.inf)
    limits = _intercepts(engine, objective.prior, _outputs(engine, problem, risk), radius)
    if limits is None:
        return None
    lowest, highest = limits
    middle, half = 0.5 * (lowest + highest), 0.5 * (highest - lowest)
    # ||coef||^2 / radius^2 <= 1 and (intercept - middle)^2 / half^2 <= 1 add up to 2.
    both = np.vstack([root, basis[d:] / half]) / math.sqrt(2.0)
    target = np.append(np.zeros(d), middle / (half * math.sqrt(2.0)))
    return _around(both, target, objective.risk(engine.label_squares()))


def _around(root: Array, target: Array, elsewhere: float) -> Cover | None:
    """Return the ellipsoid ``||root u - target|| <= 1``."""
    left, values, right = np.linalg.svd(root, full_matrices=False)
    if len(values) < root.shape[1] or values.min() <= 1e-12 * values.max():
        return None
    centre = right.T @ ((left.T @ target) / values)
    return Cover(Ellipsoid(centre, right.T / values * OUTWARDS), elsewhere)


def _outputs(engine: SumEngine, problem: Problem, risk: float) -> float:
    """Bound the root mean square of outputs under the prior, at this risk."""
    prior, reference = problem.objective.prior, problem.objective.reference
    loss = max(risk + float(prior @ reference), 0.0)
    return OUTWARDS * (math.sqrt(loss) + math.sqrt(float(prior @ engine.label_squares())))


def _intercepts(
    engine: SumEngine, prior: Array, outputs: float, radius: float
) -> tuple[float, float] | None:
    """Bound the intercept about the shift; None if the activation gives no bound."""
    sigma = engine.activation
    left = float(sigma.slope(np.array([-1.0]))[0])
    if not has_two_pieces(sigma):
        return None
    d = engine.n_features
    squares = engine.mean_squares(prior)[:d]
    unit = math.sqrt(float(squares.sum())) or 1.0
    away = OUTWARDS * radius * unit  # |coef.(mean - shift)| <= radius ||mean - shift||
    highest = outputs / sigma.alpha + away
    if left > 0:
        return -outputs / left - away, highest
    total = float(engine.ask(Lengths(engine.shift, unit)).sum())
    longest = unit * total ** (1.0 / (2 * POWER))
    if not math.isfinite(longest):
        return None
    return -OUTWARDS * radius * longest, highest
