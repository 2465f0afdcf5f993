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
    ZERO,
    U,
    add_rows,
    project,
    rows_per_block,
    to_coefficients,
)


@compiled()
def evaluate_many(
    X, y, weights, W, bias, starts, stops, lo, hi, address, parameters, kind, sums,
):  # fmt: skip
    """Sum gradients, coefficients and losses at every row of ``W`` over segments ``lo .. hi``.

    The sums of segment ``s`` go to ``sums[s]``: (vectors, d + 2). A block of rows stays in the
    cache until all vectors are done with it. ``parameters`` (vectors, 3) belong to the kernel at
    ``address``.
    """
    d, n_vectors = U(W.shape[1]), W.shape[0]
    block = rows_per_block(X.itemsize * W.shape[1])
    z, slope = np.empty(MAX_BLOCK), np.empty(MAX_BLOCK)
    for i in range(MAX_BLOCK):
        slope[i] = 1.0
    for s in range(lo, hi):
        sums[s] = 0.0
        first, stop = U(starts[s]), U(stops[s])
        while first < stop:
            count = min(block, stop - first)
            for m in range(n_vectors):
                out = sums[s, m]
                own = (address, (parameters[m, 0], parameters[m, 1], parameters[m, 2]), kind)
                project(X, d, first, count, W[m], bias[m], z, ZERO, ZERO)
                loss, total = to_coefficients(z, slope, y, weights, first, count, own)
                out[d] += total
                out[d + ONE] += loss
                add_rows(X, d, first, count, z, out, ZERO, ZERO)
            first += count
