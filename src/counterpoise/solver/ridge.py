"""The ridge: a penalty on coefficients that is part of the stated objective."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy import sparse

from counterpoise.rows.engines.base import SumEngine
from counterpoise.rows.engines.questions import Question

Array = np.ndarray


@dataclass(frozen=True)
class Ridge:
    """``alpha / 2 sum_k (scale_k coef_k)^2``, as a function of solver coordinates.

    ``root`` maps one block of coordinates to the ``scale_k coef_k``; it is a matrix (d, r), or a
    diagonal (r,) with a zero for the intercept. ``count`` is the number of blocks. Where columns
    are nearly equal, large entries of the root cancel, so values are not taken from its square.
    ``scale`` (d,) holds the features' standard deviations (root mean squares without an
    intercept), so that units of features do not matter.
    """

    alpha: float
    scale: Array
    root: Array
    count: int = 1

    @property
    def gram(self) -> Array:
        """The square of the root: a matrix, or a diagonal."""
        return self.root**2 if self.root.ndim == 1 else self.root.T @ self.root

    @property
    def largest(self) -> float:
        """The largest second derivative."""
        root = np.abs(self.root).max(initial=0.0) if self.root.ndim == 1 else (
            np.linalg.norm(self.root, 2) if self.root.size else 0.0
        )  # fmt: skip
        return self.alpha * float(root) ** 2

    def pull(self, u: Array) -> Array:
        """Return the gradient."""
        out = self.scaled(u)
        out = out * self.root if self.root.ndim == 1 else out @ self.root
        return self.alpha * out.reshape(-1)

    def value(self, u: Array) -> float:
        return 0.5 * self.alpha * float(np.sum(self.scaled(u) ** 2))

    def matrix(self) -> Array:
        """Return the matrix of second derivatives."""
        one = np.diag(self.gram) if self.root.ndim == 1 else self.gram
        return self.alpha * np.kron(np.eye(self.count), one)

    def rounding(self, u: Array) -> tuple[float, Array]:
        """Bound the errors of value and gradient at ``u`` from rounding."""
        sizes = replace(self, root=np.abs(self.root))
        unit = (sum(self.root.shape) + 4) * np.finfo(float).eps
        reach = sizes.scaled(np.abs(u))
        lost = self.alpha * unit * float(np.sum(reach * (np.abs(self.scaled(u)) + unit * reach)))
        return lost, unit * sizes.pull(np.abs(u))

    def scaled(self, u: Array) -> Array:
        """Return ``scale_k coef_k`` of every block."""
        parts = u.reshape(self.count, -1)
        return parts * self.root if self.root.ndim == 1 else parts @ self.root.T


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
