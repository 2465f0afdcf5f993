"""Coordinates in which lengths are root mean squares of scores, and coefficients found in them.

Radii of regions are changes of scores. Whitened coordinates measure these up to rounding, which
ill-conditioned features magnify, so the distortion is measured and allowed for.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from counterpoise.rows.engines.base import SumEngine
from counterpoise.rows.engines.questions import Question
from counterpoise.rows.engines.scores import mapped_rows, scores_of
from counterpoise.solver.coordinates import Coordinates
from counterpoise.solver.ellipsoids import Ellipsoid
from counterpoise.solver.frame import Frame
from counterpoise.solver.problem import Problem

Array = np.ndarray
# Passes to find coefficients by their scores, at most, and the gain that pays for another.
SEARCHES, GAIN = 4, 0.1


@dataclass(frozen=True, eq=False)
class ScoreMisses(Question):
    """Sums of ``e r`` and of ``e^2``, pooled: (D + 1,).

    ``e`` is by how much the score at ``w`` differs from ``r.u``, with ``r = (x - shift, 1) @ map``.
    """

    alike = True

    w: Array
    u: Array
    share_K: Array
    shift: Array
    map: Array
    intercept: bool

    @property
    def pooled(self) -> bool:
        return True

    def of_rows(self, X: Any, y: Array, weights: Array, group: int) -> Array:
        rows = mapped_rows(X, self.shift, self.intercept, self.map)
        miss = scores_of(X, self.w, 1, self.intercept)[:, 0] - rows @ self.u
        c = self.share_K[group] * weights * miss
        return np.append(c @ rows, c @ miss)


class Place(NamedTuple):
    """Coefficients in score space; their scores differ from the user's by ``off`` at most."""

    u: Array
    off: float


@dataclass(frozen=True)
class ScoreSpace:
    """A problem in whitened coordinates.

    A change of coefficients that moves scores by ``r`` has a length of at most ``stretch * r``.
    """

    problem: Problem
    stretch: float
    sizes: Array

    @classmethod
    def of(cls, problem: Problem, frame: Frame) -> ScoreSpace:
        """Make the space from a whitened ``frame``, with a pass if features are ill-conditioned."""
        engine, coordinates, prior = problem.engine, frame.coordinates, problem.objective.prior
        assert isinstance(engine, SumEngine)
        moment = frame.average
        if coordinates.stiff or moment is None:
            moment = 0.5 * engine.curvature(None, prior, coordinates.map)
        least = float(np.linalg.eigvalsh(moment)[:1].min(initial=1.0))
        stretch = 1.0 / math.sqrt(min(max(least - 1e-9, 1e-12), 1.0))
        return cls(Problem(engine, coordinates, problem.objective), stretch, frame.sizes)

    def locate(self, w: Array) -> Place:
        """Find the user's coefficients, by their scores on the rows."""
        problem, engine, coordinates = self.problem, self.problem.engine, self.problem.coordinates
        assert isinstance(engine, SumEngine)
        assert isinstance(coordinates, Coordinates)
        share, d = problem.objective.prior / engine.census.totals, engine.n_features
        with np.errstate(over="ignore", invalid="ignore"):
            u = np.nan_to_num(coordinates.from_user(w), nan=0.0, posinf=0.0, neginf=0.0)
            best = Place(u, math.inf)
            for _ in range(SEARCHES):
                question = ScoreMisses(
                    w, u, share, engine.shift, coordinates.map, engine.census.intercept
                )
                sums = engine.ask(question)
                off, before = math.sqrt(max(float(sums[-1]), 0.0)), best.off
                if not off < before:
                    break
                best = Place(u, off)
                u = u + sums[:-1]  # the second moment is the identity
                if off > GAIN * before:
                    break
        terms = float(np.abs(w[:d]) @ self.sizes) + float(np.abs(w[d:]).sum())
        terms += float(np.linalg.norm(best.u))
        return best._replace(off=best.off + 2.0 * (d + 8) * engine.rounding * terms)


class Balls(NamedTuple):
    """Balls of coefficients around the user's, by how far scores may move."""

    place: Place
    stretch: float = 1.0

    def reach(self, radius: float) -> float:
        """Return the radius in score space that covers a radius in scores."""
        return self.stretch * (radius + self.place.off)

    def ball(self, radius: float) -> Ellipsoid:
        return Ellipsoid.ball(self.place.u, self.reach(radius))
