"""Compiled kernels: losses and gradients of every group in one pass over the rows.

A *segment* is a run of rows of one group. Rows are processed in blocks that stay in the first-level
cache between their two uses: the product with ``w``, and the sum into the gradient. Both uses
prefetch the next block in small, even portions, so that memory never waits for arithmetic. Rows are
read in their own precision; all sums are double.

Indices are unsigned. A signed index might count from the end, and checking for that prevents
vectorisation. For the same reason, and to avoid divisions, loops are ``while`` loops over flat
positions.
"""

# Numba finds the types itself, and passes the first argument of an intrinsic (call-arg).
# mypy: disable-error-code="no-untyped-def,untyped-decorator,call-arg"
from __future__ import annotations

import math
from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

from counterpoise.common.compiling import compiled
from counterpoise.rows.compilation import LOSSES, VALUES

# The fast-math flags that each loop needs. Sums may be reordered; elementwise updates may not,
# which keeps the dependency chain through ``out`` one addition long.
SUMS = {"reassoc", "contract", "nsz"}
UPDATES = {"contract", "nsz"}

U = np.uintp
ZERO, ONE, TWO, THREE, FOUR = U(0), U(1), U(2), U(3), U(4)
LINE_BYTES = 64
# Bytes of a row between two portions of prefetching. Four rows of this length are 32 cache lines;
# a core keeps about half of that in flight.
STRIP_BYTES = 512
# Target size of a block: this block and the next must fit the first-level cache.
BLOCK_BYTES = 1 << 13
MIN_BLOCK, MAX_BLOCK = 16, 256
# Four rows longer than this leave the first-level cache before their second use. They are added
# while the next four are projected; the processor prefetches such long streams itself.
LONG_ROW_BYTES = 6 << 10


def inner(*, from_python=False, **options):
    """Compile a function that is inlined into kernels.

    It is never cached by itself, so a kernel is the same code whether or not it was cached.
    Wrappers take a third of the time to compile it, so it has none unless it is called
    ``from_python``, as in tests; calling one without a wrapper from Python crashes.
    """
    wrappers: dict[str, Any] = {"no_cpython_wrapper": not from_python, "no_cfunc_wrapper": True}
    return njit(nogil=True, forceinline=True, **wrappers, **options)


@intrinsic
def prefetch(typing_context, array, index):
    """Prefetch the cache line of ``array[index]``; an index past the end does no harm."""

    def emit(context, builder, signature, args):
        data = context.make_array(signature.args[0])(context, builder, args[0]).data
        byte_pointer, i32 = ir.IntType(8).as_pointer(), ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [byte_pointer, i32, i32, i32])
        function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
        address = builder.bitcast(builder.gep(data, [args[1]]), byte_pointer)
        builder.call(function, [address, i32(0), i32(3), i32(1)])  # to read, into all caches
        return context.get_dummy_value()

    return types.void(array, index), emit


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


