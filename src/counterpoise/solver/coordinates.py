"""The solver's coordinates, and the maps to and from the user's.

The solver works with ``u``, where ``(coef, intercept about the shift) = basis @ u``. Whitening
makes the average second moment of the features the identity; scaling only makes its diagonal one.
The ball ``||coef|| <= radius`` always refers to the user's coordinates.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from scipy.optimize import brentq

Array = np.ndarray

# Directions with a smaller share of the features' variance are lost in the rounding of a second
# moment. They are dropped unless the rows can be read again in better coordinates.
RANK_TOLERANCE = 1e-13
# With smaller shares than this, rounding of the second moment affects the coordinates.
STIFF = 1e-7
# Features whose sizes differ by more than this are balanced before coefficients are compared.
UNEVEN = 1e6
# Variation below this multiple of the features' precision is taken for rounding.
NOISE = 256.0


@dataclass(frozen=True)
class Coordinates:
    """A linear change of coordinates; ``basis`` is a matrix (p, r) or a diagonal (p,).

    ``dropped`` counts the directions that were left out, except constant columns. ``stiff``
    coordinates stretch some directions so much that matrices should be summed over mapped rows.
    If ``noise`` is not None, the coordinates should be :meth:`refined`: variation below this share
    of the features' ``scale`` is rounding, and ``mean`` is the mean of the shifted features.

    The columns of ``left_out`` (d, dropped) are the directions left out.
    ``units`` are powers of two in which features can be squared, None if they can be as they are.
    ``standardised`` coordinates prefer, of coefficients with the same scores, those that are
    smallest for features of unit variance; others those that are smallest as they are.
    """

    basis: Array
    shift: Array
    intercept: bool
    radius: float | None = None
    dropped: int = 0
    stiff: bool = False
    noise: float | None = None
    mean: Array | None = None
    scale: Array | None = None
    left_out: Array | None = None
    units: Array | None = None
    standardised: bool = False

    @cached_property
    def ball(self) -> tuple[Array | None, Array]:
        """Singular vectors and values of ``C``, where ``coef = C u``."""
        d = len(self.shift)
        if self.basis.ndim == 1:
            return None, np.append(self.basis[:d], 0.0) if self.intercept else self.basis
        _, values, rows = np.linalg.svd(self.basis[:d])
        return rows.T, np.append(values, np.zeros(len(rows) - len(values)))

    @property
    def size(self) -> int:
        """Number of solver coordinates."""
        return self.basis.shape[-1]

    def to_user(self, u: Array) -> Array:
        """Map one point, or a stack of points, to the user's coefficients, intercept last."""
        with np.errstate(over="ignore", invalid="ignore"):
            w = u * self.basis if self.basis.ndim == 1 else u @ self.basis.T
        if self.units is not None:
            _check_finite(w)
        if self.intercept:
            d = len(self.shift)
            w = w.copy()
            w[..., d] -= w[..., :d] @ self.shift
        return w

    def from_user(self, w: Array) -> Array:
        """Return the ``u`` whose coefficients are ``w``, or closest to it."""
        if self.intercept:
            d = len(self.shift)
            w = w.copy()
            w[d] += w[:d] @ self.shift
        if self.basis.ndim == 1:
            alive = self.basis != 0
            return np.where(alive, w, 0.0) / np.where(alive, self.basis, 1.0)
        basis = self.basis
        if self.units is not None:
            units = np.append(self.units, 1.0) if self.intercept else self.units
            basis, w = basis / units[:, None], w / (units if w.ndim == 1 else units[:, None])
        return np.linalg.lstsq(basis, w, rcond=1e-15)[0]

    def refined(self, second_moment: Array) -> tuple[Coordinates, Array]:
        """Whiten again, by the second moment of rows mapped to these coordinates.

        Such a moment loses no digits to ill-conditioned features (as in a repeated Cholesky QR),
        so it can distinguish small directions from rounding. Return the new coordinates and the
        change of coordinates.
        """
        r = self.size - int(self.intercept)
        mean = second_moment[:r, r] if self.intercept else np.zeros(r)
        covariance = second_moment[:r, :r] - np.outer(mean, mean)
        values, vectors = np.linalg.eigh(0.5 * (covariance + covariance.T))
        keep = values > (self.noise or 0.0) ** 2 / RANK_TOLERANCE
        d = len(self.shift)
        balance = np.ones(d)
        if self.scale is not None:
            alive = np.abs(self.basis[:d]).max(axis=1, initial=0.0) > 0
            balance = _balance(self.scale, alive, self.standardised)
        null = (self.basis[:d, :r] @ vectors[:, ~keep]) / balance[:, None]
        left_out = _side_by_side(self.left_out, null * balance[:, None])
        change = vectors[:, keep] / np.sqrt(values[keep])
        if self.intercept:
            step = np.zeros((r + 1, change.shape[1] + 1))
            step[:r, :-1], step[r, :-1], step[r, -1] = change, -mean @ change, 1.0
            change = step
        with np.errstate(over="ignore", invalid="ignore"):
            basis = self.basis @ change
        _check_finite(basis)
        if null.shape[1]:  # keep coefficients in the row space of the features
            null = np.linalg.qr(null / np.linalg.norm(null, axis=0))[0]
            outside = (null @ (null.T @ (basis[:d] / balance[:, None]))) * balance[:, None]
            basis[:d] -= outside
            if self.intercept and self.mean is not None:  # constant scores there, not zero
                basis[d] += self.mean @ outside
        stretch = np.linalg.svd(basis[:d] * (1.0 if self.scale is None else self.scale[:, None]),
                                compute_uv=False)[: int(keep.sum())]  # fmt: skip
        better = replace(
            self,
            stiff=self.units is not None
            or bool(stretch.min(initial=1.0) ** 2 < STIFF * stretch.max(initial=0.0) ** 2),
            basis=np.ascontiguousarray(basis),
            dropped=self.dropped + null.shape[1],
            left_out=left_out,
            noise=None if values[keep].min(initial=1.0) > 1e-3 else self.noise,
        )
        return better, change

    def pull(self, grad: Array) -> Array:
        """Map gradients in user coordinates to gradients in ``u``."""
        if self.intercept:
            d = len(self.shift)
            grad = grad.copy()
            grad[..., :d] -= grad[..., d:] * self.shift
        return grad * self.basis if self.basis.ndim == 1 else grad @ self.basis

    @property
    def map(self) -> Array:
        """The matrix ``basis``, also if only its diagonal is kept."""
        return np.diag(self.basis) if self.basis.ndim == 1 else self.basis

    def pull_curvature(self, hess: Array) -> Array:
        """Map matrices in shifted user coordinates to matrices in ``u``."""
        if self.basis.ndim == 1:
            return hess * np.outer(self.basis, self.basis)
        return self.basis.T @ hess @ self.basis

    def coef(self, u: Array) -> Array:
        """Return the coefficients of the point ``u``, without the intercept."""
        d = len(self.shift)
        return (u * self.basis)[:d] if self.basis.ndim == 1 else self.basis[:d] @ u

    def coef_norm(self, u: Array) -> float:
        """Return ``||coef||`` of the point ``u``."""
        coef = self.coef(u)
        largest = float(np.abs(coef).max(initial=0.0))
        if not 1e-100 < largest < 1e100:  # squares may not be representable
            return largest * float(np.linalg.norm(coef / largest)) if largest else 0.0
        return float(np.linalg.norm(coef))

    def coef_gram(self) -> Array:
        """Return ``C^T C`` where ``coef = C u``."""
        vectors, values = self.ball
        return np.diag(values**2) if vectors is None else (vectors * values**2) @ vectors.T

    def project(self, u: Array) -> Array:
        """Return the nearest ``u`` (in solver coordinates) with ``||coef|| <= radius``."""
        if self.radius is None or self.coef_norm(u) <= self.radius:
            return u
        radius = self.radius
        vectors, values = self.ball
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
        if norm > radius:  # correct for rounding: shrink every coordinate but the intercept's
            u = u.copy()
            u[: len(u) - int(self.intercept)] *= radius / norm * (1 - 2**-52)
        return u


