"""Rows in a dense C-ordered array, read in their own precision by the fused kernel."""

from __future__ import annotations

import numpy as np

from counterpoise.engines.base import BLOCK_BYTES, RowEngine
from counterpoise.engines.threads import over_ranges

Array = np.ndarray


class DenseEngine(RowEngine):
    """One fused pass: projections, residuals and group gradients while a block is in cache."""

    def _sums(self, W: Array, bias: Array, rows_K: Array | None, *, code: int, labels: bool,
              true_slope: bool, loss_S: Array, grad_S: Array) -> None:  # fmt: skip
        from counterpoise.engines import kernels

        X, seg = self.data.X, self.segments
        block = max(4, BLOCK_BYTES // max(1, X.itemsize * X.shape[1])) & ~3
        rows = np.zeros(len(seg.starts), dtype=np.int64) if rows_K is None else rows_K
        y = self.data.y if labels else np.empty(0)

        def work(first: int, last: int) -> None:
            kernels.evaluate_dense(
                X, y, self.data.row_weights, W, bias, rows, seg.starts, seg.stops,
                seg.chunks[first], seg.chunks[last], min(block, 1 << 14), code,
                self.activation.parameters,
                true_slope, loss_S, grad_S,
            )  # fmt: skip

        over_ranges(work, len(seg.chunks) - 1)

    def _rows(self, lo: int, hi: int) -> Array:
        return self.data.X[lo:hi].astype(float, copy=False)

    def _gram(self, lo: int, hi: int, scale: Array) -> Array:
        keep = np.flatnonzero(scale)
        rows = np.ones((len(keep), self.n_coef))
        X = self.data.X[lo:hi]
        np.subtract(X if len(keep) == hi - lo else X[keep], self.shift,
                    out=rows[:, : self.n_features])  # fmt: skip
        rows *= np.sqrt(scale[keep])[:, None]
        return rows.T @ rows

    def _squares(self, lo: int, hi: int, scale: Array) -> Array:
        return scale @ (self.data.X[lo:hi] - self.shift) ** 2
