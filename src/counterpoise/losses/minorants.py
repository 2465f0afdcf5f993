"""Parabolas below the squared error of a neuron, on an interval of scores.

For a row with score ``z`` and label ``y``, and for all scores ``t`` in ``[low, high]``,

    (sigma(t) - y)^2 >= value + slope (t - z) + bend (t - z)^2 / 2.

Where the loss is not convex, a parabola that touches it at ``z`` may have to bend down steeply; a
lower ``value`` allows a larger ``bend``. A *width* settles this choice. It is a typical change of
the score, where ``low`` and ``high`` are the extreme ones: a good parabola is high both at ``z``
and at a distance of the width from it. The bound holds for any width.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from counterpoise.activations import Activation
from counterpoise.activations.named import Piecewise
from counterpoise.losses.base import MARGIN

Array = np.ndarray


class Minorants(NamedTuple):
    """Parabolas ``value + slope (t - z) + bend (t - z)^2 / 2``: (widths, rows) each."""

    value: Array
    slope: Array
    bend: Array


def has_two_pieces(sigma: Activation) -> bool:
    """Whether an activation is linear on either side of zero, with slope one above."""
    return isinstance(sigma, Piecewise) and sigma.has_kink


def minorants_below(
    sigma: Activation, z: Array, y: Array, low: Array, high: Array, norm: Array, widths: Array
) -> Minorants:
    """Return parabolas for every one of ``widths``, which are multiples of ``norm``.

    ``z`` lies in ``[low, high]``.
    """
    if not has_two_pieces(sigma):
        return _below_smooth(sigma, z, y, low, high, norm, widths)
    from counterpoise.losses.two_pieces import fill_two_pieces

    left = float(sigma.slope(np.array([-1.0]))[0])
    found = Minorants(*np.empty((3, len(widths), len(z))))
    fill_two_pieces(z, y, low, high, norm, widths, left, *found)
    return found


def _below_smooth(
    sigma: Activation, z: Array, y: Array, low: Array, high: Array, norm: Array, widths: Array
) -> Minorants:
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
    touching = (residual * residual - size, 2.0 * residual * slope, bend)
    with np.errstate(divide="ignore", invalid="ignore"):
        secant = np.where(high > low, (highest - lowest) / (high - low), 0.0)
    # The chord, raised by what rounding may have done to it.
    short = y - (lowest + secant * (z - low)) - MARGIN * (np.abs(highest) + np.abs(lowest))
    short = np.maximum(short, 0.0)
    whole = highest <= y  # the chord stays below the label, so its square is a parabola
    bend = np.where(whole, 2.0 * secant * secant, 0.0)
    chord = (short * short - size, -2.0 * short * secant, bend)
    square = 0.5 * (widths[:, None] * norm) ** 2
    better = chord[0] + square * chord[2] > touching[0] + square * touching[2]
    better &= (residual < 0) & np.isfinite(secant)
    return Minorants(*(np.where(better, c, t) for c, t in zip(chord, touching, strict=True)))