@inner(fastmath=SUMS)
def project(X, d, first, count, w, bias, z, ahead, portion):
    """Compute ``z[i] = X[first + i] . w + bias``, four rows at a time.

    The last row stands in for rows beyond it. Every strip prefetches ``portion`` strips of
    ``X[ahead:]``.
    """
    strip, line = U(STRIP_BYTES // X.itemsize), U(LINE_BYTES // X.itemsize)
    end = (first + count - ONE) * d
    i, p0 = ZERO, first * d
    while i < count:
        p1 = min(p0 + d, end)
        p2 = min(p1 + d, end)
        p3 = min(p2 + d, end)
        a0 = a1 = a2 = a3 = 0.0
        lo = ZERO
        while lo < d:
            hi = min(lo + strip, d)
            upto = ahead + portion * (hi - lo)
            while ahead < upto:
                prefetch(X, ahead)
                ahead += line
            ahead = upto
            for k in range(lo, hi):
                a0 += X[p0 + k] * w[k]
                a1 += X[p1 + k] * w[k]
                a2 += X[p2 + k] * w[k]
                a3 += X[p3 + k] * w[k]
            lo = hi
        z[i], z[i + ONE], z[i + TWO], z[i + THREE] = a0 + bias, a1 + bias, a2 + bias, a3 + bias
        i += FOUR
        p0 = p3 + d


@inner(fastmath=UPDATES)
def add_rows(X, d, first, count, c, out, ahead, portion):
    """Compute ``out[:d] += sum_i c[i] X[first + i]``; zeros pad ``c`` to a multiple of four."""
    strip, line = U(STRIP_BYTES // X.itemsize), U(LINE_BYTES // X.itemsize)
    end = (first + count - ONE) * d
    i, p0 = ZERO, first * d
    while i < count:
        p1 = min(p0 + d, end)
        p2 = min(p1 + d, end)
        p3 = min(p2 + d, end)
        c0, c1, c2, c3 = c[i], c[i + ONE], c[i + TWO], c[i + THREE]
        lo = ZERO
        while lo < d:
            hi = min(lo + strip, d)
            upto = ahead + portion * (hi - lo)
            while ahead < upto:
                prefetch(X, ahead)
                ahead += line
            ahead = upto
            for k in range(lo, hi):
                out[k] += ((c0 * X[p0 + k] + c1 * X[p1 + k]) + c2 * X[p2 + k]) + c3 * X[p3 + k]
            lo = hi
        i += FOUR
        p0 = p3 + d


@inner(fastmath=SUMS)
def add_and_project(X, d, first, w, bias, z, out):
    """Add the four rows before ``first`` with coefficients ``z``, and project the next four.

    The projections replace the coefficients in ``z``.
    """
    q0, p0 = first * d - FOUR * d, first * d
    q1, q2, q3 = q0 + d, q0 + TWO * d, q0 + THREE * d
    p1, p2, p3 = p0 + d, p0 + TWO * d, p0 + THREE * d
    c0, c1, c2, c3 = z[0], z[1], z[2], z[3]
    a0 = a1 = a2 = a3 = 0.0
    for k in range(d):
        out[k] += ((c0 * X[q0 + k] + c1 * X[q1 + k]) + c2 * X[q2 + k]) + c3 * X[q3 + k]
        a0 += X[p0 + k] * w[k]
        a1 += X[p1 + k] * w[k]
        a2 += X[p2 + k] * w[k]
        a3 += X[p3 + k] * w[k]
    z[0], z[1], z[2], z[3] = a0 + bias, a1 + bias, a2 + bias, a3 + bias


@inner()
def rows_per_block(row_bytes):
    """Return the rows of a block: a multiple of eight, or four long ones."""
    if row_bytes > LONG_ROW_BYTES:
        return FOUR
    return U(max(MIN_BLOCK, min(MAX_BLOCK, BLOCK_BYTES // max(1, row_bytes))) & ~7)


@compiled()
def evaluate_dense(
    X, y, weights, W, bias, row_of_W, starts, stops, groups, slots, lo, hi, kernel, sums, parts,
):  # fmt: skip
    """Sum gradients, coefficients and losses over segments ``lo .. hi``.

    Sums of a whole group go to ``sums[g]``, and those of a part of one to ``parts[slots[s]]``.
    ``X`` is a flat vector of rows, each as long as a row of ``W``.
    """
    d = U(W.shape[1])
    block = rows_per_block(X.itemsize * W.shape[1])
    long_rows = block == FOUR
    portion = ZERO if long_rows else TWO
    z, slope = np.empty(MAX_BLOCK), np.empty(MAX_BLOCK)
    for i in range(MAX_BLOCK):
        slope[i] = 1.0
    for s in range(lo, hi):
        w, b = W[row_of_W[s]], bias[row_of_W[s]]
        out = sums[groups[s]] if slots[s] < 0 else parts[slots[s]]
        for k in range(out.size):
            out[k] = 0.0
        first, stop = U(starts[s]), U(stops[s])
        pending = False
        while first < stop:
            count = min(block, stop - first)
            ahead = (first + block) * d
            if pending:
                add_and_project(X, d, first, w, b, z, out)
            else:
                project(X, d, first, count, w, b, z, ahead, portion)
            loss, total = to_coefficients(z, slope, y, weights, first, count, kernel)
            out[d] += total
            out[d + ONE] += loss
            pending = long_rows and first + block + block <= stop
            if not pending:
                add_rows(X, d, first, count, z, out, ahead + count * d // TWO, portion)
            first += count


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
def scaled_rows(X, y, weights, shift, intercept, w, bias, lo, hi, kernel, scale, start, out):
    """Write ``sqrt(scale weight) stretch (x - shift, 1)`` of rows ``lo .. hi`` to ``out[start:]``.

    Rows with zero stretch are skipped. With an empty ``w`` it is one. Columns of ``out`` beyond
    the last coefficient are not written. Return the end of the rows written. The Gram matrix of
    these rows is the matrix of second derivatives.
    """
    d = U(shift.size)
    block = rows_per_block(X.itemsize * shift.size)
    z, slope = np.empty(MAX_BLOCK), np.empty(MAX_BLOCK)
    for i in range(MAX_BLOCK):
        slope[i] = 1.0
    first, stop, m = U(lo), U(hi), U(start)
    while first < stop:
        count = min(block, stop - first)
        if w.size:
            project(X, d, first, count, w, bias, z, (first + block) * d, FOUR)
            if kernel[2] == LOSSES:
                call_loss(kernel, z, y, first, count, slope)
            else:
                activate(kernel, z, slope, count)
        for i in range(count):
            c = slope[i] * math.sqrt(scale * (weights[first + i] if weights.size else 1.0))
            if c != 0.0:
                p = (first + i) * d
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
def separations(X, weights, W, bias, lo, hi, kernel, out):
    """Sum squared differences between the outputs of each neuron and of the last one.

    ``out[p] = sum_j weight_j (sigma(W[p].x_j + bias[p]) - sigma(W[-1].x_j + bias[-1]))^2`` over
    rows ``lo .. hi``, for every ``p`` but the last.
    """
    d, last = U(W.shape[1]), W.shape[0] - 1
    block = rows_per_block(X.itemsize * W.shape[1])
    z, base, slope = np.empty(MAX_BLOCK), np.empty(MAX_BLOCK), np.empty(MAX_BLOCK)
    out[:] = 0.0
    first, stop = U(lo), U(hi)
    while first < stop:
        count = min(block, stop - first)
        project(X, d, first, count, W[last], bias[last], base, (first + block) * d, FOUR)
        activate(kernel, base, slope, count)
        for p in range(last):
            project(X, d, first, count, W[p], bias[p], z, ZERO, ZERO)
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
