"""Fits beside the plain average: held-out predictions, risks by group, residuals."""

import math

import numpy as np
import pytest
from problems import neuron_data
from sklearn.linear_model import LinearRegression

from counterpoise import GroupDRONeuron, GroupDRONeuronCV, risk_intervals
from counterpoise.assessment.comparison import (
    cross_predict,
    held_out_intervals,
    judge_by_choice,
    judge_by_folds,
    judge_by_rows,
    plain_twin,
    residuals_by_group,
)
from counterpoise.assessment.intervals import GroupSums, group_moments
from counterpoise.assessment.record import QUANTILES


@pytest.fixture(scope="module")
def rows():
    X, y, g = neuron_data(K=3, n=90, d=3)
    return X, y, np.array(["a", "b", "c"])[g], np.random.default_rng(0).uniform(0.5, 2.0, len(y))


def test_plain_twin_is_least_squares(rows):
    X, y, groups, weights = rows
    twin = plain_twin(GroupDRONeuron("identity", nu=0.3, divergence="chi2"))
    twin.fit(X, y, groups=groups, sample_weight=weights)
    reference = LinearRegression().fit(X, y, sample_weight=weights)
    np.testing.assert_allclose(twin.coef_, reference.coef_, rtol=1e-8)
    assert twin.intercept_ == pytest.approx(reference.intercept_, rel=1e-8)
    assert plain_twin(GroupDRONeuronCV("relu", fit_intercept=False)).fit_intercept is False


def test_every_row_is_predicted_by_a_fit_that_has_not_seen_it(rows):
    """A label that is far off moves the predictions of all rows but its own."""
    X, y, groups, _ = rows
    model = {"plain": plain_twin(GroupDRONeuron("identity"))}
    before = cross_predict(model, X, y, groups, folds=4)["plain"]
    wrong = y.copy()
    wrong[7] += 1e3
    after = cross_predict(model, X, wrong, groups, folds=4)["plain"]
    assert np.isfinite(before).all()
    same = before == after
    assert same[7]
    # Those held out together with it: a quarter of every group.
    assert 3 * (90 // 4) <= same.sum() <= 3 * (90 // 4 + 1)
    assert before.tolist() == cross_predict(model, X, y, groups, folds=4)["plain"].tolist()


def test_a_single_row_is_never_held_out(rows):
    X, y, groups, _ = rows
    alone = groups.astype("U5")
    alone[0] = "alone"
    made = cross_predict({"m": GroupDRONeuron("identity")}, X, y, alone, folds=3)["m"]
    assert np.flatnonzero(np.isnan(made)).tolist() == [0]
    intervals, average = held_out_intervals(y, made, alone, None)
    assert math.isnan(intervals["alone"].value)
    assert average == pytest.approx(np.mean((y - made)[1:] ** 2))
    with pytest.raises(ValueError, match="two rows or more"):
        cross_predict({"m": GroupDRONeuron()}, X[:3], y[:3], ["a", "b", "c"])


def test_judged_by_folds(rows):
    X, y, groups, weights = rows
    model = GroupDRONeuron("identity", nu=0.1)
    judged = judge_by_folds(model, X, y, groups, weights, folds=3, level=0.9)
    made = cross_predict({"m": model}, X, y, groups, weights, folds=3)["m"]
    expected = risk_intervals(y, made, groups=groups, sample_weight=weights, level=0.9)
    assert judged.ours.values.tolist() == expected.values.tolist()
    assert judged.ours.low.tolist() == expected.low.tolist()
    assert judged.ours_average == pytest.approx(np.average((y - made) ** 2, weights=weights))
    assert judged.held_out
    assert "3 folds" in judged.how


def test_judged_by_choice(rows):
    X, y, groups, _ = rows
    model = GroupDRONeuronCV("identity", nus=[0.0, 1.0], cv=3).fit(X, y, groups=groups)
    judged = judge_by_choice(model)
    np.testing.assert_allclose(judged.plain.values, model.cv_results_["group_risks"][0])
    chosen = model.frontier_.chosen
    np.testing.assert_allclose(judged.ours.values, model.cv_results_["group_risks"][chosen])


def test_judged_by_rows_in_chunks(rows):
    X, y, groups, weights = rows
    ours = GroupDRONeuron("identity", nu=0.0).fit(X, y, groups=groups, sample_weight=weights)
    plain = plain_twin(ours).fit(X, y, groups=groups, sample_weight=weights)
    chunks = [
        (X[i : i + 50], y[i : i + 50], groups[i : i + 50], weights[i : i + 50])
        for i in range(0, len(y), 50)
    ]
    judged = judge_by_rows(plain, ours, chunks, len(y))
    for model, found, average in (
        (plain, judged.plain, judged.plain_average),
        (ours, judged.ours, judged.ours_average),
    ):
        predicted = model.predict(X)
        expected = risk_intervals(y, predicted, groups=groups, sample_weight=weights)
        for name in ("sizes", "values", "low", "high"):
            np.testing.assert_allclose(getattr(found, name), getattr(expected, name), rtol=1e-9)
        np.testing.assert_allclose(found.worst, expected.worst, rtol=1e-9)
        assert average == pytest.approx(np.average((y - predicted) ** 2, weights=weights))
    assert not judged.held_out


def test_sums_of_two_runs_are_those_of_all():
    rng = np.random.default_rng(1)
    losses, codes = rng.exponential(size=400) ** 2, rng.integers(0, 3, 400)
    codes[:100] = rng.integers(0, 2, 100)  # one group is missing from the first run
    weights = rng.uniform(0.1, 1.0, 400)
    whole = GroupSums.of(losses, codes, 4, weights)
    parts = [
        GroupSums.of(losses[s], codes[s], 4, weights[s])
        for s in (slice(0, 100), slice(100, 130), slice(130, 400))
    ]
    merged = parts[0].merge(parts[1]).merge(parts[2])
    for a, b in zip(merged, whole, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-10)
    scaled = group_moments(losses, codes, 4, 7.0 * weights)
    for a, b in zip(scaled, merged.moments(), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9)


def test_residuals(rows):
    X, y, groups, _ = rows
    ours = GroupDRONeuron("relu").fit(X, y, groups=groups)
    plain = plain_twin(ours).fit(X, y, groups=groups)
    found = residuals_by_group(plain, ours, X, y, groups)
    assert found.labels.tolist() == ["a", "b", "c"]
    left = (y - ours.predict(X))[groups == "b"]
    np.testing.assert_allclose(found.ours[1], np.quantile(left, QUANTILES))
    left = (y - plain.predict(X))[groups == "c"]
    np.testing.assert_allclose(found.plain[2], np.quantile(left, QUANTILES))
