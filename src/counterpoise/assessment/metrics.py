"""Risks by group, usable as scikit-learn metrics."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils.validation import check_consistent_length, column_or_1d

from counterpoise.dual.divergences import Divergence, risk
from counterpoise.rows.backends import to_host
from counterpoise.rows.frames import given
from counterpoise.rows.groups import check_sample_weight, label_list
from counterpoise.rows.memberships import RowGroups

Array = np.ndarray


def group_risks(
    y_true: Array, y_pred: Array, *, groups: Any, sample_weight: Array | None = None
) -> dict[Any, float]:
    """Compute the mean squared error of every group, as a mapping label -> error.

    ``groups`` are labels or memberships, as in :meth:`counterpoise.GroupDRONeuron.fit`.

    >>> group_risks([0.0, 1.0, 1.0], [0.0, 0.0, 1.0], groups=["a", "a", "b"])
    {'a': 0.5, 'b': 0.0}
    """
    labels, means = _group_means(y_true, y_pred, groups, sample_weight)
    return dict(zip(label_list(labels), means.tolist(), strict=True))


def worst_group_risk(
    y_true: Array, y_pred: Array, *, groups: Any, sample_weight: Array | None = None
) -> float:
    """Compute the largest mean squared error of any group.

    To make a scorer: ``make_scorer(worst_group_risk, greater_is_better=False)
    .set_score_request(groups=True)``.

    >>> worst_group_risk([0.0, 1.0, 1.0], [0.0, 0.0, 1.0], groups=["a", "a", "b"])
    0.5
    """
    return float(_group_means(y_true, y_pred, groups, sample_weight)[1].max())


def robust_risk(
    y_true: Array,
    y_pred: Array,
    *,
    groups: Any,
    nu: float,
    divergence: str | Divergence = "kl",
    sample_weight: Array | None = None,
) -> float:
    """Compute the regularised risk ``R`` of predictions, with a uniform prior over groups."""
    return risk(_group_means(y_true, y_pred, groups, sample_weight)[1], nu, divergence)


def _group_means(
    y_true: Array, y_pred: Array, groups: Any, sample_weight: Array | None
) -> tuple[Array, Array]:
    squares = squared_errors(y_true, y_pred)
    found = RowGroups.of(to_host(groups), len(squares))
    weights = check_sample_weight(to_host(sample_weight), len(squares))
    if weights is None:
        weights = np.ones(len(squares))
    totals = check_totals(found, weights)
    return found.labels, found.sums(weights * squares) / totals


def check_totals(groups: RowGroups, weights: Array) -> Array:
    """Return the total weight of every group, after checking that it is positive."""
    totals = groups.sums(weights)
    if (totals <= 0).any():
        empty = label_list(groups.labels)[int(np.argmin(totals))]
        raise ValueError(f"sample_weight is zero on all rows of group {empty!r}; leave it out")
    return totals


def squared_errors(y_true: Any, y_pred: Any) -> Array:
    """Compute ``(y_true - y_pred)^2`` for every row."""
    y_true = given(to_host(y_true), "y_true")
    y_pred = given(to_host(y_pred), "y_pred")
    check_consistent_length(y_true, y_pred)
    y_true, y_pred = column_or_1d(y_true), column_or_1d(y_pred)
    return (np.asarray(y_true, dtype=float) - np.asarray(y_pred, dtype=float)) ** 2
