"""Quadratic group losses, given by their coefficients; they need no rows."""

from __future__ import annotations

import numpy as np

from counterpoise.rows.engines.base import GroupEval

Array = np.ndarray


class QuadraticEngine:
    """``loss_i(origin + x) = loss_i + grad_i.x + x^T H_i x / 2``.

    For the identity activation this *is* the problem, once each group's second moments are
    known. For other activations it is the model of one polishing step. ``hess`` has shape
    (K, D, D), or (1, D, D) if all groups share one matrix.
    """

    def __init__(
        self, loss_K: Array, grad_KD: Array, hess: Array, origin: Array | float = 0.0
    ) -> None:
        self.loss_K, self.grad_KD, self.hess, self.origin = loss_K, grad_KD, hess, origin
        self.n_groups, self.n_coef = grad_KD.shape
        self.passes = 0  # there are no rows

    def evaluate(self, w: Array, *, surrogate: bool = False) -> GroupEval:
        """Return exact losses and gradients; with unit slope, true and surrogate ones agree."""
        step = w - self.origin
        bend = self.hess @ step
        loss = self.loss_K + (self.grad_KD + 0.5 * bend) @ step
        return GroupEval(loss, self.grad_KD + bend)

    def curvature(self, w: Array | None, weights_K: Array | None) -> Array:
        return self.hess if weights_K is None else self.mixture(weights_K)

    def mixture(self, weights_K: Array) -> Array:
        """Return ``sum_i lam_i H_i``."""
        if len(self.hess) == 1:
            return self.hess[0] * weights_K.sum()
        size = self.n_coef
        return (weights_K @ self.hess.reshape(len(weights_K), -1)).reshape(size, size)

    def separation(self, points: Array, w: Array) -> Array:
        gaps = points - w
        apart = 0.5 * np.einsum("ti,kij,tj->tk", gaps, self.hess, gaps, optimize=True)
        return np.broadcast_to(apart, (len(points), self.n_groups))
