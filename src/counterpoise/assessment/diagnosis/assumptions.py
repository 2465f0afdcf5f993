"""The paper's assumptions as numbers: tails, margin, sharpness, rows and passes.

Notation of the paper: ``P(|u.x| >= r) <= exp(-r / B)`` for unit ``u`` and ``r >= 1``;
``E[x x^T 1{w.x >= gamma ||w||}] >= zeta I`` for every ``w``. These give the sharpness
``c0 = gamma zeta alpha / (6 B log(20 B / zeta^2))`` and ``c1 = c0^2 / (24 B)``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from counterpoise.solver.schedules import Measurement, PaperSteps, ProblemScale, Schedule

Array = np.ndarray

# A tail probability is estimated only from at least this many rows.
ENOUGH = 5
# The share of the rows that counts as the tail, and the number needed to judge its shape.
TAIL_SHARE, TAIL_ROWS = 0.05, 10
GAMMAS = np.array([0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0])
# Distances from which the tail bound must hold; the paper has 1.
REACHES = (1.0, 1.25, 1.5, 2.0, 3.0, 5.0, 10.0)
# Maximum number of iterations of the adaptive schedule to simulate.
MOST_PASSES = 20_000


def tail_parameters(projections: Array, reach: float = 1.0) -> Array:
    """Estimate the smallest ``B`` with ``P(|p| >= r) <= exp(-r / B)`` for ``r >= reach``.

    There is one value per column, from the order statistics without the outermost few, whose
    probabilities are uncertain. It is infinite if all rows lie beyond ``reach``.

    >>> import numpy as np
    >>> exact = -np.log((np.arange(100_000) + 0.5) / 100_000)  # an exponential law
    >>> float(tail_parameters(exact[:, None])[0].round(2))
    1.0
    """
    return tail_table(projections, (reach,))[0]


def tail_table(projections: Array, reaches: Sequence[float]) -> Array:
    """Compute :func:`tail_parameters` for several reaches: (reaches, columns)."""
    n = len(projections)
    sizes = -np.sort(-np.abs(projections), axis=0)
    share = np.arange(1, n + 1) / n
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = sizes / -np.log(share)[:, None]
    ratio[: max(ENOUGH, n // 1000) - 1] = 0.0
    # The largest ratio among the rows that lie beyond the reach.
    largest = np.maximum.accumulate(ratio, axis=0)
    out = np.empty((len(reaches), projections.shape[1]))
    for row, reach in zip(out, reaches, strict=True):
        beyond = np.sum(sizes >= reach, axis=0)
        inside = np.maximum(beyond, 1)
        with np.errstate(divide="ignore"):
            least = np.where(inside < n, reach / -np.log(inside / n), np.inf)
        met = np.take_along_axis(largest, (inside - 1)[None], axis=0)[0]
        row[:] = np.maximum(np.where(beyond > 0, met, 0.0), least)
    return out


class TailShape(NamedTuple):
    """Excesses over a high quantile, compared with an exponential distribution.

    ``ratio`` is their variance over their squared mean: one for exponential tails, less for
    lighter and more for heavier ones. ``score`` is the number of standard errors above one.
    """

    ratio: Array
    score: Array


def tail_shapes(projections: Array) -> TailShape:
    """Measure the tail of every column; NaN with too few rows or too few distinct values."""
    n, m = projections.shape
    k = int(TAIL_SHARE * n)
    nothing = np.full(m, np.nan)
    if k < TAIL_ROWS:
        return TailShape(nothing, nothing.copy())
    sizes = np.partition(np.abs(projections), n - k - 1, axis=0)[n - k - 1 :]
    excess = sizes[1:] - sizes[0]
    mean = excess.mean(axis=0)
    # A column with few distinct values, such as an indicator, has no tail.
    smooth = np.array([len(np.unique(column)) > k // 2 for column in excess.T]) & (mean > 0)
    ratio = nothing.copy()
    ratio[smooth] = excess[:, smooth].var(axis=0, ddof=1) / mean[smooth] ** 2
    # Greenwood's statistic: for exponential excesses its variance is 4 / k, and its logarithm is
    # closer to normal.
    return TailShape(ratio, np.sqrt(k) / 2.0 * np.log(ratio))


def margins(Z: Array, directions: Array, gammas: Array = GAMMAS) -> Array:
    """Compute ``zeta`` for every ``gamma``, over some directions.

    This is the smallest eigenvalue of ``mean x x^T 1{w.x >= gamma}`` for any of the unit
    ``directions`` ``w`` and ``-w``. It is an upper bound on the paper's, which is over all
    directions.
    """
    n, p = Z.shape
    if p == 0:
        return np.zeros(len(gammas))
    smallest = np.full(len(gammas), np.inf)
    order = np.argsort(-gammas)  # from large to small, so that rows are only ever added
    for w in np.concatenate([directions, -directions]):
        # A row is added at the first gamma that its score reaches.
        joins = np.searchsorted(-gammas[order], -(Z @ w), side="left")
        matrices = np.empty((len(gammas), p, p))
        for j in range(len(gammas)):
            rows = Z[joins == j]
            np.matmul(rows.T, rows, out=matrices[j])
        seen = np.cumsum(np.bincount(joins, minlength=len(gammas))[: len(gammas)])
        low = np.linalg.eigvalsh(np.cumsum(matrices, axis=0))[:, 0] / n
        low = np.where(seen >= p, np.maximum(low, 0.0), 0.0)
        smallest[order] = np.minimum(smallest[order], low)
    return np.minimum(smallest, 1.0)


def whole_margin(Z: Array, active: Array | None = None) -> float:
    """Compute the smallest eigenvalue of ``mean x x^T``; inactive rows count as zero."""
    rows = Z if active is None else Z[active]
    if len(rows) < Z.shape[1] or not Z.shape[1]:
        return 0.0
    return max(float(np.linalg.eigvalsh(rows.T @ rows / len(Z))[0]), 0.0)


class Sharpness(NamedTuple):
    """Sharpness constants and the figures behind them; ``B`` is for ``r >= reach``."""

    B: float
    reach: float
    gamma: float
    zeta: float
    c0: float
    c1: float


def first_tail(B: Array) -> tuple[float, float]:
    """Return the tail parameter at the shortest reach where it is finite, and that reach."""
    for reach, b in zip(REACHES, B, strict=False):
        if b < math.inf:
            return float(b), reach
    return math.inf, REACHES[len(B) - 1]


def sharpness_from(B: Array, zetas: Array, alpha: float, gammas: Array = GAMMAS) -> Sharpness:
    """Find the largest ``c0`` over all ``gamma`` and all reaches of the tail bound.

    ``B[j]`` is the tail parameter for ``r >= REACHES[j]``. Features divided by ``s`` satisfy the
    assumptions with ``B/s``, ``gamma/s`` and ``zeta/s^2``. In the original coordinates this gives
    ``c0 = gamma zeta alpha / (6 B log(20 B s^3 / zeta^2))`` and ``c1 = c0^2 / (24 B s)``.
    """
    best = Sharpness(*first_tail(B), float(gammas[0]), float(zetas[0]), 0.0, 0.0)
    for s, b in zip(REACHES, B.tolist(), strict=False):
        if not 0 < b < math.inf:
            continue
        for gamma, zeta in zip(gammas.tolist(), zetas.tolist(), strict=True):
            if zeta <= 0:
                continue
            log = math.log(max(20.0 * b * s**3 / zeta**2, math.e))
            c0 = gamma * zeta * alpha / (6.0 * b * log)
            if c0 > best.c0:
                best = Sharpness(b, s, gamma, zeta, c0, c0**2 / (24.0 * b * s))
    return best


def rows_needed(n_coef: int, n_groups: int, radius: float, epsilon: float, delta: float) -> float:
    """Compute the rows per group that the theorem requires.

    This is ``W^4/eps^2 (d log(d W^2/eps) + log(K/delta))`` with unspecified constants set to one
    and ``eps`` in units of the loss.
    """
    size = radius**2 / epsilon
    log = max(1.0, math.log(max(n_coef, 1) * max(size, 1e-300)))
    return size**2 * (n_coef * log + math.log(n_groups / delta))


def truncation_level(beta: float, B: float, radius: float, epsilon: float) -> float:
    """Compute ``M = W B beta log((beta B W)^2 / eps)``.

    Outputs beyond it add less than ``eps`` to a loss. The paper prints ``log(beta B W / eps)``,
    which is the same in its units but depends on the units of the labels.
    """
    size = beta * B * radius
    return size * max(1.0, math.log(max(size**2 / epsilon, 1e-300))) if size > 0 else 0.0


def paper_passes(steps: PaperSteps, scale: ProblemScale, distance: float) -> float:
    """Predict the iterations of the printed schedule from a start at this ``distance``.

    The theorem needs ``(1 + c1 A/2)/4 eps >= D0``. Each step is the smaller of two sequences, so
    the count is that of the slower one to add up to ``A``.
    """
    total = _needed_total(steps.c1, steps.epsilon, distance)
    if total <= 0:
        return 1.0
    c1, nu0 = steps.c1, steps.starting_weight(scale)
    c4, cw = steps.constants(scale, c1)
    primal = _geometric(total, 1.0 / (4.0 * c4), c1 / (8.0 * c4))
    growth = math.sqrt(c1 * scale.nu) / (4.0 * math.sqrt(2.0) * cw)
    dual = _geometric(total, math.sqrt(nu0) / (4.0 * cw), growth)
    linear = math.sqrt(2.0 * total / (c1 * nu0)) * 4.0 * math.sqrt(2.0) * cw
    return max(primal, min(dual, linear))


def adaptive_passes(
    steps: Schedule, scale: ProblemScale, spread: float, epsilon: float, distance: float
) -> float:
    """Predict the iterations of measured steps, assuming a constant gradient spread.

    The result is infinite beyond ``MOST_PASSES``.
    """
    c1, nu0 = steps.sharpness(scale), steps.starting_weight(scale)
    needed = _needed_total(c1, epsilon, distance)
    total = step = 0.0
    for t in range(1, MOST_PASSES + 1):
        step = steps.step(scale, c1, nu0, Measurement(t, total, step, spread))
        total += step
        if total >= needed:
            return float(t)
    return math.inf


def _needed_total(c1: float, epsilon: float, distance: float) -> float:
    """Solve ``4 D0 / (1 + c1 A / 2) = eps`` for ``A``, where ``D0 = distance^2 / 2``."""
    return 2.0 / c1 * (2.0 * distance**2 / epsilon - 1.0)


def _geometric(total: float, first: float, growth: float) -> float:
    """Return the number of terms ``first (1 + growth)^t`` that add up to ``total``."""
    if total * growth / first < 1e-12:  # the terms are equal up to rounding
        return total / first
    return math.log1p(total * growth / first) / math.log1p(growth)
