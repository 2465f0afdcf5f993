"""assess() of classifiers: held-out comparison, sources, stored models, diagnosis."""

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from counterpoise import Chunks, GroupDROClassifier, GroupDROClassifierCV, assess, load
from counterpoise.assessment.diagnosis.classes import ClassDiagnosis
from counterpoise.assessment.folds import fits_by_fold


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    g = np.repeat(["large", "small"], [480, 120])
    X = rng.normal(size=(600, 3))
    score = 2 * np.where(g == "large", X[:, 0], X[:, 1]) + rng.logistic(size=600)
    return X, np.where(score > 0, "yes", "no"), g


@pytest.fixture(scope="module")
def record(rows):
    X, y, g = rows
    return assess(GroupDROClassifier(nu=0.0).fit(X, y, groups=g), X, y, g)


def test_the_plain_average_is_logistic_regression_on_held_out_rows(rows, record):
    X, y, g = rows
    proba = np.zeros((600, 2))
    for fit in fits_by_fold(
        {"plain": LogisticRegression(C=np.inf, tol=1e-8)}, X, y, g, classes=(y == "yes").astype(int)
    ):
        proba[fit.rows] = fit.model.predict_proba(fit.X)
    assert record.comparison.plain_average == pytest.approx(log_loss(y, proba), rel=1e-4)
    plain = record.classes["plain"]
    assert plain.average_log_loss == pytest.approx(log_loss(y, proba), rel=1e-4)
    wrong = np.where(proba[:, 1] > 0.5, "yes", "no") != y
    np.testing.assert_allclose(plain.errors.values, [wrong[:480].mean(), wrong[480:].mean()])
    assert record.plain_name == "logistic regression"


def test_both_are_compared_on_the_same_rows(record):
    paired = record.classes.errors["ours"]
    before, after = record.classes["plain"], record.classes["ours"]
    np.testing.assert_allclose(paired.change, after.errors.values - before.errors.values)
    np.testing.assert_allclose(
        record.classes.losses["ours"].change, after.log_losses.values - before.log_losses.values
    )
    assert record.classes.losses["ours"].verdict(1) == "lower", "the small group gains"
    np.testing.assert_allclose(record.comparison.ours.values, after.log_losses.values, rtol=1e-9)
    assert after.calibration["small"].slope.low < after.calibration["small"].slope.high


def test_it_prints_and_writes_a_page(record, tmp_path):
    text = str(record)
    assert "Worst group's accuracy: " in text
    assert "logistic regression -> this fit" in text
    page = record.report(tmp_path / "page.html").read_text(encoding="utf-8")
    assert "do for each group?" in page


def test_diagnosis_is_of_classes_and_survives_storage(record, tmp_path):
    assert isinstance(record.diagnosis, ClassDiagnosis)
    assert record.diagnosis["small"].own_loss < record.diagnosis["small"].average_loss
    folder = record.save(tmp_path / "model")
    assert isinstance(load(folder), GroupDROClassifier)


@pytest.mark.slow
def test_errors_of_a_cross_validated_classifier_are_those_that_chose(rows):
    X, y, g = rows
    model = GroupDROClassifierCV(scoring="error", nus=[0.1, 0.0], reference=False)
    model.fit(X, y, groups=g)
    found = assess(model, X, y, g, diagnosis=False)
    errors = found.classes.scores["ours"].errors.values
    np.testing.assert_allclose(errors, model.intervals_.values, rtol=1e-12)
    # Other labels than those of the fit are judged by fits to them.
    other = assess(model, X, y[::-1].copy(), g, diagnosis=False)
    assert "chosen on the same rows" in other.classes.how


def test_sources_are_compared_on_the_rows_of_the_fit(rows, tmp_path):
    X, y, g = rows
    source = Chunks([(X[i::3], y[i::3], g[i::3]) for i in range(3)])
    model = GroupDROClassifier(nu=0.0).fit(source)
    found = assess(model, source)
    assert not found.comparison.held_out
    np.testing.assert_allclose(found.comparison.ours.values, model.group_risks_, rtol=1e-6)
    np.testing.assert_allclose(found.comparison.plain.values, found.plain_risks, rtol=1e-6)
    whole = GroupDROClassifier(nu=0.0).fit(X, y, groups=g)
    wrong = whole.predict(X) != y
    errors = [wrong[:480].mean(), wrong[480:].mean()]
    np.testing.assert_allclose(found.classes["ours"].errors.values, errors, atol=5e-3)
    paired = found.classes.errors["ours"]
    change = found.classes["ours"].errors.values - found.classes["plain"].errors.values
    np.testing.assert_allclose(paired.change, change, atol=1e-12)
    assert np.isfinite(paired.p_value).all()
    assert found.classes["ours"].calibration is None
    assert isinstance(found.diagnosis, ClassDiagnosis)
    model.save(tmp_path / "model")
    again = assess(load(tmp_path / "model"), source)
    assert again.diagnosis is None, "a stored model keeps no rows, and these are in chunks"
    np.testing.assert_allclose(again.risks, found.risks)


def test_stored_models_are_diagnosed_from_rows_in_memory(rows, tmp_path):
    X, y, g = rows
    GroupDROClassifier(nu=0.0).fit(X, y, groups=g).save(tmp_path / "model")
    found = assess(load(tmp_path / "model"), X, y, g)
    assert isinstance(found.diagnosis, ClassDiagnosis)


def test_pipelines_frames_and_weights(rows):
    X, y, g = rows
    frame = pd.DataFrame(X, columns=list("abc"))
    pipeline = make_pipeline(StandardScaler(), GroupDROClassifier(nu=0.1))
    pipeline.fit(frame, y, groupdroclassifier__groups=g)
    w = np.random.default_rng(0).integers(1, 3, 600).astype(float)
    found = assess(pipeline, frame, pd.Series(y, name="answer"), g, w, diagnosis=False)
    assert any("sample_weight differs" in note for note in found.data.notes)
    assert found.classes["ours"].errors.sizes[1] < 120


def test_squared_hinge_and_three_classes(rows):
    X, y, g = rows
    hinge = assess(GroupDROClassifier("squared_hinge", nu=0.1).fit(X, y, groups=g), X, y, g)
    assert hinge.classes["ours"].log_losses is None
    assert hinge.classes.losses == {}
    assert hinge.comparison.ours.worst.value > 0
    noise = np.random.default_rng(1).normal(size=600)
    three = np.where(X[:, 2] + noise > 0.9, "zoo", y)
    found = assess(GroupDROClassifier(nu=0.1).fit(X, three, groups=g), X, three, g)
    assert found.classes["ours"].confusion.shape == (2, 3, 3)
    assert found.classes["ours"].confusion.sum() == 600


def test_labels_that_the_model_does_not_know(rows):
    X, y, g = rows
    model = GroupDROClassifier().fit(X, y, groups=g)
    with pytest.raises(ValueError, match="maybe"):
        assess(model, X, np.where(np.arange(600) == 5, "maybe", y), g)
