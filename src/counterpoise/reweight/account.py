"""The books of a `Reweighter`: sums from which its certificate follows, K numbers each.

Write ``l_t`` for the excess losses of round ``t``, ``w_t`` for the weights in force when they were
measured, and ``f_t(u) = l_t.u - nu_t phi(u)``. If the rule's step is

    p_t = argmax_u  f_t(u) - kappa_t D(u, c_t),

then for every ``u`` on the simplex

    f_t(u) - f_t(w_t) <= kappa_t D(u, c_t) - (kappa_t + nu_t) D(u, p_t)
                         + [f_t(p_t) - kappa_t D(p_t, c_t) - f_t(w_t)],

because ``f_t`` is concave with curvature ``nu_t`` in the distance ``D``. The bracket is computed
exactly; it contains what extrapolation, smoothing and bounds on the weights cost. Summed over
rounds, the distances telescope: what is left of them is ``kappa_1 D(u, c_1)``, the growth of
``kappa`` beyond ``nu``, and moves between ``p_t`` and ``c_{t+1}``. They are kept for every corner
``u = e_i``. Elsewhere they are at most the mean of the corners with weights ``u``, since ``D`` is
convex in ``u``, and differences of distances to two centres are linear. If the rule is shown other
losses than the measured ones (clipped, averaged), the difference is kept as a vector.

A step that is blind to the losses has no such inequality. What its round lost at most is booked,
``max_i l_ti - w_t.l_t``, and the round has no pull in the objective.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from counterpoise.dual.divergences import SimplexPoint
from counterpoise.dual.step import Proximal
from counterpoise.reweight.noise import log_level

Array = np.ndarray


@dataclass(frozen=True)
class Round:
    """One update: measured excess losses, what the rule was shown, and its weights."""

    excess: Array
    shown: Array
    used: Array
    """Weights in force when the losses were measured."""
    proximal: Proximal | None
    """The rule's step; None for rules that are not proximal steps."""
    errors: Array | None = None
    """Standard errors of the losses."""
    pieces: Array | None = None
    """Independent pieces of text behind each standard error; NaN if unknown."""

    @property
    def lost(self) -> float:
        """How much larger the largest excess is than the weighted one."""
        return float(self.excess.max() - self.used @ self.excess)


@dataclass(frozen=True)
class Account:
    """Sums over the rounds in which every domain had a loss.

    Attributes
    ----------
    rounds, steps, left_out : int
        Rounds that count, those whose step the inequality is used for, and rounds without a loss of
        some domain.
    excess, used : arrays of shape (K,)
        Sums of excess losses and of weights in force.
    weighted : float
        Sum of ``w_t.l_t``.
    apart : float
        Sum of ``max_i l_ti - w_t.l_t``.
    nu, penalty : float
        Sums of ``nu_t`` and of ``nu_t phi(w_t)``.
    brackets : float
        Sum of the brackets above.
    distances : array of shape (K,)
        The telescoped distances of the corners.
    carried : float
        ``kappa + nu`` of the last step.
    corners : array of shape (K,)
        Distances of the corners from the last step's result.
    unseen : array of shape (K,)
        Sum of excess losses minus what the rule was shown, over these steps.
    proximal : bool
        Whether every step so far was a proximal one.
    measured : int
        Rounds with a standard error of every loss.
    errors, squares, first : arrays of shape (K,)
        Sums of standard errors and of their squares, and the first positive ones.
    doubts : array of shape (K,)
        Inverse of the least degrees of freedom of a domain's standard errors; 0 if they are exact.
    log_level : float
        Logarithm of the least significance level at which some round's domains differ.
    """

    rounds: int
    steps: int
    left_out: int
    excess: Array
    used: Array
    weighted: float
    apart: float
    nu: float
    penalty: float
    brackets: float
    distances: Array
    carried: float
    corners: Array
    unseen: Array
    proximal: bool
    measured: int
    errors: Array
    squares: Array
    first: Array
    doubts: Array
    log_level: float

    @classmethod
    def open(cls, K: int) -> Account:
        """Return an account without rounds."""
        zero = np.zeros(K)
        return cls(0, 0, 0, zero, zero, 0.0, 0.0, 0.0, 0.0, 0.0, zero, 0.0, zero, zero, True, 0,
                   zero, zero, zero, zero, 0.0)  # fmt: skip

    def after(self, entry: Round | None) -> Account:
        """Return the account after a round.

        Rounds without a loss of some domain (None), and losses whose sums overflow, do not count.
        """
        if entry is not None:
            with np.errstate(all="ignore"):
                new = self._with_losses(entry)
                new = _with_step(_with_errors(new, entry), entry)
            if new.is_finite:
                return new
        return replace(self, left_out=self.left_out + 1)

    @property
    def is_finite(self) -> bool:
        """Whether no sum has overflowed."""
        return all(bool(np.isfinite(value).all()) for value in vars(self).values())

    def _with_losses(self, entry: Round) -> Account:
        nu, penalty, step = 0.0, 0.0, entry.proximal
        if step is not None and step.nu and not step.blind:
            nu, penalty = step.nu, step.nu * step.divergence.value(entry.used, step.prior)
        return replace(
            self,
            rounds=self.rounds + 1,
            excess=self.excess + entry.excess,
            used=self.used + entry.used,
            weighted=self.weighted + float(entry.used @ entry.excess),
            apart=self.apart + entry.lost,
            nu=self.nu + nu,
            penalty=self.penalty + penalty,
        )

    def state_dict(self) -> dict[str, Any]:
        """Return all sums as plain numbers and lists."""
        return {
            name: value.tolist() if isinstance(value, np.ndarray) else value
            for name, value in vars(self).items()
        }

    @classmethod
    def from_state(cls, state: Mapping[str, Any], order: list[int]) -> Account:
        """Restore an account, with the domains in another order."""
        empty = vars(cls.open(len(order)))
        found: dict[str, Any] = {}
        for name, like in empty.items():
            value = state[name]
            if isinstance(like, np.ndarray):
                array = np.array(value, dtype=float)
                if array.shape != like.shape or not np.isfinite(array).all():
                    raise ValueError(f"state is damaged: {name}={value!r} in its certificate")
                found[name] = array[order]
            else:
                found[name] = type(like)(value)
        return cls(**found)


