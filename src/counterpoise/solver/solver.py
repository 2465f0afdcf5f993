"""Solver: rows and options, checked; fits for any nu, each in four stages.

set up          what the user left open is decided          -> Setup
run             Algorithm 1                                 -> PrimalDualResult
descend         polish, from where Algorithm 1 ended        -> PolishResult
certify         what is proved about the result             -> Solution
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any

import numpy as np

from counterpoise.dual.divergences import Divergence, SimplexPoint
from counterpoise.dual.objective import Objective
from counterpoise.rows.engines.base import GroupEval, SumEngine
from counterpoise.solver.algorithm import PATIENCE, PrimalDualResult, Progress, primal_dual
from counterpoise.solver.certification import certify, duality_gap
from counterpoise.solver.frame import Frame
from counterpoise.solver.options import FitOptions
from counterpoise.solver.polish import ROUNDING, PolishResult, polish
from counterpoise.solver.schedules import ProblemScale, Schedule
from counterpoise.solver.setup import Setup, set_up
from counterpoise.solver.solution import Solution, Start

Array = np.ndarray
logger = logging.getLogger("counterpoise")

# With a polish to follow, Algorithm 1 need not be run to the last digit.
SURROGATE_TOL, SURROGATE_PATIENCE = 2e-2, 4
# A linear fit whose duality gap exceeds its tolerance by this factor has not converged.
GAP_SLACK = 100.0
# A neuron's curvature against that of a linear unit, at first: half of the rows are active, and
# were features symmetric about zero, these would have half of every second moment.
HALF = 0.5
# What coordinates depend on.
FRAMED = {"engine", "prior", "radius", "precondition"}


@dataclass(frozen=True)
class Solver:
    """Rows and everything that is asked about them, checked; ``fit`` may be called repeatedly.

    ``divergence``, ``prior``, ``reference`` and ``schedule`` are what ``options`` name, as objects
    and as arrays in the order of the groups.
    """

    engine: SumEngine
    divergence: Divergence
    prior: Array
    reference: Array
    schedule: Schedule
    options: FitOptions

    @cached_property
    def frame(self) -> Frame:
        """Coordinates and second moments: measured once."""
        options = self.options
        return Frame.measure(self.engine, self.prior, options.precondition, options.radius)

    def variant(self, **changes: Any) -> Solver:
        """The same rows with other terms; coordinates are kept unless they depend on these.

        ``changes`` are attributes of the solver or, else, of its options.
        """
        own = {field.name for field in fields(self)}
        asked = {name: value for name, value in changes.items() if name not in own}
        given = {name: value for name, value in changes.items() if name in own}
        other = replace(self, options=replace(self.options, **asked), **given)
        if "frame" in self.__dict__ and not FRAMED & changes.keys():
            other.__dict__["frame"] = self.frame
        return other

    # -- fits ------------------------------------------------------------------------------

    def fit(
        self,
        nu: float | str,
        *,
        start: Start | None = None,
        callback: Callable[[Progress], None] | None = None,
    ) -> Solution:
        """Fit, from ``start`` if there is one, and certify."""
        setup = self.set_up(nu, start)
        run = self.run(setup, nu, start, callback=callback)
        return self.certify(setup, run, self.descend(setup, run, start))

    def end(self, nu: float | str, start: Start | None = None) -> tuple[Start, GroupEval]:
        """Where a fit ends, and the losses there; nothing is proved."""
        setup = self.set_up(nu, start)
        run = self.run(setup, nu, start)
        end = self.descend(setup, run, start)
        return self._start_of(setup, run, end), end.eval

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
            start, _ = self.end(nu, start)
            found[nu] = start
        return found

    # -- stages ----------------------------------------------------------------------------

    def set_up(self, nu: float | str, start: Start | None = None) -> Setup:
        """Stage 1: decide what is open."""
        return set_up(
            self.engine, self.frame, self.schedule,
            divergence=self.divergence, prior=self.prior, reference=self.reference,
            nu=nu, radius=self.options.radius, truncate=self.options.truncate,
            start=self._point(None if start is None else start.average),
        )  # fmt: skip

    def run(
        self,
        setup: Setup,
        nu: float | str,
        start: Start | None = None,
        *,
        extrapolation: str = "dual",
        callback: Callable[[Progress], None] | None = None,
    ) -> PrimalDualResult:
        """Stage 2: Algorithm 1, from ``start`` if there is one. ``nu`` is as the user gave it."""
        options = self.options
        result = primal_dual(
            setup.working, self.schedule, setup.scale,
            start=self._first_point(nu, setup, start),
            weights=self._first_weights(setup.nu, start), max_iter=options.max_iter,
            tol=max(options.tol, SURROGATE_TOL) if options.polish else options.tol,
            patience=SURROGATE_PATIENCE if options.polish else PATIENCE, floor=setup.floor,
            steady=not options.polish, extrapolation=extrapolation, callback=callback,
        )  # fmt: skip
        logger.info(
            "Algorithm 1: %d iterations, risk %.6g", result.n_iter, result.history["risk"][-1]
        )
        return result

    def descend(
        self, setup: Setup, run: PrimalDualResult, start: Start | None = None
    ) -> PolishResult:
        """Stage 3: descend on the risk, and compare with the zero vector."""
        problem = setup.problem
        if self.options.polish:
            end = self._polish(setup, run, start)
            logger.info("polish: %d steps, risk %.6g", end.n_iter, end.risk)
        else:
            u, ev = run.result, run.result_eval
            if setup.working is not problem:  # losses of the rows, not of their quadratics
                ev = problem.evaluate(u, surrogate=False)
            end = PolishResult(u, ev, run.dual.point, problem.risk(ev.loss_K), 0, run.converged)
        point = _better_weights(problem.objective, end.eval, end.point, setup.scale)
        zero = setup.engine.label_squares()  # sigma(0) = 0
        if problem.risk(zero) < problem.risk(end.eval.loss_K):
            u = np.zeros_like(end.u)
            ev = problem.evaluate(u, surrogate=False)
            return replace(end, u=u, eval=ev, point=problem.objective.respond(ev.loss_K))
        return replace(end, point=point)

    def certify(self, setup: Setup, run: PrimalDualResult, end: PolishResult) -> Solution:
        """Stage 4: prove what can be proved, and put the result in the user's coordinates."""
        frame, problem, engine = self.frame, setup.problem, setup.engine
        gap = None
        if engine.activation.is_identity:
            gap = duality_gap(problem, end.u, end.eval, end.point, frame.matrices)
        certificate = certify(
            setup.working, run, setup.scale, u=end.u, loss_K=end.eval.loss_K, point=end.point,
            gap=gap, metric=frame.kind, moment_exact=frame.matrices is not None,
        )  # fmt: skip
        risk = problem.risk(end.eval.loss_K)
        converged, status = _status(run, end if self.options.polish else None)
        height = max(problem.objective.size(risk), setup.floor)
        allowed = max(GAP_SLACK * max(self.options.tol, 1e-7) * height, setup.floor)
        if self.options.polish and gap is not None and allowed < gap.value < math.inf:
            converged = False
            status = (
                f"Stopped with a duality gap of {gap.value:.2g}, {gap.value / height:.1g} of the "
                "risk; rescale the features, lower tol, or try another precondition."
            )
        start = self._start_of(setup, run, end)
        return Solution(
            coef=start.coef[: engine.n_features].copy(),
            intercept=float(start.coef[-1]) if engine.census.intercept else 0.0,
            losses=end.eval.loss_K,
            weights=end.point.weights,
            risk=risk,
            nu=setup.nu,
            radius=self.options.radius,
            truncation=setup.truncation,
            n_iter=run.n_iter,
            n_passes=engine.passes,
            converged=converged,
            status=status,
            history=run.history,
            certificate=certificate,
            labels=engine.census.labels,
            start=start,
        )

    # -- starts ----------------------------------------------------------------------------

    def checked(self, start: Start | None) -> Start | None:
        """The start, if it fits this problem's shape."""
        if start is not None:
            Start.check(start, self.engine.n_coef, self.engine.n_groups)
        return start

    def _start_of(self, setup: Setup, run: PrimalDualResult, end: PolishResult) -> Start:
        """Where a fit ended, for another to start from, in the user's coordinates."""
        to_user = self.frame.coordinates.to_user
        average = None if setup.average is None else to_user(setup.average)
        return Start(to_user(end.u), end.point.weights, to_user(run.result), average)

    def _point(self, w: Array | None) -> Array | None:
        """User's coefficients as a point of the solver's, within the ball."""
        coordinates = self.frame.coordinates
        return None if w is None else coordinates.project(coordinates.from_user(w))

    def _first_point(self, nu: float | str, setup: Setup, start: Start | None) -> Array:
        """Where Algorithm 1 starts: at zero, as in the paper, unless something better is known."""
        zero = np.zeros(self.frame.coordinates.size)
        if self.schedule.as_printed:
            return zero
        if start is not None:
            point = self._point(start.coef if start.surrogate is None else start.surrogate)
            assert point is not None
            return point
        return setup.average if nu == "auto" and setup.average is not None else zero

    def _first_weights(self, nu: float, start: Start | None) -> SimplexPoint | None:
        """The prior (None) or, from a start, nearly its weights."""
        if start is None or self.schedule.as_printed or nu == math.inf:
            return None
        return SimplexPoint.of(0.9 * start.weights + 0.1 * self.prior)

    def _polish(self, setup: Setup, run: PrimalDualResult, start: Start | None) -> PolishResult:
        """Polish from where Algorithm 1 ended, or from ``start`` if that is lower already.

        A start has been polished itself: there is no need to pass over small minima again.
        """
        problem, u = setup.problem, run.result
        hess, fixed = self.frame.matrices, self.engine.activation.is_identity
        if hess is not None and not fixed:
            hess = HALF * hess
        point, ev, rounding = run.dual.point, None, ROUNDING
        there = self._point(None if start is None else start.coef)
        if start is not None and there is not None:
            found = problem.evaluate(there, surrogate=False)
            if problem.risk(found.loss_K) <= run.history["risk"].min():
                u, point, ev, rounding = there, SimplexPoint.of(start.weights), found, ()
        return polish(
            problem, u, point, tol=self.options.tol, floor=setup.floor, hess=hess,
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


def _status(run: PrimalDualResult, polished: PolishResult | None) -> tuple[bool, str]:
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
    if run.as_printed:
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
