"""Estimators with overlapping groups: cross-validation, scikit-learn's splits, baselines."""

import warnings

import dask.array as da
import numpy as np
import pytest
import torch
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.model_selection import KFold, cross_validate
from sklearn.utils import _safe_indexing

from counterpoise import (
    Chunks,
    GroupDROClassifier,
    GroupDRONeuron,
    GroupDRONeuronCV,
    GroupDRORegressor,
    Memberships,
)
from counterpoise.baselines import (
    AverageNeuron,
    GroupCVaRNeuron,
    StochasticMirrorNeuron,
)
from counterpoise.rows.backends import TorchBackend


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    n = 400
    X = rng.normal(size=(n, 3))
    matrix = (rng.random((n, 3)) < [0.6, 0.3, 0.4]).astype(float)
    matrix[:, 2] *= matrix[:, 0]
    y = X[:, 0] + X[:, 1] * matrix[:, 1] + 0.3 * rng.normal(size=n)
    return X, y, Memberships(matrix, ["a", "b", "c"])


def test_cross_validation(rows):
    X, y, groups = rows
    found = GroupDRONeuronCV("identity", nus=[np.inf, 0.1, 0.0], truncate=None).fit(
        X, y, groups=groups
    )
    assert found.groups_.tolist() == ["a", "b", "c"]
    assert found.cv_results_["group_risks"].shape == (len(found.cv_results_["nu"]), 3)
    assert found.intervals_.sizes.tolist() == groups.matrix.sum(axis=0).A1.tolist()
    # The candidate "average" is least squares over rows: check its risks by hand.
    folds = list(KFold(4, shuffle=True, random_state=0).split(X))
    given = GroupDRONeuronCV("identity", nus=[0.0], truncate=None, reference=False, cv=folds)
    given.fit(X, y, groups=groups)
    errors = np.empty(len(y))
    for train, test in folds:
        rows_of = [np.column_stack([X[part], np.ones(len(part))]) for part in (train, test)]
        w = np.linalg.lstsq(rows_of[0], y[train], rcond=None)[0]
        errors[test] = (rows_of[1] @ w - y[test]) ** 2
    matrix = groups.matrix.toarray()
    np.testing.assert_allclose(
        given.cv_results_["group_risks"][0], matrix.T @ errors / matrix.sum(axis=0), rtol=1e-6
    )
    assert given.cv_results_["average_risk"][0] == pytest.approx(errors.mean(), rel=1e-6)


def test_cross_validation_of_labels_as_memberships(rows):
    X, y, _ = rows
    codes = np.arange(len(y)) % 3
    folds = list(KFold(3).split(X))
    one, other = (
        GroupDRONeuronCV("identity", nus=[np.inf, 0.1], truncate=None, cv=folds).fit(
            X, y, groups=groups
        )
        for groups in (codes, np.eye(3)[codes])
    )
    np.testing.assert_allclose(
        one.cv_results_["group_risks"], other.cv_results_["group_risks"], rtol=1e-6
    )
    np.testing.assert_allclose(
        one.cv_results_["average_risk"], other.cv_results_["average_risk"], rtol=1e-6
    )


def test_splits_of_scikit_learn(rows):
    X, y, groups = rows
    part = _safe_indexing(groups, np.array([3, 5]))
    np.testing.assert_array_equal(part.matrix.toarray(), groups.matrix[[3, 5]].toarray())
    found = cross_validate(
        GroupDRONeuron("identity", nu=0.1), X, y, cv=3, params={"groups": groups},
        return_estimator=True, error_score="raise",
    )  # fmt: skip
    assert all(model.groups_.tolist() == ["a", "b", "c"] for model in found["estimator"])


def test_baselines(rows):
    X, y, groups = rows
    index, codes = groups.matrix.nonzero()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        for baseline in (AverageNeuron("identity", prior=None), GroupCVaRNeuron("identity")):
            found = baseline.fit(X, y, groups=groups).coef_
            copied = baseline.fit(X[index], y[index], groups=groups.labels[codes]).coef_
            np.testing.assert_allclose(found, copied, atol=1e-3)
    with pytest.raises(ValueError, match="no mixture of these overlapping groups"):
        AverageNeuron("identity").fit(X, y, groups=groups)
    with pytest.raises(ValueError, match="takes one label per row; got memberships"):
        StochasticMirrorNeuron().fit(X, y, groups=groups)


