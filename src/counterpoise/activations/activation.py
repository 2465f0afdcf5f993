"""Activations: the class of functions the theory covers, and a check that one belongs to it.

The paper asks for a convex, non-decreasing, ``beta``-Lipschitz function with
``sigma(0) = 0`` whose slope is at least ``alpha > 0`` on ``t >= 0``
(its definition of an (alpha, beta)-unbounded activation).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from counterpoise.common.arguments import chosen

Array = np.ndarray
Function = Callable[[Array], Array]

# What the compiled kernels know by number; CUSTOM is evaluated in Python.
CUSTOM, IDENTITY, PIECEWISE, SOFTPLUS, ELU = range(5)


@dataclass(frozen=True)
class Activation:
    """A function ``sigma`` with its slope and the constants the theory needs.

    Parameters
    ----------
    value : callable
        ``sigma``, from an array to an array of the same shape.
    slope : callable or None
        A derivative (at a kink, any number between the one-sided slopes).
        ``None`` means central differences of ``value``.
    alpha, beta : float
        Declared constants: slope at least ``alpha`` on ``t >= 0``, and at most
        ``beta`` anywhere.
    name : str
        For messages and ``repr``.

    Examples
    --------
    >>> import numpy as np
    >>> ramp = Activation(lambda t: np.maximum(t, 0.25 * t), None, 1.0, 1.0, name="ramp")
    >>> ramp.check()
    >>> ramp.value(np.array([-4.0, 2.0])).tolist()
    [-1.0, 2.0]
    """

    value: Function = field(repr=False)
    slope: Function | None = field(repr=False)
    alpha: float
    beta: float
    name: str = "custom"
    code: int = field(default=CUSTOM, repr=False)
    parameters: tuple[float, float, float] = field(default=(0.0, 0.0, 0.0), repr=False)

    def derivative(self, t: Array) -> Array:
        """The slope at ``t``: the declared one, or central differences."""
        if self.slope is not None:
            return self.slope(t)
        h = 1e-6 * (1.0 + np.abs(t))
        return (self.value(t + h) - self.value(t - h)) / (2.0 * h)

    def __reduce__(self) -> Any:
        """Named activations are copied and stored by name; one's own by its functions."""
        if self.code == PIECEWISE:
            return _piecewise, (self.name, *self.parameters, self.alpha)
        if self.code != CUSTOM:
            return NAMED[self.name], ()
        return Activation, (self.value, self.slope, self.alpha, self.beta, self.name)

    @property
    def is_identity(self) -> bool:
        return self.code == IDENTITY

    @property
    def has_kink(self) -> bool:
        """Whether this is a named activation whose slope jumps at zero."""
        slope, width, _ = self.parameters
        return self.code == PIECEWISE and width == 0.0 and slope < 1.0

    def rounded(self, width: float) -> Activation:
        """The same function with its kink rounded on ``[-width, width]``."""
        if not self.has_kink:
            raise ValueError(f"activation {self.name!r} has no kink to round")
        return _piecewise(f"rounded {self.name}", self.parameters[0], float(width), 0.0)

    def check(self) -> None:
        """Raise ValueError if a declared property fails, naming it and the point."""
        if not (np.isfinite(self.alpha) and np.isfinite(self.beta) and 0 < self.alpha <= self.beta):
            raise ValueError(
                f"activation {self.name!r}: need 0 < alpha <= beta, "
                f"got alpha={self.alpha!r}, beta={self.beta!r}"
            )
        with np.errstate(over="ignore", under="ignore"):  # exp() of far probe points
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
        # Secant slopes between neighbouring points; rounding of the values bounds their error.
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
        slope = np.asarray(self.derivative(t[1:-1]), dtype=float)
        slack = eps[1:] + eps[:-1] + 1e-6 * self.beta
        fits = (slope >= secant[:-1] - slack) & (slope <= secant[1:] + slack)
        self._require("has the slope that slope() returns", np.append(fits, True), t[1:])

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
    """Points where properties are probed: fine near zero, out to 1e4 on both sides."""
    far = np.geomspace(1e-6, 1e4, 801)
    near = np.linspace(-12.0, 12.0, 1201)
    return np.unique(np.concatenate([-far, near, far, [0.0]]))


