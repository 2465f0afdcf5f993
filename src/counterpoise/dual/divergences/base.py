"""Divergences on the simplex: how far group weights stand from the prior, and best responses.

A divergence is ``d_f(weights, prior)`` of the paper, in closed form: its value ``phi``, the Bregman
distance ``D`` of ``phi``, the weights that maximise a regularised linear function, and how those
weights react to the losses.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

Array = np.ndarray


class SimplexPoint(NamedTuple):
    """Group weights and their logarithms.

    The logarithms are kept beside the weights because a weight of ``1e-400`` is zero as
    a number and still a group that can come back.
    """

    weights: Array
    logs: Array

    @classmethod
    def of(cls, weights: Array) -> SimplexPoint:
        weights = np.asarray(weights, dtype=float)
        with np.errstate(divide="ignore"):
            return cls(weights, np.log(weights))


Centre = SimplexPoint | None


class Divergence:
    """What the solver and the reweighter ask of a divergence ``phi``.

    Subclass it to bring your own: ``value``, ``bregman``, ``corner_distances``, ``respond`` and
    ``sensitivity`` are needed, ``zoom`` only where some groups' losses are unknown.
    """

    name: str
    modulus = 2.0
    """``D(lam, mu) >= modulus/2 ||lam - mu||_1^2``: how strongly convex ``phi`` is."""

    def value(self, weights: Array, prior: Array) -> float:
        """``phi(weights) = d_f(weights, prior)``."""
        raise NotImplementedError(type(self).__name__)

    def bregman(self, point: SimplexPoint, centre: SimplexPoint, prior: Array) -> float:
        """``D(point, centre)``, the Bregman distance of ``phi``."""
        raise NotImplementedError(type(self).__name__)

    def corners(self, prior: Array) -> Array:
        """``phi`` at every corner of the simplex, infinite where a corner is not allowed; the
        largest is its maximum."""
        return self.corner_distances(prior, prior)

    def corner_distances(self, centre: Array, prior: Array) -> Array:
        """``D(e_i, centre)`` for every corner ``e_i``; the largest bounds ``D(., centre)``."""
        raise NotImplementedError(type(self).__name__)

    def respond(
        self, losses: Array, prior: Array, *, nu: float, kappa: float = 0.0, centre: Centre = None
    ) -> SimplexPoint:
        """``argmax_lam  lam.losses - nu phi(lam) - kappa D(lam, centre)`` over the simplex.

        Needs ``nu + kappa > 0``.
        """
        raise NotImplementedError(type(self).__name__)

    def zoom(self, mass: float, share: float) -> float:
        """By how much losses count more when groups of weight ``mass`` and prior ``share``, both
        made to sum to one, share that mass alone: then the best response is the same."""
        raise NotImplementedError(
            f"{type(self).__name__} cannot move the weights of some groups alone; give every group "
            "a loss, or use KL"
        )

    def sensitivity(self, point: SimplexPoint, prior: Array) -> tuple[Array, float]:
        """``(s, f)`` with ``d respond / d losses = f/(nu+kappa) (diag(s) - s s^T / sum(s))``."""
        raise NotImplementedError(type(self).__name__)

    def risk(self, losses: Array, prior: Array, nu: float) -> float:
        """``max_lam lam.losses - nu phi(lam)``."""
        if nu == 0:
            return float(self.top(losses, prior).weights @ losses)
        top, weights = float(losses.max()), self.respond(losses, prior, nu=nu).weights
        return top - float(weights @ (top - losses)) - nu * self.value(weights, prior)

    def top(self, losses: Array, prior: Array) -> SimplexPoint:
        """Weights that maximise ``lam.losses`` alone; ties share as the prior does."""
        on_top = np.where(losses == losses.max(), prior, 0.0)
        return SimplexPoint.of(on_top / on_top.sum())

    def config(self) -> dict[str, object] | None:
        """What `from_config` needs to make it again; None if only Python code can."""
        return None

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"
