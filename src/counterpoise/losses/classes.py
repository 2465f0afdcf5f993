"""Losses for labels that are classes."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from scipy.special import expit, logsumexp, softmax

from counterpoise.losses.base import Loss

if TYPE_CHECKING:
    from torch import Tensor

    from counterpoise.activations.base import Graph

Array = np.ndarray


class TwoClasses(Loss):
    """A loss for labels 0 and 1, where a positive score stands for 1."""

    is_of_classes: ClassVar[bool] = True

    def mistaken(self, z: Array, y: Array) -> Array:
        return (z > 0) != (y > 0.5)


class LogLoss(TwoClasses):
    """``log(1 + exp(z)) - y z`` for labels between 0 and 1: logistic regression."""

    name = "log"
    bend_bound = 0.25
    slope_bound = 1.0

    def value(self, z: Array, y: Array) -> Array:
        return np.maximum(z, 0.0) - y * z + np.log1p(np.exp(-np.abs(z)))

    def slope(self, z: Array, y: Array) -> Array:
        return expit(z) - y

    def bend(self, z: Array, y: Array) -> Array:
        return expit(z) * expit(-z)

    def least_bend(self, z: Array, y: Array, reach: Array) -> Array:
        return self.bend(np.abs(z) + reach, y)

    @staticmethod
    def kernel(z, y, count, a, b, c):  # type: ignore[no-untyped-def]
        for i in range(count):
            t, e = z[i], math.exp(-abs(z[i]))
            value = max(t, 0.0) - y[i] * t + math.log1p(e)
            z[i] = (1.0 if t >= 0.0 else e) / (1.0 + e) - y[i]
            y[i] = value

    @staticmethod
    def bend_kernel(z, y, count, a, b, c):  # type: ignore[no-untyped-def]
        for i in range(count):
            e = math.exp(-0.5 * abs(z[i]))
            y[i] = e / (1.0 + e * e)

    def outputs(self, z: Array) -> Array:
        return expit(z)

    def on_tensor(self, z: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        import torch

        p = torch.sigmoid(z)
        value = z.clamp(min=0.0) - y * z + torch.log1p(torch.exp(-z.abs()))
        return value, p - y, p * torch.sigmoid(-z)

    def to_onnx(self, graph: Graph, z: str) -> str:
        return graph.node("Sigmoid", z)

    def check_labels(self, y: Array) -> None:
        bad = (y < 0) | (y > 1)
        if bad.any():
            raise ValueError(f"the log loss needs labels between 0 and 1; got {y[bad][0]!r}")

    def config(self) -> dict[str, object]:
        return {"name": self.name}


class SquaredHinge(TwoClasses):
    """``max(0, 1 - m)^2`` with the margin ``m = (2 y - 1) z``, for labels 0 and 1."""

    name = "squared_hinge"
    bend_bound = 2.0

    def _short(self, z: Array, y: Array) -> Array:
        return np.maximum(1.0 - (2.0 * y - 1.0) * z, 0.0)

    def value(self, z: Array, y: Array) -> Array:
        return self._short(z, y) ** 2

    def slope(self, z: Array, y: Array) -> Array:
        return -2.0 * (2.0 * y - 1.0) * self._short(z, y)

    def bend(self, z: Array, y: Array) -> Array:
        return np.where(self._short(z, y) > 0, 2.0, 0.0)

    def least_bend(self, z: Array, y: Array, reach: Array) -> Array:
        return np.where(self._short(z, y) > reach, 2.0, 0.0)

    @staticmethod
    def kernel(z, y, count, a, b, c):  # type: ignore[no-untyped-def]
        for i in range(count):
            sign = 2.0 * y[i] - 1.0
            short = max(1.0 - sign * z[i], 0.0)
            z[i] = -2.0 * sign * short
            y[i] = short * short

    @staticmethod
    def bend_kernel(z, y, count, a, b, c):  # type: ignore[no-untyped-def]
        for i in range(count):
            y[i] = 1.4142135623730951 if (2.0 * y[i] - 1.0) * z[i] < 1.0 else 0.0

    def on_tensor(self, z: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        sign = 2.0 * y - 1.0
        short = (1.0 - sign * z).clamp(min=0.0)
        return short**2, -2.0 * sign * short, 2.0 * (short > 0).to(z.dtype)

    def check_labels(self, y: Array) -> None:
        bad = (y != 0) & (y != 1)
        if bad.any():
            raise ValueError(f"the squared hinge loss needs labels 0 and 1; got {y[bad][0]!r}")

    def config(self) -> dict[str, object]:
        return {"name": self.name}


class Multinomial(Loss):
    """``log sum_c exp(z_c) - z_y`` for one score per class, and labels that number the classes.

    Scores have a last axis of classes. ``bend`` returns the probabilities ``p``, whose matrix of
    second derivatives is ``diag(p) - p p^T``; the bound of ``least_bend`` is a factor on it.
    """

    name = "multinomial"
    is_of_classes: ClassVar[bool] = True
    # The largest eigenvalue of diag(p) - p p^T.
    bend_bound = 0.5
    slope_bound = math.sqrt(2.0)

    def __init__(self, n_classes: int) -> None:
        if n_classes < 2:
            raise ValueError(f"n_classes must be at least 2; got {n_classes!r}")
        self.n_scores = int(n_classes)

    def __repr__(self) -> str:
        return f"Multinomial({self.n_scores})"

    def value(self, z: Array, y: Array) -> Array:
        return logsumexp(z, axis=-1) - np.take_along_axis(z, _index(y), axis=-1)[..., 0]

    def mistaken(self, z: Array, y: Array) -> Array:
        return np.argmax(z, axis=-1) != y

    def slope(self, z: Array, y: Array) -> Array:
        out = softmax(z, axis=-1)
        index = _index(y)
        np.put_along_axis(out, index, np.take_along_axis(out, index, axis=-1) - 1.0, axis=-1)
        return out

    def bend(self, z: Array, y: Array) -> Array:
        return softmax(z, axis=-1)

    def least_bend(self, z: Array, y: Array, reach: Array) -> Array:
        # Along a change e of the scores, the third derivative is at most max e - min e times the
        # second, and max e - min e <= 2 max |e|.
        return np.exp(-2.0 * reach)

    def outputs(self, z: Array) -> Array:
        return softmax(z, axis=-1)

    def to_onnx(self, graph: Graph, z: str) -> str:
        return graph.node("Softmax", z)

    def check_labels(self, y: Array) -> None:
        bad = (y < 0) | (y >= self.n_scores) | (y != np.floor(y))
        if bad.any():
            raise ValueError(
                f"the multinomial loss needs labels 0 to {self.n_scores - 1}; got {y[bad][0]!r}"
            )

    def config(self) -> dict[str, object]:
        return {"name": self.name, "n_classes": self.n_scores}


def _index(y: Array) -> Array:
    return np.asarray(y).astype(np.intp)[..., None]
