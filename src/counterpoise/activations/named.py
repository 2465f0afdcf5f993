"""The named activations. A new one needs a class here and a line in ``NAMED``."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from counterpoise.activations.base import Activation, Graph
from counterpoise.common.arguments import chosen

if TYPE_CHECKING:
    from torch import Tensor

Array = np.ndarray
LOG2 = math.log(2.0)


class Named(Activation):
    """An activation that is fully described by its name and parameters."""

    def config(self) -> dict[str, object]:
        return {"name": self.name}


class Identity(Named):
    """``sigma(t) = t``."""

    name, alpha, beta = "identity", 1.0, 1.0
    is_identity: ClassVar[bool] = True

    def value(self, t: Array) -> Array:
        return np.asarray(t, dtype=float).copy()

    def slope(self, t: Array) -> Array:
        return np.ones_like(t)

    def on_tensor(self, z: Tensor) -> tuple[Tensor, Tensor]:
        import torch

        return z, torch.ones_like(z)

    def to_onnx(self, graph: Graph, t: str) -> str:
        return t


class Piecewise(Named):
    """``a t + (1 - a) ramp(t) - offset``.

    The slope is ``a`` on the left and one on the right. A parabola rounds the kink of ``ramp`` on
    ``[-width, width]``.
    """

    beta = 1.0

    def __init__(
        self, name: str, negative_slope: float, width: float, offset: float, alpha: float = 1.0
    ) -> None:
        self.__dict__.update(name=name, alpha=alpha, parameters=(negative_slope, width, offset))

    def _share(self, t: Array) -> Array:
        """Return the share of the right-hand slope at ``t``."""
        width = self.parameters[1]
        if width == 0.0:
            return np.where(np.asarray(t) >= 0, 1.0, 0.0)
        return np.clip((np.asarray(t) + width) / (2.0 * width), 0.0, 1.0)

    def value(self, t: Array) -> Array:
        left, width, offset = self.parameters
        ramp = width * self._share(t) ** 2 + np.maximum(np.asarray(t) - width, 0.0)
        return left * t + (1.0 - left) * ramp - offset

    def slope(self, t: Array) -> Array:
        left = self.parameters[0]
        return left + (1.0 - left) * self._share(t)

    def left_slope(self, t: Array) -> Array:
        slope = self.slope(t)
        return np.where(t == 0, self.parameters[0], slope) if self.has_kink else slope

    def most_bend(self, low: Array, high: Array) -> Array | None:
        left, width, _ = self.parameters
        if width == 0.0:
            return None if self.has_kink else np.zeros_like(low)
        return np.where((low <= width) & (high >= -width), (1.0 - left) / (2.0 * width), 0.0)

    @staticmethod
    def kernel(z, slope, count, left, width, offset):  # type: ignore[no-untyped-def]
        if width == 0.0:
            for i in range(count):
                s = 1.0 if z[i] >= 0.0 else left
                z[i] = z[i] * s - offset
                slope[i] = s
        else:
            for i in range(count):
                t = z[i]
                share = min(max((t + width) / (2.0 * width), 0.0), 1.0)
                inside = left * t + (1.0 - left) * width * share * share
                z[i] = (t if t >= width else inside) - offset
                slope[i] = left + (1.0 - left) * share

    @property
    def has_kink(self) -> bool:
        left, width, _ = self.parameters
        return width == 0.0 and left < 1.0

    def rounded(self, width: float) -> Activation:
        if not self.has_kink:
            return super().rounded(width)
        return Piecewise(f"rounded {self.name}", self.parameters[0], float(width), 0.0)

    def config(self) -> dict[str, object]:
        return {"name": self.name, "piecewise": [self.name, *self.parameters, self.alpha]}

    def on_tensor(self, z: Tensor) -> tuple[Tensor, Tensor]:
        left, width, offset = self.parameters
        share = (z >= 0).to(z.dtype)
        if width > 0.0:
            share = ((z + width) / (2.0 * width)).clamp(0.0, 1.0)
        ramp = (z - width).clamp(min=0.0) + width * share**2
        return left * z + (1.0 - left) * ramp - offset, left + (1.0 - left) * share

    def to_onnx(self, graph: Graph, t: str) -> str:
        slope, width, offset = self.parameters
        node, constant = graph.node, graph.constant
        # At this precision, such a width is indistinguishable from zero.
        if width < np.sqrt(np.finfo(graph.dtype).tiny):
            if slope == 0.0:
                return node("Relu", t)
            return node("Max", t, node("Mul", t, constant(slope)))
        wide = constant(width)
        share = node("Add", node("Div", t, constant(2.0 * width)), constant(0.5))
        share = node("Clip", share, constant(0.0), constant(1.0))
        parabola = node("Mul", node("Mul", share, share), wide)
        value = node("Add", parabola, node("Relu", node("Sub", t, wide)))
        if slope:
            value = node("Mul", value, constant(1.0 - slope))
            value = node("Add", value, node("Mul", t, constant(slope)))
        return node("Sub", value, constant(offset)) if offset else value


class Softplus(Named):
    """``log(1 + exp(t)) - log 2``."""

    name, alpha, beta = "softplus", 0.5, 1.0

    def value(self, t: Array) -> Array:
        return np.logaddexp(0.0, t) - np.log(2.0)

    def slope(self, t: Array) -> Array:
        return 0.5 * (1.0 + np.tanh(0.5 * np.asarray(t)))

    def most_bend(self, low: Array, high: Array) -> Array:
        nearest = np.maximum(np.maximum(low, -high), 0.0)  # to zero, where it is largest
        fading = np.exp(-nearest)
        return fading / (1.0 + fading) ** 2

    @staticmethod
    def kernel(z, slope, count, a, b, c):  # type: ignore[no-untyped-def]
        for i in range(count):
            t, e = z[i], math.exp(-abs(z[i]))
            z[i] = max(t, 0.0) + math.log1p(e) - LOG2
            slope[i] = (1.0 if t >= 0.0 else e) / (1.0 + e)

    def on_tensor(self, z: Tensor) -> tuple[Tensor, Tensor]:
        import torch

        # torch's softplus is linear above 20
        value = z.clamp(min=0.0) + torch.log1p(torch.exp(-z.abs())) - LOG2
        return value, torch.sigmoid(z)

    def to_onnx(self, graph: Graph, t: str) -> str:
        node, constant = graph.node, graph.constant
        # max(t, 0) + log(1 + exp(-|t|)) - log 2: nothing overflows
        fading = node("Exp", node("Neg", node("Abs", t)))
        rest = node("Log", node("Add", fading, constant(1.0)))
        return node("Sub", node("Add", node("Relu", t), rest), constant(np.log(2.0)))


class ELU(Named):
    """``t`` for ``t >= 0`` and ``exp(t) - 1`` below."""

    name, alpha, beta = "elu", 1.0, 1.0

    def value(self, t: Array) -> Array:
        return np.where(t >= 0, t, np.expm1(np.minimum(t, 0.0)))

    def slope(self, t: Array) -> Array:
        return np.where(t >= 0, 1.0, np.exp(np.minimum(t, 0.0)))

    def most_bend(self, low: Array, high: Array) -> Array:
        return np.where(low <= 0, np.exp(np.minimum(high, 0.0)), 0.0)

    @staticmethod
    def kernel(z, slope, count, a, b, c):  # type: ignore[no-untyped-def]
        for i in range(count):
            slope[i] = 1.0
            if z[i] < 0.0:
                z[i] = math.expm1(z[i])
                slope[i] = 1.0 + z[i]

    def on_tensor(self, z: Tensor) -> tuple[Tensor, Tensor]:
        import torch

        left = z.clamp(max=0.0)
        return torch.where(z >= 0, z, torch.expm1(left)), torch.exp(left)

    def to_onnx(self, graph: Graph, t: str) -> str:
        node, constant = graph.node, graph.constant
        # exp(s) - 1 as 2 h / (1 - h), h = tanh(s / 2): nothing cancels
        below = node("Neg", node("Relu", node("Neg", t)))
        half = node("Tanh", node("Mul", below, constant(0.5)))
        left = node("Div", node("Add", half, half), node("Sub", constant(1.0), half))
        return node("Add", node("Relu", t), left)


def identity() -> Activation:
    """``sigma(t) = t``: linear regression, a convex problem."""
    return Identity()


def leaky_relu(negative_slope: float = 0.01) -> Activation:
    """``sigma(t) = t`` for ``t >= 0`` and ``negative_slope * t`` below."""
    if not 0.0 <= negative_slope <= 1.0:
        raise ValueError(f"negative_slope must lie in [0, 1]; got {negative_slope!r}")
    if negative_slope == 1.0:
        return identity()
    name = "relu" if negative_slope == 0 else "leaky_relu"
    return Piecewise(name, float(negative_slope), 0.0, 0.0)


def relu() -> Activation:
    """``sigma(t) = max(t, 0)``."""
    return leaky_relu(0.0)


def softplus() -> Activation:
    """Softplus shifted to pass through zero: ``log(1 + exp(t)) - log 2``."""
    return Softplus()


def elu() -> Activation:
    """``sigma(t) = t`` for ``t >= 0`` and ``exp(t) - 1`` below."""
    return ELU()


def huber_relu(delta: float = 1.0) -> Activation:
    """A ReLU whose kink is rounded on ``[-delta, delta]``, shifted to pass through zero.

    ``(t + delta)^2 / (4 delta) - delta / 4`` inside, ``t - delta/4`` to the right,
    ``-delta/4`` to the left. Rounding on both sides keeps the slope at zero at one
    half; rounding on ``[0, delta]`` alone would leave ``alpha = 0``.
    """
    if not (np.isfinite(delta) and delta > 0):
        raise ValueError(f"delta must be a positive number; got {delta!r}")
    return Piecewise("huber_relu", 0.0, float(delta), float(delta) / 4, alpha=0.5)


NAMED: dict[str, Callable[[], Activation]] = {
    "identity": identity,
    "relu": relu,
    "leaky_relu": leaky_relu,
    "softplus": softplus,
    "elu": elu,
    "huber_relu": huber_relu,
}


def get_activation(activation: str | Activation) -> Activation:
    """Return the activation with this name, or the object itself after checking it."""
    own = " or an Activation(value, slope, alpha, beta)"
    found: Activation = chosen("activation", activation, Activation, NAMED, own)
    if not isinstance(found, Named):
        found.check()
    return found


def from_config(config: Mapping[str, Any]) -> Activation:
    """Return the activation that :meth:`Activation.config` describes."""
    made = config.get("piecewise")
    if not made:
        return NAMED[str(config["name"])]()
    name, *numbers = made
    return Piecewise(str(name), *map(float, numbers))
