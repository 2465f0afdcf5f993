"""Statistics of a few seeds by Student's t, and when a curve reaches a value.

Quantiles and tails are SciPy's. ``scipy.stats`` itself warns about, or returns NaN for, seeds that
agree exactly, which is common here, and it has no Holm correction.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from scipy.special import stdtr, stdtrit

Array = np.ndarray
LEVEL = 0.95


def student_interval(values: Array) -> tuple[Array, Array, Array]:
    """Return the mean over the first axis and its 95 % interval; NaN if too few rows."""
    values = np.asarray(values, dtype=float)
    n = len(values)
    missing = np.full(values.shape[1:], np.nan)
    if n == 0:
        return missing, missing, missing
    mean = values.mean(axis=0)
    if n == 1:
        return mean, missing, missing
    half = stdtrit(n - 1, 0.5 + LEVEL / 2) * values.std(axis=0, ddof=1) / math.sqrt(n)
    return mean, mean - half, mean + half


def deviation(values: Array) -> float:
    """Return the standard deviation; NaN for fewer than two values."""
    return float(values.std(ddof=1)) if len(values) > 1 else math.nan


def p_value(mean: float, sd: float, n: int) -> float:
    """Return the p-value of the t test that a mean is zero; NaN for fewer than two values."""
    if math.isnan(sd) or math.isnan(mean):
        return math.nan
    if sd == 0:
        return 1.0 if mean == 0 else 0.0
    return float(2.0 * stdtr(n - 1, -abs(mean) / (sd / math.sqrt(n))))


def holm(p: Sequence[float]) -> list[float]:
    """Adjust p-values by Holm's method for the number of tests.

    NaN means no test and stays NaN.
    """
    found = np.array(p, dtype=float)
    tests = np.flatnonzero(~np.isnan(found))
    order = tests[np.argsort(found[tests], kind="stable")]
    raised = found[order] * np.arange(len(order), 0, -1)
    found[order] = np.minimum(np.maximum.accumulate(raised), 1.0)
    return [float(value) for value in found]


def values_at(where: Array, tokens: Array, values: Array) -> Array:
    """Interpolate a curve linearly at other tokens; NaN outside its range."""
    return np.interp(where, tokens, values, left=np.nan, right=np.nan)


def first_reach(tokens: Array, values: Array, target: float) -> tuple[float, bool]:
    """Find the tokens at which the lowest value so far reaches the target.

    Also returns whether the first evaluation already did. Between evaluations the curve is linear;
    NaN means that the target is never reached. Evaluations that are NaN or of the untrained model
    are ignored.
    """
    tokens, values = np.asarray(tokens, dtype=float), np.asarray(values, dtype=float)
    known = ~np.isnan(values) & (tokens > 0)
    tokens, values = tokens[known], values[known]
    lowest = np.minimum.accumulate(values)
    there = lowest <= target
    if not there.any():
        return math.nan, False
    i = int(np.argmax(there))
    if i == 0:
        return float(tokens[i]), True
    part = (lowest[i - 1] - target) / (lowest[i - 1] - lowest[i])
    return float(tokens[i - 1] + part * (tokens[i] - tokens[i - 1])), False


def token_ratio(
    tokens: Array, values: Array, base_tokens: Array, base_values: Array
) -> tuple[float, int]:
    """Return the baseline's tokens over a run's for equal values, where lower is better.

    Also returns -1 if the ratio is an upper bound, 1 if it is a lower bound, 0 if it is exact.
    """
    if math.isnan(values[-1]) or math.isnan(base_values[-1]):
        return math.nan, 0
    if values[-1] <= base_values[-1]:
        needed, bound = first_reach(tokens, values, base_values[-1])
        return float(base_tokens[-1] / needed), int(bound)
    needed, bound = first_reach(base_tokens, base_values, values[-1])
    return float(needed / tokens[-1]), -int(bound)
