"""Rows in a dense C-ordered array, read in their own precision by the fused kernel."""

from __future__ import annotations

import numpy as np

from counterpoise.activations import Activation
from counterpoise.engines.parts import BLOCK_BYTES, RowPart
from counterpoise.engines.questions import Gram
from counterpoise.engines.threads import over_ranges

Array = np.ndarray


class DensePart(RowPart):
    """One fused pass: projections, residuals and group gradients while a block is in cache."""

    def _kernel(self, W: Array, bias: Array, row_of_W: Array, y: Array, *, activation: Activation,
                true_slope: bool) -> Array:  # fmt: skip
        from counterpoise.engines import kernels

        X, seg = self.data.X, self.segments
        block = max(4, BLOCK_BYTES // max(1, X.itemsize * X.shape[1])) & ~3
        sums = np.zeros((len(seg.starts), X.shape[1] + 2))

        def work(first: int, last: int) -> None:
            kernels.evaluate_dense(
                X, y, self.data.row_weights, W, bias, row_of_W, seg.starts, seg.stops,
                seg.chunks[first], seg.chunks[last], min(block, 1 << 14), activation.code,
                activation.parameters, true_slope, sums,
            )  # fmt: skip

        over_ranges(work, len(seg.chunks) - 1)
        return sums

    def _rows(self, lo: int, hi: int) -> Array:
        return self.data.X[lo:hi].astype(float, copy=False)

    def _gram(self, lo: int, hi: int, scale: Array, question: Gram) -> Array:
        keep = np.flatnonzero(scale)
        rows = np.ones((len(keep), self.data.n_coef))
        X = self.data.X[lo:hi]
        np.subtract(X if len(keep) == hi - lo else X[keep], question.shift,
                    out=rows[:, : self.data.n_features])  # fmt: skip
        if question.basis is not None:
            rows = rows @ question.basis
        rows *= np.sqrt(scale[keep])[:, None]
        return rows.T @ rows

    def _squares(self, lo: int, hi: int, shift: Array) -> Array:
        return self.data.weights_of(lo, hi) @ (self.data.X[lo:hi] - shift) ** 2
