"""The base class of losses."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

if TYPE_CHECKING:
    from torch import Tensor

    from counterpoise.activations.base import Graph

Array = np.ndarray
# Bounds below a loss are lowered by this share of the terms that they are computed from.
MARGIN = 32 * float(np.finfo(float).eps)
# Reads scores ``z[:count]`` and labels ``y[:count]``, and overwrites both. The three numbers are
# the loss's ``parameters``.
Kernel = Callable[[Array, Array, int, float, float, float], None]


class Loss:
    """A loss of a row, as a function of its linear score ``z`` and its label ``y``.

    A subclass defines ``name``, ``value``, ``slope``, ``bend`` and ``least_bend`` of arrays. The
    solver, the duality gap and every engine work for any loss that is convex in the score. A
    subclass may add a ``kernel`` and a ``bend_kernel``, which numba compiles for fast passes over
    the rows, and ``on_tensor`` for PyTorch tensors.

    Losses must not be negative. Those of several scores (``n_scores`` above one) take and return
    arrays with a last axis of scores; see :class:`Multinomial`.

    Examples
    --------
    >>> import numpy as np
    >>> class Cosh(Loss):
    ...     '''``log cosh(z - y)``, which is nearly the absolute error for large ones.'''
    ...
    ...     name = "cosh"
    ...
    ...     def value(self, z, y):
    ...         r = np.abs(z - y)
    ...         return r + np.log1p(np.exp(-2 * r)) - np.log(2)
    ...
    ...     def slope(self, z, y):
    ...         return np.tanh(z - y)
    ...
    ...     def bend(self, z, y):
    ...         return 1 - np.tanh(z - y) ** 2
    ...
    ...     def least_bend(self, z, y, reach):
    ...         return 1 - np.tanh(np.abs(z - y) + reach) ** 2
    >>> Cosh().check()
    """

    name: str = "custom"
    # Number of linear scores of a row.
    n_scores: int = 1
    # Whether the loss is convex in the score and fitted by Newton's method. The squared error of a
    # neuron has methods of its own, even where it is convex.
    is_convex: ClassVar[bool] = True
    # Whether the loss is a quadratic function of the score, of second derivative two.
    is_quadratic: bool = False
    # Whether labels are classes.
    is_of_classes: ClassVar[bool] = False
    # Whether the slope jumps in a way that :meth:`rounded` can smooth.
    has_kink: bool = False
    # The largest second derivative; infinite if there is none.
    bend_bound: float = 1.0
    # The largest absolute slope; infinite if there is none.
    slope_bound: float = math.inf
    # Sums over rows are of slopes and second derivatives divided by this.
    unit: float = 1.0
    # Arguments of the kernels.
    parameters: tuple[float, float, float] = (0.0, 0.0, 0.0)
    # Static methods that numba can compile. `kernel` sets ``z`` to slopes and ``y`` to values;
    # `bend_kernel` sets ``y`` to roots of second derivatives. If None, passes call the methods.
    kernel: ClassVar[Any] = None
    bend_kernel: ClassVar[Any] = None

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"

    # -- for subclasses --------------------------------------------------------------------

    def value(self, z: Array, y: Array) -> Array:
        """Return the losses."""
        raise NotImplementedError(f"{type(self).__name__} must define value()")

    def slope(self, z: Array, y: Array) -> Array:
        """Return the derivatives by the score."""
        raise NotImplementedError(f"{type(self).__name__} must define slope()")

    def bend(self, z: Array, y: Array) -> Array:
        """Return the second derivatives by the score."""
        raise NotImplementedError(f"{type(self).__name__} must define bend()")

    def least_bend(self, z: Array, y: Array, reach: Array) -> Array:
        """Return a lower bound on second derivatives at all scores within ``reach`` of ``z``."""
        raise NotImplementedError(f"{type(self).__name__} must define least_bend()")

    def outputs(self, z: Array) -> Array:
        """Return predictions: means, or probabilities of classes."""
        return z

    def mistaken(self, z: Array, y: Array) -> Array:
        """Mark rows that are put into a wrong class, for labels that are classes."""
        raise TypeError(f"labels of the loss {self.name!r} are no classes")

    def on_tensor(self, z: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor] | None:
        """Return values, slopes and bends on the tensors' device; None to compute on the host."""
        return None

    def to_onnx(self, graph: Graph, z: str) -> str:
        """Add the outputs for the scores ``z`` to an ONNX graph and return the result's name."""
        return z

    def check_labels(self, y: Array) -> None:
        """Raise ValueError for labels that the loss is not defined for."""
        return

    def config(self) -> dict[str, object] | None:
        """Return the input of `from_config`; None if only Python code can define it."""
        return None

    # -- for engines -----------------------------------------------------------------------

    def pull(self, z: Array, y: Array, *, surrogate: bool) -> Array:
        """Return the coefficients of rows in the sums of a gradient."""
        return self.slope(z, y)

    def value_and_pull(self, z: Array, y: Array, *, surrogate: bool) -> tuple[Array, Array]:
        """Return losses and pulls."""
        return self.value(z, y), self.pull(z, y, surrogate=surrogate)

    def gradient_unit(self, *, surrogate: bool) -> float:
        """Return the factor from sums of pulls to a gradient."""
        return self.unit

    def stretch(self, z: Array, y: Array) -> Array:
        """Return roots of second derivatives, divided by the root of ``unit``."""
        return np.sqrt(self.bend(z, y) / self.unit)

    def rounded(self, width: float) -> Loss:
        """Return the same loss with its kink rounded."""
        raise ValueError(f"loss {self.name!r} has no kink to round")

    def check(self) -> None:
        """Raise ValueError unless slopes, bends and their bounds fit the values."""
        z = np.linspace(-8.0, 8.0, 401)
        for label in self.probe_labels():
            y, h = np.full_like(z, label), 1e-4
            value, slope, bend = self.value(z, y), self.slope(z, y), self.bend(z, y)
            self._require("values that are not negative", value >= -1e-12, z)
            numeric = (self.value(z + h, y) - self.value(z - h, y)) / (2 * h)
            size = 1.0 + np.abs(slope)
            self._require("the slopes of slope()", np.abs(numeric - slope) <= 1e-3 * size, z)
            self._require("slopes that do not fall (convex)", np.diff(slope) >= -1e-12, z)
            between = (self.slope(z + h, y) - self.slope(z - h, y)) / (2 * h)
            off = np.abs(between - bend) > 1e-2 * (1.0 + np.abs(bend))
            self._require("the second derivatives of bend()", ~off | (np.cumsum(off) <= 4), z)
            reach = np.full_like(z, 0.3)
            least = self.least_bend(z, y, reach)
            for t in (-0.3, -0.15, 0.0, 0.15, 0.3):
                near = self.bend(z + t, y)
                self._require("the bounds of least_bend()", least <= near + 1e-12, z)
            self._require("slopes up to slope_bound", np.abs(slope) <= self.slope_bound, z)
            self._require("a bend up to bend_bound", bend <= self.bend_bound * (1 + 1e-12), z)

    def probe_labels(self) -> tuple[float, ...]:
        """Return labels to check the loss at."""
        return (0.0, 1.0)

    def _require(self, what: str, holds: Array, z: Array) -> None:
        if not holds.all():
            where = z[int(np.argmin(holds))]
            raise ValueError(
                f"loss {self.name!r} does not have {what}, near z = {where:g}; correct its methods"
            )
