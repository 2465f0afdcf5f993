"""The risk of a model on rows, in plain numpy: the one judge of all solvers.

It shares no code with any of them. A model is the vector of its coefficients with the intercept
last.
"""

from __future__ import annotations

import numpy as np


def scores(problem, w):
    """``X w[:-1] + w[-1]``."""
    return problem.X @ w[:-1] + w[-1]


def row_losses(problem, score):
    """Squared error of a neuron, or log loss, of every row."""
    if problem.model == "logistic":
        return np.logaddexp(0.0, score) - problem.y * score
    return ((np.maximum(score, 0.0) if problem.model == "relu" else score) - problem.y) ** 2


def group_means(problem, losses):
    """Mean over the rows of every group."""
    total = np.bincount(problem.groups, weights=losses, minlength=problem.n_groups)
    return total / np.bincount(problem.groups, minlength=problem.n_groups)


def group_losses(problem, score):
    """Mean loss of every group for these scores of the rows."""
    return group_means(problem, row_losses(problem, score))


def risk_of_losses(losses, nu):
    """``max_lam lam.losses - nu KL(lam, uniform)``, in closed form."""
    top = float(np.max(losses))
    if nu == 0.0 or not np.isfinite(top):
        return top
    return top + nu * float(np.log(np.mean(np.exp((losses - top) / nu))))


def risk(problem, w):
    """The training risk of the model ``w``."""
    return risk_of_losses(group_losses(problem, scores(problem, np.asarray(w, float))), problem.nu)


def constant_loss(y, model):
    """Mean loss of the best constant score: the labels' variance, or their entropy."""
    if model != "logistic":
        return float(y.var())
    share = float(y.mean())
    return -share * np.log(share) - (1.0 - share) * np.log1p(-share)
