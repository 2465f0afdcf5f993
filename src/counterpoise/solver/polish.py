"""Polish: descent on the risk itself, from the result of Algorithm 1.

The surrogate gradient gets past bad stationary points, but its fixed point does not minimise
the risk. Each polishing step replaces every group's loss by its Gauss-Newton quadratic (exact for
piecewise linear activations as long as no row changes its piece) and solves the min-max over these
quadratics with :mod:`counterpoise.solver.minmax`. Only steps that lower the risk are accepted.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from scipy.optimize import minimize

from counterpoise.dual.divergences import SimplexPoint
from counterpoise.dual.objective import Objective
from counterpoise.rows.engines.base import GroupEval, SumEngine
from counterpoise.solver.minmax import MinmaxResult, minimise_quadratics
from counterpoise.solver.problem import Problem
from counterpoise.solver.quadratics import QuadraticEngine
from counterpoise.solver.schedules import ProblemScale
from counterpoise.solver.semidefinite import solve_semidefinite

Array = np.ndarray
logger = logging.getLogger("counterpoise")

# With more coefficients than this, second-order matrices are too expensive: for a neuron, and for
# a convex risk, where few Newton steps suffice and their matrices prove the gap.
SECOND_ORDER_LIMIT, CONVEX_LIMIT = 512, 1024
# Group matrices are kept for at most this many groups and this many numbers.
MATRIX_GROUPS, MATRIX_NUMBERS = 512, 1 << 25
# A kink makes the risk rugged on the scale of single rows. Descending first with the kink
# rounded, over these shares of the scores' size, skips minima that only a few rows create.
ROUNDING: tuple[float, ...] = (0.5, 0.2)
ROUNDED_STEPS = 15
# These descents end at a relative accuracy that grows with the rows, since minima that a few rows
# create become shallower: so much per row, within limits.
PER_ROW, ROUNDED_TOL, MOST_ROUNDED = 1e-8, 1e-5, 1e-3
# A step on a convex risk that gains less than this share of its prediction is shortened, by these
# factors, until it gains that share of its shorter prediction.
SHORTER, SHARES = 0.1, (0.5, 0.25, 0.1, 0.03, 0.01)
# Curvatures are measured again after a step that gained less than this share of its prediction: for
# a neuron, and for a convex risk. There, where Newton's method is fast, they are also measured
# again unless a step promises less than this share of what the step before it promised.
KEEP_GAIN, CONVEX_KEEP_GAIN, FAST = 0.1, 0.5, 0.1
# Up to so many products (rows times squared coefficients), a neuron's curvatures cost less than the
# rest of a step, so every step measures them.
CHEAP = 2e6
# First-order descent starts again if the risk falls below this share of what it was.
SETTLED = 0.5
# Smallest tolerance of the min-max over quadratics, for a neuron and for a convex risk.
INNER_TOL, CONVEX_INNER_TOL = 1e-11, 1e-14


@dataclass(frozen=True)
class PolishResult:
    """The final point, its losses and gradients, the weights, and whether it converged."""

    u: Array
    eval: GroupEval
    point: SimplexPoint
    risk: float
    n_iter: int
    converged: bool
    hess: Array | None = None


def keeps_group_matrices(n_groups: int, size: int) -> bool:
    """Return whether a (D, D) matrix for every group fits the memory budget."""
    return n_groups <= MATRIX_GROUPS and n_groups * size * size <= MATRIX_NUMBERS


def polish(
    problem: Problem,
    u: Array,
    weights: SimplexPoint,
    *,
    tol: float,
    floor: float = 0.0,
    max_iter: int = 100,
    hess: Array | None = None,
    fixed: bool = False,
    nearby: bool = False,
    ev: GroupEval | None = None,
    rounding: tuple[float, ...] = ROUNDING,
) -> PolishResult:
    """Minimise the risk locally from ``u``.

    ``weights`` are the first group weights. ``ev`` holds the losses and true gradients at ``u``,
    if known. ``hess`` is a first guess of the groups' curvatures, or their exact values if
    ``fixed`` (identity activation), or was measured ``nearby``.
    """
    ev = ev or problem.evaluate(u, surrogate=False)
    risk = problem.risk(ev.loss_K)
    if problem.size == 0 or ev.loss_K.max() <= floor:  # nothing to optimise or to gain
        return PolishResult(u, ev, weights, risk, 0, True)
    limit = CONVEX_LIMIT if problem.is_convex else SECOND_ORDER_LIMIT
    descend = _first_order if problem.size > limit else _second_order
    if not fixed and _is_cheap(problem):
        hess = None
    first, point, guess = u, weights, hess
    scores = problem.score_size(u) if problem.has_kink and rounding else 0.0
    if scores > 0:
        rounded_tol = min(max(ROUNDED_TOL, PER_ROW * _rows(problem)), MOST_ROUNDED)
        for share in rounding:
            smooth = problem.rounded(share * scores)
            rough = descend(smooth, first, None, point, tol=max(rounded_tol, 0.03 * tol),
                            floor=floor, max_iter=ROUNDED_STEPS, hess=hess,
                            fixed=False)  # fmt: skip
            first, point, hess = rough.u, rough.point, rough.hess
    if not (fixed or nearby) and hess is guess:  # convergence must not rest on a guess
        hess = None
    start = None if first is not u else ev
    result = descend(problem, first, start, point, tol=tol, floor=floor, max_iter=max_iter,
                     hess=hess, fixed=fixed)  # fmt: skip
    if result.risk > risk:  # the rounded problems led to a worse minimum: descend from u
        result = descend(problem, u, ev, weights, tol=tol, floor=floor, max_iter=max_iter,
                         hess=guess if fixed else None, fixed=fixed)  # fmt: skip
    return result


def _rows(problem: Problem) -> int:
    """Return the number of rows behind the losses; 0 for quadratics."""
    return problem.engine.census.n_rows if isinstance(problem.engine, SumEngine) else 0


def _is_cheap(problem: Problem) -> bool:
    """Return whether curvatures of a neuron cost next to nothing."""
    return not problem.is_convex and 0 < _rows(problem) * problem.size**2 <= CHEAP


def _second_order(
    problem: Problem,
    u: Array,
    ev: GroupEval | None,
    point: SimplexPoint,
    *,
    tol: float,
    floor: float,
    max_iter: int,
    hess: Array | None,
    fixed: bool,
) -> PolishResult:
    """Solve min-max problems over Gauss-Newton quadratics, damped until a step lowers the risk."""
    objective = problem.objective
    ev = ev or problem.evaluate(u, surrogate=False)
    per_group = keeps_group_matrices(objective.n_groups, problem.size)
    risk = problem.risk(ev.loss_K)
    damping, last, free = 0.0, np.inf, point
    # Matrices cost several passes, so they are kept while their steps lower the risk.
    fresh = fixed
    converged = False
    n_iter = 0
    searched = not problem.is_convex
    least = CONVEX_INNER_TOL if problem.is_convex else INNER_TOL
    keep = CONVEX_KEEP_GAIN if problem.is_convex else np.inf if _is_cheap(problem) else KEEP_GAIN
    for n_iter in range(1, max_iter + 1):
        if hess is None:
            fresh = True
            hess = _curvatures(problem, u, point, per_group)
        model = QuadraticEngine(ev.loss_K, ev.grad_KD, hess)
        inner = minimise_quadratics(
            model,
            objective,
            origin=u,
            coordinates=problem.coordinates,
            damping=damping,
            tol=least if fixed else max(least, 0.03 * tol),
            centre=_interior(point, objective.prior),
            exact=fixed,
        )
        free = inner.point if damping == 0 else free
        size = max(objective.size(risk), floor)
        predicted = risk - (inner.value - 0.5 * damping * float(inner.u @ inner.u))
        shorten = fresh and problem.is_convex and predicted > tol * size
        step, trial = _tried(problem, u, inner.u, risk, predicted, shorten=shorten)
        trial_risk = problem.risk(trial.loss_K)
        unit = float(np.trace(model.mixture(inner.point.weights))) / problem.size
        if predicted <= tol * size:
            restart = 0.0 if searched else _restart(problem, model, u, inner, tol * size, unit)
            if not restart:
                known = [inner.point, free, point] if damping else [inner.point]
                converged, point = True, _proving(problem, model, known)
                if trial_risk < risk:
                    u, ev, risk = u + step, trial, trial_risk
                break
            damping, searched = restart, True
            hess = hess if fresh else None
            continue
        gain = (risk - trial_risk) / predicted
        logger.debug("polish %d: risk %.9g, gain %.2g of predicted", n_iter, trial_risk, gain)
        if gain > 1e-3:
            u, ev, risk, point = u + step, trial, trial_risk, inner.point
            searched = not problem.is_convex
            fresh = fixed
            slow = problem.is_convex and predicted > FAST * last
            if not fixed and (gain < keep or slow):
                hess = None
            last = predicted
            damping = _after_gain(damping, gain, unit)
        elif not fresh:
            hess = None
        else:
            damping = max(4.0 * damping, 0.3 * unit)
            if not searched:
                damping = max(damping, _longest(problem, inner, ev, u))
                searched = True
            if not per_group:
                point, hess = inner.point, None
            # No step lowers the risk, however short: a kink. A convex risk has none.
            if damping > 1e8 * unit and not problem.is_convex:
                converged = True
                break
    return PolishResult(u, ev, point, risk, n_iter, converged, hess)


def _proving(problem: Problem, model: QuadraticEngine, points: list[SimplexPoint]) -> SimplexPoint:
    """Return the weights that prove most where the model touches the risk; the first in a ball.

    Damped problems have weights of their own: if damping is strong, those of the largest losses,
    however little these differ.
    """
    if problem.coordinates.radius is not None or len(points) == 1:
        return points[0]

    def proved(point: SimplexPoint) -> float:
        slope = point.weights @ model.grad_KD
        left = 0.5 * float(slope @ solve_semidefinite(model.mixture(point.weights), slope))
        return problem.objective.lagrangian(model.loss_K, point.weights) - left

    return max(points, key=proved)


def _after_gain(damping: float, gain: float, unit: float) -> float:
    """Return the next damping, after a step with this share of its predicted gain."""
    if gain > 0.75:
        return damping / 2.0 if damping > 0.02 * unit else 0.0
    return max(2.0 * damping, 0.1 * unit) if gain < 0.4 else damping


def _restart(
    problem: Problem,
    model: QuadraticEngine,
    u: Array,
    inner: MinmaxResult,
    allowed: float,
    unit: float,
) -> float:
    """Return a damping to go on with if the quadratics promise nothing in spite of a slope.

    They do not move along directions in which they are flat, and damped ones move little. Zero if
    no slope is left that could lower the risk by more than ``allowed``.
    """
    there = model.evaluate(inner.u)
    slope = _slope(problem, inner, there.grad_KD, u + inner.u)
    if float(slope @ slope) <= 2.0 * unit * allowed:
        return 0.0
    return _longest(problem, inner, there, u + inner.u)


def _longest(problem: Problem, inner: MinmaxResult, ev: GroupEval, u: Array) -> float:
    """Return the least damping that makes sense: no step gains more than all of the losses."""
    slope, loss = _slope(problem, inner, ev.grad_KD, u), float(ev.loss_K.max())
    return 0.5 * float(slope @ slope) / loss if loss > 0 else 0.0


def _slope(problem: Problem, inner: MinmaxResult, grad_KD: Array, u: Array) -> Array:
    """Return the slope at ``u``, where groups have these gradients, under the weights."""
    slope = inner.point.weights @ grad_KD
    if inner.multiplier:
        slope = slope + inner.multiplier * (problem.coordinates.coef_gram() @ u)
    return np.asarray(slope)


def _tried(
    problem: Problem, u: Array, step: Array, risk: float, predicted: float, *, shorten: bool
) -> tuple[Array, GroupEval]:
    """Return a step and the losses after it; ``shorten`` it if it gains too little.

    Along the step, a convex risk falls at first. The whole step is returned if no share of it
    gains enough.
    """
    whole = problem.evaluate(u + step, surrogate=False)
    if not shorten or risk - problem.risk(whole.loss_K) >= SHORTER * predicted:
        return step, whole
    for share in SHARES:
        shorter = problem.project(u + share * step) - u
        there = problem.evaluate(u + shorter, surrogate=False)
        if risk - problem.risk(there.loss_K) >= SHORTER * share * predicted:
            return shorter, there
    return step, whole


def _curvatures(problem: Problem, u: Array, point: SimplexPoint, per_group: bool) -> Array:
    """Measure a matrix for every group, or the one of their mixture."""
    if per_group:
        return problem.curvature(u, None)
    return problem.curvature(u, point.weights)[None]


def _interior(point: SimplexPoint, prior: Array) -> SimplexPoint:
    """Move the weights slightly towards the prior, so that every group can regain weight."""
    return SimplexPoint.of(0.99 * point.weights + 0.01 * prior)


def _first_order(
    problem: Problem,
    u: Array,
    ev: GroupEval | None,
    point: SimplexPoint,
    *,
    tol: float,
    floor: float,
    max_iter: int,
    hess: Array | None,
    fixed: bool,
) -> PolishResult:
    """Descend on the risk by quasi-Newton steps, smoothing the maximum less and less."""
    ev = ev or problem.evaluate(u, surrogate=False)
    risk = problem.risk(ev.loss_K)
    size = max(problem.objective.size(risk), floor)
    n_iter, converged, best_proved = 0, False, -np.inf
    for kappa in 10.0 ** -np.arange(1, 9):
        smooth = max(float(kappa) * size, problem.objective.nu)
        objective = replace(problem.objective, nu=smooth)
        result = _descend(replace(problem, objective=objective), u, tol, size, 4 * max_iter)
        n_iter += result.nit
        candidate = problem.evaluate(problem.project(result.x), surrogate=False)
        gain = risk - problem.risk(candidate.loss_K)
        if gain > 0:
            u, ev, risk = problem.project(result.x), candidate, risk - gain
        # Keep the weights with the best lower bound: L minus the gain that their gradient
        # leaves (curvatures are about two in these coordinates).
        weights = objective.respond(candidate.loss_K)
        slope = weights.weights @ candidate.grad_KD
        proved = problem.objective.lagrangian(candidate.loss_K, weights.weights)
        proved -= 0.25 * float(slope @ slope)
        if proved > best_proved:
            point, best_proved = weights, proved
        # Tolerances refer to the risk, which may have fallen far below that of the first point.
        last, size = size, max(problem.objective.size(risk), floor)
        close = smooth == problem.objective.nu or (kappa < 1e-3 and gain <= tol * size)
        if close and size > SETTLED * last:
            converged = result.success
            break
    return PolishResult(u, ev, point, risk, n_iter, converged)


def _descend(problem: Problem, u: Array, tol: float, size: float, max_iter: int) -> _Descent:
    """Run L-BFGS, or spectral projected gradient steps if there is a ball."""

    def value_and_gradient(x: Array) -> tuple[float, Array]:
        ev = problem.evaluate(x, surrogate=False)
        weights = problem.objective.respond(ev.loss_K).weights
        return problem.risk(ev.loss_K) / size, (weights @ ev.grad_KD) / size

    if problem.coordinates.radius is None:
        options = {"maxiter": max_iter, "ftol": tol, "gtol": 1e-10, "maxcor": 20}
        found = minimize(value_and_gradient, u, jac=True, method="L-BFGS-B", options=options)
        return _Descent(found.x, int(found.nit), bool(found.success))
    return _spectral_projected(value_and_gradient, problem.project, u, tol, max_iter)


@dataclass(frozen=True)
class _Descent:
    x: Array
    nit: int
    success: bool


def _spectral_projected(
    value_and_gradient: Callable[[Array], tuple[float, Array]],
    project: Callable[[Array], Array],
    x: Array,
    tol: float,
    max_iter: int,
) -> _Descent:
    """Run the spectral projected gradient method (Birgin et al., 2000)."""
    value, grad = value_and_gradient(x)
    best, best_value = x, value
    recent = [value]
    length = 1.0 / max(float(np.abs(grad).max()), 1e-300)
    quiet = 0
    nit = 0
    for nit in range(1, max_iter + 1):  # noqa: B007
        direction = project(x - length * grad) - x
        slope = float(grad @ direction)
        t = 1.0
        while True:
            trial = x + t * direction
            new_value, new_grad = value_and_gradient(trial)
            if new_value <= max(recent) + 1e-4 * t * slope or t < 1e-10:
                break
            t *= 0.5
        s, g = trial - x, new_grad - grad
        curve = float(s @ g)
        length = float(s @ s) / curve if curve > 0 else 10.0 * length
        quiet = quiet + 1 if best_value - new_value < tol else 0
        x, value, grad = trial, new_value, new_grad
        recent = [*recent[-9:], value]
        if value < best_value:
            best, best_value = x, value
        if quiet >= 10:
            break
    return _Descent(best, nit, quiet >= 10)


def better_weights(
    objective: Objective, ev: GroupEval, point: SimplexPoint, scale: ProblemScale
) -> SimplexPoint:
    """Choose between the weights found and the exact response to the losses.

    At a minimiser the two agree. For small ``nu`` the last digits of tied losses decide the
    response, so it is judged as a dual solution: by how far ``L`` falls short of ``R``, and by the
    gradient that the weights leave.
    """
    if objective.nu == 0:
        return point
    loss, grad = ev
    risk, curvature = objective.risk(loss), 2.0 * scale.beta**2 * scale.mean_moment

    def miss(candidate: SimplexPoint) -> float:
        slope = candidate.weights @ grad
        short = max(risk - objective.lagrangian(loss, candidate.weights), 0.0)
        return short + 0.5 * float(slope @ slope) / curvature

    # Ties, up to rounding, go to the response, which has a closed form.
    response, rounding = objective.respond(loss), 1e-12 * float(np.abs(loss).max())
    return response if miss(response) <= 2.0 * miss(point) + rounding else point
