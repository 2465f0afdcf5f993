"""Cross-validation of rows that stay where they are, beside the same rows in memory."""

import math

import numpy as np
import pytest
import torch
from scipy import sparse
from sklearn.base import clone
from sklearn.model_selection import GroupKFold
from thread_ranks import on_ranks

from counterpoise import GroupDROClassifierCV, GroupDRONeuronCV, frontier
from counterpoise.activations import relu
from counterpoise.rows import fold_cut
from counterpoise.rows.backends import TorchBackend, open_engine
from counterpoise.rows.engines import torch as tensors
from counterpoise.rows.fold_cut import FoldCut
from counterpoise.rows.sources import Chunks


def table(n=900, d=4, seed=0):
    rng = np.random.default_rng(seed)
    X, groups = rng.normal(size=(n, d)), rng.choice(["a", "b", "c"], n, p=[0.6, 0.3, 0.1])
    slopes = {"a": [1, 0, 0, 1], "b": [0, 1, 0, 1], "c": [-1, 0, 1, 1]}
    z = np.array([row @ slopes[group] for row, group in zip(X, groups, strict=True)])
    return X, np.maximum(z, 0) + 0.3 * rng.normal(size=n), groups, rng.uniform(0.5, 2.0, n)


def chunks(*columns, size=250):
    n = len(columns[1])
    return Chunks(lambda: (tuple(c[i : i + size] for c in columns) for i in range(0, n, size)))


def splits_of(X, y, groups, weights=None, *, n_folds=3, repeats=1):
    labels, numbers = np.unique(groups, return_inverse=True)
    for seed in range(repeats):
        fold = FoldCut(labels, n_folds, seed).folds(X, y, numbers, weights)
        for f in range(n_folds):
            yield np.flatnonzero(fold != f), np.flatnonzero(fold == f)


# Candidates of a ReLU neuron end at a relative accuracy of 1e-5 of the risk that they minimise.
# Where another rounding ends one a step earlier, held-out risks move by more: that of a fold by
# 1.2e-3, measured.
ROUGH, FINE = 5e-3, 1e-5


def assert_alike(far, near, tol=FINE):
    for name in ("nu", "worst_group_risk", "average_risk", "group_risks", "fold_worst"):
        np.testing.assert_allclose(far.cv_results_[name], near.cv_results_[name], rtol=tol)
    assert far.best_params_["prior"] == near.best_params_["prior"]
    size = float(np.abs(near.coef_).max())
    np.testing.assert_allclose(far.coef_, near.coef_, rtol=tol, atol=0.01 * tol * size)
    for name in ("intervals_", "plain_intervals_"):
        mine, theirs = getattr(far, name), getattr(near, name)
        np.testing.assert_array_equal(mine.labels, theirs.labels)
        for part in ("sizes", "values", "low", "high"):
            np.testing.assert_allclose(getattr(mine, part), getattr(theirs, part), rtol=tol)
        np.testing.assert_allclose(mine.worst, theirs.worst, rtol=tol)
    for name, value in near.held_out_averages_.items():
        assert far.held_out_averages_[name] == pytest.approx(value, rel=tol)
    assert far.verdict_ == near.verdict_


@pytest.mark.parametrize("activation", ["relu", "identity"])
@pytest.mark.parametrize("weighted", [False, True])
def test_chunks_are_chosen_as_in_memory(activation, weighted):
    X, y, groups, weights = table()
    own = (weights,) if weighted else ()
    # Noise floors of groups with weighted rows need their squares, which chunks do not keep.
    reference = [False] if weighted else [False, True]
    options = dict(truncate=None, nus=[math.inf, 0.3, 0.0], reference=reference)
    far = GroupDRONeuronCV(activation, cv=3, **options).fit(chunks(X, y, groups, *own))
    near = GroupDRONeuronCV(activation, cv=list(splits_of(X, y, groups, *own)), **options)
    near.fit(X, y, groups, *own)
    tol = ROUGH if activation == "relu" else FINE
    assert_alike(far, near, tol)
    mine, theirs = far.held_out_absolute_, near.held_out_absolute_
    np.testing.assert_allclose(mine.ours, theirs.ours, rtol=tol)
    np.testing.assert_allclose(mine.plain, theirs.plain, rtol=tol)
    assert mine.ours_average == pytest.approx(theirs.ours_average, rel=1e-5)


