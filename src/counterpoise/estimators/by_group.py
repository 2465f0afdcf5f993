"""Coefficients that depend on the group, for groups that are known when predictions are made.

Every fit here gives each group its own coefficients: the group as a feature (one intercept per
group), one fit per group, and what lies between. *Partial pooling* fits a group to its own rows and
to some pseudo-rows: rows of all groups, labelled by the fit with the group as a feature. Their
number is the strength of the pull; for squared errors of a linear model this is a ridge towards
that fit.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from scipy import sparse
from scipy.special import expit, softmax

from counterpoise.activations import get_activation
from counterpoise.solver.options import FitOptions
from counterpoise.solver.solve import open_solver, running

Array = np.ndarray

# Rows per coefficient that a group needs for a fit of its own.
ENOUGH = 5.0
# Most pseudo-rows that stand for all rows, and the least.
MOST_PSEUDO, LEAST_PSEUDO = 2000, 200


def by_group(coefs: Array, n_features: int, n_groups: int, base: int | None) -> Array:
    """Return the coefficients of every group from those of features and indicators.

    ``coefs`` has shape (..., d + indicators + 1), intercept last; the result (K, ..., d + 1).
    """
    slopes, shifts = coefs[..., :n_features], coefs[..., n_features:-1]
    out = np.empty((n_groups, *coefs.shape[:-1], n_features + 1))
    out[..., :n_features] = slopes
    out[..., -1] = coefs[..., -1]
    kept = [k for k in range(n_groups) if k != base]
    for i, k in enumerate(kept):
        out[k, ..., -1] += shifts[..., i]
    return out


def group_scores(X: Any, codes: Array, coefs: Array) -> Array:
    """Return the scores (n, S) of rows whose group ``k`` has coefficients ``coefs[k]``: (S, p)."""
    out = np.empty((len(codes), coefs.shape[1]))
    for k in np.unique(codes):
        rows = np.flatnonzero(codes == k)
        out[rows] = np.asarray(X[rows] @ coefs[k, :, :-1].T) + coefs[k, :, -1]
    return out


def own_fits(
    X: Any, y: Array, codes: Array, weights: Array, pooled: Array, options: FitOptions, pull: float
) -> Array:
    """Fit every group to its own rows, pulled towards the ``pooled`` coefficients.

    Parameters
    ----------
    pooled : array of shape (K, S, d + 1)
        The coefficients of every group in the fit with the group as a feature.
    pull : float
        Number of pseudo-rows per coefficient. With 0, groups with fewer than five rows per
        coefficient keep their pooled coefficients.

    Returns
    -------
    array of shape (K, S, d + 1)
    """
    out, p = pooled.copy(), pooled.shape[2]
    some = _pseudo_rows(len(y), p) if pull else np.empty(0, dtype=np.int64)
    linear = options.row_loss().is_quadratic
    mass = float(weights.mean()) or 1.0
    moment = _moment(X[some]) / len(some) if pull and linear else None
    for k in range(len(pooled)):
        rows = np.flatnonzero(codes == k)
        if not len(rows) or (not pull and len(rows) < ENOUGH * p):
            continue
        own = weights[rows] / mass
        if linear:
            out[k, 0] = _ridge(X[rows], y[rows], own, pooled[k, 0], moment, pull * p)
        else:
            parts = [(X[rows], y[rows], own)]
            if pull:
                parts += _pseudo_labelled(X[some], pooled[k], options, pull * p)
            out[k] = _average(parts, pooled[k], options)
    return out


def _pseudo_rows(n: int, p: int) -> Array:
    """Return the rows that stand for all: evenly spaced, so that each group has its share."""
    count = min(n, max(LEAST_PSEUDO, min(20 * p, MOST_PSEUDO)))
    return np.linspace(0, n - 1, count).round().astype(np.int64)


def _dense(X: Any) -> Array:
    """Return features as float64 with a last column of ones: the indicator of the group."""
    values = np.asarray(X.todense() if sparse.issparse(X) else X, dtype=float)
    return np.hstack([values, np.ones((len(values), 1))])


def _moment(X: Any) -> Array:
    values = _dense(X)
    return np.asarray(values.T @ values)


def _ridge(
    X: Any,
    y: Array,
    weights: Array,
    pooled: Array,
    moment: Array | None,
    rows: float,
) -> Array:
    """Least squares with a penalty ``rows * (w - pooled)' moment (w - pooled)``."""
    values = _dense(X)
    hessian = values.T @ (weights[:, None] * values)
    if moment is not None:
        hessian += rows * moment
    gradient = values.T @ (weights * (y - values @ pooled))
    # In units of the diagonal, so that features in other units count alike; directions that the
    # rows do not show stay as they are pooled.
    unit = np.sqrt(np.diag(hessian))
    unit[unit <= 0] = 1.0  # a feature that is zero throughout the group
    step = np.linalg.pinv(hessian / np.outer(unit, unit), rcond=1e-10, hermitian=True)
    return np.asarray(pooled + (step @ (gradient / unit)) / unit)


def _pseudo_labelled(
    X: Any, pooled: Array, options: FitOptions, total: float
) -> list[tuple[Any, Array, Array]]:
    """Return rows with the labels that the pooled fit predicts, of some total weight.

    A row of classes appears once per class, weighted by the probability of the class.
    """
    scores = np.asarray(X @ pooled[:, :-1].T) + pooled[:, -1]
    share = total / len(scores)
    if options.loss is None:
        labels = get_activation(options.activation).value(scores[:, 0])
        return [(X, labels, np.full(len(labels), share))]
    if scores.shape[1] == 1:
        right = expit(scores[:, 0])
        chances = np.column_stack([1.0 - right, right])
    else:
        chances = softmax(scores, axis=1)
    return [
        (X, np.full(len(scores), float(c)), share * chances[:, c] + 1e-12)
        for c in range(chances.shape[1])
    ]


def _average(parts: list[tuple[Any, Array, Array]], pooled: Array, options: FitOptions) -> Array:
    """Return the plain average over weighted rows; the pooled coefficients if a class is absent."""
    y = np.concatenate([part[1] for part in parts])
    if options.loss is not None and len(np.unique(y)) < max(2, pooled.shape[0]):
        return pooled
    rows = [part[0] for part in parts]
    X = sparse.vstack(rows, format="csr") if sparse.issparse(rows[0]) else np.vstack(rows)
    weights = np.concatenate([part[2] for part in parts])
    # A group's indicator is its intercept, whether or not there is one for all groups.
    plain = replace(options, prior=None, reference=None, fit_intercept=True)
    solver = open_solver(X, y, None, weights, options=plain, check_input=False)
    with running(solver):
        coef = solver.average()[0]
    return np.asarray(coef).reshape(pooled.shape)
