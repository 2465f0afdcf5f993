"""Parabolas below the squared error of a neuron, on an interval of scores.

For a row with score ``z`` and label ``y``, and for all scores ``t`` in ``[low, high]``,

    (sigma(t) - y)^2 >= value + slope (t - z) + bend (t - z)^2 / 2.

Where the loss is not convex, a parabola that touches it at ``z`` may have to bend down steeply; a
lower ``value`` allows a larger ``bend``. A *width* settles this choice. It is a typical change of
the score, where ``low`` and ``high`` are the extreme ones: a good parabola is high both at ``z``
and at a distance of the width from it. The bound holds for any width.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from counterpoise.activations import Activation

Array = np.ndarray
# Parabolas are lowered by this share of the terms that they are computed from.
MARGIN = 32 * float(np.finfo(float).eps)


class Minorant(NamedTuple):
    """Parabolas ``value + slope (t - z) + bend (t - z)^2 / 2``, one for every row."""

    value: Array
    slope: Array
    bend: Array


def below_two_pieces(
    z: Array, y: Array, low: Array, high: Array, widths: Sequence[Array], left: float
) -> list[Minorant]:
    """Bound the loss of an activation with slope ``left`` below zero and slope one above.

    The bounds are exact: no parabola with their value and slope at ``z`` has a larger bend.
    """
    right = z >= 0
    residual = np.where(right, z, left * z) - y
    value, slope = residual * residual, 2.0 * np.where(right, residual, left * residual)
    bend = np.where(right, 2.0, 2.0 * left * left)
    unsure = np.flatnonzero((low < 0) & (high > 0))
    if not unsure.size:
        return [Minorant(value, slope, bend)] * len(widths)
    z, y, low, high = z[unsure], y[unsure], low[unsure], high[unsure]
    bend[unsure] = _touching_bend(z, y, low, high, left)
    concave = np.flatnonzero(y > 0)
    z, y, low, high, rows = z[concave], y[concave], low[concave], high[concave], unsure[concave]
    found = []
    for width in widths:
        line = _bridge(y, low, high, width[rows], left)
        inside = np.flatnonzero((z > line.start) & (z < line.stop))
        t, on, line = z[inside], rows[inside], line.at(inside)
        own = Minorant(value.copy(), slope.copy(), bend.copy())
        own.value[on] = line.height + line.slope * (t - line.start) - 0.5 * line.bend * t * t
        own.slope[on] = line.slope - line.bend * t
        own.bend[on] = -line.bend
        found.append(own)
    return found


def _touching_bend(z: Array, y: Array, low: Array, high: Array, left: float) -> Array:
    """Return the largest bend of a parabola that touches the loss at ``z`` and stays below it.

    At a distance ``s`` beyond the kink, the loss exceeds the parabola through ``z`` by
    ``-(1 - a) s ((1 + a) s + 2 y)`` if ``z >= 0``, and by ``(1 - a) s ((1 + a) s - 2 y)`` if not.
    """
    right, near, both = z >= 0, np.abs(z), 1.0 + left
    far = np.where(right, -low, high)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        # z >= 0: the supremum of s ((1 + a) s + 2 y) / (s + z)^2 over 0 < s <= far
        turn = np.where((y > 0) & (y > both * near), y * near / (y - both * near), np.inf)
        s = np.minimum(turn, far)
        rise = np.maximum(s * (both * s + 2.0 * y) / (s + near) ** 2, 0.0)
        # z < 0: the infimum of s ((1 + a) s - 2 y) / (s + |z|)^2, which is negative if y > 0
        t = np.minimum(y * near / (both * near + y), far)
        fall = np.where(y > 0, t * (both * t - 2.0 * y) / (t + near) ** 2, 0.0)
    flat = np.where(right, 1.0, left * left)
    change = (1.0 - left) * np.where(right, -rise, fall)
    bend = 2.0 * (flat + change) - MARGIN * (flat + np.abs(change))
    return np.where(np.isnan(bend), -np.inf, bend)  # y > 0 and z = 0, where nothing can touch


class _Bridge(NamedTuple):
    """Lines below ``loss + bend t^2 / 2``, which meet it at ``start`` and at ``stop``."""

    start: Array
    stop: Array
    height: Array
    slope: Array
    bend: Array

    def at(self, rows: Array) -> _Bridge:
        return _Bridge(*(part[rows] for part in self))


def _bridge(y: Array, low: Array, high: Array, width: Array, left: float) -> _Bridge:
    """Bridge the concave kink at zero, for positive labels.

    With a bend of ``kink / width`` added, the loss less ``y^2`` is ``A t^2 - 2 B t`` on either
    side. Without the limits ``low`` and ``high``, a common tangent of both parabolas is the bridge.
    """
    kink = (1.0 - left) * y
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        bend = kink / width
        below, above = left * left + 0.5 * bend, 1.0 + 0.5 * bend
        root = np.sqrt(below * above)
        start, stop = -kink / (below + root), kink / (above + root)
        # Past a limit, the bridge ends there, and is a tangent only at its other end.
        cut = start < low
        reach = np.sqrt(np.maximum(low * low - (2.0 * kink * low + below * low * low) / above, 0.0))
        start, stop = np.where(cut, low, start), np.where(cut, low + reach, stop)
        cut = stop > high
        reach = high * np.maximum(2.0 * kink - (1.0 - left * left) * high, 0.0) / below
        start = np.where(cut, np.maximum(high - np.sqrt(reach), low), start)
        stop = np.where(cut, high, stop)
        first = below * start * start - 2.0 * left * y * start
        last = above * stop * stop - 2.0 * y * stop
        slope = (last - first) / (stop - start)
        size = y * y + np.abs(first) + np.abs(last)
        height = y * y + first - MARGIN * size
    usable = np.isfinite(slope) & np.isfinite(height) & np.isfinite(bend)
    stop = np.where(usable, stop, start)  # no row lies on it
    return _Bridge(start, stop, height, slope, bend)


def below_smooth(
    z: Array, y: Array, low: Array, high: Array, widths: Sequence[Array], sigma: Activation
) -> list[Minorant]:
    """Bound the loss of a convex activation whose second derivative is bounded.

    Let ``e = sigma(z) - y`` and ``d = sigma(t) - sigma(z)``; the loss is ``e^2 + 2 e d + d^2``.
    Convexity bounds ``d`` from below by its tangent, and the second derivative bounds it from
    above. ``d^2`` is at least the squared slope at ``low`` times ``(t - z)^2``. If ``e < 0``, the
    chord of ``sigma`` over ``[low, high]`` is another bound from above.
    """
    at, slope = sigma.value(z), sigma.slope(z)
    residual = at - y
    least = np.minimum(sigma.left_slope(low), slope)
    most = sigma.most_bend(low, high)
    assert most is not None
    lowest, highest = sigma.value(low), sigma.value(high)
    size = MARGIN * (y * y + at * at + lowest * lowest + highest * highest)
    bend = 2.0 * least * least + 2.0 * np.minimum(residual, 0.0) * most
    touching = Minorant(residual * residual - size, 2.0 * residual * slope, bend)
    with np.errstate(divide="ignore", invalid="ignore"):
        secant = np.where(high > low, (highest - lowest) / (high - low), 0.0)
    # The chord, raised by what rounding may have done to it.
    short = y - (lowest + secant * (z - low)) - MARGIN * (np.abs(highest) + np.abs(lowest))
    short = np.maximum(short, 0.0)
    whole = highest <= y  # the loss falls on the whole interval, and so does the chord's
    chord = Minorant(
        short * short - size, -2.0 * short * secant, np.where(whole, 2.0 * secant * secant, 0.0)
    )
    usable = (residual < 0) & np.isfinite(secant)
    found = []
    for width in widths:
        square = 0.5 * width * width
        better = chord.value + square * chord.bend > touching.value + square * touching.bend
        pairs = zip(chord, touching, strict=True)
        found.append(Minorant(*(np.where(usable & better, c, t) for c, t in pairs)))
    return found
