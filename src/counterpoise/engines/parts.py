"""Rows in memory that answer questions with sums; how they are stored is the subclass's part."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from counterpoise.activations import CUSTOM, Activation, identity
from counterpoise.engines.questions import (
    Evaluate,
    Gram,
    Labels,
    Moments,
    Question,
    Separation,
    Squares,
)
from counterpoise.engines.threads import over_ranges
from counterpoise.groups import GroupedData

Array = np.ndarray
BlockWork = Callable[[int, int], Array]

# Work pieces per data set. Fixed, so that sums have one order whatever the thread count.
N_CHUNKS = 64
BLOCK_BYTES = 1 << 17
SMALL_CHUNK = 256
# What partial sums of one matrix may take together.
MATRIX_BYTES = 1 << 28


class Segments(NamedTuple):
    """Runs of rows of one group, cut at chunk borders; ``chunks[c] : chunks[c+1]`` belong to
    chunk ``c``."""

    starts: Array
    stops: Array
    groups: Array
    chunks: Array

    @classmethod
    def cut(cls, offsets: Array) -> Segments:
        n = int(offsets[-1])
        n_chunks = max(1, min(N_CHUNKS, n // SMALL_CHUNK))
        borders = np.array([n * c // n_chunks for c in range(n_chunks + 1)])
        edges = np.unique(np.concatenate([offsets, borders]))
        starts, stops = edges[:-1], edges[1:]
        groups = np.searchsorted(offsets, starts, side="right") - 1
        return cls(starts, stops, groups, np.searchsorted(starts, borders))


class RowPart:
    """Some rows, sorted by group. Answers have a row for each of *its* groups.

    ``codes`` says which of the problem's groups these are.
    """

    def __init__(self, data: GroupedData, codes: Array | None = None) -> None:
        self.data = data
        self.codes = np.arange(data.n_groups) if codes is None else codes
        self.segments = Segments.cut(data.offsets)
        self._first = np.searchsorted(self.segments.groups, np.arange(data.n_groups))
        self._clipped: tuple[float, Array] | None = None

    def answer(self, question: Question) -> Array:
        """The sums asked for, over these rows."""
        match question:
            case Evaluate():
                return self._evaluate(question)
            case Gram():
                return self._matrices(question)
            case Moments():
                return self._moments(question)
            case Separation():
                return self._separation(question)
            case Squares():
                return self._group_sums(
                    lambda lo, hi: self._squares(lo, hi, question.shift), self.data.n_features
                )
            case Labels():
                return self._labels(question)
        raise TypeError(f"rows cannot answer {type(question).__name__}")

    # -- the subclass's part ---------------------------------------------------------------

    def _kernel(self, W: Array, bias: Array, row_of_W: Array, y: Array, *, activation: Activation,
                true_slope: bool) -> Array:  # fmt: skip
        """Sums of every segment by the compiled kernel: (segments, d + 2)."""
        raise NotImplementedError(type(self).__name__)

    def _rows(self, lo: int, hi: int) -> Array:
        """Rows ``lo:hi`` as an array or CSR matrix that supports ``@``."""
        raise NotImplementedError(type(self).__name__)

    def _gram(self, lo: int, hi: int, scale: Array, question: Gram) -> Array:
        """``sum_j scale_j r_j r_j^T`` over rows ``lo:hi``."""
        raise NotImplementedError(type(self).__name__)

    def _squares(self, lo: int, hi: int, shift: Array) -> Array:
        """``sum_j weight_j (x - shift)^2`` over rows ``lo:hi``, feature by feature."""
        raise NotImplementedError(type(self).__name__)

    # -- answers ---------------------------------------------------------------------------

    def labels_of(self, truncate: float | None) -> Array:
        """The labels, clipped; the last clipping is kept."""
        if truncate is None:
            return self.data.y
        if self._clipped is None or self._clipped[0] != truncate:
            self._clipped = (truncate, np.clip(self.data.y, -truncate, truncate))
        return self._clipped[1]

    def _evaluate(self, q: Evaluate) -> Array:
        if q.activation.code == CUSTOM:
            return self._python_sums(q)
        coef, bias = self._split(q.w)
        zeros = np.zeros(len(self.segments.starts), dtype=np.int64)
        sums = self._kernel(
            coef[None, :], np.array([bias]), zeros, self.labels_of(q.truncate),
            activation=q.activation, true_slope=not q.surrogate,
        )  # fmt: skip
        return self._merge(sums)

    def _moments(self, q: Moments) -> Array:
        d, mine = self.data.n_features, q.directions[self.codes]
        bias = mine[:, -1] if self.data.intercept else np.zeros(len(mine))
        sums = self._kernel(
            np.ascontiguousarray(mine[:, :d]), np.ascontiguousarray(bias), self.segments.groups,
            np.empty(0), activation=identity(), true_slope=False,
        )  # fmt: skip
        return self._merge(sums)

    def _separation(self, q: Separation) -> Array:
        stacked, d = np.vstack([q.points, q.w]), self.data.n_features
        biases = stacked[:, -1] if self.data.intercept else np.zeros(len(stacked))

        def apart(lo: int, hi: int) -> Array:
            values = q.activation.value(self._rows(lo, hi) @ stacked[:, :d].T + biases)
            return self.data.weights_of(lo, hi) @ (values[:, :-1] - values[:, -1:]) ** 2

        return self._group_sums(apart, len(q.points))

    def _labels(self, q: Labels) -> Array:
        gap = self.labels_of(q.truncate) - q.pivot
        weights = self.data.weights_of(0, len(gap))
        both = np.stack([weights * gap, weights * gap * gap], axis=1)
        return np.add.reduceat(both, self.data.offsets[:-1], axis=0)

    def _matrices(self, q: Gram) -> Array:
        size = self.data.n_coef if q.basis is None else q.basis.shape[1]

        def scale(lo: int, hi: int) -> Array:
            c = self.data.weights_of(lo, hi)
            if q.w is not None:
                coef, bias = self._split(q.w)
                c = c * q.activation.derivative(self._rows(lo, hi) @ coef + bias) ** 2
            return c

        if q.share_K is None:
            return self._group_sums(lambda a, b: self._gram(a, b, scale(a, b), q), size, size)
        # One matrix for all groups: rows weighted by their group, cut into as many runs as a
        # budget for their matrices allows.
        share = np.repeat(q.share_K[self.codes], np.diff(self.data.offsets))
        n, runs = len(share), MATRIX_BYTES // (8 * size**2 + 1)
        runs = max(2, min(len(self.segments.chunks) - 1, runs))
        borders = np.array([n * c // runs for c in range(runs + 1)])
        return self._sum_blocks(
            borders[:-1],
            borders[1:],
            lambda a, b: self._gram(a, b, scale(a, b) * share[a:b], q),
            (size, size),
        ).sum(axis=0)

    # -- shared machinery ------------------------------------------------------------------

    def _split(self, w: Array) -> tuple[Array, float]:
        coef = np.ascontiguousarray(w[: self.data.n_features])
        return coef, float(w[-1]) if self.data.intercept else 0.0

    def _merge(self, sums_S: Array) -> Array:
        """Segment sums to group sums, in the order of the rows."""
        return np.add.reduceat(sums_S, self._first, axis=0)

    def _group_sums(self, work: BlockWork, *shape: int) -> Array:
        """Group sums of what ``work(lo, hi)`` sums over rows ``lo:hi``: shape (K, *shape)."""
        return self._merge(self._sum_blocks(self.segments.starts, self.segments.stops, work, shape))

    def _sum_blocks(
        self, starts: Array, stops: Array, work: BlockWork, shape: tuple[int, ...]
    ) -> Array:
        """``work`` summed over each run of rows, a block at a time: shape (runs, *shape)."""
        size = max(64, BLOCK_BYTES // max(1, self.data.n_features))
        out = np.zeros((len(starts), *shape))

        def per_range(first: int, last: int) -> None:
            for run in range(first, last):
                stop = int(stops[run])
                for lo in range(int(starts[run]), stop, size):
                    out[run] += work(lo, min(lo + size, stop))

        over_ranges(per_range, len(starts))
        return out

    def _python_sums(self, q: Evaluate) -> Array:
        """Sums for an activation that only Python can evaluate."""
        coef, bias = self._split(q.w)
        y = self.labels_of(q.truncate)

        def sums(lo: int, hi: int) -> Array:
            rows = self._rows(lo, hi)
            z = rows @ coef + bias
            residual = q.activation.value(z) - y[lo:hi]
            weighted = self.data.weights_of(lo, hi) * residual
            c = weighted if q.surrogate else weighted * q.activation.derivative(z)
            return np.concatenate([c @ rows, [c.sum(), weighted @ residual]])

        return self._group_sums(sums, self.data.n_features + 2)
