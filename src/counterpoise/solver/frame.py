"""The solver's coordinates, the second moments behind them, and the average fit."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from counterpoise.rows.engines.base import GroupEval, SumEngine
from counterpoise.solver import coordinates as coords
from counterpoise.solver.polish import SECOND_ORDER_LIMIT, keeps_group_matrices
from counterpoise.solver.problem import evaluate_at
from counterpoise.solver.quadratics import QuadraticEngine
from counterpoise.solver.ridge import Ridge, feature_means
from counterpoise.solver.stacked import Stacked
from counterpoise.solver.units import check_units, feature_units, mean_squares

Array = np.ndarray

# Maximum number of times that coordinates of ill-conditioned features are refined.
REFINEMENTS = 3
# Curvatures of a ridge above this multiple of the features' call for other coordinates.
STRETCHED = 1e6
# Labels that deviate from their mean by less than this share of their size are constant.
DISTINCT = 1e-15


@dataclass(frozen=True)
class Frame:
    """Coordinates, and the second moments that define them.

    In solver coordinates, ``moment`` is the largest eigenvalue of any group's second moment, and
    ``mean_moment`` is the mean eigenvalue of their ``average``. ``matrices`` holds twice the
    groups' second moments. ``average`` and ``matrices`` are None if they would not fit in memory.
    ``roots`` (d,) are root mean squares of the features about the engine's shift, and ``means``
    their means about it, None if not known; both are in the user's units. With a ``ridge``,
    ``matrices`` include its second derivatives.
    """

    coordinates: coords.Coordinates | Stacked
    kind: str
    moment: float
    mean_moment: float
    average: Array | None
    matrices: Array | None
    roots: Array
    means: Array | None
    shift: Array
    ridge: Ridge | None = None

    @classmethod
    def measure(
        cls,
        engine: SumEngine,
        prior: Array,
        precondition: str | None,
        radius: float | None,
        *,
        alpha: float = 0.0,
    ) -> Frame:
        """Measure in one pass, or in a few more if matrices do not fit in memory."""
        if precondition == "auto":
            precondition = "whiten" if engine.width <= SECOND_ORDER_LIMIT else "scale"
            found = cls._measured(engine, prior, precondition, radius, alpha)
            # Of coefficients with the same scores, the ridge and the ball prefer different ones, so
            # directions that change no score are needed, too. And where columns are nearly equal,
            # whitening stretches the ridge until its curvature hides that of the losses.
            both = bool(found.coordinates.dropped and alpha and radius is not None)
            if not both and (found.ridge is None or found.ridge.largest <= STRETCHED):
                return found
            precondition = "scale"
        return cls._measured(engine, prior, precondition, radius, alpha)

    @classmethod
    def _measured(
        cls,
        engine: SumEngine,
        prior: Array,
        precondition: str | None,
        radius: float | None,
        alpha: float,
    ) -> Frame:
        p, intercept = engine.width, engine.census.intercept
        full = precondition == "whiten" or p <= SECOND_ORDER_LIMIT
        per_group = full and keeps_group_matrices(engine.n_groups, p)
        share = None if per_group else prior
        raw, average = np.empty((0, 0)), np.empty((0, 0))
        units: Array | None = None
        if full:
            with np.errstate(over="ignore", invalid="ignore"):  # of features that need units
                raw = engine.curvature(None, share)
                average = 0.5 * (np.tensordot(prior, raw, axes=1) if per_group else raw)
            units = feature_units(engine, np.diag(average))
            if units is not None:
                raw = engine.curvature(None, share, np.diag(_whole(units, intercept)))
                average = 0.5 * (np.tensordot(prior, raw, axes=1) if per_group else raw)
            diagonal = np.diag(average).copy()
        else:
            diagonal, units = mean_squares(engine, prior)
        if units is not None:
            check_units(units, precondition, radius)
        if precondition == "whiten":
            frame = coords.whitened(average, engine.shift, intercept, radius,
                                    engine.census.precision, units,
                                    standardised=alpha > 0 and radius is None)  # fmt: skip
        else:
            frame = _diagonal(engine, precondition, diagonal, radius, units)
        inner = frame
        if units is not None:  # the moments are those of features in their units
            factors = _whole(units, intercept)
            per_row = factors if frame.basis.ndim == 1 else factors[:, None]
            inner = replace(frame, basis=frame.basis / per_row)
        matrices = inner.pull_curvature(raw) if full else raw
        for _ in range(REFINEMENTS):
            if frame.noise is None:
                break
            mapped = engine.curvature(None, share, frame.basis)
            pooled = 0.5 * (np.tensordot(prior, mapped, axes=1) if per_group else mapped)
            frame, change = frame.refined(pooled)
            matrices = change.T @ mapped @ change
        mean = 1.0
        if frame.basis.ndim == 1:
            mean = float(np.mean(inner.basis**2 * diagonal)) or 1.0
        if per_group:
            top = 0.5 * float(np.linalg.eigvalsh(matrices).max(initial=0.0))
        else:
            top = largest_moment(engine, frame)
        pooled = 0.5 * (np.tensordot(prior, matrices, axes=1) if per_group else matrices)
        d = engine.n_features
        own = np.ones(d) if units is None else units
        found = cls(
            coordinates=frame,
            kind=precondition or "none",
            moment=max(top, mean),
            mean_moment=mean,
            average=pooled if full else None,
            matrices=matrices if per_group else None,
            roots=np.sqrt(np.maximum(diagonal[:d], 0.0)) / own,
            means=average[:d, d] / own if full and intercept else None,
            shift=engine.shift,
        )
        return found.penalised(engine, prior, alpha).stacked(engine.loss.n_scores)

    @property
    def sizes(self) -> Array:
        """Bounds on the root mean square of every feature, in the user's units: (d,)."""
        return self.roots + np.abs(self.shift)

    def penalised(self, engine: SumEngine, prior: Array, alpha: float) -> Frame:
        """Return the frame with a ridge on coefficients of features of unit variance."""
        if alpha == 0:
            return self
        assert isinstance(self.coordinates, coords.Coordinates)
        scale, basis = self.roots, self.coordinates.basis
        if engine.census.intercept:
            means = feature_means(engine, prior) if self.means is None else self.means
            share = np.divide(means, scale, out=np.zeros_like(scale), where=scale > 0)
            scale = scale * np.sqrt(np.maximum(1.0 - share**2, 0.0))
        d = len(scale)
        if basis.ndim == 1:
            root = np.append(scale * basis[:d], np.zeros(len(basis) - d))
        else:
            root = scale[:, None] * basis[:d]
        ridge = Ridge(alpha, scale, root, max(1, engine.loss.n_scores - 1))
        matrices = self.matrices
        if matrices is not None and engine.loss.n_scores == 1:
            matrices = matrices + ridge.matrix()
        return replace(self, ridge=ridge, matrices=matrices)

    def stacked(self, n_scores: int) -> Frame:
        """Return the frame for so many scores."""
        if n_scores == 1:
            return self
        assert isinstance(self.coordinates, coords.Coordinates)
        return replace(self, coordinates=Stacked(self.coordinates, n_scores))


