"""Neurons, or classes, with their own slopes and noise in every group; the rows come shuffled."""

from __future__ import annotations

from functools import partial

import numpy as np

from datasets.source import NEURONS, Source

SIZES = [(5, 2_000, 20), (5, 20_000, 50), (50, 20_000, 100)]
CLASSES = 100_000  # rows beyond which there is no classification: minutes for most peers
STEEP = 3.0  # the classes' scores, in multiples of the neurons'


def neurons(K, n, d, model, *, corrupt=0.0, seed=0):
    """``K`` groups of ``n`` rows with ``d`` features of unequal scale and some correlation.

    Labels of "logistic" are 0 or 1, drawn by the score; every group has its own noise. A share
    ``corrupt`` of the first group's labels is pulled far to the wrong side.
    """
    rng = np.random.default_rng(seed)
    scale, common = np.geomspace(1.0, 0.1, d), rng.normal(size=d) / np.sqrt(d)
    X, y, groups = np.empty((K * n, d)), np.empty(K * n), np.repeat(np.arange(K), n)
    for k in range(K):
        rows = slice(k * n, (k + 1) * n)
        z = rng.normal(size=(n, d)) + 0.5 * rng.normal(size=(n, 1))
        score = z @ (common + 0.3 * rng.normal(size=d) / np.sqrt(d)) + 0.3 * rng.normal()
        clean = np.maximum(score, 0.0) if model == "relu" else score
        noisy = clean + rng.uniform(0.2, 0.6) * rng.normal(size=n)
        y[rows] = rng.logistic(size=n) < STEEP * noisy if model == "logistic" else noisy
        X[rows] = z * scale
    if corrupt:
        hit = np.flatnonzero(rng.random(n) < corrupt)
        y[hit] = 5.0 - 3.0 * np.abs(y[hit])
    order = rng.permutation(K * n)
    return X[order], y[order], groups[order]


def load(model, cache, *, size):
    return neurons(*size, model)


SOURCES = [
    Source(
        name=f"synthetic-{K}x{n}x{d}",
        title=f"synthetic, {K} groups x {n:,} rows x {d} features",
        load=partial(load, size=(K, n, d)),
        models=(*NEURONS, "logistic") if K * n <= CLASSES else NEURONS,
        quick=n <= 2_000,
    )
    for K, n, d in SIZES
]
