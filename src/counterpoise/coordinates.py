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

RANK_TOLERANCE = 1e-12


@dataclass(frozen=True)
class Coordinates:
    """A linear change of coordinates; ``basis`` is a matrix (p, r) or a diagonal (p,)."""

    basis: Array
    shift: Array
    intercept: bool
    radius: float | None = None
    _ball: tuple[Array | None, Array] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        d = len(self.shift)
        if self.basis.ndim == 1:
            values = self.basis**2
            if self.intercept:
                values = np.append(values[:d], 0.0)
            ball: tuple[Array | None, Array] = (None, values)
        else:
            coef = self.basis[:d]
            values, vectors = np.linalg.eigh(coef.T @ coef)
            ball = (vectors, np.maximum(values, 0.0))
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

    def from_user(self, w: Array) -> Array:
        """The solver point of given coefficients (nearest, if the basis has lower rank)."""
        w = np.array(w, dtype=float)
        if self.intercept:
            w[-1] += w[:-1] @ self.shift
        if self.basis.ndim == 1:
            return w / self.basis
        return np.linalg.lstsq(self.basis, w, rcond=None)[0]

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

    def coef_norm(self, u: Array) -> float:
        """``||coef||`` of the point ``u``."""
        vectors, values = self._ball
        v = u if vectors is None else vectors.T @ u
        return float(np.sqrt(np.sum(values * v**2)))

    def coef_gram(self) -> Array:
        """``C^T C`` with ``coef = C u``."""
        vectors, values = self._ball
        return np.diag(values) if vectors is None else (vectors * values) @ vectors.T

    def project(self, u: Array) -> Array:
        """The nearest ``u`` (in solver coordinates) with ``||coef|| <= radius``."""
        if self.radius is None or self.coef_norm(u) <= self.radius:
            return u
        vectors, values = self._ball
        v = u if vectors is None else vectors.T @ u
        top = values.max()
        ratio = values / top

        # ||coef|| along the path u(theta) = (I + theta C^T C)^-1 u falls as theta grows.
        def excess(theta: float) -> float:
            shrunk = v / (1.0 + theta * ratio)
            return float(np.sqrt(top * np.sum(ratio * shrunk**2))) - float(self.radius or 0.0)

        high = 1.0
        while excess(high) > 0:
            high *= 4.0
        theta = brentq(excess, 0.0, high, xtol=1e-15 * high, rtol=1e-14)
        v = v / (1.0 + theta * ratio)
        norm = float(np.sqrt(np.sum(values * v**2)))
        if norm > self.radius:  # the root finder's last rounding
            v = v * np.where(ratio > 0, self.radius / norm, 1.0)
        return v if vectors is None else vectors @ v


def plain(n_features: int, intercept: bool, radius: float | None) -> Coordinates:
    """The user's own coordinates."""
    return Coordinates(
        np.ones(n_features + int(intercept)), np.zeros(n_features), intercept, radius
    )


def scaled(
    second_moment: Array, shift: Array, intercept: bool, radius: float | None
) -> Coordinates:
    """Every feature divided by the root of its mean square; ``second_moment`` is a diagonal."""
    return Coordinates(1.0 / _sizes(second_moment, shift), shift, intercept, radius)


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
    return Coordinates(np.ascontiguousarray(basis), shift, intercept, radius)


def _dead(squares: Array, shift: Array) -> Array:
    """Columns that are constant up to rounding (nothing left after the shift)."""
    floor = np.zeros_like(squares)
    floor[: len(shift)] = (64 * np.finfo(float).eps * shift) ** 2
    return squares <= floor


def _sizes(squares: Array, shift: Array) -> Array:
    return np.where(_dead(squares, shift), 1.0, np.sqrt(np.maximum(squares, 0.0)))