def _diagonal(
    engine: SumEngine,
    precondition: str | None,
    squares: Array,
    radius: float | None,
    units: Array | None,
) -> coords.Coordinates:
    """Return coordinates that mix no features."""
    if precondition == "scale":
        return coords.scaled(squares, engine.shift, engine.census.intercept, radius, units)
    return coords.unscaled(engine.n_features, engine.census.intercept, radius)


def _whole(units: Array, intercept: bool) -> Array:
    """Return units of all coefficients; the intercept's is one."""
    return np.append(units, 1.0) if intercept else units


def largest_moment(engine: SumEngine, frame: coords.Coordinates, rounds: int = 12) -> float:
    """Estimate the largest eigenvalue of any group's second moment by power iteration.

    Power iteration underestimates it, so a tenth is added.
    """
    directions = np.random.default_rng(0).normal(size=(engine.n_groups, frame.size))
    values = np.zeros(engine.n_groups)
    for _ in range(rounds):
        norms = np.linalg.norm(directions, axis=1, keepdims=True)
        directions = directions / np.where(norms > 0, norms, 1.0)
        directions = frame.pull(engine.apply_moments(frame.to_user(directions)))
        values = np.linalg.norm(directions, axis=1)
    return 1.1 * float(values.max())


def quadratics(engine: SumEngine, frame: Frame, origin: Array | None = None) -> QuadraticEngine:
    """Return the group losses of a linear model as quadratics in solver coordinates.

    Takes one pass, at ``origin``. An origin near the fit avoids cancellation where losses are much
    smaller than the squares of the labels.
    """
    assert frame.matrices is not None
    at = np.zeros(frame.coordinates.size) if origin is None else origin
    found = evaluate_at(engine, frame.coordinates, at, surrogate=False, ridge=frame.ridge)
    return QuadraticEngine(found.loss_K, found.grad_KD, frame.matrices, at)


def average_fit(
    evaluate: Callable[[Array], GroupEval],
    frame: Frame,
    prior: Array,
    beta: float,
    start: Array | None = None,
) -> tuple[Array, float]:
    """Fit a neuron to the prior-weighted average loss by surrogate gradient steps.

    This is the limit of large ``nu``, and a loss within a thousandth suffices. Steps use the
    metric of the average second moment, so the result does not depend on the coordinates. If that
    matrix is too large, they are plain steps with momentum. Return the neuron and its loss.
    """
    coordinates = frame.coordinates
    momentum = frame.average is None
    patience = 10 if momentum else 2
    if frame.average is not None:
        values, vectors = np.linalg.eigh(frame.average)
        alive = values > coords.RANK_TOLERANCE * values.max(initial=0.0)
        inverse = np.where(alive, 1.0 / np.where(alive, values, 1.0), 0.0)
    u = look = np.zeros(coordinates.size) if start is None else start
    best, best_loss, idle, age = u, math.inf, 0, 0
    for _ in range(500 if momentum else 100):
        loss, grad = evaluate(look)
        value = float(prior @ loss)
        idle = 0 if value < (1.0 - 1e-3) * best_loss else idle + 1
        age = age + 1 if value < best_loss else 0  # restart the momentum when it overshoots
        if value < best_loss:
            best, best_loss = look, value
        if idle >= patience or value == 0.0:
            break
        slope = (prior @ grad) / (2.0 * beta**2)
        step = slope / frame.moment if momentum else vectors @ ((vectors.T @ slope) * inverse)
        ahead = coordinates.project(look - step)
        look = ahead + (age / (age + 3.0)) * (ahead - u) if momentum else ahead
        look = coordinates.project(look)
        u = ahead
    return best, best_loss


def label_scale(engine: SumEngine, prior: Array) -> float:
    """Return the labels' mean squared deviation (from zero without an intercept), never 0."""
    centre = float(prior @ engine.label_means()) if engine.census.intercept else 0.0
    square = float(prior @ engine.label_squares(centre))
    whole = float(prior @ engine.label_squares())
    if square > DISTINCT**2 * whole:
        return square
    return whole if whole > 0 else 1.0
