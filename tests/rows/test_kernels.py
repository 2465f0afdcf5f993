"""The fused kernel against plain sums, for every width, precision and order of rows."""

from __future__ import annotations

import numpy as np
import pytest

from counterpoise.activations import relu
from counterpoise.losses import NeuronLoss
from counterpoise.rows import kernels
from counterpoise.rows.compilation import evaluation_kernel, frozen
from counterpoise.rows.engines.memory import make_engine
from counterpoise.rows.engines.row_part import Segments
from counterpoise.rows.groups import GroupedData

ORDERED = np.empty(0, dtype=np.int64)
WIDTHS = [*range(1, 36), 63, 64, 65, 300, 511, 1000, 2047, 2100, 4099]


def problem(n, d, dtype, *, weighted=False):
    rng = np.random.default_rng(d)
    X = rng.normal(size=(n, d)).astype(dtype)
    y, w = rng.normal(size=n), rng.normal(size=d) / np.sqrt(d)
    return X, y, w, rng.uniform(0.5, 2.0, n) if weighted else np.empty(0)


def evaluate(X, y, weights, w, bias, sizes, order=ORDERED):
    """Call the kernel on groups of these sizes; rows of X are in group order, or in ``order``."""
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    starts, stops, n = offsets[:-1], offsets[1:], len(sizes)
    sums = np.full((n, X.shape[1] + 2), np.nan)
    kernel = evaluation_kernel(NeuronLoss(relu()), surrogate=True)
    kernels.evaluate_dense(
        frozen(X.reshape(-1)), order, frozen(y), frozen(weights), w[None, :], np.array([bias]),
        np.zeros(n, dtype=np.int64), starts, stops, np.arange(n), np.full(n, -1), 0, n, kernel,
        sums, np.empty((0, X.shape[1] + 2)),
    )  # fmt: skip
    return sums


def plain_sums(X, y, weights, w, bias, sizes):
    out, lo = [], 0
    for size in sizes:
        rows, labels = X[lo : lo + size].astype(float), y[lo : lo + size]
        gap = np.maximum(rows @ w + bias, 0.0) - labels
        c = gap * weights[lo : lo + size] if weights.size else gap
        out.append([*(c @ rows), c.sum(), c @ gap])
        lo += size
    return np.array(out)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("d", WIDTHS)
def test_sums_of_every_width(d, dtype):
    sizes = [1, 0, 2, 3, 4, 5, 31]
    for weighted in (False, True):
        X, y, w, weights = problem(sum(sizes), d, dtype, weighted=weighted)
        found = evaluate(X, y, weights, w, 0.25, sizes)
        np.testing.assert_allclose(
            found, plain_sums(X, y, weights, w, 0.25, sizes), rtol=1e-11, atol=1e-11
        )
        assert not found[1].any()  # an empty group


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("size", [255, 256, 257, 1031])
@pytest.mark.parametrize("d", [1, 3, 20, 129])
def test_groups_of_many_blocks(d, size, dtype):
    sizes = [size, 7, size + 2]
    X, y, w, weights = problem(sum(sizes), d, dtype, weighted=True)
    found = evaluate(X, y, weights, w, -0.5, sizes)
    np.testing.assert_allclose(
        found, plain_sums(X, y, weights, w, -0.5, sizes), rtol=1e-10, atol=1e-10
    )


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("d", [1, 5, 8, 13, 16, 21, 300, 2100])
def test_rows_through_an_index_give_the_bits_of_sorted_rows(d, dtype):
    sizes = [40, 0, 3, 270]
    X, y, w, weights = problem(sum(sizes), d, dtype, weighted=True)
    order = np.random.default_rng(1).permutation(len(X))
    scattered = np.empty_like(X)
    scattered[order] = X
    sorted_sums = evaluate(X, y, weights, w, 0.1, sizes)
    indexed_sums = evaluate(scattered, y, weights, w, 0.1, sizes, order)
    assert indexed_sums.tobytes() == sorted_sums.tobytes()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("d", [*range(1, 20), 300, 2047])
def test_a_group_sees_no_numbers_of_its_neighbours(d, dtype):
    sizes = [6, 9, 5]
    X, y, w, weights = problem(sum(sizes), d, dtype)
    expected = evaluate(X, y, weights, w, 0.0, sizes)
    X[:6], X[15:] = np.nan, np.inf
    found = evaluate(X, y, weights, w, 0.0, sizes)
    assert found[1].tobytes() == expected[1].tobytes()
    assert not np.isfinite(found[[0, 2]]).all()


def test_sums_do_not_depend_on_the_alignment_of_the_rows():
    X, y, w, weights = problem(50, 37, np.float32)
    expected = evaluate(X, y, weights, w, 0.0, [20, 30])
    for shift in range(1, 17):
        store = np.full(X.size + 32, np.nan, dtype=X.dtype)
        moved = store[shift : shift + X.size].reshape(X.shape)
        moved[:] = X
        assert evaluate(moved, y, weights, w, 0.0, [20, 30]).tobytes() == expected.tobytes()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("n", "d"), [(6000, 301), (700, 2100)])
def test_wide_rows_do_not_depend_on_the_number_of_threads(monkeypatch, n, d, dtype):
    X, y, w, _ = problem(n, d, dtype)
    groups = np.random.default_rng(0).integers(0, 7, n)
    data = GroupedData.build(X, y, groups)
    assert len(Segments.cut(data.offsets, X.size).chunks) > 2
    answers = []
    for threads in ("1", "2", "5"):
        monkeypatch.setenv("OMP_NUM_THREADS", threads)
        loss, grad = make_engine(data, relu()).evaluate(np.append(w, 0.3), surrogate=True)
        answers.append(loss.tobytes() + grad.tobytes())
    assert len(set(answers)) == 1
