"""Samples of rows: fair, mergeable, and the same whoever holds the rows."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from counterpoise import Chunks, relu, solve
from counterpoise.rows.backends import open_engine
from counterpoise.rows.sample import LEAST, RowSample


def rows(n=3000, d=4, K=5, seed=0):
    rng = np.random.default_rng(seed)
    codes = np.sort(rng.choice(K, p=np.arange(1, K + 1) / (K * (K + 1) / 2), size=n))
    return rng.normal(size=(n, d)), np.arange(n, dtype=float), codes, np.arange(K)


def test_groups_are_drawn_to_the_cap_without_repetition():
    X, y, codes, labels = rows()
    drawn = RowSample.draw(X, y, codes, labels, None, budget=4 * 5 * 50)
    np.testing.assert_array_equal(drawn.counts, np.bincount(codes))
    assert np.bincount(drawn.codes).tolist() == [50] * 5
    assert len(set(drawn.y.tolist())) == 250
    picked = drawn.y.astype(int)
    np.testing.assert_array_equal(drawn.X, X[picked])
    np.testing.assert_array_equal(drawn.codes, codes[picked])


def test_small_groups_are_kept_whole_and_some_rows_of_all():
    X, y, codes, labels = rows(n=60)
    drawn = RowSample.draw(X, y, codes, labels, None, budget=4 * 5 * 2)
    np.testing.assert_array_equal(
        np.bincount(drawn.codes, minlength=5), np.minimum(np.bincount(codes, minlength=5), LEAST)
    )
    one = RowSample.draw(X, y, codes, labels, None, budget=1)
    assert np.bincount(one.codes).tolist() == [1] * 5, "very many groups: one row each"
    everything = RowSample.draw(X, y, codes, labels, None)
    assert sorted(everything.y.tolist()) == y.tolist()


def test_every_row_has_the_same_chance():
    n, cap, times = 200, 20, np.zeros(200)
    X = np.zeros((n, 1))
    for seed in range(400):
        drawn = RowSample.draw(
            X, np.arange(n) * 1.0, np.zeros(n, int), np.arange(1), None, seed=seed, budget=cap
        )
        times[drawn.y.astype(int)] += 1
    assert times.sum() == 400 * cap
    chi = np.sum((times - 40) ** 2 / 40)
    assert chi < 290, "far from uniform"  # 200 cells


def test_merging_is_drawing_from_both():
    """Keys decide: the merged sample is that of the rows with the smallest keys of both."""
    X, y, codes, labels = rows()
    a, b = slice(0, 1800), slice(1800, 3000)
    one, two = (
        RowSample.draw(X[s], y[s], codes[s], labels, None, seed=i, budget=400)
        for i, s in enumerate((a, b))
    )
    both = one.merge(two, labels)
    np.testing.assert_array_equal(both.counts, np.bincount(codes))
    for k in range(5):
        own = np.concatenate([one.keys[one.codes == k], two.keys[two.codes == k]])
        np.testing.assert_array_equal(np.sort(both.keys[both.codes == k]), np.sort(own)[:20])
    other = two.merge(one, labels)
    np.testing.assert_array_equal(np.sort(both.y), np.sort(other.y))


def test_merging_groups_that_only_one_side_has():
    X = np.arange(6.0)[:, None]
    one = RowSample.draw(X[:3], X[:3, 0], np.array([0, 0, 1]), np.array(["a", "c"]), None)
    two = RowSample.draw(
        sparse.csr_matrix(X[3:]), X[3:, 0], np.array([0, 1, 1]), np.array(["b", "c"]), np.ones(3)
    )
    both = one.merge(two, np.array(["a", "b", "c"]))
    assert both.counts.tolist() == [2, 1, 3]
    assert sparse.issparse(both.X)
    assert both.weights.tolist() == [1.0] * 6
    np.testing.assert_array_equal(both.X.toarray()[:, 0], both.y)
    assert both.codes[both.y == 3.0].tolist() == [1]


def engines():
    X, y, codes, _ = rows()
    yield "memory", (X, y, codes)
    yield "sparse", (sparse.csr_matrix(X), y, codes)
    yield "chunks", (Chunks(lambda: ((X[s:s + 500], y[s:s + 500], codes[s:s + 500])
                                     for s in range(0, 3000, 500))), None, None)  # fmt: skip
    import dask.array as da
    import torch

    yield "dask", (da.from_array(X, chunks=(700, 4)), da.from_array(y, chunks=700), codes)
    yield "torch", (torch.from_numpy(X), torch.from_numpy(y), codes)


@pytest.mark.parametrize(
    ("kind", "given"), list(engines()), ids=lambda v: v if isinstance(v, str) else ""
)
def test_engines_sample_their_rows_without_a_read(kind, given, monkeypatch):
    monkeypatch.setattr("counterpoise.rows.backends.TorchBackend.in_place", lambda *_: True)
    X, _, codes, _ = rows()
    engine = open_engine(*given, None, relu(), intercept=True, centred=True)
    before = engine.passes
    drawn = engine.sample()
    assert engine.passes == before
    np.testing.assert_array_equal(drawn.counts, np.bincount(codes))
    picked = drawn.y.astype(int)
    assert len(set(picked.tolist())) == len(picked)
    dense = drawn.X.toarray() if sparse.issparse(drawn.X) else drawn.X
    np.testing.assert_allclose(dense, X[picked])
    np.testing.assert_array_equal(drawn.labels[drawn.codes], codes[picked])


def test_solutions_carry_their_sample_and_checkpoints_do_not_mind(tmp_path):
    X, _, codes, _ = rows(n=300)
    found = solve(X, np.maximum(X[:, 0], 0), codes, checkpoint=tmp_path / "fit.journal")
    assert found.sample is not None
    assert len(found.sample.y) == 300
