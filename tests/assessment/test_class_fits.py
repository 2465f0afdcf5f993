"""Classifiers and regressors are assessed by their own losses, in memory and in chunks."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss, mean_poisson_deviance

from counterpoise import (
    Chunks,
    GroupDROClassifier,
    GroupDROClassifierCV,
    GroupDRORegressor,
    assess,
    load,
)
from counterpoise.assessment.folds import fits_by_fold
from counterpoise.assessment.row_losses import row_losses


def rows(n=600, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    groups = rng.choice(["a", "b"], size=n, p=[0.8, 0.2])
    score = X[:, 0] * np.where(groups == "a", 1.5, -1.0) + 0.5 * X[:, 1]
    return X, np.where(score > rng.logistic(size=n), "yes", "no"), groups


def test_losses_are_those_of_scikit_learn():
    X, y, groups = rows()
    model = GroupDROClassifier(nu=0.1).fit(X, y, groups=groups)
    ours = row_losses(model, X, y)
    assert ours.mean() == pytest.approx(log_loss(y, model.predict_proba(X)))
    for k, label in enumerate(model.groups_):
        assert ours[groups == label].mean() == pytest.approx(model.group_risks_[k], rel=1e-9)
    counts = np.random.default_rng(1).poisson(np.exp(0.5 * X[:, 0]))
    poisson = GroupDRORegressor("poisson").fit(X, counts, groups=groups)
    half = mean_poisson_deviance(counts, poisson.predict(X)) / 2
    assert row_losses(poisson, X, counts).mean() == pytest.approx(half)
    huber = GroupDRORegressor("huber").fit(X, counts, groups=groups)
    gap = np.abs(counts - huber.predict(X))
    expected = np.where(gap <= 1, gap**2 / 2, gap - 0.5)
    np.testing.assert_allclose(row_losses(huber, X, counts), expected, rtol=1e-9)


def test_held_out_figures_agree_with_fits_made_by_hand():
    X, y, groups = rows()
    model = GroupDROClassifier(nu=0.1).fit(X, y, groups=groups)
    record = assess(model, X, y, groups, folds=3)
    codes = (y == "yes").astype(int)
    proba = np.full(len(y), np.nan)
    plain = np.full(len(y), np.nan)
    for _, fitted, X_test, test in fits_by_fold(
        {"ours": clone(model)}, X, y, groups, folds=3, classes=codes
    ):
        proba[test] = fitted.predict_proba(X_test)[:, 1]
        train = np.setdiff1d(np.arange(len(y)), test)
        twin = LogisticRegression(C=np.inf, tol=1e-10).fit(X[train], y[train])
        plain[test] = twin.predict_proba(X_test)[:, 1]
    for name, said in (("ours", proba), ("plain", plain)):
        scores = record.classes.scores[name]
        assert 1 - scores.average_error == pytest.approx(np.mean((said > 0.5) == codes))
        side = getattr(record.comparison, name)
        for label in ("a", "b"):
            own = groups == label
            assert side[label].value == pytest.approx(log_loss(codes[own], said[own]), rel=1e-4)
    assert record.comparison.held_out
    assert record.residuals is None
    assert record.diagnosis.classes.tolist() == ["no", "yes"]
    np.testing.assert_allclose(record.risks, model.group_risks_, rtol=1e-9)


def test_chunks_agree_with_memory():
    X, y, groups = rows()
    source = Chunks([(X[k::3], y[k::3], groups[k::3]) for k in range(3)])
    model = GroupDROClassifier(nu=0.1).fit(source)
    record = assess(model, source)
    right = model.predict(X) == y
    ours = record.classes.scores["ours"]
    assert not record.classes.held_out
    assert 1 - ours.average_error == pytest.approx(right.mean())
    assert ours.accuracies["b"].value == pytest.approx(right[groups == "b"].mean())
    np.testing.assert_allclose(record.comparison.ours.values, model.group_risks_, rtol=1e-9)
    assert record.answer.startswith("Worst group's accuracy: ")
    assert "the rows of the fit" in record.unit


def test_a_cross_validated_classifier_brings_the_rows_it_held_out(tmp_path):
    X, y, groups = rows()
    model = GroupDROClassifierCV(cv=3, nus=(0.0, 0.1)).fit(X, y, groups=groups)
    record = assess(model, X, y, groups, folds=3, diagnosis=False)
    ours = record.classes.scores["ours"]
    np.testing.assert_allclose(ours.log_losses.values, model.intervals_.values, rtol=1e-9)
    plain = record.classes.scores["plain"]
    np.testing.assert_allclose(plain.log_losses.values, model.plain_intervals_.values, rtol=1e-9)
    # A stored model has forgotten them, and is fitted again as it was chosen.
    again = assess(load(model.save(tmp_path)), X, y, groups, folds=3, diagnosis=False)
    assert "chosen on the same rows" in again.classes.how
    chosen = assess(model.best_estimator_, X, y, groups, folds=3, diagnosis=False)
    np.testing.assert_allclose(
        again.classes.scores["ours"].errors.values,
        chosen.classes.scores["ours"].errors.values,
        rtol=1e-12,
    )


def test_other_rows_are_noted_and_one_group_alone_is_fine():
    X, y, groups = rows()
    model = GroupDROClassifier(nu=0.1).fit(X, y, groups=groups)
    record = assess(model, X, np.where(y == "yes", "no", "yes"), groups, folds=2, diagnosis=False)
    assert any("these rows are not those of the fit" in note for note in record.data.notes)
    alone = GroupDROClassifier().fit(X, y)
    record = assess(alone, X, y, folds=2)
    assert record.answer.startswith("Accuracy: ")
    bare = assess(alone, X, y, folds=None, diagnosis=False)
    assert bare.classes is None
    assert bare.answer.startswith("Log loss: ")
