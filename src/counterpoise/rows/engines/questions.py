"""Questions that engines answer.

Every answer is a sum over rows, so parts of the data can answer alone and be added up: in memory,
chunk by chunk or across machines. The solver's own questions have compiled answers; a new one
needs only :meth:`Question.of_rows`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from counterpoise.activations import Activation
from counterpoise.losses import Loss

Array = np.ndarray


@dataclass(frozen=True, eq=False)
class Question:
    """A question about the rows, with one answer per group, or one for all if ``pooled``."""

    # Whether rows of all groups are treated alike, apart from shares ``share_K`` of the groups.
    alike: ClassVar[bool] = False

    @property
    def pooled(self) -> bool:
        return False

    def on_patterns(self, shares_AK: Any) -> Question | None:
        """Return the question whose sums over patterns of membership add up to those of groups.

        ``shares_AK`` are the shares of the patterns in the groups, as a CSR matrix. None means
        that there is no such question, because rows are treated differently in each group.
        """
        if not self.alike:
            return None
        share_K = getattr(self, "share_K", None)
        known: Any = self
        return known if share_K is None else replace(known, share_K=shares_AK @ share_K)

    def for_groups(self, codes: Array) -> Question:
        """Return the question for an engine whose groups are these ones, in this order."""
        if not self.alike:
            return Renumbered(self, codes)
        share_K = getattr(self, "share_K", None)
        known: Any = self
        return known if share_K is None else replace(known, share_K=share_K[codes])

    def of_rows(self, X: Any, y: Array, weights: Array, group: int) -> Array:
        """Return the sum over some rows of one group, for engines without a faster way.

        ``X`` is an array or a CSR matrix, without a column for the intercept; ``group`` is the
        index of the group.
        """
        raise TypeError(f"engines cannot answer {type(self).__name__}; define its method of_rows")


@dataclass(frozen=True, eq=False)
class Renumbered(Question):
    """A question to an engine whose group ``i`` is the group ``codes[i]`` of the question."""

    question: Question
    codes: Array

    @property
    def pooled(self) -> bool:
        return self.question.pooled

    def of_rows(self, X: Any, y: Array, weights: Array, group: int) -> Array:
        return self.question.of_rows(X, y, weights, int(self.codes[group]))


@dataclass(frozen=True, eq=False)
class Labels(Question):
    """Sums of ``y - pivot`` and of its square: (K, 2). Features are not read."""

    alike = True

    pivot: float
    truncate: float | None


@dataclass(frozen=True, eq=False)
class Evaluate(Question):
    """Sums of ``c x``, of ``c`` and of the losses at ``w``: (K, d + 2).

    ``c`` is the loss's ``pull``.
    """

    alike = True

    w: Array
    loss: Loss
    surrogate: bool
    truncate: float | None


@dataclass(frozen=True, eq=False)
class Moments(Question):
    """Sums of ``x (x . u_i)`` with a direction ``u_i`` for every group: (K, d + 2)."""

    directions: Array

    def for_groups(self, codes: Array) -> Question:
        return replace(self, directions=self.directions[codes])

    def of_rows(self, X: Any, y: Array, weights: Array, group: int) -> Array:
        u, d = self.directions[group], X.shape[1]
        c = weights * (X @ u[:d] + (u[d] if len(u) > d else 0.0))
        return np.concatenate([X.T @ c, [c.sum(), 0.0]])


@dataclass(frozen=True, eq=False)
class Separation(Question):
    """Sums of ``(sigma(p.x) - sigma(w.x))^2`` for every point ``p``: (K, points)."""

    alike = True

    points: Array
    w: Array
    activation: Activation


@dataclass(frozen=True, eq=False)
class Squares(Question):
    """Sums of ``(x - shift)^2`` for every feature: (K, d)."""

    alike = True

    shift: Array


@dataclass(frozen=True, eq=False)
class Gram(Question):
    """Sums of ``s^2 r r^T`` with ``r = (x - shift, 1) @ basis``: (K, D, D).

    ``s`` is the loss's ``stretch`` at ``w``. Without ``w`` it is one; without ``basis`` the basis
    is the identity. With ``share_K``, rows are weighted by the share of their group, and there is
    one matrix for all groups.
    """

    alike = True

    w: Array | None
    loss: Loss
    share_K: Array | None
    shift: Array
    basis: Array | None

    @property
    def pooled(self) -> bool:
        return self.share_K is not None


@dataclass(frozen=True, eq=False)
class EvaluateEach(Question):
    """The sums of `Evaluate` at every group's own coefficients: (K, d + 2)."""

    W_KD: Array
    loss: Loss
    surrogate: bool
    truncate: float | None

    def for_groups(self, codes: Array) -> Question:
        return replace(self, W_KD=self.W_KD[codes])

    def of_rows(self, X: Any, y: Array, weights: Array, group: int) -> Array:
        w, d = self.W_KD[group], X.shape[1]
        y = y if self.truncate is None else np.clip(y, -self.truncate, self.truncate)
        z = np.asarray(X @ w[:d], dtype=float) + (w[d] if len(w) > d else 0.0)
        value, pull = self.loss.value_and_pull(z, y, surrogate=self.surrogate)
        c = weights * pull
        return np.concatenate([X.T @ c, [c.sum(), weights @ value]])


@dataclass(frozen=True, eq=False)
class GramEach(Question):
    """The sums of `Gram`, without a basis, at every group's own coefficients: (K, D, D)."""

    W_KD: Array
    loss: Loss
    shift: Array

    def for_groups(self, codes: Array) -> Question:
        return replace(self, W_KD=self.W_KD[codes])

    def of_group(self, group: int) -> Gram:
        """Return the question for one group."""
        return Gram(self.W_KD[group], self.loss, None, self.shift, None)

    def of_rows(self, X: Any, y: Array, weights: Array, group: int) -> Array:
        w, d = self.W_KD[group], X.shape[1]
        dense = np.asarray(X.toarray() if hasattr(X, "toarray") else X, dtype=float)
        rows = np.ones((len(y), len(w)))
        np.subtract(dense, self.shift, out=rows[:, :d])
        z = dense @ w[:d] + (w[d] if len(w) > d else 0.0)
        rows *= (self.loss.stretch(z, y) * np.sqrt(weights))[:, None]
        return rows.T @ rows
