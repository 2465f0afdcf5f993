"""Compiled kernel: the group weights that maximise a concave quadratic less a divergence.

This is a step of :mod:`.dual_newton`. The divergence is
``sum_i e t_i log(t_i / prior_i) + s (t_i - prior_i)^2 / prior_i``, where one of ``e`` and ``s`` is
``nu`` and the other one zero. Matrices have a row per group, so plain loops are faster than LAPACK.
There is one function, and memory comes from the caller, because both take long to compile.
"""

# Numba finds the types itself.
# mypy: disable-error-code="no-untyped-def,no-untyped-call,untyped-decorator"
from __future__ import annotations

import math

import numpy as np

from counterpoise.common.compiling import compiled

# Share of the diagonal that is added to second derivatives in the weights, which may be singular.
STEADY = 1e-13
# Changes below this share of a value are rounding.
DUST = 8 * np.finfo(float).eps
# The interior-point method: share of an inner point that is mixed in at first, share of the way to
# a bound that a step may go, and most steps. At the end, products of weights and their multipliers
# and residuals are at most these shares of the spread of the losses.
MIXED, SAFE, INTERIOR_STEPS, CENTRED, SMALL = 0.1, 0.995, 80, 1e-16, 1e-11
# Logarithms of weights below this follow from those of the others.
NEGLIGIBLE = 1e-14
# The least weight that has a logarithm of its own.
LEAST = 1e-300


@compiled(error_model="numpy")
def best_weights(C, linear, prior, log_prior, caps, inner, e, s, start, t, logs, M, V):  # noqa: C901
    """Maximise ``linear.t - t.C.t / 2 - nu phi(t)`` over the simplex, below caps.

    This is a primal-dual interior-point method. It starts from a mixture of ``start`` and
    ``inner``, a point off all bounds, and fills in weights ``t`` and their logarithms. ``M`` and
    ``V`` are memory. Return whether it converged.
    """
    K = len(t)
    z, v, gap, pull, bend, step = V[0], V[1], V[2], V[3], V[4], V[5]
    low = high = linear[0]
    for i in range(K):
        if linear[i] < low:
            low = linear[i]
        if linear[i] > high:
            high = linear[i]
    unit = high - low + LEAST
    enough = SMALL * (unit + e + s) + DUST * (abs(low) + abs(high))
    for i in range(K):
        t[i] = (1.0 - MIXED) * start[i] + MIXED * inner[i]
        gap[i] = caps[i] - t[i]
        z[i] = MIXED * unit / (K * t[i])  # multiplier of t >= 0
        v[i] = MIXED * unit / (K * gap[i])  # multiplier of t <= cap
    level = share = 0.0
    converged = False
    for turn in range(INTERIOR_STEPS):
        # Slopes, second derivatives, and the weight that is farthest from its bounds.
        far, pairs, rest, off = 0, 0.0, 1.0, 0.0
        for i in range(K):
            pull[i] = linear[i] - e * (math.log(t[i]) - log_prior[i]) - 2.0 * s * t[i] / prior[i]
            for j in range(K):
                pull[i] -= C[i, j] * t[j]
            bend[i] = (z[i] + e) / t[i] + v[i] / gap[i] + 2.0 * s / prior[i]
            pairs += t[i] * z[i] + gap[i] * v[i]
            rest -= t[i]
            if t[i] * gap[i] > t[far] * gap[far]:
                far = i
        if turn == 0:
            level = pull[far]
        for i in range(K):
            pull[i] += z[i] - v[i] - level
            if (e == 0.0 or t[i] > NEGLIGIBLE) and abs(pull[i]) > off:
                off = abs(pull[i])
        if pairs <= CENTRED * unit and off <= enough:
            converged = True
            break
        centre = (0.02 if share > 0.9 else 0.3) * pairs / (2 * K)
        for i in range(K):
            pull[i] += centre / t[i] - z[i] + v[i] - centre / gap[i]
        # The step, by Cholesky's method. The farthest weight makes up for the steps of the others.
        for i in range(K):
            step[i] = pull[i] - pull[far] - (C[i, far] - C[far, far] - bend[far]) * rest
            if i == far:
                step[i] = 0.0
            for j in range(i + 1):
                total = bend[far] + C[i, j] - C[i, far] - C[far, j] + C[far, far]
                if i == j:
                    total += bend[i] + STEADY * (bend[i] + bend[far] + C[i, i] + C[far, far])
                if i == far or j == far:
                    total = 1.0 if i == j else 0.0
                for k in range(j):
                    total -= M[i, k] * M[j, k]
                M[i, j] = math.sqrt(total) if i == j else total / M[j, j]
            for j in range(i):
                step[i] -= M[i, j] * step[j]
            step[i] /= M[i, i]
        for back in range(K):
            i = K - 1 - back
            for j in range(i + 1, K):
                step[i] -= M[j, i] * step[j]
            step[i] /= M[i, i]
        for i in range(K):
            if i != far:
                rest -= step[i]
        step[far] = rest
        # As far as the bounds of weights and multipliers allow.
        change, fastest = pull[far] - bend[far] * rest, SAFE
        for i in range(K):
            change -= C[far, i] * step[i]
            pull[i] = centre / t[i] - z[i] - z[i] / t[i] * step[i]
            bend[i] = centre / gap[i] - v[i] + v[i] / gap[i] * step[i]
            fastest = max(
                fastest, -step[i] / t[i], step[i] / gap[i], -pull[i] / z[i], -bend[i] / v[i]
            )
        if not fastest < math.inf:  # also if it is not a number
            break
        share = SAFE / fastest
        level += share * change
        for i in range(K):
            t[i] += share * step[i]
            gap[i] -= share * step[i]
            z[i] += share * pull[i]
            v[i] += share * bend[i]
    # Weights that a bound holds are put there, and the farthest makes up for it.
    far, rest = 0, 1.0
    for i in range(K):
        logs[i] = math.log(t[i])
        if e > 0.0 and t[i] < NEGLIGIBLE:
            logs[i] += (pull[i] - z[i] + v[i]) / e
            t[i] = math.exp(logs[i])
        elif e == 0.0 and t[i] * unit < z[i]:
            t[i] = 0.0
            logs[i] = math.log(LEAST)
        if gap[i] * unit < v[i] and caps[i] < 1.0:
            t[i] = caps[i]
            gap[i] = 0.0
        rest -= t[i]
        if t[i] * gap[i] > t[far] * gap[far]:
            far = i
    t[far] += rest
    for i in range(K):
        if t[i] >= NEGLIGIBLE:
            logs[i] = math.log(t[i])
    return converged
