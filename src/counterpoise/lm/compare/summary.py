"""Paired differences, spreads over seeds, and tokens to equal quality.

All runs of a seed start from one model and read the same streams, so a seed affects them alike.
Differences are therefore taken seed by seed, and their mean has an interval by Student's t.
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
        The mean difference and its 95 % interval; NaN if there are too few seeds.
    n : int
        Number of seeds.
    below : int
        Number of seeds at which the run is below the baseline.
    sd : float
        Standard deviation of the differences.
    unpaired_error : float
        Standard error if the seeds of both were unrelated; compare `error`.
    p, p_holm : float
        p-value of the paired t test, and adjusted by Holm for the number of runs compared.
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
        Geometric mean over seeds and its 95 % interval. Above 1, the run is faster. If some seeds
        have only a bound, the mean is a bound and has no interval; it is NaN if bounds of both
        kinds occur.
    n : int
        Number of seeds.
    at_most, at_least : int
        Number of seeds with only a bound, because the first evaluation is already good enough; they
        count with their bounds.
    ratios : tuple of float
        Ratio of each seed.
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
        """Number of seeds with only a bound."""
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
    """Compare each run with the baseline, seed by seed.

    Parameters
    ----------
    results : Results
    baseline : str
        A run. Choose another baseline to isolate the effect of what differs between two runs.
    metric, reference
        See :meth:`Results.curve`.
    at : "end" or float
        The last evaluations, or a number of tokens, interpolated between evaluations.
    runs : sequence of str, optional
        Runs to compare; all others by default. Holm's adjustment counts these.
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
    """Summarise a column over seeds at the end, for each run and domain.

    ``column`` is ``"loss"``, ``"weight"``, ``"share"``, ``"epochs"`` or ``"driving_loss"``.
    """
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
    """Compute how many times fewer tokens each run needs than the baseline, for equal quality.

    If a run ends at least as well as the baseline, the quality is the baseline's last value;
    otherwise it is the run's last value, and the ratio is below 1. A curve reaches a value when its
    best so far does, on straight lines between evaluations.

    Notes
    -----
    With a decaying learning rate, the last tokens count for more than earlier ones, so ratios are
    closer to 1 than those of runs that were planned to be shorter.
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
        if at_most or at_least:  # the spread of bounds says nothing about the ratios themselves
            low = high = math.nan
            ratio = math.nan if at_most and at_least else ratio
        found.append(
            Speedup(
                run, baseline, metric, ratio, low, high, len(ratios), at_most, at_least,
                tuple(ratios),
            )
        )  # fmt: skip
    return found


def common_seeds(results: Results, run: str, baseline: str, metric: str) -> list[int]:
    """List the seeds at which both runs have values of a metric."""
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
    """Warn if one run was trained longer than the other."""
    off = ends.max(axis=1) > 1.01 * ends.min(axis=1)
    if off.any():
        mine, theirs = ends[int(np.argmax(off))].tolist()
        logger.warning(
            "%s ends at %s tokens and %s at %s; compare them at a number of tokens that both have",
            run, f"{mine:,}", baseline, f"{theirs:,}",
        )  # fmt: skip
