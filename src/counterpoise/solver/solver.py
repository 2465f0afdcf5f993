"""Solver: checked rows and options, and fits for any nu in four stages.

set up          choose what the user left open                 -> Setup
run             run Algorithm 1                                -> PrimalDualResult
descend         polish the result of Algorithm 1               -> PolishResult
certify         prove what can be proved about the result      -> Solution
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from counterpoise.common.text import count
from counterpoise.dual.divergences import Divergence, SimplexPoint
from counterpoise.losses import NeuronLoss
from counterpoise.rows.engines.base import GroupEval, SumEngine
from counterpoise.rows.engines.scores import Mistakes
from counterpoise.solver.algorithm import PATIENCE, PrimalDualResult, Progress, primal_dual
from counterpoise.solver.bounds import METRICS, DualityGap, certify, duality_gap
from counterpoise.solver.certificate import Certificate, RegionProof
from counterpoise.solver.convex import ConvexGap, convex_gap
from counterpoise.solver.convex_certificate import ConvexCertificate
from counterpoise.solver.ending import Ending
from counterpoise.solver.frame import Frame
from counterpoise.solver.left_out import gain_left_out
from counterpoise.solver.options import FitOptions
from counterpoise.solver.polish import CONVEX_LIMIT, ROUNDING, PolishResult, better_weights, polish
from counterpoise.solver.problem import Problem
from counterpoise.solver.schedules import Schedule
from counterpoise.solver.setup import Setup, set_up
from counterpoise.solver.solution import Solution, Start
from counterpoise.solver.surroundings import Surroundings

Array = np.ndarray
logger = logging.getLogger("counterpoise")

# If a polish follows, Algorithm 1 can stop early.
SURROGATE_TOL, SURROGATE_PATIENCE = 2e-2, 4
# Classes can be separated without an error only if no loss exceeds this share of the one at zero.
SEPARATED = 1e-2
# A linear fit whose duality gap exceeds its tolerance by this factor has not converged.
GAP_SLACK = 100.0
# A convex fit that proves no gap is refined this often, by this factor, if its tolerance is FINE.
FINE, FURTHER, FINER = 1e-5, 2, 1e-3
# First guess of a neuron's curvature relative to that of a linear model: half of the rows are
# active, and hold half of every second moment if features are symmetric about zero.
HALF = 0.5
# Numbers whose centre exceeds their spread by this factor are far from zero.
FAR = 1e3
# Algorithm 1 forgets where it started as rho grows; the theorem says nothing until it exceeds two.
INFORMATIVE_RHO = 20.0
# Attributes and options that the coordinates depend on.
FRAMED = {"engine", "prior", "radius", "precondition", "ridge"}


@dataclass(frozen=True)
class Solver:
    """Checked rows and options; ``fit`` may be called repeatedly.

    ``divergence``, ``prior``, ``reference`` and ``schedule`` are those of ``options``, resolved to
    objects and to arrays in the order of the groups.
    """

    engine: SumEngine
    divergence: Divergence
    prior: Array
    reference: Array
    schedule: Schedule
    options: FitOptions

    @property
    def frame(self) -> Frame:
        """Coordinates and second moments, measured once."""
        # cached_property would hold a lock, before Python 3.12, that solvers in lockstep share.
        if "_frame" not in self.__dict__:
            options = self.options
            self.__dict__["_frame"] = Frame.measure(
                self.engine, self.prior, options.precondition, options.radius, alpha=options.ridge
            )
        found: Frame = self.__dict__["_frame"]
        return found

    def variant(self, **changes: Any) -> Solver:
        """Return a solver for the same rows with some attributes or options changed.

        Coordinates are kept unless they depend on the changes.
        """
        own = {field.name for field in fields(self)}
        asked = {name: value for name, value in changes.items() if name not in own}
        given = {name: value for name, value in changes.items() if name in own}
        if "prior" in given:
            asked["prior"] = given["prior"]
        other = replace(self, options=replace(self.options, **asked), **given)
        return other if FRAMED & changes.keys() else self._sharing_frame(other)

    def reading(self, engine: SumEngine) -> Solver:
        """Return the solver with another engine for the same rows; coordinates are kept."""
        return self._sharing_frame(replace(self, engine=engine))

    def _sharing_frame(self, other: Solver) -> Solver:
        """Return another solver with the coordinates of this one, if they are known."""
        if "_frame" in self.__dict__:
            other.__dict__["_frame"] = self.frame
        return other

    # -- fits ------------------------------------------------------------------------------

    def fit(
        self,
        nu: float | str,
        *,
        start: Start | None = None,
        callback: Callable[[Progress], None] | None = None,
    ) -> Solution:
        """Fit, from ``start`` if given, and certify the result."""
        before = self.engine.passes
        if self._is_over_rows(nu):
            return self._fit_to_rows(start, callback)
        setup = self.set_up(nu, start)
        run = self.run(setup, nu, start, callback=callback)
        end, proof = self.descend(setup, run, start), None
        if self.options.certificate == "region" and not self.engine.loss.is_convex:
            end, proof = Surroundings(self, setup).of_fit(end, self.engine.passes - before)
        return self.certify(setup, run, end, proof)

    def _is_over_rows(self, nu: float | str) -> bool:
        """Whether the risk is the average over rows, and no mixture of the groups is that."""
        return isinstance(self.options.prior, str) and nu == math.inf and not self.engine.even

    def over_rows(self) -> Solver:
        """Return a solver whose ``nu = inf`` is the average over rows, each counted once.

        It has one group if no mixture of overlapping groups is that average.
        """
        if self.engine.even:
            totals = self.engine.census.totals
            return self.variant(prior=totals / totals.sum())
        one = np.ones(1)
        return self.variant(engine=self.engine.pooled(), prior=one, reference=np.zeros(1))

    def average(self) -> tuple[Array, GroupEval]:
        """Fit the average over rows; return the user's coefficients, and losses of groups there."""
        end, found = self.over_rows().end(math.inf)
        if not self.engine.even:
            found = self._clipped().evaluate(end.coef, surrogate=False)
        return end.coef, found

    def _fit_to_rows(
        self, start: Start | None, callback: Callable[[Progress], None] | None
    ) -> Solution:
        """Fit the average over rows, where no mixture of the groups is that average."""
        K = self.engine.n_groups
        if start is not None:
            start = replace(start, weights=np.ones(1))
        found = self.over_rows().fit(math.inf, start=start, callback=callback)
        losses = self._clipped().evaluate(found.start.coef, surrogate=False).loss_K
        nothing = np.full((len(found.history["risk"]), K), np.nan)
        history = {**found.history, "weights": nothing, "group_risks": nothing}
        return replace(
            found, losses=losses, weights=np.full(K, np.nan), labels=self.engine.census.labels,
            history=history, n_passes=self.engine.passes,
            start=replace(found.start, weights=self.prior),
        )  # fmt: skip

    def _clipped(self) -> SumEngine:
        """Return the engine, with labels clipped if the options say so."""
        truncate = self.options.truncate
        return self.engine if truncate is None else self.engine.variant(truncate=truncate)

    def end(self, nu: float | str, start: Start | None = None) -> tuple[Start, GroupEval]:
        """Fit without a certificate; return the end point and its losses and gradients."""
        setup = self.set_up(nu, start)
        run = self.run(setup, nu, start)
        end = self.descend(setup, run, start)
        return self._start_of(setup, run, end), end.eval

    def path(self, nus: Iterable[float]) -> dict[float, Solution]:
        """Fit for every ``nu``, from large to small, each from the solution before.

        ``n_passes`` counts the passes of each fit alone; the first includes the preparation.
        """
        found: dict[float, Solution] = {}
        start: Start | None = None
        for nu in sorted({float(nu) for nu in nus}, reverse=True):
            before = self.engine.passes if found else 0
            solution = self.fit(nu, start=start)
            found[nu] = replace(solution, n_passes=self.engine.passes - before)
            start = solution.start
        return found

    def points(
        self, nus: Iterable[float], start: Array | None = None, *, tol: float | None = None
    ) -> dict[float, Array]:
        """Fit like `path`, without certificates; return the user's coefficients for every ``nu``.

        The first fit runs Algorithm 1, unless ``start`` are the coefficients of a similar fit.
        Every other one descends from the fit before it. Where the risk is not convex, descent may
        never reach a group whose rows are all inactive. There, more paths lead from the ends of
        Algorithm 1 for the largest and the least ``nu`` to where they meet the first one, and the
        best fit counts. A linear model reads no rows after its moments are measured. ``tol`` is
        that of the options unless given.
        """
        if tol is not None and tol != self.options.tol:
            return self.variant(tol=tol).points(nus, start)
        order = sorted({float(nu) for nu in nus}, reverse=True)
        setup = self.set_up(order[0])
        found: dict[float, PolishResult] = {}
        first = None
        if start is None:
            first = found[order[0]] = self.descend(setup, self.run(setup, order[0]))
        u, point = self._point(start) if first is None else first.u, SimplexPoint.of(self.prior)
        if setup.working is not setup.problem:
            first = None  # whose losses are those of the rows, not of their quadratics
        assert u is not None
        self._walk(setup, [nu for nu in order if nu not in found], u, point, first, found)
        if not (self.engine.loss.is_convex or self.engine.loss.is_quadratic):
            if start is not None:
                run = self.run(setup, order[0])
                self._walk(setup, order, run.result, run.dual.point, None, found)
            least = self.set_up(order[-1])
            end = self.descend(least, self.run(least, order[-1]))
            if end.risk < found[order[-1]].risk:
                found[order[-1]] = end
                self._walk(setup, order[-2::-1], end.u, end.point, end, found)
        to_user = self.frame.coordinates.to_user
        return {nu: to_user(end.u) for nu, end in found.items()}

    def _walk(
        self,
        setup: Setup,
        nus: Iterable[float],
        u: Array,
        point: SimplexPoint,
        end: PolishResult | None,
        found: dict[float, PolishResult],
    ) -> None:
        """Descend for one ``nu`` after the other, until a fit known already is as good."""
        for nu in nus:
            end = self._follow(setup, nu, u, point, end)
            u, point = end.u, end.point
            if nu in found and end.risk >= found[nu].risk:
                return
            found[nu] = end

    def _follow(
        self, setup: Setup, nu: float, u: Array, point: SimplexPoint, last: PolishResult | None
    ) -> PolishResult:
        """Descend from the ``last`` fit, which had another ``nu``, or from ``u``."""
        problem, fixed = setup.working_at(nu, self.divergence), self.engine.loss.is_quadratic
        hess = self.frame.matrices if fixed else None if last is None else last.hess
        fixed = fixed and hess is not None
        end = polish(
            problem, u, point, tol=self.options.tol, floor=setup.floor, hess=hess, fixed=fixed,
            nearby=hess is not None, ev=None if last is None else last.eval, rounding=(),
        )  # fmt: skip
        if fixed or not isinstance(setup.engine.loss, NeuronLoss):
            return end
        zero = setup.engine.label_squares()  # sigma(0) = 0
        if problem.risk(zero) < end.risk:
            u = np.zeros_like(end.u)
            ev = problem.evaluate(u, surrogate=False)
            end = PolishResult(u, ev, problem.objective.respond(ev.loss_K), problem.risk(zero),
                               end.n_iter, end.converged)  # fmt: skip
        return end

    # -- stages ----------------------------------------------------------------------------

    def set_up(self, nu: float | str, start: Start | None = None) -> Setup:
        """Stage 1: choose what the user left open."""
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
        """Stage 2: run Algorithm 1, from ``start`` if given. ``nu`` is as the user gave it."""
        options = self.options
        result = primal_dual(
            setup.working, self.schedule, setup.scale,
            start=self._first_point(nu, setup, start),
            weights=self._first_weights(setup.nu, start), max_iter=options.max_iter,
            tol=max(options.tol, SURROGATE_TOL) if options.polish else options.tol,
            patience=SURROGATE_PATIENCE if options.polish else PATIENCE, floor=setup.floor,
            steady=not options.polish, extrapolation=extrapolation, callback=callback,
            least_rho=INFORMATIVE_RHO if options.certificate == "theorem" else 0.0,
        )  # fmt: skip
        logger.info(
            "Algorithm 1: %d iterations, risk %.6g", result.n_iter, result.history["risk"][-1]
        )
        return result

    def descend(
        self, setup: Setup, run: PrimalDualResult, start: Start | None = None
    ) -> PolishResult:
        """Stage 3: descend on the risk and compare the result with the zero vector."""
        problem = setup.problem
        if self.options.polish:
            end = self._polish(setup, run, start)
            logger.info("polish: %d steps, risk %.6g", end.n_iter, end.risk)
        else:
            u, ev = run.result, run.result_eval
            if setup.working is not problem:  # losses of the rows, not of their quadratics
                ev = problem.evaluate(u, surrogate=False)
            end = PolishResult(u, ev, run.dual.point, problem.risk(ev.loss_K), 0, run.converged)
        point = better_weights(problem.objective, end.eval, end.point, setup.scale)
        # Descent on a convex risk needs no comparison; a neuron's losses at zero are known.
        if setup.engine.loss.is_convex:
            return replace(end, point=point)
        zero = setup.engine.label_squares()  # sigma(0) = 0
        if problem.risk(zero) < problem.risk(end.eval.loss_K):
            u = np.zeros_like(end.u)
            ev = problem.evaluate(u, surrogate=False)
            return replace(end, u=u, eval=ev, point=problem.objective.respond(ev.loss_K))
        return replace(end, point=point)

    def regions_around(
        self, w: Array, nu: float, radii: Sequence[float] | None, passes: int
    ) -> RegionProof:
        """Bound the risk around the user's coefficients; see :class:`Surroundings`."""
        if self._is_over_rows(nu):
            return self.over_rows().regions_around(w, nu, radii, passes)
        return Surroundings(self, self.set_up(nu)).around(w, radii, passes)

    def certify(
        self,
        setup: Setup,
        run: PrimalDualResult,
        end: PolishResult,
        proof: RegionProof | None = None,
    ) -> Solution:
        """Stage 4: prove what can be proved and map the result to the user's coordinates."""
        frame, problem, engine = self.frame, setup.problem, setup.engine
        gap: DualityGap | ConvexGap | None = None
        if engine.loss.is_convex:
            end, gap = self._proved(setup, end)
        risk = problem.risk(end.eval.loss_K)
        ended = Ending(*_status(run, end if self.options.polish else None))
        height = max(problem.objective.size(risk), setup.floor)
        allowed = max(GAP_SLACK * max(self.options.tol, 1e-7) * height, setup.floor)
        certificate: Certificate | ConvexCertificate
        if isinstance(gap, ConvexGap):
            certificate = ConvexCertificate(
                risk=risk, duality_gap=gap.value, rounding=gap.rounding,
                returned_bound=gap.distance, metric=METRICS[frame.kind], loss=engine.loss.name,
                alpha=self.options.ridge, dropped=problem.coordinates.dropped,
            )  # fmt: skip
        else:
            proved = None
            if engine.loss.is_quadratic:
                gap = proved = duality_gap(problem, end.u, end.eval, end.point, frame)
            certificate = certify(
                setup.working, run, setup.scale, u=end.u, loss_K=end.eval.loss_K,
                point=end.point, gap=proved, metric=frame.kind,
                moment_exact=frame.matrices is not None, proof=proof,
                asked=self.options.certificate == "theorem",
            )  # fmt: skip
        if self.options.polish and gap is not None:
            ended = ended.given_gap(gap, allowed, height, self._remedy(setup))
        ended = ended.given_left_out(
            gain_left_out(problem, end.u, end.point, height), problem.coordinates.dropped
        )
        losses = end.eval.loss_K
        if problem.ridge is not None:
            losses = np.maximum(losses - problem.ridge.value(end.u), 0.0)
        ended = ended.given_separation(_separates(setup, end.u, losses), self.options.ridge)
        start = self._start_of(setup, run, end)
        coef, intercept = split_scores(start.coef, engine)
        return Solution(
            coef=coef,
            intercept=intercept,
            losses=losses,
            weights=end.point.weights,
            risk=risk,
            nu=setup.nu,
            radius=self.options.radius,
            truncation=setup.truncation,
            n_iter=run.n_iter,
            n_passes=engine.passes,
            converged=ended.converged,
            status=ended.status,
            history=run.history,
            certificate=certificate,
            labels=engine.census.labels,
            start=start,
            penalty=None if problem.ridge is None else problem.ridge.scale,
        )

    def _proved(self, setup: Setup, end: PolishResult) -> tuple[PolishResult, ConvexGap]:
        """Prove the gap of a convex risk, after a few more steps if that takes a better point.

        Where a column nearly separates the classes, the ridge alone holds its coefficient, and
        second derivatives vary so much that only a point very near the minimum proves anything.
        """
        problem, tol = setup.problem, self.options.tol
        gap = self._gap(problem, end, again=tol <= FINE)
        worthwhile = self.options.polish and tol <= FINE and problem.ridge is not None
        for _ in range(FURTHER):
            if gap.value < math.inf or not worthwhile or problem.size > CONVEX_LIMIT:
                break
            tol *= FINER
            found = polish(problem, end.u, end.point, tol=tol, floor=setup.floor, ev=end.eval)
            point = better_weights(problem.objective, found.eval, found.point, setup.scale)
            less = end.risk - found.risk <= self.options.tol * problem.objective.size(found.risk)
            end = replace(
                found, point=point, n_iter=end.n_iter + found.n_iter,
                converged=found.converged or (end.converged and less),
            )  # fmt: skip
            gap = self._gap(problem, end, again=True)
        return end, gap

    def _gap(self, problem: Problem, end: PolishResult, *, again: bool) -> ConvexGap:
        """Prove a gap in the norm of known curvatures or, ``again``, of those at the end."""
        for hess in (end.hess, None) if again and end.hess is not None else (end.hess,):
            gap = convex_gap(problem, end.u, end.eval, end.point, self.frame, hess)
            if gap.value < math.inf:
                break
        return gap

    def _remedy(self, setup: Setup) -> str:
        """Say what lowers the part of a gap that allows for rounding."""
        shift, sizes = self.frame.coordinates.shift, self.frame.sizes
        spread = np.sqrt(setup.scale.label_scale)
        far = not setup.engine.loss.is_convex and abs(setup.engine.census.pivot) > FAR * spread
        far |= bool((np.abs(shift) > FAR * (sizes - np.abs(shift))).any())
        if far:
            return "subtract a constant from labels and features that are far from zero"
        return "replace nearly equal columns by their difference"

    # -- starts ----------------------------------------------------------------------------

    def checked(self, start: Start | None) -> Start | None:
        """Return the start after checking that it fits the shape of this problem.

        The paper's algorithm starts at zero, whatever is given.
        """
        if self.schedule.as_printed:
            return None
        if start is not None:
            Start.check(start, self.engine.n_coef, self.engine.n_groups)
        return start

    def _start_of(self, setup: Setup, run: PrimalDualResult, end: PolishResult) -> Start:
        """Return the end of a fit, in the user's coordinates, as a start for another."""
        to_user = self.frame.coordinates.to_user
        average = None if setup.average is None else to_user(setup.average)
        return Start(to_user(end.u), end.point.weights, to_user(run.result), average)

    def _point(self, w: Array | None) -> Array | None:
        """Map the user's coefficients to solver coordinates, projected onto the ball."""
        coordinates = self.frame.coordinates
        return None if w is None else coordinates.project(coordinates.from_user(w))

    def _first_point(self, nu: float | str, setup: Setup, start: Start | None) -> Array:
        """Choose the first iterate: zero, as in the paper, unless a better point is known."""
        zero = np.zeros(self.frame.coordinates.size)
        if self.schedule.as_printed:
            return zero
        if start is not None:
            point = self._point(start.coef if start.surrogate is None else start.surrogate)
            assert point is not None
            return point
        known = setup.average is not None and (nu == "auto" or setup.engine.loss.is_convex)
        return setup.average if known and setup.average is not None else zero

    def _first_weights(self, nu: float, start: Start | None) -> SimplexPoint | None:
        """Choose the first weights: None for the prior, or nearly those of ``start``."""
        if start is None or self.schedule.as_printed or nu == math.inf:
            return None
        return SimplexPoint.of(0.9 * start.weights + 0.1 * self.prior)

    def _polish(self, setup: Setup, run: PrimalDualResult, start: Start | None) -> PolishResult:
        """Polish the result of Algorithm 1, or ``start`` if its risk is lower already.

        A start was polished itself, so small local minima need not be smoothed away again.
        """
        problem, u = setup.problem, run.result
        hess, fixed = self.frame.matrices, self.engine.loss.is_quadratic
        if self.engine.loss.is_convex:
            hess = None
        elif hess is not None and not fixed:
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


