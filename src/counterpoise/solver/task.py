"""Task: one problem, ready to be fitted for any nu. Prepare, run Algorithm 1, polish, certify."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from counterpoise.dual.divergences import Divergence, Fixed, SimplexPoint
from counterpoise.dual.objective import Objective
from counterpoise.rows.engines.base import GroupEval, SumEngine
from counterpoise.solver.algorithm import PATIENCE, PrimalDualResult, Progress, primal_dual
from counterpoise.solver.certification import certify, duality_gap
from counterpoise.solver.coordinates import Coordinates
from counterpoise.solver.polish import ROUNDING, PolishResult
from counterpoise.solver.polish import polish as descend
from counterpoise.solver.preparation import Frame, Terms, label_scale, settle
from counterpoise.solver.problem import Problem, QuadraticProblem
from counterpoise.solver.schedules import PaperSteps, ProblemScale, Schedule
from counterpoise.solver.solution import Solution, Start

Array = np.ndarray
logger = logging.getLogger("counterpoise")

# With a polish to follow, Algorithm 1 need not be run to the last digit.
SURROGATE_TOL, SURROGATE_PATIENCE = 2e-2, 4
# Risks below this share of the labels' mean square are rounding.
RISK_FLOOR = 1e-14
# A linear fit whose duality gap exceeds its tolerance by this factor has not converged.
GAP_SLACK = 100.0
# A neuron's curvature against that of a linear unit, at first: half of the rows are active, and
# were features symmetric about zero, these would have half of every second moment.
HALF = 0.5
# Where weights are fixed nothing pulls them; in step sizes this share of the labels' scale does.
STRONG = 1e12
# What coordinates depend on.
FRAMED = {"engine", "prior", "radius", "precondition"}


class Run(NamedTuple):
    """Algorithm 1, made: the problem over the rows and the one it worked on (quadratics, if these
    are the whole problem); ``u`` is what it leaves, the last iterate with the paper's steps, else
    the best."""

    terms: Terms
    problem: Problem
    working: Problem
    scale: ProblemScale
    result: PrimalDualResult
    u: Array
    eval: GroupEval

    @property
    def floor(self) -> float:
        """Risks below this count as zero."""
        return RISK_FLOOR * self.scale.label_scale


class Reached(NamedTuple):
    """Where a fit ended: coefficients of the solver, losses there, weights; how it got there."""

    made: Run
    u: Array
    eval: GroupEval
    point: SimplexPoint
    polished: PolishResult | None

    def start(self, coordinates: Coordinates) -> Start:
        """The same for another fit to start from, in the user's coordinates."""
        average = self.made.terms.average
        return Start(
            coordinates.to_user(self.u),
            self.point.weights,
            coordinates.to_user(self.made.u),
            None if average is None else coordinates.to_user(average),
        )


