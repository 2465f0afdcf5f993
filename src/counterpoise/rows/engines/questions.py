"""Questions that engines answer.

Every answer is a sum over rows, so parts of the data can answer alone and be added up: in memory,
chunk by chunk or across machines. The solver's own questions have compiled answers; a new one
needs only :meth:`Question.of_rows`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from counterpoise.activations import Activation
from counterpoise.losses import Loss

Array = np.ndarray


@dataclass(frozen=True, eq=False)
class Question:
    """A question about the rows, with one answer per group, or one for all if ``pooled``."""

    @property
    def pooled(self) -> bool:
        return False

    def of_rows(self, X: Any, y: Array, weights: Array, group: int) -> Array:
        """Return the sum over some rows of one group, for engines without a faster way.

        ``X`` is an array or a CSR matrix, without a column for the intercept; ``group`` is the
        index of the group.
        """
        raise TypeError(f"engines cannot answer {type(self).__name__}; define its method of_rows")


@dataclass(frozen=True, eq=False)
class Labels(Question):
    """Sums of ``y - pivot`` and of its square: (K, 2). Features are not read."""

    pivot: float
    truncate: float | None


@dataclass(frozen=True, eq=False)
class Evaluate(Question):
    """Sums of ``c x``, of ``c`` and of the losses at ``w``: (K, d + 2).

    ``c`` is the loss's ``pull``.
    """

    w: Array
    loss: Loss
    surrogate: bool
    truncate: float | None


@dataclass(frozen=True, eq=False)
class Moments(Question):
    """Sums of ``x (x . u_i)`` with a direction ``u_i`` for every group: (K, d + 2)."""

    directions: Array


@dataclass(frozen=True, eq=False)
class Separation(Question):
    """Sums of ``(sigma(p.x) - sigma(w.x))^2`` for every point ``p``: (K, points)."""

    points: Array
    w: Array
    activation: Activation


@dataclass(frozen=True, eq=False)
class Squares(Question):
    """Sums of ``(x - shift)^2`` for every feature: (K, d)."""

    shift: Array


@dataclass(frozen=True, eq=False)
class Gram(Question):
    """Sums of ``s^2 r r^T`` with ``r = (x - shift, 1) @ basis``: (K, D, D).

    ``s`` is the loss's ``stretch`` at ``w``. Without ``w`` it is one; without ``basis`` the basis
    is the identity. With ``share_K``, rows are weighted by the share of their group, and there is
    one matrix for all groups.
    """

    w: Array | None
    loss: Loss
    share_K: Array | None
    shift: Array
    basis: Array | None

    @property
    def pooled(self) -> bool:
        return self.share_K is not None
