"""Means over seeds along tokens, with their intervals: the data of curves."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from counterpoise.lm.compare.estimates import student_interval, values_at
from counterpoise.lm.compare.results import Reference, Results
from counterpoise.lm.compare.summary import common_seeds

Array = np.ndarray
Curve = tuple[Array, Array]


class Band(NamedTuple):
    """A mean over seeds along tokens, with the bounds of its 95 % intervals."""

    tokens: Array
    mean: Array
    low: Array
    high: Array


def mean_curve(
    results: Results, run: str, metric: str, *, reference: Reference | None = None
) -> Band:
    """Average a metric over seeds along tokens."""
    curves = [results.curve(run, s, metric, reference) for s in results.seeds(run, metric)]
    if not curves:
        raise ValueError(f"run {run!r} has no values of {metric!r}")
    tokens = shared_tokens(curves)
    return Band(tokens, *student_interval(np.array([values_at(tokens, *c) for c in curves])))


def paired_curve(
    results: Results, run: str, baseline: str, metric: str, *, reference: Reference | None = None
) -> Band:
    """Average the paired difference from the baseline along tokens."""
    pairs = [
        (results.curve(run, s, metric, reference), results.curve(baseline, s, metric, reference))
        for s in common_seeds(results, run, baseline, metric)
    ]
    if not pairs:
        raise ValueError(
            f"runs {run!r} and {baseline!r} have no seed in common with values of {metric!r}"
        )
    tokens = shared_tokens([curve for both in pairs for curve in both])
    gaps = [values_at(tokens, *mine) - values_at(tokens, *theirs) for mine, theirs in pairs]
    return Band(tokens, *student_interval(np.array(gaps)))


def shared_tokens(curves: list[Curve]) -> Array:
    """Return the first curve's tokens within the range of all curves, which may differ by seed."""
    start = max(tokens[0] for tokens, _ in curves)
    end = min(tokens[-1] for tokens, _ in curves)
    return np.unique(np.clip(curves[0][0], start, end))
