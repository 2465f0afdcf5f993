"""The dual update: the only place where group weights change.

It is the last line of Algorithm 1 in the paper,

    lam_t = argmax_simplex  a_t L(w_t, .) - (nu0 + nu A_{t-1}) D(., lam_{t-1}),

and the extrapolation. All functions are pure and use a small state; they need no rows or model.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from counterpoise.dual.divergences import Divergence, SimplexPoint, get_divergence

Array = np.ndarray


@dataclass(frozen=True)
class DualState:
    """Group weights after ``t`` updates, and what the next update needs.

    Attributes
    ----------
    point : SimplexPoint
        ``lam_t`` (weights and logarithms).
    previous : Array
        ``lam_{t-1}``, for the extrapolation.
    step : float
        ``a_t``, the last step size.
    total : float
        ``A_t``, the sum of all step sizes.
    iteration : int
        ``t``.
    """

    point: SimplexPoint
    previous: Array
    step: float = 0.0
    total: float = 0.0
    iteration: int = 0

    @classmethod
    def start(cls, weights: Array) -> DualState:
        """Return the state before any step; in the paper, ``weights`` are the prior."""
        point = SimplexPoint.of(np.array(weights, dtype=float))
        return cls(point, point.weights)

    @property
    def weights(self) -> Array:
        return self.point.weights

    def moved(self, point: SimplexPoint, step: float = 0.0) -> DualState:
        """Return the state after an update of size ``step`` to ``point``."""
        return DualState(point, self.weights, step, self.total + step, self.iteration + 1)

    @property
    def change(self) -> Array:
        """``lam_t - lam_{t-1}``."""
        return self.point.weights - self.previous


@dataclass(frozen=True)
class Proximal:
    """A step of the weights, before it meets the losses.

    ``respond`` returns ``argmax_lam lam.losses - nu phi(lam) - kappa D(lam, centre)``. A ``blind``
    step takes all losses for equal.
    """

    centre: SimplexPoint
    nu: float
    kappa: float
    prior: Array
    divergence: Divergence
    blind: bool = False

    def respond(self, losses: Array, present: Array | None = None) -> SimplexPoint:
        """Return the weights after the step; groups that are not ``present`` keep theirs."""
        return proximal_weights(
            np.zeros(len(losses)) if self.blind else losses,
            self.centre,
            nu=self.nu,
            kappa=self.kappa,
            prior=self.prior,
            divergence=self.divergence,
            present=present,
        )


def proximal_of(
    state: DualState,
    *,
    step: float,
    nu: float,
    nu0: float,
    prior: Array,
    divergence: str | Divergence = "kl",
) -> Proximal:
    """Return the step that `dual_step` makes, with ``kappa = (nu0 + nu A_{t-1}) / a_t``."""
    if not step > 0:
        raise ValueError(f"step must be positive; got {step!r}")
    kappa = (nu0 + nu * state.total) / step
    prior = np.asarray(prior, dtype=float)
    return Proximal(state.point, nu, kappa, prior, get_divergence(divergence))


def dual_step(
    state: DualState,
    losses: Array,
    *,
    step: float,
    nu: float,
    nu0: float,
    prior: Array,
    divergence: str | Divergence = "kl",
    present: Array | None = None,
) -> DualState:
    """Make one dual update with step size ``step`` on the given losses.

    Parameters
    ----------
    state : DualState
    losses : array of shape (K,)
        One loss per group. Adding a constant to all of them changes nothing.
    step : float
        ``a_t > 0``.
    nu, nu0 : float
        Regularisation, and the initial weight of the distance to the last iterate.
        ``nu0 + nu`` must be positive.
    prior : array of shape (K,)
    divergence : {"kl", "chi2", "cvar"} or Divergence
    present : array of bool of shape (K,), optional
        Groups with known losses. The others keep their weights, and the maximum is over the
        rest. If no group is present, the state stays the same.

    Examples
    --------
    With ``nu = 0`` the KL step is a softmax of old log-weights plus losses:

    >>> import numpy as np
    >>> prior = np.array([0.5, 0.5])
    >>> s = DualState.start(prior)
    >>> s = dual_step(s, np.array([0.0, np.log(3.0)]), step=1.0, nu=0.0, nu0=1.0, prior=prior)
    >>> s.weights.round(12).tolist()
    [0.25, 0.75]
    """
    move = proximal_of(state, step=step, nu=nu, nu0=nu0, prior=prior, divergence=divergence)
    if present is not None and not state.weights[present].sum() > 0:
        return state
    return state.moved(move.respond(np.asarray(losses, dtype=float), present), step)


def proximal_weights(
    losses: Array,
    centre: SimplexPoint,
    *,
    nu: float,
    kappa: float,
    prior: Array,
    divergence: str | Divergence,
    present: Array | None = None,
) -> SimplexPoint:
    """Return ``argmax_lam lam.losses - nu phi(lam) - kappa D(lam, centre)``.

    Groups that are not ``present`` keep the weights of the centre.
    """
    if not 0 < nu + kappa < np.inf:
        raise ValueError(f"nu + kappa must be positive and finite; got nu={nu!r}, kappa={kappa!r}")
    d_f = get_divergence(divergence)
    if present is None or np.all(present):
        return d_f.respond(losses, prior, nu=nu, kappa=kappa, centre=centre)
    mass, share = centre.weights[present].sum(), prior[present].sum()
    part = SimplexPoint(centre.weights[present] / mass, centre.logs[present] - np.log(mass))
    with np.errstate(over="ignore"):  # clipped below
        zoomed = np.clip(losses[present] * d_f.zoom(mass, share), -1e300, 1e300)
    moved = d_f.respond(zoomed, prior[present] / share, nu=nu, kappa=kappa, centre=part)
    weights, logs = centre.weights.copy(), centre.logs.copy()
    weights[present], logs[present] = mass * moved.weights, np.log(mass) + moved.logs
    return SimplexPoint(weights, logs)


def extrapolate(state: DualState, factor: float) -> Array:
    """Return ``lam_t + factor (lam_t - lam_{t-1})``; it sums to 1 but may leave the simplex."""
    return state.weights + factor * state.change


def smooth(weights: Array, amount: float, present: Array | None = None) -> Array:
    """Return ``(1 - amount) weights + amount / K``.

    Groups that are not ``present`` keep their weights; the others share the rest.

    >>> import numpy as np
    >>> smooth(np.array([0.5, 0.5, 0.0]), 0.5, np.array([True, False, True])).tolist()
    [0.375, 0.5, 0.125]
    """
    if present is None or np.all(present):
        return (1.0 - amount) * weights + amount / len(weights)
    out = weights.copy()
    out[present] = (1.0 - amount) * weights[present] + amount * weights[present].mean()
    return out


def project(values: Array, floor: Array | float = 0.0, cap: Array | float = 1.0) -> Array:
    """Return the nearest point of the simplex with weights between ``floor`` and ``cap``.

    ``values`` must be finite. Floors must add up to at most one, and caps to at least one.

    >>> import numpy as np
    >>> project(np.array([1.25, -0.25])).tolist()
    [1.0, 0.0]
    >>> project(np.array([0.75, 0.25, 0.0]), cap=0.5).tolist()
    [0.5, 0.375, 0.125]
    """
    values = np.asarray(values, dtype=float)
    low, high = np.broadcast_to(floor, values.shape), np.broadcast_to(cap, values.shape)
    # sum_i clip(values_i - level, low_i, high_i) is piecewise linear and falls with the level.
    kinks = np.unique(np.concatenate([values - low, values - high]))
    first, last = 0, len(kinks) - 1
    while last - first > 1:
        middle = (first + last) // 2
        if np.clip(values - kinks[middle], low, high).sum() >= 1.0:
            first = middle
        else:
            last = middle
    top = np.clip(values - kinks[first], low, high).sum()
    bottom = np.clip(values - kinks[last], low, high).sum()
    rise = (top - 1.0) / (top - bottom) if top > bottom else 0.0
    level = kinks[first] + min(max(rise, 0.0), 1.0) * (kinks[last] - kinks[first])
    return np.clip(values - level, low, high)
