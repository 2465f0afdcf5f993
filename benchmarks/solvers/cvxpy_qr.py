"""cvxpy (Clarabel) on the QR factor of every group: exact, and small whatever the rows."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np

from solvers.scaled import Scaled

NAME = "cvxpy_qr"
TITLE = "cvxpy on QR factors"
ENVIRONMENT = "main"
LEVELS = [{"tol": tol} for tol in (1e-3, 1e-5, 1e-8)]


def refuses(shape):
    if shape.model == "logistic":
        return "no factor of the rows serves the log loss"
    return "no ReLU: not convex" if shape.model == "relu" else None


def fit(problem, tol):
    from threadpoolctl import threadpool_limits

    scaled = Scaled(problem)

    def factor(rows):
        whole = np.column_stack([scaled.Z[rows], scaled.t[rows]])
        R = np.linalg.qr(whole, mode="r") / np.sqrt(len(whole))
        return R[:, :-1], R[:, -1]

    # Groups side by side, one thread each: faster than threads inside every factorisation.
    with threadpool_limits(1), ThreadPoolExecutor() as pool:
        blocks = list(pool.map(factor, scaled.slices()))
    return scaled.back(minimise_squares(blocks, scaled.nu, tol))


def minimise_squares(blocks, nu, tol):
    """Minimise the risk of losses ``|A v - b|^2`` over ``v``."""
    import cvxpy as cp

    v = cp.Variable(blocks[0][0].shape[1])
    if nu == 0:  # of the root, which is a smaller cone program
        minimise([cp.norm(A @ v - b) for A, b in blocks], 0.0, tol)
    else:
        minimise([cp.sum_squares(A @ v - b) for A, b in blocks], nu, tol)
    return v.value


def minimise(losses, nu, tol):
    """Minimise the largest of these expressions, or their soft maximum."""
    import cvxpy as cp

    if nu == 0:
        top = cp.Variable()
        problem = cp.Problem(cp.Minimize(top), [loss <= top for loss in losses])
    else:
        bound = cp.Variable(len(losses))
        constraints = [loss <= bound[k] for k, loss in enumerate(losses)]
        problem = cp.Problem(cp.Minimize(cp.log_sum_exp(bound / nu)), constraints)
    problem.solve(solver=cp.CLARABEL, tol_gap_abs=tol, tol_gap_rel=tol, tol_feas=tol)
