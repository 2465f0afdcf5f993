"""The base class of activations, and a check that one satisfies the theory's assumptions.

The paper requires a convex, non-decreasing, ``beta``-Lipschitz function with ``sigma(0) = 0`` whose
slope is at least ``alpha > 0`` on ``t >= 0`` (an (alpha, beta)-unbounded activation).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import numpy as np

if TYPE_CHECKING:
    from torch import Tensor

Array = np.ndarray
Function = Callable[[Array], Array]
# Replaces ``z[:count]`` by values and fills ``slope[:count]`` with slopes, both in place. The three
# numbers are the activation's ``parameters``.
Kernel = Callable[[Array, Array, int, float, float, float], None]


class Graph(Protocol):
    """An ONNX graph under construction, with named operators and constants."""

    @property
    def dtype(self) -> np.dtype: ...

    def node(self, operator: str, *inputs: str) -> str: ...

    def constant(self, value: float) -> str: ...


class Activation:
    """A function ``sigma`` with its slope and the constants the theory needs.

    Pass the functions, or subclass and define ``name``, ``alpha``, ``beta``, ``value`` and
    ``slope``. A subclass may add a ``kernel``, which numba compiles for fast passes over the rows,
    and ``on_tensor`` and ``to_onnx`` for PyTorch tensors and ONNX export.

    Parameters
    ----------
    value : callable
        ``sigma``, from an array to an array of the same shape.
    slope : callable or None
        The derivative (at a kink, any number between the one-sided slopes).
        ``None`` uses central differences of ``value``.
    alpha, beta : float
        Bounds on the slope: at least ``alpha`` on ``t >= 0``, and at most ``beta`` everywhere.
    name : str
        Name for messages and ``repr``.

    Examples
    --------
    >>> import numpy as np
    >>> ramp = Activation(lambda t: np.maximum(t, 0.25 * t), None, 1.0, 1.0, name="ramp")
    >>> ramp.check()
    >>> ramp.value(np.array([-4.0, 2.0])).tolist()
    [-1.0, 2.0]

    The same as a class, compiled:

    >>> class Ramp(Activation):
    ...     name, alpha, beta = "ramp", 1.0, 1.0
    ...
    ...     def value(self, t):
    ...         return np.maximum(t, 0.25 * t)
    ...
    ...     @staticmethod
    ...     def kernel(z, slope, count, a, b, c):
    ...         for i in range(count):
    ...             slope[i] = 1.0 if z[i] >= 0.0 else 0.25
    ...             z[i] *= slope[i]
    >>> Ramp().check()
    """

    name: str = "custom"
    alpha: float
    beta: float
    # Arguments of the kernel.
    parameters: tuple[float, float, float] = (0.0, 0.0, 0.0)
    # A static method that numba can compile. If None, passes call `value` and `slope`.
    kernel: ClassVar[Any] = None
    # Whether the neuron is a linear model, with quadratic losses.
    is_identity: ClassVar[bool] = False

    def __init__(
        self,
        value: Function | None = None,
        slope: Function | None = None,
        alpha: float | None = None,
        beta: float | None = None,
        name: str | None = None,
    ) -> None:
        given = {"value": value, "slope": slope, "alpha": alpha, "beta": beta, "name": name}
        self.__dict__.update({key: item for key, item in given.items() if item is not None})
        missing = [key for key in ("alpha", "beta") if not hasattr(self, key)]
        if value is None and type(self).value is Activation.value:
            missing.insert(0, "value")
        if missing:
            raise TypeError(
                f"{type(self).__name__} needs {', '.join(missing)}: pass them, or define them in a "
                "subclass"
            )

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"an activation cannot be changed; make another to set its {name}")

    def __repr__(self) -> str:
        return f"Activation(alpha={self.alpha!r}, beta={self.beta!r}, name={self.name!r})"

    def value(self, t: Array) -> Array:
        """Return ``sigma(t)``."""
        raise NotImplementedError(f"{type(self).__name__} must define value()")

    def slope(self, t: Array) -> Array:
        """Return ``sigma'(t)``; at a kink, the right slope. Default: central differences."""
        h = 1e-6 * (1.0 + np.abs(t))
        return (self.value(t + h) - self.value(t - h)) / (2.0 * h)

    def left_slope(self, t: Array) -> Array:
        """Return ``sigma'(t)``; at a kink, the left slope."""
        return self.slope(t)

    def most_bend(self, low: Array, high: Array) -> Array | None:
        """Bound the second derivative between ``low`` and ``high`` from above; None if unknown.

        An activation that defines it and an exact ``slope`` can be certified in a region, see
        :meth:`counterpoise.GroupDRONeuron.certify`. At the ends of the intervals, the second
        derivatives of either side count.
        """
        return None

    @property
    def has_kink(self) -> bool:
        """Whether the slope jumps at zero and :meth:`rounded` can smooth the jump."""
        return False

    def rounded(self, width: float) -> Activation:
        """Return the same function with its kink rounded on ``[-width, width]``."""
        raise ValueError(f"activation {self.name!r} has no kink to round")

    def config(self) -> dict[str, object] | None:
        """Return the input of `from_config`; None if only Python code can define it."""
        return None

    def on_tensor(self, z: Tensor) -> tuple[Tensor, Tensor] | None:
        """Return values and slopes on the tensor's device; None to compute on the host."""
        return None

    def to_onnx(self, graph: Graph, t: str) -> str:
        """Add ``sigma`` of the scores ``t`` to an ONNX graph and return the result's name."""
        raise ValueError(
            f"activation {self.name!r} is a Python function, which ONNX cannot store; "
            "only models with a named activation can be exported"
        )

    def check(self) -> None:
        """Raise ValueError if a declared property fails, with the property and the point."""
        if not (np.isfinite(self.alpha) and np.isfinite(self.beta) and 0 < self.alpha <= self.beta):
            raise ValueError(
                f"activation {self.name!r}: need 0 < alpha <= beta, "
                f"got alpha={self.alpha!r}, beta={self.beta!r}"
            )
        with np.errstate(over="ignore", under="ignore"):  # exp() of distant probe points
            self._check_shape(_probe_points())

    def _check_shape(self, t: Array) -> None:
        s = np.asarray(self.value(t), dtype=float)
        if s.shape != t.shape:
            raise ValueError(
                f"activation {self.name!r}: value() must map an array to one of the same "
                f"shape; got {s.shape} for {t.shape}"
            )
        if not np.isfinite(s).all():
            self._violates("is finite", t[~np.isfinite(s)][0])
        zero = float(np.asarray(self.value(np.zeros(1)))[0])
        if abs(zero) > 1e-12:
            self._violates("has sigma(0) = 0", 0.0, f"sigma(0) = {zero:g}")
        # Secant slopes between neighbouring points, and bounds on their rounding error.
        gap = np.diff(t)
        secant = np.diff(s) / gap
        eps = 8 * np.finfo(float).eps * (np.abs(s[1:]) + np.abs(s[:-1]) + np.abs(t[1:])) / gap
        eps += 1e-9 * self.beta
        self._require("is non-decreasing", secant >= -eps, t)
        self._require(f"is Lipschitz with beta = {self.beta:g}", secant <= self.beta + eps, t)
        right = t[:-1] >= 0
        self._require(
            f"has slope at least alpha = {self.alpha:g} for t >= 0",
            ~right | (secant >= self.alpha - eps),
            t,
        )
        bends = np.diff(secant) >= -(eps[1:] + eps[:-1])
        self._require("is convex", np.append(bends, True), t)
        slope = np.asarray(self.slope(t[1:-1]), dtype=float)
        slack = eps[1:] + eps[:-1] + 1e-6 * self.beta
        fits = (slope >= secant[:-1] - slack) & (slope <= secant[1:] + slack)
        self._require("has the slope that slope() returns", np.append(fits, True), t[1:])
        most = self.most_bend(t[:-1], t[1:])
        if most is not None:
            bend = np.diff(np.asarray(self.slope(t), dtype=float)) / gap
            room = 1e-6 * np.abs(most) + 64 * np.finfo(float).eps * self.beta / gap
            self._require(
                "has the second derivatives that most_bend() bounds", bend <= most + room, t
            )
        if self.kernel is not None:
            self._check_kernel(t, s)

    def _check_kernel(self, t: Array, value: Array) -> None:
        """Compare the kernel, run in plain Python, with ``value`` and ``slope``."""
        if not isinstance(inspect.getattr_static(type(self), "kernel"), staticmethod):
            raise TypeError(f"activation {self.name!r}: make kernel() a @staticmethod")
        z, slope, expected = t.copy(), np.ones_like(t), np.asarray(self.slope(t), dtype=float)
        self.kernel(z, slope, len(t), *self.parameters)
        self._require("has the values that kernel() sets", np.isclose(z, value, 1e-9, 1e-12), t)
        away = np.abs(t) > 1e-3  # central differences smear a kink
        close = np.isclose(slope, expected, 1e-5, 1e-6 * self.beta)
        self._require("has the slopes that kernel() sets", close | ~away, t)

    def _require(self, what: str, holds: Array, t: Array) -> None:
        if not holds.all():
            self._violates(what, t[int(np.argmin(holds))])

    def _violates(self, what: str, where: float, seen: str = "") -> None:
        raise ValueError(
            f"activation {self.name!r} is outside the class the method covers: it must be a "
            f"function that {what}, but fails near t = {where:g}{'; ' + seen if seen else ''}. "
            "Correct the function or its declared alpha and beta."
        )


def _probe_points() -> Array:
    """Return the points to probe: dense near zero, out to 1e4 on both sides."""
    far = np.geomspace(1e-6, 1e4, 801)
    near = np.linspace(-12.0, 12.0, 1201)
    return np.unique(np.concatenate([-far, near, far, [0.0]]))
