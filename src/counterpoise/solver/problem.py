"""Problem: an engine, coordinates and an objective, for the solver."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from counterpoise.dual.objective import Objective
from counterpoise.rows.engines.base import Engine, GroupEval, SumEngine
from counterpoise.solver.coordinates import Coordinates
from counterpoise.solver.quadratics import QuadraticEngine
from counterpoise.solver.ridge import Ridge
from counterpoise.solver.stacked import Stacked

Array = np.ndarray


def evaluate_at(
    engine: Engine,
    coordinates: Coordinates | Stacked,
    u: Array,
    *,
    surrogate: bool,
    ridge: Ridge | None = None,
) -> GroupEval:
    """Compute losses and gradients in solver coordinates, with the ridge in every group."""
    loss, grad = engine.evaluate(coordinates.to_user(u), surrogate=surrogate)
    grad = coordinates.pull(grad)
    if ridge is not None:
        loss, grad = loss + ridge.value(u), grad + ridge.pull(u)
    return GroupEval(loss, grad)


@dataclass(frozen=True)
class Problem:
    """Group losses as functions of solver coordinates ``u``, and the risk over them.

    A ``ridge`` is added to the loss of every group, and so to the risk.
    """

    engine: Engine
    coordinates: Coordinates | Stacked
    objective: Objective
    ridge: Ridge | None = None

    @property
    def size(self) -> int:
        return self.coordinates.size

    def evaluate(self, u: Array, *, surrogate: bool) -> GroupEval:
        return evaluate_at(self.engine, self.coordinates, u, surrogate=surrogate, ridge=self.ridge)

    def curvature(self, u: Array | None, weights_K: Array | None) -> Array:
        """Compute second derivatives of every group, or of the groups' mixture.

        With ``u=None``, those of the rows are two.
        """
        w = None if u is None else self.coordinates.to_user(u)
        stacked = isinstance(self.coordinates, Stacked)
        if self.coordinates.stiff and isinstance(self.engine, SumEngine):
            out = self.engine.curvature(w, weights_K, self.coordinates.map)
            out = self.coordinates.pull_curvature(out) if stacked else out
        else:
            out = self.coordinates.pull_curvature(self.engine.curvature(w, weights_K))
        if self.ridge is not None:
            share = 1.0 if weights_K is None else float(weights_K.sum())
            out = out + share * self.ridge.matrix()
        return out

    def evaluate_each(self, U_KD: Array, *, surrogate: bool = False) -> GroupEval:
        """Compute losses and gradients at coordinates of every group's own, in one pass."""
        assert isinstance(self.engine, SumEngine)
        W_KD = self.coordinates.to_user(U_KD)
        loss, grad = self.engine.evaluate_each(W_KD, surrogate=surrogate)
        grad = self.coordinates.pull(grad)
        if self.ridge is not None:
            loss = loss + np.array([self.ridge.value(u) for u in U_KD])
            grad = grad + np.array([self.ridge.pull(u) for u in U_KD])
        return GroupEval(loss, grad)

    def curvature_each(self, U_KD: Array) -> Array:
        """Compute second derivatives at coordinates of every group's own, in one pass."""
        assert isinstance(self.engine, SumEngine)
        out = self.coordinates.pull_curvature(
            self.engine.curvature_each(self.coordinates.to_user(U_KD))
        )
        return out if self.ridge is None else out + self.ridge.matrix()

    def separation(self, points: Array, u: Array) -> Array:
        to_user = self.coordinates.to_user
        return self.engine.separation(to_user(points), to_user(u))

    @property
    def is_convex(self) -> bool:
        """Whether the loss of rows is convex in the score."""
        return isinstance(self.engine, SumEngine) and self.engine.loss.is_convex

    @property
    def has_kink(self) -> bool:
        """Whether the activation has a kink that :meth:`rounded` can smooth."""
        return isinstance(self.engine, SumEngine) and self.engine.loss.has_kink

    def score_size(self, u: Array) -> float:
        """Estimate the size of the linear scores at ``u`` from the outputs, in one pass."""
        assert isinstance(self.engine, SumEngine)
        squares = self.engine.mean_outputs(self.coordinates.to_user(u))
        return float(np.sqrt(2.0 * self.objective.prior @ squares))

    def rounded(self, width: float) -> Problem:
        """Return the problem with the activation's kink rounded on ``[-width, width]``."""
        assert isinstance(self.engine, SumEngine)
        return replace(self, engine=self.engine.variant(loss=self.engine.loss.rounded(width)))

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
