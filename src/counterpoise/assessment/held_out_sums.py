"""Held-out rows that stay where they are: how candidates do on them, as sums over rows.

The rows are cut into cells, the rows of a group that a fold holds out. Every cell is judged by the
fits to the other folds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from counterpoise.activations import Activation
from counterpoise.assessment.intervals import GroupSums
from counterpoise.assessment.measures import AmountSums, Measure
from counterpoise.rows.engines.questions import Question
from counterpoise.rows.threads import single_threaded_blas

Array = np.ndarray

# Losses above this count as this much in variances.
LARGEST = 1e140


@dataclass(frozen=True, eq=False)
class ClassMass(Question):
    """Total weights of the classes, which labels number: (K, classes)."""

    alike = True

    n_classes: int

    def of_rows(self, X: Any, y: Array, weights: Array, group: int) -> Array:
        return np.bincount(y.astype(np.int64), weights, self.n_classes)


@dataclass(frozen=True, eq=False)
class Judge(Question):
    """What the rows of every cell amount to under the fits of the fold that holds them out.

    ``coefs`` are of shape (folds, C, scores, d + 1), with intercepts last. ``fold_A`` is the fold
    of every cell, and -1 if none holds it out. ``factor_AC`` multiplies weights by class.
    """

    measure: Measure
    coefs: Array
    fold_A: Array
    factor_AC: Array | None

    def _amounts(self, X: Any, y: Array, weights: Array, cell: int) -> tuple[Array, Array, Array]:
        """Return scores, amounts and weights of the rows of a cell."""
        C, S, size = self.coefs.shape[1:]
        fits = self.coefs[self.fold_A[cell]].reshape(C * S, size)
        with single_threaded_blas():
            scores = np.asarray(X @ fits[:, :-1].T, dtype=float) + fits[:, -1]
        scores = scores.reshape(len(y), C, S)
        used = scores[:, :, 0] if S == 1 else scores
        columns = [self.measure.amounts(used[:, c], y) for c in range(C)]
        if self.factor_AC is not None:
            weights = weights * self.factor_AC[cell, y.astype(np.int64)]
        return scores, np.column_stack(columns), weights


@dataclass(frozen=True, eq=False)
class CandidateSums(Judge):
    """Sums of weights, of their squares, and of the amounts and their products: see `Sums`."""

    def of_rows(self, X: Any, y: Array, weights: Array, group: int) -> Array:
        C = self.coefs.shape[1]
        if self.fold_A[group] < 0:
            return np.zeros(2 + 2 * C + C * C)
        _, amounts, w = self._amounts(X, y, weights, group)
        own = np.minimum(amounts, LARGEST)  # whose squares are finite
        own[:, 1:] -= own[:, :1]
        squared = w * w
        with single_threaded_blas():
            second = own.T @ (squared[:, None] * own)
            totals = [[w.sum(), squared.sum()], w @ amounts, squared @ own, second.ravel()]
        return np.concatenate(totals)


@dataclass(frozen=True)
class Sums:
    """Sums over the rows of cells.

    Attributes
    ----------
    mass, squares : arrays of shape (A,)
        Of weights, and of their squares.
    amounts : array of shape (A, C)
        Of weighted amounts.
    first, second : arrays of shape (A, C) and (A, C, C)
        Of amounts and of their products, relative to the first candidate's and weighted by squared
        weights, as in the variance of a mean.
    """

    mass: Array
    squares: Array
    amounts: Array
    first: Array
    second: Array

    @classmethod
    def of(cls, answer: Array, C: int) -> Sums:
        mass, squares = answer[:, 0], answer[:, 1]
        amounts, first, second = np.split(answer[:, 2:], [C, 2 * C], axis=1)
        return cls(mass, squares, amounts, first, second.reshape(-1, C, C))


@dataclass(frozen=True, eq=False)
class PairMoments(Judge):
    """Moments of the amounts of two fits per fold, about ``centre_A2`` and in ``unit``: (K, 2, 8).

    With an ``activation``, also the absolute errors of its outputs.
    """

    centre_A2: Array
    unit: float
    activation: Activation | None

    def of_rows(self, X: Any, y: Array, weights: Array, group: int) -> Array:
        out = np.zeros((2, 8))
        if self.fold_A[group] < 0:
            return out
        scores, amounts, w = self._amounts(X, y, weights, group)
        for i in range(2):
            gap = (amounts[:, i] - self.centre_A2[group, i]) / self.unit
            of_gap = [w @ gap, w @ gap**2, w @ gap**3]
            out[i, :6] = [w.sum(), w @ w, *of_gap, (w * w) @ amounts[:, i]]
            if self.activation is not None:
                off = np.abs(y - self.activation.value(scores[:, i, 0]))
                out[i, 6:] = [weights.sum(), weights @ off]
        return out


def amount_sums(answer_K8: Array, centre_K: Array, unit: float) -> AmountSums:
    """Return the moments of one fit's amounts from its sums over the rows of groups."""
    mass, squares, first, second, third, squared = answer_K8[:, :6].T
    mean = first / np.where(mass > 0, mass, 1.0)
    losses = GroupSums(
        mass,
        squares,
        centre_K / unit + mean,
        np.maximum(second - mean * first, 0.0),
        third - 3.0 * mean * second + 2.0 * mean**3 * mass,
    )
    return AmountSums(losses, squared, unit)
