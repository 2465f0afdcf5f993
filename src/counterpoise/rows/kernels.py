"""Compiled kernels: losses and gradients of every group in one pass over the rows.

A *segment* is a run of rows of one group. Rows are processed in blocks that stay in cache between
their two uses: the product with ``w``, and the sum into the gradient. Each use prefetches half of
the rows to come, in even portions, so that memory never waits for arithmetic. Rows are read in
their own precision; all sums are double.

Indices are unsigned. A signed index might count from the end, and checking for that prevents
vectorisation.
"""

# Numba finds the types itself, and passes the first argument of an intrinsic (call-arg).
# mypy: disable-error-code="no-untyped-def,untyped-decorator,call-arg"
from __future__ import annotations

import math
from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

from counterpoise.common.compiling import compiled
from counterpoise.rows.compilation import LOSSES, VALUES
from counterpoise.rows.lines import LANES, LINE_BYTES, add_four, prefetch, project_four

# The fast-math flags of loops whose sums may be reordered.
SUMS = {"reassoc", "contract", "nsz"}

U = np.uintp
ZERO, ONE, TWO, THREE, FOUR = U(0), U(1), U(2), U(3), U(4)
# Target size of a block. It stays in the first-level cache; blocks of long rows stay in the second.
BLOCK_BYTES = 1 << 13
MIN_BLOCK, MAX_BLOCK = 8, 256
# Blocks of rows longer than this have four rows.
LONG_ROW_BYTES = 1 << 14
# Rows to prefetch are at least this far ahead.
REACH_BYTES = 1 << 15


def inner(*, from_python=False, **options):
    """Compile a function that is inlined into kernels.

    It is never cached by itself, so a kernel is the same code whether or not it was cached.
    Wrappers take a third of the time to compile it, so it has none unless it is called
    ``from_python``, as in tests; calling one without a wrapper from Python crashes.
    """
    wrappers: dict[str, Any] = {"no_cpython_wrapper": not from_python, "no_cfunc_wrapper": True}
    return njit(nogil=True, forceinline=True, **wrappers, **options)


@intrinsic
def call_kernel(typing_context, address, z, slope, count, a, b, c):
    """Call the compiled kernel of an activation (:func:`compilation.kernel_address`)."""

    def emit(context, builder, signature, args):
        data = [
            context.make_array(kind)(context, builder, value).data
            for kind, value in zip(signature.args[1:3], args[1:3], strict=True)
        ]
        given = [*data, *args[3:]]
        result = context.get_value_type(types.none)
        kind = ir.FunctionType(result, [value.type for value in given])
        builder.call(builder.inttoptr(args[0], kind.as_pointer()), given)
        return context.get_dummy_value()

    return types.void(address, z, slope, count, a, b, c), emit


@inner(from_python=True)
def activate(kernel, z, slope, count):
    """Replace ``z[:count]`` by the activation's values and ``slope[:count]`` by its slopes.

    The slopes are one unless the kernel is for them. ``kernel`` is a :class:`RowKernel` as a tuple.
    """
    address, parameters, kind = kernel
    if address != 0:
        call_kernel(address, z, slope, count, parameters[0], parameters[1], parameters[2])
        if kind == VALUES:
            for i in range(count):
                slope[i] = 1.0


@inner(from_python=True)
def call_loss(kernel, z, y, first, count, labels):
    """Call the kernel of a loss, with a copy of the labels in ``labels``, which it overwrites."""
    address, parameters, _ = kernel
    for i in range(count):
        labels[i] = y[first + i]
    call_kernel(address, z, labels, count, parameters[0], parameters[1], parameters[2])


@inner(fastmath=SUMS)
def weigh_losses(z, values, weights, first, count):
    """Weight slopes ``z`` in place; return the sums of losses and of slopes."""
    loss = total = 0.0
    if weights.size:
        for i in range(count):
            loss += weights[first + i] * values[i]
            z[i] *= weights[first + i]
            total += z[i]
    else:
        for i in range(count):
            loss += values[i]
            total += z[i]
    return loss, total


