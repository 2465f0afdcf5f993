"""Problem: an engine, coordinates and an objective, for the solver."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from counterpoise.dual.objective import Objective
from counterpoise.rows.engines.base import Engine, GroupEval, SumEngine
from counterpoise.solver.coordinates import Coordinates
from counterpoise.solver.quadratics import QuadraticEngine

Array = np.ndarray


@dataclass(frozen=True)
class Problem:
    """Group losses as functions of solver coordinates ``u``, and the risk over them."""

    engine: Engine
    coordinates: Coordinates
    objective: Objective

    @property
    def size(self) -> int:
        return self.coordinates.size

    def evaluate(self, u: Array, *, surrogate: bool) -> GroupEval:
        loss, grad = self.engine.evaluate(self.coordinates.to_user(u), surrogate=surrogate)
        return GroupEval(loss, self.coordinates.pull(grad))

    def curvature(self, u: Array | None, weights_K: Array | None) -> Array:
        w = None if u is None else self.coordinates.to_user(u)
        if self.coordinates.stiff and isinstance(self.engine, SumEngine):
            return self.engine.curvature(w, weights_K, self.coordinates.map)
        return self.coordinates.pull_curvature(self.engine.curvature(w, weights_K))

    def separation(self, points: Array, u: Array) -> Array:
        to_user = self.coordinates.to_user
        return self.engine.separation(to_user(points), to_user(u))

    @property
    def has_kink(self) -> bool:
        """Whether the activation has a kink that :meth:`rounded` can smooth."""
        return isinstance(self.engine, SumEngine) and self.engine.activation.has_kink

    def score_size(self, u: Array) -> float:
        """Estimate the size of the linear scores at ``u`` from the outputs, in one pass."""
        assert isinstance(self.engine, SumEngine)
        squares = self.engine.mean_outputs(self.coordinates.to_user(u))
        return float(np.sqrt(2.0 * self.objective.prior @ squares))

    def rounded(self, width: float) -> Problem:
        """Return the problem with the activation's kink rounded on ``[-width, width]``."""
        assert isinstance(self.engine, SumEngine)
        sigma = self.engine.activation.rounded(width)
        return replace(self, engine=self.engine.variant(activation=sigma))

    def risk(self, losses: Array) -> float:
        return self.objective.risk(losses)

    def project(self, u: Array) -> Array:
        return self.coordinates.project(u)


@dataclass(frozen=True)
class QuadraticProblem(Problem):
    """A problem whose group losses are quadratics in ``u``; it reads no rows."""

    engine: QuadraticEngine

    def evaluate(self, u: Array, *, surrogate: bool) -> GroupEval:
        return self.engine.evaluate(u)

    def curvature(self, u: Array | None, weights_K: Array | None) -> Array:
        return self.engine.curvature(u, weights_K)

    def separation(self, points: Array, u: Array) -> Array:
        return self.engine.separation(points, u)