def unscaled(n_features: int, intercept: bool, radius: float | None) -> Coordinates:
    """Return the user's own coordinates."""
    return Coordinates(
        np.ones(n_features + int(intercept)), np.zeros(n_features), intercept, radius
    )


def scaled(
    second_moment: Array,
    shift: Array,
    intercept: bool,
    radius: float | None,
    units: Array | None = None,
) -> Coordinates:
    """Divide every feature by its root mean square; ``second_moment`` is a diagonal.

    With ``units``, it is the one of features in these units.
    """
    factors = np.ones(len(shift)) if units is None else units
    dead = _dead(second_moment, shift * factors)
    basis = np.where(dead, 0.0, 1.0 / _sizes(second_moment, shift * factors))
    basis[: len(shift)] = _in_units(basis[: len(shift)], factors)
    stiff = units is not None
    return Coordinates(basis, shift, intercept, radius, stiff=stiff, units=units)


def whitened(
    second_moment: Array,
    shift: Array,
    intercept: bool,
    radius: float | None,
    precision: float | None = None,
    units: Array | None = None,
    *,
    standardised: bool = False,
) -> Coordinates:
    """Return coordinates in which ``second_moment`` (p, p) is the identity on its range.

    With an intercept, the features are centred first, so that the result does not depend on the
    shift. Directions in which the features do not vary (constant or duplicate columns, fewer rows
    than features) are left out, and coefficients have no component there. Given the
    ``precision`` of the features, small directions are kept for :meth:`Coordinates.refined`. With
    ``units``, ``second_moment`` is the one of features in these units; the rest is in the user's.
    """
    d = len(shift)
    factors = np.ones(d) if units is None else units
    own, shift = shift, shift * factors
    mean = second_moment[:d, d] if intercept else np.zeros(d)
    covariance = second_moment[:d, :d] - np.outer(mean, mean)
    squares = np.diag(covariance)
    dead = _dead(squares, shift + mean)
    size = _sizes(squares, shift + mean)
    correlation = covariance / np.outer(size, size)
    alive = np.flatnonzero(~dead)
    correlation = correlation[np.ix_(alive, alive)]
    values, inside = np.linalg.eigh(0.5 * (correlation + correlation.T))
    vectors = np.zeros((d, len(alive)))
    vectors[alive] = inside
    top = max(values.max(initial=0.0), np.finfo(float).tiny)
    stiff = bool(values.min(initial=top) < STIFF * top)
    noise = None
    if stiff and precision is not None:
        noise = _noise(precision, (shift + mean)[~dead], size[~dead])
        if noise**2 >= RANK_TOLERANCE:
            noise = None
    if noise is None:
        keep = values > RANK_TOLERANCE * top
    else:
        keep, values = values > -np.inf, np.maximum(values, RANK_TOLERANCE * top)
    left_out = _in_units(vectors[:, ~keep] / size[:, None], factors)
    vectors = vectors[:, keep]
    basis = (vectors / np.sqrt(values[keep])) / size[:, None]
    if vectors.shape[1] < d:
        # Stay in the row space of the features: a component outside changes no score, but adds
        # to the norm of the coefficients.
        balance = _balance(size, ~dead, standardised)
        rows = np.linalg.qr((size * balance)[:, None] * vectors)[0]
        basis = (rows @ (rows.T @ (basis / balance[:, None]))) * balance[:, None]
    if intercept:
        rank = basis.shape[1]
        whole = np.zeros((d + 1, rank + 1))
        whole[:d, :rank], whole[d, :rank], whole[d, rank] = basis, -mean @ basis, 1.0
        basis = whole
    basis[:d] = _in_units(basis[:d], factors)
    return Coordinates(
        basis=np.ascontiguousarray(basis),
        shift=own,
        intercept=intercept,
        radius=radius,
        dropped=d - int(dead.sum()) - vectors.shape[1],
        stiff=stiff or units is not None,
        noise=noise,
        mean=mean / factors,
        scale=size / factors,
        left_out=left_out,
        units=units,
        standardised=standardised,
    )


