"""Newton's method on the group weights: the min-max over quadratics, in a few steps.

For weights ``lam``, the quadratic ``q(., lam) = sum_i lam_i q_i`` has a minimiser ``x(lam)`` in
closed form, and the dual function ``min_x q(x, lam)`` is concave with gradient ``q_i(x(lam))`` and
second derivatives ``-G A^-1 G^T``, where ``G`` holds the groups' gradients and ``A`` the matrix of
the mixture. Each step maximises the quadratic model of the dual function, less ``nu phi``, over the
simplex. The divergence enters as it is, so neither a small ``nu`` nor ``nu = 0`` takes more steps.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy.linalg.lapack import dpotrf, dpotrs, dtrtrs

from counterpoise.dual.divergences import SimplexPoint
from counterpoise.dual.divergences.base import Separable
from counterpoise.dual.objective import Objective
from counterpoise.solver.quadratics import QuadraticEngine

Array = np.ndarray

# With more groups than this, smoothing the maximum is cheaper.
MOST_GROUPS = 128
# Most steps, and least share of a step.
STEPS, LEAST_SHARE = 40, 1e-9
# Least pivot of a factor with unit diagonal: below it, a mixture counts as singular.
PIVOT = 1e-5
# Changes below this share of a value are rounding.
DUST = 8 * np.finfo(float).eps
# Rows of memory for vectors of one number per group.
MEMORY = 6


class Saddle(NamedTuple):
    """A point and its risk, and weights and the bound they prove."""

    x: Array
    value: float
    weights: SimplexPoint
    bound: float


class _At(NamedTuple):
    """The minimiser for some weights, and what is known there.

    ``added`` is what the terms that all groups share add to the losses, and ``lost`` how far
    rounding leaves the minimiser from the minimum. ``curved`` are second derivatives of the dual
    function without the divergence, times -1.
    """

    x: Array
    loss: Array
    excess: Array
    curved: Array
    added: float
    lost: float


def separable(model: QuadraticEngine, objective: Objective) -> Separable | None:
    """Return the divergence as compiled code needs it; None where smoothing must do."""
    if not 1 < objective.n_groups <= MOST_GROUPS or len(model.hess) != objective.n_groups:
        return None
    form = _form_of(objective)
    # Caps of sum one leave no choice, and no inner point.
    return form if form is not None and form.caps.sum() > 1.0 + 1e-6 else None


def _form_of(objective: Objective) -> Separable | None:
    """Return the divergence as it describes itself; None if a subclass changed what it does."""
    kinds = type(objective.divergence).__mro__

    def depth(name: str) -> int:
        return next(i for i, kind in enumerate(kinds) if name in vars(kind))

    if depth("separable") > min(map(depth, ("value", "bregman", "respond", "risk"))):
        return None
    return objective.divergence.separable(objective.prior)


def find_saddle(
    model: QuadraticEngine,
    objective: Objective,
    extra: Array,
    slope: Array,
    tol: float,
    start: Array,
    *,
    exact: bool = False,
) -> Saddle | None:
    """Minimise ``R(losses(x)) + x.extra.x / 2 + slope.x``; None if this does not converge.

    ``tol`` bounds the difference of value and bound, and ``start`` are the first weights. If
    ``exact``, steps go on up to rounding.
    """
    form = separable(model, objective)
    if form is None:
        return None
    found = _climb(model, objective, form, extra, slope, -math.inf if exact else tol, start)
    return found if found is not None and found.value - found.bound <= tol else None


def _climb(
    model: QuadraticEngine,
    objective: Objective,
    form: Separable,
    extra: Array,
    slope: Array,
    tol: float,
    start: Array,
) -> Saddle | None:
    """Maximise the dual function; None if this does not converge."""
    nu, prior = objective.nu, objective.prior
    centre = SimplexPoint.of(prior)

    def phi(point: SimplexPoint) -> float:
        # The divergence is the Bregman distance from the prior, where its slope is zero.
        return nu * objective.divergence.bregman(point, centre, prior) if nu else 0.0

    improve = _improver(objective, form)
    point = target = SimplexPoint.of(allowed(start, form.caps))
    dual, gain, dust, cost = -math.inf, 0.0, math.inf, phi(target)
    most = float(np.abs(model.loss_K).max())
    for step in range(STEPS):
        at, share = _measure(model, objective, extra, slope, target.weights), 1.0
        while step and not (at and _height(at, target) - cost >= dual + 1e-4 * share * gain - dust):
            share *= 0.5
            if share < LEAST_SHARE:
                return None
            target = SimplexPoint.of(0.5 * (point.weights + target.weights))
            at, cost = _measure(model, objective, extra, slope, target.weights), phi(target)
        if at is None:
            return None
        point, here, dual = target, cost, _height(at, target) - cost
        value = objective.risk(at.loss) + at.added
        if value - dual <= tol or (step and gain <= dust):  # no step gains more than rounding
            return Saddle(at.x, value, point, dual)
        found = improve(at, point)
        if found is None:
            return None
        target, cost = found, phi(found)
        moved = target.weights - point.weights
        gain = float(moved @ (at.excess - 0.5 * at.curved @ moved)) + here - cost
        most = max(most, float(np.abs(at.excess).max()))
        dust = DUST * max(most, abs(dual))
    return None


def _height(at: _At, point: SimplexPoint) -> float:
    """Return the dual function without the divergence."""
    return float(point.weights @ at.excess) + at.added - at.lost


def _improver(
    objective: Objective, form: Separable
) -> Callable[[_At, SimplexPoint], SimplexPoint | None]:
    """Return the function that maximises the model of the dual function over the weights."""
    from counterpoise.solver.weight_kernels import best_weights

    nu, prior, caps, K = objective.nu, objective.prior, form.caps, objective.n_groups
    known = (prior, np.log(prior), caps, caps / caps.sum())
    strength = (nu, 0.0) if form.entropy else (0.0, nu)
    memory = (np.empty((K, K)), np.empty((MEMORY, K)))

    def improve(at: _At, point: SimplexPoint) -> SimplexPoint | None:
        linear = at.excess + at.curved @ point.weights
        weights, logs = np.empty(K), np.empty(K)
        done = best_weights(
            at.curved, linear, *known, *strength, point.weights, weights, logs, *memory
        )
        if strength[0] == 0.0:
            logs[weights == 0.0] = -np.inf
        return SimplexPoint(weights, logs) if done else None

    return improve


def _measure(
    model: QuadraticEngine, objective: Objective, extra: Array, slope: Array, weights: Array
) -> _At | None:
    """Find the minimiser for these weights; None if their mixture is singular."""
    matrix = model.mixture(weights) + extra
    diagonal = matrix.diagonal()
    if not diagonal.min() > 0.0:
        return None
    scale = 1.0 / np.sqrt(diagonal)
    lower, failed = dpotrf(scale[:, None] * matrix * scale, lower=1, clean=0)
    if failed or not lower.diagonal().min() > PIVOT:
        return None
    x = -scale * dpotrs(lower, scale * (weights @ model.grad_KD + slope), lower=1)[0]
    loss, grad = model.evaluate(x)
    bend = extra @ x
    rows = np.empty((len(grad) + 1, len(x)))
    rows[:-1], rows[-1] = scale * grad, scale * (weights @ grad + bend + slope)
    roots = dtrtrs(lower, rows.T, lower=1, overwrite_b=1)[0].T
    added, lost = float((0.5 * bend + slope) @ x), 0.5 * float(roots[-1] @ roots[-1])
    return _At(x, loss, objective.excess(loss), roots[:-1] @ roots[:-1].T, added, lost)


def allowed(start: Array, caps: Array) -> Array:
    """Return weights near ``start`` that exceed no cap."""
    if (start <= caps).all():
        return start
    below = np.minimum(start, caps)
    return below + (1.0 - below.sum()) * (caps - below) / (caps - below).sum()
