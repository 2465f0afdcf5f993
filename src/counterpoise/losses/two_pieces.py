"""Compiled: parabolas below the loss of an activation with a kink, for a block of rows.

See :mod:`counterpoise.losses.minorants`. The activation has the slope ``left`` below zero and one
above. Up to rounding, the bounds are exact: no parabola with their value and slope has a larger
bend.
"""

# Numba finds the types itself.
# mypy: disable-error-code="no-untyped-def,untyped-decorator,no-untyped-call"
from __future__ import annotations

import math

from counterpoise.common.compiling import compiled
from counterpoise.losses.base import MARGIN


@compiled(error_model="numpy")
def touching_bend(z, y, low, high, left):
    """Return the largest bend of a parabola that touches the loss at ``z`` and stays below it.

    At a distance ``s`` beyond the kink, the loss exceeds the parabola through ``z`` by
    ``-(1 - a) s ((1 + a) s + 2 y)`` if ``z >= 0``, and by ``(1 - a) s ((1 + a) s - 2 y)`` if not.
    """
    near, both = abs(z), 1.0 + left
    if z >= 0:
        # The supremum of s ((1 + a) s + 2 y) / (s + z)^2 over 0 < s <= far, at least zero.
        flat, s = 1.0, -low
        if y > 0 and y > both * near:
            s = min(s, y * near / (y - both * near))
        change = 0.0
        if s > 0:
            change = -(1.0 - left) * max(s * (both * s + 2.0 * y) / (s + near) ** 2, 0.0)
        elif y > 0:
            return -math.inf  # nothing touches a concave kink
    else:
        # The infimum of s ((1 + a) s - 2 y) / (s + |z|)^2, which is negative if y > 0.
        flat, change = left * left, 0.0
        if y > 0:
            s = min(high, y * near / (both * near + y))
            change = (1.0 - left) * s * (both * s - 2.0 * y) / (s + near) ** 2
    return 2.0 * (flat + change) - MARGIN * (flat + abs(change))


@compiled(error_model="numpy")
def bridge(y, low, high, width, left):
    """Bridge the concave kink of a positive label by a line below ``loss + bend t^2 / 2``.

    With a bend of ``kink / width`` added, the loss less ``y^2`` is ``A t^2 - 2 B t`` on either
    side. Within the limits, a common tangent of the two parabolas is the bridge; past a limit, the
    bridge ends there, and is a tangent at its other end alone. Return where it starts and stops,
    its height at the start, its slope, and the bend.
    """
    kink = (1.0 - left) * y
    bend = kink / width
    below, above = left * left + 0.5 * bend, 1.0 + 0.5 * bend
    root = math.sqrt(below * above)
    start, stop = -kink / (below + root), kink / (above + root)
    if start < low:
        start = low
        inside = low * low - (2.0 * kink * low + below * low * low) / above
        stop = low + math.sqrt(max(inside, 0.0))
    if stop > high:
        stop = high
        inside = high * max(2.0 * kink - (1.0 - left * left) * high, 0.0) / below
        start = max(high - math.sqrt(inside), low)
    first = below * start * start - 2.0 * left * y * start
    last = above * stop * stop - 2.0 * y * stop
    height = y * y + first - MARGIN * (y * y + abs(first) + abs(last))
    return start, stop, height, (last - first) / (stop - start), bend


@compiled(error_model="numpy")
def fill_two_pieces(z, y, low, high, norm, widths, left, value, slope, bend):
    """Fill ``value``, ``slope`` and ``bend`` (widths, rows); widths are multiples of ``norm``."""
    for j in range(len(z)):
        t, label = z[j], y[j]
        piece = 1.0 if t >= 0 and high[j] > 0.0 else left
        residual = piece * t - label
        flat = 2.0 * piece * piece
        unsure = low[j] < 0.0 < high[j]
        if unsure:
            flat = touching_bend(t, label, low[j], high[j], left)
        for k in range(len(widths)):
            value[k, j] = residual * residual
            slope[k, j] = 2.0 * piece * residual
            bend[k, j] = flat
            if unsure and label > 0.0:
                line = bridge(label, low[j], high[j], widths[k] * norm[j], left)
                start, stop, height, rise, curved = line
                # not if a number is not finite
                if start <= t <= stop and abs(height) + abs(rise) + curved < math.inf:
                    value[k, j] = height + rise * (t - start) - 0.5 * curved * t * t
                    slope[k, j] = rise - curved * t
                    bend[k, j] = -curved
