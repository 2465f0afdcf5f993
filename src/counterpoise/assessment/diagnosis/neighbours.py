"""Floors of the error of any classifier, from rows that are alike.

Two estimates, neither of which fits a model:

tied          Rows with equal features and different labels. Whatever the classifier, it errs on the
              rows of the rarer labels; this is exact for these rows, and zero if no rows are equal.
neighbours    The share of rows whose nearest neighbour has another label. With infinitely many rows
              it lies between the Bayes error ``e`` and ``e (2 - C e / (C - 1))`` (T. Cover and P.
              Hart, 1967), which gives a lower bound on ``e``. With few rows, or many features,
              neighbours are far, and then the estimate is too high. So it is an indication, not a
              proof.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from sklearn.neighbors import NearestNeighbors

from counterpoise.assessment.proportions import wilson_bounds

Array = np.ndarray

# Rows whose neighbours are searched, the features beyond which they are not, and fewest rows.
MOST_ROWS, MOST_FEATURES, FEWEST_ROWS = 4000, 30, 50


class AlikeRows(NamedTuple):
    """Floors of one group's error, in shares of its rows; NaN if not known.

    ``tied`` is exact for these rows. ``neighbours`` is the error of the nearest-neighbour rule, and
    ``bayes`` the lower bound on the Bayes error that follows from the low end of its 95% interval.
    """

    tied: float
    neighbours: float
    bayes: float


def alike_rows(X: Array, classes: Array, n_classes: int, weights: Array | None = None) -> AlikeRows:
    """Measure the rows of one group; features should have comparable scales."""
    w = np.ones(len(X)) if weights is None else weights
    tied = _tied(X, classes, n_classes, w)
    if len(X) < FEWEST_ROWS or X.shape[1] > MOST_FEATURES or not X.shape[1]:
        return AlikeRows(tied, math.nan, math.nan)
    rows = np.arange(len(X))
    if len(X) > MOST_ROWS:
        rows = np.linspace(0, len(X) - 1, MOST_ROWS).astype(np.int64)
    near = NearestNeighbors(n_neighbors=2).fit(X).kneighbors(X[rows], return_distance=False)
    other = np.where(near[:, 0] == rows, near[:, 1], near[:, 0])
    wrong = (classes[other] != classes[rows]).astype(float)
    share = float(np.average(wrong, weights=w[rows]))
    size = float(w[rows].sum() ** 2 / (w[rows] ** 2).sum())
    low = float(wilson_bounds(np.array([share]), np.array([size]), 0.025)[0][0])
    return AlikeRows(tied, share, bayes_bound(low, n_classes))


def bayes_bound(neighbours: float, n_classes: int) -> float:
    """Return the Bayes error below which the nearest-neighbour error could not be this high.

    >>> bayes_bound(0.5, 2), bayes_bound(0.0, 2), round(bayes_bound(0.32, 2), 3)
    (0.5, 0.0, 0.2)
    """
    most = (n_classes - 1) / n_classes
    return most * (1.0 - math.sqrt(max(1.0 - neighbours / most, 0.0)))


def _tied(X: Array, classes: Array, n_classes: int, w: Array) -> float:
    """Return the share of rows that any function of the features gets wrong."""
    alike = np.unique(X, axis=0, return_inverse=True)[1].reshape(-1)
    cells = np.zeros((int(alike.max()) + 1, n_classes))
    np.add.at(cells, (alike, classes), w)
    return float((cells.sum(axis=1) - cells.max(axis=1)).sum() / w.sum())