@dataclass(frozen=True)
class Task:
    """Rows and everything that is asked about them, checked; ``fit`` may be called repeatedly."""

    engine: SumEngine
    divergence: Divergence
    prior: Array
    reference: Array
    steps: Schedule
    precondition: str | None
    radius: float | None
    truncate: float | None
    polish: bool
    max_iter: int
    tol: float

    @cached_property
    def frame(self) -> Frame:
        """Coordinates and second moments: measured once."""
        return Frame.measure(self.engine, self.prior, self.precondition, self.radius)

    @property
    def is_paper(self) -> bool:
        return isinstance(self.steps, PaperSteps)

    def variant(self, **changes: Any) -> Task:
        """The same rows with other terms; coordinates are kept unless they depend on these."""
        other = replace(self, **changes)
        if "frame" in self.__dict__ and not FRAMED & changes.keys():
            other.__dict__["frame"] = self.frame
        return other

    def path(self, nus: Iterable[float]) -> dict[float, Solution]:
        """A fit for every ``nu``, from large to small, each started from the one before;
        ``n_passes`` are those each took itself (the first, what came before it, too)."""
        found: dict[float, Solution] = {}
        start: Start | None = None
        for nu in sorted({float(nu) for nu in nus}, reverse=True):
            before = self.engine.passes if found else 0
            solution = self.fit(nu, start=start)
            found[nu] = replace(solution, n_passes=self.engine.passes - before)
            start = solution.start
        return found

    def points(self, nus: Iterable[float]) -> dict[float, Start]:
        """The same without certificates: where each fit ends, for the next to start from."""
        found: dict[float, Start] = {}
        start: Start | None = None
        for nu in sorted({float(nu) for nu in nus}, reverse=True):
            start = found[nu] = self.reach(nu, start=start).start(self.frame.coordinates)
        return found

    def run(
        self,
        nu: float | str,
        *,
        start: Start | None = None,
        extrapolation: str = "dual",
        callback: Callable[[Progress], None] | None = None,
    ) -> Run:
        """Settle what is open and run Algorithm 1, from ``start`` if there is one."""
        frame, prior = self.frame, self.prior
        terms = settle(
            self.engine, frame, prior, self.steps, nu=nu, radius=self.radius,
            truncate=self.truncate, start=self._point(None if start is None else start.average),
        )  # fmt: skip
        engine = terms.engine
        size, divergence, strength = label_scale(engine, prior), self.divergence, terms.nu
        if terms.nu == math.inf:
            divergence, strength = Fixed(), STRONG * size
        objective = Objective(divergence, strength, prior, self.reference)
        working = problem = Problem(engine, frame.coordinates, objective)
        scale = ProblemScale(
            beta=engine.activation.beta,
            n_groups=engine.n_groups,
            radius=terms.radius,
            nu=strength,
            moment=frame.moment,
            mean_moment=frame.mean_moment,
            label_scale=size,
            modulus=divergence.modulus,
        )
        if terms.model is not None:
            working = QuadraticProblem(terms.model, frame.coordinates, objective)
        result = primal_dual(
            working, self.steps, scale, start=self._first_point(nu, terms, start),
            weights=self._first_weights(terms.nu, start), max_iter=self.max_iter,
            tol=max(self.tol, SURROGATE_TOL) if self.polish else self.tol,
            patience=SURROGATE_PATIENCE if self.polish else PATIENCE, floor=RISK_FLOOR * size,
            settle=not self.polish, extrapolation=extrapolation, callback=callback,
        )  # fmt: skip
        logger.info(
            "Algorithm 1: %d iterations, risk %.6g", result.n_iter, result.history["risk"][-1]
        )
        u, ev = result.best, result.best_eval
        if self.is_paper:
            u, ev = result.u, result.eval
        return Run(terms, problem, working, scale, result, u, ev)

    def reach(
        self,
        nu: float | str,
        *,
        start: Start | None = None,
        callback: Callable[[Progress], None] | None = None,
    ) -> Reached:
        """Run Algorithm 1 and descend, from ``start`` if there is one; nothing is proved yet."""
        made = self.run(nu, start=start, callback=callback)
        problem, u, ev = made.problem, made.u, made.eval
        point, polished = made.result.dual.point, None
        if self.polish:
            polished = self._descend(problem, made.result, u, start, made.floor)
            logger.info("polish: %d steps, risk %.6g", polished.n_iter, polished.risk)
            u, ev, point = polished.u, polished.eval, polished.point
        elif made.working is not problem:
            ev = problem.evaluate(u, surrogate=False)
        point = _better_weights(problem.objective, ev, point, made.scale)
        zero = made.terms.engine.label_squares()  # sigma(0) = 0
        if problem.risk(zero) < problem.risk(ev.loss_K):
            u = np.zeros_like(u)
            ev = problem.evaluate(u, surrogate=False)
            point = problem.objective.respond(ev.loss_K)
        return Reached(made, u, ev, point, polished)

    def fit(
        self,
        nu: float | str,
        *,
        start: Start | None = None,
        callback: Callable[[Progress], None] | None = None,
    ) -> Solution:
        """Fit, from ``start`` if there is one, and certify."""
        reached = self.reach(nu, start=start, callback=callback)
        made, u, ev, point, polished = reached
        terms, problem, working, scale, run, *_ = made
        frame, engine, coordinates = self.frame, terms.engine, self.frame.coordinates
        sigma, objective, floor = engine.activation, problem.objective, made.floor
        matrices = frame.matrices if sigma.is_identity else None
        gap = duality_gap(problem, u, ev, point, matrices) if sigma.is_identity else None
        certificate = certify(
            working, run, scale, u=u, loss_K=ev.loss_K, point=point, gap=gap,
            metric=frame.kind, moment_exact=frame.matrices is not None,
        )  # fmt: skip
        risk = problem.risk(ev.loss_K)
        converged, status = _status(run, polished, self.is_paper)
        height = max(objective.size(risk), floor)
        allowed = max(GAP_SLACK * max(self.tol, 1e-7) * height, floor)
        if self.polish and gap is not None and allowed < gap.value < math.inf:
            converged = False
            status = (
                f"Stopped with a duality gap of {gap.value:.2g}, {gap.value / height:.1g} of the "
                "risk; rescale the features, lower tol, or try another precondition."
            )
        end, d = reached.start(coordinates), engine.n_features
        w = end.coef
        return Solution(
            coef=w[:d].copy(),
            intercept=float(w[-1]) if engine.census.intercept else 0.0,
            losses=ev.loss_K,
            weights=point.weights,
            risk=risk,
            nu=terms.nu,
            radius=self.radius,
            truncation=terms.truncation,
            n_iter=run.n_iter,
            n_passes=engine.passes,
            converged=converged,
            status=status,
            history=run.history,
            certificate=certificate,
            labels=engine.census.labels,
            start=end,
        )

    def checked(self, start: Start | None) -> Start | None:
        """The start, if it fits this task's shape."""
        if start is None:
            return None
        if not isinstance(start, Start):
            raise TypeError(f"start must be a Start (solution.start); got {type(start).__name__}")
        shapes = {
            "coef": (self.engine.n_coef,),
            "weights": (self.engine.n_groups,),
            "surrogate": (self.engine.n_coef,),
            "average": (self.engine.n_coef,),
        }
        for name, shape in shapes.items():
            value = getattr(start, name)
            if value is not None and np.shape(value) != shape:
                raise ValueError(
                    f"start.{name} has shape {np.shape(value)}, but this problem needs {shape}; "
                    "start from a solution with the same features, intercept and groups"
                )
            if value is not None and not np.isfinite(value).all():
                raise ValueError(f"start.{name} must hold finite numbers; got {value!r}")
        if (start.weights < 0).any() or not abs(float(np.sum(start.weights)) - 1.0) < 1e-6:
            raise ValueError(
                f"start.weights must not be negative and sum to one; got {start.weights!r}"
            )
        return start

    def _point(self, w: Array | None) -> Array | None:
        """User's coefficients as a point of the solver's, within the ball."""
        coordinates = self.frame.coordinates
        return None if w is None else coordinates.project(coordinates.from_user(w))

    def _first_point(self, nu: float | str, terms: Terms, start: Start | None) -> Array:
        """Where Algorithm 1 starts: as the paper, at zero, unless something better is at hand."""
        zero = np.zeros(self.frame.coordinates.size)
        if self.is_paper:
            return zero
        if start is not None:
            point = self._point(start.coef if start.surrogate is None else start.surrogate)
            assert point is not None
            return point
        return terms.average if nu == "auto" and terms.average is not None else zero

    def _first_weights(self, nu: float, start: Start | None) -> SimplexPoint | None:
        if start is None or self.is_paper or nu == math.inf:  # then they are the prior
            return None
        return SimplexPoint.of(0.9 * start.weights + 0.1 * self.prior)

    def _descend(
        self, problem: Problem, run: PrimalDualResult, u: Array, start: Start | None, floor: float
    ) -> PolishResult:
        """Polish from where Algorithm 1 ended, or from ``start`` if that is lower already.

        A start has been polished itself: there is no need to pass over small minima again.
        """
        hess, fixed = self.frame.matrices, self.engine.activation.is_identity
        if hess is not None and not fixed:
            hess = HALF * hess
        point, ev, rounding = run.dual.point, None, ROUNDING
        there = self._point(None if start is None else start.coef)
        if start is not None and there is not None:
            found = problem.evaluate(there, surrogate=False)
            if problem.risk(found.loss_K) <= run.history["risk"].min():
                u, point, ev, rounding = there, SimplexPoint.of(start.weights), found, ()
        return descend(
            problem, u, point, tol=self.tol, floor=floor, hess=hess,
            fixed=fixed and hess is not None, ev=ev, rounding=rounding,
        )  # fmt: skip


