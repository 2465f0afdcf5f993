"""A compiled kernel for several coefficient vectors: one read of the rows serves all of them.

It is compiled apart from the kernel for one vector, since most fits never need it.
"""

# Numba finds the types itself.
# mypy: disable-error-code="no-untyped-def,no-untyped-call,untyped-decorator"
from __future__ import annotations

import numpy as np

from counterpoise.common.compiling import compiled
from counterpoise.rows.kernels import (
    MAX_BLOCK,
    ONE,
    U,
    add_rows_again,
    project_again,
    rows_per_block,
    to_coefficients,
)
from counterpoise.rows.lines import LANES


@compiled()
def evaluate_many(
    X, order, y, weights, W, bias, starts, stops, lo, hi, address, parameters, kind, sums,
):  # fmt: skip
    """Sum gradients, coefficients and losses at every row of ``W`` over segments ``lo .. hi``.

    The sums of segment ``s`` go to ``sums[s]``: (vectors, d + 2). A block of rows stays in the
    cache until all vectors are done with it. ``parameters`` (vectors, 3) belong to the kernel at
    ``address``, and ``order`` says where rows are, as in `evaluate_dense`.
    """
    d, n_vectors = U(W.shape[1]), W.shape[0]
    block = rows_per_block(X.itemsize * W.shape[1])
    z, slope = np.empty(MAX_BLOCK), np.empty(MAX_BLOCK)
    gradients = np.empty((n_vectors, (W.shape[1] + LANES - 1) // LANES * LANES))
    for i in range(MAX_BLOCK):
        slope[i] = 1.0
    for s in range(lo, hi):
        gradients[:] = 0.0
        sums[s] = 0.0
        first, stop = U(starts[s]), U(stops[s])
        while first < stop:
            count = min(block, stop - first)
            for m in range(n_vectors):
                own = (address, (parameters[m, 0], parameters[m, 1], parameters[m, 2]), kind)
                project_again(X, d, order, first, count, W[m], bias[m], z)
                loss, total = to_coefficients(z, slope, y, weights, first, count, own)
                sums[s, m, d] += total
                sums[s, m, d + ONE] += loss
                add_rows_again(X, d, order, first, count, z, gradients[m])
            first += count
        for m in range(n_vectors):
            for k in range(d):
                sums[s, m, k] = gradients[m, k]
