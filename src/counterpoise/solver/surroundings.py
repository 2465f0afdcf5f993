"""What is proved about coefficients near a fit, and a better fit if the proof leads to one."""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from counterpoise.solver.bounds import duality_gap
from counterpoise.solver.certificate import Region, RegionProof
from counterpoise.solver.polish import PolishResult, better_weights, polish
from counterpoise.solver.problem import Problem
from counterpoise.solver.prover import NEGLIGIBLE, Best, Prover, why_not
from counterpoise.solver.regions import PASSES, proof_of, prove, prove_at
from counterpoise.solver.score_space import Balls, Place, ScoreSpace
from counterpoise.solver.setup import Setup

if TYPE_CHECKING:
    from counterpoise.solver.solver import Solver

Array = np.ndarray
logger = logging.getLogger("counterpoise")

# A fit is improved this often from where a proof was weakest, if so many passes are left.
DESCENTS, LEAST_DESCENT = 2, 6
# No region is certified around coefficients whose scores are lost in rounding to this share of the
# labels' spread.
MISPLACED = 1e-3
LOST = (
    "the rows hardly vary along a direction in which the coefficients are large, so their scores "
    "are lost in rounding"
)


@dataclass(frozen=True)
class Surroundings:
    """Regions around coefficients, for the rows and options of a solver."""

    solver: Solver
    setup: Setup

    @property
    def scale(self) -> float:
        return self.setup.scale.label_scale

    def of_fit(self, end: PolishResult, passes: int) -> tuple[PolishResult, RegionProof]:
        """Bound the risk around the end of a fit, in so many passes at most.

        A better fit may lie where a proof is weakest. Descend from there, and return the result if
        its risk is lower.
        """
        setup, problem, engine = self.setup, self.setup.problem, self.setup.engine
        if engine.loss.is_quadratic:
            return end, self._of_linear(end, end.risk)
        reason = why_not(problem)
        if reason:
            return end, proof_of(problem, end.risk, self.scale, missing=reason)
        last, descents = engine.passes + passes, 0
        space = self._space()
        while True:
            place = space.locate(problem.coordinates.to_user(end.u))
            if place.off > MISPLACED * math.sqrt(self.scale):
                return end, proof_of(space.problem, end.risk, self.scale, missing=LOST)
            there = end.eval
            if space.problem.coordinates is not problem.coordinates:
                there = space.problem.evaluate(place.u, surrogate=False)
            best = Best.of(space.problem, place.u, there, end.point)
            prover, balls = Prover(space.problem, best, setup.floor), Balls(place, space.stretch)
            budget = max(last - engine.passes, PASSES if descents else 0)
            found = prove(prover, balls, math.sqrt(self.scale), budget)
            left = last - engine.passes
            if found.lowest is None or descents == DESCENTS or left < LEAST_DESCENT:
                break
            descents += 1
            start = problem.coordinates.from_user(space.problem.coordinates.to_user(found.lowest))
            other = self._other_fit(end, problem.project(start), left // 3)
            if other is None:
                break
            end = other
        return end, found.proof(prover, end.risk, self.scale)

    def around(self, w: Array, radii: Sequence[float] | None, passes: int) -> RegionProof:
        """Bound the risk around the user's coefficients, in balls of the given radii.

        With ``radii=None``, search for the widest ball with a small gap, in so many passes.
        """
        problem, engine = self.setup.problem, self.setup.engine
        risk = problem.risk(engine.evaluate(w, surrogate=False).loss_K)
        if engine.loss.is_quadratic:
            u = problem.coordinates.from_user(w)
            return self._of_linear(self._descend(problem, Place(u, 0.0)), risk)
        reason = why_not(problem)
        if reason:
            return proof_of(problem, risk, self.scale, missing=reason)
        space = self._space()
        place = space.locate(w)
        if place.off > MISPLACED * math.sqrt(self.scale):
            return proof_of(space.problem, risk, self.scale, missing=LOST)
        end = self._descend(space.problem, place)
        best = Best.of(space.problem, end.u, end.eval, end.point)
        prover, balls = Prover(space.problem, best, self.setup.floor), Balls(place, space.stretch)
        if radii is None:
            found = prove(prover, balls, math.sqrt(self.scale), passes)
        else:
            found = prove_at(prover, balls, radii)
        return found.proof(prover, risk, self.scale)

    def _descend(self, problem: Problem, place: Place) -> PolishResult:
        """Find the best fit near a place, and the group weights that prove it."""
        ev = problem.evaluate(place.u, surrogate=False)
        end = polish(
            problem, problem.project(place.u), problem.objective.respond(ev.loss_K),
            tol=self.solver.options.tol, floor=self.setup.floor, rounding=(),
        )  # fmt: skip
        point = better_weights(problem.objective, end.eval, end.point, self.setup.scale)
        return replace(end, point=point)

    def _other_fit(self, end: PolishResult, start: Array, steps: int) -> PolishResult | None:
        """Descend from another start; return the result if it is better."""
        problem, tol, floor = self.setup.problem, self.solver.options.tol, self.setup.floor
        other = polish(problem, start, end.point, tol=tol, floor=floor, max_iter=steps, rounding=())
        if end.risk - other.risk <= max(tol, NEGLIGIBLE) * problem.objective.size(end.risk):
            return None
        logger.info("a better fit where the proof was weakest: risk %.6g", other.risk)
        if not other.converged:
            other = polish(
                problem, other.u, other.point, tol=tol, floor=floor, ev=other.eval, rounding=()
            )
        point = better_weights(problem.objective, other.eval, other.point, self.setup.scale)
        return replace(other, point=point, n_iter=end.n_iter + other.n_iter)

    def _of_linear(self, end: PolishResult, risk: float) -> RegionProof:
        """Bound the risk of all linear models by the duality gap at the end of a fit."""
        problem = self.setup.problem
        gap = duality_gap(problem, end.u, end.eval, end.point, self.solver.frame)
        if math.isinf(gap.value):
            reason = "there are too many coefficients for a duality gap"
            return proof_of(problem, risk, self.scale, missing=reason)
        least = problem.risk(np.zeros_like(end.eval.loss_K))
        lowest = float(max(end.risk - gap.value, least))
        region = Region(math.inf, max(risk - lowest, 0.0), min(lowest, risk))
        dropped = max(problem.coordinates.dropped, gap.flat)
        return replace(proof_of(problem, risk, self.scale, (region,)), dropped=dropped)

    def _space(self) -> ScoreSpace:
        """Return coordinates whose lengths are root mean squares of scores."""
        frame = self.solver.frame
        if frame.kind != "whiten":
            frame = self.solver.variant(precondition="whiten").frame
        return ScoreSpace.of(self.setup.problem, frame)
