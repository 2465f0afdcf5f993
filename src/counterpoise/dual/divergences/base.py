"""The base class of divergences between group weights and the prior.

A divergence is ``d_f(weights, prior)`` of the paper. It provides, in closed form, its value
``phi``, the Bregman distance ``D`` of ``phi``, the weights that maximise a regularised linear
function, and the sensitivity of those weights to the losses.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

Array = np.ndarray


class SimplexPoint(NamedTuple):
    """Group weights and their logarithms.

    Both are kept because a weight of ``1e-400`` underflows to zero, although the group can still
    regain weight.
    """

    weights: Array
    logs: Array

    @classmethod
    def of(cls, weights: Array) -> SimplexPoint:
        weights = np.asarray(weights, dtype=float)
        if weights.all():
            return cls(weights, np.log(weights))
        with np.errstate(divide="ignore"):
            return cls(weights, np.log(weights))


Centre = SimplexPoint | None


class Separable(NamedTuple):
    """A divergence as a sum over groups, with caps on the weights: what compiled solvers need.

    The terms are ``lam log(lam / prior)`` if ``entropy``, else ``(lam - prior)^2 / prior``.
    """

    entropy: bool
    caps: Array


class Divergence:
    """The interface of a divergence ``phi`` for the solver and the reweighter.

    To define your own, subclass it and implement ``value``, ``bregman``, ``corner_distances``,
    ``respond`` and ``sensitivity``. ``zoom`` is needed only if some losses can be unknown.
    """

    name: str
    modulus = 2.0
    """Strong convexity of ``phi``: ``D(lam, mu) >= modulus/2 ||lam - mu||_1^2``."""

    def value(self, weights: Array, prior: Array) -> float:
        """Return ``phi(weights) = d_f(weights, prior)``."""
        raise NotImplementedError(type(self).__name__)

    def bregman(self, point: SimplexPoint, centre: SimplexPoint, prior: Array) -> float:
        """Return ``D(point, centre)``, the Bregman distance of ``phi``."""
        raise NotImplementedError(type(self).__name__)

    def corners(self, prior: Array) -> Array:
        """Return ``phi`` at every corner of the simplex; infinite if a corner is not allowed.

        The largest of these is the maximum of ``phi``.
        """
        return self.corner_distances(prior, prior)

    def corner_distances(self, centre: Array, prior: Array) -> Array:
        """Return ``D(e_i, centre)`` for every corner ``e_i``; their maximum bounds ``D``."""
        raise NotImplementedError(type(self).__name__)

    def respond(
        self, losses: Array, prior: Array, *, nu: float, kappa: float = 0.0, centre: Centre = None
    ) -> SimplexPoint:
        """Return ``argmax_lam  lam.losses - nu phi(lam) - kappa D(lam, centre)``.

        Requires ``nu + kappa > 0``.
        """
        raise NotImplementedError(type(self).__name__)

    def zoom(self, mass: float, share: float) -> float:
        """Return the factor for losses when only some groups move.

        These groups have total weight ``mass`` and total prior ``share``. With both normalised to
        one and losses multiplied by the factor, the best response stays the same.
        """
        raise NotImplementedError(
            f"{type(self).__name__} cannot update only some of the groups; give every group a "
            "loss, or use KL"
        )

    def sensitivity(self, point: SimplexPoint, prior: Array) -> tuple[Array, float]:
        """Return ``s, f`` in ``d respond/d losses = f/(nu+kappa) (diag(s) - s s^T/sum(s))``."""
        raise NotImplementedError(type(self).__name__)

    def separable(self, prior: Array) -> Separable | None:
        """Return the divergence as a sum over groups; None if it is no such sum.

        Fits of a divergence without this are slower.
        """
        return None

    def risk(self, losses: Array, prior: Array, nu: float) -> float:
        """Return ``max_lam lam.losses - nu phi(lam)``."""
        if nu == 0:
            return float(self.top(losses, prior).weights @ losses)
        top, weights = float(losses.max()), self.respond(losses, prior, nu=nu).weights
        return top - float(weights @ (top - losses)) - nu * self.value(weights, prior)

    def top(self, losses: Array, prior: Array) -> SimplexPoint:
        """Return the weights that maximise ``lam.losses``; ties share by the prior."""
        on_top = np.where(losses == losses.max(), prior, 0.0)
        return SimplexPoint.of(on_top / on_top.sum())

    def config(self) -> dict[str, object] | None:
        """Return the input of `from_config`; None if only Python code can define it."""
        return None

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"
