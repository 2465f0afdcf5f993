"""What a fit found, and from where another may start."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from counterpoise.certificate import Certificate

Array = np.ndarray


@dataclass(frozen=True)
class Start:
    """Where an earlier fit, or one on fewer rows, ended: user's coefficients, intercept last.

    Attributes
    ----------
    coef : the coefficients returned
    weights : array of shape (K,), the group weights
    surrogate : the best point of Algorithm 1, if known
    average : the neuron of the average loss, if known
    """

    coef: Array
    weights: Array
    surrogate: Array | None = None
    average: Array | None = None


@dataclass(frozen=True)
class Solution:
    """Everything a fit found.

    Attributes
    ----------
    coef, intercept : the neuron ``sigma(coef.x + intercept)``
    losses : array of shape (K,), mean squared loss of every group (of truncated labels, if any)
    weights : array of shape (K,), the group weights
    risk : float
    nu, radius, truncation : the values used
    n_iter : iterations of Algorithm 1
    n_passes : reads of the rows, polish and measurements included
    converged : bool
    status : a sentence
    history : arrays of equal length, one entry per iteration; ``slack`` is the running sum
    certificate : Certificate
    labels : array of shape (K,), the group labels
    start : Start, for a like problem to start from
    """

    coef: Array
    intercept: float
    losses: Array
    weights: Array
    risk: float
    nu: float
    radius: float | None
    truncation: float | None
    n_iter: int
    n_passes: int
    converged: bool
    status: str
    history: Mapping[str, Array]
    certificate: Certificate
    labels: Array
    start: Start
