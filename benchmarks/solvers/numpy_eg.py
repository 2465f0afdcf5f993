"""Gradient descent on the model, exponentiated gradient on the weights; full batch, numpy.

The last iterate and the average since the last power of two are both offered; the better counts.
"""

from __future__ import annotations

from itertools import count, product

import numpy as np

from solvers.scaled import Scaled

NAME = "numpy_eg"
TITLE = "numpy EG"
ENVIRONMENT = "main"
# Step of the coefficients and of the weights, for standardised features and scaled labels.
SETTINGS = [{"lr": lr, "eta": eta} for lr, eta in product((0.01, 0.03, 0.1, 0.3), (0.1, 1.0))]


def refuses(shape):
    return None


def run(problem, record, lr, eta):
    scaled = Scaled(problem)
    v, logs = scaled.start(), np.zeros(problem.n_groups)
    total, since = np.zeros_like(v), 0
    for step in count(1):
        losses, slope = scaled.losses(v)
        logs = (logs + eta * losses) / (1.0 + eta * scaled.nu)
        weights = np.exp(logs - logs.max())
        v = v - lr * scaled.gradient(weights / weights.sum(), slope)
        if step & (step - 1) == 0:
            total, since = np.zeros_like(v), 0
        total, since = total + v, since + 1
        record(lambda v=v: scaled.back(v), lambda s=total, n=since: scaled.back(s / n))
