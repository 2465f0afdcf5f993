"""Ellipsoids that hold all coefficients better than a fit, and quadratics below the risk on them.

A quadratic that is below the risk on an ellipsoid bounds the risk there. And where the quadratic
exceeds the risk of the fit, nothing is better than the fit, so everything better lies in a smaller
ellipsoid. On that one, other quadratics are closer to the risk.

Neither needs convexity. In the coordinates ``v`` of the ellipsoid ``||v|| <= 1``, with a quadratic
``q(v) = value + slope.v + v.bend.v / 2`` and any ``m >= 0`` such that ``bend + m`` is positive,

    q(v) >= min over all x of  q(x) + m/2 (||x||^2 - 1),

and all ``v`` in the ball with ``q(v) <= level`` satisfy ``q(v) + m/2 (||v||^2 - 1) <= level``, an
ellipsoid. Bounds are rounded outwards.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

Array = np.ndarray
EPS = float(np.finfo(float).eps)
# Multipliers to try, relative to the range of the curvatures.
MULTIPLIERS = np.concatenate([[0.0], np.geomspace(1e-8, 1e4, 97)])
# An ellipsoid is kept if rounding may change a smaller one by more than this share.
STURDY = 1e-3


@dataclass(frozen=True)
class Ellipsoid:
    """All ``centre + axes @ v`` with ``||v|| <= 1``."""

    centre: Array
    axes: Array

    @classmethod
    def ball(cls, centre: Array, radius: float) -> Ellipsoid:
        return cls(centre, radius * np.eye(len(centre)))

    @property
    def size(self) -> float:
        """The mean squared length of the semi-axes."""
        return float(np.sum(self.axes**2)) / max(len(self.centre), 1)

    def halves(self) -> tuple[Ellipsoid, Ellipsoid]:
        """Return ellipsoids around both halves of this one, cut across its longest axis.

        They are the smallest by volume, as in the ellipsoid method.
        """
        size = len(self.centre)
        along = np.linalg.svd(self.axes)[2][0]
        if size == 1:
            shift, short, wide = 0.5, 0.5, 1.0
        else:
            shift, short = 1.0 / (size + 1.0), size / (size + 1.0)
            wide = size / math.sqrt(size * size - 1.0)
        turn = wide * np.eye(size) + (short - wide) * np.outer(along, along)
        axes = self.axes @ turn * (1.0 + 64 * size * EPS)
        step = self.axes @ (shift * along)
        return Ellipsoid(self.centre + step, axes), Ellipsoid(self.centre - step, axes)

    def inner(self, u: Array) -> Array:
        """Return the coordinates ``v`` of ``u``, or of a point between it and the centre."""
        v = np.linalg.lstsq(self.axes, u - self.centre, rcond=None)[0]
        length = float(np.linalg.norm(v))
        return v if length <= 1.0 else v / (length * (1.0 + 4 * EPS))

    def point(self, v: Array) -> Array:
        return self.centre + self.axes @ v


@dataclass(frozen=True)
class Quadratic:
    """``value + slope.v + v.bend.v / 2``; ``value`` may be too large by ``error``."""

    value: float
    slope: Array
    bend: Array
    error: float = 0.0

    @classmethod
    def about(cls, at: Array, value: float, slope: Array, bend: Array, error: float) -> Quadratic:
        """Make a quadratic from its value, slope and bend at ``at``."""
        if not (math.isfinite(value + error) and np.isfinite(slope).all() and
                np.isfinite(bend).all()):  # fmt: skip
            return cls(-math.inf, np.zeros_like(slope), np.zeros_like(bend))
        pulled = bend @ at
        half = 0.5 * float(at @ pulled)
        size = abs(value) + float(np.abs(slope) @ np.abs(at)) + abs(half)
        rounding = 8 * (len(at) + 2) * EPS * (size + float(np.linalg.norm(bend)))
        return cls(value - float(slope @ at) + half, slope - pulled, bend, error + rounding)

    @cached_property
    def spectrum(self) -> tuple[Array, Array, Array]:
        """Curvatures, rounded down, their directions, and the slope along them."""
        values, vectors = np.linalg.eigh(0.5 * (self.bend + self.bend.T))
        values = values - 32 * len(values) * EPS * float(np.abs(values).max(initial=0.0))
        return values, vectors, vectors.T @ self.slope

    @cached_property
    def multipliers(self) -> Array:
        """Multipliers of the ball for which the curvatures are positive."""
        values, _, along = self.spectrum
        top = float(np.abs(values).max(initial=0.0))
        unit = max(top, float(np.abs(along).max(initial=0.0)), 1e-300)
        least = max(-float(values.min(initial=0.0)), 0.0) + 1e-12 * unit
        return least + unit * MULTIPLIERS

    @cached_property
    def bounds(self) -> Array:
        """Lower bounds on the ball, one for every multiplier."""
        values, _, along = self.spectrum
        curved = values[None, :] + self.multipliers[:, None]
        fall = 0.5 * np.sum(along**2 / curved, axis=1)
        # The ball is slightly larger, in coordinates that are not quite orthogonal.
        pull = 0.5 * self.multipliers * (1.0 + 64 * len(values) * EPS)
        lost = 64 * (len(values) + 2) * EPS * (abs(self.value) + fall + pull)
        found = self.value - fall - pull - lost - self.error
        return np.where(np.isfinite(found), found, -math.inf)

    @property
    def least(self) -> float:
        """A lower bound on the ball."""
        return float(self.bounds.max())

    @property
    def minimiser(self) -> Array:
        """The point of the ball at which the bound is attained."""
        values, vectors, along = self.spectrum
        m = self.multipliers[int(np.argmax(self.bounds))]
        v = -vectors @ (along / (values + m))
        return np.asarray(v / max(1.0, float(np.linalg.norm(v))))

    def sublevel(self, ellipsoid: Ellipsoid, level: float) -> Ellipsoid:
        """Return an ellipsoid around all points where the quadratic is at most ``level``.

        Of those that a multiplier gives, it is the one with the shortest axes; or the ellipsoid
        itself, if no smaller one is certain. ``level`` must be above the least value.
        """
        values, vectors, along = self.spectrum
        room = 2.0 * (level - self.bounds)
        if not np.isfinite(room).any():
            return ellipsoid
        assert room.min() > 0.0
        directions = ellipsoid.axes @ vectors
        lengths = np.sum(directions**2, axis=0)
        curved = values[None, :] + self.multipliers[:, None]
        sizes = np.sum(lengths * (room[:, None] / curved), axis=1)
        best = int(np.nanargmin(np.where(np.isfinite(sizes), sizes, np.inf)))
        centre = ellipsoid.centre - directions @ (along / curved[best])
        axes = directions * np.sqrt(room[best] / curved[best])
        # Rounding moves the centre and the ends of the axes.
        longest = max(float(np.abs(axes).max(initial=0.0)), float(np.abs(ellipsoid.axes).max()))
        size = float(np.abs(centre).max(initial=0.0)) + longest
        shortest = float(np.linalg.svd(axes, compute_uv=False).min(initial=math.inf))
        moved = 64 * len(centre) * EPS * size / shortest if shortest > 0 else math.inf
        return Ellipsoid(centre, axes * (1.0 + moved)) if moved < STURDY else ellipsoid
