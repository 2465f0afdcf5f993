"""Classifiers by group: figures against scikit-learn, pairs, chunks, any classifier."""

import numpy as np
import pandas as pd
import pytest
from sklearn.dummy import DummyClassifier
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.metrics import (
    accuracy_score,
    balanced_accuracy_score,
    brier_score_loss,
    confusion_matrix,
    log_loss,
)
from sklearn.model_selection import cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC

from counterpoise import compare_classifiers, group_scores
from counterpoise.assessment.classes import Answers, ClassSums, PairedLosses, answers, scores_of
from counterpoise.assessment.folds import fits_by_fold
from counterpoise.rows.memberships import RowGroups


def rows(n=600, classes=2, seed=0):
    """Two groups; the smaller follows the second feature, the larger the first."""
    rng = np.random.default_rng(seed)
    X, g = rng.normal(size=(n, 3)), np.repeat(["large", "small"], [n - n // 5, n // 5])
    z = np.where(g == "large", X[:, 0], X[:, 1]) + 0.3 * rng.normal(size=n)
    names = np.array(["no", "yes", "zoo"])
    return X, names[np.searchsorted(np.linspace(-0.5, 0.5, classes + 1)[1:-1], z)], g


@pytest.mark.parametrize("classes", [2, 3])
def test_every_figure_is_that_of_scikit_learn(classes):
    X, y, g = rows(classes=classes)
    model = LogisticRegression().fit(X[::2], y[::2])
    X, y, g = X[1::2], y[1::2], g[1::2]
    w = np.random.default_rng(1).integers(1, 4, len(y)).astype(float)
    found = group_scores(model, X, y, g, w)
    said, proba = model.predict(X), model.predict_proba(X)
    for k, label in enumerate(["large", "small"]):
        own = g == label
        known = dict(sample_weight=w[own])
        right = accuracy_score(y[own], said[own], **known)
        assert found.accuracies[label].value == pytest.approx(right)
        assert found.log_losses[label].value == pytest.approx(
            log_loss(y[own], proba[own], labels=model.classes_, **known)
        )
        assert 1 - found.balanced_errors[k] == pytest.approx(
            balanced_accuracy_score(y[own], said[own], **known)
        )
        np.testing.assert_allclose(
            found.confusion[k], confusion_matrix(y[own], said[own], labels=model.classes_, **known)
        )
        assert found.accuracies[label].low < right < found.accuracies[label].high
    assert found.average_error == pytest.approx(1 - accuracy_score(y, said, sample_weight=w))
    assert found.average_log_loss == pytest.approx(log_loss(y, proba, sample_weight=w))
    np.testing.assert_allclose(found.confusion_shares("small").sum(axis=1), 1.0)
    assert found.calibration["small"] is not None
    assert str(found).splitlines()[1].startswith("small")


def test_a_classifier_without_probabilities_has_errors_alone():
    X, y, g = rows()
    found = group_scores(LinearSVC().fit(X, y), X, y, g)
    assert found.log_losses is None
    assert found.calibration is None
    assert np.isnan(found.average_log_loss)
    assert "log loss" not in str(found)


def test_rows_are_classified_by_fits_that_had_not_seen_them():
    X, y, g = rows(100)
    folds = [(fit.model.n_seen, fit.rows) for fit in fits_by_fold({"m": Counting()}, X, y, g)]
    assert sorted(np.concatenate([held for _, held in folds]).tolist()) == list(range(100))
    assert all(seen == 100 - len(held) for seen, held in folds)


class Counting(DummyClassifier):
    def fit(self, X, y, sample_weight=None):
        self.n_seen = len(y)
        return super().fit(X, y, sample_weight)


def test_comparison_is_that_of_cross_val_predict():
    """The same folds given to scikit-learn give the same probabilities."""
    X, y, g = rows()
    found = compare_classifiers({"prior": DummyClassifier(), "fit": LogisticRegression()}, X, y, g)
    splits = [
        (np.setdiff1d(np.arange(len(y)), fit.rows), fit.rows)
        for fit in fits_by_fold(
            {"x": DummyClassifier()}, X, y, g, classes=np.unique(y, return_inverse=True)[1]
        )
    ]
    proba = cross_val_predict(LogisticRegression(), X, y, cv=splits, method="predict_proba")
    assert found["fit"].average_log_loss == pytest.approx(log_loss(y, proba))
    assert brier_score_loss(y == "yes", proba[:, 1]) < 0.25
    wrong = (proba[:, 1] > 0.5) != (y == "yes")
    assert found["fit"].average_error == pytest.approx(wrong.mean())
    assert found.baseline == "prior"
    assert list(found.errors) == ["fit"]
    assert found.errors["fit"].verdict(0) == "lower"
    assert found.losses["fit"].change[0] < 0
    text = str(found)
    assert "rows held out in 5 folds" in text
    assert "Worst group's accuracy: " in found.verdict("fit")
    assert "clearly lower error: large" in found.verdict("fit")


def test_groups_and_weights_reach_those_that_take_them():
    X, y, g = rows()
    w = np.random.default_rng(0).random(len(y)) + 0.1
    pipeline = make_pipeline(StandardScaler(), LogisticRegression())
    found = compare_classifiers({"pipe": pipeline, "bare": Counting()}, X, y, g, w)
    assert set(found.scores) == {"pipe", "bare"}
    frame = pd.DataFrame(X, columns=list("abc"))
    same = compare_classifiers(
        {"pipe": pipeline, "bare": Counting()}, frame, pd.Series(y), pd.Series(g), w
    )
    assert same["pipe"].average_log_loss == pytest.approx(found["pipe"].average_log_loss)


def test_classifiers_with_and_without_probabilities_are_compared_by_errors():
    X, y, g = rows()
    found = compare_classifiers({"fit": LogisticRegression(), "svm": LinearSVC()}, X, y, g)
    assert found.losses == {}
    assert found["svm"].log_losses is None
    assert found.errors["svm"].verdict(0) == "not distinguishable"
    assert "log loss" not in found.verdict("svm")


def test_chunks_have_the_same_scores():
    X, y, g = rows(classes=3)
    model = LogisticRegression().fit(X, y)
    w = np.random.default_rng(1).random(len(y))
    groups = RowGroups.of(g, len(y))
    classes, true = np.unique(y, return_inverse=True)
    said = answers(model, X, classes)
    whole = scores_of(said, true, classes, groups, w, 0.95)
    sums = None
    for part in np.array_split(np.random.default_rng(0).permutation(len(y)), 3):
        some = Answers(said.codes[part], said.proba[part])
        new = ClassSums.of(some, true[part], 3, groups.take(part), w[part])
        sums = new if sums is None else sums.merge(new)
    found = sums.scores(classes, groups.labels, 0.95)
    np.testing.assert_allclose(found.errors.low, whole.errors.low)
    np.testing.assert_allclose(found.log_losses.high, whole.log_losses.high)
    np.testing.assert_allclose(found.balanced_errors, whole.balanced_errors)
    np.testing.assert_allclose(found.confusion, whole.confusion)
    assert found.average_error == pytest.approx(whole.average_error)
    assert found.average_log_loss == pytest.approx(whole.average_log_loss)


def test_paired_losses_are_a_t_test():
    from scipy.stats import ttest_1samp

    gaps = np.random.default_rng(0).normal(0.1, 1.0, 40)
    found = PairedLosses.of(gaps, np.array([0]), np.zeros(40, int), None)
    exact = ttest_1samp(gaps, 0).confidence_interval(0.95)
    assert (found.low[0], found.high[0]) == pytest.approx((exact.low, exact.high))
    alone = PairedLosses.of(np.ones(1), np.array([0]), np.zeros(1, int), None)
    assert (alone.low[0], alone.high[0]) == (-np.inf, np.inf)
    assert alone.verdict(0) == "not distinguishable"


def test_a_class_that_a_fit_did_not_see_has_probability_zero():
    X, y, g = rows(classes=3)
    model = LogisticRegression().fit(X[y != "zoo"], y[y != "zoo"])
    said = answers(model, X, np.array(["no", "yes", "zoo"]))
    assert said.proba.shape == (len(y), 3)
    assert not said.proba[:, 2].any()
    with pytest.raises(ValueError, match="label 'zoo'"):
        group_scores(model, X, y, g)


def test_rare_classes_stay_in_training():
    X, y, g = rows(60)
    y = y.astype(object)
    y[0] = "rare"
    found = compare_classifiers({"m": LogisticRegression()}, X, y, g)
    assert found["m"].confusion.sum() == 59, "the only row of its class is never held out"


def test_what_cannot_be_compared():
    X, y, g = rows(60)
    with pytest.raises(TypeError, match="risk_intervals"):
        group_scores(LinearRegression().fit(X, X[:, 0]), X, y, g)
    with pytest.raises(ValueError, match="models must map names"):
        compare_classifiers({}, X, y, g)
    with pytest.raises(ValueError, match="folds"):
        compare_classifiers({"m": LogisticRegression()}, X, y, g, folds=1)
    with pytest.raises(ValueError, match="inconsistent"):
        compare_classifiers({"m": LogisticRegression()}, X, y[:-1], g)
