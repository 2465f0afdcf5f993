"""What is known about the weights of a run: their regret, its bound, and the noise of the losses.

All of it is measured on the run itself. Nothing is assumed of the model.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from counterpoise.common.text import count, figure, listed
from counterpoise.dual.divergences import Divergence
from counterpoise.reweight.account import Account
from counterpoise.reweight.noise import common_point, least_log, quantiles

Array = np.ndarray


@dataclass(frozen=True)
class WeightCertificate:
    """What the updates so far show about the weights.

    Every number is a mean over ``rounds`` updates, each with the weights that were in force when
    its losses were measured.

    Attributes
    ----------
    domains : tuple
    rounds, left_out : int
        Updates that count, and updates without a loss of some domain, which do not.
    mean_excess : array of shape (K,)
        Mean excess loss of each domain.
    weighted_excess : float
        Mean of the weighted sums of excess losses: what the weights made the objective.
    regret : float
        How much larger the excess of the worst domain is. It is measured, so that
        ``max(mean_excess) = weighted_excess + regret``.
    bound : float or None
        What the regret cannot exceed. By the theory of the dual step: the distance of the first
        weights from the worst domain's corner over the steps, the pull of the prior, and what the
        steps, extrapolation and smoothing cost. If it is less: the mean of the regrets of single
        updates, each against its own worst domain. None for rules that are not proximal steps.
    by_theory : bool
        Whether the theory of the dual step gives the bound.
    regularized_regret, regularized_bound : float, float or None
        The same for the objective with its pull ``nu phi`` towards the prior.
    radius : array of shape (K,) or None
        Half-width of the band around each domain's mean excess, at ``confidence`` for all domains
        and all numbers of updates together. None unless every loss had a standard error.
    level : float or None
        Smallest significance level at which the domains differ: some update shows a difference, or,
        for fresh losses, their means so far do.
    confidence : float
    """

    domains: tuple[Any, ...]
    rounds: int
    left_out: int
    mean_excess: Array
    weighted_excess: float
    regret: float
    bound: float | None
    by_theory: bool
    regularized_regret: float
    regularized_bound: float | None
    radius: Array | None
    level: float | None
    confidence: float

    @property
    def worst(self) -> Any:
        """Name of the domain with the largest mean excess."""
        return self.domains[int(self.mean_excess.argmax())]

    @property
    def noise_only(self) -> bool | None:
        """Whether noise explains all differences between domains; None if errors are unknown."""
        return None if self.level is None else self.level > 1.0 - self.confidence

    @property
    def bands(self) -> dict[Any, tuple[float, float]] | None:
        """Interval of each domain's mean excess; None if standard errors are unknown."""
        if self.radius is None:
            return None
        ends = zip(self.mean_excess - self.radius, self.mean_excess + self.radius, strict=True)
        return {
            name: (float(low), float(high))
            for name, (low, high) in zip(self.domains, ends, strict=True)
        }

    def as_dict(self) -> dict[str, float]:
        """Return the numbers for a log; those that are unknown are left out."""
        numbers = {
            "worst_excess": float(self.mean_excess.max()),
            "weighted_excess": self.weighted_excess,
            "regret": self.regret,
            "bound": self.bound,
            "level": self.level,
        }
        return {name: value for name, value in numbers.items() if value is not None}

    def __str__(self) -> str:
        return " ".join(self.sentences())

    def sentences(self) -> list[str]:
        """Say what is known, the answer first."""
        over = f"the {self.rounds} updates so far" if self.rounds > 1 else "the first update"
        said = [
            f"Over {over}, the worst domain ({self.worst!r}) has a mean excess loss of "
            f"{figure(float(self.mean_excess.max()))}: the mean weighted excess, "
            f"{figure(self.weighted_excess)}, plus the regret of the weights, "
            f"{figure(self.regret)}."
        ]
        if self.bound is not None and self.by_theory:
            said.append(f"By the theory of the steps it is at most {figure(self.bound)}.")
        if self.noise_only:
            said.append(
                "The noise of the losses can explain every difference between domains so far "
                f"({self.confidence:.0%} confidence), so nothing shows that these weights do "
                "better than uniform ones."
            )
        elif self.noise_only is False and self.radius is not None:
            low, high = self.mean_excess - self.radius, self.mean_excess + self.radius
            above = [str(n) for n, end in zip(self.domains, low, strict=True) if end > high.min()]
            verb = "exceeds" if len(above) == 1 else "exceed"
            said.append(
                "The domains differ by more than the noise of their losses"
                + (f"; on average, {listed(above)} {verb} another." if above else ".")
            )
        if self.left_out:
            verb = "does" if self.left_out == 1 else "do"
            said.append(
                f"{count(self.left_out, 'update')} without a usable loss of every domain {verb} "
                "not count."
            )
        return said


