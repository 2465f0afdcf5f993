"""Measures: how held-out rows are judged, by their scores and labels.

A measure has an amount for every row. The risk of a group is the weighted mean of its rows'
amounts, and the search of a cross-validation compares candidates by the risk of their worst group.
"""

from __future__ import annotations

import math
from typing import NamedTuple, Protocol

import numpy as np

from counterpoise.assessment.intervals import GroupSums, RiskIntervals, intervals_of, loss_intervals
from counterpoise.assessment.metrics import balanced_weights, balancing_factors
from counterpoise.assessment.proportions import ErrorSums, wrong_intervals
from counterpoise.common.arguments import check_choice

Array = np.ndarray

# Held-out risks below this share of their unit count as rounding.
ROUNDING = 1e-14
# How the scores of a classifier can be judged.
SCORINGS = ("loss", "log_loss", "error", "balanced_error")


class RowLoss(Protocol):
    """The loss of a row, as a function of its scores and its label."""

    name: str
    n_scores: int

    def value(self, z: Array, y: Array) -> Array:
        """Return the losses; several scores are the last axis of ``z``."""


class AmountSums(NamedTuple):
    """Sums over the amounts of every group's rows, which are measured in ``unit``.

    ``squared`` are the sums of amounts times squared weights, in their own unit.
    """

    losses: GroupSums
    squared: Array
    unit: float


class Measure:
    """The mean of a loss: squared error of a neuron, log loss of a classifier, or another.

    Attributes
    ----------
    loss : the loss that the fit minimises, with ``value(scores, labels)``
    words : str
        What a risk is called in sentences.
    bounded : bool
        Whether no row can have an amount above one, so that a few rows cannot dominate a fold.
    unit : float
        A risk that counts as large; those below 1e-14 of it count as zero.
    rooted : bool
        Whether the root of a risk is an error in units of the label.
    """

    bounded = False

    def __init__(
        self, loss: RowLoss, words: str = "risk", unit: float = 1.0, *, rooted: bool = False
    ) -> None:
        self.loss, self.words, self.unit, self.rooted = loss, words, unit, rooted

    @property
    def shown_words(self) -> str:
        """What `shown` shows, in sentences."""
        return "error" if self.rooted else self.words

    def shown(self, risk: float) -> float:
        """A risk in the units that people are shown: an error, if the loss is its square."""
        return math.sqrt(max(risk, 0.0)) if self.rooted else risk

    def amounts(self, z: Array, y: Array) -> Array:
        """Return the amount of every row, from its score (or scores, last axis) and label."""
        return self.loss.value(z, y)

    def weights(self, y: Array, codes: Array, weights: Array) -> Array:
        """Return the weights of rows in the risk of their group; ``codes`` number the groups."""
        return weights

    def class_factors(self, mass_KC: Array) -> Array | None:
        """Return the factors of weights by group and class, if there are any.

        ``mass_KC`` are the total weights of the classes in the groups.
        """
        return None

    @property
    def floor(self) -> float:
        """Risks below this count as zero."""
        return ROUNDING * self.unit

    def intervals(
        self, amounts: Array, labels: Array, codes: Array, weights: Array | None, level: float
    ) -> RiskIntervals:
        """Return the risks of groups with confidence intervals."""
        return loss_intervals(amounts, labels, codes, weights, level=level)

    def intervals_of(self, sums: AmountSums, labels: Array, level: float) -> RiskIntervals:
        """Return the same from sums over the rows of every group."""
        return intervals_of(sums.losses.moments(), labels, level, sums.unit)


class ErrorRate(Measure):
    """The share of rows whose class is wrong, with Wilson intervals.

    A single score predicts class 1 if it is positive; several predict the class of the largest.
    """

    bounded = True

    def __init__(self, loss: RowLoss) -> None:
        super().__init__(loss, "error")

    def amounts(self, z: Array, y: Array) -> Array:
        said = (z > 0) if self.loss.n_scores == 1 else np.argmax(z, axis=-1)
        return np.asarray(said != y, dtype=float)

    def intervals(
        self, amounts: Array, labels: Array, codes: Array, weights: Array | None, level: float
    ) -> RiskIntervals:
        return wrong_intervals(amounts, labels, codes, weights, level=level)

    def intervals_of(self, sums: AmountSums, labels: Array, level: float) -> RiskIntervals:
        losses = sums.losses
        wrong = sums.unit * losses.mass * losses.mean
        return ErrorSums(losses.mass, losses.squares, wrong, sums.squared).intervals(labels, level)


class BalancedErrorRate(ErrorRate):
    """The mean, over the classes that a group has, of the error among its rows of the class.

    Rows are weighted so that every class counts the same in its group. The weights are those of
    all rows; folds stratified by group and class have nearly the same shares.
    """

    def __init__(self, loss: RowLoss) -> None:
        super().__init__(loss)
        self.words = "balanced error"

    def weights(self, y: Array, codes: Array, weights: Array) -> Array:
        return balanced_weights(y.astype(np.int64), codes, weights)

    def class_factors(self, mass_KC: Array) -> Array | None:
        return balancing_factors(mass_KC)


def classifier_measure(scoring: str, loss: RowLoss) -> Measure:
    """Return the measure with this name for a classifier that minimises ``loss``."""
    check_choice("scoring", scoring, SCORINGS)
    if scoring == "error":
        return ErrorRate(loss)
    if scoring == "balanced_error":
        return BalancedErrorRate(loss)
    if scoring == "log_loss" and loss_name(loss) != "log loss":
        raise ValueError(
            f"scoring='log_loss' needs probabilities, which a fit with loss {loss.name!r} does not "
            "have; use scoring='loss', 'error' or 'balanced_error', or loss='log'"
        )
    return Measure(loss, loss_name(loss))


def loss_name(loss: RowLoss) -> str:
    """Return what a loss of classes is called in sentences."""
    if loss.name in ("log", "multinomial"):
        return "log loss"
    return f"{loss.name.replace('_', ' ')} loss"
