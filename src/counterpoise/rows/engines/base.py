"""What an engine answers, and the engines whose answers are sums over rows."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import NamedTuple, Protocol, Self

import numpy as np

from counterpoise.activations import Activation, identity
from counterpoise.rows.census import Census
from counterpoise.rows.engines.questions import (
    Evaluate,
    Gram,
    Labels,
    Moments,
    Question,
    Separation,
    Squares,
)
from counterpoise.rows.sample import RowSample

Array = np.ndarray


class GroupEval(NamedTuple):
    """Mean loss of every group, and the gradient (true or surrogate) of each."""

    loss_K: Array
    grad_KD: Array


class Engine(Protocol):
    """The questions a solver may ask; ``D`` counts the intercept as the last coefficient."""

    n_groups: int
    n_coef: int

    @property
    def passes(self) -> int:
        """Reads of the rows so far."""
        ...

    def evaluate(self, w: Array, *, surrogate: bool) -> GroupEval:
        """Losses and gradients at ``w``: ``2 beta mean (sigma - y) x`` if ``surrogate``,
        else the true ``2 mean (sigma - y) sigma' x``. One read."""
        ...

    def curvature(self, w: Array | None, weights_K: Array | None) -> Array:
        """Gauss-Newton matrices ``2 mean sigma'(w.x)^2 x x^T`` in coordinates shifted by
        ``shift``: one per group, or their sum weighted by ``weights_K``. With ``w=None``
        the slope is taken as one. One read."""
        ...

    def separation(self, points: Array, w: Array) -> Array:
        """``mean_i (sigma(p.x) - sigma(w.x))^2`` for every point ``p``: shape (points, K).
        One read."""
        ...


@dataclass
class PassCounter:
    """Reads of the rows, shared by engines over the same rows."""

    count: int = 0


class SumEngine:
    """Questions of the solver as sums over rows; who adds them up is the subclass's part."""

    def __init__(self, census: Census, activation: Activation) -> None:
        self.census, self.activation = census, activation
        self.truncate: float | None = None
        self.counter = PassCounter()
        self.n_groups, self.n_features = census.n_groups, census.n_features
        self.n_coef = census.n_features + int(census.intercept)
        self.shift = census.shift
        self._labels: Array | None = None

    def ask(self, question: Question) -> Array:
        """The answer, summed over all rows."""
        raise NotImplementedError(type(self).__name__)

    def checksum(self) -> Array:
        """Numbers that tell these rows from others. Any reads are not counted: they are no part
        of a fit."""
        count = self.counter.count
        w = np.random.default_rng(0).normal(size=self.n_coef)
        sums = self.ask(Evaluate(w, identity(), True, None))
        self.counter.count = count
        return sums

    def sample(self) -> RowSample:
        """Some rows of every group, without a read of the rest."""
        raise NotImplementedError(type(self).__name__)

    @property
    def passes(self) -> int:
        """Reads of the rows so far."""
        return self.counter.count

    def variant(
        self, *, activation: Activation | None = None, truncate: float | None = None
    ) -> Self:
        """The same rows with another activation, or labels clipped to ``[-truncate, truncate]``;
        reads count together."""
        other = copy.copy(self)
        other.activation = activation or self.activation
        if truncate is not None:
            other.truncate, other._labels = truncate, None
        return other

    # -- questions -------------------------------------------------------------------------

    def evaluate(self, w: Array, *, surrogate: bool) -> GroupEval:
        sums = self.ask(Evaluate(self._floats(w), self.activation, surrogate, self.truncate))
        slope = self.activation.beta if surrogate else 1.0
        loss = sums[:, -1] / self.census.totals
        grad = (sums if sums.flags.writeable else sums.copy())[:, : self.n_coef]
        grad *= (2.0 * slope / self.census.totals)[:, None]  # in place: it may be large
        return GroupEval(loss, grad)

    def mean_outputs(self, w: Array) -> Array:
        """``mean_i sigma(w.x)^2``: the losses, were all labels zero."""
        sums = self.ask(Evaluate(self._floats(w), self.activation, True, 0.0))
        return sums[:, -1] / self.census.totals

    def apply_moments(self, directions_KD: Array) -> Array:
        """``mean_i x (x . u_i)`` with a direction ``u_i`` for every group: power iteration."""
        sums = self.ask(Moments(self._floats(directions_KD)))
        return sums[:, : self.n_coef] / self.census.totals[:, None]

    def separation(self, points: Array, w: Array) -> Array:
        sums = self.ask(Separation(self._floats(points), self._floats(w), self.activation))
        return (sums / self.census.totals[:, None]).T

    def mean_squares(self, weights_K: Array) -> Array:
        """Mean square of every shifted feature (one for the intercept), groups weighted."""
        means = (weights_K / self.census.totals) @ self.ask(Squares(self.shift))
        return np.append(means, 1.0) if self.census.intercept else means

    def curvature(
        self, w: Array | None, weights_K: Array | None, basis: Array | None = None
    ) -> Array:
        """As in :class:`Engine`; with a ``basis`` (D, r), matrices in those coordinates. Rows are
        mapped before they are squared, so an ill-conditioned basis costs no digits."""
        share = None if weights_K is None else weights_K / self.census.totals
        at = None if w is None else self._floats(w)
        sums = self.ask(Gram(at, self.activation, share, self.shift, basis))
        if share is None:
            sums /= self.census.totals[:, None, None]
        return 2.0 * sums

    def label_means(self) -> Array:
        """Mean label of every group, labels as fitted (clipped, if so asked)."""
        return self.census.pivot + self._label_moments()[:, 0]

    def label_squares(self, centre: float = 0.0) -> Array:
        """Mean of ``(y - centre)^2`` of every group, labels as fitted."""
        first, second = self._label_moments().T
        gap = self.census.pivot - centre
        return np.maximum(second + gap * (2.0 * first + gap), 0.0)

    def _label_moments(self) -> Array:
        if self._labels is None:
            sums = self.ask(Labels(self.census.pivot, self.truncate))
            self._labels = sums / self.census.totals[:, None]
        return self._labels

    def _floats(self, w: Array) -> Array:
        return np.ascontiguousarray(w, dtype=float)
