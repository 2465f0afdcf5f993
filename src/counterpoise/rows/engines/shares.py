"""The engine for rows in memory whose shares in groups differ from row to row.

Scores are computed once for every row. The sums of all groups follow from products of matrices, a
block of rows at a time, so no row is copied for its groups.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy import sparse

from counterpoise.activations import Activation
from counterpoise.losses import Loss
from counterpoise.rows.census import Census
from counterpoise.rows.engines.base import SumEngine, fingerprint_of
from counterpoise.rows.engines.questions import (
    Evaluate,
    Gram,
    Labels,
    Moments,
    Question,
    Separation,
    Squares,
)
from counterpoise.rows.engines.row_part import MATRIX_BYTES, RowPart
from counterpoise.rows.engines.scores import mapped_rows
from counterpoise.rows.groups import GroupedData
from counterpoise.rows.memberships import Memberships
from counterpoise.rows.sample import BUDGET, RowSample

Array = np.ndarray
# The sums of all groups over rows ``lo:hi``, from their shares as a dense (rows, K) array.
BlockWork = Callable[[int, int, Array], Array]

# Memberships are kept as an array if more than this share of them is not zero.
DENSE = 0.25


class SharesPart(RowPart):
    """Rows as one group, and the weight of every row in each of K groups: a CSR matrix."""

    def __init__(self, data: GroupedData, weights_NK: Any) -> None:
        super().__init__(data)
        self.weights_NK = weights_NK
        cells = weights_NK.shape[0] * weights_NK.shape[1]
        self._dense = weights_NK.toarray() if weights_NK.nnz > DENSE * cells else None

    def _rows(self, lo: int, hi: int) -> Any:
        return self.data.X[lo:hi].astype(float, copy=False)

    def _mixed(self, work: BlockWork, *shape: int) -> Array:
        """Add up the results of ``work`` over blocks of rows, in a fixed order."""
        seg, size = self.segments, int(np.prod(shape))
        n_chunks = len(seg.chunks) - 1
        runs = max(1, min(n_chunks, MATRIX_BYTES // (8 * size + 1)))
        edges = [seg.chunks[n_chunks * r // runs] for r in range(runs + 1)]
        out = np.zeros((runs, *shape))

        def per_range(first: int, last: int) -> None:
            for run in range(first, last):
                lo, hi = int(seg.starts[edges[run]]), int(seg.stops[edges[run + 1] - 1])
                for a, b in self._blocks(lo, hi):
                    out[run] += work(a, b, self._shares(a, b))

        self._share_out(per_range, runs, self.weights_NK.shape[1])
        return out.sum(axis=0)

    def _shares(self, lo: int, hi: int) -> Array:
        """Return the weights of rows ``lo:hi`` in all groups as an array."""
        if self._dense is not None:
            return self._dense[lo:hi]
        shares: Array = self.weights_NK[lo:hi].toarray()
        return shares

    def _answer(self, question: Question) -> Array:
        K, d = self.weights_NK.shape[1], self.data.n_features
        match question:
            case Evaluate():
                return self._mixed(self._evaluation(question), K, d + 2)
            case Moments():
                return self._mixed(self._moment_work(question), K, d + 2)
            case Gram():
                size = self.data.n_coef if question.basis is None else question.basis.shape[1]
                shape = (size, size) if question.pooled else (K, size, size)
                return self._mixed(self._mixed_gram(question), *shape)
            case Separation():
                return self._mixed(self._separation_work(question), K, len(question.points))
            case Squares():
                return self._mixed(lambda a, b, s: s.T @ self._squared(a, b, question.shift), K, d)
            case Labels():
                gap = self.labels_of(question.truncate) - question.pivot
                both = np.column_stack([gap, gap * gap])
                return self._mixed(lambda a, b, s: s.T @ both[a:b], K, 2)
        return self._by_rows(question)

    def _by_rows(self, question: Question) -> Array:
        def work(a: int, b: int, shares: Array) -> Array:
            rows, y = self._rows(a, b), self.data.y[a:b]
            sums = [question.of_rows(rows, y, own, k) for k, own in enumerate(shares.T)]
            return np.sum(sums, axis=0) if question.pooled else np.array(sums)

        one = np.asarray(question.of_rows(self._rows(0, 1), self.data.y[:1], np.zeros(1), 0))
        shape = one.shape if question.pooled else (self.weights_NK.shape[1], *one.shape)
        return self._mixed(work, *shape)

    def _evaluation(self, q: Evaluate) -> BlockWork:
        coef, bias = self._split(q.w)
        y = self.labels_of(q.truncate)

        def work(a: int, b: int, shares: Array) -> Array:
            rows = self._rows(a, b)
            z = rows @ coef + bias
            c = q.loss.pull(z, y[a:b], surrogate=q.surrogate)
            others = shares.T @ np.column_stack([c, q.loss.value(z, y[a:b])])
            return np.column_stack([_pulled(shares * c[:, None], rows), others])

        return work

    def _moment_work(self, q: Moments) -> BlockWork:
        d = self.data.n_features
        bias = q.directions[:, -1] if self.data.intercept else 0.0

        def work(a: int, b: int, shares: Array) -> Array:
            rows = self._rows(a, b)
            c = shares * (rows @ q.directions[:, :d].T + bias)
            return np.column_stack([_pulled(c, rows), c.sum(axis=0), np.zeros(c.shape[1])])

        return work

    def _mixed_gram(self, q: Gram) -> BlockWork:
        def work(a: int, b: int, shares: Array) -> Array:
            rows = mapped_rows(self.data.X[a:b], q.shift, self.data.intercept, q.basis)
            if q.w is not None:
                coef, bias = self._split(q.w)
                z = self._rows(a, b) @ coef + bias
                rows = rows * q.loss.stretch(z, self.data.y[a:b])[:, None]
            if q.share_K is not None:
                rows = rows * np.sqrt(shares @ q.share_K)[:, None]
                return rows.T @ rows
            return np.array([(rows * own[:, None]).T @ rows for own in shares.T])

        return work

    def _separation_work(self, q: Separation) -> BlockWork:
        stacked, d = np.vstack([q.points, q.w]), self.data.n_features
        biases = stacked[:, -1] if self.data.intercept else 0.0

        def work(a: int, b: int, shares: Array) -> Array:
            values = q.activation.value(self._rows(a, b) @ stacked[:, :d].T + biases)
            return shares.T @ (values[:, :-1] - values[:, -1:]) ** 2

        return work

    def _squared(self, a: int, b: int, shift: Array) -> Array:
        rows = self._rows(a, b)
        return rows.multiply(rows).toarray() if sparse.issparse(rows) else (rows - shift) ** 2


def _pulled(c: Array, rows: Any) -> Array:
    """Return ``c^T rows`` as an array, also for sparse rows."""
    return np.asarray(rows.T @ c).T if sparse.issparse(rows) else c.T @ rows


class SharesEngine(SumEngine):
    """Rows in memory with shares in groups; rows in no group are read, too."""

    def __init__(
        self, data: GroupedData, found: Memberships, loss: Loss | Activation, *, centred: bool
    ) -> None:
        self.data = data
        weights = sparse.diags(data.weights_of(0, len(data.y))) @ found.matrix
        self.part = SharesPart(data, weights.tocsr())
        self.memberships = found
        shift, pivot = data.centre()
        census = Census(
            labels=found.labels,
            totals=np.asarray(weights.sum(axis=0)).ravel(),
            n_rows=len(data.y),
            n_features=data.n_features,
            intercept=data.intercept,
            shift=shift if centred else np.zeros_like(shift),
            pivot=pivot,
            precision=float(np.finfo(data.X.dtype).eps),
            label_size=float(np.abs(data.y).max(initial=0.0)),
        )
        super().__init__(census, loss)

    def ask(self, question: Question) -> Array:
        self.counter.count += not isinstance(question, Labels)
        return self.part.answer(question)

    def sample(self) -> RowSample:
        m, data = self.memberships.matrix, self.data
        index = np.repeat(np.arange(len(data.y)), np.diff(m.indptr))
        weights = self.part.weights_NK.data
        drawn = RowSample.draw(  # numbers of rows are drawn in place of the rows
            index[:, None], data.y[index], m.indices, self.census.labels, weights,
            budget=max(1, BUDGET // self.n_features),
        )  # fmt: skip
        return drawn.with_rows(data.X[drawn.X[:, 0]], BUDGET)

    def group_rows(self, k: int) -> GroupedData:
        weights = self.part.weights_NK[:, [k]].toarray().ravel()
        rows = np.flatnonzero(weights)
        return self.data.alone(rows, weights[rows], self.census.labels[k : k + 1])

    def effective_sizes(self) -> Array:
        weights = self.part.weights_NK
        squares = np.asarray(weights.multiply(weights).sum(axis=0)).ravel()
        return self.census.totals**2 / squares

    def fingerprint(self) -> str:
        X, m = self.data.X, self.memberships.matrix
        rows = (X.data, X.indices, X.indptr) if self.data.is_sparse else (X,)
        own = (self.data.y, self.data.row_weights, m.data, m.indices, m.indptr)
        return fingerprint_of([*rows, *own])

    @property
    def additions(self) -> int:
        parts = self.part.segments
        return int((parts.stops - parts.starts).max()) + len(parts.starts)
