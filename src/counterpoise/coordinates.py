"""Coordinates in which the solver works, and the way back to the user's.

The solver sees ``u`` with ``(coef, intercept about the shift) = basis @ u``; whitening makes
the average second moment of the features the identity, scaling only its diagonal. The ball
``||coef|| <= radius`` is always meant in the user's coordinates.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from scipy.optimize import brentq

Array = np.ndarray

# Directions whose share of the features' variance is below this are rounding, and left out.
RANK_TOLERANCE = 1e-13


@dataclass(frozen=True)
class Coordinates:
    """A linear change of coordinates; ``basis`` is a matrix (p, r) or a diagonal (p,).

    ``dropped`` counts directions that were left out although no column there is constant.
    """

    basis: Array
    shift: Array
    intercept: bool
    radius: float | None = None
    dropped: int = 0
    _ball: tuple[Array | None, Array] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        # Singular vectors and values of C, where coef = C u.
        d = len(self.shift)
        ball: tuple[Array | None, Array]
        if self.basis.ndim == 1:
            ball = (None, np.append(self.basis[:d], 0.0) if self.intercept else self.basis)
        else:
            _, values, rows = np.linalg.svd(self.basis[:d])
            ball = (rows.T, np.append(values, np.zeros(len(rows) - len(values))))
        object.__setattr__(self, "_ball", ball)

    @property
    def size(self) -> int:
        """Number of solver coordinates."""
        return self.basis.shape[-1]

    def to_user(self, u: Array) -> Array:
        """Coefficients (intercept last) of one point, or of a stack of them."""
        w = u * self.basis if self.basis.ndim == 1 else u @ self.basis.T
        if self.intercept:
            d = len(self.shift)
            w = w.copy()
            w[..., d] -= w[..., :d] @ self.shift
        return w

    def pull(self, grad: Array) -> Array:
        """Gradients in user coordinates to gradients in ``u``."""
        if self.intercept:
            d = len(self.shift)
            grad = grad.copy()
            grad[..., :d] -= grad[..., d:] * self.shift
        return grad * self.basis if self.basis.ndim == 1 else grad @ self.basis

    def pull_curvature(self, hess: Array) -> Array:
        """Matrices in shifted user coordinates to matrices in ``u``."""
        if self.basis.ndim == 1:
            return hess * np.outer(self.basis, self.basis)
        return self.basis.T @ hess @ self.basis

    def coef(self, u: Array) -> Array:
        """The coefficients of the point ``u``, without the intercept."""
        d = len(self.shift)
        return (u * self.basis)[:d] if self.basis.ndim == 1 else self.basis[:d] @ u

    def coef_norm(self, u: Array) -> float:
        """``||coef||`` of the point ``u``."""
        return float(np.linalg.norm(self.coef(u)))

    def coef_gram(self) -> Array:
        """``C^T C`` with ``coef = C u``."""
        vectors, values = self._ball
        return np.diag(values**2) if vectors is None else (vectors * values**2) @ vectors.T

    def project(self, u: Array) -> Array:
        """The nearest ``u`` (in solver coordinates) with ``||coef|| <= radius``."""
        if self.radius is None or self.coef_norm(u) <= self.radius:
            return u
        radius = self.radius
        vectors, values = self._ball
        v = u if vectors is None else vectors.T @ u
        top = values.max()
        ratio = values / top

        # ||coef|| along the path u(theta) = (I + theta C^T C)^-1 u falls as theta grows.
        def excess(theta: float) -> float:
            return top * float(np.linalg.norm(ratio * v / (1.0 + theta * ratio**2))) - radius

        high = 1.0
        while excess(high) > 0:
            high *= 4.0
        if excess(0.0) > 0:
            theta = brentq(excess, 0.0, high, xtol=1e-15 * high, rtol=1e-14)
            v = v / (1.0 + theta * ratio**2)
        u = v if vectors is None else vectors @ v
        norm = self.coef_norm(u)
        if norm > radius:  # rounding of the above; every coordinate but the intercept's shrinks
            u = u.copy()
            u[: len(u) - int(self.intercept)] *= radius / norm * (1 - 2**-52)
        return u


def plain(n_features: int, intercept: bool, radius: float | None) -> Coordinates:
    """The user's own coordinates."""
    return Coordinates(
        np.ones(n_features + int(intercept)), np.zeros(n_features), intercept, radius
    )


def scaled(
    second_moment: Array, shift: Array, intercept: bool, radius: float | None
) -> Coordinates:
    """Every feature divided by the root of its mean square; ``second_moment`` is a diagonal."""
    dead = _dead(second_moment, shift)
    basis = np.where(dead, 0.0, 1.0 / _sizes(second_moment, shift))
    return Coordinates(basis, shift, intercept, radius)


def whitened(
    second_moment: Array, shift: Array, intercept: bool, radius: float | None
) -> Coordinates:
    """Coordinates in which ``second_moment`` (p, p) is the identity on its range.

    With an intercept the features are centred at their mean first, so that the result does not
    depend on the shift. Directions in which the features do not vary (constant or duplicate
    columns, fewer rows than features) are left out: coefficients have no component there.
    """
    d = len(shift)
    mean = second_moment[:d, d] if intercept else np.zeros(d)
    covariance = second_moment[:d, :d] - np.outer(mean, mean)
    squares = np.diag(covariance)
    dead = _dead(squares, shift + mean)
    size = _sizes(squares, shift + mean)
    correlation = covariance / np.outer(size, size)
    correlation[dead, :] = correlation[:, dead] = 0.0
    values, vectors = np.linalg.eigh(0.5 * (correlation + correlation.T))
    keep = values > RANK_TOLERANCE * max(values[-1], np.finfo(float).tiny)
    vectors = vectors[:, keep]
    basis = (vectors / np.sqrt(values[keep])) / size[:, None]
    if vectors.shape[1] < d:
        # Keep to the row space of the features: what is outside changes no score, but would
        # count in the norm of the coefficients.
        rows = np.linalg.qr(size[:, None] * vectors)[0]
        basis = rows @ (rows.T @ basis)
    if intercept:
        rank = basis.shape[1]
        whole = np.zeros((d + 1, rank + 1))
        whole[:d, :rank], whole[d, :rank], whole[d, rank] = basis, -mean @ basis, 1.0
        basis = whole
    dropped = d - int(dead.sum()) - vectors.shape[1]
    return Coordinates(np.ascontiguousarray(basis), shift, intercept, radius, dropped)


def _dead(squares: Array, shift: Array) -> Array:
    """Columns that are constant up to rounding (nothing left after the shift)."""
    floor = np.zeros_like(squares)
    floor[: len(shift)] = (64 * np.finfo(float).eps * shift) ** 2
    return squares <= floor


def _sizes(squares: Array, shift: Array) -> Array:
    return np.where(_dead(squares, shift), 1.0, np.sqrt(np.maximum(squares, 0.0)))
