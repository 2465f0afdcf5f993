"""The choices of a blend, compiled. Importing this module imports numba."""

# Numba finds the types itself.
# mypy: disable-error-code="no-untyped-def,untyped-decorator,no-untyped-call"
from __future__ import annotations

import numpy as np

from counterpoise.common.compiling import compiled


@compiled()
def choose(starts, weights, start, counts, datasets, samples):
    """Choose the datasets of samples 0, 1, ... and write those from ``start`` on.

    Sample ``n`` is of the dataset whose due is furthest above its count, the first of equals. A
    dataset without weight is passed over. The due of sample ``n`` counts the samples before it, and
    at sample 0 that sample itself. Within a change it is ``base + weight * (n - first)``, so that a
    single set of weights gives exactly ``weight * n``. Counts are raised in place.
    """
    K = weights.shape[1]
    base = weights[0] * 0.0
    change, first = 0, 0
    for n in range(start + len(datasets)):
        if change + 1 < len(starts) and n == starts[change + 1]:
            for k in range(K):
                base[k] += weights[change, k] * (n - first)
            change, first = change + 1, n
        passed = max(n, 1) - first
        chosen, most = 0, -np.inf
        for k in range(K):
            behind = base[k] + weights[change, k] * passed - counts[k]
            if weights[change, k] > 0.0 and behind > most:
                chosen, most = k, behind
        if n >= start:
            datasets[n - start] = chosen
            samples[n - start] = counts[chosen]
        counts[chosen] += 1
