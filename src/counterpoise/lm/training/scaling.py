"""Fit a scaling law to the losses of small models and extrapolate it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import least_squares, nnls

Array = np.ndarray

EXPONENTS = (0.02, 1.5)


@dataclass(frozen=True)
class ScalingLaw:
    """``loss = floor + scale * (size / unit) ** -exponent``.

    Attributes
    ----------
    floor, scale, exponent, unit : float
    residual : float
        Root mean square of the residuals.
    """

    floor: float
    scale: float
    exponent: float
    unit: float
    residual: float

    def __call__(self, size: Any) -> Any:
        return self.floor + self.scale * (np.asarray(size, float) / self.unit) ** -self.exponent


def fit_scaling_law(sizes: Any, losses: Any) -> ScalingLaw:
    """Fit by least squares, with floor >= 0, scale >= 0 and an exponent between 0.02 and 1.5.

    Parameters
    ----------
    sizes : sequence of positive numbers
        Parameters of the models, or tokens they were trained on; at least three different ones.
    losses : sequence of numbers

    Examples
    --------
    >>> law = fit_scaling_law([1e5, 2e5, 4e5, 8e5], [4.0, 3.5, 3.25, 3.125])
    >>> round(law.floor, 3), round(float(law(1.6e6)), 4)
    (3.0, 3.0625)
    """
    n, y = np.asarray(sizes, float), np.asarray(losses, float)
    if n.shape != y.shape or n.ndim != 1:
        raise ValueError(f"sizes and losses must pair up; got shapes {n.shape} and {y.shape}")
    if not (np.isfinite(y).all() and np.isfinite(n).all() and (n > 0).all()):
        raise ValueError(f"sizes must be positive and losses finite; got {sizes!r}, {losses!r}")
    if len(np.unique(n)) < 3:
        raise ValueError(
            f"at least three sizes are needed to fit three numbers; got {sorted(set(n.tolist()))!r}"
        )
    unit = float(np.exp(np.log(n).mean()))

    def linear(exponent: float) -> tuple[Array, Array]:
        """Return the best floor and scale for an exponent, and the residuals."""
        columns = np.stack([np.ones_like(n), (n / unit) ** -exponent], axis=1)
        found, _ = nnls(columns, y)
        return found, columns @ found - y

    # Floor and scale are linear, so only the exponent is searched: on a grid, then refined.
    grid = np.geomspace(*EXPONENTS, 60)
    start = min(grid, key=lambda e: float(np.sum(linear(e)[1] ** 2)))
    found = least_squares(
        lambda e: linear(float(e[0]))[1], [start], bounds=EXPONENTS, xtol=1e-14, ftol=1e-14
    )
    exponent = float(found.x[0])
    (floor, scale), left = linear(exponent)
    residual = float(np.sqrt(np.mean(left**2)))
    return ScalingLaw(float(floor), float(scale), exponent, unit, residual)
