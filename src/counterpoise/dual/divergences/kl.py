"""The Kullback-Leibler divergence."""

from __future__ import annotations

import numpy as np

from counterpoise.dual.divergences.base import Centre, Divergence, Separable, SimplexPoint

Array = np.ndarray


class KL(Divergence):
    """Kullback-Leibler: ``phi(lam) = sum_i lam_i log(lam_i / prior_i)``.

    >>> import numpy as np
    >>> prior = np.array([0.5, 0.5])
    >>> point = KL().respond(np.array([0.0, np.log(3.0)]), prior, nu=1.0)
    >>> point.weights.round(12).tolist()
    [0.25, 0.75]
    """

    name = "kl"
    modulus = 1.0  # Pinsker

    def config(self) -> dict[str, object]:
        return {"name": self.name}

    def value(self, weights: Array, prior: Array) -> float:
        return self.bregman(SimplexPoint.of(weights), SimplexPoint.of(prior), prior)

    def bregman(self, point: SimplexPoint, centre: SimplexPoint, prior: Array) -> float:
        # Each term mu - lam + lam d, with d = log(lam/mu), is >= 0. Where lam is close to mu, the
        # equal form lam (e^-d - 1 + d) does not cancel.
        lam, mu = point.weights, centre.weights
        d = np.zeros_like(lam)
        np.subtract(point.logs, centre.logs, out=d, where=lam > 0)
        near = np.abs(d) < 1.0
        small = np.where(near, d, 0.0)
        terms = np.where(near & (lam > 0), lam * (np.expm1(-small) + small), mu - lam + lam * d)
        return float(np.sum(terms))

    def corner_distances(self, centre: Array, prior: Array) -> Array:
        return -np.log(centre)

    def respond(
        self, losses: Array, prior: Array, *, nu: float, kappa: float = 0.0, centre: Centre = None
    ) -> SimplexPoint:
        total = nu + kappa
        with np.errstate(over="ignore"):
            logs = np.maximum((losses - losses.max()) / total, -1e300)
        if nu > 0:
            logs += (nu / total) * np.log(prior)
        if kappa > 0 and centre is not None:
            logs += (kappa / total) * centre.logs
        logs -= logs.max()
        logs -= np.log(np.sum(np.exp(logs)))
        weights = np.exp(logs)
        return SimplexPoint(weights / weights.sum(), logs)

    def zoom(self, mass: float, share: float) -> float:
        return 1.0

    def separable(self, prior: Array) -> Separable | None:
        return Separable(True, np.ones(len(prior)))

    def sensitivity(self, point: SimplexPoint, prior: Array) -> tuple[Array, float]:
        return point.weights, 1.0

    def risk(self, losses: Array, prior: Array, nu: float) -> float:
        top = float(losses.max())
        if nu == 0:
            return top
        low = float(losses.min())
        middle = low + float(prior @ (losses - low))  # exact if all losses are equal
        if top - low <= nu:
            # For a small spread, log1p and expm1 keep digits that log(1 + tiny) would lose.
            return middle + nu * float(np.log1p(prior @ np.expm1((losses - middle) / nu)))
        with np.errstate(over="ignore"):
            return top + nu * float(np.log(prior @ np.exp((losses - top) / nu)))
