"""Scores by group: closed forms, weights, and use as a scikit-learn scorer."""

import math

import numpy as np
import pandas as pd
import pytest
from sklearn import config_context
from sklearn.linear_model import LinearRegression
from sklearn.metrics import make_scorer

from counterpoise import group_risks, risk, robust_risk, worst_group_risk

Y = np.array([0.0, 1.0, 2.0, 3.0, 4.0])
P = np.array([0.0, 2.0, 2.0, 1.0, 4.5])
G = np.array(["b", "a", "b", "a", "c"])
# squared errors: 0, 1, 0, 4, 0.25 -> a: 2.5, b: 0, c: 0.25


def test_group_risks_by_hand():
    got = group_risks(Y, P, groups=G)
    assert got == {"a": 2.5, "b": 0.0, "c": 0.25}
    assert list(got) == ["a", "b", "c"], "in the order of the sorted labels"
    assert all(type(v) is float for v in got.values())


def test_worst_group_by_hand():
    assert worst_group_risk(Y, P, groups=G) == 2.5
    assert type(worst_group_risk(Y, P, groups=G)) is float


def test_one_group_is_the_mean_squared_error():
    expected = np.mean((Y - P) ** 2)
    assert worst_group_risk(Y, P, groups=np.zeros(5)) == pytest.approx(expected, rel=1e-15)
    assert robust_risk(Y, P, groups=np.zeros(5), nu=0.3) == pytest.approx(expected, rel=1e-14)


def test_weights_by_hand():
    w = [1.0, 3.0, 2.0, 1.0, 5.0]
    expected = {"a": (3 * 1 + 1 * 4) / 4, "b": 0.0, "c": 0.25}
    assert group_risks(Y, P, groups=G, sample_weight=w) == expected
    assert worst_group_risk(Y, P, groups=G, sample_weight=w) == 1.75
    for factor in (1e-3, 7.0):
        scaled = group_risks(Y, P, groups=G, sample_weight=factor * np.array(w))
        assert scaled == pytest.approx(expected, rel=1e-14)


def test_integer_weights_are_repeated_rows():
    rng = np.random.default_rng(0)
    y, p = rng.normal(size=(2, 30))
    g, w = rng.integers(0, 4, 30), rng.integers(1, 5, 30)
    again = group_risks(np.repeat(y, w), np.repeat(p, w), groups=np.repeat(g, w))
    assert group_risks(y, p, groups=g, sample_weight=w) == pytest.approx(again, rel=1e-12)


def test_rows_of_zero_weight_do_not_count():
    w = [1.0, 0.0, 1.0, 1.0, 1.0]
    assert group_risks(Y, P, groups=G, sample_weight=w)["a"] == 4.0


@pytest.mark.parametrize("name", ["kl", "chi2"])
@pytest.mark.parametrize("nu", [0.0, 1e-6, 0.4, 1e9])
def test_robust_risk_is_the_risk_of_the_group_means(name, nu):
    expected = risk([2.5, 0.0, 0.25], nu, name)
    assert robust_risk(Y, P, groups=G, nu=nu, divergence=name) == pytest.approx(expected, rel=1e-14)


def test_robust_risk_closed_forms():
    assert robust_risk(Y, P, groups=G, nu=0.0) == 2.5
    mean = (2.5 + 0.0 + 0.25) / 3
    assert robust_risk(Y, P, groups=G, nu=1e12) == pytest.approx(mean, rel=1e-9)
    nu = 0.8
    by_hand = nu * math.log((math.exp(2.5 / nu) + 1.0 + math.exp(0.25 / nu)) / 3)
    assert robust_risk(Y, P, groups=G, nu=nu) == pytest.approx(by_hand, rel=1e-13)
    weighted = robust_risk(Y, P, groups=G, nu=0.0, sample_weight=[1.0, 3.0, 2.0, 1.0, 5.0])
    assert weighted == 1.75


def test_order_of_rows_does_not_matter():
    order = np.random.default_rng(1).permutation(5)
    assert group_risks(Y[order], P[order], groups=G[order]) == group_risks(Y, P, groups=G)


def test_lists_series_and_frames_are_understood():
    frame = pd.DataFrame({"y": Y, "p": P, "g": G}, index=[9, 8, 7, 7, 1])
    expected = group_risks(Y, P, groups=G)
    assert group_risks(frame["y"], frame["p"], groups=frame["g"]) == expected
    assert group_risks(Y.tolist(), P.tolist(), groups=G.tolist()) == expected
    assert group_risks(frame["y"], frame["p"], groups=frame["g"].astype("category")) == expected


def test_labels_keep_their_python_type():
    assert list(group_risks(Y, P, groups=[2, 1, 2, 1, 3])) == [1, 2, 3]
    assert list(group_risks(Y, P, groups=[True, False, True, False, True])) == [False, True]


def test_inputs_are_not_changed():
    arrays = [Y.copy(), P.copy(), G.copy(), np.arange(1.0, 6.0)]
    for a in arrays:
        a.flags.writeable = False
    group_risks(arrays[0], arrays[1], groups=arrays[2], sample_weight=arrays[3])


def test_as_a_scorer():
    X = np.arange(5.0)[:, None]
    model = LinearRegression().fit(X, Y)
    with config_context(enable_metadata_routing=True):
        scorer = make_scorer(worst_group_risk, greater_is_better=False)
        scorer.set_score_request(groups=True)
        assert scorer(model, X, Y + (G == "c"), groups=G) == pytest.approx(-1.0, rel=1e-12)


# -- refusals ------------------------------------------------------------------------------


def test_lengths_must_match():
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        group_risks(Y, P[:-1], groups=G)
    with pytest.raises(ValueError, match=r"each of the 5 rows; got shape \(4,\)"):
        worst_group_risk(Y, P, groups=G[:-1])
    with pytest.raises(ValueError):
        group_risks(Y, P, groups=G, sample_weight=[1.0, 2.0])


def test_a_column_of_predictions_is_refused_or_flattened_but_never_broadcast():
    try:
        got = group_risks(Y, P[:, None], groups=G)
    except ValueError:
        return
    assert got == group_risks(Y, P, groups=G)


def test_a_group_without_weight_is_named():
    with pytest.raises(ValueError, match=r"all rows of group .*'c'"):
        group_risks(Y, P, groups=G, sample_weight=[1.0, 1.0, 1.0, 1.0, 0.0])


@pytest.mark.parametrize("bad", [-0.5, math.nan, math.inf])
def test_bad_weights_are_refused(bad):
    with pytest.raises(ValueError, match="sample_weight"):
        group_risks(Y, P, groups=G, sample_weight=[1.0, bad, 1.0, 1.0, 1.0])


def test_missing_labels_are_refused():
    with pytest.raises(ValueError, match="first at row 1"):
        group_risks(Y, P, groups=np.array(["a", None, "b", "a", "b"], dtype=object))


def test_bad_nu_and_divergence_are_refused():
    with pytest.raises(ValueError, match="nu must be >= 0"):
        robust_risk(Y, P, groups=G, nu=-1.0)
    with pytest.raises(ValueError, match="divergence='tv' is not known"):
        robust_risk(Y, P, groups=G, nu=1.0, divergence="tv")


def test_predictions_that_are_not_finite_are_not_hidden():
    broken = P.copy()
    broken[0] = np.nan
    with pytest.raises(ValueError, match="finite"):
        robust_risk(Y, broken, groups=G, nu=1.0)
    assert math.isnan(worst_group_risk(Y, broken, groups=G))


def test_groups_must_be_given_by_name():
    with pytest.raises(TypeError):
        group_risks(Y, P, G)
