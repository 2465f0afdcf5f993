"""GroupDROClassifierCV: what it chooses and by which measure, and how it takes rows."""

import math

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.model_selection import GroupKFold, StratifiedKFold
from sklearn.utils.estimator_checks import parametrize_with_checks

from counterpoise import (
    Frontier,
    GroupDROClassifier,
    GroupDROClassifierCV,
    frontier,
    worst_group_balanced_error,
    worst_group_error,
    worst_group_log_loss,
)
from counterpoise.assessment.measures import SCORINGS


@pytest.mark.slow
@parametrize_with_checks(
    [
        GroupDROClassifierCV(cv=2, nus=[0.3, 0.0]),
        GroupDROClassifierCV(cv=2, nus=[0.1], reference=False, scoring="balanced_error"),
    ]
)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_scikit_learn_conformance(estimator, check):
    check(estimator)


def shifted(seed=0, sizes=(800, 200), classes=2):
    """Groups that follow different features; the smaller one loses from a fit to the average."""
    rng = np.random.default_rng(seed)
    g = np.repeat(np.array(["a", "b"]), sizes)
    X = rng.normal(size=(len(g), 3))
    score = 2 * np.where(g == "a", X[:, 0], X[:, 1]) + rng.logistic(size=len(g))
    names = np.array(["no", "so", "yes"])[[0, 2] if classes == 2 else [0, 1, 2]]
    return X, names[np.searchsorted(np.linspace(-1, 1, classes + 1)[1:-1], score)], g


SCORES = {
    "loss": lambda m, X, y, g: worst_group_log_loss(
        y, m.predict_proba(X), groups=g, classes=m.classes_
    ),
    "error": lambda m, X, y, g: worst_group_error(y, m.predict(X), groups=g),
    "balanced_error": lambda m, X, y, g: worst_group_balanced_error(y, m.predict(X), groups=g),
}


@pytest.mark.slow
@pytest.mark.parametrize("scoring", SCORES)
@pytest.mark.parametrize("classes", [2, 3])
def test_robustness_is_chosen_where_it_pays(scoring, classes):
    X, y, g = shifted(classes=classes)
    model = GroupDROClassifierCV(scoring=scoring, nus=[0.1, 0.0], reference=False)
    model.fit(X, y, groups=g)
    assert model.robust_
    words = scoring.replace("_", " ").replace("loss", "log loss")
    assert model.verdict_.startswith("Chose nu = ")
    assert f". On held-out rows, the {words} of the worst group is " in model.verdict_
    assert model.frontier_.measure == words
    fresh = shifted(1, classes=classes)
    plain = model.plain_twin().fit(X, y, groups=g)
    assert SCORES[scoring](model, *fresh) < 0.9 * SCORES[scoring](plain, *fresh)
    assert isinstance(model.best_estimator_, GroupDROClassifier)
    assert type(model.best_estimator_) is GroupDROClassifier
    np.testing.assert_array_equal(model.predict_proba(X), model.best_estimator_.predict_proba(X))
    np.testing.assert_array_equal(model.classes_, np.unique(y))
    assert model.best_params_["nu"] == model.nu_
    assert model.certificate_.duality_gap < 1e-4


def test_falls_back_to_logistic_regression_where_robustness_does_not_pay():
    """One law for all groups: which is worst is chance, and chasing it only adds variance."""
    rng = np.random.default_rng(3)
    g, X = np.repeat([0, 1, 2, 3], 250), rng.normal(size=(1000, 3))
    y = (X[:, 0] + rng.logistic(size=1000) > 0).astype(int)
    model = GroupDROClassifierCV(nus=[0.5, 0.05, 0.0]).fit(X, y, groups=g)
    assert not model.robust_
    assert model.verdict_.startswith("Chose the plain average over rows")
    assert model.best_params_ == dict(nu=math.inf, prior="rows", alpha=1e-8, reference=None)
    exact = LogisticRegression(C=np.inf, tol=1e-10, max_iter=1000).fit(X, y)
    np.testing.assert_allclose(model.coef_, exact.coef_, atol=1e-4)
    assert model.frontier_.family[model.frontier_.chosen] == "average"


