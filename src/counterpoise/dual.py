"""The dual update: the only place where group weights change.

The paper's last line of Algorithm 1,

    lam_t = argmax_simplex  a_t L(w_t, .) - (nu0 + nu A_{t-1}) D(., lam_{t-1}),

and its extrapolation. Pure functions on a small state; no rows, no model.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from counterpoise.divergences import Divergence, SimplexPoint, get_divergence

Array = np.ndarray


@dataclass(frozen=True)
class DualState:
    """Group weights after ``t`` updates, with what the next update needs.

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
        """``lam_0 = lam_{-1} = weights`` (the paper's are the prior), nothing stepped yet."""
        point = SimplexPoint.of(np.array(weights, dtype=float))
        return cls(point, point.weights)

    @property
    def weights(self) -> Array:
        return self.point.weights

    @property
    def change(self) -> Array:
        """``lam_t - lam_{t-1}``."""
        return self.point.weights - self.previous


def dual_step(
    state: DualState,
    losses: Array,
    *,
    step: float,
    nu: float,
    nu0: float,
    prior: Array,
    divergence: str | Divergence = "kl",
) -> DualState:
    """One dual update with step size ``step`` on the given losses.

    Parameters
    ----------
    state : DualState
    losses : array of shape (K,)
        One loss per group; a constant added to all of them changes nothing.
    step : float
        ``a_t > 0``.
    nu, nu0 : float
        Regularisation, and the weight of the distance to the last iterate before any
        step was taken. ``nu0 + nu`` must be positive.
    prior : array of shape (K,)
    divergence : {"kl", "chi2"} or Divergence

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
    if not step > 0:
        raise ValueError(f"step must be positive; got {step!r}")
    kappa = (nu0 + nu * state.total) / step
    point = proximal_weights(
        np.asarray(losses, dtype=float),
        state.point,
        nu=nu,
        kappa=kappa,
        prior=np.asarray(prior, dtype=float),
        divergence=divergence,
    )
    return DualState(
        point=point,
        previous=state.weights,
        step=step,
        total=state.total + step,
        iteration=state.iteration + 1,
    )


def proximal_weights(
    losses: Array,
    centre: SimplexPoint,
    *,
    nu: float,
    kappa: float,
    prior: Array,
    divergence: str | Divergence,
) -> SimplexPoint:
    """``argmax_lam lam.losses - nu phi(lam) - kappa D(lam, centre)``: the step, scale-free."""
    if not 0 < nu + kappa < np.inf:
        raise ValueError(f"nu + kappa must be positive and finite; got nu={nu!r}, kappa={kappa!r}")
    return get_divergence(divergence).respond(losses, prior, nu=nu, kappa=kappa, centre=centre)


def extrapolate(state: DualState, factor: float) -> Array:
    """``lam_t + factor (lam_t - lam_{t-1})``; it sums to one and may leave the simplex."""
    return state.weights + factor * state.change
