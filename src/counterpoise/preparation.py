"""Before the first step: coordinates, second moments, the average fit, the labels' scale."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from counterpoise import coordinates as coords
from counterpoise.engines import RowEngine
from counterpoise.groups import GroupedData
from counterpoise.polish import SECOND_ORDER_LIMIT, keeps_group_matrices
from counterpoise.schedules import PaperSteps, Schedule

Array = np.ndarray


@dataclass(frozen=True)
class Frame:
    """Coordinates, and the second moments measured to build them.

    In solver coordinates, ``moment`` is the largest eigenvalue of any group's second moment,
    ``mean_moment`` the mean eigenvalue of their ``average``; ``matrices`` holds twice the groups'
    second moments. Both matrices are None where they would not fit in memory.
    """

    coordinates: coords.Coordinates
    kind: str
    moment: float
    mean_moment: float
    average: Array | None
    matrices: Array | None

    @classmethod
    def measure(
        cls, engine: RowEngine, prior: Array, precondition: str | None, radius: float | None
    ) -> Frame:
        """Read the rows once (and a few times more when matrices would not fit)."""
        p, intercept = engine.n_coef, engine.data.intercept
        if precondition == "auto":
            precondition = "whiten" if p <= SECOND_ORDER_LIMIT else "scale"
        full = precondition == "whiten" or p <= SECOND_ORDER_LIMIT
        per_group = full and keeps_group_matrices(engine.n_groups, p)
        raw, average = None, np.empty((0, 0))
        if full:
            raw = engine.curvature(None, None if per_group else prior)
            average = 0.5 * (np.tensordot(prior, raw, axes=1) if per_group else raw)
            diagonal = np.diag(average).copy()
        else:
            diagonal = engine.mean_squares(prior)
        if precondition == "whiten":
            frame = coords.whitened(average, engine.shift, intercept, radius)
        elif precondition == "scale":
            frame = coords.scaled(diagonal, engine.shift, intercept, radius)
        else:
            frame = coords.plain(engine.n_features, intercept, radius)
        matrices = frame.pull_curvature(raw) if per_group and raw is not None else None
        mean = 1.0
        if frame.basis.ndim == 1:
            mean = float(np.mean(frame.basis**2 * diagonal)) or 1.0
        if matrices is None:
            top = largest_moment(engine, frame)
        else:
            top = 0.5 * float(np.linalg.eigvalsh(matrices).max(initial=0.0))
        kind = precondition or "none"
        pooled = frame.pull_curvature(average) if full else None
        return cls(frame, kind, max(top, mean), mean, pooled, matrices)


def largest_moment(engine: RowEngine, frame: coords.Coordinates, rounds: int = 12) -> float:
    """Largest eigenvalue of any group's second moment, by power iteration on all at once.

    Power iteration ends below the truth, so a tenth is added.
    """
    directions = np.random.default_rng(0).normal(size=(engine.n_groups, frame.size))
    values = np.zeros(engine.n_groups)
    for _ in range(rounds):
        norms = np.linalg.norm(directions, axis=1, keepdims=True)
        directions = directions / np.where(norms > 0, norms, 1.0)
        directions = frame.pull(engine.apply_moments(frame.to_user(directions)))
        values = np.linalg.norm(directions, axis=1)
    return 1.1 * float(values.max())


class Terms(NamedTuple):
    """What the user left open, settled: labels as fitted, ``nu``, the ball of the theory, where
    Algorithm 1 starts."""

    engine: RowEngine
    nu: float
    radius: float
    truncation: float | None
    start: Array


def settle(
    engine: RowEngine,
    frame: Frame,
    prior: Array,
    steps: Schedule,
    *,
    nu: float | str,
    radius: float | None,
    truncate: float | None,
) -> Terms:
    """Choose ``nu="auto"``, the paper's constants, and clip labels.

    The average fit, where it was needed for ``nu``, is also the start; the paper starts at zero.
    """
    beta, paper = engine.activation.beta, isinstance(steps, PaperSteps)

    def clipped(level: float) -> RowEngine:
        return engine.variant(labels=np.clip(engine.data.y, -level, level))

    if truncate is not None:
        engine = clipped(truncate)
    start, ball = np.zeros(frame.coordinates.size), radius or math.inf
    if nu == "auto" or (paper and radius is None):
        average, loss = average_fit(engine, frame, prior, beta)
        ball = radius or 2.0 * frame.coordinates.coef_norm(average)
        if nu == "auto":
            nu, start = 0.1 * loss, start if paper else average
    if isinstance(steps, PaperSteps):
        if radius is None:  # keep log(beta B W / epsilon) at one or more
            ball = max(ball, math.e * steps.epsilon / (beta * steps.B))
        if truncate is None:
            truncate = steps.truncation(beta, ball)
            engine = clipped(truncate)
    return Terms(engine, float(nu), ball, truncate, start)


def average_fit(engine: RowEngine, frame: Frame, prior: Array, beta: float) -> tuple[Array, float]:
    """The neuron of the prior-weighted average loss, by surrogate gradient steps, and its loss.

    This is the limit of large ``nu``; a loss within a thousandth is enough here. Steps are taken
    in the metric of the average second moment, so that coordinates do not matter; where that
    matrix is too large, plain steps with momentum.
    """
    coordinates = frame.coordinates
    momentum = frame.average is None
    patience = 10 if momentum else 2
    if frame.average is not None:
        values, vectors = np.linalg.eigh(frame.average)
        alive = values > coords.RANK_TOLERANCE * values.max(initial=0.0)
        inverse = np.where(alive, 1.0 / np.where(alive, values, 1.0), 0.0)
    u = look = np.zeros(coordinates.size)
    best, best_loss, idle, age = u, math.inf, 0, 0
    for _ in range(500 if momentum else 100):
        loss, grad = engine.evaluate(coordinates.to_user(look), surrogate=True)
        value = float(prior @ loss)
        idle = 0 if value < (1.0 - 1e-3) * best_loss else idle + 1
        age = age + 1 if value < best_loss else 0  # momentum starts anew when it overshoots
        if value < best_loss:
            best, best_loss = look, value
        if idle >= patience or value == 0.0:
            break
        slope = coordinates.pull(prior @ grad) / (2.0 * beta**2)
        step = slope / frame.moment if momentum else vectors @ ((vectors.T @ slope) * inverse)
        ahead = coordinates.project(look - step)
        look = ahead + (age / (age + 3.0)) * (ahead - u) if momentum else ahead
        look = coordinates.project(look)
        u = ahead
    return best, best_loss


def label_scale(data: GroupedData, prior: Array) -> float:
    """Mean squared deviation of the labels (about zero without an intercept), never zero."""
    centre = float(prior @ data.group_mean(data.y)) if data.intercept else 0.0
    square = float(prior @ data.group_mean((data.y - centre) ** 2))
    whole = float(prior @ data.group_mean(data.y**2))
    if square > 1e-20 * whole:
        return square
    return whole if whole > 0 else 1.0
