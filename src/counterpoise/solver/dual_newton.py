"""Newton's method on the group weights: the min-max over quadratics for ``nu = 0``.

For weights ``lam``, the quadratic ``q(., lam) = sum_i lam_i q_i`` has a minimiser ``x(lam)`` in
closed form, and the dual function ``min_x q(x, lam)`` is concave with gradient ``q_i(x(lam))`` and
second derivatives ``-G A^-1 G^T``, where ``G`` holds the groups' gradients and ``A`` the matrix of
the mixture. Each step maximises the quadratic model of the dual function over the simplex. A few
steps suffice, each with one factorisation, where smoothing the maximum takes dozens.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from counterpoise.dual.divergences import SimplexPoint
from counterpoise.dual.objective import Objective
from counterpoise.solver.quadratics import QuadraticEngine
from counterpoise.solver.semidefinite import solve_semidefinite

Array = np.ndarray

# With more groups than this, smoothing the maximum is cheaper.
MOST_GROUPS = 64
STEPS, HALVINGS = 40, 30
# Share of the trace that is added to a matrix of second derivatives, which may be singular.
STEADY = 1e-13
# Changes below this share of a value are rounding.
DUST = 8 * np.finfo(float).eps


class Saddle(NamedTuple):
    """The best point and its risk, and the best weights and the bound they prove."""

    x: Array
    value: float
    weights: SimplexPoint
    bound: float


class _At(NamedTuple):
    """The minimiser for some weights, with what is known there."""

    weights: Array
    x: Array
    excess: Array
    grad: Array
    matrix: Array
    dual: float
    value: float


def applies(objective: Objective) -> bool:
    """Return whether the risk is the largest of few losses."""
    if objective.nu != 0 or not 1 < objective.n_groups <= MOST_GROUPS:
        return False
    return bool(np.isfinite(objective.divergence.corners(objective.prior)).all())


def find_saddle(
    model: QuadraticEngine,
    objective: Objective,
    extra: Array,
    slope: Array,
    tol: float,
    start: Array,
) -> Saddle | None:
    """Minimise ``max_i excess_i(x) + x.extra.x / 2 + slope.x``; None if this does not converge.

    ``tol`` bounds the difference of value and bound, and ``start`` are the first weights.
    """

    def at(weights: Array) -> _At:
        matrix = model.mixture(weights) + extra
        x = -solve_semidefinite(matrix, weights @ model.grad_KD + slope)
        loss, grad = model.evaluate(x)
        left = weights @ grad + extra @ x + slope
        added = float((0.5 * (extra @ x) + slope) @ x)
        excess = objective.excess(loss)
        lost = 0.5 * max(float(left @ solve_semidefinite(matrix, left)), 0.0)
        dual = float(weights @ excess) + added - lost
        return _At(weights, x, excess, grad, matrix, dual, float(excess.max()) + added)

    here = best = proved = at(start)
    for _ in range(STEPS):
        if here.value < best.value:
            best = here
        if here.dual > proved.dual:
            proved = here
        if best.value - proved.dual <= tol:
            return Saddle(best.x, best.value, SimplexPoint.of(proved.weights), proved.dual)
        curved = here.grad @ solve_many(here.matrix, here.grad.T)
        curved = 0.5 * (curved + curved.T)
        target = simplex_maximum(curved, here.excess + curved @ here.weights, here.weights)
        promised = float(here.excess @ (target - here.weights))
        there, share, dust = here, 1.0, DUST * (abs(here.dual) + abs(here.value))
        for _ in range(HALVINGS):
            there = at(here.weights + share * (target - here.weights))
            if there.dual >= here.dual + 1e-4 * share * promised - dust:
                break
            share *= 0.5
        # Near the end, the last digits of the dual function no longer rise, but the risk falls.
        if there.dual <= here.dual and there.value >= here.value:
            return None
        here = there
    return None


def solve_many(matrix: Array, columns: Array) -> Array:
    """Solve a positive semidefinite system for several columns."""
    return np.column_stack([solve_semidefinite(matrix, column) for column in columns.T])


def simplex_maximum(curved: Array, linear: Array, start: Array) -> Array:
    """Maximise ``linear.t - t.curved.t / 2`` over the simplex by an active-set method.

    ``start`` is a point of the simplex; ``curved`` is positive semidefinite.
    """
    size = len(linear)
    curved = curved + STEADY * max(float(np.trace(curved)), 1e-300) * np.eye(size)
    t, free = start.copy(), start > 0
    for _ in range(10 * size):
        inside = np.flatnonzero(free)
        system = np.ones((len(inside) + 1, len(inside) + 1))
        system[:-1, :-1], system[-1, -1] = curved[np.ix_(inside, inside)], 0.0
        found = np.linalg.lstsq(system, np.append(linear[inside], 1.0), rcond=None)[0]
        target = np.zeros(size)
        target[inside] = found[:-1]
        if (target[inside] >= 0).all():
            t = target
            pull = linear - curved @ t - found[-1]
            pull[inside] = -np.inf
            new = int(np.argmax(pull))
            if pull[new] <= 1e-12 * (1.0 + np.abs(linear).max()):
                break
            free[new] = True
            continue
        falling = inside[target[inside] < 0]
        ratio = t[falling] / (t[falling] - target[falling])
        first = falling[int(np.argmin(ratio))]
        t = t + float(ratio.min()) * (target - t)
        t[first], free[first] = 0.0, False
    return np.maximum(t, 0.0) / np.maximum(t, 0.0).sum()
