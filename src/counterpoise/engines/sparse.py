"""Rows in a SciPy CSR matrix; nothing is made dense but K x d sums."""

from __future__ import annotations

import numpy as np

from counterpoise.engines.base import RowEngine
from counterpoise.engines.threads import over_ranges

Array = np.ndarray


class SparseEngine(RowEngine):
    """The cost of a pass follows the stored entries."""

    def _sums(self, W: Array, bias: Array, rows_K: Array | None, *, code: int, labels: bool,
              true_slope: bool, loss_S: Array, grad_S: Array) -> None:  # fmt: skip
        from counterpoise.engines import kernels

        X, seg = self.data.X, self.segments
        rows = np.zeros(len(seg.starts), dtype=np.int64) if rows_K is None else rows_K
        y = self.data.y if labels else np.empty(0)

        def work(first: int, last: int) -> None:
            kernels.evaluate_csr(
                X.data, X.indices, X.indptr, y, self.data.row_weights, W, bias, rows, seg.starts,
                seg.stops, seg.chunks[first], seg.chunks[last], code, self.activation.parameters,
                true_slope, loss_S, grad_S,
            )  # fmt: skip

        over_ranges(work, len(seg.chunks) - 1)

    def _rows(self, lo: int, hi: int) -> Array:
        return self.data.X[lo:hi]

    def _gram(self, lo: int, hi: int, scale: Array) -> Array:
        # The shift of a sparse matrix is zero: centring would fill it.
        X = self.data.X[lo:hi].astype(float)
        scaled = X.multiply(scale[:, None]).tocsr()
        out = np.zeros((self.n_coef, self.n_coef))
        d = self.n_features
        out[:d, :d] = (X.T @ scaled).toarray()
        if self.data.intercept:
            out[:d, d] = out[d, :d] = np.asarray(scaled.sum(axis=0)).ravel()
            out[d, d] = scale.sum()
        return out

    def _squares(self, lo: int, hi: int, scale: Array) -> Array:
        X = self.data.X[lo:hi].astype(float)
        return np.asarray(X.multiply(X).T @ scale).ravel()
