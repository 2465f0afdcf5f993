"""What an engine answers, and what all row engines share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import NamedTuple, Protocol

import numpy as np

from counterpoise.activations import CUSTOM, IDENTITY, Activation
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


@dataclass
class PassCounter:
    """Reads of the rows, shared by engines over the same rows."""

    count: int = 0


@dataclass
class RowEngine:
    """Engines over rows in memory: how rows are read is the subclass's, the sums are shared."""

    data: GroupedData
    activation: Activation
    counter: PassCounter = field(default_factory=PassCounter)
    centred: bool = True

    def __post_init__(self) -> None:
        self.n_groups = self.data.n_groups
        self.n_features = self.data.n_features
        self.n_coef = self.n_features + int(self.data.intercept)
        self.segments = Segments.cut(self.data.offsets)
        self.shift = self.data.shift() if self.centred else np.zeros(self.n_features)
        self._first = np.searchsorted(self.segments.groups, np.arange(self.n_groups))

    @property
    def passes(self) -> int:
        """Reads of the rows so far."""
        return self.counter.count

    def variant(
        self, *, activation: Activation | None = None, labels: Array | None = None
    ) -> RowEngine:
        """The same rows with another activation or other labels; reads count together."""
        data = self.data if labels is None else replace(self.data, y=labels)
        return type(self)(data, activation or self.activation, self.counter, self.centred)

    # -- the subclass's part ---------------------------------------------------------------

    def _sums(self, W: Array, bias: Array, rows_K: Array | None, *, code: int, labels: bool,
              true_slope: bool, loss_S: Array, grad_S: Array) -> None:  # fmt: skip
        """Fill loss and gradient sums of every segment with the compiled kernel."""
        raise NotImplementedError(type(self).__name__)

    def _rows(self, lo: int, hi: int) -> Array:
        """Rows ``lo:hi`` as an array or CSR matrix that supports ``@``."""
        raise NotImplementedError(type(self).__name__)

    def _gram(self, lo: int, hi: int, scale: Array) -> Array:
        """``sum_j scale_j xs xs^T`` over rows ``lo:hi``, ``xs = (x - shift, 1)``."""
        raise NotImplementedError(type(self).__name__)

    def _squares(self, lo: int, hi: int, scale: Array) -> Array:
        """``sum_j scale_j (x - shift)^2`` over rows ``lo:hi``, feature by feature."""
        raise NotImplementedError(type(self).__name__)

    # -- questions -------------------------------------------------------------------------

    def evaluate(self, w: Array, *, surrogate: bool) -> GroupEval:
        if self.activation.code == CUSTOM:
            loss, grad = self._python_means(w, surrogate)
        else:
            loss_S, grad_S = self._buffers()
            coef, bias = self._split(w)
            self._sums(coef[None, :], np.array([bias]), None, code=self.activation.code,
                       labels=True, true_slope=not surrogate, loss_S=loss_S,
                       grad_S=grad_S)  # fmt: skip
            loss, grad = self._merge(loss_S), self._merge(grad_S)
        self.counter.count += 1
        grad *= 2.0 * (self.activation.beta if surrogate else 1.0)
        return GroupEval(loss, grad[:, : self.n_coef])

    def apply_moments(self, directions_KD: Array) -> Array:
        """``mean_i x (x . u_i)`` with a direction ``u_i`` for every group: power iteration."""
        loss_S, grad_S = self._buffers()
        bias = directions_KD[:, -1] if self.data.intercept else np.zeros(self.n_groups)
        self._sums(np.ascontiguousarray(directions_KD[:, : self.n_features]),
                   np.ascontiguousarray(bias), self.segments.groups, code=IDENTITY, labels=False,
                   true_slope=False, loss_S=loss_S, grad_S=grad_S)  # fmt: skip
        self.counter.count += 1
        return self._merge(grad_S)[:, : self.n_coef]

    def separation(self, points: Array, w: Array) -> Array:
        stacked = np.vstack([points, w])
        coefs, biases = stacked[:, : self.n_features].T, np.zeros(len(stacked))
        if self.data.intercept:
            biases = stacked[:, -1]

        def apart(lo: int, hi: int) -> Array:
            values = self.activation.value(self._rows(lo, hi) @ coefs + biases)
            return self.data.weights_of(lo, hi) @ (values[:, :-1] - values[:, -1:]) ** 2

        self.counter.count += 1
        return self._group_means(apart, (len(points),)).T

    def mean_squares(self, weights_K: Array) -> Array:
        """Mean square of every shifted feature (one for the intercept), groups weighted."""

        def squares(lo: int, hi: int) -> Array:
            return self._squares(lo, hi, self.data.weights_of(lo, hi))

        self.counter.count += 1
        means = weights_K @ self._group_means(squares, (self.n_features,))
        return np.append(means, 1.0) if self.data.intercept else means

    def curvature(self, w: Array | None, weights_K: Array | None) -> Array:
        def scale(lo: int, hi: int) -> Array:
            c = 2.0 * self.data.weights_of(lo, hi)
            if w is not None:
                coef, bias = self._split(w)
                c = c * self.activation.derivative(self._rows(lo, hi) @ coef + bias) ** 2
            return c

        self.counter.count += 1
        shape = (self.n_coef, self.n_coef)
        if weights_K is None:
            return self._group_means(lambda a, b: self._gram(a, b, scale(a, b)), shape)
        # One matrix for all groups: rows weighted by their group, cut into as many runs as a
        # budget for their matrices allows.
        share = np.repeat(weights_K / self.data.totals, np.diff(self.data.offsets))
        n, runs = len(share), MATRIX_BYTES // (8 * self.n_coef**2)
        runs = max(2, min(len(self.segments.chunks) - 1, runs))
        borders = np.array([n * c // runs for c in range(runs + 1)])
        sums = self._sum_blocks(
            borders[:-1],
            borders[1:],
            lambda a, b: self._gram(a, b, scale(a, b) * share[a:b]),
            shape,
        )
        return sums.sum(axis=0)

    # -- shared machinery ------------------------------------------------------------------

    def _split(self, w: Array) -> tuple[Array, float]:
        coef = np.ascontiguousarray(w[: self.n_features], dtype=float)
        return coef, float(w[-1]) if self.data.intercept else 0.0

    def _buffers(self) -> tuple[Array, Array]:
        n = len(self.segments.starts)
        return np.zeros(n), np.zeros((n, self.n_features + 1))

    def _merge(self, sums_S: Array) -> Array:
        """Segment sums to group means, in the order of the rows."""
        totals = self.data.totals.reshape((-1,) + (1,) * (sums_S.ndim - 1))
        return np.add.reduceat(sums_S, self._first, axis=0) / totals

    def _group_means(self, work: BlockWork, shape: tuple[int, ...]) -> Array:
        """Group means of what ``work(lo, hi)`` sums over rows ``lo:hi``: shape (K, *shape)."""
        return self._merge(self._sum_blocks(self.segments.starts, self.segments.stops, work, shape))

    def _sum_blocks(
        self, starts: Array, stops: Array, work: BlockWork, shape: tuple[int, ...]
    ) -> Array:
        """``work`` summed over each run of rows, a block at a time: shape (runs, *shape)."""
        size = max(64, 8 * BLOCK_BYTES // (8 * max(1, self.n_features)))
        out = np.zeros((len(starts), *shape))

        def per_range(first: int, last: int) -> None:
            for run in range(first, last):
                stop = int(stops[run])
                for lo in range(int(starts[run]), stop, size):
                    out[run] += work(lo, min(lo + size, stop))

        over_ranges(per_range, len(starts))
        return out

    def _python_means(self, w: Array, surrogate: bool) -> tuple[Array, Array]:
        """Loss and gradient means for an activation that only Python can evaluate."""
        coef, bias = self._split(w)
        sigma = self.activation

        def sums(lo: int, hi: int) -> Array:
            rows = self._rows(lo, hi)
            z = rows @ coef + bias
            residual = sigma.value(z) - self.data.y[lo:hi]
            weighted = self.data.weights_of(lo, hi) * residual
            c = weighted if surrogate else weighted * sigma.derivative(z)
            return np.concatenate([[weighted @ residual], c @ rows, [c.sum()]])

        means = self._group_means(sums, (self.n_features + 2,))
        return means[:, 0], means[:, 1:]