@inner(fastmath=SUMS)
def to_coefficients(z, slope, y, weights, first, count, kernel):
    """Turn projections ``z`` into gradient coefficients in place.

    Zeros pad them to a multiple of four. ``slope`` must be filled with ones. Return the sums of
    losses and of coefficients.
    """
    loss = total = 0.0
    if kernel[2] == LOSSES:
        call_loss(kernel, z, y, first, count, slope)
        loss, total = weigh_losses(z, slope, weights, first, count)
        while count & THREE:
            z[count] = 0.0
            count += ONE
        return loss, total
    activate(kernel, z, slope, count)
    if y.size:
        for i in range(count):
            z[i] -= y[first + i]
    if weights.size:
        for i in range(count):
            weighted = weights[first + i] * z[i]
            loss += weighted * z[i]
            z[i] = weighted * slope[i]
            total += z[i]
    else:
        for i in range(count):
            loss += z[i] * z[i]
            z[i] *= slope[i]
            total += z[i]
    while count & THREE:
        z[count] = 0.0
        count += ONE
    return loss, total


@inner()
def place(order, d, row):
    """Return where a row starts in the flat vector: in ``order``, or as they are if it is empty."""
    return U(order[row]) * d if order.size else row * d


@inner()
def four_places(order, d, first, last):
    """Return where four rows start; the last row stands in for rows beyond it."""
    return (
        place(order, d, min(first, last)),
        place(order, d, min(first + ONE, last)),
        place(order, d, min(first + TWO, last)),
        place(order, d, min(first + THREE, last)),
    )


@inner()
def project(X, d, order, first, count, w, bias, z, ahead, last):
    """Compute ``z[i] = X[first + i] . w + bias``, four rows at a time.

    Meanwhile, prefetch half of the ``count`` rows from ``ahead``, up to the last row of all.
    """
    i = ZERO
    while i < count:
        at = four_places(order, d, first + i, first + count - ONE)
        coming = place(order, d, min(ahead + i, last)), place(order, d, min(ahead + i + ONE, last))
        project_four(X, d, at, w, bias, z, i, coming)
        i += FOUR


@inner()
def project_again(X, d, order, first, count, w, bias, z):
    """Compute products as :func:`project` does, of rows that are in cache."""
    i = ZERO
    while i < count:
        at = four_places(order, d, first + i, first + count - ONE)
        project_four(X, d, at, w, bias, z, i, ())
        i += FOUR


@inner()
def add_rows(X, d, order, first, count, c, out, ahead, last):
    """Compute ``out[:d] += sum_i c[i] X[first + i]``; zeros pad ``c`` to a multiple of four.

    ``out`` is padded to whole vectors. Prefetch the rows that :func:`project` has left out.
    """
    i = ZERO
    while i < count:
        at = four_places(order, d, first + i, first + count - ONE)
        coming = (
            place(order, d, min(ahead + i + TWO, last)),
            place(order, d, min(ahead + i + THREE, last)),
        )
        add_four(X, d, at, c, i, out, coming)
        i += FOUR


@inner()
def add_rows_again(X, d, order, first, count, c, out):
    """Add rows as :func:`add_rows` does, of rows that are in cache."""
    i = ZERO
    while i < count:
        at = four_places(order, d, first + i, first + count - ONE)
        add_four(X, d, at, c, i, out, ())
        i += FOUR


