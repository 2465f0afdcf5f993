"""Fits beside the plain average: held-out predictions, risks by group, residuals."""

import math

import numpy as np
import pytest
from problems import neuron_data
from sklearn.linear_model import LinearRegression

from counterpoise import GroupDRONeuron, GroupDRONeuronCV, risk_intervals
from counterpoise.assessment.comparison import (
    compare_by_folds,
    compare_on_rows,
    cross_predict,
    held_out_intervals,
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
    twin = GroupDRONeuron("identity", nu=0.3, divergence="chi2").plain_twin()
    twin.fit(X, y, groups=groups, sample_weight=weights)
    reference = LinearRegression().fit(X, y, sample_weight=weights)
    np.testing.assert_allclose(twin.coef_, reference.coef_, rtol=1e-8)
    assert twin.intercept_ == pytest.approx(reference.intercept_, rel=1e-8)
    assert GroupDRONeuronCV("relu", fit_intercept=False).plain_twin().fit_intercept is False


def test_every_row_is_predicted_by_a_fit_that_has_not_seen_it(rows):
    """A label that is far off moves the predictions of all rows but its own."""
    X, y, groups, _ = rows
    model = {"plain": GroupDRONeuron("identity").plain_twin()}
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
    with pytest.raises(ValueError, match="at least two rows"):
        cross_predict({"m": GroupDRONeuron()}, X[:3], y[:3], ["a", "b", "c"])


def test_compared_by_folds(rows):
    X, y, groups, weights = rows
    model = GroupDRONeuron("identity", nu=0.1)
    compared = compare_by_folds(model, X, y, groups, weights, folds=3, level=0.9)
    made = cross_predict({"m": model}, X, y, groups, weights, folds=3)["m"]
    expected = risk_intervals(y, made, groups=groups, sample_weight=weights, level=0.9)
    assert compared.ours.values.tolist() == expected.values.tolist()
    assert compared.ours.low.tolist() == expected.low.tolist()
    assert compared.ours_average == pytest.approx(np.average((y - made) ** 2, weights=weights))
    assert compared.held_out
    assert "3 folds" in compared.how


def test_a_cross_validated_model_brings_its_own_comparison(rows):
    X, y, groups, _ = rows
    model = GroupDRONeuronCV("identity", nus=[0.0, 1.0], cv=3).fit(X, y, groups=groups)
    compared = model.held_out_comparison()
    np.testing.assert_allclose(compared.plain.values, model.cv_results_["group_risks"][0])
    chosen = model.frontier_.chosen
    np.testing.assert_allclose(compared.ours.values, model.cv_results_["group_risks"][chosen])


def test_compared_on_the_rows_in_chunks(rows):
    X, y, groups, weights = rows
    ours = GroupDRONeuron("identity", nu=0.0).fit(X, y, groups=groups, sample_weight=weights)
    plain = ours.plain_twin().fit(X, y, groups=groups, sample_weight=weights)
    chunks = [
        (X[i : i + 50], y[i : i + 50], groups[i : i + 50], weights[i : i + 50])
        for i in range(0, len(y), 50)
    ]
    compared = compare_on_rows(plain, ours, chunks, len(y))
    for model, found, average in (
        (plain, compared.plain, compared.plain_average),
        (ours, compared.ours, compared.ours_average),
    ):
        predicted = model.predict(X)
        expected = risk_intervals(y, predicted, groups=groups, sample_weight=weights)
        for name in ("sizes", "values", "low", "high"):
            np.testing.assert_allclose(getattr(found, name), getattr(expected, name), rtol=1e-9)
        np.testing.assert_allclose(found.worst, expected.worst, rtol=1e-9)
        assert average == pytest.approx(np.average((y - predicted) ** 2, weights=weights))
    assert not compared.held_out


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
    plain = ours.plain_twin().fit(X, y, groups=groups)
    found = residuals_by_group(plain, ours, X, y, groups)
    assert found.labels.tolist() == ["a", "b", "c"]
    left = (y - ours.predict(X))[groups == "b"]
    np.testing.assert_allclose(found.ours[1], np.quantile(left, QUANTILES))
    left = (y - plain.predict(X))[groups == "c"]
    np.testing.assert_allclose(found.plain[2], np.quantile(left, QUANTILES))
