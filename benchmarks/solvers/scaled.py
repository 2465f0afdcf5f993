"""The same problem with rows sorted by group, features standardised and labels scaled.

Every peer gets this: none could be tuned on raw columns. It is part of their time.
"""

from __future__ import annotations

import numpy as np


class Scaled:
    """``Z`` ends with a column of ones; ``back`` gives coefficients for the raw rows."""

    def __init__(self, problem):
        order = np.argsort(problem.groups, kind="stable")
        self.counts = np.bincount(problem.groups, minlength=problem.n_groups)
        self.starts = np.concatenate([[0], np.cumsum(self.counts)[:-1]])
        self.mean, spread = problem.X.mean(axis=0), problem.X.std(axis=0)
        self.spread = np.where(spread > 0, spread, 1.0)
        self.unit = float(problem.y.std()) or 1.0
        self.Z = np.empty((len(order), problem.X.shape[1] + 1))
        np.take(problem.X, order, axis=0, out=self.Z[:, :-1])
        self.Z[:, :-1] -= self.mean
        self.Z[:, :-1] /= self.spread
        self.Z[:, -1] = 1.0
        self.t = problem.y[order] / self.unit
        self.nu = problem.nu / self.unit**2
        self.relu = problem.activation == "relu"

    def slices(self):
        return [slice(a, a + n) for a, n in zip(self.starts, self.counts, strict=True)]

    def start(self):
        """No slope and the mean label: active on every row, if the labels are not negative."""
        v = np.zeros(self.Z.shape[1])
        v[-1] = max(self.t.mean(), 0.1) if self.relu else self.t.mean()
        return v

    def back(self, v):
        w = np.asarray(v, float) * self.unit
        w[:-1] /= self.spread
        w[-1] -= w[:-1] @ self.mean
        return w

    def losses(self, v):
        """Group losses, residuals and which rows are active."""
        score = self.Z @ v
        active = score > 0
        residual = (np.where(active, score, 0.0) if self.relu else score) - self.t
        return np.add.reduceat(residual**2, self.starts) / self.counts, residual, active

    def gradient(self, weights, residual, active):
        """Gradient of the losses' weighted sum."""
        row = np.repeat(2.0 * weights / self.counts, self.counts) * residual
        return (row * active if self.relu else row) @ self.Z
