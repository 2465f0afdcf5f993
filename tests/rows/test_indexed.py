"""Rows that are too large to copy are read through an index, with the same results to the bit."""

from __future__ import annotations

import numpy as np
import pytest

from counterpoise import (
    GroupDROClassifier,
    GroupDRONeuron,
    GroupDRONeuronCV,
    load,
    side_by_side,
    solve,
)
from counterpoise.baselines import RowChiSquareNeuron
from counterpoise.rows import indexed
from counterpoise.rows.groups import GroupedData
from counterpoise.rows.indexed import IndexedRows, in_order


@pytest.fixture
def scarce(monkeypatch):
    """Leave no memory for a copy, and count the arrays that are not copied."""
    seen = []

    def left():
        seen.append(1)
        return 0.0

    monkeypatch.setattr(indexed, "LARGE", 0)
    monkeypatch.setattr(indexed, "memory_left", left)
    return seen


def rows(n=900, d=7, K=4, dtype=float, seed=0):
    rng = np.random.default_rng(seed)
    X, groups = rng.normal(size=(n, d)).astype(dtype), rng.integers(0, K, n)
    y = np.maximum(X @ rng.normal(size=d) + 0.5 * groups, 0.0) + rng.normal(size=n)
    return X, y, groups, rng.uniform(0.5, 2.0, n)


def test_it_stands_in_for_the_rows_in_that_order():
    X, order = np.arange(12.0).reshape(4, 3), np.array([2, 0, 3])
    found = IndexedRows(X, order)
    assert (found.shape, found.size, found.dtype, len(found)) == ((3, 3), 9, X.dtype, 3)
    for some in (slice(None), slice(1, 3), np.array([2, 2]), np.array([True, False, True])):
        np.testing.assert_array_equal(found[some], X[order][some])
    np.testing.assert_array_equal(np.asarray(found), X[order])
    assert np.asarray(found, dtype=np.float32).dtype == np.float32
    with pytest.raises(ValueError, match="copy"):
        np.asarray(found, copy=False)


def test_an_index_of_an_index_reaches_the_same_array(scarce):
    X = np.arange(12.0).reshape(4, 3)
    twice = in_order(in_order(X, np.array([3, 1, 0])), np.array([2, 0]))
    assert isinstance(twice, IndexedRows)
    assert twice.array is X
    np.testing.assert_array_equal(twice[:], X[[0, 3]])


def test_rows_are_copied_while_there_is_room(monkeypatch):
    X, y, groups, _ = rows()
    monkeypatch.setattr(indexed, "LARGE", 0)
    monkeypatch.setattr(indexed, "memory_left", lambda: 2.0 * X.nbytes)
    assert isinstance(GroupedData.build(X, y, groups).X, np.ndarray)
    monkeypatch.setattr(indexed, "memory_left", lambda: 2.0 * X.nbytes - 1.0)
    assert isinstance(GroupedData.build(X, y, groups).X, IndexedRows)
    # An array in another layout must be copied anyway, and so must whole numbers.
    assert isinstance(GroupedData.build(np.asfortranarray(X), y, groups).X, np.ndarray)
    assert isinstance(GroupedData.build(X, y, np.sort(groups)).X, np.ndarray)  # no copy at all


def fitted(model, X, y, groups, weights):
    model.fit(X, y, groups=groups, sample_weight=weights)
    return np.append(model.coef_, model.intercept_).tobytes()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    "model",
    [
        GroupDRONeuron("relu"),
        GroupDRONeuron("identity", nu=0.0),
        GroupDRONeuron("softplus", nu=0.1, certificate="region"),
        GroupDROClassifier(tol=1e-4),
    ],
    ids=["relu", "identity", "softplus", "classifier"],
)
@pytest.mark.parametrize("weighted", [False, True])
def test_fits_have_the_same_bits(model, dtype, weighted, scarce, monkeypatch):
    X, y, groups, weights = rows(dtype=dtype)
    if isinstance(model, GroupDROClassifier):
        y = y > 1.0
    weights = weights if weighted else None
    found = fitted(model, X, y, groups, weights)
    proof = str(model.certificate_)
    assert scarce
    monkeypatch.setattr(indexed, "memory_left", lambda: np.inf)
    assert fitted(model, X, y, groups, weights) == found
    assert str(model.certificate_) == proof


def test_large_fits_have_the_same_bits(scarce, monkeypatch):
    """With threads, several pieces per group, and compiled kernels for every question."""
    X, y, groups, _ = rows(n=60_000, d=12)
    model = GroupDRONeuron("relu", tol=1e-2)
    found = fitted(model, X, y, groups, None)
    monkeypatch.setattr(indexed, "memory_left", lambda: np.inf)
    assert fitted(model, X, y, groups, None) == found


def test_cross_validation_has_the_same_bits(scarce, monkeypatch):
    X, y, groups, _ = rows()
    found = fitted(GroupDRONeuronCV("relu", cv=3), X, y, groups, None)
    monkeypatch.setattr(indexed, "memory_left", lambda: np.inf)
    assert fitted(GroupDRONeuronCV("relu", cv=3), X, y, groups, None) == found


def test_a_known_group_and_groups_that_overlap(scarce, monkeypatch):
    X, y, groups, _ = rows()
    both = side_by_side({"a": groups, "b": groups % 2})
    known = GroupDRONeuronCV("identity", cv=3, group_known=True)
    found = [
        fitted(GroupDRONeuron("relu"), X, y, both, None),
        known.fit(X, y, groups=groups).predict(X, groups=groups).tobytes(),
    ]
    monkeypatch.setattr(indexed, "memory_left", lambda: np.inf)
    assert [
        fitted(GroupDRONeuron("relu"), X, y, both, None),
        known.fit(X, y, groups=groups).predict(X, groups=groups).tobytes(),
    ] == found


def test_a_checkpoint_may_be_resumed_with_or_without_a_copy(scarce, monkeypatch, tmp_path):
    X, y, groups, _ = rows()
    path = tmp_path / "fit.journal"

    def stop(progress):
        if progress.iteration == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        solve(X, y, groups, activation="relu", checkpoint=path, callback=stop)
    kept = path.read_bytes()
    monkeypatch.setattr(indexed, "memory_left", lambda: np.inf)
    resumed = solve(X, y, groups, activation="relu", checkpoint=path)
    assert len(kept) > 1000
    assert resumed.coef.tobytes() == solve(X, y, groups, activation="relu").coef.tobytes()


def test_losses_of_rows_and_stored_models(scarce, tmp_path):
    X, y, groups, _ = rows()
    RowChiSquareNeuron().fit(X, y, groups=groups)
    model = GroupDRONeuron("relu").fit(X, y, groups=groups)
    model.save(tmp_path / "fit")
    np.testing.assert_array_equal(load(tmp_path / "fit").predict(X), model.predict(X))
    assert model.diagnose_ is not None
