"""Stage 1 of a fit: choose what the user left open, and set up the problem."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from counterpoise.dual.divergences import Divergence, Fixed
from counterpoise.dual.objective import Objective
from counterpoise.rows.engines.base import GroupEval, SumEngine
from counterpoise.solver.frame import Frame, average_fit, label_scale, quadratics
from counterpoise.solver.minmax import solve_semidefinite
from counterpoise.solver.problem import Problem, QuadraticProblem
from counterpoise.solver.quadratics import QuadraticEngine
from counterpoise.solver.schedules import ProblemScale, Schedule

Array = np.ndarray

# Risks below this share of the labels' mean square are rounding.
RISK_FLOOR = 1e-14
# Fixed weights (nu = inf) use this multiple of the labels' scale as nu in step sizes.
STRONG = 1e12


@dataclass(frozen=True)
class Setup:
    """A fully specified problem.

    Attributes
    ----------
    problem : Problem
        The problem over the rows, with labels clipped if requested.
    working : Problem
        The problem that Algorithm 1 runs on: the same, or its quadratics for a linear model.
    scale : ProblemScale
        Constants for step sizes.
    nu : float
    truncation : float or None
        The level at which labels are clipped.
    average : array or None
        The neuron of the average loss in solver coordinates, if it was needed.
    """

    problem: Problem
    working: Problem
    scale: ProblemScale
    nu: float
    truncation: float | None
    average: Array | None

    @property
    def engine(self) -> SumEngine:
        engine = self.problem.engine
        assert isinstance(engine, SumEngine)
        return engine

    @property
    def floor(self) -> float:
        """Risks below this count as zero."""
        return RISK_FLOOR * self.scale.label_scale


def set_up(
    engine: SumEngine,
    frame: Frame,
    schedule: Schedule,
    *,
    divergence: Divergence,
    prior: Array,
    reference: Array,
    nu: float | str,
    radius: float | None,
    truncate: float | None,
    start: Array | None = None,
) -> Setup:
    """Resolve ``nu="auto"`` and the schedule's constants, and clip labels.

    ``start`` is the first point of the average fit; zero if None.
    """
    beta = engine.activation.beta
    if truncate is not None:
        engine = engine.variant(truncate=truncate)
    linear = engine.activation.is_identity and frame.matrices is not None
    model = quadratics(engine, frame) if linear else None
    least = schedule.least_radius(beta) if radius is None else None
    average, ball = None, radius or math.inf
    if nu == "auto" or least is not None:
        average, loss = average_fit(_evaluator(engine, frame, model), frame, prior, beta, start)
        if model is not None:
            model = quadratics(engine, frame, average)
            loss = float(prior @ model.loss_K)
        ball = radius or 2.0 * frame.coordinates.coef_norm(average)
        if nu == "auto":
            nu = 0.1 * loss
    if least is not None:
        ball = max(ball, least)
    if truncate is None:
        truncate = schedule.truncation(beta, ball)
        if truncate is not None:
            engine = engine.variant(truncate=truncate)
            model = quadratics(engine, frame) if linear else None
    if model is not None and average is None:
        # Move the origin near the fit if losses there are much smaller than at zero.
        near = -solve_semidefinite(model.mixture(prior), prior @ model.grad_KD)
        if prior @ model.evaluate(near).loss_K < 0.1 * (prior @ model.loss_K):
            model = quadratics(engine, frame, near)
    nu = float(nu)
    size, strength = label_scale(engine, prior), nu
    if nu == math.inf:
        divergence, strength = Fixed(), STRONG * size
    objective = Objective(divergence, strength, prior, reference)
    working = problem = Problem(engine, frame.coordinates, objective)
    if model is not None:
        working = QuadraticProblem(model, frame.coordinates, objective)
    scale = ProblemScale(
        beta=beta,
        n_groups=engine.n_groups,
        radius=ball,
        nu=strength,
        moment=frame.moment,
        mean_moment=frame.mean_moment,
        label_scale=size,
        modulus=divergence.modulus,
    )
    return Setup(problem, working, scale, nu, truncate, average)


def _evaluator(
    engine: SumEngine, frame: Frame, model: QuadraticEngine | None
) -> Callable[[Array], GroupEval]:
    """Return losses and surrogate gradients in solver coordinates; a model needs no pass."""
    if model is not None:
        return model.evaluate
    coordinates = frame.coordinates

    def evaluate(u: Array) -> GroupEval:
        loss, grad = engine.evaluate(coordinates.to_user(u), surrogate=True)
        return GroupEval(loss, coordinates.pull(grad))

    return evaluate