# ---------------------------------------------------------------- classes and other losses


def labels_of(rows, n_classes):
    y = rows[1]
    noisy = y + 0.5 * np.random.default_rng(1).normal(size=len(y))
    return np.array(["low", "mid", "top"])[np.digitize(noisy, [0.0, 0.7][: n_classes - 1])]


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("soft", [False, True])
def test_a_classifier_is_that_to_copies(rows, n_classes, soft):
    X, _, groups = rows
    if soft:
        shares = np.random.default_rng(0).random(groups.shape)
        groups = Memberships(groups.matrix.multiply(shares), groups.labels)
    y = labels_of(rows, n_classes)
    model = GroupDROClassifier(nu=0.02, alpha=1e-4).fit(X, y, groups=groups)
    index, codes = groups.matrix.nonzero()
    copied = GroupDROClassifier(nu=0.02, alpha=1e-4).fit(
        X[index], y[index], groups=groups.labels[codes], sample_weight=groups.matrix.data
    )
    assert model.risk_ == pytest.approx(copied.risk_, rel=1e-7)
    np.testing.assert_allclose(model.coef_, copied.coef_, atol=1e-3)
    np.testing.assert_allclose(model.group_risks_, copied.group_risks_, rtol=1e-4)
    assert model.certificate_.duality_gap < 1e-5
    assert model.risk_ - model.certificate_.duality_gap <= copied.risk_ + 1e-12
    assert "'c' lies within 'a'" in model.status_ or soft


@pytest.mark.parametrize("kind", ["csr", "chunks", "dask", "torch"])
def test_a_classifier_of_other_rows(rows, kind, monkeypatch):
    X, _, groups = rows
    y = labels_of(rows, 2)
    expected = GroupDROClassifier(nu=0.02).fit(X, y, groups=groups)
    given = (X, y, groups)
    if kind == "csr":
        given = (sparse.csr_matrix(X), y, groups)
    elif kind == "chunks":
        parts = [np.arange(len(y))[i::2] for i in range(2)]
        given = (Chunks([(X[p], y[p], groups[p]) for p in parts]), None, None)
    elif kind == "dask":
        given = (da.from_array(X, (100, 3)), y, groups)
    elif kind == "torch":
        monkeypatch.setattr(TorchBackend, "in_place", lambda self, X: True)
        given = (torch.tensor(X), y, torch.tensor(groups.matrix.toarray()))
    found = GroupDROClassifier(nu=0.02).fit(*given)
    assert found.risk_ == pytest.approx(expected.risk_, rel=1e-7)
    np.testing.assert_allclose(found.group_weights_, expected.group_weights_, atol=1e-3)
    assert found.certificate_.duality_gap < 1e-5


@pytest.mark.parametrize("n_classes", [2, 3])
def test_the_plain_classifier_is_logistic_regression(rows, n_classes):
    X, _, groups = rows
    y = labels_of(rows, n_classes)
    plain = GroupDROClassifier(alpha=1e-8).plain_twin().fit(X, y, groups=groups)
    expected = LogisticRegression(C=np.inf, tol=1e-10, max_iter=1000).fit(X, y)
    np.testing.assert_allclose(plain.predict_proba(X), expected.predict_proba(X), atol=1e-3)
    assert plain.risk_ == pytest.approx(log_loss(y, expected.predict_proba(X)), abs=1e-6)


@pytest.mark.parametrize("loss", ["huber", "squared"])
def test_a_regressor_is_that_to_copies(rows, loss):
    X, y, groups = rows
    model = GroupDRORegressor(loss=loss, nu=0.02).fit(X, y, groups=groups)
    index, codes = groups.matrix.nonzero()
    copied = GroupDRORegressor(loss=loss, nu=0.02).fit(
        X[index], y[index], groups=groups.labels[codes]
    )
    assert model.risk_ == pytest.approx(copied.risk_, rel=1e-6)
