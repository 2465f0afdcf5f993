"""A random problem in every storage, its naive sums, and every question an engine answers."""

from itertools import pairwise
from types import SimpleNamespace

import numpy as np
from scipy import sparse

from counterpoise.activations import (
    elu,
    huber_relu,
    identity,
    leaky_relu,
    relu,
    softplus,
)
from counterpoise.rows.groups import GroupedData

NAMED = [identity(), relu(), leaky_relu(0.2), softplus(), elu(), huber_relu(0.3)]


def sizes_of(K):
    """Rows per group: one group, seven of unequal size, or 200 from a single row up."""
    if K == 1:
        return [700]
    if K == 7:
        return [1, 2, 2900, 5, 600, 1489, 3]
    return [1 + (37 * i) % 23 if i % 50 else 800 + i for i in range(K)]


def make(tmp_path, storage="float64", K=7, intercept=True, weighted=False, d=5, seed=0):
    """The same random problem in the storage asked for, and its rows as plain arrays."""
    rng = np.random.default_rng(seed)
    codes = np.repeat(np.arange(K), sizes_of(K))
    n = len(codes)
    X = rng.normal(size=(n, d)) + 0.3
    if storage.startswith("csr"):
        X *= rng.random((n, d)) < 0.5
    if storage in ("float32", "csr32"):
        X = X.astype(np.float32)
    y = rng.normal(size=n) + 0.5
    weights = rng.exponential(size=n) + 0.01 if weighted else None
    stored = X
    if storage == "fortran":
        stored = np.asfortranarray(X)
    elif storage == "memmap":
        X.tofile(tmp_path / "rows.bin")
        stored = np.memmap(tmp_path / "rows.bin", dtype=X.dtype, mode="r", shape=X.shape)
    elif storage.startswith("csr"):
        stored = sparse.csr_matrix(X)
    data = GroupedData.build(stored, y, codes, weights, intercept=intercept)
    full = X.astype(float)
    if intercept:
        full = np.column_stack([full, np.ones(n)])
    rows = SimpleNamespace(
        X=full, y=y, w=np.ones(n) if weights is None else weights, codes=codes, K=K, d=d
    )
    return data, rows


def mean_by_group(rows, per_row):
    """Weighted mean of every group, one group after the other."""
    edges = np.cumsum([0, *sizes_of(rows.K)])
    return np.array(
        [
            np.tensordot(rows.w[a:b], per_row[a:b], axes=1) / rows.w[a:b].sum()
            for a, b in pairwise(edges)
        ]
    )


def close(got, expected, tol=1e-12):
    assert got.shape == expected.shape
    np.testing.assert_allclose(got, expected, rtol=tol, atol=tol * np.abs(expected).max())


def point(rows, seed=1):
    return np.random.default_rng(seed).normal(size=rows.X.shape[1])


def naive_evaluate(rows, sigma, w, surrogate):
    z = rows.X @ w
    residual = sigma.value(z) - rows.y
    factor = sigma.beta if surrogate else sigma.slope(z)
    return (
        mean_by_group(rows, residual**2),
        mean_by_group(rows, (2.0 * factor * residual)[:, None] * rows.X),
    )


def questions(engine, seed=5):
    rng = np.random.default_rng(seed)
    w, K = rng.normal(size=engine.n_coef), engine.n_groups
    mixture = rng.dirichlet(np.ones(K))
    directions = rng.normal(size=(K, engine.n_coef))
    return {
        "evaluate surrogate": lambda: engine.evaluate(w, surrogate=True),
        "evaluate true": lambda: engine.evaluate(w, surrogate=False),
        "curvature per group": lambda: engine.curvature(w, None),
        "curvature weighted": lambda: engine.curvature(w, mixture),
        "second moments": lambda: engine.curvature(None, None),
        "second moment": lambda: engine.curvature(None, mixture),
        "apply_moments": lambda: engine.apply_moments(directions),
        "separation": lambda: engine.separation(directions[:1], w),
        "mean_squares": lambda: engine.mean_squares(mixture),
    }
