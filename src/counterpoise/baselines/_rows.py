"""Risks over rows: losses of single rows to weights to a gradient, and L-BFGS on it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import minimize

from counterpoise.activations import Activation
from counterpoise.baselines._base import in_memory, outcome
from counterpoise.dual.divergences import Divergence, Fixed
from counterpoise.dual.objective import Objective
from counterpoise.rows.engines.base import PassCounter
from counterpoise.rows.groups import GroupedData
from counterpoise.solver.coordinates import Coordinates
from counterpoise.solver.frame import average_fit, label_scale
from counterpoise.solver.problem import Problem
from counterpoise.solver.setup import RISK_FLOOR
from counterpoise.solver.solution import Outcome
from counterpoise.solver.solver import Solver

Array = np.ndarray


@dataclass(frozen=True)
class RowProblem:
    """The rows in solver coordinates, each a group of its own to the objective."""

    data: GroupedData
    activation: Activation
    coordinates: Coordinates
    objective: Objective

    def losses(self, u: Array) -> tuple[Array, Array]:
        """Loss of every row, and the linear scores."""
        d, w = self.data.n_features, self.coordinates.to_user(u)
        scores = self.data.X @ w[:d] + (w[d] if self.data.intercept else 0.0)
        return (self.activation.value(scores) - self.data.y) ** 2, scores

    def risk_and_gradient(self, u: Array) -> tuple[float, Array]:
        losses, scores = self.losses(u)
        weights = self.objective.respond(losses).weights
        residual = self.activation.value(scores) - self.data.y
        c = 2.0 * weights * residual * self.activation.slope(scores)
        slope = self.data.X.T @ c
        grad = self.coordinates.pull(np.append(slope, c.sum()) if self.data.intercept else slope)
        return self.objective.risk(losses), grad


def minimise_over_rows(
    solver: Solver, divergence: Divergence, strength: Callable[[float], float]
) -> tuple[Outcome, float]:
    """The neuron of least ``max_q sum_j q_j loss_j - nu d_f(q, row weights)`` over distributions
    ``q`` on rows, near the average fit; and ``nu``, which is ``strength(average loss)``.

    ReLU would start dead at zero, so the search starts from the average fit by surrogate steps.
    """
    engine, frame, prior = in_memory(solver), solver.frame, solver.prior
    data, floor = engine.data, RISK_FLOOR * label_scale(engine, prior)
    average = Problem(engine, frame.coordinates, Objective(Fixed(), 1.0, prior, solver.reference))
    u, loss = average_fit(
        lambda at: average.evaluate(at, surrogate=True), frame, prior, engine.activation.beta
    )
    nu = strength(max(loss, floor))
    row_weights = data.weights_of(0, len(data.y))
    plain = nu == math.inf
    objective = Objective(
        Fixed() if plain else divergence, 1.0 if plain else nu,
        row_weights / row_weights.sum(), np.zeros(len(data.y)),
    )  # fmt: skip
    problem = RowProblem(data, engine.activation, frame.coordinates, objective)
    options = solver.options
    u, trail, converged = _descend(problem, engine.counter, u, floor, options.tol, options.max_iter)
    losses, _ = problem.losses(u)
    weights = objective.respond(losses).weights
    n_iter = max(1, len(trail))
    status = f"Converged: the risk settled to tol after {n_iter} steps of L-BFGS."
    if not converged:
        status = (
            f"Stopped at max_iter={n_iter} before the risk settled to tol; raise max_iter or tol."
        )
    found = outcome(
        engine,
        frame.coordinates.to_user(u),
        losses=np.add.reduceat(row_weights * losses, data.offsets[:-1]) / data.totals,
        weights=np.add.reduceat(weights, data.offsets[:-1]),
        risk=objective.risk(losses),
        n_iter=n_iter,
        converged=converged,
        status=status,
        history={"risk": np.array(trail)},
    )
    return found, nu


def _descend(
    problem: RowProblem, reads: PassCounter, u: Array, floor: float, tol: float, max_iter: int
) -> tuple[Array, list[float], bool]:
    """L-BFGS, begun anew until that gains less than ``tol``: one short step, or a line search that
    fails at a kink, does not mean that there is nothing left to gain."""
    value = problem.risk_and_gradient(u)[0]
    trail: list[float] = []
    while True:
        size = max(value, floor)
        u, lower, steps = _lbfgs(problem, reads, u, size, 0.1 * tol, max_iter - len(trail))
        trail += steps
        gain, value = value - lower, lower
        if gain <= tol * size:
            return u, trail, True
        if len(trail) >= max_iter:
            return u, trail, False


def _lbfgs(
    problem: RowProblem, reads: PassCounter, u: Array, size: float, tol: float, max_iter: int
) -> tuple[Array, float, list[float]]:
    """The point reached, its risk, and the risk after every step; ``size`` is that of the risk."""
    trail: list[float] = []

    def scaled(at: Array) -> tuple[float, Array]:
        reads.count += 1
        risk, grad = problem.risk_and_gradient(at)
        return risk / size, grad / size

    def note(intermediate_result: Any) -> None:
        trail.append(size * float(intermediate_result.fun))

    options = {"maxiter": max_iter, "ftol": tol, "gtol": 1e-12, "maxcor": 20}
    result = minimize(scaled, u, jac=True, method="L-BFGS-B", options=options, callback=note)
    return result.x, size * float(result.fun), trail
