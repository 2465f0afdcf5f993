"""Fits of every group alone, all groups at once: one read serves them all."""

from __future__ import annotations

import numpy as np

from counterpoise.dual.divergences import Fixed
from counterpoise.dual.objective import Objective
from counterpoise.rows.engines.base import GroupEval, SumEngine
from counterpoise.solver.minmax import minimise_quadratics
from counterpoise.solver.problem import Problem
from counterpoise.solver.quadratics import QuadraticEngine
from counterpoise.solver.semidefinite import solve_semidefinite

Array = np.ndarray

# Second derivatives are measured again if a group's step gains less or more than these shares of
# what it promised, and damped if it gains less than the last one.
STALE, TOO_CAREFUL, POOR = 0.5, 1.3, 0.25
# The first damping, as a share of the mean second derivative, and the one that ends a descent.
DAMPED, STUCK = 0.3, 1e8
# Steps along surrogate gradients to find a start.
SURROGATE_STEPS = 12


def fit_each_alone(
    problem: Problem,
    u: Array,
    *,
    tol: float,
    floor: float,
    max_iter: int = 50,
    moments: Array | None = None,
) -> tuple[Array, GroupEval]:
    """Minimise the loss of every group for itself, from ``u``, by damped Newton steps.

    Second derivatives are those of Gauss and Newton for a neuron. A group is done when its step
    promises less than ``tol`` of its loss; losses below ``floor`` count as zero. With the second
    derivatives of linear models, ``moments`` (K, D, D), the risk of a neuron is first lowered along
    surrogate gradients. Return the coordinates (K, D), and losses and gradients there.
    """
    K, D = problem.objective.n_groups, problem.size
    U = np.tile(u, (K, 1))
    here = problem.evaluate_each(U)
    if moments is not None:
        U, here = _started(problem, U, here, moments)
    hess = problem.curvature_each(U)
    damping, fresh = np.zeros(K), True
    for _ in range(max_iter):
        units = np.maximum(np.trace(hess, axis1=1, axis2=2) / max(D, 1), 1e-300)
        steps = np.zeros((K, D))
        for k in range(K):
            steps[k] = _step(problem, U[k], here, hess[k], damping[k], k)
        bend = np.einsum("kd,kde,ke->k", steps, hess, steps)
        promised = -np.einsum("kd,kd->k", steps, here.grad_KD) - 0.5 * bend
        going = (promised > tol * np.maximum(here.loss_K, floor)) & (damping < STUCK * units)
        if not going.any():
            break
        tried = np.where(going[:, None], U + steps, U)
        there = problem.evaluate_each(tried)
        gain = np.divide(here.loss_K - there.loss_K, promised, out=np.zeros(K), where=going)
        U, here = _better(U, here, tried, there, going & (gain > 1e-3))
        damping = np.where(going & (gain > STALE), 0.1 * damping, damping)
        if fresh:  # stale second derivatives are no reason to step more carefully
            poor = going & (gain < POOR)
            damping = np.where(poor, np.maximum(4.0 * damping, DAMPED * units), damping)
        fresh = bool((going & ((gain < STALE) | (gain > TOO_CAREFUL))).any())
        if fresh:
            hess = problem.curvature_each(U)
    return U, here


def _step(
    problem: Problem, u: Array, here: GroupEval, hess: Array, damping: float, k: int
) -> Array:
    """Return the step of one group, which minimises its quadratic, in the ball if there is one."""
    step = -solve_semidefinite(hess + damping * np.eye(len(u)), here.grad_KD[k])
    ball = problem.coordinates
    if ball.radius is None or ball.coef_norm(u + step) <= ball.radius:
        return step
    model = QuadraticEngine(here.loss_K[k : k + 1], here.grad_KD[k : k + 1], hess[None])
    alone = Objective(Fixed(), 1.0, np.ones(1), np.zeros(1))
    return minimise_quadratics(model, alone, origin=u, coordinates=ball, damping=damping).u


def _started(
    problem: Problem, U: Array, here: GroupEval, moments: Array
) -> tuple[Array, GroupEval]:
    """Return better points to descend from, for groups whose rows are inactive, or nearly so.

    The surrogate gradient, which leaves out the slope of the activation, gets past them. Its steps
    are in the metric of each group's own rows, from zero.
    """
    assert isinstance(problem.engine, SumEngine)
    square, tried = 0.5 * problem.engine.loss.bend_bound, np.zeros_like(U)
    for turn in range(SURROGATE_STEPS + 1):
        there = problem.evaluate_each(tried, surrogate=True)
        better = there.loss_K < here.loss_K
        U, here = _better(U, here, tried, there, better)
        if turn < SURROGATE_STEPS:
            steps = [solve_semidefinite(*pair) for pair in zip(moments, there.grad_KD, strict=True)]
            tried = np.array([problem.project(u) for u in tried - np.array(steps) / square])
    return U, problem.evaluate_each(U)


def _better(
    U: Array, here: GroupEval, tried: Array, there: GroupEval, better: Array
) -> tuple[Array, GroupEval]:
    """Return the points that were tried for groups for which they are better."""
    return np.where(better[:, None], tried, U), GroupEval(
        np.where(better, there.loss_K, here.loss_K),
        np.where(better[:, None], there.grad_KD, here.grad_KD),
    )
