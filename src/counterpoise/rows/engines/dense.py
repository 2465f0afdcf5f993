"""Rows in a dense C-ordered array, read by the fused kernel in their own precision."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from functools import partial

import numpy as np

from counterpoise.activations import Activation
from counterpoise.losses import Loss, NeuronLoss
from counterpoise.rows.compilation import (
    VALUES,
    RowKernel,
    evaluation_kernel,
    frozen,
    kernel_address,
    ready,
    stretch_kernel,
)
from counterpoise.rows.engines.questions import Evaluate, Gram
from counterpoise.rows.engines.row_part import GramWork, RowPart
from counterpoise.rows.indexed import flat_rows

Array = np.ndarray
# Scales rows ``first:last`` by a share into ``rows[filled:]``, and returns the end of these.
Fill = Callable[[Array, float, int, int, int], int]

# With fewer numbers than this, numpy scales rows in less time than it takes to load a kernel.
SMALL = 1 << 17
# Number of rows to scale at a time before computing their Gram matrix.
GRAM_ROWS = 2048
# Scores as they are, with slopes of one.
PLAIN = RowKernel(0, (0.0, 0.0, 0.0), VALUES)


_kept = threading.local()


def _scratch(n_coef: int) -> Array:
    """Return a buffer for scaled rows, kept per thread to avoid page faults of new memory.

    The number of columns is a multiple of four, which makes BLAS faster; the padding is zero.
    """
    columns = -(-n_coef // 4) * 4
    if getattr(_kept, "n_coef", None) != n_coef:
        _kept.n_coef, _kept.rows = n_coef, np.zeros((GRAM_ROWS, columns))
    return _kept.rows


def _is_linear(loss: Loss) -> bool:
    """Whether the second derivatives of a loss are the same everywhere."""
    return isinstance(loss, NeuronLoss) and loss.activation.is_identity


class DensePart(RowPart):
    """Dense rows, read in one fused pass: everything is computed while a block is in cache."""

    batched = True

    def _kernel(self, W: Array, bias: Array, row_of_W: Array, y: Array, kernel: RowKernel) -> Array:
        from counterpoise.rows import kernels

        (X, order), y, seg = flat_rows(self.data.X), frozen(y), self.segments
        sums = np.empty((self.data.n_groups, self.data.n_features + 2))
        parts = np.empty((len(seg.parts), sums.shape[1]))

        def work(first: int, last: int) -> None:
            kernels.evaluate_dense(
                X, order, y, self._weights, W, bias, row_of_W, seg.starts, seg.stops,
                seg.groups, seg.slots, seg.chunks[first], seg.chunks[last], kernel, sums, parts,
            )  # fmt: skip

        ready(("evaluate_dense", X.dtype), work)
        self._share_out(work, len(seg.chunks) - 1)
        if len(parts):
            kernels.merge_parts(parts, seg.parts, sums)
        return sums

    def _evaluate_many(self, asked: list[Evaluate]) -> Iterable[Array]:
        from counterpoise.rows import many_kernels

        found = [evaluation_kernel(q.loss, surrogate=q.surrogate) for q in asked]
        kernels = [kernel for kernel in found if kernel is not None]
        W, bias = (
            np.array(values) for values in zip(*[self._split(q.w) for q in asked], strict=True)
        )
        parameters = np.array([kernel.parameters for kernel in kernels])
        (X, order), seg = flat_rows(self.data.X), self.segments
        y = frozen(self.labels_of(asked[0].truncate))
        sums = np.empty((len(seg.starts), len(asked), self.data.n_features + 2))

        def work(first: int, last: int) -> None:
            many_kernels.evaluate_many(
                X, order, y, self._weights, W, bias, seg.starts, seg.stops, first, last,
                kernels[0].address, parameters, kernels[0].kind, sums,
            )  # fmt: skip

        ready(("evaluate_many", X.dtype), work)
        self._share_out(work, len(seg.starts), len(asked))
        return np.moveaxis(np.add.reduceat(sums, self._first, axis=0), 1, 0)

    def _rows(self, lo: int, hi: int) -> Array:
        return self.data.X[lo:hi].astype(float, copy=False)

    def _gram_work(self, q: Gram) -> GramWork:
        n_coef, basis = self.data.n_coef, q.basis
        size = n_coef if basis is None else basis.shape[1]
        linear = _is_linear(q.loss)
        kernel = PLAIN if q.w is None or linear else stretch_kernel(q.loss)
        if kernel is None:
            return partial(self._python_gram, q)
        if kernel is PLAIN and self.numbers < SMALL:
            fill: Fill = partial(self._shift_rows, q.shift)
        else:
            fill = self._filler(q, kernel, linear=linear)

        def work(lo: int, hi: int, share: float) -> Array:
            rows, filled, out = _scratch(n_coef), 0, np.zeros((size, size))
            while lo < hi:
                stop = min(hi, lo + GRAM_ROWS - filled)
                filled, lo = fill(rows, share, lo, stop, filled), stop
                if filled > GRAM_ROWS - 64 or lo == hi:
                    mapped = rows[:filled]
                    if basis is not None:
                        mapped = mapped[:, :n_coef] @ basis
                    out += (mapped.T @ mapped)[:size, :size]
                    filled = 0
            return out

        return work

    def _python_gram(self, q: Gram, lo: int, hi: int, share: float) -> Array:
        """Return the matrix for a loss without a compiled kernel."""
        size = self.data.n_coef if q.basis is None else q.basis.shape[1]
        out = np.zeros((size, size))
        for a, b in self._blocks(lo, hi):
            rows = self._slope_rows(a, b, share, q)
            out += rows.T @ rows
        return out

    def _filler(self, q: Gram, kernel: RowKernel, *, linear: bool) -> Fill:
        """Return a function that scales rows ``first:last`` into ``rows[filled:]``, compiled."""
        from counterpoise.rows import kernels

        (X, order), y, weights = flat_rows(self.data.X), frozen(self.data.y), self._weights
        coef, bias = (np.empty(0), 0.0) if q.w is None else self._split(q.w)
        shift, intercept = q.shift, self.data.intercept

        def shifted(rows: Array, share: float, first: int, last: int, filled: int) -> int:
            return kernels.shifted_rows(
                X, weights, shift, intercept, first, last, share, filled, rows
            )

        def scaled(rows: Array, share: float, first: int, last: int, filled: int) -> int:
            return kernels.scaled_rows(
                X, order, y, weights, shift, intercept, coef, bias, first, last, kernel, share,
                filled, rows,
            )  # fmt: skip

        # Other models and an index need the second kernel in any case, and not the first.
        plain = linear and not order.size
        name, fill = ("shifted_rows", shifted) if plain else ("scaled_rows", scaled)
        rows = _scratch(self.data.n_coef)
        ready((name, X.dtype), lambda a, b: fill(rows, 1.0, a, b, 0))
        return fill

    def _shift_rows(
        self, shift: Array, rows: Array, share: float, first: int, last: int, filled: int
    ) -> int:
        """Do what the kernel `shifted_rows` does, to the bit."""
        d, X = self.data.n_features, self.data.X[first:last]
        factors = np.sqrt(share * self.data.weights_of(first, last))
        used = factors != 0.0
        if not used.all():
            X, factors = X[used], factors[used]
        stop = filled + len(factors)
        np.subtract(X, shift, out=rows[filled:stop, :d])
        rows[filled:stop, :d] *= factors[:, None]
        if self.data.intercept:
            rows[filled:stop, d] = factors
        return stop

    def _apart(self, lo: int, hi: int, coef: Array, biases: Array, sigma: Activation) -> Array:
        from counterpoise.rows import kernels

        address = None if self.numbers < SMALL else kernel_address(sigma)
        if address is None:
            return super()._apart(lo, hi, coef, biases, sigma)
        (X, order), out = flat_rows(self.data.X), np.empty(len(coef) - 1)
        kernel = RowKernel(address, sigma.parameters, VALUES)

        def work(first: int, last: int) -> None:
            kernels.separations(X, order, self._weights, coef, biases, first, last, kernel, out)

        ready(("separations", X.dtype), work)
        work(lo, hi)
        return out

    def _slope_rows(self, lo: int, hi: int, share: float, q: Gram) -> Array:
        """Scale rows by the stretch of a loss without a compiled kernel."""
        assert q.w is not None
        coef, bias = self._split(q.w)
        stretch = q.loss.stretch(self._rows(lo, hi) @ coef + bias, self.data.y[lo:hi])
        rows = np.ones((hi - lo, self.data.n_coef))
        np.subtract(self.data.X[lo:hi], q.shift, out=rows[:, : self.data.n_features])
        if q.basis is not None:
            rows = rows @ q.basis
        return rows * (stretch * np.sqrt(share * self.data.weights_of(lo, hi)))[:, None]

    def _squares(self, lo: int, hi: int, shift: Array) -> Array:
        return self.data.weights_of(lo, hi) @ (self.data.X[lo:hi] - shift) ** 2
