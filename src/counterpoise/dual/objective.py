"""The objective over groups: losses in, risk and group weights out."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from counterpoise.dual.divergences import Divergence, SimplexPoint
from counterpoise.dual.step import proximal_weights

Array = np.ndarray

# Excess risks below this share of the references are as good as none.
LITTLE = 1e-3


@dataclass(frozen=True)
class Objective:
    """``R = max_lam lam.(losses - reference) - nu phi(lam)`` and its maximiser."""

    divergence: Divergence
    nu: float
    prior: Array
    reference: Array

    @property
    def n_groups(self) -> int:
        return len(self.prior)

    def excess(self, losses: Array) -> Array:
        """Losses less the reference risks: what the weights react to."""
        return losses - self.reference

    def size(self, risk: float) -> float:
        """What changes of the risk are compared with: itself or, where references leave next to
        nothing of it, a little of these."""
        return max(abs(risk), LITTLE * abs(float(self.prior @ self.reference)))

    def risk(self, losses: Array) -> float:
        return self.divergence.risk(self.excess(losses), self.prior, self.nu)

    def lagrangian(self, losses: Array, weights: Array) -> float:
        """``L(w, lam)`` of the paper at given losses."""
        penalty = self.nu * self.divergence.value(weights, self.prior) if self.nu else 0.0
        return float(weights @ self.excess(losses)) - penalty

    def respond(
        self, losses: Array, *, kappa: float = 0.0, centre: SimplexPoint | None = None
    ) -> SimplexPoint:
        """Weights that maximise the objective, held near ``centre`` by ``kappa``.

        With ``nu = kappa = 0`` the maximisers share the weight as the prior does.
        """
        if self.nu + kappa == 0:
            return self.divergence.top(self.excess(losses), self.prior)
        if centre is None:
            centre = SimplexPoint.of(self.prior)
        return proximal_weights(
            self.excess(losses),
            centre,
            nu=self.nu,
            kappa=kappa,
            prior=self.prior,
            divergence=self.divergence,
        )

    def proximal_value(
        self, losses: Array, point: SimplexPoint, kappa: float, centre: SimplexPoint
    ) -> float:
        """``L(w, lam) - kappa D(lam, centre)``."""
        value = self.lagrangian(losses, point.weights)
        if kappa:
            value -= kappa * self.divergence.bregman(point, centre, self.prior)
        return value
