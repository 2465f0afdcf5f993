"""The risk of a neuron on rows, in plain numpy: the one judge of all solvers.

It shares no code with any of them. A model is the vector of its coefficients with the intercept
last.
"""

from __future__ import annotations

import numpy as np


def predict(problem, w):
    """``sigma(X w[:-1] + w[-1])``."""
    score = problem.X @ w[:-1] + w[-1]
    return np.maximum(score, 0.0) if problem.activation == "relu" else score


def group_losses(problem, predictions):
    """Mean squared error of every group."""
    square = (predictions - problem.y) ** 2
    total = np.bincount(problem.groups, weights=square, minlength=problem.n_groups)
    return total / np.bincount(problem.groups, minlength=problem.n_groups)


def risk_of_losses(losses, nu):
    """``max_lam lam.losses - nu KL(lam, uniform)``, in closed form."""
    top = float(np.max(losses))
    if nu == 0.0 or not np.isfinite(top):
        return top
    return top + nu * float(np.log(np.mean(np.exp((losses - top) / nu))))


def risk(problem, w):
    """The training risk of the neuron ``w``."""
    return risk_of_losses(group_losses(problem, predict(problem, np.asarray(w, float))), problem.nu)