def certify(
    account: Account,
    domains: tuple[Any, ...],
    divergence: Divergence,
    prior: Array,
    confidence: float,
    fresh: bool,
) -> WeightCertificate:
    """Compute a certificate from an account; `Reweighter.certificate` documents the arguments."""
    n = account.rounds
    mean_K = account.excess / n
    weighted, worst = account.weighted / n, int(mean_K.argmax())
    nu, penalty = account.nu / n, account.penalty / n
    bound = regularized_bound = None
    by_theory = False
    # What the theory grants every corner, and by convexity every mean of corners.
    granted_K = (account.distances + account.unseen + account.brackets) / n
    if account.proximal:
        corner = np.zeros(len(prior))
        corner[worst] = 1.0
        pull = nu * divergence.value(corner, prior) - penalty if nu else 0.0
        theory, apart = float(granted_K[worst]) + pull, account.apart / n
        bound, by_theory = min(theory, apart), account.steps > 0 and theory < apart
    risk = divergence.risk(mean_K, prior, nu)
    regularized = risk - (weighted - penalty)
    if account.proximal:
        best = (
            divergence.respond(mean_K, prior, nu=nu) if nu else divergence.top(mean_K, prior)
        ).weights
        regularized_bound = float(granted_K @ best)
    measured = account.measured == n
    return WeightCertificate(
        domains=domains,
        rounds=n,
        left_out=account.left_out,
        mean_excess=mean_K,
        weighted_excess=weighted,
        regret=float(mean_K[worst]) - weighted,
        bound=bound,
        by_theory=by_theory,
        regularized_regret=regularized,
        regularized_bound=regularized_bound,
        radius=_radius(account, math.log1p(-confidence), fresh) if measured else None,
        level=math.exp(min(_log_level(account, mean_K, fresh), 0.0)) if measured else None,
        confidence=confidence,
    )


def _radius(account: Account, log_alpha: float, fresh: bool) -> Array:
    """Return half-widths of bands around the means, for all domains and rounds together.

    Losses of the same text have errors that depend on one another in unknown ways, so every round
    gets its share ``1 / (t (t + 1))`` of the error probability, and errors add up. Errors of
    ``fresh`` losses are a martingale's, which the normal mixture of Robbins bounds; it is widened
    where standard errors are in doubt, as a quantile is.
    """
    n, K = account.rounds, len(account.errors)
    log_each = log_alpha - math.log(2 * K)
    if not fresh:
        z = quantiles(log_each - math.log(n * (n + 1)), account.doubts)
        return z * account.errors / n
    start = account.first**2
    with np.errstate(divide="ignore", invalid="ignore"):
        total = account.squares + start
        width = np.sqrt(total * (np.log(total / start) - 2.0 * (log_each + math.log(2)))) / n
    width = np.where(start > 0, width, 0.0)  # all errors were zero
    if account.doubts.any():
        width = width * quantiles(log_each, account.doubts) / quantiles(log_each, np.zeros(K))
    return width


def _log_level(account: Account, mean_K: Array, fresh: bool) -> float:
    """Return the logarithm of the least level at which the domains differ."""
    if not fresh:
        return account.log_level
    found = least_log(lambda log_alpha: common_point(mean_K, _radius(account, log_alpha, True)))
    return found if found < math.log(0.5) else 0.0
