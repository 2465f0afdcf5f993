"""Questions about losses at given coefficients, for one score per row or one for every class."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

from counterpoise.losses import Loss
from counterpoise.rows.engines.questions import Question

Array = np.ndarray


def scores_of(X: Any, w: Array, n_scores: int, intercept: bool) -> Array:
    """Return the scores of rows: (rows, scores); ``w`` holds the coefficients score by score."""
    W = w.reshape(n_scores, -1)
    d = X.shape[1]
    z = np.asarray(X @ W[:, :d].T, dtype=float)
    return z + W[:, d] if intercept else z


def pull_scores(X: Any, slope: Array, intercept: bool) -> Array:
    """Return the gradient of a sum over rows whose slopes by their scores are given."""
    columns = slope if slope.ndim == 2 else slope[:, None]
    pulled = np.asarray(X.T @ columns).T  # also for sparse rows
    if intercept:
        pulled = np.column_stack([pulled, columns.sum(axis=0)])
    return pulled.ravel()


@dataclass(frozen=True, eq=False)
class EvaluateScores(Question):
    """Sums of ``c_s (x, 1)`` for every score ``s``, one after the other, and of the losses.

    ``c_s`` is the slope by the score. The answer has shape (K, scores * width + 1).
    """

    alike = True

    w: Array
    loss: Loss
    intercept: bool

    def of_rows(self, X: Any, y: Array, weights: Array, group: int) -> Array:
        z = scores_of(X, self.w, self.loss.n_scores, self.intercept)
        slope = self.loss.slope(z, y) * weights[:, None]
        return np.append(pull_scores(X, slope, self.intercept), weights @ self.loss.value(z, y))


@dataclass(frozen=True, eq=False)
class GramScores(Question):
    """Sums of ``B (x) r r^T`` with ``r = (x - shift, 1) @ basis``: (K, scores * r, scores * r).

    ``B`` is the matrix of second derivatives by the scores, ``diag(p) - p p^T``. With ``share_K``,
    rows are weighted by the share of their group, and there is one matrix for all groups. With
    ``reach``, ``B`` is multiplied by the factor that bounds it at all scores within
    ``reach ||r||``.
    """

    alike = True

    w: Array
    loss: Loss
    share_K: Array | None
    shift: Array
    basis: Array | None
    intercept: bool
    reach: float = 0.0

    @property
    def pooled(self) -> bool:
        return self.share_K is not None

    def of_rows(self, X: Any, y: Array, weights: Array, group: int) -> Array:
        z = scores_of(X, self.w, self.loss.n_scores, self.intercept)
        p = self.loss.bend(z, y)
        rows = mapped_rows(X, self.shift, self.intercept, self.basis)
        share = weights if self.share_K is None else self.share_K[group] * weights
        if self.reach:
            share = share * self.loss.least_bend(z, y, self.reach * np.linalg.norm(rows, axis=1))
        n, size = self.loss.n_scores, rows.shape[1]
        out = np.empty((n, size, n, size))
        for a in range(n):
            for b in range(a, n):
                c = share * p[:, a] * ((a == b) - p[:, b])
                block = (rows * c[:, None]).T @ rows
                out[a, :, b, :] = block
                out[b, :, a, :] = block.T
        return out.reshape(n * size, n * size)


@dataclass(frozen=True, eq=False)
class LeastGram(Question):
    """Sums of ``b r r^T`` with ``r = (x - shift, 1) @ basis``, pooled: (D, D).

    ``b`` bounds the second derivative of the loss from below, at all scores within ``reach ||r||``
    of the one at ``w``.
    """

    alike = True

    w: Array
    loss: Loss
    share_K: Array
    shift: Array
    basis: Array | None
    intercept: bool
    reach: float

    @property
    def pooled(self) -> bool:
        return True

    def of_rows(self, X: Any, y: Array, weights: Array, group: int) -> Array:
        z = scores_of(X, self.w, 1, self.intercept)[:, 0]
        rows = mapped_rows(X, self.shift, self.intercept, self.basis)
        least = self.loss.least_bend(z, y, self.reach * np.linalg.norm(rows, axis=1))
        c = self.share_K[group] * weights * least
        return (rows * c[:, None]).T @ rows


@dataclass(frozen=True, eq=False)
class SlopeSquares(Question):
    """Sums of squared slopes at ``w``: (K, 1)."""

    alike = True

    w: Array
    loss: Loss
    intercept: bool

    def of_rows(self, X: Any, y: Array, weights: Array, group: int) -> Array:
        z = scores_of(X, self.w, self.loss.n_scores, self.intercept)
        slope = self.loss.slope(z, y) if self.loss.n_scores > 1 else self.loss.slope(z[:, 0], y)
        squares = slope**2 if slope.ndim == 1 else np.sum(slope**2, axis=1)
        return np.array([weights @ squares])


@dataclass(frozen=True, eq=False)
class ScoreErrors(Question):
    """What scores off by ``q = |w|.|x| + |intercept| + 1`` do to losses and gradients at ``w``.

    Sums of ``|c| q`` and of ``b q (|x|, 1)``, with the slope ``c`` and the second derivative ``b``
    of one score: (K, 2 + d).
    """

    alike = True

    w: Array
    loss: Loss
    intercept: bool

    def of_rows(self, X: Any, y: Array, weights: Array, group: int) -> Array:
        z = scores_of(X, self.w, 1, self.intercept)[:, 0]
        sizes = abs(X) if sparse.issparse(X) else np.abs(np.asarray(X, dtype=float))
        q = scores_of(sizes, np.abs(self.w), 1, self.intercept)[:, 0] + 1.0
        lost = weights @ (np.abs(self.loss.slope(z, y)) * q)
        bent = pull_scores(sizes, weights * q * self.loss.bend(z, y), True)
        return np.append(lost, bent)


@dataclass(frozen=True, eq=False)
class Mistakes(Question):
    """Sums of the weights of rows that are put into a wrong class: (K, 1)."""

    w: Array
    loss: Loss
    intercept: bool

    def of_rows(self, X: Any, y: Array, weights: Array, group: int) -> Array:
        z = scores_of(X, self.w, self.loss.n_scores, self.intercept)
        wrong = self.loss.mistaken(z if self.loss.n_scores > 1 else z[:, 0], y)
        return np.array([weights @ wrong])


def mapped_rows(X: Any, shift: Array, intercept: bool, basis: Array | None) -> Array:
    """Return the rows ``(x - shift, 1) @ basis``."""
    rows = X.toarray() if sparse.issparse(X) else X
    rows = np.asarray(rows, dtype=float) - shift
    if basis is not None and basis.ndim == 2:
        mapped = rows @ basis[: rows.shape[1]]
        return mapped + basis[-1] if intercept else mapped
    if intercept:
        rows = np.column_stack([rows, np.ones(len(rows))])
    return rows if basis is None else rows * basis
