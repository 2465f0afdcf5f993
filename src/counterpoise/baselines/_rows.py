"""Risks over rows: losses of single rows, their weights, the gradient, and L-BFGS."""

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
from counterpoise.solver.stacked import Stacked

Array = np.ndarray


@dataclass(frozen=True)
class RowProblem:
    """Rows in solver coordinates; for the objective, each row is a group."""

    data: GroupedData
    activation: Activation
    coordinates: Coordinates | Stacked
    objective: Objective

    def losses(self, u: Array) -> tuple[Array, Array]:
        """Return the loss of every row, and the linear scores."""
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
    """Minimise ``max_q sum_j q_j loss_j - nu d_f(q, row weights)`` over neurons.

    ``q`` ranges over distributions on rows, and ``nu`` is ``strength(average loss)``. A ReLU would
    be dead at zero, so the search starts from the average fit by surrogate steps. Return the fit
    and ``nu``.
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
    status = f"Converged: after {n_iter} steps of L-BFGS, the risk changed by less than tol."
    if not converged:
        status = (
            f"Not converged: reached max_iter={n_iter} while the risk still changed by more than "
            "tol. Raise max_iter or tol."
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
    """Restart L-BFGS until a run gains less than ``tol``.

    A single short step, or a line search that fails at a kink, does not mean convergence.
    """
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
    """Run L-BFGS on the risk over ``size``; return the point, its risk, and all risks so far."""
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
