"""Divergences on the simplex: how far group weights stand from the prior, and best responses.

Both divergences are ``d_f(weights, prior)`` of the paper. Everything a method needs of one
is closed-form: its value ``phi``, the Bregman distance ``D`` of ``phi``, the weights that
maximise a regularised linear function, and how those weights react to the losses.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from counterpoise.common.arguments import chosen

Array = np.ndarray


class SimplexPoint(NamedTuple):
    """Group weights and their logarithms.

    The logarithms are kept beside the weights because a weight of ``1e-400`` is zero as
    a number and still a group that can come back.
    """

    weights: Array
    logs: Array

    @classmethod
    def of(cls, weights: Array) -> SimplexPoint:
        weights = np.asarray(weights, dtype=float)
        with np.errstate(divide="ignore"):
            return cls(weights, np.log(weights))


class Divergence:
    """What the solver and the reweighter ask of a divergence ``phi``."""

    name: str
    modulus = 2.0
    """``D(lam, mu) >= modulus/2 ||lam - mu||_1^2``: how strongly convex ``phi`` is."""

    def value(self, weights: Array, prior: Array) -> float:
        """``phi(weights) = d_f(weights, prior)``."""
        raise NotImplementedError(type(self).__name__)

    def bregman(self, point: SimplexPoint, centre: SimplexPoint, prior: Array) -> float:
        """``D(point, centre)``, the Bregman distance of ``phi``."""
        raise NotImplementedError(type(self).__name__)

    def corners(self, prior: Array) -> Array:
        """``phi`` at every corner of the simplex, infinite where a corner is not allowed; the
        largest is its maximum."""
        return self.corner_distances(prior, prior)

    def corner_distances(self, centre: Array, prior: Array) -> Array:
        """``D(e_i, centre)`` for every corner ``e_i``; the largest bounds ``D(., centre)``."""
        raise NotImplementedError(type(self).__name__)

    def respond(
        self,
        losses: Array,
        prior: Array,
        *,
        nu: float,
        kappa: float = 0.0,
        centre: SimplexPoint | None = None,
    ) -> SimplexPoint:
        """``argmax_lam  lam.losses - nu phi(lam) - kappa D(lam, centre)`` over the simplex.

        Needs ``nu + kappa > 0``.
        """
        raise NotImplementedError(type(self).__name__)

    def zoom(self, mass: float, share: float) -> float:
        """By how much losses count more when groups of weight ``mass`` and prior ``share``, both
        made to sum to one, share that mass alone: then the best response is the same."""
        raise NotImplementedError(type(self).__name__)

    def sensitivity(self, point: SimplexPoint, prior: Array) -> tuple[Array, float]:
        """``(s, f)`` with ``d respond / d losses = f/(nu+kappa) (diag(s) - s s^T / sum(s))``."""
        raise NotImplementedError(type(self).__name__)

    def risk(self, losses: Array, prior: Array, nu: float) -> float:
        """``max_lam lam.losses - nu phi(lam)``."""
        raise NotImplementedError(type(self).__name__)

    def top(self, losses: Array, prior: Array) -> SimplexPoint:
        """Weights that maximise ``lam.losses`` alone; ties share as the prior does."""
        on_top = np.where(losses == losses.max(), prior, 0.0)
        return SimplexPoint.of(on_top / on_top.sum())

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


class KL(Divergence):
    """Kullback-Leibler: ``phi(lam) = sum_i lam_i log(lam_i / prior_i)``.

    >>> import numpy as np
    >>> prior = np.array([0.5, 0.5])
    >>> point = KL().respond(np.array([0.0, np.log(3.0)]), prior, nu=1.0)
    >>> point.weights.round(12).tolist()
    [0.25, 0.75]
    """

    name = "kl"
    modulus = 1.0  # Pinsker

    def value(self, weights: Array, prior: Array) -> float:
        return self.bregman(SimplexPoint.of(weights), SimplexPoint.of(prior), prior)

    def bregman(self, point: SimplexPoint, centre: SimplexPoint, prior: Array) -> float:
        # Each term mu - lam + lam d, with d = log(lam/mu), is >= 0; where lam is close to mu it
        # is lam (e^-d - 1 + d), which does not cancel.
        lam, mu = point.weights, centre.weights
        d = np.zeros_like(lam)
        np.subtract(point.logs, centre.logs, out=d, where=lam > 0)
        near = np.abs(d) < 1.0
        small = np.where(near, d, 0.0)
        terms = np.where(near & (lam > 0), lam * (np.expm1(-small) + small), mu - lam + lam * d)
        return float(np.sum(terms))

    def corner_distances(self, centre: Array, prior: Array) -> Array:
        return -np.log(centre)

    def respond(
        self,
        losses: Array,
        prior: Array,
        *,
        nu: float,
        kappa: float = 0.0,
        centre: SimplexPoint | None = None,
    ) -> SimplexPoint:
        total = nu + kappa
        with np.errstate(over="ignore"):
            logs = np.maximum((losses - losses.max()) / total, -1e300)
        if nu > 0:
            logs += (nu / total) * np.log(prior)
        if kappa > 0 and centre is not None:
            logs += (kappa / total) * centre.logs
        logs -= logs.max()
        logs -= np.log(np.sum(np.exp(logs)))
        weights = np.exp(logs)
        return SimplexPoint(weights / weights.sum(), logs)

    def zoom(self, mass: float, share: float) -> float:
        return 1.0

    def sensitivity(self, point: SimplexPoint, prior: Array) -> tuple[Array, float]:
        return point.weights, 1.0

    def risk(self, losses: Array, prior: Array, nu: float) -> float:
        top = float(losses.max())
        if nu == 0:
            return top
        low = float(losses.min())
        middle = low + float(prior @ (losses - low))  # equal losses are their own mean, exactly
        if top - low <= nu:
            # Small spread: log1p and expm1 keep the digits that log(1 + tiny) would lose.
            return middle + nu * float(np.log1p(prior @ np.expm1((losses - middle) / nu)))
        with np.errstate(over="ignore"):
            return top + nu * float(np.log(prior @ np.exp((losses - top) / nu)))


class ChiSquare(Divergence):
    """Chi-squared: ``phi(lam) = sum_i (lam_i - prior_i)^2 / prior_i``.

    >>> import numpy as np
    >>> prior = np.array([0.5, 0.5])
    >>> ChiSquare().respond(np.array([0.0, 1.0]), prior, nu=1.0).weights.tolist()
    [0.375, 0.625]
    """

    name = "chi2"

    def value(self, weights: Array, prior: Array) -> float:
        return float(np.sum((weights - prior) ** 2 / prior))

    def bregman(self, point: SimplexPoint, centre: SimplexPoint, prior: Array) -> float:
        return float(np.sum((point.weights - centre.weights) ** 2 / prior))

    def corner_distances(self, centre: Array, prior: Array) -> Array:
        return float(np.sum(centre**2 / prior)) + (1.0 - 2.0 * centre) / prior

    def respond(
        self,
        losses: Array,
        prior: Array,
        *,
        nu: float,
        kappa: float = 0.0,
        centre: SimplexPoint | None = None,
    ) -> SimplexPoint:
        # lam_i = prior_i (score_i - level)_+ / (nu + kappa), the level set by sum lam = 1.
        scores = 0.5 * losses
        if kappa > 0 and centre is not None:
            scores = scores + kappa * centre.weights / prior
        return SimplexPoint.of(_water_fill(scores, prior, nu + kappa))

    def zoom(self, mass: float, share: float) -> float:
        return share / mass

    def sensitivity(self, point: SimplexPoint, prior: Array) -> tuple[Array, float]:
        return np.where(point.weights > 0, prior, 0.0), 0.5

    def risk(self, losses: Array, prior: Array, nu: float) -> float:
        top = float(losses.max())
        if nu == 0:
            return top
        middle = float(prior @ losses)
        if middle - float(losses.min()) <= 2.0 * nu:
            # Every group keeps weight: mean plus variance / (4 nu), free of nu times rounding.
            return middle + 0.25 * float(prior @ (losses - middle) ** 2) / nu
        weights = self.respond(losses, prior, nu=nu).weights
        return top - float(weights @ (top - losses)) - nu * self.value(weights, prior)


class Fixed(Divergence):
    """Weights that never leave the prior: the plain average, what both become as ``nu`` grows.

    >>> import numpy as np
    >>> Fixed().risk(np.array([1.0, 3.0]), np.array([0.25, 0.75]), nu=1.0)
    2.5
    """

    name = "fixed"

    def value(self, weights: Array, prior: Array) -> float:
        return 0.0

    def bregman(self, point: SimplexPoint, centre: SimplexPoint, prior: Array) -> float:
        return 0.0

    def corners(self, prior: Array) -> Array:
        return np.full(len(prior), np.inf)

    def corner_distances(self, centre: Array, prior: Array) -> Array:
        return np.zeros(len(prior))  # no corner is ever reached

    def respond(
        self,
        losses: Array,
        prior: Array,
        *,
        nu: float,
        kappa: float = 0.0,
        centre: SimplexPoint | None = None,
    ) -> SimplexPoint:
        return SimplexPoint.of(prior)

    def sensitivity(self, point: SimplexPoint, prior: Array) -> tuple[Array, float]:
        return prior, 0.0

    def risk(self, losses: Array, prior: Array, nu: float) -> float:
        return float(prior @ losses)


class CVaR(KL):
    """Kullback-Leibler with no weight above ``prior_i / alpha``.

    With ``nu = 0`` the risk is the conditional value at risk over groups: the mean loss of the
    worst share ``alpha`` of them (Rockafellar and Uryasev, 2000), between the average
    (``alpha = 1``) and the worst group (``alpha <= min(prior)``).

    >>> import numpy as np
    >>> CVaR(0.5).risk(np.array([1.0, 2.0, 3.0, 4.0]), np.full(4, 0.25), nu=0.0)
    3.5
    """

    name = "cvar"

    def __init__(self, alpha: float) -> None:
        number = isinstance(alpha, (int, float, np.integer, np.floating))
        if isinstance(alpha, bool) or not number or not 0 < alpha <= 1:
            raise ValueError(f"alpha must be a share of the groups in (0, 1]; got {alpha!r}")
        self.alpha = float(alpha)

    def __repr__(self) -> str:
        return f"CVaR({self.alpha!r})"

    def value(self, weights: Array, prior: Array) -> float:
        allowed = (weights <= self._caps(prior) * (1.0 + 1e-9)).all()
        return super().value(weights, prior) if allowed else np.inf

    def corners(self, prior: Array) -> Array:
        return np.where(self._caps(prior) >= 1.0, -np.log(prior), np.inf)

    def respond(
        self,
        losses: Array,
        prior: Array,
        *,
        nu: float,
        kappa: float = 0.0,
        centre: SimplexPoint | None = None,
    ) -> SimplexPoint:
        free = super().respond(losses, prior, nu=nu, kappa=kappa, centre=centre)
        caps = self._caps(prior)
        if (free.weights <= caps).all():
            return free
        # lam_i = min(cap_i, exp(log_i + level)): those at their caps have the largest log_i - cap.
        excess = free.logs - np.log(caps)
        order = np.argsort(-excess, kind="stable")
        logs, cap = free.logs[order], caps[order]
        left = 1.0 - np.concatenate([[0.0], np.cumsum(cap)[:-1]])  # once the first m are capped
        rest = np.logaddexp.accumulate(logs[::-1])[::-1]
        with np.errstate(divide="ignore", invalid="ignore"):
            level = np.log(np.maximum(left, 0.0)) - rest
        fits = (left > 0) & (level + excess[order] <= 0)
        # Rounding aside, the caps add up to one or more, so some number of them fits.
        first = int(np.argmax(fits)) if fits.any() else len(cap) - 1
        out = np.where(np.arange(len(cap)) < first, np.log(cap), logs + level[first])
        result = np.empty_like(out)
        result[order] = out
        weights = np.exp(result)
        return SimplexPoint(weights / weights.sum(), result)

    def zoom(self, mass: float, share: float) -> float:
        raise NotImplementedError("caps of a part of the groups are not scaled; use KL")

    def sensitivity(self, point: SimplexPoint, prior: Array) -> tuple[Array, float]:
        free = np.where(point.weights < self._caps(prior) * (1.0 - 1e-9), point.weights, 0.0)
        return (free, 1.0) if free.any() else (prior, 0.0)

    def risk(self, losses: Array, prior: Array, nu: float) -> float:
        if nu == 0:
            return float(self.top(losses, prior).weights @ losses)
        weights = self.respond(losses, prior, nu=nu).weights
        return float(weights @ losses) - nu * KL.value(self, weights, prior)

    def top(self, losses: Array, prior: Array) -> SimplexPoint:
        levels, ties = np.unique(-losses, return_inverse=True)
        mass = np.bincount(ties, weights=prior, minlength=len(levels)) / self.alpha
        above = np.concatenate([[0.0], np.cumsum(mass)[:-1]])
        taken = np.clip(1.0 - above, 0.0, mass) / mass  # of each level's caps, what is filled
        weights = self._caps(prior) * taken[ties]
        return SimplexPoint.of(weights / weights.sum())

    def _caps(self, prior: Array) -> Array:
        return prior / self.alpha


def _water_fill(scores: Array, prior: Array, total: float) -> Array:
    """Weights ``prior_i (height - depth_i)_+ / total`` that sum to one.

    ``depth = max(scores) - scores``; working downwards from the maximum keeps full
    relative accuracy however small ``total`` is.
    """
    depth = scores.max() - scores
    order = np.argsort(depth, kind="stable")
    d, p = depth[order], prior[order]
    mass = np.cumsum(p)
    # Water needed to reach each depth; only sums of what is not negative, so none cancels.
    needed = np.concatenate([[0.0], np.cumsum(mass[:-1] * np.diff(d))])
    last = int(np.nonzero(needed < total)[0][-1])
    above = (total - needed[last]) / mass[last]
    weights = prior * np.maximum(above + (d[last] - depth), 0.0)
    return weights / weights.sum()


NAMED: dict[str, type[Divergence]] = {"kl": KL, "chi2": ChiSquare}


def get_divergence(divergence: str | Divergence) -> Divergence:
    """The divergence a user means, by name or as an object."""
    return chosen("divergence", divergence, Divergence, NAMED)


def check_prior(prior: Array | None, n_groups: int) -> Array:
    """A probability vector of positive entries; uniform when none is given."""
    if prior is None:
        return np.full(n_groups, 1.0 / n_groups)
    p = np.asarray(prior, dtype=float)
    if p.shape != (n_groups,):
        raise ValueError(f"prior must hold one weight for each of {n_groups} groups; got {p.shape}")
    if not np.isfinite(p).all() or (p <= 0).any():
        bad = int(np.flatnonzero(~(np.isfinite(p) & (p > 0)))[0])
        raise ValueError(
            f"prior must be positive and finite; entry {bad} is {p[bad]!r}. "
            "Leave the rows of a group out to give it no weight."
        )
    if abs(p.sum() - 1.0) > 1e-6:
        raise ValueError(f"prior must sum to 1; it sums to {p.sum():.6g}. Divide it by its sum.")
    return p / p.sum()


def check_nu(nu: float) -> float:
    """A number that is not negative; infinity is one."""
    if isinstance(nu, bool) or not isinstance(nu, (int, float, np.integer, np.floating)):
        raise ValueError(f"nu must be a number >= 0, in units of the loss; got {nu!r}")
    if not nu >= 0:
        raise ValueError(
            f"nu must be >= 0; got {nu!r}. nu = 0 is the worst group alone, inf the plain average."
        )
    return float(nu)


def risk(
    losses: Array,
    nu: float,
    divergence: str | Divergence = "kl",
    prior: Array | None = None,
) -> float:
    """The risk ``R = max_lam sum_i lam_i losses_i - nu d_f(lam, prior)`` over the simplex.

    Parameters
    ----------
    losses : array of shape (K,)
        One loss per group.
    nu : float
        Strength of the pull towards the prior, in units of the loss. Zero gives the
        largest loss; infinity the prior-weighted mean.
    divergence : {"kl", "chi2"} or Divergence
    prior : array of shape (K,), optional
        Uniform when None.

    Examples
    --------
    >>> risk([1.0, 3.0], nu=0.0)
    3.0
    >>> round(risk([1.0, 3.0], nu=1e9), 6)
    2.0
    """
    values = np.asarray(losses, dtype=float)
    if values.ndim != 1 or values.size == 0:
        raise ValueError(f"losses must be a vector with one entry per group; got {values.shape}")
    if not np.isfinite(values).all():
        raise ValueError("losses must be finite numbers")
    d_f = Fixed() if check_nu(nu) == np.inf else get_divergence(divergence)
    return d_f.risk(values, check_prior(prior, values.size), float(nu))
