"""The objective over groups: from losses to the risk and the group weights."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from counterpoise.dual.divergences import Divergence, SimplexPoint
from counterpoise.dual.step import proximal_weights

Array = np.ndarray

# Excess risks below this share of the references count as zero.
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
        """Return losses minus reference risks, which the weights respond to."""
        return losses - self.reference

    def size(self, risk: float) -> float:
        """Return the scale for changes of the risk.

        This is the risk itself or, if the references leave almost nothing of it, a small share of
        the references.
        """
        return max(abs(risk), LITTLE * abs(float(self.prior @ self.reference)))

    def risk(self, losses: Array) -> float:
        return self.divergence.risk(self.excess(losses), self.prior, self.nu)

    def lagrangian(self, losses: Array, weights: Array) -> float:
        """Return ``L(w, lam)`` of the paper at given losses."""
        penalty = self.nu * self.divergence.value(weights, self.prior) if self.nu else 0.0
        return float(weights @ self.excess(losses)) - penalty

    def respond(
        self, losses: Array, *, kappa: float = 0.0, centre: SimplexPoint | None = None
    ) -> SimplexPoint:
        """Return the weights that maximise the objective, kept near ``centre`` by ``kappa``.

        With ``nu = kappa = 0``, tied groups share the weight in proportion to the prior.
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
        """Return ``L(w, lam) - kappa D(lam, centre)``."""
        value = self.lagrangian(losses, point.weights)
        if kappa:
            value -= kappa * self.divergence.bregman(point, centre, self.prior)
        return value
