"""Risks over rows: losses of single rows, their weights, the gradient, and L-BFGS."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import minimize

from counterpoise.baselines._base import in_memory, loss_scale, outcome
from counterpoise.dual.divergences import Divergence, Fixed
from counterpoise.dual.objective import Objective
from counterpoise.losses import Loss, NeuronLoss
from counterpoise.rows.engines.base import PassCounter
from counterpoise.rows.engines.scores import pull_scores, scores_of
from counterpoise.rows.groups import GroupedData
from counterpoise.solver.coordinates import Coordinates
from counterpoise.solver.frame import average_fit
from counterpoise.solver.problem import Problem
from counterpoise.solver.ridge import Ridge
from counterpoise.solver.setup import AVERAGE_TOL, RISK_FLOOR
from counterpoise.solver.solution import Outcome
from counterpoise.solver.solver import Solver
from counterpoise.solver.stacked import Stacked

Array = np.ndarray


@dataclass(frozen=True)
class RowProblem:
    """Rows in solver coordinates; for the objective, each row is a group."""

    data: GroupedData
    loss: Loss
    coordinates: Coordinates | Stacked
    objective: Objective
    ridge: Ridge | None = None

    def losses(self, u: Array) -> tuple[Array, Array]:
        """Return the loss of every row, and the linear scores."""
        data, n_scores = self.data, self.loss.n_scores
        z = scores_of(data.X, self.coordinates.to_user(u), n_scores, data.intercept)
        z = z[:, 0] if n_scores == 1 else z
        return self.loss.value(z, data.y), z

    def risk_and_gradient(self, u: Array) -> tuple[float, Array]:
        losses, z = self.losses(u)
        weights = self.objective.respond(losses).weights
        slope = (self.loss.slope(z, self.data.y).T * weights).T
        grad = self.coordinates.pull(pull_scores(self.data.X, slope, self.data.intercept))
        if self.ridge is not None:
            grad = grad + self.ridge.pull(u)
        return self.risk(losses, u), grad

    def risk(self, losses: Array, u: Array) -> float:
        """Return the risk of these losses of rows at ``u``, with the ridge."""
        return self.objective.risk(losses) + (self.ridge.value(u) if self.ridge else 0.0)


def minimise_over_rows(
    solver: Solver,
    divergence: Divergence,
    strength: Callable[[float], float],
    smoothing: Sequence[float] = (),
) -> tuple[Outcome, float]:
    """Minimise ``max_q sum_j q_j loss_j - nu d_f(q, row weights)`` over models.

    ``q`` ranges over distributions on rows, and ``nu`` is ``strength(average loss)``. The search
    starts from the average fit. For a risk with kinks, ``smoothing`` holds larger values of ``nu``
    to minimise first, in multiples of the average loss; the last takes the place of ``nu`` itself.
    Return the fit and ``nu``.
    """
    engine, frame, prior = in_memory(solver), solver.frame, solver.prior
    data, floor = engine.data.copied(), RISK_FLOOR * loss_scale(engine, prior)
    row_weights = data.weights_of(0, len(data.y))
    share, none = row_weights / row_weights.sum(), np.zeros(len(data.y))
    options, reads = solver.options, engine.counter

    def over_rows(nu: float) -> RowProblem:
        plain = nu == math.inf
        objective = Objective(
            Fixed() if plain else divergence, 1.0 if plain else nu, share, none
        )  # fmt: skip
        return RowProblem(data, engine.loss, frame.coordinates, objective, frame.ridge)

    u, loss = _average(solver, over_rows(math.inf), floor)
    nu = strength(max(loss, floor))
    trail: list[float] = []
    converged = True
    for level in [each * max(loss, floor) for each in smoothing] or [nu]:
        left = max(options.max_iter - len(trail), 1)
        u, steps, converged = _descend(over_rows(level), reads, u, floor, options.tol, left)
        trail += steps
    problem = over_rows(nu)
    losses, _ = problem.losses(u)
    weights = problem.objective.respond(losses).weights
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
        risk=problem.risk(losses, u),
        n_iter=n_iter,
        converged=converged,
        status=status,
        history={"risk": np.array(trail)},
    )
    return found, nu


def _average(solver: Solver, problem: RowProblem, floor: float) -> tuple[Array, float]:
    """Return the fit to the average over rows, and its loss.

    A ReLU would be dead at zero, so a neuron is fitted by surrogate steps.
    """
    engine, frame, prior = solver.engine, solver.frame, solver.prior
    if isinstance(engine.loss, NeuronLoss):
        average = Objective(Fixed(), 1.0, prior, solver.reference)
        whole = Problem(engine, frame.coordinates, average)
        return average_fit(
            lambda at: whole.evaluate(at, surrogate=True), frame, prior,
            engine.loss.activation.beta,
        )  # fmt: skip
    zero = np.zeros(frame.coordinates.size)
    tol = max(solver.options.tol, AVERAGE_TOL)
    u, _, _ = _descend(problem, engine.counter, zero, floor, tol, solver.options.max_iter)
    return u, problem.objective.risk(problem.losses(u)[0])


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
