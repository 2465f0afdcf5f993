"""Compiled row kernels: one read of the rows gives losses and gradients of every group.

A *segment* is a run of rows of one group. Rows are visited in blocks small enough to stay
in the core's cache between their two uses: the product with ``w``, and the sum into the
gradient. Row data is read in its own precision; every sum is double.
"""

# mypy: disable-error-code="no-untyped-def,untyped-decorator"
from __future__ import annotations

import math

import numpy as np
from numba import njit

from counterpoise.activations import ELU, PIECEWISE, SOFTPLUS

FAST = {"reassoc", "contract", "nsz"}


def compiled(**options):
    """Compile without the interpreter lock, and keep the result on disk where that is possible."""

    def wrap(function):
        try:
            return njit(nogil=True, cache=True, **options)(function)
        except RuntimeError:  # neither the package nor the home folder can be written to
            return njit(nogil=True, **options)(function)

    return wrap


LOG2 = math.log(2.0)


@compiled(inline="always")
def activate(code, parameters, t):
    """Value and slope of the named activation ``code`` at ``t``."""
    value, slope = t, 1.0
    if code == PIECEWISE:
        left, width, offset = parameters
        if t < -width:
            value, slope = left * t, left
        elif t < width:
            share = (t + width) / (2.0 * width)
            value = left * t + (1.0 - left) * width * share * share
            slope = left + (1.0 - left) * share
        value -= offset
    elif code == SOFTPLUS:
        e = math.exp(-abs(t))
        value = max(t, 0.0) + math.log1p(e) - LOG2
        slope = 1.0 / (1.0 + e) if t >= 0.0 else e / (1.0 + e)
    elif code == ELU and t < 0.0:
        value, slope = math.expm1(t), math.exp(t)
    return value, slope


@compiled()
def to_coefficients(z, y, weights, first, count, code, parameters, true_slope):
    """Turn projections ``z`` into gradient coefficients in place; return the sum of losses."""
    total = 0.0
    for i in range(count):
        value, slope = activate(code, parameters, z[i])
        residual = value - (y[first + i] if y.size else 0.0)
        weight = weights[first + i] if weights.size else 1.0
        total += weight * residual * residual
        z[i] = weight * residual * (slope if true_slope else 1.0)
    return total


@compiled(fastmath=FAST)
def project_rows(X, first, count, w, bias, z):
    """``z[i] = X[first + i] . w + bias``, four rows at a time."""
    d = X.shape[1]
    i = 0
    while i + 4 <= count:
        j = first + i
        a0 = a1 = a2 = a3 = 0.0
        for k in range(d):
            wk = w[k]
            a0 += X[j, k] * wk
            a1 += X[j + 1, k] * wk
            a2 += X[j + 2, k] * wk
            a3 += X[j + 3, k] * wk
        z[i], z[i + 1], z[i + 2], z[i + 3] = a0 + bias, a1 + bias, a2 + bias, a3 + bias
        i += 4
    while i < count:
        a0 = 0.0
        for k in range(d):
            a0 += X[first + i, k] * w[k]
        z[i] = a0 + bias
        i += 1


@compiled(fastmath=FAST)
def add_rows(X, first, count, c, out):
    """``out[:d] += sum_i c[i] X[first + i]`` and ``out[d] += sum_i c[i]``."""
    d = X.shape[1]
    total = 0.0
    i = 0
    while i + 4 <= count:
        j = first + i
        c0, c1, c2, c3 = c[i], c[i + 1], c[i + 2], c[i + 3]
        total += (c0 + c1) + (c2 + c3)
        for k in range(d):
            out[k] += (c0 * X[j, k] + c1 * X[j + 1, k]) + (c2 * X[j + 2, k] + c3 * X[j + 3, k])
        i += 4
    while i < count:
        total += c[i]
        for k in range(d):
            out[k] += c[i] * X[first + i, k]
        i += 1
    out[d] += total


@compiled()
def evaluate_dense(
    X, y, weights, W, bias, row_of_W, starts, stops, lo, hi, block, code, parameters, true_slope,
    sums,
):  # fmt: skip
    """Gradient sums (d), their coefficients' and the losses' of segments ``lo .. hi``."""
    z = np.empty(block)
    d = X.shape[1]
    for s in range(lo, hi):
        w, b = W[row_of_W[s]], bias[row_of_W[s]]
        for first in range(starts[s], stops[s], block):
            count = min(block, stops[s] - first)
            project_rows(X, first, count, w, b, z)
            sums[s, d + 1] += to_coefficients(
                z, y, weights, first, count, code, parameters, true_slope
            )
            add_rows(X, first, count, z, sums[s])


@compiled()
def evaluate_csr(
    data, indices, indptr, y, weights, W, bias, row_of_W, starts, stops, lo, hi, code, parameters,
    true_slope, sums,
):  # fmt: skip
    """The same on CSR rows; the cost follows the stored entries."""
    z = np.empty(1)
    for s in range(lo, hi):
        w, b, out = W[row_of_W[s]], bias[row_of_W[s]], sums[s]
        d = out.shape[0] - 2
        for j in range(starts[s], stops[s]):
            a = b
            for k in range(indptr[j], indptr[j + 1]):
                a += data[k] * w[indices[k]]
            z[0] = a
            out[d + 1] += to_coefficients(z, y, weights, j, 1, code, parameters, true_slope)
            for k in range(indptr[j], indptr[j + 1]):
                out[indices[k]] += z[0] * data[k]
            out[d] += z[0]
