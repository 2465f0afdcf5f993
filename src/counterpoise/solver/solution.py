"""The result of a fit, and the start for another."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from counterpoise.rows.sample import RowSample
from counterpoise.solver.certificate import Certificate
from counterpoise.solver.convex_certificate import ConvexCertificate

Array = np.ndarray


@dataclass(frozen=True)
class Start:
    """The end of an earlier fit, or of one to fewer rows, to start from.

    Coefficients are the user's, intercept last.

    Attributes
    ----------
    coef : the returned coefficients
    weights : array of shape (K,), the group weights
    surrogate : the best iterate of Algorithm 1, if known
    average : the neuron of the average loss, if known
    """

    coef: Array
    weights: Array
    surrogate: Array | None = None
    average: Array | None = None

    @staticmethod
    def check(start: object, n_coef: int, n_groups: int) -> None:
        """Raise an error if ``start`` does not fit a problem of this size."""
        if not isinstance(start, Start):
            raise TypeError(f"start must be a Start (solution.start); got {type(start).__name__}")
        shapes = {
            "coef": (n_coef,),
            "weights": (n_groups,),
            "surrogate": (n_coef,),
            "average": (n_coef,),
        }
        for name, shape in shapes.items():
            value = getattr(start, name)
            if value is not None and np.shape(value) != shape:
                raise ValueError(
                    f"start.{name} has shape {np.shape(value)}, but this problem needs {shape}; "
                    "start from a solution with the same features, intercept and groups"
                )
            if value is not None and not np.isfinite(value).all():
                raise ValueError(f"start.{name} must hold finite numbers; got {value!r}")
        if (start.weights < 0).any() or not abs(float(np.sum(start.weights)) - 1.0) < 1e-6:
            raise ValueError(
                f"start.weights must not be negative and sum to one; got {start.weights!r}"
            )


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """The result of any fit of a neuron.

    Attributes
    ----------
    coef, intercept : the neuron ``sigma(coef.x + intercept)``; a row for every score if several
    losses : array of shape (K,), mean loss of every group (for clipped labels, if any)
    weights : array of shape (K,), the group weights
    risk : float
    n_iter : number of iterations
    n_passes : passes over the rows, including preparation
    converged : bool
    status : a sentence
    history : arrays of equal length, one entry per iteration
    labels : array of shape (K,), the group labels
    """

    coef: Array
    intercept: Any
    losses: Array
    weights: Array
    risk: float
    n_iter: int
    n_passes: int
    converged: bool
    status: str
    history: Mapping[str, Array]
    labels: Array


@dataclass(frozen=True, kw_only=True)
class Solution(Outcome):
    """The result of ``solve``.

    Attributes
    ----------
    coef, intercept : the neuron ``sigma(coef.x + intercept)``; a row for every score if several
    losses : array of shape (K,), mean loss of every group (for clipped labels, if any)
    weights : array of shape (K,), the group weights
    risk : float
    n_iter : number of iterations of Algorithm 1
    n_passes : passes over the rows, including preparation, polish and certificate
    converged : bool
    status : a sentence
    history : arrays of equal length, one entry per iteration; "slack" is the running sum
    labels : array of shape (K,), the group labels
    nu, radius, truncation : the values used
    certificate : Certificate
    start : Start, for a similar problem
    sample : RowSample or None, some rows of every group, for a diagnosis
    penalty : array of shape (d,) or None, the features' scales in the ridge
    """

    nu: float
    radius: float | None
    truncation: float | None
    certificate: Certificate | ConvexCertificate
    start: Start
    sample: RowSample | None = None
    penalty: Array | None = None