@pytest.mark.parametrize("scoring", ["loss", "error", "balanced_error"])
@pytest.mark.parametrize("classes", [2, 3])
def test_classes_are_chosen_as_in_memory(scoring, classes):
    X, y, groups, weights = table()
    borders = np.quantile(y, [0.5, 0.8])[: classes - 1]
    label = np.array(["low", "mid", "high"])[np.digitize(y, borders)]
    numbers = np.unique(label, return_inverse=True)[1].astype(float)
    options = dict(nus=[0.1, 0.0], scoring=scoring, reference=False)
    far = GroupDROClassifierCV(cv=3, **options).fit(chunks(X, label, groups, weights))
    splits = list(splits_of(X, numbers, groups, weights))
    near = GroupDROClassifierCV(cv=splits, **options)
    near.fit(X, label, groups, weights)
    assert_alike(far, near)
    np.testing.assert_array_equal(far.predict(X), near.predict(X))


def test_repeats_are_further_partitions():
    X, y, groups, _ = table()
    options = dict(truncate=None, nus=[0.3], reference=False)
    far = GroupDRONeuronCV("identity", cv=3, repeats=2, **options).fit(chunks(X, y, groups))
    near = GroupDRONeuronCV("identity", cv=list(splits_of(X, y, groups, repeats=2)), **options)
    near.fit(X, y, groups)
    np.testing.assert_allclose(
        far.cv_results_["fold_worst"], near.cv_results_["fold_worst"], rtol=1e-7
    )
    assert "3 folds" in far.held_out_comparison().how


def test_one_read_serves_all_fits():
    X, y, groups, _ = table()
    reads = []

    def read():
        reads.append(0)
        yield from ((X[i : i + 300], y[i : i + 300], groups[i : i + 300]) for i in (0, 300, 600))

    model = GroupDRONeuronCV("identity").fit(Chunks(read))
    # Six nus with and without truncation and reference risks, five folds: over a hundred fits.
    assert len(model.cv_results_["nu"]) > 20
    assert len(reads) < 120


def test_default_truncation_uses_a_level_of_the_labels():
    X, y, groups, _ = table()
    y[::50] += 40.0
    far = GroupDRONeuronCV("relu", cv=3, reference=False, nus=[0.1]).fit(chunks(X, y, groups))
    level = {q for q in far.cv_results_["quantile"] if q is not None}
    assert level
    if far.best_params_["truncate"] is not None:
        assert 0 < far.best_params_["truncate"] < 40


def test_a_group_of_one_row_is_never_held_out():
    X, y, groups, _ = table()
    groups = groups.astype("U8")
    groups[7] = "single"
    far = GroupDRONeuronCV("identity", cv=3, nus=[0.3], reference=False, truncate=None)
    far.fit(chunks(X, y, groups))
    assert "Groups with one row cannot be judged: single." in far.verdict_
    assert np.isnan(far.cv_results_["group_risks"][:, list(far.groups_).index("single")]).all()


def test_sparse_chunks_and_models_that_are_stored(tmp_path):
    import counterpoise

    X, y, groups, _ = table()
    X = np.where(np.abs(X) > 0.5, X, 0.0)
    options = dict(cv=3, nus=[0.3], truncate=None)
    dense = GroupDRONeuronCV("relu", **options).fit(chunks(X, y, groups))
    thin = GroupDRONeuronCV("relu", **options).fit(chunks(sparse.csr_matrix(X), y, groups))
    np.testing.assert_allclose(
        thin.cv_results_["group_risks"], dense.cv_results_["group_risks"], rtol=ROUGH
    )
    assert dense.held_out_scores is None
    assert dense.n_features_in_ == 4
    loaded = counterpoise.load(dense.save(tmp_path / "model"))
    np.testing.assert_array_equal(loaded.predict(X), dense.predict(X))
    assert str(loaded.held_out_comparison().ours) == str(dense.intervals_)


def test_the_frontier_reads_chunks():
    X, y, groups, _ = table()
    found = frontier(chunks(X, y, groups), None, cv=3, nus=[1.0, 0.1], truncate=None)
    assert len(found.worst) >= 3


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            dict(cv=[(np.arange(9), np.arange(9, 12))]),
            r"cv must be a number of folds for rows that are not in memory; got .* type Chunks",
        ),
        (dict(cv=GroupKFold(3)), r"cv must be a number of folds .* got GroupKFold"),
        (dict(cv=True), r"cv must be a number of folds .* got True"),
        (
            dict(group_known=True),
            r"group_known=True needs rows in memory; got X of type Chunks. Leave it out, or fit "
            r"GroupDRO\w+CV to a sample",
        ),
        (dict(cv=1), r"cv must be at least 2 folds; got 1"),
        (dict(repeats=0), r"repeats must be a positive integer; got 0"),
    ],
)
@pytest.mark.parametrize("kind", [GroupDRONeuronCV, GroupDROClassifierCV])
def test_what_needs_rows_in_memory(kind, options, message):
    X, y, groups, _ = table(n=60)
    with pytest.raises(ValueError, match=message):
        kind(**options).fit(chunks(X, np.round(y) > 0, groups))


