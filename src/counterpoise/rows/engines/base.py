"""The interface of engines, and the base of engines whose answers are sums over rows."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, Self

import numpy as np

from counterpoise.activations import Activation
from counterpoise.losses import Loss, NeuronLoss, as_loss
from counterpoise.rows.census import Census
from counterpoise.rows.collective import Collective
from counterpoise.rows.engines.questions import (
    Evaluate,
    EvaluateEach,
    Gram,
    GramEach,
    Labels,
    Moments,
    Question,
    Separation,
    Squares,
)
from counterpoise.rows.engines.scores import EvaluateScores, GramScores
from counterpoise.rows.groups import GroupedData
from counterpoise.rows.sample import RowSample

Array = np.ndarray

# Numbers whose digest is taken at a time.
DIGESTED = 1 << 20


class GroupEval(NamedTuple):
    """Mean loss of every group, and its gradient (true or surrogate)."""

    loss_K: Array
    grad_KD: Array


class Engine(Protocol):
    """The methods that the solver needs; the intercept is the last of ``D`` coefficients."""

    n_groups: int

    @property
    def n_coef(self) -> int:
        """Number of coefficients."""
        ...

    @property
    def passes(self) -> int:
        """Passes over the rows so far."""
        ...

    def evaluate(self, w: Array, *, surrogate: bool) -> GroupEval:
        """Compute losses and gradients at ``w``, in one pass.

        Gradients of a neuron are ``2 beta mean (sigma - y) x`` if ``surrogate``, else the true
        ``2 mean (sigma - y) sigma' x``. For other losses they are always true.
        """
        ...

    def curvature(self, w: Array | None, weights_K: Array | None) -> Array:
        """Compute matrices of second derivatives, ``mean bend x x^T``, in one pass.

        There is one per group, or their sum weighted by ``weights_K``. Coordinates are shifted by
        ``shift``. With ``w=None`` the second derivative is two.
        """
        ...

    def separation(self, points: Array, w: Array) -> Array:
        """Compute ``mean_i (sigma(p.x) - sigma(w.x))^2`` for every point ``p``, in one pass.

        The result has shape (points, K).
        """
        ...


def fingerprint_of(arrays: Iterable[Array]) -> str:
    """Return a digest of arrays, with their types and shapes; a few rows are read at a time."""
    sha = hashlib.sha256()
    for array in arrays:
        sha.update(f"{array.dtype.str} {array.shape};".encode())
        step = max(1, DIGESTED * len(array) // max(1, array.size))
        for lo in range(0, len(array), step):
            some = np.ascontiguousarray(array[lo : lo + step])
            sha.update(some.reshape(-1).view(np.uint8).data)
    return sha.hexdigest()


@dataclass
class PassCounter:
    """Number of passes, shared by engines over the same rows."""

    count: int = 0


class SumEngine:
    """An engine that answers with sums over rows; subclasses compute the sums."""

    # The ranks that answer together; None if this process answers alone.
    collective: Collective | None = None

    def __init__(self, census: Census, loss: Loss | Activation) -> None:
        self.census, self.loss = census, as_loss(loss)
        self.truncate: float | None = None
        self.counter = PassCounter()
        self.n_groups, self.n_features = census.n_groups, census.n_features
        # Coefficients of one score, with the intercept last.
        self.width = census.n_features + int(census.intercept)
        self.shift = census.shift
        self._labels: Array | None = None

    @property
    def n_coef(self) -> int:
        """Number of coefficients: those of every score, one score after the other."""
        return self.width * self.loss.n_scores

    @property
    def activation(self) -> Activation:
        """The activation of a neuron."""
        assert isinstance(self.loss, NeuronLoss)
        return self.loss.activation

    def ask(self, question: Question) -> Array:
        """Return the answer, summed over all rows."""
        raise NotImplementedError(type(self).__name__)

    def ask_all(self, questions: Sequence[Question]) -> Sequence[Array]:
        """Return the answers to several questions, in as few passes as the engine can."""
        return [self.ask(question) for question in questions]

    def fingerprint(self) -> str:
        """Return text that changes with any bit of the rows; passes for it are not counted.

        Engines that can read the bits of their rows override this, since sums may not change with
        the last bit of an entry.
        """
        return fingerprint_of([self.checksum()])

    def checksum(self) -> Array:
        """Return numbers that change with the rows, but not with every bit of them.

        Journals of version 1 hold their digest. Passes for them are not counted.
        """
        count = self.counter.count
        w = np.random.default_rng(0).normal(size=self.width)
        sums = self.ask(Evaluate(w, NeuronLoss(), True, None))
        self.counter.count = count
        return sums

    def sample(self) -> RowSample:
        """Return some rows of every group, without a pass over the others."""
        raise NotImplementedError(type(self).__name__)

    @property
    def passes(self) -> int:
        """Passes over the rows so far."""
        return self.counter.count

    @property
    def rounding(self) -> float:
        """Relative rounding of the arithmetic, which is double unless a device has none."""
        return float(np.finfo(float).eps)

    @property
    def additions(self) -> int:
        """Bound how many additions in a row are behind any sum."""
        return self.census.n_rows

    def variant(
        self, *, loss: Loss | Activation | None = None, truncate: float | None = None
    ) -> Self:
        """Return an engine for the same rows with another loss, or with clipped labels.

        Labels are clipped to ``[-truncate, truncate]``. Both engines share the count of passes.
        """
        other = copy.copy(self)
        other.loss = self.loss if loss is None else as_loss(loss)
        if truncate is not None:
            other.clip_labels(truncate)
        return other

    def like(self, other: SumEngine) -> Self:
        """Return this engine with the loss, clipping and count of passes of another."""
        twin = copy.copy(self)
        twin.loss, twin.counter = other.loss, other.counter
        if other.truncate is not None:
            twin.clip_labels(other.truncate)
        return twin

    # -- groups ----------------------------------------------------------------------------

    @property
    def even(self) -> bool:
        """Whether the groups, weighted by their totals, mix to the average over rows.

        This holds unless groups overlap and some rows belong to more of them than others.
        """
        return True

    def pooled(self) -> SumEngine:
        """Return an engine for all rows as one group, which shares the count of passes."""
        raise NotImplementedError(type(self).__name__)

    def group_rows(self, k: int) -> GroupedData | None:
        """Return the rows of one group as a group alone; None if they are not in memory."""
        return None

    def effective_sizes(self) -> Array:
        """Return the number of rows in every group; with unequal weights, the effective size."""
        return np.asarray(self.census.totals, dtype=float)

    def clip_labels(self, level: float) -> None:
        """Clip labels to ``[-level, level]`` from now on."""
        self.truncate, self._labels = level, None

    # -- questions -------------------------------------------------------------------------

    def evaluate(self, w: Array, *, surrogate: bool) -> GroupEval:
        w, unit = self._floats(w), self.loss.gradient_unit(surrogate=surrogate)
        if self.loss.n_scores > 1:
            sums = self.ask(EvaluateScores(w, self.loss, self.census.intercept))
        else:
            sums = self.ask(Evaluate(w, self.loss, surrogate, self.truncate))
        return self._means(sums, unit)

    def evaluate_each(self, W_KD: Array, *, surrogate: bool = False) -> GroupEval:
        """Compute losses and gradients at coefficients of every group's own, in one pass."""
        assert self.loss.n_scores == 1
        sums = self.ask(EvaluateEach(self._floats(W_KD), self.loss, surrogate, self.truncate))
        return self._means(sums, self.loss.gradient_unit(surrogate=surrogate))

    def curvature_each(self, W_KD: Array) -> Array:
        """Compute second derivatives at coefficients of every group's own, in one pass."""
        assert self.loss.n_scores == 1
        sums = self.ask(GramEach(self._floats(W_KD), self.loss, self.shift))
        return self.loss.unit * sums / self.census.totals[:, None, None]

    def _means(self, sums: Array, unit: float) -> GroupEval:
        """Return losses and gradients from sums of coefficients and losses."""
        loss = sums[:, -1] / self.census.totals
        grad = (sums if sums.flags.writeable else sums.copy())[:, : self.n_coef]
        grad *= (unit / self.census.totals)[:, None]  # in place, since it may be large
        return GroupEval(loss, grad)

    def mean_outputs(self, w: Array) -> Array:
        """Compute ``mean_i sigma(w.x)^2``, the losses if all labels were zero."""
        sums = self.ask(Evaluate(self._floats(w), self.loss, True, 0.0))
        return sums[:, -1] / self.census.totals

    def apply_moments(self, directions_KD: Array) -> Array:
        """Compute ``mean_i x (x . u_i)`` with a direction ``u_i`` for every group."""
        sums = self.ask(Moments(self._floats(directions_KD)))
        return sums[:, : self.width] / self.census.totals[:, None]

    def separation(self, points: Array, w: Array) -> Array:
        sums = self.ask(Separation(self._floats(points), self._floats(w), self.activation))
        return (sums / self.census.totals[:, None]).T

    def mean_squares(self, weights_K: Array) -> Array:
        """Compute the weighted mean square of every shifted feature (1 for the intercept)."""
        means = (weights_K / self.census.totals) @ self.ask(Squares(self.shift))
        return np.append(means, 1.0) if self.census.intercept else means

    def curvature(
        self, w: Array | None, weights_K: Array | None, basis: Array | None = None
    ) -> Array:
        """Compute matrices as in :class:`Engine`, optionally in another basis.

        With a ``basis`` (width, r), rows are mapped before they are squared, so an ill-conditioned
        basis costs no digits.
        """
        share = None if weights_K is None else weights_K / self.census.totals
        unit = 2.0 if w is None else self.loss.unit
        question: Question
        if w is None or self.loss.n_scores == 1:
            at = None if w is None else self._floats(w)
            question = Gram(at, self.loss, share, self.shift, basis)
        else:
            question = GramScores(
                self._floats(w), self.loss, share, self.shift, basis, self.census.intercept
            )
        sums = self.ask(question)
        if share is None:
            sums /= self.census.totals[:, None, None]
        return unit * sums

    def label_means(self) -> Array:
        """Return the mean label of every group, after clipping."""
        return self.census.pivot + self._label_moments()[:, 0]

    def label_squares(self, centre: float = 0.0) -> Array:
        """Return the mean of ``(y - centre)^2`` of every group, after clipping."""
        first, second = self._label_moments().T
        gap = self.census.pivot - centre
        with np.errstate(over="ignore", invalid="ignore"):  # the solver refuses such labels
            return np.maximum(second + gap * (2.0 * first + gap), 0.0)

    def _label_moments(self) -> Array:
        if self._labels is None:
            sums = self.ask(Labels(self.census.pivot, self.truncate))
            self._labels = sums / self.census.totals[:, None]
        return self._labels

    def _floats(self, w: Array) -> Array:
        return np.ascontiguousarray(w, dtype=float)
