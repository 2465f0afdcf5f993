"""Wrappers that use a known group, against their closed forms."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.base import clone, is_classifier, is_regressor
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.neighbors import KNeighborsRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeRegressor

from counterpoise import (
    GroupDROClassifierCV,
    GroupDRONeuron,
    GroupDRONeuronCV,
    Memberships,
    compare_classifiers,
)
from counterpoise.assessment.comparison import cross_predict
from counterpoise.assessment.row_losses import group_argument
from counterpoise.baselines import Balanced, PerGroup, WithGroup

LABELS = np.array(["a", "b", "c"])


def rows(sizes=(60, 40, 30), seed=0, d=2):
    """Groups with their own slopes and intercepts; the rows are mixed."""
    rng = np.random.default_rng(seed)
    codes = rng.permutation(np.repeat(np.arange(len(sizes)), sizes))
    X = rng.normal(size=(len(codes), d))
    slopes = np.array([[1.0, -1.0], [2.0, 0.5], [-3.0, 2.0]])[:, :d]
    y = (X * slopes[codes]).sum(axis=1) + np.array([0.0, 5.0, -4.0])[codes]
    return X, y + 0.3 * rng.normal(size=len(y)), LABELS[codes], codes


def classes(sizes=(90, 70, 60), seed=1):
    X, y, groups, codes = rows(sizes, seed)
    return X, np.array(["no", "surely"])[(y > 0).astype(int)], groups, codes


def dummies(X, codes, K=3):
    return np.column_stack([X, np.eye(K)[codes]])


def lstsq(A, b, w=None):
    root = np.ones(len(b)) if w is None else np.sqrt(w)
    return np.linalg.lstsq(root[:, None] * A, root * b, rcond=None)[0]


# -- the group as a feature ----------------------------------------------------------------------


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_matrix, pd.DataFrame])
@pytest.mark.parametrize(
    "inner",
    [
        LinearRegression(),
        LinearRegression(fit_intercept=False),
        GroupDRONeuron("identity", nu=np.inf, prior="rows", tol=1e-12),
    ],
)
def test_with_group_is_least_squares_with_dummies(inner, kind, weighted):
    X, y, groups, codes = rows()
    w = np.random.default_rng(5).uniform(0.1, 3.0, len(y)) if weighted else None
    frame = kind(X) if kind is not pd.DataFrame else pd.DataFrame(X, columns=["u", "v"])
    model = WithGroup(inner).fit(frame, y, groups=groups, sample_weight=w)
    expected = dummies(X, codes) @ lstsq(dummies(X, codes), y, w)
    np.testing.assert_allclose(model.predict(frame, groups), expected, atol=1e-6)
    assert np.abs(expected - np.column_stack([X, np.ones(len(y))])
                  @ lstsq(np.column_stack([X, np.ones(len(y))]), y, w)).max() > 1  # fmt: skip
    assert model.uses_group_
    assert group_argument(model, groups) == {"groups": groups}
    assert model.groups_.tolist() == ["a", "b", "c"]
    # A shuffled label moves the prediction: the group is used.
    moved = model.predict(frame, np.roll(groups, 1))
    assert np.abs(moved - expected).max() > 1


def test_groups_not_seen_get_no_indicator():
    X, y, groups, _ = rows()
    free = WithGroup(LinearRegression(fit_intercept=False)).fit(X, y, groups=groups)
    others = np.array(["new"] * len(y))
    np.testing.assert_allclose(free.predict(X, others), X @ free.estimator_.coef_[:2])
    # With an intercept, the largest group has no indicator, either.
    linear = WithGroup(LinearRegression()).fit(X, y, groups=groups)
    assert linear.estimator_.n_features_in_ == 2 + 2
    np.testing.assert_allclose(linear.predict(X, others), linear.predict(X, ["a"] * len(y)))
    np.testing.assert_allclose(linear.predict(X, [None] * len(y)), linear.predict(X, others))
    # Trees have an indicator of every group.
    tree = WithGroup(DecisionTreeRegressor(random_state=0)).fit(X, y, groups=groups)
    assert tree.estimator_.n_features_in_ == 2 + 3
    np.testing.assert_allclose(tree.predict(X, groups), y)


def test_groups_and_pipelines_reach_the_estimator():
    X, y, groups, codes = rows()
    pipeline = make_pipeline(StandardScaler(), LinearRegression())
    w = np.random.default_rng(5).uniform(0.1, 3.0, len(y))
    model = WithGroup(pipeline).fit(X, y, groups=groups, sample_weight=w)
    expected = dummies(X, codes) @ lstsq(dummies(X, codes), y, w)
    np.testing.assert_allclose(model.predict(X, groups), expected, atol=1e-8)
    robust = WithGroup(GroupDRONeuron("identity", nu=0.0)).fit(X, y, groups=groups)
    assert robust.estimator_.groups_.tolist() == ["a", "b", "c"]


# -- one fit per group ---------------------------------------------------------------------------


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_matrix])
def test_per_group_is_separate_fits(kind, weighted):
    X, y, groups, codes = rows()
    w = np.random.default_rng(5).uniform(0.1, 3.0, len(y)) if weighted else None
    model = PerGroup(LinearRegression()).fit(kind(X), y, groups=groups, sample_weight=w)
    assert list(model.estimators_) == ["a", "b", "c"]
    found = model.predict(kind(X), groups)
    ones = np.column_stack([X, np.ones(len(y))])
    for k in range(3):
        own = codes == k
        coef = lstsq(ones[own], y[own], None if w is None else w[own])
        np.testing.assert_allclose(found[own], ones[own] @ coef, atol=1e-8)
    pooled = WithGroup(LinearRegression()).fit(X, y, groups, w)
    others = ["new"] * len(y)
    np.testing.assert_allclose(model.predict(kind(X), others), pooled.predict(X, others))


def test_small_groups_share_a_fit():
    sizes = (60, 15, 14)  # five rows for each of three coefficients
    X, y, groups, codes = rows(sizes)
    model = PerGroup(LinearRegression()).fit(X, y, groups=groups)
    assert list(model.estimators_) == ["a", "b"]
    pooled = WithGroup(LinearRegression()).fit(X, y, groups=groups)
    found, small = model.predict(X, groups), codes == 2
    np.testing.assert_allclose(found[small], pooled.predict(X, groups)[small])
    assert np.abs(found[~small] - pooled.predict(X, groups)[~small]).max() > 0.1
    assert list(PerGroup(LinearRegression(), least=4).fit(X, y, groups).estimators_) == [*"abc"]
    assert not PerGroup(LinearRegression(), least=100).fit(X, y, groups).estimators_
    # Rows without weight do not count.
    w = np.ones(len(y))
    w[np.flatnonzero(codes == 1)[0]] = 0.0
    assert list(PerGroup(LinearRegression()).fit(X, y, groups, w).estimators_) == ["a"]


def test_per_group_of_classes():
    X, y, groups, codes = classes()
    y = y.copy()
    y[codes == 1] = "no"  # one class only
    y[(codes == 2) & (X[:, 0] > 1)] = "maybe"  # a class that other groups do not have
    model = PerGroup(LogisticRegression()).fit(X, y, groups=groups)
    assert list(model.estimators_) == ["a", "c"]
    assert model.classes_.tolist() == ["maybe", "no", "surely"]
    proba, said = model.predict_proba(X, groups), model.predict(X, groups)
    np.testing.assert_allclose(proba.sum(axis=1), 1.0)
    own = LogisticRegression().fit(X[codes == 0], y[codes == 0])
    np.testing.assert_allclose(proba[codes == 0][:, [1, 2]], own.predict_proba(X[codes == 0]))
    assert not proba[codes == 0][:, 0].any()
    assert said[codes == 0].tolist() == own.predict(X[codes == 0]).tolist()
    pooled = WithGroup(LogisticRegression()).fit(X, y, groups=groups)
    np.testing.assert_allclose(
        proba[codes == 1], pooled.predict_proba(X[codes == 1], groups[codes == 1])
    )
    own = LogisticRegression().fit(X[codes == 2], y[codes == 2])
    assert said[codes == 2].tolist() == own.predict(X[codes == 2]).tolist()
    assert "maybe" in said[codes == 2]


# -- equal totals --------------------------------------------------------------------------------


@pytest.mark.parametrize("weighted", [False, True])
def test_balanced_is_a_weighted_fit(weighted):
    X, y, groups, codes = rows((100, 20, 5))
    w = np.random.default_rng(5).uniform(0.1, 3.0, len(y)) if weighted else np.ones(len(y))
    model = Balanced(LinearRegression()).fit(X, y, groups, w if weighted else None)
    even = w / np.bincount(codes, w)[codes]
    np.testing.assert_allclose(np.bincount(codes, even), 1.0)
    ones = np.column_stack([X, np.ones(len(y))])
    np.testing.assert_allclose(model.predict(X), ones @ lstsq(ones, y, even), atol=1e-8)
    assert np.abs(model.predict(X) - ones @ lstsq(ones, y, w)).max() > 0.1
    assert group_argument(model, groups) == {}
    # The same as our own plain average with a uniform prior over groups.
    neuron = GroupDRONeuron("identity", nu=np.inf, tol=1e-12).fit(X, y, groups, w)
    np.testing.assert_allclose(model.predict(X), neuron.predict(X), atol=1e-6)


def test_the_weights_of_balanced_have_mean_one():
    seen = {}

    class Listening(LinearRegression):
        def fit(self, X, y, sample_weight=None):
            seen["weights"] = sample_weight
            return super().fit(X, y, sample_weight)

    Balanced(Listening()).fit(np.eye(4), np.arange(4), groups=["a", "a", "a", "b"])
    np.testing.assert_allclose(seen["weights"], [2 / 3, 2 / 3, 2 / 3, 2])
    Balanced(Listening()).fit(np.eye(4), np.arange(4), [*"aaab"], sample_weight=[1, 0, 3, 5])
    np.testing.assert_allclose(seen["weights"], np.array([0.5, 1.5, 2.0]) * 3 / 4)
    # Overlapping groups: the first holds all rows, the second the last one only.
    shared = Memberships([[1, 0], [1, 0], [1, 0], [1, 1]])
    Balanced(Listening()).fit(np.eye(4), np.arange(4), shared)
    np.testing.assert_allclose(seen["weights"], np.array([1, 1, 1, 5]) / 2)


def test_balanced_classes_have_probabilities():
    X, y, groups, codes = classes((200, 20, 10))
    model = Balanced(LogisticRegression()).fit(X, y, groups=groups)
    even = len(y) / 3 / np.bincount(codes)[codes]
    expected = LogisticRegression().fit(X, y, sample_weight=even)
    np.testing.assert_allclose(model.predict_proba(X), expected.predict_proba(X), atol=1e-6)
    assert model.predict(X).tolist() == expected.predict(X).tolist()
    assert model.classes_.tolist() == ["no", "surely"]


# -- on held-out rows ----------------------------------------------------------------------------


def test_held_out_rows_are_predicted_with_their_group():
    X, y, groups, _ = rows()
    known = GroupDRONeuronCV(
        "identity", nus=[0.1], reference=False, truncate=None, cv=3, group_known=True
    )
    models = {
        "plain": LinearRegression(),
        "with": WithGroup(LinearRegression()),
        "own": PerGroup(LinearRegression()),
        "even": Balanced(LinearRegression()),
        "known": known,
    }
    made = cross_predict(models, X, y, groups, folds=3)
    errors = {name: np.mean((y - predicted) ** 2) for name, predicted in made.items()}
    # Only fits that know the group can come near the noise.
    assert max(errors["own"], errors["known"]) < errors["with"] / 5 < errors["plain"] / 10
    assert errors["even"] > errors["with"]
    from counterpoise.assessment.folds import fits_by_fold

    for _, fitted, X_test, test in fits_by_fold({"own": models["own"]}, X, y, groups, folds=3):
        np.testing.assert_array_equal(made["own"][test], fitted.predict(X_test, groups[test]))
    assert is_regressor(models["own"])


def test_held_out_classes_are_predicted_with_their_group():
    X, y, groups, codes = rows((90, 70, 60))
    y = np.where(codes == 1, y < 5, y > np.array([0.0, 5.0, -4.0])[codes])
    models = {
        "plain": LogisticRegression(),
        "own": PerGroup(LogisticRegression()),
        "known": GroupDROClassifierCV(nus=[0.1], cv=3, group_known=True),
    }
    found = compare_classifiers(models, X, y, groups, folds=3)
    errors = {name: scores.average_error for name, scores in found.scores.items()}
    assert max(errors["own"], errors["known"]) < 0.1 < 0.2 < errors["plain"]
    assert found["own"].average_log_loss < found["plain"].average_log_loss / 2
    assert is_classifier(models["own"])


# -- as scikit-learn has it, and errors ----------------------------------------------------------


@pytest.mark.parametrize("made", [WithGroup, PerGroup, Balanced])
def test_parameters_and_clones(made):
    model = made(LogisticRegression(C=3.0))
    assert model.get_params()["estimator__C"] == 3.0
    again = clone(model).set_params(estimator__C=7.0)
    assert (again.estimator.C, model.estimator.C) == (7.0, 3.0)
    assert hasattr(model, "predict_proba")
    assert not hasattr(made(LinearRegression()), "predict_proba")
    X, y, groups, _ = classes()
    assert not hasattr(again.fit(X, y, groups=groups).estimator, "coef_")
    with pytest.raises(NotFittedError):
        model.predict(X, groups)
    with pytest.raises(ValueError, match=r"3 features, but .* expecting 2"):
        again.predict(np.zeros((1, 3)), groups[:1])


def test_missing_values_reach_estimators_that_take_them():
    X, y, groups, _ = rows()
    X = X.copy()
    X[::7, 0] = np.nan
    model = WithGroup(HistGradientBoostingRegressor(random_state=0)).fit(X, y, groups=groups)
    assert np.isfinite(model.predict(X, groups)).all()
    with pytest.raises(ValueError, match="NaN"):
        WithGroup(LinearRegression()).fit(X, y, groups=groups)


@pytest.mark.parametrize("made", [WithGroup, PerGroup, Balanced])
def test_what_a_fit_refuses(made):
    X, y, groups, _ = rows()
    model = made(LinearRegression())
    with pytest.raises(ValueError, match="needs the group of every row; got None"):
        model.fit(X, y)
    with pytest.raises(ValueError, match="requires y"):
        model.fit(X, groups=groups)
    with pytest.raises(ValueError, match="one label for each of the 130 rows"):
        model.fit(X, y, groups=groups[:5])
    with pytest.raises(ValueError, match="missing at 1 row"):
        model.fit(X, y, groups=[None, *groups[1:]])
    with pytest.raises(TypeError, match="cannot be sorted together"):
        model.fit(X, y, groups=[1, *groups[1:]])
    with pytest.raises(ValueError, match="zero for every row"):
        model.fit(X, y, groups, sample_weight=np.zeros(len(y)))
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        model.fit(X, y[:5], groups=groups)
    with pytest.raises(TypeError, match=r"KNeighborsRegressor.fit takes no sample_weight"):
        made(KNeighborsRegressor()).fit(X, y, groups, sample_weight=np.ones(len(y)))


@pytest.mark.parametrize("made", [WithGroup, PerGroup])
def test_what_models_that_use_the_group_refuse(made):
    X, y, groups, codes = rows()
    shared = Memberships(np.eye(3)[codes])
    with pytest.raises(ValueError, match="one group per row; got groups that overlap"):
        made(LinearRegression()).fit(X, y, groups=shared)
    model = made(LinearRegression()).fit(X, y, groups=groups)
    with pytest.raises(ValueError, match="to predict; got None"):
        model.predict(X)
    with pytest.raises(ValueError, match="groups that overlap"):
        model.predict(X, shared)
    with pytest.raises(ValueError, match="one label for each of the 130 rows"):
        model.predict(X, groups[:5])
    with pytest.raises(TypeError, match="give labels of the same type"):
        model.predict(X, codes)
    numbered = made(LinearRegression()).fit(X, y, groups=codes)
    np.testing.assert_allclose(numbered.predict(X, codes), model.predict(X, groups))
    with pytest.raises(TypeError, match="'a', but those of the fit are such as 0"):
        numbered.predict(X, ["a"] * len(y))


def test_balanced_needs_weights_and_per_group_a_whole_number():
    X, y, groups, _ = rows()
    with pytest.raises(TypeError, match="it cannot be balanced"):
        Balanced(KNeighborsRegressor()).fit(X, y, groups=groups)
    with pytest.raises(ValueError, match="least must be a whole number >= 1; got 0"):
        PerGroup(LinearRegression(), least=0).fit(X, y, groups=groups)
