"""Stage 1 of a fit: choose what the user left open, and set up the problem."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from counterpoise.dual.divergences import Divergence, Fixed, SimplexPoint
from counterpoise.dual.objective import Objective
from counterpoise.rows.engines.base import GroupEval, SumEngine
from counterpoise.solver.frame import Frame, average_fit, label_scale, quadratics
from counterpoise.solver.polish import polish
from counterpoise.solver.problem import Problem, QuadraticProblem, evaluate_at
from counterpoise.solver.quadratics import QuadraticEngine
from counterpoise.solver.schedules import ProblemScale, Schedule
from counterpoise.solver.semidefinite import solve_semidefinite

Array = np.ndarray

# Risks below this share of the labels' mean square are rounding.
RISK_FLOOR = 1e-14
# ``nu="auto"`` is this share of the average fit's loss.
AUTO = 0.1
# The average fit that ``nu="auto"`` needs is found to this relative accuracy.
AVERAGE_TOL = 1e-3
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

    def working_at(self, nu: float, divergence: Divergence) -> Problem:
        """Return the working problem with another ``nu``; it reads the same rows, or none."""
        objective = self.working.objective
        divergence, strength = _strength(nu, divergence, self.scale.label_scale)
        return replace(
            self.working, objective=replace(objective, divergence=divergence, nu=strength)
        )


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
    if engine.loss.is_convex:
        return _set_up_convex(
            engine, frame, divergence=divergence, prior=prior, reference=reference, nu=nu,
            radius=radius, start=start,
        )  # fmt: skip
    return _set_up_neuron(
        engine, frame, schedule, divergence=divergence, prior=prior, reference=reference, nu=nu,
        radius=radius, truncate=truncate, start=start,
    )  # fmt: skip


def _set_up_neuron(
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
    start: Array | None,
) -> Setup:
    """Set up the squared error of a neuron, which may be clipped by the schedule."""
    loss = engine.loss
    beta = math.sqrt(0.5 * loss.bend_bound)
    if truncate is not None:
        engine = engine.variant(truncate=truncate)
    linear = loss.is_quadratic and frame.matrices is not None
    model = quadratics(engine, frame) if linear else None
    least = schedule.least_radius(beta) if radius is None else None
    average, ball = None, radius or math.inf
    if nu == "auto" or least is not None:
        average, mean = average_fit(_evaluator(engine, frame, model), frame, prior, beta, start)
        if model is not None:
            model = quadratics(engine, frame, average)
            mean = float(prior @ model.loss_K)
        ball = radius or 2.0 * frame.coordinates.coef_norm(average)
        if nu == "auto":
            nu = AUTO * mean
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
    size = label_scale(engine, prior)
    divergence, strength = _strength(nu, divergence, size)
    objective = Objective(divergence, strength, prior, reference)
    working = problem = Problem(engine, frame.coordinates, objective, frame.ridge)
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


def _set_up_convex(
    engine: SumEngine,
    frame: Frame,
    *,
    divergence: Divergence,
    prior: Array,
    reference: Array,
    nu: float | str,
    radius: float | None,
    start: Array | None,
) -> Setup:
    """Set up a loss that is convex in the score, where Newton's method finds the average fit."""
    zero = np.zeros(frame.coordinates.size)
    fixed = Objective(Fixed(), 1.0, prior, np.zeros_like(prior))
    problem = Problem(engine, frame.coordinates, fixed, frame.ridge)
    there = problem.evaluate(zero, surrogate=False)
    size = float(prior @ there.loss_K) or 1.0
    average = None
    # Steps from zero may go far astray if second derivatives are unbounded.
    if nu == "auto" or not math.isfinite(engine.loss.bend_bound):
        found = polish(
            problem, zero if start is None else start, SimplexPoint.of(prior), tol=AVERAGE_TOL,
            floor=RISK_FLOOR * size, ev=there if start is None else None,
        )  # fmt: skip
        average = found.u
        if nu == "auto":
            nu = AUTO * (found.risk - (frame.ridge.value(average) if frame.ridge else 0.0))
    nu = float(nu)
    divergence, strength = _strength(nu, divergence, size)
    bend = engine.loss.bend_bound
    if not math.isfinite(bend):
        assert average is not None
        each = np.linalg.eigvalsh(problem.curvature(average, None))
        bend = float(each.max(initial=0.0)) / frame.moment or 1.0
    steepest = 0.0 if frame.ridge is None else frame.ridge.largest
    scale = ProblemScale(
        beta=math.sqrt(0.5 * bend),
        n_groups=engine.n_groups,
        radius=radius or math.inf,
        nu=strength,
        moment=frame.moment + steepest / bend,
        mean_moment=frame.mean_moment,
        label_scale=size,
        modulus=divergence.modulus,
    )
    problem = replace(problem, objective=Objective(divergence, strength, prior, reference))
    return Setup(problem, problem, scale, nu, None, average)


def _strength(nu: float, divergence: Divergence, size: float) -> tuple[Divergence, float]:
    """Return the divergence and its strength; weights are fixed if ``nu`` is infinite."""
    return (Fixed(), STRONG * size) if nu == math.inf else (divergence, nu)


def _evaluator(
    engine: SumEngine, frame: Frame, model: QuadraticEngine | None
) -> Callable[[Array], GroupEval]:
    """Return losses and surrogate gradients in solver coordinates; a model needs no pass."""
    if model is not None:
        return model.evaluate
    coordinates = frame.coordinates

    def evaluate(u: Array) -> GroupEval:
        return evaluate_at(engine, coordinates, u, surrogate=True, ridge=frame.ridge)

    return evaluate
