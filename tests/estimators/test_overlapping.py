"""Estimators with overlapping groups: cross-validation, scikit-learn's splits, baselines."""

import warnings

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import KFold, cross_validate
from sklearn.utils import _safe_indexing

from counterpoise import GroupDRONeuron, GroupDRONeuronCV, Memberships
from counterpoise.baselines import (
    AverageNeuron,
    GroupCVaRNeuron,
    StochasticMirrorNeuron,
)


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