def _in_units(values: Array, factors: Array) -> Array:
    """Multiply every feature's coefficients by its factor, which must not overflow."""
    with np.errstate(over="ignore"):
        values = values * (factors if values.ndim == 1 else factors[:, None])
    _check_finite(values)
    return values


def _check_finite(coefficients: Array) -> None:
    if not np.isfinite(coefficients).all():
        raise ValueError(
            "X: a coefficient exceeds the largest double, because its feature is so small; "
            "multiply the column by a power of ten"
        )


def _balance(sizes: Array, alive: Array, standardised: bool) -> Array:
    """Return factors in which a norm of coefficients makes sense.

    ``standardised``, they are one over the features' sizes. Else they are ones, or powers of two if
    the sizes of features that vary, those ``alive``, differ so much that rounding in the large ones
    would hide the small ones.
    """
    if standardised:
        return np.where(alive & (sizes > 0), 1.0 / np.where(sizes > 0, sizes, 1.0), 1.0)
    varying = sizes[alive]
    if not varying.size or varying.max() <= UNEVEN * varying.min():
        return np.ones_like(sizes)
    return np.where(alive, np.ldexp(1.0, -np.clip(np.frexp(sizes)[1], -1000, 1000)), 1.0)


def _side_by_side(left: Array | None, right: Array) -> Array:
    return right if left is None else np.hstack([left, right])


def _noise(precision: float, centre: Array, size: Array) -> float:
    """Return the share of the features' size that is rounding, with a safety margin."""
    return precision * max(NOISE, 64.0 * float((np.abs(centre) / size).max(initial=0.0)))


def _dead(squares: Array, shift: Array) -> Array:
    """Mark columns that are constant up to rounding: they vanish after the shift."""
    floor = np.zeros_like(squares)
    floor[: len(shift)] = 64 * np.finfo(float).eps * np.abs(shift)
    return np.sqrt(np.maximum(squares, 0.0)) <= floor


def _sizes(squares: Array, shift: Array) -> Array:
    return np.where(_dead(squares, shift), 1.0, np.sqrt(np.maximum(squares, 0.0)))
