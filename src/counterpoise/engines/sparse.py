"""Rows in a SciPy CSR matrix; nothing is made dense but K x d sums."""

from __future__ import annotations

import numpy as np

from counterpoise.activations import Activation
from counterpoise.engines.parts import RowPart
from counterpoise.engines.questions import Gram
from counterpoise.engines.threads import over_ranges

Array = np.ndarray


class SparsePart(RowPart):
    """The cost of a pass follows the stored entries. Its shift is zero: centring would fill it."""

    def _kernel(self, W: Array, bias: Array, row_of_W: Array, y: Array, *, activation: Activation,
                true_slope: bool) -> Array:  # fmt: skip
        from counterpoise.engines import kernels

        X, seg = self.data.X, self.segments
        sums = np.zeros((len(seg.starts), X.shape[1] + 2))

        def work(first: int, last: int) -> None:
            kernels.evaluate_csr(
                X.data, X.indices, X.indptr, y, self.data.row_weights, W, bias, row_of_W,
                seg.starts, seg.stops, seg.chunks[first], seg.chunks[last], activation.code,
                activation.parameters, true_slope, sums,
            )  # fmt: skip

        over_ranges(work, len(seg.chunks) - 1)
        return sums

    def _rows(self, lo: int, hi: int) -> Array:
        return self.data.X[lo:hi]

    def _gram(self, lo: int, hi: int, scale: Array, question: Gram) -> Array:
        X = self.data.X[lo:hi].astype(float)
        d = self.data.n_features
        if question.basis is not None:
            rows = X @ question.basis[:d]
            if self.data.intercept:
                rows += question.basis[d]
            rows *= np.sqrt(scale)[:, None]
            return rows.T @ rows
        scaled = X.multiply(scale[:, None]).tocsr()
        out = np.zeros((self.data.n_coef, self.data.n_coef))
        out[:d, :d] = (X.T @ scaled).toarray()
        if self.data.intercept:
            out[:d, d] = out[d, :d] = np.asarray(scaled.sum(axis=0)).ravel()
            out[d, d] = scale.sum()
        return out

    def _squares(self, lo: int, hi: int, shift: Array) -> Array:
        X = self.data.X[lo:hi].astype(float)
        return np.asarray(X.multiply(X).T @ self.data.weights_of(lo, hi)).ravel()
