"""The squared error of a neuron."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from counterpoise.activations import Activation, identity
from counterpoise.losses.base import Loss
from counterpoise.losses.minorants import Minorants, has_two_pieces, minorants_below

Array = np.ndarray


def as_loss(given: Loss | Activation) -> Loss:
    """Return the loss; an activation stands for the squared error of its neuron."""
    return NeuronLoss(given) if isinstance(given, Activation) else given


class NeuronLoss(Loss):
    """``(sigma(z) - y)^2``, with Gauss-Newton second derivatives and surrogate slopes.

    It is convex for the identity alone, which is the squared error of a linear model.
    """

    is_convex: ClassVar[bool] = False
    unit = 2.0

    def __init__(self, activation: Activation | None = None) -> None:
        self.activation = activation or identity()
        self.name = "squared"
        self.is_quadratic = self.activation.is_identity
        self.has_kink = self.activation.has_kink
        self.bend_bound = 2.0 * self.activation.beta**2
        self.parameters = self.activation.parameters

    def __repr__(self) -> str:
        return f"NeuronLoss({self.activation!r})"

    def value(self, z: Array, y: Array) -> Array:
        return (self.activation.value(z) - y) ** 2

    def slope(self, z: Array, y: Array) -> Array:
        return 2.0 * self.pull(z, y, surrogate=False)

    def pull(self, z: Array, y: Array, *, surrogate: bool) -> Array:
        return self.value_and_pull(z, y, surrogate=surrogate)[1]

    def value_and_pull(self, z: Array, y: Array, *, surrogate: bool) -> tuple[Array, Array]:
        residual = self.activation.value(z) - y
        pull = residual if surrogate else residual * self.activation.slope(z)
        return residual * residual, pull

    def gradient_unit(self, *, surrogate: bool) -> float:
        return 2.0 * self.activation.beta if surrogate else 2.0

    def bend(self, z: Array, y: Array) -> Array:
        return 2.0 * self.stretch(z, y) ** 2

    def stretch(self, z: Array, y: Array) -> Array:
        return self.activation.slope(z)

    def least_bend(self, z: Array, y: Array, reach: Array) -> Array:
        if not self.is_quadratic:
            return np.zeros_like(z)
        return np.full_like(z, 2.0)

    @property
    def has_minorant(self) -> bool:
        """Whether :meth:`minorants` knows parabolas below the loss."""
        sigma, probe = self.activation, np.zeros(1)
        return has_two_pieces(sigma) or sigma.most_bend(probe, probe) is not None

    def minorants(
        self, z: Array, y: Array, low: Array, high: Array, norm: Array, widths: Array
    ) -> Minorants:
        """Return parabolas below the losses; see :mod:`counterpoise.losses.minorants`."""
        return minorants_below(self.activation, z, y, low, high, norm, widths)

    def outputs(self, z: Array) -> Array:
        return self.activation.value(z)

    def rounded(self, width: float) -> NeuronLoss:
        return NeuronLoss(self.activation.rounded(width))

    def config(self) -> dict[str, object] | None:
        inner = self.activation.config()
        return None if inner is None else {"name": self.name, "activation": inner}
