"""Metrics, intervals, records and diagnoses of overlapping groups."""

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import balanced_accuracy_score, confusion_matrix, log_loss

from counterpoise import (
    Chunks,
    GroupDROClassifier,
    GroupDROClassifierCV,
    GroupDRONeuron,
    Memberships,
    assess,
    diagnose,
    error_intervals,
    group_balanced_errors,
    group_errors,
    group_log_losses,
    group_risks,
    group_scores,
    load,
    risk_intervals,
    side_by_side,
    worst_group_risk,
)
from counterpoise.assessment.held_out import folds_of
from counterpoise.rows.memberships import RowGroups


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    n = 600
    X = rng.normal(size=(n, 3))
    sex, region = rng.choice(["f", "m"], n, p=[0.3, 0.7]), rng.choice(["n", "s", "w"], n)
    y = X[:, 0] * (1 + 0.5 * (sex == "f")) + X[:, 1] * (region == "s") + 0.3 * rng.normal(size=n)
    return X, y, sex, region


@pytest.fixture(scope="module")
def groups(rows):
    _, _, sex, region = rows
    both = (sex == "f") & (region == "s")
    return pd.DataFrame({"women": sex == "f", "women, south": both, "west": region == "w"})


@pytest.fixture(scope="module")
def model(rows, groups):
    return GroupDRONeuron("identity", nu=0.0).fit(*rows[:2], groups=groups)


def test_metrics(rows, groups, model):
    X, y, *_ = rows
    predicted = model.predict(X)
    errors = (predicted - y) ** 2
    expected = {name: errors[groups[name]].mean() for name in groups}
    found = group_risks(y, predicted, groups=groups)
    assert found == pytest.approx(expected)
    assert found == pytest.approx(dict(zip(model.groups_, model.group_risks_, strict=True)))
    assert worst_group_risk(y, predicted, groups=groups) == pytest.approx(max(expected.values()))
    assert model.worst_group_risk(X, y, groups) == pytest.approx(max(expected.values()))
    weights = np.arange(1.0, len(y) + 1)
    heavy = group_risks(y, predicted, groups=groups, sample_weight=weights)
    own = groups["west"]
    assert heavy["west"] == pytest.approx(np.average(errors[own], weights=weights[own]))
    with pytest.raises(ValueError, match="zero on all rows of group 'west'"):
        group_risks(y, predicted, groups=groups, sample_weight=np.where(own, 0.0, 1.0))


def test_intervals_are_those_of_every_group_alone(rows, groups, model):
    X, y, *_ = rows
    predicted = model.predict(X)
    found = risk_intervals(y, predicted, groups=groups)
    for name in groups:
        own = groups[name].to_numpy()
        alone = risk_intervals(y[own], predicted[own], groups=np.zeros(own.sum()))
        assert found[name] == pytest.approx(alone[0])


def test_folds_hold_out_every_row_once_and_spread_groups(rows, groups):
    soft = Memberships(np.random.default_rng(0).dirichlet(np.ones(3), 600))
    for given in (groups, soft):
        own = RowGroups.of(given, 600)
        fold = folds_of(own, 5, np.random.default_rng(0))
        assert np.bincount(fold).tolist() == [120] * 5
    own = RowGroups.of(groups, 600)
    fold = folds_of(own, 5, np.random.default_rng(0))
    for k in range(3):
        held = np.bincount(fold[own.index[own.codes == k]], minlength=5)
        assert held.max() - held.min() <= 6
    lonely = np.zeros((600, 2))
    lonely[:, 0], lonely[7, 1] = 1.0, 1.0
    assert folds_of(RowGroups.of(lonely, 600), 5, np.random.default_rng(0))[7] == -1


@pytest.mark.parametrize("chunked", [False, True])
def test_a_record(rows, groups, model, chunked, tmp_path):
    X, y, *_ = rows
    if chunked:
        source = Chunks([(X[i::2], y[i::2], groups.iloc[i::2]) for i in range(2)])
        record = assess(model, source)
    else:
        record = assess(model, X, y, groups, folds=3)
    assert record.data.rows == len(y)
    assert "Some groups are nested: 'women, south' lies within 'women'." in record.data.notes
    assert record.data.notes[0].startswith("Groups overlap: ")
    errors = (model.predict(X) - y) ** 2
    expected = [errors[groups[name]].mean() for name in model.groups_]
    np.testing.assert_allclose(record.risks, expected, rtol=1e-9)
    if chunked:  # on the rows of the fit, every row counts once in the average
        assert record.comparison.ours_average == pytest.approx(errors.mean())
    least_squares = np.linalg.lstsq(np.column_stack([X, np.ones(len(y))]), y, rcond=None)[0]
    plain = (np.column_stack([X, np.ones(len(y))]) @ least_squares - y) ** 2
    np.testing.assert_allclose(
        record.plain_risks, [plain[groups[name]].mean() for name in model.groups_], rtol=1e-6
    )
    assert record.comparison.ours.sizes.tolist() == [groups[n].sum() for n in model.groups_]
    assert [g.label for g in record.diagnosis.groups] == model.groups_.tolist()
    assert "lies within" in record.report(tmp_path / "page.html").read_text()
    record.save(tmp_path / "model")
    assert load(tmp_path / "model").groups_.tolist() == model.groups_.tolist()


