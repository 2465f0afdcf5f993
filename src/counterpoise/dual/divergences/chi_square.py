"""The chi-squared divergence."""

from __future__ import annotations

import numpy as np

from counterpoise.dual.divergences.base import Centre, Divergence, Separable, SimplexPoint

Array = np.ndarray


class ChiSquare(Divergence):
    """Chi-squared: ``phi(lam) = sum_i (lam_i - prior_i)^2 / prior_i``.

    >>> import numpy as np
    >>> prior = np.array([0.5, 0.5])
    >>> ChiSquare().respond(np.array([0.0, 1.0]), prior, nu=1.0).weights.tolist()
    [0.375, 0.625]
    """

    name = "chi2"

    def config(self) -> dict[str, object]:
        return {"name": self.name}

    def value(self, weights: Array, prior: Array) -> float:
        return float(np.sum((weights - prior) ** 2 / prior))

    def bregman(self, point: SimplexPoint, centre: SimplexPoint, prior: Array) -> float:
        return float(np.sum((point.weights - centre.weights) ** 2 / prior))

    def corner_distances(self, centre: Array, prior: Array) -> Array:
        return float(np.sum(centre**2 / prior)) + (1.0 - 2.0 * centre) / prior

    def respond(
        self, losses: Array, prior: Array, *, nu: float, kappa: float = 0.0, centre: Centre = None
    ) -> SimplexPoint:
        # lam_i = prior_i (score_i - level)_+ / (nu + kappa), the level set by sum lam = 1.
        scores = 0.5 * losses
        if kappa > 0 and centre is not None:
            scores = scores + kappa * centre.weights / prior
        return SimplexPoint.of(_water_fill(scores, prior, nu + kappa))

    def zoom(self, mass: float, share: float) -> float:
        return share / mass

    def separable(self, prior: Array) -> Separable | None:
        return Separable(False, np.ones(len(prior)))

    def sensitivity(self, point: SimplexPoint, prior: Array) -> tuple[Array, float]:
        return np.where(point.weights > 0, prior, 0.0), 0.5

    def risk(self, losses: Array, prior: Array, nu: float) -> float:
        top = float(losses.max())
        if nu == 0:
            return top
        middle = float(prior @ losses)
        if middle - float(losses.min()) <= 2.0 * nu:
            # Every group keeps some weight. This form avoids rounding errors multiplied by nu.
            return middle + 0.25 * float(prior @ (losses - middle) ** 2) / nu
        return super().risk(losses, prior, nu)


def _water_fill(scores: Array, prior: Array, total: float) -> Array:
    """Return weights ``prior_i (height - depth_i)_+ / total`` that sum to one.

    ``depth = max(scores) - scores``. Working down from the maximum keeps full relative accuracy,
    however small ``total`` is.
    """
    depth = scores.max() - scores
    order = np.argsort(depth, kind="stable")
    d, p = depth[order], prior[order]
    mass = np.cumsum(p)
    # Water needed to reach each depth: sums of non-negative terms, so nothing cancels.
    needed = np.concatenate([[0.0], np.cumsum(mass[:-1] * np.diff(d))])
    last = int(np.nonzero(needed < total)[0][-1])
    above = (total - needed[last]) / mass[last]
    weights = prior * np.maximum(above + (d[last] - depth), 0.0)
    return weights / weights.sum()
