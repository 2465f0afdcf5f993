"""Rows in memory that answer questions with sums; subclasses store them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from counterpoise.activations import Activation
from counterpoise.rows.compilation import VALUES, RowKernel, evaluation_kernel, frozen
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
from counterpoise.rows.groups import GroupedData
from counterpoise.rows.threads import over_ranges

Array = np.ndarray
SegmentWork = Callable[[int, int, int], Array]
GramWork = Callable[[int, int, float], Array]

# Number of work pieces per data set, and the smallest size of one in numbers and rows. They are
# fixed, so that sums have the same order for any number of threads.
N_CHUNKS, CHUNK_NUMBERS, CHUNK_ROWS = 64, 1 << 15, 256
# With less work than this (multiplications plus rows), starting threads does not pay off.
THREAD_WORK = 1 << 20
BLOCK_NUMBERS = 1 << 17
# Memory budget for all partial sums of one matrix.
MATRIX_BYTES = 1 << 28
LINEAR = RowKernel(0, (0.0, 0.0, 0.0), VALUES)


class Segments(NamedTuple):
    """Runs of rows of one group, split at chunk borders.

    Segments ``chunks[c] : chunks[c+1]`` belong to chunk ``c``. ``slots`` is -1 for a run that is a
    whole group, and otherwise the position of the run in ``parts``, which holds the groups of all
    such runs.
    """

    starts: Array
    stops: Array
    groups: Array
    chunks: Array
    slots: Array
    parts: Array

    @classmethod
    def cut(cls, offsets: Array, numbers: int) -> Segments:
        n = int(offsets[-1])
        n_chunks = max(1, min(N_CHUNKS, numbers // CHUNK_NUMBERS, n // CHUNK_ROWS))
        borders = np.array([n * c // n_chunks for c in range(n_chunks + 1)])
        edges = np.unique(np.concatenate([offsets, borders]))
        starts, stops = edges[:-1], edges[1:]
        groups = np.searchsorted(offsets, starts, side="right") - 1
        whole = (starts == offsets[groups]) & (stops == offsets[groups + 1])
        slots = np.where(whole, -1, np.cumsum(~whole) - 1)
        return cls(starts, stops, groups, np.searchsorted(starts, borders), slots, groups[~whole])


class RowPart:
    """Some rows, sorted by group. Answers have one row for each of *its* groups.

    ``codes`` are the indices of these groups in the whole problem.
    """

    def __init__(self, data: GroupedData, codes: Array | None = None) -> None:
        self.data = data
        self.codes = np.arange(data.n_groups) if codes is None else codes
        self.numbers = int(data.X.size)  # for a sparse matrix, the stored numbers
        self.segments = Segments.cut(data.offsets, self.numbers)
        self._first = np.searchsorted(self.segments.groups, np.arange(data.n_groups))
        self._clipped: tuple[float, Array] | None = None

    @property
    def _weights(self) -> Array:
        return frozen(self.data.row_weights)

    def answer(self, question: Question) -> Array:
        """Answer a question with sums over these rows.

        A sum may overflow without a warning: the solver refuses or rescales such rows.
        """
        with np.errstate(over="ignore", invalid="ignore"):
            return self._answer(question)

    def answer_all(self, questions: Sequence[Question]) -> tuple[list[Array], int]:
        """Answer several questions; also return how often the features were read.

        Losses and gradients at several coefficient vectors take one read, as long as they have the
        same kind of loss and the same labels.
        """
        answers: list[Any] = [None] * len(questions)
        batches: dict[Any, list[int]] = {}
        for i, question in enumerate(questions):
            batches.setdefault(self._batch(question) or i, []).append(i)
        reads = 0
        for members in batches.values():
            asked: list[Any] = [questions[i] for i in members]
            reads += not isinstance(asked[0], Labels)
            if len(asked) == 1:
                answers[members[0]] = self.answer(asked[0])
                continue
            with np.errstate(over="ignore", invalid="ignore"):
                for i, sums in zip(members, self._evaluate_many(asked), strict=True):
                    answers[i] = sums
        return answers, reads

    def _batch(self, question: Question) -> tuple[Any, ...] | None:
        """Return a key of questions that one read can answer; None for a read of its own."""
        if not (self.batched and isinstance(question, Evaluate)):
            return None
        kernel = evaluation_kernel(question.loss, surrogate=question.surrogate)
        return None if kernel is None else (kernel.address, kernel.kind, question.truncate)

    # Whether subclasses evaluate several coefficient vectors in one read.
    batched = False

    def _evaluate_many(self, asked: list[Evaluate]) -> Iterable[Array]:
        """Answer evaluations with the same kernel and labels, in one read."""
        raise NotImplementedError(type(self).__name__)

    def _answer(self, question: Question) -> Array:
        match question:
            case Evaluate():
                return self._evaluate(question)
            case Gram():
                return self._matrices(question)
            case Moments():
                return self._moments(question)
            case EvaluateEach():
                return self._evaluate_each(question)
            case GramEach():
                size = self.data.n_coef
                works = [self._gram_work(question.of_group(int(code))) for code in self.codes]
                return self._group_sums(lambda a, b, g: works[g](a, b, 1.0), size, size)
            case Separation():
                return self._separation(question)
            case Squares():
                return self._group_sums(
                    lambda lo, hi, _: sum(
                        (self._squares(a, b, question.shift) for a, b in self._blocks(lo, hi)),
                        np.zeros(self.data.n_features),
                    ),
                    self.data.n_features,
                )
            case Labels():
                return self._labels(question)
        return self._by_rows(question)

    def _by_rows(self, question: Question) -> Array:
        """Answer a question by its own method ``of_rows``."""
        data, seg = self.data, self.segments
        sums: list[Any] = [None] * len(seg.starts)

        def per_range(first: int, last: int) -> None:
            for s in range(first, last):
                total: Array | float = 0.0
                code = int(self.codes[seg.groups[s]])
                for a, b in self._blocks(int(seg.starts[s]), int(seg.stops[s])):
                    total = total + question.of_rows(
                        self._rows(a, b), data.y[a:b], data.weights_of(a, b), code
                    )
                sums[s] = np.asarray(total, dtype=float)

        self._share_out(per_range, len(sums))
        if question.pooled:
            return np.sum(sums, axis=0)
        return np.add.reduceat(np.array(sums), self._first, axis=0)

    # -- for subclasses --------------------------------------------------------------------

    def _kernel(self, W: Array, bias: Array, row_of_W: Array, y: Array, kernel: RowKernel) -> Array:
        """Compute the sums of every group with the compiled kernel: (K, d + 2)."""
        raise NotImplementedError(type(self).__name__)

    def _rows(self, lo: int, hi: int) -> Array:
        """Return rows ``lo:hi`` as an array or CSR matrix that supports ``@``."""
        raise NotImplementedError(type(self).__name__)

    def _gram_work(self, question: Gram) -> GramWork:
        """Return a function of ``lo``, ``hi`` and a share.

        It returns the matrix, summed over rows ``lo:hi`` of one group with this share.
        """
        raise NotImplementedError(type(self).__name__)

    def _squares(self, lo: int, hi: int, shift: Array) -> Array:
        """Return ``sum_j weight_j (x - shift)^2`` over rows ``lo:hi``, for every feature."""
        raise NotImplementedError(type(self).__name__)

    # -- answers ---------------------------------------------------------------------------

    def labels_of(self, truncate: float | None) -> Array:
        """Return the labels after clipping; the last result is cached."""
        if truncate is None:
            return self.data.y
        if truncate == 0:
            return np.zeros_like(self.data.y)
        if self._clipped is None or self._clipped[0] != truncate:
            self._clipped = (truncate, np.clip(self.data.y, -truncate, truncate))
        return self._clipped[1]

    def _evaluate(self, q: Evaluate) -> Array:
        kernel = evaluation_kernel(q.loss, surrogate=q.surrogate)
        if kernel is None:
            return self._python_sums(q)
        coef, bias = self._split(q.w)
        zeros = np.zeros(len(self.segments.starts), dtype=np.int64)
        return self._kernel(
            coef[None, :], np.array([bias]), zeros, self.labels_of(q.truncate), kernel
        )

    def _evaluate_each(self, q: EvaluateEach) -> Array:
        kernel = evaluation_kernel(q.loss, surrogate=q.surrogate)
        if kernel is None:
            return self._by_rows(q)
        return self._per_group(q.W_KD, self.labels_of(q.truncate), kernel)

    def _moments(self, q: Moments) -> Array:
        return self._per_group(q.directions, np.empty(0), LINEAR)

    def _per_group(self, W_KD: Array, y: Array, kernel: RowKernel) -> Array:
        """Compute the sums of every group with coefficients of its own."""
        d, mine = self.data.n_features, W_KD[self.codes]
        bias = mine[:, -1] if self.data.intercept else np.zeros(len(mine))
        return self._kernel(
            np.ascontiguousarray(mine[:, :d]), np.ascontiguousarray(bias), self.segments.groups,
            y, kernel,
        )  # fmt: skip

    def _separation(self, q: Separation) -> Array:
        stacked, d = np.vstack([q.points, q.w]), self.data.n_features
        biases = stacked[:, -1].copy() if self.data.intercept else np.zeros(len(stacked))
        coef = np.ascontiguousarray(stacked[:, :d])
        return self._group_sums(
            lambda lo, hi, _: self._apart(lo, hi, coef, biases, q.activation), len(q.points)
        )

    def _apart(self, lo: int, hi: int, coef: Array, biases: Array, sigma: Activation) -> Array:
        """Sum squared differences of outputs from the last neuron's, over rows ``lo:hi``."""
        total = np.zeros(len(coef) - 1)
        for a, b in self._blocks(lo, hi):
            values = sigma.value(coef @ self._rows(a, b).T + biases[:, None])
            total += (values[:-1] - values[-1]) ** 2 @ self.data.weights_of(a, b)
        return total

    def _labels(self, q: Labels) -> Array:
        gap = self.labels_of(q.truncate) - q.pivot
        weights = self.data.weights_of(0, len(gap))
        both = np.stack([weights * gap, weights * gap * gap], axis=1)
        return np.add.reduceat(both, self.data.offsets[:-1], axis=0)

    def _matrices(self, q: Gram) -> Array:
        size = self.data.n_coef if q.basis is None else q.basis.shape[1]
        work = self._gram_work(q)
        if q.share_K is None:
            return self._group_sums(lambda a, b, g: work(a, b, 1.0), size, size)
        # One matrix for all groups: chunks share as many partial sums as the budget allows.
        share, seg = q.share_K[self.codes], self.segments
        n_chunks = len(seg.chunks) - 1
        runs = max(2, min(n_chunks, MATRIX_BYTES // (8 * size**2 + 1)))
        edges = [seg.chunks[n_chunks * r // runs] for r in range(runs + 1)]
        out = np.zeros((runs, size, size))

        def per_range(first: int, last: int) -> None:
            for run in range(first, last):
                for s in range(edges[run], edges[run + 1]):
                    out[run] += work(
                        int(seg.starts[s]), int(seg.stops[s]), float(share[seg.groups[s]])
                    )

        self._share_out(per_range, runs, size)
        return out.sum(axis=0)

    # -- shared machinery ------------------------------------------------------------------

    def _split(self, w: Array) -> tuple[Array, float]:
        coef = np.ascontiguousarray(w[: self.data.n_features])
        return coef, float(w[-1]) if self.data.intercept else 0.0

    def _share_out(self, work: Callable[[int, int], None], n_items: int, uses: int = 1) -> None:
        """Call ``work(lo, hi)`` over all items, with threads if there is enough work."""

        def quiet(first: int, last: int) -> None:
            with np.errstate(over="ignore", invalid="ignore"):  # which other threads do not inherit
                work(first, last)

        if self.numbers * uses + len(self.data.y) < THREAD_WORK:
            work(0, n_items)
        else:
            over_ranges(quiet, n_items)

    def _group_sums(self, work: SegmentWork, *shape: int) -> Array:
        """Sum the results of ``work(lo, hi, group)`` over rows ``lo:hi`` by group: (K, *shape)."""
        seg = self.segments
        sums = np.zeros((len(seg.starts), *shape))

        def per_range(first: int, last: int) -> None:
            for s in range(first, last):
                sums[s] = work(int(seg.starts[s]), int(seg.stops[s]), int(seg.groups[s]))

        self._share_out(per_range, len(seg.starts), shape[-1])
        return np.add.reduceat(sums, self._first, axis=0)

    def _blocks(self, lo: int, hi: int) -> Iterator[tuple[int, int]]:
        """Yield consecutive runs that cover rows ``lo:hi``, each small enough to copy."""
        size = max(64, BLOCK_NUMBERS // max(1, self.data.n_features))
        for start in range(lo, hi, size):
            yield start, min(start + size, hi)

    def _python_sums(self, q: Evaluate) -> Array:
        """Compute sums for a loss without a compiled kernel."""
        coef, bias = self._split(q.w)
        y = self.labels_of(q.truncate)

        def sums(lo: int, hi: int, _: int) -> Array:
            total = np.zeros(self.data.n_features + 2)
            for a, b in self._blocks(lo, hi):
                rows = self._rows(a, b)
                z = rows @ coef + bias
                weights = self.data.weights_of(a, b)
                value, pull = q.loss.value_and_pull(z, y[a:b], surrogate=q.surrogate)
                c = weights * pull
                total += np.concatenate([c @ rows, [c.sum(), weights @ value]])
            return total

        return self._group_sums(sums, self.data.n_features + 2)
