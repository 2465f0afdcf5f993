"""Draw samples by other shares than the weights, and weigh their losses by the ratio.

The weights ``w`` say which loss is to be lowered: ``sum_k w_k L_k``. If a sample comes from domain
``k`` with probability ``q_k`` and its loss counts ``w_k / q_k`` times, the expected loss of a
sample is that sum, whatever ``q`` is. Its variance is not: with draws spread evenly over the
domains it is ``sum_k w_k^2 s_k^2 / q_k``, where ``s_k`` is the standard deviation of single losses
within the domain. The least variance has ``q_k`` proportional to ``w_k s_k`` (Neyman's allocation).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from counterpoise.common.arguments import check_weights, chosen
from counterpoise.reweight.checks import number_between

Array = np.ndarray

# Spreads below this share of the largest are taken to be that share of it.
LEAST_SPREAD = 1e-9


class Sampling(ABC):
    """Chooses the shares that samples are drawn by.

    A subclass defines `shares`. Pass one to `counterpoise.lm.Steering`, by name or as an object.
    """

    name: ClassVar[str]
    apart: ClassVar[bool] = True
    """Whether shares may differ from the weights, so that losses must be weighed."""
    measures: ClassVar[bool] = False
    """Whether shares follow the spreads of the domains' losses."""

    @abstractmethod
    def shares(self, domains: Sequence[Any], weights: Array, spreads: Array) -> Array | None:
        """Return the shares of samples; None keeps those that the mixture has.

        ``spreads`` are the standard deviations of single losses within the domains, up to a common
        factor; all 1 while nothing is known of them.
        """

    def __repr__(self) -> str:
        options = ", ".join(f"{name}={value!r}" for name, value in vars(self).items())
        return f"{type(self).__name__}({options})"


class ByWeights(Sampling):
    """Draw samples by the weights themselves; every loss then counts once."""

    name = "weights"
    apart = False

    def shares(self, domains: Sequence[Any], weights: Array, spreads: Array) -> Array:
        return weights


class Fixed(Sampling):
    """Draw samples by the same shares throughout; the weights act on the losses alone.

    Parameters
    ----------
    given : sequence or mapping, optional
        Shares of the domains; those that the mixture has if None.
    """

    name = "fixed"

    def __init__(self, given: Any = None) -> None:
        self.given = given

    def shares(self, domains: Sequence[Any], weights: Array, spreads: Array) -> Array | None:
        return None if self.given is None else check_weights(self.given, domains, "given")


class ByVariance(Sampling):
    """Draw samples by the shares that give the weighted loss the least variance.

    Parameters
    ----------
    ratio : float, default 2.0
        Bound on the ratios: no domain is drawn more than ``ratio`` times as often, or as rarely, as
        its weight says. No loss counts more than ``ratio`` times, and no domain is read that much
        faster than its weight asks for.

    Examples
    --------
    >>> import numpy as np
    >>> weights, spreads = np.array([0.5, 0.5]), np.array([1.0, 3.0])
    >>> ByVariance().shares(["web", "code"], weights, spreads).tolist()
    [0.25, 0.75]
    """

    name = "variance"
    measures = True

    def __init__(self, ratio: float = 2.0) -> None:
        self.ratio = number_between("ratio", ratio, 1.0)

    def shares(self, domains: Sequence[Any], weights: Array, spreads: Array) -> Array:
        return least_variance_shares(weights, spreads, self.ratio)


NAMED = {kind.name: kind for kind in (ByWeights, Fixed, ByVariance)}


def get_sampling(sampling: str | Sampling) -> Sampling:
    """Return the way of sampling that is meant: itself, or the one of that name."""
    found: Sampling = chosen("sampling", sampling, Sampling, NAMED)
    return found


