"""Rows in a SciPy CSR matrix; only K x d sums are dense."""

from __future__ import annotations

import numpy as np

from counterpoise.rows.compilation import RowKernel, frozen, ready
from counterpoise.rows.engines.questions import Gram
from counterpoise.rows.engines.row_part import GramWork, RowPart

Array = np.ndarray


class SparsePart(RowPart):
    """CSR rows. The cost of a pass depends on the stored entries; rows are never centred."""

    def _kernel(self, W: Array, bias: Array, row_of_W: Array, y: Array, kernel: RowKernel) -> Array:
        from counterpoise.rows import kernels

        X, y, seg = self.data.X, frozen(y), self.segments
        values, indices, indptr = frozen(X.data), frozen(X.indices), frozen(X.indptr)
        sums = np.empty((self.data.n_groups, self.data.n_features + 2))
        parts = np.empty((len(seg.parts), sums.shape[1]))

        def work(first: int, last: int) -> None:
            kernels.evaluate_csr(
                values, indices, indptr, y, self._weights, W, bias, row_of_W,
                seg.starts, seg.stops, seg.groups, seg.slots, seg.chunks[first],
                seg.chunks[last], kernel, sums, parts,
            )  # fmt: skip

        ready(("evaluate_csr", X.dtype, X.indices.dtype), work)
        self._share_out(work, len(seg.chunks) - 1)
        if len(parts):
            kernels.merge_parts(parts, seg.parts, sums)
        return sums

    def _rows(self, lo: int, hi: int) -> Array:
        return self.data.X[lo:hi]

    def _gram_work(self, question: Gram) -> GramWork:
        size = self.data.n_coef if question.basis is None else question.basis.shape[1]

        def work(lo: int, hi: int, share: float) -> Array:
            blocks = (self._block_gram(a, b, share, question) for a, b in self._blocks(lo, hi))
            return sum(blocks, np.zeros((size, size)))

        return work

    def _block_gram(self, lo: int, hi: int, share: float, question: Gram) -> Array:
        X = self.data.X[lo:hi].astype(float)
        d = self.data.n_features
        scale = share * self.data.weights_of(lo, hi)
        if question.w is not None:
            coef, bias = self._split(question.w)
            scale = scale * question.loss.stretch(X @ coef + bias, self.data.y[lo:hi]) ** 2
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
