"""The ridge: a penalty on coefficients that is part of the stated objective."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

from counterpoise.rows.engines.base import SumEngine
from counterpoise.rows.engines.questions import Question

Array = np.ndarray


@dataclass(frozen=True)
class Ridge:
    """``alpha / 2 sum_k (scale_k coef_k)^2``, as a function of solver coordinates.

    ``gram`` is its matrix for one block of coordinates, or the diagonal; ``count`` is the number of
    blocks.
    ``scale`` (d,) holds the features' standard deviations (root mean squares without an
    intercept), so that units of features do not matter.
    """

    alpha: float
    scale: Array
    gram: Array
    count: int = 1

    def pull(self, u: Array) -> Array:
        """Return the gradient."""
        parts = u.reshape(self.count, -1)
        out = parts * self.gram if self.gram.ndim == 1 else parts @ self.gram
        return self.alpha * out.reshape(-1)

    def value(self, u: Array) -> float:
        return 0.5 * float(u @ self.pull(u))

    def matrix(self) -> Array:
        """Return the matrix of second derivatives."""
        one = np.diag(self.gram) if self.gram.ndim == 1 else self.gram
        return self.alpha * np.kron(np.eye(self.count), one)


@dataclass(frozen=True, eq=False)
class FeatureSums(Question):
    """Sums of ``x - shift`` for every feature: (K, d)."""

    alike = True

    shift: Array

    def of_rows(self, X: Any, y: Array, weights: Array, group: int) -> Array:
        if sparse.issparse(X):
            return np.asarray(X.T @ weights, dtype=float).ravel() - weights.sum() * self.shift
        return weights @ (np.asarray(X, dtype=float) - self.shift)


def feature_means(engine: SumEngine, prior: Array) -> Array:
    """Return the features' mean about ``engine.shift``, averaged over groups by the prior."""
    return (prior / engine.census.totals) @ engine.ask(FeatureSums(engine.shift))