def test_held_out_measures_are_of_rows_the_fits_did_not_see():
    """Every figure again, from fits of the estimator to the training rows of given splits."""
    X, y, g = shifted(sizes=(150, 90))
    splits = list(StratifiedKFold(3, shuffle=True, random_state=0).split(X, y))
    for scoring in ("log_loss", "error", "balanced_error"):
        model = GroupDROClassifierCV(scoring=scoring, nus=[0.2], reference=False, cv=splits)
        model.fit(X, y, groups=g)
        losses = np.zeros((2, len(y)))
        for train, test in splits:
            options = (dict(nu=math.inf, prior="rows"), dict(nu=0.2))
            for c, option in enumerate(options):
                fit = GroupDROClassifier(**option).fit(X[train], y[train], groups=g[train])
                if scoring == "log_loss":
                    chosen = np.searchsorted(fit.classes_, y[test])
                    proba = fit.predict_proba(X[test])
                    losses[c, test] = -np.log(proba[np.arange(len(test)), chosen])
                else:
                    losses[c, test] = fit.predict(X[test]) != y[test]
        weights = np.ones(len(y))
        if scoring == "balanced_error":
            for label in "ab":
                for value in np.unique(y):
                    cell = (g == label) & (y == value)
                    weights[cell] = (g == label).sum() / 2 / cell.sum()
        expected = [
            [np.average(row[g == label], weights=weights[g == label]) for label in "ab"]
            for row in losses
        ]
        np.testing.assert_allclose(model.cv_results_["group_risks"], expected, rtol=1e-3)
        np.testing.assert_allclose(
            model.cv_results_["average_risk"], np.average(losses, axis=1, weights=weights),
            rtol=1e-3,
        )  # fmt: skip


def test_folds_hold_out_every_class_of_every_group():
    from counterpoise.assessment.held_out import stratified_folds

    rng = np.random.default_rng(0)
    codes, classes = rng.integers(0, 3, 300), (rng.random(300) < 0.1).astype(int)
    fold = stratified_folds(codes, 3, 5, np.random.default_rng(1), classes)
    for k in range(3):
        for c in range(2):
            held = np.bincount(fold[(codes == k) & (classes == c)], minlength=5)
            assert np.ptp(held) <= 1, "dealt out evenly"
        assert np.ptp(np.bincount(fold[codes == k], minlength=5)) <= 1
    rare = classes.copy()
    rare[0] = 2
    fold = stratified_folds(codes, 3, 5, np.random.default_rng(1), rare)
    assert fold[0] == -1, "the only row of a class is never held out"


def test_intervals_of_errors_are_wilsons():
    X, y, g = shifted()
    model = GroupDROClassifierCV(scoring="error", nus=[0.0], reference=False).fit(X, y, groups=g)
    found = model.intervals_["b"]
    n, z = 200, 1.959963984540054
    assert found.value * n == pytest.approx(round(found.value * n)), "a share of whole rows"
    for p in (found.low, found.high):
        assert abs(found.value - p) == pytest.approx(z * math.sqrt(p * (1 - p) / n), rel=1e-6)
    assert model.held_out_comparison().ours is model.intervals_


def test_the_ridge_is_chosen_and_the_plain_average_has_its_own():
    rng = np.random.default_rng(0)
    X, g = rng.normal(size=(160, 30)), np.repeat(["a", "b"], [100, 60])
    y = (X[:, 0] + rng.logistic(size=160) > 0).astype(int)
    model = GroupDROClassifierCV(alphas=(1e-8, 0.1), nus=[0.3], reference=False)
    model.fit(X, y, groups=g)
    results = model.cv_results_
    assert results["family"][:2] == ["average, alpha 1e-08", "average, alpha 0.1"]
    np.testing.assert_allclose(results["alpha"], [1e-8, 0.1, 1e-8, 0.1])
    assert results["average_risk"][1] < results["average_risk"][0], "30 features need a ridge"
    assert model.frontier_.plain == 1
    assert model.plain_twin().alpha == 0.1
    assert model.best_params_["alpha"] == 0.1
    assert model.best_estimator_.alpha == 0.1
    assert "alpha 0.1" in str(model.frontier_)


@pytest.mark.slow
def test_kinds_of_rows_agree_and_inputs_are_left_alone():
    X, y, g = shifted(sizes=(120, 60))
    options = dict(nus=[0.2, 0.0], cv=3)
    before = X.copy()
    model = GroupDROClassifierCV(**options).fit(X, y, groups=g)
    np.testing.assert_array_equal(X, before)
    frame = pd.DataFrame(X, columns=list("abc"))
    for rows in (sparse.csr_matrix(X), frame, np.asfortranarray(X)):
        other = GroupDROClassifierCV(**options).fit(rows, pd.Series(y), groups=g)
        np.testing.assert_allclose(other.coef_, model.coef_, atol=1e-6)
        assert other.best_params_["nu"] == pytest.approx(model.best_params_["nu"])
    again = clone(model).fit(X, y, groups=g)
    np.testing.assert_array_equal(again.coef_, model.coef_)


def test_rows_without_weight_are_as_if_absent():
    X, y, g = shifted(sizes=(120, 60))
    w = np.ones(180)
    w[::7] = 0
    model = GroupDROClassifierCV(nus=[0.2], cv=3).fit(X, y, groups=g, sample_weight=w)
    less = GroupDROClassifierCV(nus=[0.2], cv=3).fit(X[w > 0], y[w > 0], groups=g[w > 0])
    np.testing.assert_allclose(model.coef_, less.coef_, atol=1e-8)
    np.testing.assert_allclose(model.intervals_.values, less.intervals_.values)


