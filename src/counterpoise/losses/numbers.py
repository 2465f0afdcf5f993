"""Losses for labels that are numbers."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from counterpoise.losses.base import Loss

if TYPE_CHECKING:
    from torch import Tensor

    from counterpoise.activations.base import Graph

Array = np.ndarray

# Squares of smaller losses vanish in double precision.
LEAST_DELTA = 1e-140


class Huber(Loss):
    """``r^2 / 2`` of residuals ``r = z - y`` up to ``delta``, ``delta |r| - delta^2 / 2`` above.

    Labels that are far off pull with a force of at most ``delta``.
    """

    name = "huber"

    def __init__(self, delta: float = 1.0) -> None:
        if not (np.isfinite(delta) and delta > 0):
            raise ValueError(f"delta must be a positive number; got {delta!r}")
        if delta < LEAST_DELTA:
            raise ValueError(
                f"delta={delta!r} is so small that its square vanishes; multiply y and delta by a "
                "power of ten, and divide predictions by it"
            )
        self.parameters = (float(delta), 0.0, 0.0)
        self.slope_bound = float(delta)

    def __repr__(self) -> str:
        return f"Huber(delta={self.delta!r})"

    @property
    def delta(self) -> float:
        return self.parameters[0]

    def value(self, z: Array, y: Array) -> Array:
        size = np.abs(z - y)
        near = np.minimum(size, self.delta)
        return near * (size - 0.5 * near)

    def slope(self, z: Array, y: Array) -> Array:
        return np.clip(z - y, -self.delta, self.delta)

    def bend(self, z: Array, y: Array) -> Array:
        return np.where(np.abs(z - y) < self.delta, 1.0, 0.0)

    def least_bend(self, z: Array, y: Array, reach: Array) -> Array:
        return np.where(np.abs(z - y) + reach < self.delta, 1.0, 0.0)

    @staticmethod
    def kernel(z, y, count, delta, b, c):  # type: ignore[no-untyped-def]
        for i in range(count):
            r = z[i] - y[i]
            near = min(abs(r), delta)
            y[i] = near * (abs(r) - 0.5 * near)
            z[i] = min(max(r, -delta), delta)

    @staticmethod
    def bend_kernel(z, y, count, delta, b, c):  # type: ignore[no-untyped-def]
        for i in range(count):
            y[i] = 1.0 if abs(z[i] - y[i]) < delta else 0.0

    def on_tensor(self, z: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        r = z - y
        near = r.abs().clamp(max=self.delta)
        value = near * (r.abs() - 0.5 * near)
        return value, r.clamp(-self.delta, self.delta), (r.abs() < self.delta).to(z.dtype)

    def config(self) -> dict[str, object]:
        return {"name": self.name, "delta": self.delta}


class Poisson(Loss):
    """Half the Poisson deviance of counts ``y`` from means ``exp(z)``.

    ``exp(z) - y z + y log y - y``, which is zero where the mean is the label. The second derivative
    is unbounded.
    """

    name = "poisson"
    bend_bound = math.inf

    def value(self, z: Array, y: Array) -> Array:
        # y (exp(t) - 1 - t) with t = z - log y: sums of large terms would lose a small deviance.
        t = z - np.log(np.where(y > 0, y, 1.0))
        far = np.exp(z) - y * (1.0 + t)
        return np.where((t > 1.0) | (y == 0), far, y * (np.expm1(np.minimum(t, 1.0)) - t))

    def slope(self, z: Array, y: Array) -> Array:
        return np.exp(z) - y

    def bend(self, z: Array, y: Array) -> Array:
        return np.exp(z)

    def least_bend(self, z: Array, y: Array, reach: Array) -> Array:
        return np.exp(z - reach)

    @staticmethod
    def kernel(z, y, count, a, b, c):  # type: ignore[no-untyped-def]
        for i in range(count):
            label, mean = y[i], math.exp(z[i])
            t = z[i] - math.log(label) if label > 0.0 else 2.0
            y[i] = mean - label * (1.0 + t) if t > 1.0 else label * (math.expm1(t) - t)
            z[i] = mean - label

    @staticmethod
    def bend_kernel(z, y, count, a, b, c):  # type: ignore[no-untyped-def]
        for i in range(count):
            y[i] = math.exp(0.5 * z[i])

    def outputs(self, z: Array) -> Array:
        return np.exp(z)

    def on_tensor(self, z: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        import torch

        mean = torch.exp(z)
        t = z - torch.log(torch.where(y > 0, y, 1.0))
        near = y * (torch.expm1(t.clamp(max=1.0)) - t)
        value = torch.where((t > 1.0) | (y == 0), mean - y * (1.0 + t), near)
        return value, mean - y, mean

    def to_onnx(self, graph: Graph, z: str) -> str:
        return graph.node("Exp", z)

    def check_labels(self, y: Array) -> None:
        if (y < 0).any():
            raise ValueError(f"the Poisson loss needs labels >= 0; got {y[y < 0][0]!r}")

    def probe_labels(self) -> tuple[float, ...]:
        return (0.0, 1.0, 3.0)

    def config(self) -> dict[str, object]:
        return {"name": self.name}
