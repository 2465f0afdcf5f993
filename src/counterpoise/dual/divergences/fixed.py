"""The divergence that keeps the weights at the prior."""

from __future__ import annotations

import numpy as np

from counterpoise.dual.divergences.base import Centre, Divergence, SimplexPoint

Array = np.ndarray


class Fixed(Divergence):
    """The limit of infinite ``nu``: the weights stay at the prior, for the plain average.

    >>> import numpy as np
    >>> Fixed().risk(np.array([1.0, 3.0]), np.array([0.25, 0.75]), nu=1.0)
    2.5
    """

    name = "fixed"

    def value(self, weights: Array, prior: Array) -> float:
        return 0.0

    def bregman(self, point: SimplexPoint, centre: SimplexPoint, prior: Array) -> float:
        return 0.0

    def corners(self, prior: Array) -> Array:
        return np.full(len(prior), np.inf)

    def corner_distances(self, centre: Array, prior: Array) -> Array:
        return np.zeros(len(prior))  # no corner is ever reached

    def respond(
        self, losses: Array, prior: Array, *, nu: float, kappa: float = 0.0, centre: Centre = None
    ) -> SimplexPoint:
        return SimplexPoint.of(prior)

    def sensitivity(self, point: SimplexPoint, prior: Array) -> tuple[Array, float]:
        return prior, 0.0

    def risk(self, losses: Array, prior: Array, nu: float) -> float:
        return float(prior @ losses)
