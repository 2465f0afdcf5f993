"""Fits of every group alone, all groups at once: one read serves them all."""

from __future__ import annotations

import numpy as np

from counterpoise.rows.engines.base import GroupEval
from counterpoise.solver.problem import Problem
from counterpoise.solver.semidefinite import solve_semidefinite

Array = np.ndarray

# Second derivatives are measured again if a group's step gains less or more than these shares of
# what it promised, and damped if it gains less than the last one.
STALE, TOO_CAREFUL, POOR = 0.5, 1.3, 0.25
# The first damping, as a share of the mean second derivative, and the one that ends a descent.
DAMPED, STUCK = 0.3, 1e8


def fit_each_alone(
    problem: Problem, u: Array, *, tol: float, floor: float, max_iter: int = 50
) -> tuple[Array, GroupEval]:
    """Minimise the loss of every group for itself, from ``u``, by damped Newton steps.

    Second derivatives are those of Gauss and Newton for a neuron. A group is done when its step
    promises less than ``tol`` of its loss; losses below ``floor`` count as zero. Return the
    coordinates (K, D), and losses and gradients there.
    """
    K, D = problem.objective.n_groups, problem.size
    U = np.tile(u, (K, 1))
    here, hess = problem.evaluate_each(U), problem.curvature_each(U)
    damping, fresh = np.zeros(K), True
    for _ in range(max_iter):
        units = np.maximum(np.trace(hess, axis1=1, axis2=2) / max(D, 1), 1e-300)
        steps = np.zeros((K, D))
        for k in range(K):
            matrix = hess[k] + damping[k] * np.eye(D)
            steps[k] = problem.project(U[k] - solve_semidefinite(matrix, here.grad_KD[k])) - U[k]
        bend = np.einsum("kd,kde,ke->k", steps, hess, steps)
        promised = -np.einsum("kd,kd->k", steps, here.grad_KD) - 0.5 * bend
        going = (promised > tol * np.maximum(here.loss_K, floor)) & (damping < STUCK * units)
        if not going.any():
            break
        tried = np.where(going[:, None], U + steps, U)
        there = problem.evaluate_each(tried)
        gain = np.divide(here.loss_K - there.loss_K, promised, out=np.ones(K), where=going)
        better = going & (gain > 1e-3)
        U = np.where(better[:, None], tried, U)
        here = GroupEval(
            np.where(better, there.loss_K, here.loss_K),
            np.where(better[:, None], there.grad_KD, here.grad_KD),
        )
        damping = np.where(gain > STALE, 0.1 * damping, damping)
        if fresh:  # stale second derivatives are no reason to step more carefully
            poor = going & (gain < POOR)
            damping = np.where(poor, np.maximum(4.0 * damping, DAMPED * units), damping)
        fresh = bool((going & ((gain < STALE) | (gain > TOO_CAREFUL))).any())
        if fresh:
            hess = problem.curvature_each(U)
    return U, here