def _better_weights(
    objective: Objective, ev: GroupEval, point: SimplexPoint, scale: ProblemScale
) -> SimplexPoint:
    """The weights found, or the exact response to the losses: whichever explains the fit better.

    At a minimiser the two agree. For small ``nu`` the response is decided by the last digits of
    tied losses, so it is judged as a dual solution would be: by what ``L`` falls short of ``R``
    and by the gradient that the weights leave.
    """
    if objective.nu == 0:
        return point
    loss, grad = ev
    risk, curvature = objective.risk(loss), 2.0 * scale.beta**2 * scale.mean_moment

    def miss(candidate: SimplexPoint) -> float:
        slope = candidate.weights @ grad
        short = max(risk - objective.lagrangian(loss, candidate.weights), 0.0)
        return short + 0.5 * float(slope @ slope) / curvature

    # Ties and rounding go to the response, which is the closed form.
    response, rounding = objective.respond(loss), 1e-12 * float(np.abs(loss).max())
    return response if miss(response) <= 2.0 * miss(point) + rounding else point


def _status(run: PrimalDualResult, polished: PolishResult | None, paper: bool) -> tuple[bool, str]:
    """Whether the fit is done, and a sentence that says what to do if not."""
    if polished is not None:
        if polished.converged:
            return True, (
                f"Converged: after {run.n_iter} iterations of Algorithm 1 and {polished.n_iter} "
                "polishing steps, no step lowers the risk by more than tol."
            )
        return False, (
            f"Stopped after {polished.n_iter} polishing steps before the risk settled to tol; "
            "raise tol, or rescale the features if precondition=None."
        )
    if paper:
        return True, (
            f"Ran the {run.n_iter} iterations of Algorithm 1 that max_iter asked for, with the "
            "paper's step sizes; these move slowly, and schedule='adaptive' is the practical one."
        )
    if run.converged:
        return True, f"Converged: the risk settled to tol after {run.n_iter} iterations."
    return False, (
        f"Stopped at max_iter={run.n_iter} before the risk settled to tol; raise max_iter or "
        "tol, or use polish=True."
    )
