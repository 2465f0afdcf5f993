"""Conditional value at risk over groups."""

from __future__ import annotations

import numpy as np

from counterpoise.dual.divergences.base import Centre, Separable, SimplexPoint
from counterpoise.dual.divergences.kl import KL

Array = np.ndarray


class CVaR(KL):
    """Kullback-Leibler with weights of at most ``prior_i / alpha``.

    With ``nu = 0`` the risk is the conditional value at risk over groups, the mean loss of the
    worst share ``alpha`` of them (Rockafellar and Uryasev, 2000). It lies between the average
    (``alpha = 1``) and the worst group (``alpha <= min(prior)``).

    >>> import numpy as np
    >>> CVaR(0.5).risk(np.array([1.0, 2.0, 3.0, 4.0]), np.full(4, 0.25), nu=0.0)
    3.5
    """

    name = "cvar"

    def __init__(self, alpha: float = 0.5) -> None:
        number = isinstance(alpha, (int, float, np.integer, np.floating))
        if isinstance(alpha, bool) or not number or not 0 < alpha <= 1:
            raise ValueError(f"alpha must be a share of the groups in (0, 1]; got {alpha!r}")
        self.alpha = float(alpha)

    def config(self) -> dict[str, object]:
        return {"name": self.name, "alpha": self.alpha}

    def __repr__(self) -> str:
        return f"CVaR({self.alpha!r})"

    def value(self, weights: Array, prior: Array) -> float:
        allowed = (weights <= self._caps(prior) * (1.0 + 1e-9)).all()
        return super().value(weights, prior) if allowed else np.inf

    def corners(self, prior: Array) -> Array:
        return np.where(self._caps(prior) >= 1.0, -np.log(prior), np.inf)

    def respond(
        self, losses: Array, prior: Array, *, nu: float, kappa: float = 0.0, centre: Centre = None
    ) -> SimplexPoint:
        free = super().respond(losses, prior, nu=nu, kappa=kappa, centre=centre)
        caps = self._caps(prior)
        if (free.weights <= caps).all():
            return free
        # lam_i = min(cap_i, exp(log_i + level)): groups at their caps have the largest excess.
        excess = free.logs - np.log(caps)
        order = np.argsort(-excess, kind="stable")
        logs, cap = free.logs[order], caps[order]
        left = 1.0 - np.concatenate([[0.0], np.cumsum(cap)[:-1]])  # once the first m are capped
        rest = np.logaddexp.accumulate(logs[::-1])[::-1]
        with np.errstate(divide="ignore", invalid="ignore"):
            level = np.log(np.maximum(left, 0.0)) - rest
        fits = (left > 0) & (level + excess[order] <= 0)
        # Up to rounding, the caps add up to at least one, so some number of them fits.
        first = int(np.argmax(fits)) if fits.any() else len(cap) - 1
        out = np.where(np.arange(len(cap)) < first, np.log(cap), logs + level[first])
        result = np.empty_like(out)
        result[order] = out
        weights = np.exp(result)
        return SimplexPoint(weights / weights.sum(), result)

    def zoom(self, mass: float, share: float) -> float:
        raise NotImplementedError(
            "CVaR cannot update only some of the groups; give every group a loss, or use KL"
        )

    def separable(self, prior: Array) -> Separable | None:
        return Separable(True, np.minimum(self._caps(prior), 1.0))

    def sensitivity(self, point: SimplexPoint, prior: Array) -> tuple[Array, float]:
        free = np.where(point.weights < self._caps(prior) * (1.0 - 1e-9), point.weights, 0.0)
        return (free, 1.0) if free.any() else (prior, 0.0)

    def risk(self, losses: Array, prior: Array, nu: float) -> float:
        if nu == 0:
            return float(self.top(losses, prior).weights @ losses)
        weights = self.respond(losses, prior, nu=nu).weights
        return float(weights @ losses) - nu * KL.value(self, weights, prior)

    def top(self, losses: Array, prior: Array) -> SimplexPoint:
        levels, ties = np.unique(-losses, return_inverse=True)
        mass = np.bincount(ties, weights=prior, minlength=len(levels)) / self.alpha
        above = np.concatenate([[0.0], np.cumsum(mass)[:-1]])
        taken = np.clip(1.0 - above, 0.0, mass) / mass  # share of each level's caps in use
        weights = self._caps(prior) * taken[ties]
        return SimplexPoint.of(weights / weights.sum())

    def _caps(self, prior: Array) -> Array:
        return prior / self.alpha