def identity() -> Activation:
    """``sigma(t) = t``: linear regression, a convex problem."""
    return Activation(
        value=lambda t: np.asarray(t, dtype=float).copy(),
        slope=np.ones_like,
        alpha=1.0,
        beta=1.0,
        name="identity",
        code=IDENTITY,
    )


def _piecewise(
    name: str, negative_slope: float, width: float, offset: float, alpha: float = 1.0
) -> Activation:
    """``a t + (1 - a) ramp(t) - offset``: slope ``a`` on the left, one on the right, and the
    kink of ``ramp`` rounded to a parabola on ``[-width, width]``."""

    def share(t: Array) -> Array:
        if width == 0.0:
            return np.where(np.asarray(t) >= 0, 1.0, 0.0)
        return np.clip((np.asarray(t) + width) / (2.0 * width), 0.0, 1.0)

    def value(t: Array) -> Array:
        ramp = width * share(t) ** 2 + np.maximum(np.asarray(t) - width, 0.0)
        return negative_slope * t + (1.0 - negative_slope) * ramp - offset

    return Activation(
        value=value,
        slope=lambda t: negative_slope + (1.0 - negative_slope) * share(t),
        alpha=alpha,
        beta=1.0,
        name=name,
        code=PIECEWISE,
        parameters=(negative_slope, width, offset),
    )


def leaky_relu(negative_slope: float = 0.01) -> Activation:
    """``sigma(t) = t`` for ``t >= 0`` and ``negative_slope * t`` below."""
    if not 0.0 <= negative_slope <= 1.0:
        raise ValueError(f"negative_slope must lie in [0, 1]; got {negative_slope!r}")
    if negative_slope == 1.0:
        return identity()
    name = "relu" if negative_slope == 0 else "leaky_relu"
    return _piecewise(name, float(negative_slope), 0.0, 0.0)


def relu() -> Activation:
    """``sigma(t) = max(t, 0)``."""
    return leaky_relu(0.0)


def softplus() -> Activation:
    """Softplus shifted to pass through zero: ``log(1 + exp(t)) - log 2``."""
    return Activation(
        value=lambda t: np.logaddexp(0.0, t) - np.log(2.0),
        slope=lambda t: 0.5 * (1.0 + np.tanh(0.5 * np.asarray(t))),
        alpha=0.5,
        beta=1.0,
        name="softplus",
        code=SOFTPLUS,
    )


def elu() -> Activation:
    """``sigma(t) = t`` for ``t >= 0`` and ``exp(t) - 1`` below."""
    return Activation(
        value=lambda t: np.where(t >= 0, t, np.expm1(np.minimum(t, 0.0))),
        slope=lambda t: np.where(t >= 0, 1.0, np.exp(np.minimum(t, 0.0))),
        alpha=1.0,
        beta=1.0,
        name="elu",
        code=ELU,
    )


def huber_relu(delta: float = 1.0) -> Activation:
    """A ReLU whose kink is rounded on ``[-delta, delta]``, shifted to pass through zero.

    ``(t + delta)^2 / (4 delta) - delta / 4`` inside, ``t - delta/4`` to the right,
    ``-delta/4`` to the left. Rounding on both sides keeps the slope at zero at one
    half; rounding on ``[0, delta]`` alone would leave ``alpha = 0``.
    """
    if not (np.isfinite(delta) and delta > 0):
        raise ValueError(f"delta must be a positive number; got {delta!r}")

    return _piecewise("huber_relu", 0.0, float(delta), float(delta) / 4, alpha=0.5)


NAMED: dict[str, Callable[[], Activation]] = {
    "identity": identity,
    "relu": relu,
    "leaky_relu": leaky_relu,
    "softplus": softplus,
    "elu": elu,
    "huber_relu": huber_relu,
}


def get_activation(activation: str | Activation) -> Activation:
    """The activation a user means; a user's own one is checked before it is used."""
    own = " or an Activation(value, slope, alpha, beta)"
    found = chosen("activation", activation, Activation, NAMED, own)
    if found.code == CUSTOM:
        found.check()
    return found
