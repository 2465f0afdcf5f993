"""What a study says: paired differences, spreads over seeds, and tokens to equal quality.

All runs at a seed start from one model and read the same streams, so that what a seed does to one
run it does to the others too: differences are taken seed by seed, and their mean has an interval by
Student's t.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from counterpoise.common.arguments import is_number
from counterpoise.lm.compare.estimates import (
    deviation,
    holm,
    p_value,
    student_interval,
    token_ratio,
    values_at,
)
from counterpoise.lm.compare.results import LOSS_KINDS, Reference, Results
from counterpoise.lm.compare.scores import is_task

Array = np.ndarray

logger = logging.getLogger("counterpoise")


@dataclass(frozen=True)
class Difference:
    """A run minus the baseline, over the seeds that both have.

    Attributes
    ----------
    run, baseline, metric : str
    mean, low, high : float
        The mean difference and its 95 % interval; NaN for what too few seeds leave open.
    n : int
        Seeds.
    below : int
        Seeds at which the run is below the baseline.
    sd : float
        Standard deviation of the differences.
    unpaired_error : float
        What the standard error would be if the seeds of both were unrelated; compare `error`.
    p, p_holm : float
        Of the paired t test, and adjusted by Holm for the number of runs that are compared.
    """

    run: str
    baseline: str
    metric: str
    mean: float
    low: float
    high: float
    n: int
    below: int
    sd: float
    unpaired_error: float
    p: float
    p_holm: float

    @property
    def error(self) -> float:
        """Standard error of the mean difference."""
        return self.sd / math.sqrt(self.n) if self.n else math.nan


@dataclass(frozen=True)
class Spread:
    """Mean and standard deviation over seeds of a quantity of a domain."""

    run: str
    domain: str
    column: str
    mean: float
    sd: float
    n: int


@dataclass(frozen=True)
class Speedup:
    """Tokens that the baseline needs over tokens that the run needs, for equal quality.

    Attributes
    ----------
    run, baseline, metric : str
    ratio, low, high : float
        Mean over seeds of the logarithm, and its 95 % interval, as ratios. Above 1 the run is
        faster.
    n : int
        Seeds.
    at_most, at_least : int
        Seeds of which only a bound is known, since the first evaluation is already good enough;
        they count with their bounds.
    ratios : tuple of float
        Of each seed.
    """

    run: str
    baseline: str
    metric: str
    ratio: float
    low: float
    high: float
    n: int
    at_most: int
    at_least: int
    ratios: tuple[float, ...]

    @property
    def censored(self) -> int:
        return self.at_most + self.at_least


def paired_differences(
    results: Results,
    baseline: str,
    metric: str,
    at: str | float = "end",
    *,
    runs: Sequence[str] | None = None,
    reference: Reference | None = None,
) -> list[Difference]:
    """Each run minus the baseline, seed by seed.

    Parameters
    ----------
    results : Results
    baseline : str
        A run. With another baseline the same function gives the effect of what tells two runs
        apart.
    metric, reference
        See :meth:`Results.curve`.
    at : "end" or float
        The last evaluations, or a number of tokens, between evaluations on the straight line.
    runs : sequence of str, optional
        Those to compare; by default all others. Holm's adjustment is for these.
    """
    _check_at(at)
    found = []
    for run in _others(results, baseline, runs):
        curves = [
            [results.curve(name, seed, metric, reference) for name in (run, baseline)]
            for seed in common_seeds(results, run, baseline, metric)
        ]
        if isinstance(at, str) and curves:
            _warn_of_ends(run, baseline, np.array([[t[-1] for t, _ in both] for both in curves]))
        values = [[_value(curve, at) for curve in both] for both in curves]
        pairs = np.array(values).reshape(-1, 2)
        found.append(_difference(run, baseline, metric, pairs))
    adjusted = holm([d.p for d in found])
    return [replace(d, p_holm=p) for d, p in zip(found, adjusted, strict=True)]


def final_spreads(results: Results, column: str = "loss") -> list[Spread]:
    """Mean and spread over seeds, at the end, for each run and domain; of a column of the results:
    ``"loss"``, ``"weight"``, ``"share"``, ``"epochs"``, ``"driving_loss"``."""
    if LOSS_KINDS.get(column) is not float:
        known = [name for name, kind in LOSS_KINDS.items() if kind is float]
        raise ValueError(f"column {column!r} is not known; use one of {known!r}")
    found = []
    for run in results.runs:
        last = np.array([results.matrix(run, s, column)[1][-1] for s in results.seeds(run)])
        for domain, values in zip(results.domains, last.T, strict=True):
            mean, sd = float(values.mean()), deviation(values)
            found.append(Spread(run, domain, column, mean, sd, len(values)))
    return found


def tokens_to_target(
    results: Results,
    baseline: str,
    metric: str,
    *,
    runs: Sequence[str] | None = None,
    reference: Reference | None = None,
) -> list[Speedup]:
    """How many times fewer tokens a run needs than the baseline, for equal quality.

    Where a run ends at least as well as the baseline, the quality is the baseline's last; else it
    is the run's last, and the ratio is below 1. When a curve reaches it is read from the best so
    far, on straight lines between evaluations.

    Notes
    -----
    A learning rate that decays makes the last tokens count for more than the same number before:
    ratios are then nearer to 1 than those of runs that were planned to be shorter.
    """
    sign = -1.0 if is_task(metric) else 1.0
    found = []
    for run in _others(results, baseline, runs):
        ratios, bounds = [], []
        for seed in common_seeds(results, run, baseline, metric):
            (t, mine), (u, theirs) = (
                results.curve(name, seed, metric, reference) for name in (run, baseline)
            )
            ratio, bound = token_ratio(t, sign * mine, u, sign * theirs)
            ratios.append(ratio)
            bounds.append(bound)
        with np.errstate(divide="ignore", invalid="ignore"):  # a bound at no tokens is 0 or inf
            ratio, low, high = map(float, np.exp(student_interval(np.log(ratios))))
        at_most, at_least = bounds.count(-1), bounds.count(1)
        found.append(
            Speedup(
                run, baseline, metric, ratio, low, high, len(ratios), at_most, at_least,
                tuple(ratios),
            )
        )  # fmt: skip
    return found


def common_seeds(results: Results, run: str, baseline: str, metric: str) -> list[int]:
    """Seeds at which both runs have values of a metric."""
    theirs = set(results.seeds(baseline, metric))
    return [seed for seed in results.seeds(run, metric) if seed in theirs]


def _difference(run: str, baseline: str, metric: str, pairs: Array) -> Difference:
    gaps = pairs[:, 0] - pairs[:, 1]
    n, sd = len(gaps), deviation(gaps)
    mean, low, high = map(float, student_interval(gaps))
    unpaired = math.hypot(*(deviation(values) for values in pairs.T)) / math.sqrt(max(n, 1))
    below = int((gaps < 0).sum())
    p = p_value(mean, sd, n)
    return Difference(run, baseline, metric, mean, low, high, n, below, sd, unpaired, p, p)


def _value(curve: tuple[Array, Array], at: str | float) -> float:
    return float(curve[1][-1] if isinstance(at, str) else values_at(np.array([at]), *curve)[0])


def _others(results: Results, baseline: str, runs: Sequence[str] | None) -> list[str]:
    wanted = [baseline, *(results.runs if runs is None else runs)]
    for run in wanted:
        results.seeds(run)  # an unknown one is an error
    return [run for run in wanted if run != baseline]


def _check_at(at: str | float) -> None:
    if at != "end" and not is_number(at):
        raise ValueError(f"at must be 'end' or a number of tokens; got {at!r}")


def _warn_of_ends(run: str, baseline: str, ends: Array) -> None:
    """A run that was trained longer is not better for its rule."""
    off = ends.max(axis=1) > 1.01 * ends.min(axis=1)
    if off.any():
        mine, theirs = ends[int(np.argmax(off))].tolist()
        logger.warning(
            "%s ends at %s tokens and %s at %s; compare them at a number of tokens that both have",
            run, f"{mine:,}", baseline, f"{theirs:,}",
        )  # fmt: skip
