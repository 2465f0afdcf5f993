"""Independent answers to convex problems: several solvers, and bounds by weak duality.

Whether one solver reaches its tolerance can hang on the last bits of the processor's sums. So a
program is given to one solver after the other, and a lower bound needs no solver at all.
"""

import warnings

import cvxpy as cp
import numpy as np

# The objective in other units takes a solver along other roundings to the same minimum.
ATTEMPTS = (
    (1.0, cp.CLARABEL, {}),
    (8.0, cp.CLARABEL, {}),
    (0.3, cp.CLARABEL, {}),
    (1.0, cp.SCS, {"eps_abs": 1e-9, "eps_rel": 1e-9, "max_iters": 50_000}),
)


def solved(problem, attempts=ATTEMPTS, accept=(cp.OPTIMAL,)):
    """Solve a cvxpy problem by the first attempt with an accepted status; return the value.

    The problem's variables then hold the solution.
    """
    failures = []
    for unit, solver, options in attempts:
        sense = type(problem.objective)
        scaled = cp.Problem(sense(unit * problem.objective.expr), problem.constraints)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the status tells
            try:
                scaled.solve(solver=solver, **options)
            except cp.SolverError as error:
                failures.append(f"{solver}: {error}")
                continue
        if scaled.status in accept:
            return scaled.value / unit
        failures.append(f"{solver}: {scaled.status}")
    raise AssertionError("no reference solver succeeded: " + "; ".join(failures))


def distance(name, lam, centre, prior):
    """``D(lam, centre)`` on the simplex as a convex expression of cvxpy's."""
    if name == "kl":
        return cp.sum(cp.kl_div(lam, centre))  # lam log(lam/c) - lam + c
    return cp.sum_squares(cp.multiply(1.0 / np.sqrt(prior), lam - centre))


def risk_of(excess, *, nu=0.0, divergence="kl", prior=None):
    """``max_lam lam.excess - nu d_f(lam, prior)`` as a convex expression; excess losses likewise.

    For chi-squared it is the conjugate form: a minimum over a level, which the minimisation over
    everything else takes along.
    """
    prior = np.full(excess.size, 1.0 / excess.size) if prior is None else prior
    if nu == 0:
        return cp.max(excess)
    if divergence == "kl":
        return nu * cp.log_sum_exp(excess / nu + np.log(prior))
    level = cp.Variable()
    above = cp.multiply(np.sqrt(prior / (4.0 * nu)), cp.pos(excess - level))
    return level + nu + cp.sum_squares(above)


def linear_losses(X, y, g, w, b=0.0):
    """Mean squared errors of a linear neuron, group by group, as expressions in ``w`` and ``b``.

    The rows of a group enter by their triangular factor, which keeps the program small.
    """
    losses = []
    for i in np.unique(g):
        rows = np.column_stack([X, np.ones(len(X)), y])[g == i]
        f = np.linalg.qr(rows)[1] / np.sqrt(len(rows))
        losses.append(cp.sum_squares(f[:, :-2] @ w + f[:, -2] * b - f[:, -1]))
    return cp.hstack(losses)


def penalty(name, weights, prior):
    """``d_f(weights, prior)``, written down once more."""
    if name == "kl":
        inside = weights > 0
        return float(np.sum(weights[inside] * np.log(weights[inside] / prior[inside])))
    return float(np.sum((weights - prior) ** 2 / prior))


def dual_bound(X, y, weights, *, penalty=0.0, damping=0.0, ball=None, multiplier=0.0):
    """A lower bound on the least damped risk of linear groups, at any weights and multiplier.

    Whatever the weights, ``max_lam`` is at least their value, and whatever the multiplier >= 0,
    ``multiplier / 2 (||C (origin + x)||^2 - radius^2)`` is not positive within the ball
    ``(C, origin, radius)``. The least value of the rest is a least-squares problem over stacked
    rows, and so by orthogonal factors: nothing is shared with the solver that is tested.

    X is (K, n, D), y (K, n); ``penalty`` is all that does not depend on x.
    """
    n, D = X.shape[1:]
    root = np.sqrt(weights / n)
    rows = [(root[:, None, None] * X).reshape(-1, D), np.sqrt(damping / 2.0) * np.eye(D)]
    targets = [(root[:, None] * y).ravel(), np.zeros(D)]
    constant = -penalty
    if ball is not None:
        C, origin, radius = ball
        rows.append(np.sqrt(multiplier / 2.0) * C)
        targets.append(-np.sqrt(multiplier / 2.0) * (C @ origin))
        constant -= multiplier / 2.0 * radius**2
    rows, targets = np.concatenate(rows), np.concatenate(targets)
    x = np.linalg.lstsq(rows, targets, rcond=None)[0]
    return float(np.sum((rows @ x - targets) ** 2)) + constant