def least_variance_shares(weights: Array, spreads: Array, ratio: float = math.inf) -> Array:
    """Return the shares ``q`` that minimise ``sum_k (w_k s_k)^2 / q_k``.

    They are ``w_k`` times ``c s_k``, clipped to ``[1 / ratio, ratio]``, with the one ``c`` that
    makes them sum to 1. The sum is piecewise linear in ``c``, so that ``c`` is found exactly.

    Parameters
    ----------
    weights : array of shape (K,)
        They sum to 1. A weight of zero gives a share of zero.
    spreads : array of shape (K,)
        Standard deviations of single losses within the domains, or norms of their gradients.
        Domains without spread get what the others leave, by weight.
    ratio : float, default infinity
        Bound on ``w_k / q_k`` and on ``q_k / w_k``.

    Examples
    --------
    >>> weights, spreads = np.array([0.5, 0.5]), np.array([1.0, 9.0])
    >>> least_variance_shares(weights, spreads).round(6).tolist()
    [0.1, 0.9]
    >>> least_variance_shares(weights, spreads, ratio=1.25).round(6).tolist()
    [0.4, 0.6]
    """
    largest = float(np.max(spreads, initial=0.0, where=weights > 0))
    if largest == 0.0 or ratio == 1.0:
        return weights.copy()
    s = np.maximum(spreads / largest, LEAST_SPREAD)
    if math.isinf(ratio):
        found = weights * s
        return found / found.sum()
    low, high = 1.0 / ratio, ratio
    at = np.sort(np.concatenate([low / s, high / s]))
    first, last = 0, len(at) - 1  # the sum is at most 1 at the first, and at least 1 at the last
    while last - first > 1:
        middle = (first + last) // 2
        if weights @ np.clip(at[middle] * s, low, high) <= 1.0:
            first = middle
        else:
            last = middle
    centre = 0.5 * (at[first] + at[last])
    free = (centre * s > low) & (centre * s < high)
    rest = 1.0 - weights[~free] @ np.clip(centre * s[~free], low, high)
    slope = weights[free] @ s[free]
    c = rest / slope if slope > 0 else centre
    found = weights * np.clip(c * s, low, high)
    return found / found.sum()


def loss_factors(weights: Array, shares: Array) -> Array:
    """Return ``w_k / q_k``, by which losses count; 1 for domains that are never drawn.

    >>> loss_factors(np.array([0.5, 0.5, 0.0]), np.array([0.25, 0.75, 0.0])).tolist()
    [2.0, 0.6666666666666666, 1.0]
    """
    lost = np.flatnonzero((shares <= 0) & (weights > 0))
    if lost.size:
        k = int(lost[0])
        raise ValueError(
            f"shares[{k}]={shares[k]!r}, but the domain has the weight {float(weights[k]):g}: its "
            "loss would never be seen; give it a positive share"
        )
    out = np.ones(len(weights))
    np.divide(weights, shares, out=out, where=shares > 0)
    return out


def effective_sample_size(weights: Array, shares: Array) -> float:
    """Return the share of samples that as many samples drawn by the weights would be worth.

    It is ``1 / sum_k w_k^2 / q_k``, Kish's effective sample size: exact where all domains' losses
    are alike, so that unequal factors only cost.

    >>> round(effective_sample_size(np.array([0.5, 0.5]), np.array([0.2, 0.8])), 2)
    0.64
    """
    drawn = shares > 0
    return float(1.0 / np.sum(weights[drawn] ** 2 / shares[drawn]))


def variance_of_weighted_loss(
    weights: Array, shares: Array, spreads: Array, means: Array | None = None
) -> float:
    """Return the variance of a sample's loss times its factor.

    Parameters
    ----------
    weights, shares, spreads : arrays of shape (K,)
    means : array of shape (K,), optional
        Mean loss of each domain, for draws that are independent of one another. By default draws
        are spread evenly over the domains, as those of a `MixtureDataset` are; which domain a
        sample comes from then adds nothing.
    """
    drawn = shares > 0
    w, q, s = weights[drawn], shares[drawn], spreads[drawn]
    if means is None:
        return float(np.sum((w * s) ** 2 / q))
    m = means[drawn]
    return float(np.sum(w**2 * (s**2 + m**2) / q) - (w @ m) ** 2)
