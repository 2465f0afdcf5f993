"""Regions around a fit, and what is proved about the risk in each of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from counterpoise.solver.certificate import SMALL, Region, RegionProof
from counterpoise.solver.coordinates import Coordinates
from counterpoise.solver.cover import cover
from counterpoise.solver.polish import polish
from counterpoise.solver.problem import Problem
from counterpoise.solver.prover import NEGLIGIBLE, Bound, Known, Prover
from counterpoise.solver.score_space import Balls

Array = np.ndarray

# Radii to search, in units of the labels' spread: the factor between them, the extremes, and the
# factor to which the widest region is settled.
STEP, WIDEST, NARROWEST, SETTLED = 4.0, 256.0, 1.0 / 256.0, 1.5
# Passes that one region may take.
PASSES = 14
# Tolerance for the best point of a ball.
INSIDE_TOL = 1e-6


class Found(NamedTuple):
    """Lower bounds by radius, and the point where the last proof that failed is weakest."""

    bounds: dict[float, float]
    lowest: Array | None = None

    def proof(self, prover: Prover, risk: float, label_scale: float) -> RegionProof:
        """Return regions by radius; a bound in a region holds in every smaller one."""
        out, best = [], -math.inf
        for radius in sorted(self.bounds, reverse=True):
            best = max(best, self.bounds[radius])
            out.append(Region(radius, max(risk - best, 0.0), min(best, risk)))
        return proof_of(prover.problem, risk, label_scale, tuple(reversed(out)))


def proof_of(
    problem: Problem,
    risk: float,
    label_scale: float,
    regions: tuple[Region, ...] = (),
    missing: str = "",
) -> RegionProof:
    """Return the proof of regions, or why there is none."""
    return RegionProof(
        risk=risk, spread=math.sqrt(label_scale), regions=regions, missing=missing,
        limit=problem.coordinates.radius, dropped=problem.coordinates.dropped,
        floor=problem.risk(np.zeros(problem.objective.n_groups)),
    )  # fmt: skip


def prove(prover: Prover, balls: Balls, spread: float, passes: int) -> Found:
    """Bound the risk around a fit, in so many passes at most.

    Look for the widest ball with a small gap, beginning at the labels' ``spread``. If the
    coefficients are bounded, begin with all that are admitted.
    """
    engine, end = prover.engine, prover.engine.passes + passes
    bounds, lowest = dict(_everywhere(prover, passes)), None
    failed: tuple[Prover, Bound] | None = None
    inner, outer, radius = 0.0, math.inf, spread
    while engine.passes < end and NARROWEST * spread <= radius <= WIDEST * spread:
        known = Known(balls.place.u, balls.reach(inner), bounds[inner]) if inner else None
        inside = _best_inside(prover, balls, radius)
        left = min(max(end - engine.passes, 1), PASSES)
        found = inside.bound(balls.ball(radius), left, known)
        bounds[radius] = found.value
        if inside.best.risk - found.value <= SMALL * prover.scale:
            inner = radius
        else:
            outer, lowest, failed = radius, found.lowest, (inside, found)
        if outer <= SETTLED * inner:
            break
        if inner and outer < math.inf:
            radius = math.sqrt(inner * outer)
        else:
            radius = STEP * inner if inner else outer / STEP
    if failed is not None:
        inside, found = failed
        bounds[outer] = inside.split(found, end - engine.passes).value
    return Found(bounds, lowest)


def prove_at(prover: Prover, balls: Balls, radii: Sequence[float]) -> Found:
    """Bound the risk in balls of the given radii; an infinite one is all that ``radius`` admits."""
    bounds: dict[float, float] = {}
    if math.inf in radii:
        bounds.update(_everywhere(prover, PASSES))
    for radius in sorted({r for r in radii if r < math.inf}, reverse=True):
        inside = _best_inside(prover, balls, radius)
        above = max(bounds.values(), default=-math.inf)
        if inside.best.risk - above > NEGLIGIBLE * prover.scale:
            found = inside.bound(balls.ball(radius), PASSES)
            above = inside.split(found, PASSES).value
        bounds[radius] = above
    return Found(bounds)


def _everywhere(prover: Prover, passes: int) -> dict[float, float]:
    """Bound the risk of all coefficients in the ball ``||coef|| <= radius``, if it can be."""
    whole = cover(prover.problem, prover.best.risk)
    if whole is None:
        return {}
    found = prover.bound(whole.ellipsoid, min(passes, PASSES))
    return {math.inf: min(found.value, whole.elsewhere)}


def _best_inside(prover: Prover, balls: Balls, radius: float) -> Prover:
    """Return a prover whose best point lies in the ball; descend in the ball if it must."""
    best, problem, centre = prover.best, prover.problem, balls.place.u
    reach = balls.reach(radius)
    if float(np.linalg.norm(best.u - centre)) <= reach:
        return prover
    assert isinstance(problem.coordinates, Coordinates)
    around = Around.of(problem.coordinates, centre, reach)
    found = polish(
        replace(problem, coordinates=around), around.project(best.u - centre), best.point,
        tol=INSIDE_TOL, floor=prover.floor, rounding=(),
    )  # fmt: skip
    inside = best._replace(u=centre + found.u, point=found.point, risk=found.risk)
    return replace(prover, best=inside)


@dataclass(frozen=True)
class Around(Coordinates):
    """Coordinates about another origin, in a ball around it."""

    origin: Array | None = None

    @classmethod
    def of(cls, coordinates: Coordinates, origin: Array, radius: float) -> Around:
        known = {field.name: getattr(coordinates, field.name) for field in fields(coordinates)}
        return cls(**{**known, "radius": radius, "origin": origin})

    @cached_property
    def ball(self) -> tuple[Array | None, Array]:
        return None, np.ones(self.size)

    def to_user(self, u: Array) -> Array:
        return super().to_user(self.origin + u)

    def coef(self, u: Array) -> Array:
        return u
