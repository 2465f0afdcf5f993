"""Constructed problems: data whose best neuron, or whose difficulty, is known."""

from __future__ import annotations

import numpy as np

from counterpoise.activations import NAMED


def neuron_data(
    K=5, n=400, d=8, *, activation="relu", cond=1.0, spread=0.3, noise=(0.1, 1.0), corrupt=0.0,
    seed=0,
):  # fmt: skip
    """Groups with their own slopes around a common one and their own noise.

    ``cond`` is the condition number of the features' covariance; a share ``corrupt`` of the first
    group's labels is replaced by adversarial ones.
    """
    rng = np.random.default_rng(seed)
    sigma = NAMED[activation]().value
    sizes = np.geomspace(1.0, cond**-0.5, d)
    rotation = np.linalg.qr(rng.normal(size=(d, d)))[0]
    centre = rng.normal(size=d) / np.sqrt(d)
    X, y = [], []
    for i in range(K):
        x = rng.normal(size=(n, d)) * sizes @ rotation.T
        slope = rotation @ ((centre + spread * rng.normal(size=d) / np.sqrt(d)) / sizes)
        labels = sigma(x @ slope) + rng.uniform(*noise) * rng.normal(size=n)
        if i == 0 and corrupt:
            hit = rng.random(n) < corrupt
            labels[hit] = 5.0 - 3.0 * np.abs(labels[hit])
        X.append(x)
        y.append(labels)
    return np.concatenate(X), np.concatenate(y), np.repeat(np.arange(K), n)


def realisable(K=4, n=300, d=6, *, activation="relu", seed=0):
    """Labels that a neuron ``w`` produces exactly in every group: risk zero at ``w``."""
    rng = np.random.default_rng(seed)
    w = rng.normal(size=d)
    w /= np.linalg.norm(w)
    X = np.concatenate([rng.normal(size=(n, d)) * rng.uniform(0.6, 1.4, size=d) for _ in range(K)])
    return X, NAMED[activation]().value(X @ w), np.repeat(np.arange(K), n), w


def linear_with_known_minimiser(K=4, n=200, d=5, *, levels=None, seed=0):
    """Linear groups whose residuals at ``w`` are orthogonal to the features.

    Then ``loss_i(v) = levels_i + mean_i ((v - w).x)^2``: ``w`` minimises every group's loss, so it
    minimises the risk whatever the weights, and the risk there is known.
    """
    rng = np.random.default_rng(seed)
    w = rng.normal(size=d)
    levels = np.linspace(0.2, 1.0, K) if levels is None else np.asarray(levels)
    X, y = [], []
    for level in levels:
        x = rng.normal(size=(n, d)) * rng.uniform(0.5, 1.5, size=d)
        e = rng.normal(size=n)
        e -= x @ np.linalg.lstsq(x, e, rcond=None)[0]
        e *= np.sqrt(level / np.mean(e**2))
        X.append(x)
        y.append(x @ w + e)
    return np.concatenate(X), np.concatenate(y), np.repeat(np.arange(K), n), w, levels


def group_losses(predictions, y, groups):
    return np.array([np.mean((predictions - y)[groups == g] ** 2) for g in np.unique(groups)])


def linear_groups():
    """A small linear problem whose groups want different slopes."""
    return neuron_data(K=4, n=60, d=4, activation="identity", spread=1.0, seed=2)


def least_squares(X, y, weights=None):
    """Coefficients of weighted least squares, the intercept last."""
    root = np.sqrt(np.ones(len(y)) if weights is None else weights)
    Z = np.column_stack([X, np.ones(len(y))])
    return np.linalg.lstsq(Z * root[:, None], y * root, rcond=None)[0]


def coefficients(model):
    return np.append(model.coef_, model.intercept_)