@inner()
def rows_per_block(row_bytes):
    """Return the rows of a block: a multiple of eight, or four long ones."""
    if row_bytes > LONG_ROW_BYTES:
        return FOUR
    return U(max(MIN_BLOCK, min(MAX_BLOCK, BLOCK_BYTES // max(1, row_bytes))) & ~7)


@inner()
def rows_ahead(row_bytes):
    """Return how many rows ahead to prefetch, at least a block."""
    return max(rows_per_block(row_bytes), U(REACH_BYTES // max(1, row_bytes)))


@compiled()
def evaluate_dense(
    X, order, y, weights, W, bias, row_of_W, starts, stops, groups, slots, lo, hi, kernel, sums,
    parts,
):  # fmt: skip
    """Sum gradients, coefficients and losses over segments ``lo .. hi``.

    Sums of a whole group go to ``sums[g]``, and those of a part of one to ``parts[slots[s]]``.
    ``X`` is a flat vector of rows, each as long as a row of ``W``. Rows are in the order of the
    segments, unless ``order`` says where they are.
    """
    d = U(W.shape[1])
    block, reach = rows_per_block(X.itemsize * W.shape[1]), rows_ahead(X.itemsize * W.shape[1])
    z, slope = np.empty(MAX_BLOCK), np.empty(MAX_BLOCK)
    gradient = np.empty((W.shape[1] + LANES - 1) // LANES * LANES)
    last = U(stops[-1] - 1)
    for i in range(MAX_BLOCK):
        slope[i] = 1.0
    for s in range(lo, hi):
        w, b = W[row_of_W[s]], bias[row_of_W[s]]
        gradient[:] = 0.0
        losses = totals = 0.0
        first, stop = U(starts[s]), U(stops[s])
        while first < stop:
            count = min(block, stop - first)
            project(X, d, order, first, count, w, b, z, first + reach, last)
            loss, total = to_coefficients(z, slope, y, weights, first, count, kernel)
            totals += total
            losses += loss
            add_rows(X, d, order, first, count, z, gradient, first + reach, last)
            first += count
        out = sums[groups[s]] if slots[s] < 0 else parts[slots[s]]
        for k in range(d):
            out[k] = gradient[k]
        out[d], out[d + ONE] = totals, losses


@compiled()
def evaluate_csr(
    data, indices, indptr, y, weights, W, bias, row_of_W, starts, stops, groups, slots, lo, hi,
    kernel, sums, parts,
):  # fmt: skip
    """Like `evaluate_dense` for CSR rows; the cost depends on the stored entries."""
    d = W.shape[1]
    z, slope = np.empty(MAX_BLOCK), np.empty(MAX_BLOCK)
    for i in range(MAX_BLOCK):
        slope[i] = 1.0
    for s in range(lo, hi):
        w, b = W[row_of_W[s]], bias[row_of_W[s]]
        out = sums[groups[s]] if slots[s] < 0 else parts[slots[s]]
        for k in range(out.size):
            out[k] = 0.0
        for first in range(starts[s], stops[s], MAX_BLOCK):
            count = min(MAX_BLOCK, stops[s] - first)
            for i in range(count):
                a = b
                for p in range(indptr[first + i], indptr[first + i + 1]):
                    a += data[p] * w[indices[p]]
                z[i] = a
            loss, total = to_coefficients(z, slope, y, weights, U(first), U(count), kernel)
            out[d] += total
            out[d + 1] += loss
            for i in range(count):
                for p in range(indptr[first + i], indptr[first + i + 1]):
                    out[indices[p]] += z[i] * data[p]


@compiled()
def merge_parts(parts, group_of_part, sums):
    """Add up the parts of groups that were split, in the order of the rows."""
    p = 0
    while p < group_of_part.size:
        g = group_of_part[p]
        for k in range(sums.shape[1]):
            sums[g, k] = 0.0
        while p < group_of_part.size and group_of_part[p] == g:
            for k in range(sums.shape[1]):
                sums[g, k] += parts[p, k]
            p += 1


@compiled()
def scaled_rows(X, order, y, weights, shift, intercept, w, bias, lo, hi, kernel, scale, start, out):
    """Write ``sqrt(scale weight) stretch (x - shift, 1)`` of rows ``lo .. hi`` to ``out[start:]``.

    Rows with zero stretch are skipped. With an empty ``w`` it is one. Columns of ``out`` beyond
    the last coefficient are not written. Return the end of the rows written. The Gram matrix of
    these rows is the matrix of second derivatives.
    """
    d = U(shift.size)
    block, reach = rows_per_block(X.itemsize * shift.size), rows_ahead(X.itemsize * shift.size)
    z, slope = np.empty(MAX_BLOCK), np.empty(MAX_BLOCK)
    for i in range(MAX_BLOCK):
        slope[i] = 1.0
    first, stop, m = U(lo), U(hi), U(start)
    while first < stop:
        count = min(block, stop - first)
        if w.size:
            project(X, d, order, first, count, w, bias, z, first + reach, stop - ONE)
            if kernel[2] == LOSSES:
                call_loss(kernel, z, y, first, count, slope)
            else:
                activate(kernel, z, slope, count)
        for i in range(count):
            c = slope[i] * math.sqrt(scale * (weights[first + i] if weights.size else 1.0))
            if c != 0.0:
                p = place(order, d, first + i)
                for k in range(d):
                    out[m, k] = (X[p + k] - shift[k]) * c
                if intercept:
                    out[m, d] = c
                m += ONE
        first += count
    return m


@compiled()
def shifted_rows(X, weights, shift, intercept, lo, hi, scale, start, out):
    """Like `scaled_rows` with a stretch of one; compiled in a fraction of the time."""
    d = U(shift.size)
    m = U(start)
    for j in range(U(lo), U(hi)):
        c = math.sqrt(scale * (weights[j] if weights.size else 1.0))
        if c != 0.0:
            p = j * d
            for k in range(d):
                out[m, k] = (X[p + k] - shift[k]) * c
            if intercept:
                out[m, d] = c
            m += ONE
    return m


@compiled(fastmath=SUMS)
def separations(X, order, weights, W, bias, lo, hi, kernel, out):
    """Sum squared differences between the outputs of each neuron and of the last one.

    ``out[p] = sum_j weight_j (sigma(W[p].x_j + bias[p]) - sigma(W[-1].x_j + bias[-1]))^2`` over
    rows ``lo .. hi``, for every ``p`` but the last.
    """
    d, last = U(W.shape[1]), W.shape[0] - 1
    block, reach = rows_per_block(X.itemsize * W.shape[1]), rows_ahead(X.itemsize * W.shape[1])
    z, base, slope = np.empty(MAX_BLOCK), np.empty(MAX_BLOCK), np.empty(MAX_BLOCK)
    out[:] = 0.0
    first, stop = U(lo), U(hi)
    while first < stop:
        count = min(block, stop - first)
        project(X, d, order, first, count, W[last], bias[last], base, first + reach, stop - ONE)
        activate(kernel, base, slope, count)
        for p in range(last):
            project_again(X, d, order, first, count, W[p], bias[p], z)
            activate(kernel, z, slope, count)
            total = 0.0
            if weights.size:
                for i in range(count):
                    total += weights[first + i] * (z[i] - base[i]) ** 2
            else:
                for i in range(count):
                    total += (z[i] - base[i]) ** 2
            out[p] += total
        first += count


@compiled()
def gather_rows(X, d, order, lo, hi, out):
    """Copy rows ``order[lo:hi]`` of ``X`` to rows ``lo .. hi`` of ``out``.

    Both are flat vectors of rows of length ``d``. Rows are prefetched shortly before the copy.
    """
    line, reach = U(LINE_BYTES // X.itemsize), U(max(1, 4096 // max(1, X.itemsize * d)))
    d = U(d)
    j, stop = U(lo), U(hi)
    while j < stop:
        if j + reach < stop:
            p = U(order[j + reach]) * d
            upto = p + d
            while p < upto:
                prefetch(X, p)
                p += line
            prefetch(X, upto - ONE)
        p, q = U(order[j]) * d, j * d
        for k in range(d):
            out[q + k] = X[p + k]
        j += ONE


@compiled()
def counting_sort(codes, offsets, free, order):
    """Write the stable order of rows by code to ``order``, and where each code starts.

    ``offsets`` has an entry more than there are codes, and is zero; ``free`` is as long. The
    caller allocates them, because compiling that takes longer than the rest.
    """
    for code in codes:
        offsets[U(code) + ONE] += 1
    for code in range(offsets.size - 1):
        offsets[code + 1] += offsets[code]
        free[code + 1] = offsets[code + 1]
    for row in range(codes.size):
        code = U(codes[row])
        order[U(free[code])] = row
        free[code] += 1
