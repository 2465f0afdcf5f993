"""Region certificates: lower bounds on the risk of all coefficients near a fit.

For the ReLU and similar activations the risk is not convex, so there is no duality gap. What can
be proved is a bound in a region: no coefficients whose scores differ from the fit's by at most
``radius`` (root mean square, averaged over groups) have a risk below ``lower_bound``. It rests on
the rows alone.

Fix group weights ``lam``; the risk is at least ``L(., lam)``. In the region, a row's score lies in
an interval, and a parabola bounds the row's loss from below there (`losses.minorants`). The sum
of all parabolas is a quadratic below the risk. Rows whose activation may switch bend it down, but
rows that stay active bend it up by more, up to some radius. Hence the quadratic is convex, its
minimum is close to the risk of the fit, and it exceeds that risk except in an ellipsoid around the
fit. Anything better lies in this ellipsoid, which is smaller than the region (`ellipsoids`). There,
fewer rows may switch, so the next quadratic is higher. The gap falls by a factor in every pass,
until it is negligible or the ellipsoid stops shrinking.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from counterpoise.dual.divergences import Fixed, SimplexPoint
from counterpoise.losses import NeuronLoss
from counterpoise.rows.engines.base import GroupEval, SumEngine
from counterpoise.rows.engines.minorants import SumMinorants
from counterpoise.solver.coordinates import Coordinates
from counterpoise.solver.ellipsoids import Ellipsoid, Quadratic
from counterpoise.solver.problem import Problem

Array = np.ndarray

# With more coefficients than this, the matrices of a proof are too expensive.
REGION_LIMIT = 512
# The first width of parabolas, in units of 1 / sqrt(D): how far a change of coefficients typically
# moves a score, relative to how far it can. And the factors of the width to try in every pass.
WIDTH, FACTORS = 2.5, (0.5, 1.0, 2.0)
# An ellipsoid must shrink to this share of its (squared) size for another pass to pay off.
SHRINK = 0.8
# Regions of at most so many coefficients are cut in two if they stop shrinking, and each part may
# take so many passes.
CUT_LIMIT, CUT_PASSES = 2, 3
# Gaps below this share of the risk are negligible.
NEGLIGIBLE = 1e-6


def why_not(problem: Problem) -> str:
    """Say why no bounds in regions can be proved for a neuron; an empty string if they can."""
    engine = problem.engine
    assert isinstance(engine, SumEngine)
    assert isinstance(engine.loss, NeuronLoss)
    if not engine.loss.has_minorant:
        return (
            f"activation {engine.activation.name!r} does not bound its second derivative; define "
            "its method most_bend"
        )
    if problem.size > REGION_LIMIT:
        return f"{problem.size} coefficients are too many; a proof is feasible up to {REGION_LIMIT}"
    return "" if problem.size else "there is no coefficient to choose"


class Best(NamedTuple):
    """The best coefficients known, with weights of the groups that prove it, and their risk.

    ``pull`` is the multiplier of the ball ``||coef|| <= radius``, zero if there is none.
    """

    u: Array
    point: SimplexPoint
    risk: float
    pull: float = 0.0

    @classmethod
    def of(cls, problem: Problem, u: Array, ev: GroupEval, point: SimplexPoint) -> Best:
        pull = 0.0
        if problem.coordinates.radius is not None:
            pulled = problem.coordinates.coef_gram() @ u
            size = float(pulled @ pulled)
            if size > 0:
                pull = max(0.0, -float((point.weights @ ev.grad_KD) @ pulled) / size)
        risk, objective = problem.risk(ev.loss_K), problem.objective
        if isinstance(objective.divergence, Fixed):  # its weights are the prior's and no others
            point = SimplexPoint.of(objective.prior)
        return cls(u, point, risk, pull)


class Known(NamedTuple):
    """A ball in which the risk is at least ``value``."""

    centre: Array
    radius: float
    value: float

    def contains(self, region: Ellipsoid) -> bool:
        away = float(np.linalg.norm(region.centre - self.centre))
        return away + float(np.linalg.norm(region.axes, 2)) <= (1.0 - 1e-9) * self.radius


class Bound(NamedTuple):
    """A lower bound on the risk in a region, and the point where the proof is weakest.

    All that is better than the best coefficients known lies in the region ``left``.
    """

    value: float
    lowest: Array
    left: Ellipsoid


@dataclass(frozen=True)
class Prover:
    """Proves bounds on the risk in regions that contain the best coefficients known."""

    problem: Problem
    best: Best
    floor: float = 0.0

    @property
    def engine(self) -> SumEngine:
        engine = self.problem.engine
        assert isinstance(engine, SumEngine)
        return engine

    @property
    def scale(self) -> float:
        """The scale for gaps."""
        return max(self.problem.objective.size(self.best.risk), self.floor)

    def bound(self, region: Ellipsoid, passes: int, known: Known | None = None) -> Bound:
        """Bound the risk in a region, in so many passes at most.

        ``known`` is a ball in which the risk is bounded already.
        """
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            return self._shrunk(region, passes, known)

    def split(self, bound: Bound, passes: int) -> Bound:
        """Improve a bound by cutting what is left of its region in two, again and again.

        The part with the lowest bound is cut next. From three coefficients on, halves are so little
        smaller that this does not pay off, and nothing is done.
        """
        if len(self.best.u) > CUT_LIMIT:
            return bound
        end, parts = self.engine.passes + passes, [bound]
        enough = self.best.risk - NEGLIGIBLE * self.scale
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            while self.engine.passes < end and parts[0].value < enough:
                weakest = parts.pop(0)
                for half in weakest.left.halves():
                    found = self._shrunk(half, min(CUT_PASSES, max(end - self.engine.passes, 1)))
                    parts.append(found._replace(value=max(found.value, weakest.value)))
                parts.sort(key=lambda part: part.value)
        return parts[0]

    def _shrunk(self, region: Ellipsoid, passes: int, known: Known | None = None) -> Bound:
        best, width = self.best, WIDTH / math.sqrt(max(len(self.best.u), 1))
        # Losses are not negative.
        value = self.problem.risk(np.zeros(self.problem.objective.n_groups))
        value -= 1e-14 * abs(value)
        lowest, anchored, idle = best.u, True, 0
        for _ in range(passes):
            at = region.inner(best.u if anchored else lowest)
            tried = self._below(region, at, width)
            highest = max((q for _, q in tried), key=lambda q: q.least)
            value, lowest = max(value, highest.least), region.point(highest.minimiser)
            if best.risk - value <= NEGLIGIBLE * self.scale:
                break
            smaller = [(w, q.sublevel(region, best.risk)) for w, q in tried]
            width, part = min(smaller, key=lambda pair: pair[1].size)
            idle = 0 if part.size <= SHRINK * region.size else idle + 1
            if part.size < region.size:
                region = part
            if known is not None and known.contains(region):
                value = max(value, known.value)
                break
            if idle == 2:
                break
            anchored ^= idle == 1  # parabolas that touch elsewhere may be better
        return Bound(min(value, best.risk), lowest, region)

    def _below(self, region: Ellipsoid, at: Array, width: float) -> list[tuple[float, Quadratic]]:
        """Return quadratics below the risk in the region, for several widths, in one pass."""
        engine, objective = self.engine, self.problem.objective
        coordinates, weights = self.problem.coordinates, self.best.point.weights
        assert isinstance(engine.loss, NeuronLoss)
        assert isinstance(coordinates, Coordinates)
        widths, u = tuple(factor * width for factor in FACTORS), region.point(at)
        question = SumMinorants(
            w=coordinates.to_user(u), at=at, loss=engine.loss,
            share_K=weights / engine.census.totals, shift=engine.shift,
            basis=np.ascontiguousarray(coordinates.map @ region.axes),
            sizes=_sizes(region, at, np.abs(coordinates.map)),
            intercept=engine.census.intercept, widths=widths, truncate=engine.truncate,
            rounding=engine.rounding,
        )  # fmt: skip
        sums, size = engine.ask(question), len(at)
        fixed = objective.lagrangian(np.zeros(len(weights)), weights)
        summing = (engine.additions + size + 32) * engine.rounding
        more = self._outside(region, u)
        found = []
        for each, row in zip(widths, sums, strict=True):
            value, total, lost = (float(number) for number in row[:3])
            error = lost + summing * (total + abs(fixed)) + more.error
            slope, bend = row[3 : 3 + size], row[3 + size :].reshape(size, size)
            quadratic = Quadratic.about(
                at, value + fixed + more.value, slope + more.slope, bend + more.bend, error
            )
            found.append((each, quadratic))
        return found

    def _outside(self, region: Ellipsoid, u: Array) -> Quadratic:
        """Return a quadratic that is positive only outside of the ball ``||coef|| <= radius``.

        It is ``pull / 2 (||coef||^2 - radius^2)``, with value and slope at ``u``.
        """
        coordinates, pull = self.problem.coordinates, self.best.pull
        if not pull or coordinates.radius is None:
            return Quadratic(0.0, np.zeros(len(u)), np.zeros((len(u), len(u))))
        gram = pull * coordinates.coef_gram()
        length, radius = coordinates.coef_norm(u), coordinates.radius
        value = 0.5 * pull * (length - radius) * (length + radius)
        bend = region.axes.T @ gram @ region.axes
        size = pull * (length**2 + radius**2) + float(np.abs(bend).sum())
        error = 64 * (len(u) + 2) * float(np.finfo(float).eps) * size
        return Quadratic(value, region.axes.T @ (gram @ u), bend, error)


def _sizes(region: Ellipsoid, at: Array, map_: Array) -> Array:
    """Bound the terms that the user's coefficients are sums of, anywhere in the region.

    ``map_`` are absolute values of the map from the solver's coordinates. What cancels in a sum has
    been rounded all the same.
    """
    axes = np.abs(region.axes)
    reach = np.sqrt(np.sum((map_ @ axes) ** 2, axis=1))
    sizes: Array = map_ @ (np.abs(region.centre) + axes @ np.abs(at)) + 2.0 * reach
    return sizes