def test_groups_without_two_rows_are_refused():
    X, y, _, _ = table(n=3)
    with pytest.raises(ValueError, match=r"cross-validation needs a group with two rows or more"):
        GroupDRONeuronCV("identity").fit(chunks(X, y, np.arange(3)))


@pytest.mark.parametrize("kind", ["chunks", "dask", "tensor"])
def test_groups_that_overlap_are_refused(kind, monkeypatch):
    X, y, groups, _ = table(n=60)
    member = np.stack([groups == "a", groups != "b"], axis=1).astype(float)
    if kind == "chunks":
        rows = (chunks(X, y, member),)
    elif kind == "dask":
        da = pytest.importorskip("dask.array")
        rows = tuple(da.from_array(values, chunks=20) for values in (X, y, member))
    else:
        stay(monkeypatch)
        rows = (torch.from_numpy(X), y, member)
    with pytest.raises(ValueError, match=r"one group per row unless .* with best_params_ to all"):
        GroupDRONeuronCV("identity").fit(*rows)


def test_a_rare_class_is_named():
    X, _, groups, _ = table(n=200)
    label = (np.arange(200) == 3).astype(int)
    with pytest.raises(ValueError, match=r"but class 1 has too few rows; give more"):
        GroupDROClassifierCV(cv=3, nus=[0.3]).fit(chunks(X, label, groups))


# -- other places for rows -------------------------------------------------------------------


def stay(monkeypatch):
    """Tensors on the CPU stand in for those on a card, which are read where they are."""
    monkeypatch.setattr(TorchBackend, "in_place", lambda self, X: True)


def fitted(kind, monkeypatch, estimator, X, y, *rest):
    """Fit rows that are elsewhere."""
    if kind == "dask":
        da = pytest.importorskip("dask.array")
        lazy = [da.from_array(values, chunks=200) for values in (y, *rest)]
        return estimator.fit(da.from_array(X, chunks=(200, -1)), *lazy)
    if kind == "tensor":
        stay(monkeypatch)
        return estimator.fit(torch.from_numpy(X), y, *rest)
    fits = on_ranks(
        2, lambda c: clone(estimator).fit(c.rows(*(v[c.rank :: 2] for v in (X, y, *rest))))
    )
    np.testing.assert_array_equal(fits[0].coef_, fits[1].coef_)
    return fits[0]


KINDS = ["dask", "tensor", "ranks"]


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_rows_gets_the_same_folds(kind, monkeypatch):
    X, y, groups, weights = table()
    weights[groups == "c"] = 0.0  # and so the group is as good as absent
    model = GroupDRONeuronCV("relu", cv=3, nus=[0.3, 0.0], truncate=None, reference=False)
    expected = clone(model).fit(chunks(X, y, groups, weights))
    found = fitted(kind, monkeypatch, model, X, y, groups, weights)
    assert_alike(found, expected, ROUGH)
    assert found.groups_.tolist() == ["a", "b"]


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_rows_is_classified(kind, monkeypatch):
    X, y, groups, weights = table()
    label = np.array(["low", "mid", "high"])[np.digitize(y, np.quantile(y, [0.5, 0.8]))]
    model = GroupDROClassifierCV(
        cv=3, nus=[0.1, 0.0], scoring="balanced_error", reference=False, alphas=[1e-3]
    )
    expected = clone(model).fit(chunks(X, label, groups, weights))
    found = fitted(kind, monkeypatch, model, X, label, groups, weights)
    assert_alike(found, expected)
    np.testing.assert_array_equal(found.classes_, expected.classes_)


def test_folds_of_a_tensor_are_found_block_by_block(monkeypatch):
    X, y, groups, _ = table()
    stay(monkeypatch)
    monkeypatch.setattr(fold_cut, "BLOCK", 100)
    moved, host = [], tensors.host
    monkeypatch.setattr(
        tensors, "host", lambda v: (moved.append(getattr(v, "shape", ())), host(v))[1]
    )
    cut = FoldCut(np.unique(groups), 3)
    open_engine(torch.from_numpy(X), y, groups, None, relu(), intercept=True, centred=True, cut=cut)
    assert max(shape[0] for shape in moved if len(shape) == 2) == 25


def test_tensors_on_the_cpu_are_rows_in_memory():
    """Folds are stratified, and whatever needs rows in memory is there."""
    X, y, groups, weights = table()
    model = GroupDRONeuronCV("identity", cv=3, nus=[0.3], group_known=True, truncate=None)
    expected = clone(model).fit(X, y, groups, weights)
    found = model.fit(torch.from_numpy(X), torch.from_numpy(y), groups, torch.from_numpy(weights))
    np.testing.assert_array_equal(found.coef_, expected.coef_)
    assert found.verdict_ == expected.verdict_