def test_the_plain_average_is_stored(rows, groups, model, tmp_path):
    plain = model.plain_twin().fit(*rows[:2], groups=groups)
    plain.save(tmp_path / "plain")
    again = load(tmp_path / "plain")
    assert np.isnan(again.group_weights_).all()
    np.testing.assert_array_equal(again.coef_, plain.coef_)


def test_a_diagnosis_is_that_of_copies(rows, groups):
    X, y, sex, region = rows
    both = side_by_side({"sex": sex, "region": region})
    found = diagnose(X, y, both, activation="identity")
    index = np.repeat(np.arange(len(y)), 2)
    labels = np.column_stack([np.char.add("sex=", sex), np.char.add("region=", region)]).ravel()
    copied = diagnose(X[index], y[index], labels, activation="identity")
    for name in ("sex=f", "region=s"):
        assert found[name].rows == copied[name].rows
        assert found[name].noise_floor == pytest.approx(copied[name].noise_floor, rel=1e-6)
        assert found[name].average_loss == pytest.approx(copied[name].average_loss, rel=1e-6)
    assert found.sampled == len(y)


# ---------------------------------------------------------------- classes


@pytest.fixture(scope="module")
def classified(rows):
    X, y, *_ = rows
    return X, np.where(y + np.random.default_rng(1).normal(size=len(y)) > 0, "yes", "no")


def test_errors_and_losses_by_group(classified, groups):
    X, y = classified
    model = GroupDROClassifier(nu=0.0).fit(X, y, groups=groups)
    said, proba = model.predict(X), model.predict_proba(X)
    wrong = said != y
    found = group_errors(y, said, groups=groups)
    assert found == pytest.approx({name: wrong[groups[name]].mean() for name in groups})
    losses = group_log_losses(y, proba, groups=groups, classes=model.classes_)
    assert losses == pytest.approx(dict(zip(model.groups_, model.group_risks_, strict=True)))
    balanced = group_balanced_errors(y, said, groups=groups)
    own = groups["women"].to_numpy()
    expected = 1.0 - balanced_accuracy_score(y[own], said[own])
    assert balanced["women"] == pytest.approx(expected)
    intervals = error_intervals(y, said, groups=groups)
    alone = error_intervals(y[own], said[own], groups=np.zeros(own.sum()))
    assert intervals["women"] == pytest.approx(alone[0])
    scores = group_scores(model, X, y, groups)
    k = model.groups_.tolist().index("women")
    np.testing.assert_allclose(scores.confusion[k], confusion_matrix(y[own], said[own]))
    assert scores.average_error == pytest.approx(wrong.mean())
    assert scores.average_log_loss == pytest.approx(log_loss(y, proba))
    assert scores.balanced_errors[k] == pytest.approx(expected)


@pytest.mark.parametrize("chunked", [False, True])
def test_a_record_of_a_classifier(classified, groups, chunked):
    X, y = classified
    model = GroupDROClassifier(nu=0.0).fit(X, y, groups=groups)
    wrong, proba = model.predict(X) != y, model.predict_proba(X)
    if chunked:
        source = Chunks([(X[i::2], y[i::2], groups.iloc[i::2]) for i in range(2)])
        record = assess(model, source, diagnosis=False)
        assert record.comparison.ours_average == pytest.approx(log_loss(y, proba))
        assert record.classes.scores["ours"].average_error == pytest.approx(wrong.mean())
    else:
        record = assess(model, X, y, groups, folds=3)
    assert record.comparison.ours.sizes.tolist() == [groups[n].sum() for n in model.groups_]
    np.testing.assert_allclose(record.risks, model.group_risks_, rtol=1e-6)
    assert any("lies within" in note for note in record.data.notes)


def test_a_classifier_by_cross_validation(classified, groups):
    X, y = classified
    for scoring in ("log_loss", "balanced_error"):
        model = GroupDROClassifierCV(nus=[np.inf, 0.0], scoring=scoring, cv=3)
        model.fit(X, y, groups=groups)
        assert model.groups_.tolist() == sorted(groups)
        assert model.cv_results_["group_risks"].shape[1] == 3
        assert np.isfinite(model.cv_results_["average_risk"]).all()
        assert model.intervals_.labels.tolist() == sorted(groups)
