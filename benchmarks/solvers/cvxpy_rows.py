"""cvxpy (Clarabel) with every row in the cone program: what one writes down first.

Log losses are exponential cones, two for each row.
"""

from __future__ import annotations

import numpy as np

from solvers.cvxpy_qr import minimise, minimise_squares
from solvers.scaled import Scaled

NAME = "cvxpy_rows"
TITLE = "cvxpy per row"
ENVIRONMENT = "main"
LEVELS = [{"tol": tol} for tol in (1e-3, 1e-5, 1e-8)]
LARGEST = 10_000_000  # numbers in X


def refuses(shape):
    if shape.model == "relu":
        return "no ReLU: not convex"
    if shape.n * shape.d > LARGEST:
        return f"not tried: more than {LARGEST:,} numbers in the cone program"
    return None


def fit(problem, tol):
    scaled = Scaled(problem)
    if problem.model == "logistic":
        return scaled.back(minimise_log_losses(scaled, tol))
    blocks = [
        (scaled.Z[rows] / np.sqrt(n), scaled.t[rows] / np.sqrt(n))
        for rows, n in zip(scaled.slices(), scaled.counts, strict=True)
    ]
    return scaled.back(minimise_squares(blocks, scaled.nu, tol))


def minimise_log_losses(scaled, tol):
    import cvxpy as cp

    v = cp.Variable(scaled.Z.shape[1])
    losses = []
    for rows, n in zip(scaled.slices(), scaled.counts, strict=True):
        Z, t = scaled.Z[rows], scaled.t[rows]
        losses.append(cp.sum(cp.logistic(Z @ v)) / n - (t @ Z / n) @ v)
    minimise(losses, scaled.nu, tol)
    return v.value
