"""Which differences between losses their standard errors explain.

A standard error is itself an estimate. One from ``n`` independent pieces of text has ``n - 1``
degrees of freedom, and its *doubt* is their inverse: 0 for an exact one. With doubt, quantiles are
those of Student's t distribution instead of the normal one.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from statistics import NormalDist

import numpy as np

Array = np.ndarray

# Quantiles of Student's t are not computed for probabilities below exp(LEAST_LOG).
LEAST_LOG = -45.0
HALVINGS = 50


def quantiles(log_p: float, doubts: Array) -> Array:
    """Return for each doubt the ``z`` that is exceeded with probability ``exp(log_p) <= 0.5``.

    >>> quantiles(math.log(0.025), np.array([0.0, 0.25])).round(3).tolist()
    [1.96, 2.776]
    """
    p = math.exp(max(log_p, LEAST_LOG))
    found = np.full(len(doubts), -NormalDist().inv_cdf(p) if p < 0.5 else 0.0)
    rough = doubts > 0
    if rough.any():
        from scipy.special import stdtrit

        found[rough] = -stdtrit(1.0 / doubts[rough], p)
    return found


def log_level(values: Array, errors: Array, doubts: Array) -> float:
    """Return the logarithm of the least probability whose intervals have no common point.

    The interval of a value is ``value +- z error``, where ``z`` is exceeded with that probability
    on each side.

    >>> values, errors = np.array([0.0, 2.0]), np.array([0.5, 0.5])
    >>> [round(math.exp(log_level(values, errors, np.full(2, d))), 4) for d in (0.0, 0.25)]
    [0.0228, 0.0581]
    """
    if not doubts.any():
        return log_tail(separation(values, errors))
    return least_log(lambda log_p: common_point(values, quantiles(log_p, doubts) * errors))


def least_log(common: Callable[[float], bool]) -> float:
    """Return the logarithm of the least probability at which something has no common point.

    ``common`` is monotone: true for small probabilities, whose intervals are wide.
    """
    low, high = LEAST_LOG, math.log(0.5)
    if not common(low):
        return low
    if common(high):
        return high
    for _ in range(HALVINGS):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if common(middle) else (low, middle)
    return high


def common_point(values: Array, widths: Array) -> bool:
    """Return whether the intervals ``values +- widths`` have a common point."""
    return bool((values - widths).max() <= (values + widths).min())


def separation(values: Array, errors: Array) -> float:
    """Return the least ``z`` for which all intervals ``values +- z errors`` have a common point.

    >>> separation(np.array([0.0, 3.0, 1.0]), np.array([1.0, 0.5, 1.0]))
    2.0
    """
    z = 0.0
    while True:
        # The largest lower end minus the least upper end is convex and piecewise linear in z, so
        # its zero is approached from below: every turn raises z to the ratio of another pair.
        i, j = int(np.argmax(values - z * errors)), int(np.argmin(values + z * errors))
        gap, slope = float(values[i] - values[j]), float(errors[i] + errors[j])
        if not gap > z * slope:
            return z
        ratio = gap / slope if slope > 0.0 else math.inf
        if not math.inf > ratio > z:
            return max(ratio, z)
        z = ratio


def log_tail(z: float) -> float:
    """Return the logarithm of the probability that a standard normal number exceeds ``z >= 0``.

    >>> round(log_tail(0.0), 6), round(log_tail(40.0), 3)
    (-0.693147, -804.608)
    """
    if z == math.inf:
        return -1e300
    if z < 30.0:
        return math.log(0.5 * math.erfc(z / math.sqrt(2.0)))
    return -0.5 * z * z - math.log(z * math.sqrt(2.0 * math.pi)) + math.log1p(-1.0 / (z * z))
