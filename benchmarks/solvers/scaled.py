"""The same problem with rows sorted by group, features standardised and labels scaled.

Every peer gets this: none could be tuned on raw columns. It is part of their time.
"""

from __future__ import annotations

import numpy as np


class Scaled:
    """``Z`` ends with a column of ones; ``back`` gives coefficients for the raw rows."""

    def __init__(self, problem):
        order = np.argsort(problem.groups, kind="stable")
        self.model = problem.model
        self.counts = np.bincount(problem.groups, minlength=problem.n_groups)
        self.starts = np.concatenate([[0], np.cumsum(self.counts)[:-1]])
        self.mean, spread = problem.X.mean(axis=0), problem.X.std(axis=0)
        self.spread = np.where(spread > 0, spread, 1.0)
        self.unit = unit(problem)
        self.Z = np.empty((len(order), problem.X.shape[1] + 1))
        np.take(problem.X, order, axis=0, out=self.Z[:, :-1])
        self.Z[:, :-1] -= self.mean
        self.Z[:, :-1] /= self.spread
        self.Z[:, -1] = 1.0
        self.t = problem.y[order] / self.unit
        self.nu = problem.nu / self.unit**2

    def slices(self):
        return [slice(a, a + n) for a, n in zip(self.starts, self.counts, strict=True)]

    def start(self):
        """No slope and the best constant; a ReLU is then active on every row, if labels are."""
        v, mean = np.zeros(self.Z.shape[1]), self.t.mean()
        if self.model == "logistic":
            v[-1] = np.log(mean / (1.0 - mean))
        else:
            v[-1] = max(mean, 0.1) if self.model == "relu" else mean
        return v

    def back(self, v):
        w = np.asarray(v, float) * self.unit
        w[:-1] /= self.spread
        w[-1] -= w[:-1] @ self.mean
        return w

    def losses(self, v):
        """Group losses, and the slope of every row's loss in its score."""
        score = self.Z @ v
        if self.model == "logistic":
            small = np.exp(-np.abs(score))
            rows = np.log1p(small) + np.maximum(score, 0.0) - self.t * score
            slope = np.where(score > 0, 1.0, small) / (1.0 + small) - self.t
        else:
            active = score > 0 if self.model == "relu" else True
            residual = np.where(active, score, 0.0) - self.t
            rows, slope = residual**2, 2.0 * residual * active
        return self.means(rows), slope

    def means(self, rows):
        return np.add.reduceat(rows, self.starts) / self.counts

    def gradient(self, weights, slope):
        """Gradient of the losses' weighted sum."""
        return (np.repeat(weights / self.counts, self.counts) * slope) @ self.Z

    def gradients(self, slope):
        """The gradient of every group's loss."""
        parts = zip(self.slices(), self.counts, strict=True)
        return np.array([slope[rows] @ self.Z[rows] / n for rows, n in parts])


def unit(problem) -> float:
    """What labels are divided by; classes are what they are."""
    return 1.0 if problem.model == "logistic" else float(problem.y.std()) or 1.0