def _with_step(account: Account, entry: Round) -> Account:
    step = entry.proximal
    if step is None or not account.proximal:
        return replace(account, proximal=False)
    if step.blind:
        return replace(account, brackets=account.brackets + entry.lost)
    phi, prior = step.divergence, step.prior
    centre = _on_simplex(step.centre)
    point = replace(step, centre=centre).respond(entry.shown)

    def value(at: SimplexPoint) -> float:
        pull = step.nu * phi.value(at.weights, prior) if step.nu else 0.0
        return float(entry.shown @ at.weights) - pull

    used = SimplexPoint.of(entry.used)
    bracket = value(point) - step.kappa * phi.bregman(point, centre, prior) - value(used)
    corners = phi.corner_distances(centre.weights, prior)
    ends = phi.corner_distances(point.weights, prior)
    if account.steps == 0:
        distances = step.kappa * corners
    else:
        distances = max(step.kappa - account.carried, 0.0) * account.corners
        distances = distances + step.kappa * (corners - account.corners)
    if not (np.isfinite(distances).all() and np.isfinite(ends).all()):
        # A weight is zero, and nothing bounds the way back.
        return replace(account, proximal=False)
    # The rule's sums are of what it was shown; `unseen` has the rest.
    return replace(
        account,
        brackets=account.brackets + bracket - float(entry.used @ (entry.excess - entry.shown)),
        distances=account.distances + distances,
        unseen=account.unseen + (entry.excess - entry.shown),
        steps=account.steps + 1,
        carried=step.kappa + step.nu,
        corners=ends,
    )


def _with_errors(account: Account, entry: Round) -> Account:
    errors = entry.errors
    if errors is None or not np.isfinite(errors).all():
        return account
    number = account.measured + 1
    K = len(errors)
    doubts = np.zeros(K)
    if entry.pieces is not None:
        doubts = 1.0 / np.maximum(np.where(np.isnan(entry.pieces), np.inf, entry.pieces) - 1.0, 1.0)
    # Bonferroni over domains, and over rounds by the shares 1 / (t (t + 1)), which sum to one.
    level = math.log(2 * K * number * (number + 1)) + log_level(entry.excess, errors, doubts)
    return replace(
        account,
        measured=number,
        errors=account.errors + errors,
        squares=account.squares + errors**2,
        first=np.where(account.first > 0, account.first, errors),
        doubts=np.maximum(account.doubts, doubts),
        log_level=min(account.log_level, level),
    )


def _on_simplex(point: SimplexPoint) -> SimplexPoint:
    """Normalise a centre by its logarithms; a constant in them changes no step."""
    top = float(point.logs.max())
    logs = point.logs - (top + math.log(float(np.exp(point.logs - top).sum())))
    return SimplexPoint(np.exp(logs), logs)
