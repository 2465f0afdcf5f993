"""Exact min-max over quadratics: ``min_u R(loss_1(u), ..., loss_K(u))``.

This is the whole problem for the identity activation, and the model problem of every polishing
step. Newton's method on the group weights solves it in a few steps. Where that fails, or does not
apply, Newton steps minimise the risk, smoothed by a fading proximal term on the group weights (the
proximal point method on the dual).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.optimize import brentq

from counterpoise.dual.divergences import SimplexPoint
from counterpoise.dual.objective import Objective
from counterpoise.solver.coordinates import Coordinates
from counterpoise.solver.dual_newton import find_saddle
from counterpoise.solver.quadratics import QuadraticEngine
from counterpoise.solver.semidefinite import solve_semidefinite
from counterpoise.solver.stacked import Stacked

Array = np.ndarray


# The first proximal weight, as a share of the spread of the losses, and the factor by which it
# fades. Fading faster takes more Newton steps per stage; fading slower takes more stages.
PULL, FADE = 0.03, 0.2


class MinmaxResult(NamedTuple):
    """The minimiser, its risk under the model, the weights, and the optimality gap.

    ``value - gap`` is a lower bound on the minimum (including damping). ``multiplier`` belongs to
    the ball constraint ``(||coef||^2 - radius^2) / 2 <= 0``.
    """

    u: Array
    value: float
    point: SimplexPoint
    gap: float
    multiplier: float


def minimise_quadratics(
    model: QuadraticEngine,
    objective: Objective,
    *,
    origin: Array,
    coordinates: Coordinates | Stacked,
    damping: float = 0.0,
    tol: float = 1e-12,
    centre: SimplexPoint | None = None,
    exact: bool = False,
) -> MinmaxResult:
    """Minimise the risk of ``model`` over steps ``x`` from ``origin``.

    The objective includes ``damping / 2 ||x||^2``, and ``origin + x`` stays in the ball of
    ``coordinates``. Newton's method on the weights comes first, and smoothing where it fails. If
    ``exact``, the former goes on up to rounding.
    """
    size = model.n_coef

    def at(multiplier: float) -> MinmaxResult:
        extra, slope = damping * np.eye(size), np.zeros(size)
        if multiplier:
            gram = multiplier * coordinates.coef_gram()
            extra, slope = extra + gram, gram @ origin
        start = objective.prior if centre is None else centre.weights
        scale = max(float(np.abs(model.loss_K).max()), 1e-200)
        # The norm of the minimiser decides about the multiplier, so it must be exact.
        found = find_saddle(
            model, objective, extra, slope, tol * scale, start, exact=exact or multiplier > 0
        )
        if found is not None:
            gap = max(found.value - found.bound, 0.0)
            return MinmaxResult(found.x, found.value, found.weights, gap, multiplier)
        return _newton(model, objective, extra, slope, tol, centre)._replace(multiplier=multiplier)

    free = at(0.0)
    radius = coordinates.radius
    if radius is None or coordinates.coef_norm(origin + free.u) <= radius:
        return free
    # The norm falls as the multiplier grows; find where it meets the radius.
    unit = float(np.abs(model.hess).max()) / max(float(coordinates.coef_gram().max()), 1e-300)
    low, high = 0.0, 1e-3 * unit

    def excess(multiplier: float) -> float:
        return coordinates.coef_norm(origin + at(multiplier).u) / radius - 1.0

    inside = excess(high) <= 0
    while not inside and high < 1e60 * unit:
        low, high = high, 10.0 * high
        inside = excess(high) <= 0
    multiplier = high
    if inside:
        multiplier = brentq(excess, low, high, xtol=1e-14 * high, rtol=1e-12, maxiter=100)
        more = 4e-14 * high
        while excess(multiplier) > 1e-9 and multiplier < high:
            # The norm jumps where losses are flat; beyond the jump it is inside the ball.
            multiplier, more = min(multiplier + more, high), 4.0 * more
    result = at(multiplier)
    x = coordinates.project(origin + result.u) - origin
    value = objective.risk(model.evaluate(x).loss_K) + 0.5 * damping * float(x @ x)
    # Remove the constant of the multiplier's term, which is not positive inside the ball.
    room = coordinates.coef_norm(origin) ** 2 - radius**2
    bound = result.value - result.gap + 0.5 * multiplier * room
    return result._replace(u=x, value=value, gap=max(value - bound, 0.0))


def _newton(
    model: QuadraticEngine,
    objective: Objective,
    extra: Array,
    slope: Array,
    tol: float,
    centre: SimplexPoint | None,
) -> MinmaxResult:
    """Minimise ``R(losses(x)) + x.extra.x / 2 + slope.x`` without constraints."""
    x = np.zeros(model.n_coef)
    loss = model.loss_K
    centre = centre or SimplexPoint.of(objective.prior)
    scale = max(float(np.abs(loss).max()), 1e-200)
    spread = float(np.ptp(objective.excess(loss)))
    # A strong divergence smooths the risk by itself. Otherwise start with a fading proximal term;
    # even where losses are tied, it must exceed their rounding.
    smooth = objective.nu > 0.1 * spread or objective.n_groups == 1
    kappa = 0.0 if smooth else max(PULL * spread, 1e-4 * scale)
    best_x, best_value = x, np.inf
    best_point, best_bound = centre, -np.inf
    idle = 0
    for _stage in range(100):
        x, loss, point, left = _smooth_newton(
            model, objective, extra, slope, x, kappa, centre, 0.1 * tol * scale
        )
        added = float(0.5 * x @ extra @ x + slope @ x)
        value = objective.risk(loss) + added
        bound = objective.lagrangian(loss, point.weights) + added - left
        spread = float(np.ptp(objective.excess(loss)))
        idle = idle + 1 if kappa <= 1e-2 * spread else 0
        if value < best_value:
            best_x, best_value = x, value
        if bound > best_bound:
            idle = idle if bound - best_bound < 0.01 * (best_value - bound) else 0
            best_point, best_bound = point, bound
        if kappa == 0.0 or best_value - best_bound <= tol * scale or idle > 4:
            break
        # The proximal term fades, and stays small relative to the spread of the losses.
        centre = point
        kappa = max(min(FADE * kappa, 0.1 * spread), 1e-7 * spread, 1e-10 * scale)
        if kappa < 1e-3 * objective.nu:
            kappa = 0.0
    return MinmaxResult(best_x, best_value, best_point, max(best_value - best_bound, 0.0), 0.0)


def _smooth_newton(
    model: QuadraticEngine,
    objective: Objective,
    extra: Array,
    slope: Array,
    x: Array,
    kappa: float,
    centre: SimplexPoint,
    tol: float,
) -> tuple[Array, Array, SimplexPoint, float]:
    """Run damped Newton at a fixed ``kappa``; the last result bounds the remaining gain."""

    def height(loss: Array, point: SimplexPoint, x: Array, bend: Array) -> float:
        return objective.proximal_value(loss, point, kappa, centre) + float(
            (0.5 * bend + slope) @ x
        )

    loss, grad = model.evaluate(x)
    point, bend = objective.respond(loss, kappa=kappa, centre=centre), extra @ x
    value = height(loss, point, x, bend)
    for _ in range(100):
        gradient = point.weights @ grad + bend + slope
        curved = model.mixture(point.weights) + extra
        hessian = curved
        if objective.nu + kappa > 0:
            s, factor = objective.divergence.sensitivity(point, objective.prior)
            spread = np.sqrt(s)[:, None] * (grad - s @ grad / s.sum())
            hessian = curved + (factor / (objective.nu + kappa)) * (spread.T @ spread)
        direction = -solve_semidefinite(hessian, gradient)
        decrease = -float(gradient @ direction)
        t = 0.0 if decrease <= max(tol, 1e-16 * abs(value)) else 1.0
        while t > 0:
            trial = x + t * direction
            new, new_bend = model.evaluate(trial), extra @ trial
            new_point = objective.respond(new.loss_K, kappa=kappa, centre=centre)
            new_value = height(new.loss_K, new_point, trial, new_bend)
            if new_value <= value - 1e-4 * t * decrease:
                break
            t = 0.5 * t if t > 1e-10 else 0.0
        if t == 0:
            break
        x, (loss, grad), point, bend, value = trial, new, new_point, new_bend, new_value
    else:  # out of steps: evaluate the last point
        gradient = point.weights @ grad + bend + slope
        curved = model.mixture(point.weights) + extra
    left = 0.5 * max(float(gradient @ solve_semidefinite(curved, gradient)), decrease, 0.0)
    return x, loss, point, left
