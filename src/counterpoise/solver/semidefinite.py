"""Linear systems with a positive semidefinite matrix."""

from __future__ import annotations

import numpy as np
from scipy.linalg.lapack import dpotrf, dpotrs

Array = np.ndarray


def solve_semidefinite(matrix: Array, vector: Array, *, flat: float = 1e-12) -> Array:
    """Solve a positive semidefinite system; the solution has no component in flat directions.

    The matrix is first scaled to unit diagonal, so that units do not matter. A direction is flat
    if its eigenvalue is below ``flat`` times the largest.
    """
    if not vector.size:
        return vector
    diagonal = matrix.diagonal()
    alive = diagonal > 0
    scale = np.where(alive, 1.0 / np.sqrt(np.where(alive, diagonal, 1.0)), 0.0)
    unit = scale[:, None] * matrix * scale
    lower, failed = dpotrf(unit, lower=1, clean=0)
    if not failed and lower.diagonal().min(initial=1.0) > 1e-5:
        return scale * dpotrs(lower, scale * vector, lower=1)[0]
    values, vectors = np.linalg.eigh(unit)
    keep = values > flat * values.max(initial=0.0)
    inverse = np.where(keep, 1.0 / np.where(keep, values, 1.0), 0.0)
    return scale * (vectors @ (inverse * (vectors.T @ (scale * vector))))