def split_scores(w: Array, engine: SumEngine) -> tuple[Array, Any]:
    """Split coefficients into those of features and intercepts: (d,) and a float for one score."""
    W = w.reshape(engine.loss.n_scores, engine.width)
    coef, d = W[:, : engine.n_features].copy(), engine.n_features
    intercept = W[:, d].copy() if engine.census.intercept else np.zeros(len(W))
    return (coef, intercept) if len(W) > 1 else (coef[0], float(intercept[0]))


def _separates(setup: Setup, u: Array, losses: Array) -> bool:
    """Return whether the score makes no error; takes a pass if all losses are small."""
    engine = setup.engine
    if not engine.loss.is_of_classes or losses.max() > SEPARATED * setup.scale.label_scale:
        return False
    w = setup.problem.coordinates.to_user(u)
    return not engine.ask(Mistakes(w, engine.loss, engine.census.intercept)).any()


def _status(run: PrimalDualResult, polished: PolishResult | None) -> tuple[bool, str]:
    """Return whether the fit converged, and a sentence with a remedy if it did not."""
    if polished is not None:
        if polished.converged:
            return True, (
                f"Converged: after {count(run.n_iter, 'iteration')} of Algorithm 1 and "
                f"{count(polished.n_iter, 'polishing step')}, no step lowers the risk by more than "
                "tol."
            )
        return False, (
            f"Not converged: after {count(polished.n_iter, 'polishing step')}, the risk still "
            "changed by more than tol. Raise tol, or rescale the features if precondition=None."
        )
    if run.as_printed:
        return True, (
            f"Completed all {run.n_iter} iterations of Algorithm 1 (max_iter) with the paper's "
            "step sizes, which are very small; use schedule='adaptive' for practical fits."
        )
    if run.converged:
        return True, (
            f"Converged: after {count(run.n_iter, 'iteration')}, the risk changed by less than tol."
        )
    return False, (
        f"Not converged: reached max_iter={run.n_iter} while the risk still changed by more than "
        "tol. Raise max_iter or tol, or use polish=True."
    )