@pytest.mark.parametrize("kind", [bool, int, float, str, object])
def test_labels_of_any_type(kind):
    X, y, g = shifted(sizes=(60, 40))
    numbers = (y == "yes").astype(int)
    y = y.astype(object) if kind is object else numbers.astype(kind)
    model = GroupDROClassifierCV(nus=[0.2], reference=False, cv=2).fit(X, y, groups=g)
    assert set(model.predict(X).tolist()) <= set(y.tolist())
    assert model.score(X, y) > 0.5


def test_groups_of_one_class_are_spurious_correlations():
    """Groups crossed with the label: every group has one class, and no noise floor."""
    X, y, g = shifted(sizes=(300, 100))
    crossed = np.char.add(g, y)
    model = GroupDROClassifierCV(nus=[0.1, 0.0]).fit(X, y, groups=crossed)
    assert not any(model.cv_results_["reference"])
    assert len(model.groups_) == 4
    assert model.robust_


def test_a_rare_class_and_a_group_of_one_row_stay_in_training():
    X, y, g = shifted(sizes=(90, 60))
    y, g = y.astype(object), g.astype(object)
    y[0], g[1] = "rare", "lonely"
    model = GroupDROClassifierCV(nus=[0.3], reference=False, cv=3).fit(X, y, groups=g)
    assert model.classes_.tolist() == ["no", "rare", "yes"]
    assert "Groups with one row cannot be judged: lonely" in model.verdict_
    assert np.isnan(model.intervals_["lonely"].value)


def test_squared_hinge_is_judged_by_its_own_loss():
    X, y, g = shifted()
    model = GroupDROClassifierCV("squared_hinge", nus=[0.0], reference=False).fit(X, y, groups=g)
    assert "On held-out rows, the squared hinge loss of the worst group is" in model.verdict_
    assert not hasattr(model, "predict_proba")
    with pytest.raises(ValueError, match=r"scoring='log_loss' needs probabilities"):
        GroupDROClassifierCV("squared_hinge", scoring="log_loss").fit(X, y, groups=g)


def test_reference_risks_are_those_of_the_groups_own_fits():
    X, y, g = shifted()
    model = GroupDROClassifierCV(nus=[0.0], reference=True).fit(X, y, groups=g)
    assert model.robust_
    for label in "ab":
        own = g == label
        alone = LogisticRegression(C=np.inf).fit(X[own], y[own])
        loss = log_loss(y[own], alone.predict_proba(X[own])) + 4 / own.sum()
        assert model.best_params_["reference"][label] == pytest.approx(loss, abs=2e-3)


@pytest.mark.slow
def test_frontier_of_a_classifier(tmp_path):
    X, y, g = shifted()
    found = frontier(X, y, g, loss="log", scoring="error", nus=[0.1], reference=False)
    assert isinstance(found, Frontier)
    assert found.measure == "error"
    ax = found.plot(path=tmp_path / "frontier.png")
    assert ax.get_ylabel() == "error, worst group"


@pytest.mark.slow
def test_the_chosen_estimator_takes_its_params_again():
    X, y, g = shifted()
    frame = pd.DataFrame(X, columns=list("abc"))
    model = GroupDROClassifierCV(nus=[0.1, 0.0]).fit(frame, y, groups=g)
    assert model.best_estimator_.feature_names_in_.tolist() == list("abc")
    again = model.chosen_estimator().fit(frame, y, groups=g)
    np.testing.assert_allclose(again.coef_, model.coef_)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            dict(scoring="auc"),
            f"scoring must be one of {', '.join(map(repr, SCORINGS))}; got 'auc'",
        ),
        (dict(alphas=[-1.0]), "alphas must list finite numbers >= 0; got -1.0"),
        (dict(alphas=()), "alphas must list at least one choice"),
        (dict(nus=[-1.0]), "nu must be >= 0; got -1.0"),
        (dict(reference="yes"), "reference must list True or False; got 'yes'"),
        (dict(loss="poisson"), "GroupDRORegressor"),
        (dict(cv=1), "cv must be at least 2 folds; got 1"),
        (dict(prior="even"), "prior='even' is not known"),
    ],
)
def test_bad_options(options, message):
    X, y, g = shifted(sizes=(30, 20))
    with pytest.raises(ValueError, match=message):
        GroupDROClassifierCV(**options).fit(X, y, groups=g)


def test_splits_that_lose_a_class_are_refused():
    X, y, g = shifted(sizes=(60, 40))
    order = np.argsort(y)
    with pytest.raises(ValueError, match="training rows lack a class"):
        GroupDROClassifierCV(cv=GroupKFold(2)).fit(X, y, groups=y)
    with pytest.raises(ValueError, match="a classifier needs at least two"):
        GroupDROClassifierCV().fit(X[order[:20]], y[order[:20]], groups=g[order[:20]])
