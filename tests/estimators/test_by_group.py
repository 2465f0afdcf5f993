"""Fits that use a known group: the group as a feature, one fit per group, and partial pooling."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.model_selection import KFold, StratifiedKFold

import counterpoise
from counterpoise import (
    GroupDROClassifierCV,
    GroupDRONeuron,
    GroupDRONeuronCV,
    Memberships,
    assess,
)
from counterpoise.estimators.by_group import ENOUGH, _pseudo_rows, by_group, group_scores, own_fits
from counterpoise.estimators.designs import FEATURE, OWN
from counterpoise.estimators.search import Moments
from counterpoise.losses import get_loss
from counterpoise.rows.group_indicators import with_indicators
from counterpoise.solver.options import FitOptions

LINEAR = FitOptions(activation="identity")
SMALL = dict(nus=[0.1], truncate=None, reference=False, group_known=True)


def rows(seed=0, sizes=(70, 50, 40), d=3, kind="slopes", noise=0.2):
    """Groups that differ in all slopes, or in the intercept only; the rows are mixed."""
    rng = np.random.default_rng(seed)
    g = rng.permutation(np.repeat(np.array(["a", "b", "c"])[: len(sizes)], sizes))
    codes = np.searchsorted(["a", "b", "c"], g)
    X = rng.normal(size=(len(g), d)) * np.linspace(0.5, 3.0, d)
    slopes = np.random.default_rng(9).normal(size=(3, d))
    if kind == "shifts":
        slopes[:] = slopes[0]
    y = (X * slopes[codes]).sum(axis=1) + np.array([0.0, 2.0, -3.0])[codes]
    return X, y + noise * rng.normal(size=len(g)), g, codes


def with_ones(X):
    return np.column_stack([X, np.ones(len(X))])


def weighted_least_squares(A, b, w):
    root = np.sqrt(w)
    return np.linalg.lstsq(root[:, None] * A, root * b, rcond=None)[0]


# -- coefficients by group -----------------------------------------------------------------------


@pytest.mark.parametrize("base", [None, 0, 1])
@pytest.mark.parametrize("n_scores", [1, 3])
def test_scores_by_group_are_those_of_features_and_indicators(base, n_scores):
    X, _, _, codes = rows()
    wide = with_indicators(X, codes, 3, base)
    kept = [k for k in range(3) if k != base]
    np.testing.assert_array_equal(wide[:, :3], X)
    np.testing.assert_array_equal(wide[:, 3:], np.eye(3)[codes][:, kept])
    coefs = np.random.default_rng(1).normal(size=(n_scores, 3 + len(kept) + 1))
    expected = wide @ coefs[:, :-1].T + coefs[:, -1]
    each = by_group(coefs, 3, 3, base)
    assert each.shape == (3, n_scores, 4)
    np.testing.assert_allclose(group_scores(X, codes, each), expected, atol=1e-12)
    thin = sparse.csr_matrix(X)
    wide_thin = with_indicators(thin, codes, 3, base)
    assert wide_thin.format == "csr"
    np.testing.assert_array_equal(wide_thin.toarray(), wide)
    np.testing.assert_allclose(group_scores(thin, codes, each), expected, atol=1e-12)


def test_indicators_keep_the_precision_of_the_features():
    X, _, _, codes = rows()
    for single in (X.astype(np.float32), sparse.csr_matrix(X.astype(np.float32))):
        assert with_indicators(single, codes, 3, 0).dtype == np.float32


# -- fits of single groups: least squares --------------------------------------------------------


def pooled_of(X, y, codes, w):
    """Weighted least squares with dummies, by group: (K, 1, d + 1)."""
    dummies = np.eye(3)[codes]
    coef = weighted_least_squares(np.hstack([X, dummies]), y, w)
    d = X.shape[1]
    return np.array([[np.append(coef[:d], coef[d + k])] for k in range(3)])


@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_matrix])
@pytest.mark.parametrize("pull", [1.0, 10.0])
def test_partial_pooling_is_a_ridge_and_is_least_squares_with_pseudo_rows(pull, kind):
    X, y, _, codes = rows()
    w = np.random.default_rng(2).uniform(0.5, 2.0, len(y))
    pooled, p = pooled_of(X, y, codes, w), 4
    found = own_fits(kind(X), y, codes, w, pooled, LINEAR, pull)
    assert found.shape == (3, 1, p)
    some, own = _pseudo_rows(len(y), p), w / w.mean()
    P = with_ones(X)[some]
    moment = P.T @ P / len(some)
    for k in range(3):
        mine, prior = codes == k, pooled[k, 0]
        A, b, v = with_ones(X[mine]), y[mine], own[mine]
        # The closed form of the ridge towards the pooled coefficients.
        penalty = pull * p * moment
        closed = np.linalg.solve(A.T @ (v[:, None] * A) + penalty, A.T @ (v * b) + penalty @ prior)
        np.testing.assert_allclose(found[k, 0], closed, atol=1e-9)
        # Rows of all groups with the labels of the pooled fit, p * pull rows in all.
        weights = np.concatenate([v, np.full(len(some), pull * p / len(some))])
        stacked = weighted_least_squares(np.vstack([A, P]), np.append(b, P @ prior), weights)
        np.testing.assert_allclose(found[k, 0], stacked, atol=1e-9)
        alone = weighted_least_squares(A, b, v)
        assert np.linalg.norm(found[k, 0] - prior) < np.linalg.norm(alone - prior)


def test_the_pull_leads_from_own_fits_to_the_pooled_ones():
    X, y, _, codes = rows()
    w = np.ones(len(y))
    pooled = pooled_of(X, y, codes, w)
    fits = [own_fits(X, y, codes, w, pooled, LINEAR, pull) for pull in (0.0, 1e-9, 1.0, 1e9)]
    np.testing.assert_allclose(fits[1], fits[0], atol=1e-6)
    np.testing.assert_allclose(fits[3], pooled, atol=1e-6)
    way = [np.linalg.norm(fit - pooled) for fit in fits]
    assert way[0] > way[2] > way[3]


def test_without_a_pull_groups_are_fitted_alone_or_kept_if_they_are_small():
    """Five rows per coefficient are enough: 20 for three features and an intercept."""
    assert ENOUGH == 5.0
    X, y, _, codes = rows(sizes=(70, 20, 19))
    w = np.random.default_rng(2).uniform(0.5, 2.0, len(y))
    pooled = pooled_of(X, y, codes, w)
    before = pooled.copy()
    found = own_fits(X, y, codes, w, pooled, LINEAR, 0.0)
    np.testing.assert_array_equal(pooled, before)
    for k in (0, 1):
        mine = codes == k
        alone = weighted_least_squares(with_ones(X[mine]), y[mine], w[mine])
        np.testing.assert_allclose(found[k, 0], alone, atol=1e-9)
        assert np.abs(found[k] - pooled[k]).max() > 0.1
    np.testing.assert_array_equal(found[2], pooled[2])
    # A pull needs no minimum, and a group without rows stays as it is.
    assert np.abs(own_fits(X, y, codes, w, pooled, LINEAR, 1.0)[2] - pooled[2]).max() > 0.01
    seen = codes != 2
    for pull in (0.0, 1.0):
        less = own_fits(X[seen], y[seen], codes[seen], w[seen], pooled, LINEAR, pull)
        np.testing.assert_array_equal(less[2], pooled[2])


def test_the_unit_of_weights_and_features_does_not_matter():
    X, y, _, codes = rows()
    w = np.random.default_rng(2).uniform(0.5, 2.0, len(y))
    units = np.array([1e-4, 1.0, 1e5])
    pooled = pooled_of(X, y, codes, w)
    found = own_fits(X, y, codes, w, pooled, LINEAR, 1.0)
    np.testing.assert_allclose(
        own_fits(X, y, codes, 1e3 * w, pooled, LINEAR, 1.0), found, rtol=1e-9
    )
    scale = np.append(units, 1.0)
    scaled = own_fits(X * units, y, codes, w, pooled / scale, LINEAR, 1.0)
    np.testing.assert_allclose(scaled * scale, found, rtol=1e-6)


def test_directions_that_a_group_does_not_show_stay_pooled():
    X, y, _, codes = rows()
    X = X.copy()
    X[codes == 0, 1] = 0.0
    w = np.ones(len(y))
    pooled = pooled_of(X, y, codes, w)
    found = own_fits(X, y, codes, w, pooled, LINEAR, 0.0)
    assert found[0, 0, 1] == pytest.approx(pooled[0, 0, 1], abs=1e-12)
    assert np.isfinite(found).all()


@pytest.mark.parametrize("activation", ["identity", "leaky_relu"])
def test_groups_have_intercepts_even_where_the_fit_has_none(activation):
    """Indicators of all groups are intercepts; those of fits of single groups are no different."""
    X, y, _, codes = rows(noise=0.0)
    y = np.where(y > 0, y, 0.1 * y) if activation == "leaky_relu" else y
    w = np.ones(len(y))
    pooled = pooled_of(X, y, codes, w)
    with_, without = (
        FitOptions(activation=activation, fit_intercept=flag, tol=1e-9) for flag in (True, False)
    )
    for pull in (0.0, 1.0):
        found = own_fits(X, y, codes, w, pooled, without, pull)
        np.testing.assert_allclose(found, own_fits(X, y, codes, w, pooled, with_, pull), atol=1e-9)
    if activation == "identity":
        exact = own_fits(X, y, codes, w, pooled, without, 0.0)
        np.testing.assert_allclose(group_scores(X, codes, exact)[:, 0], y, atol=1e-9)


# -- fits of single groups: other losses ---------------------------------------------------------


def labels_of(X, y, classes):
    noise = np.random.default_rng(4).logistic(size=len(y))
    return np.searchsorted([-1.0, 1.5][: classes - 1], y + noise).astype(float)


def class_options(classes):
    return FitOptions(loss=get_loss("log") if classes == 2 else _multinomial(classes), tol=1e-10)


def _multinomial(classes):
    from counterpoise.estimators.classes import row_loss

    return row_loss("log", classes)


@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_matrix])
@pytest.mark.parametrize("classes", [2, 3])
def test_own_fits_of_classes_are_logistic_regressions(classes, kind):
    X, y, _, codes = rows(sizes=(300, 250, 60), noise=1.0)
    labels = labels_of(X, y, classes)
    S = 1 if classes == 2 else 3
    pooled = 0.1 * np.random.default_rng(5).normal(size=(3, S, 4))
    w = np.ones(len(y))
    found = own_fits(kind(X), labels, codes, w, pooled, class_options(classes), 0.0)
    for k in range(3):
        mine = codes == k
        exact = LogisticRegression(C=np.inf, tol=1e-10, max_iter=5000).fit(X[mine], labels[mine])
        chances = exact.predict_proba(X)
        scores = X @ found[k, :, :-1].T + found[k, :, -1]
        ours = np.column_stack([np.zeros(len(X)), scores]) if S == 1 else scores
        ours = np.exp(ours - ours.max(axis=1, keepdims=True))
        np.testing.assert_allclose(ours / ours.sum(axis=1, keepdims=True), chances, atol=2e-4)


def test_pulled_fits_of_classes_are_logistic_regressions_with_pseudo_rows():
    X, y, _, codes = rows(sizes=(300, 100, 60), noise=1.0)
    labels = labels_of(X, y, 2)
    pooled = np.random.default_rng(5).normal(size=(3, 1, 4))
    found = own_fits(X, labels, codes, np.ones(len(y)), pooled, class_options(2), 5.0)
    some = _pseudo_rows(len(y), 4)
    for k in range(3):
        mine = codes == k
        right = 1 / (1 + np.exp(-(with_ones(X[some]) @ pooled[k, 0])))
        share = 5.0 * 4 / len(some)
        exact = LogisticRegression(C=np.inf, tol=1e-10, max_iter=5000).fit(
            np.vstack([X[mine], X[some], X[some]]),
            np.concatenate([labels[mine], np.zeros(len(some)), np.ones(len(some))]),
            sample_weight=np.concatenate([np.ones(mine.sum()), share * (1 - right), share * right]),
        )
        expected = np.append(exact.coef_, exact.intercept_)
        np.testing.assert_allclose(found[k, 0], expected, atol=2e-3)


def test_a_group_that_lacks_a_class_keeps_its_pooled_fit_unless_it_is_pulled():
    X, y, _, codes = rows(sizes=(100, 100, 100), noise=1.0)
    labels = labels_of(X, y, 2)
    labels[codes == 1] = 1.0
    pooled = 0.3 * np.random.default_rng(5).normal(size=(3, 1, 4))
    w = np.ones(len(y))
    alone = own_fits(X, labels, codes, w, pooled, class_options(2), 0.0)
    np.testing.assert_array_equal(alone[1], pooled[1])
    assert np.abs(alone[0] - pooled[0]).max() > 0.1
    pulled = own_fits(X, labels, codes, w, pooled, class_options(2), 1.0)
    own = codes == 1
    before, after = (group_scores(X[own], codes[own], fit).mean() for fit in (pooled, pulled))
    assert after > before, "its rows are all of class 1"


# -- losses of candidates ------------------------------------------------------------------------


@pytest.mark.parametrize("level", [1.0, 1e7])
def test_moments_give_the_covariance_of_losses(level):
    """Also for losses whose differences are tiny beside their level."""
    rng = np.random.default_rng(0)
    codes = rng.permutation(np.repeat([0, 1, 3], [50, 70, 30]))
    common = level * rng.gamma(2.0, size=(150, 1))
    amounts = common + rng.normal(size=(150, 4)) * np.array([0.1, 0.1, 1.0, 3.0])
    moments = Moments(4, 4)
    for part in np.array_split(rng.permutation(150), 7):
        moments.add(amounts[part], codes[part], np.ones(len(part)))
    spread = moments.spread()
    for k in (0, 1, 3):
        own = amounts[codes == k]
        np.testing.assert_allclose(spread[k], np.cov(own.T, bias=True), rtol=1e-9, atol=1e-9)
        gaps = np.cov((own[:, 1:] - own[:, :1]).T, bias=True)
        found = spread[k][1:, 1:] - spread[k][1:, :1] - spread[k][:1, 1:] + spread[k][0, 0]
        np.testing.assert_allclose(found, gaps, atol=1e-13 * level**2 + 1e-9)
    np.testing.assert_array_equal(spread[2], 0.0)


def test_weights_count_squared_in_the_covariance():
    rng = np.random.default_rng(0)
    amounts, w = rng.normal(size=(80, 3)), rng.uniform(0.1, 3.0, 80)
    moments = Moments(3, 1)
    moments.add(amounts, np.zeros(80, dtype=int), w)
    expected = np.cov(amounts.T, aweights=w**2, bias=True)
    np.testing.assert_allclose(moments.spread()[0], expected, atol=1e-12)


# -- the group as a feature in a search ----------------------------------------------------------


def result(model, family):
    return model.cv_results_["group_risks"][model.cv_results_["family"].index(family)]


@pytest.mark.parametrize("fit_intercept", [True, False])
def test_the_average_with_the_group_as_a_feature_is_least_squares_with_dummies(fit_intercept):
    X, y, g, codes = rows()
    splits = list(KFold(4, shuffle=True, random_state=0).split(X))
    model = GroupDRONeuronCV("identity", cv=splits, fit_intercept=fit_intercept, **SMALL)
    model.fit(X, y, groups=g)
    losses = np.empty((2, len(y)))
    for train, test in splits:
        wide = np.hstack([X, np.eye(3)[codes]])
        coef = np.linalg.lstsq(wide[train], y[train], rcond=None)[0]
        losses[0, test] = (y[test] - wide[test] @ coef) ** 2
        again = LinearRegression().fit(wide[train][:, :-1], y[train])
        losses[1, test] = (y[test] - again.predict(wide[test][:, :-1])) ** 2
    for row in losses:
        expected = [row[codes == k].mean() for k in range(3)]
        np.testing.assert_allclose(
            result(model, "average, group as a feature"), expected, rtol=1e-6
        )


def test_own_fits_in_a_search_are_least_squares_per_group():
    X, y, g, codes = rows()
    splits = list(KFold(4, shuffle=True, random_state=0).split(X))
    model = GroupDRONeuronCV("identity", cv=splits, **SMALL).fit(X, y, groups=g)
    losses = np.empty(len(y))
    for train, test in splits:
        for k in range(3):
            a, b = train[codes[train] == k], test[codes[test] == k]
            fit = LinearRegression().fit(X[a], y[a])
            losses[b] = (y[b] - fit.predict(X[b])) ** 2
    expected = [losses[codes == k].mean() for k in range(3)]
    np.testing.assert_allclose(result(model, "own fits"), expected, rtol=1e-8)
    np.testing.assert_allclose(
        model.cv_results_["average_risk"][model.cv_results_["family"].index("own fits")],
        losses.mean(), rtol=1e-8,
    )  # fmt: skip


def test_candidates_that_use_the_group_follow_the_others():
    X, y, g, _ = rows()
    plain = GroupDRONeuronCV("identity", **{**SMALL, "group_known": False}).fit(X, y, groups=g)
    known = GroupDRONeuronCV("identity", **SMALL).fit(X, y, groups=g)
    assert plain.cv_results_["family"] == ["average", "plain"]
    assert known.cv_results_["family"] == [
        "average", "plain", "average, group as a feature", "group as a feature",
        "partial pooling, 10", "partial pooling, 1", "own fits",
    ]  # fmt: skip
    # The same rows and folds: the candidates of both searches have the same risks.
    np.testing.assert_allclose(
        known.cv_results_["group_risks"][:2], plain.cv_results_["group_risks"], rtol=1e-12
    )
    np.testing.assert_allclose(known.plain_intervals_.values, plain.plain_intervals_.values)
    assert plain.uses_group_ == ""
    assert not hasattr(plain, "group_coef_")


# -- what is chosen, and predictions -------------------------------------------------------------


@pytest.fixture(scope="module")
def sloped():
    """A fit to groups that differ in their slopes."""
    X, y, g, _ = rows(sizes=(300, 150, 150))
    return GroupDRONeuronCV("identity", **SMALL).fit(X, y, groups=g)


@pytest.fixture(scope="module")
def shifted_rows():
    """Groups that differ in the intercept, too small for fits of their own."""
    X, y, g, _ = rows(seed=1, sizes=(50, 40, 40), d=8, kind="shifts", noise=1.0)
    return X, y, g


@pytest.fixture(scope="module")
def shifted(shifted_rows):
    X, y, g = shifted_rows
    return GroupDRONeuronCV("identity", **SMALL).fit(X, y, groups=g)


def test_fits_of_single_groups_are_chosen_where_slopes_differ(sloped):
    assert sloped.uses_group_ == OWN
    assert sloped.verdict_.startswith("Use the group: ")
    assert "holds up best. On held-out rows, the error of the worst group is" in sloped.verdict_
    assert not sloped.robust_
    X, y, g, codes = rows(seed=1, sizes=(300, 150, 150))
    assert sloped.score(X, y, groups=g) > 0.99
    assert sloped.worst_group_risk(X, y, g) < 0.05
    held = sloped.held_out_comparison()
    assert held.ours.worst.value < 0.1 * held.plain.worst.value
    each = sloped.group_coef_, sloped.group_intercept_
    assert [part.shape for part in each] == [(4, 1, 3), (4, 1)]
    predicted = (X * each[0][codes, 0]).sum(axis=1) + each[1][codes, 0]
    np.testing.assert_allclose(sloped.predict(X, g), predicted, atol=1e-12)
    assert not hasattr(sloped, "certificate_")
    assert "Every group has its own coefficients: one fit per group" in sloped.status_
    X, y, g, _ = rows(sizes=(300, 150, 150))
    risks = [np.mean((y - sloped.predict(X, g))[g == k] ** 2) for k in "abc"]
    np.testing.assert_allclose(sloped.group_risks_, risks, rtol=1e-9)
    np.testing.assert_allclose(sloped.group_weights_, [0.5, 0.25, 0.25])
    assert sloped.risk_ == pytest.approx(np.mean((y - sloped.predict(X, g)) ** 2))


def test_the_group_as_a_feature_is_chosen_where_intercepts_differ(shifted, shifted_rows):
    X, y, g = shifted_rows
    assert shifted.uses_group_ == FEATURE
    assert shifted.verdict_.startswith(
        "Use the group: the plain average with the group as a feature holds up best."
    )
    codes = np.searchsorted(["a", "b", "c"], g)
    coef = np.linalg.lstsq(np.hstack([X, np.eye(3)[codes]]), y, rcond=None)[0]
    np.testing.assert_allclose(shifted.group_coef_[:, 0], np.tile(coef[:8], (4, 1)), atol=1e-5)
    np.testing.assert_allclose(shifted.group_intercept_[:3, 0], coef[8:], atol=1e-5)
    mean = np.array([50, 40, 40]) / 130 @ coef[8:]
    assert shifted.group_intercept_[3, 0] == pytest.approx(mean, abs=1e-5)
    np.testing.assert_allclose(shifted.coef_, coef[:8], atol=1e-5)
    assert shifted.intercept_ == pytest.approx(shifted.group_intercept_[3, 0])
    assert shifted.certificate_ is not None


def test_a_fit_that_uses_the_group_is_certified_with_it(shifted, shifted_rows):
    X, y, g = shifted_rows
    model = clone(shifted).set_params(activation="softplus").fit(X, y - y.min(), groups=g)
    assert model.uses_group_ == FEATURE
    for fit, labels in ((shifted, y), (model, y - y.min())):
        regions = fit.certify(X, labels, g, radii=[0.1, 1.0])
        assert fit.certificate_.regions == regions
        codes = np.searchsorted(["a", "b", "c"], g)
        wide = with_indicators(X, codes, 3, 0)
        assert fit.group_base_ == 0
        single = fit.best_estimator_
        np.testing.assert_allclose(single.predict(wide), fit.predict(X, g), atol=1e-9)
        assert single.region_proof(wide, labels, g, radii=[0.1, 1.0]).regions == regions
        assert fit.region_proof(X, labels, g, radii=[0.1, 1.0]).regions == regions
    assert len(regions) == 2
    with pytest.raises(ValueError, match="one label per row"):
        shifted.certify(X, y, g[:5])


def test_nothing_is_proved_about_fits_of_single_groups(sloped):
    X, y, g, _ = rows(sizes=(300, 150, 150))
    for prove in (sloped.certify, sloped.region_proof):
        with pytest.raises(ValueError, match=r"one per group, about which nothing is proved"):
            prove(X, y, g)
    with pytest.raises(ValueError, match="group_known=False"):
        sloped.chosen_estimator()


def test_predictions_need_the_groups(sloped, shifted, shifted_rows):
    for model, X in ((sloped, rows()[0]), (shifted, shifted_rows[0])):
        with pytest.raises(ValueError, match=r"groups must hold the group of every row.*got None"):
            model.predict(X)
        with pytest.raises(ValueError, match=rf"Pass predict\(X, groups=...\).*{'group_known=F'}"):
            model.score(X, np.zeros(len(X)))
        with pytest.raises(ValueError, match=rf"one label per row: {len(X)}; got shape \(2,\)"):
            model.predict(X, ["a", "b"])
        with pytest.raises(
            ValueError, match="groups has 'z', which the fit did not see; it knows 'a', 'b', 'c'"
        ):
            model.predict(X[:2], ["a", "z"])
        with pytest.raises(ValueError, match="features"):
            model.predict(X[:, :2], ["a"] * len(X))


def test_rows_of_no_known_group_get_the_mean_coefficients(sloped):
    X, _, g, _ = rows(seed=2)
    some = g.astype(object)
    some[::3] = None
    found = sloped.predict(X, some)
    np.testing.assert_allclose(found[::3], (X @ sloped.coef_ + sloped.intercept_)[::3])
    other = np.arange(len(X)) % 3 > 0
    np.testing.assert_array_equal(found[other], sloped.predict(X, g)[other])
    shares = np.array([0.5, 0.25, 0.25])
    np.testing.assert_allclose(sloped.coef_, shares @ sloped.group_coef_[:3, 0])
    np.testing.assert_allclose(sloped.intercept_, shares @ sloped.group_intercept_[:3, 0])


@pytest.mark.parametrize("name", ["sloped", "shifted"])
def test_stored_models_predict_the_same(name, request, tmp_path):
    model = request.getfixturevalue(name)
    X, _, g, _ = rows(seed=3, d=model.n_features_in_)
    model.save(tmp_path / "model")
    again = counterpoise.load(tmp_path / "model")
    np.testing.assert_array_equal(again.predict(X, g), model.predict(X, g))
    np.testing.assert_array_equal(again.predict(X, [None] * len(X)), model.predict(X, [None] * 160))
    assert (again.uses_group_, again.verdict_) == (model.uses_group_, model.verdict_)
    assert again.held_out_scores is None
    with pytest.raises(ValueError, match="groups must hold the group of every row"):
        again.predict(X)


@pytest.mark.parametrize("kind", ["slopes", "shifts"])
def test_rows_without_weight_are_as_if_absent(kind):
    X, y, g, _ = rows(sizes=(120, 80, 60), kind=kind)
    w = np.ones(len(y))
    w[::7] = 0.0
    check_absent(X, y, g, w)


@pytest.mark.parametrize("lost", ["a", "b", "c"])
@pytest.mark.parametrize("kind", ["slopes", "shifts"])
def test_a_group_without_weight_is_as_if_absent(kind, lost):
    X, y, g, _ = rows(sizes=(120, 80, 60), kind=kind)
    check_absent(X, y, g, np.where(g == lost, 0.0, 1.0))


def check_absent(X, y, g, w):
    """Fit with and without the rows, in the same folds of the others."""
    seen = w > 0
    fold = np.full(len(y), -1)
    fold[seen] = np.arange(seen.sum()) % 4
    fits = []
    for part, weight in ((np.full(len(y), True), w), (seen, None)):
        own = fold[part]
        splits = [(np.flatnonzero(own != f), np.flatnonzero(own == f)) for f in range(4)]
        model = GroupDRONeuronCV("identity", cv=splits, **SMALL)
        fits.append(model.fit(X[part], y[part], groups=g[part], sample_weight=weight))
    given, less = fits
    assert given.uses_group_ == less.uses_group_ != ""
    assert given.groups_.tolist() == less.groups_.tolist()
    np.testing.assert_allclose(
        given.cv_results_["group_risks"], less.cv_results_["group_risks"], rtol=1e-6
    )
    np.testing.assert_allclose(given.group_coef_, less.group_coef_, atol=1e-9)
    np.testing.assert_allclose(given.group_intercept_, less.group_intercept_, atol=1e-9)


@pytest.mark.parametrize("kind", ["slopes", "shifts"])
def test_kinds_of_rows_agree_and_inputs_are_left_alone(kind):
    X, y, g, _ = rows(kind=kind)
    before = X.copy(), y.copy(), g.copy()
    dense = GroupDRONeuronCV("identity", **SMALL).fit(X, y, groups=g)
    for now, then in zip((X, y, g), before, strict=True):
        np.testing.assert_array_equal(now, then)
    expected = dense.predict(X, g)
    thin = clone(dense).fit(sparse.csr_matrix(X), y, groups=g)
    np.testing.assert_allclose(thin.predict(sparse.csr_matrix(X), g), expected, atol=1e-8)
    frame = pd.DataFrame(X, columns=["u", "v", "w"])
    named = clone(dense).fit(frame, pd.Series(y), groups=pd.Series(g, dtype="category"))
    assert named.feature_names_in_.tolist() == ["u", "v", "w"]
    np.testing.assert_array_equal(named.predict(frame, pd.Series(g)), expected)
    with pytest.raises(ValueError, match="feature names"):
        named.predict(frame[["w", "v", "u"]], g)


def test_groups_of_any_type():
    X, y, _, codes = rows()
    numbered = GroupDRONeuronCV("identity", **SMALL).fit(X, y, groups=10 * codes)
    for groups in ((10 * codes).tolist(), (10 * codes).astype(np.int32), 10.0 * codes):
        np.testing.assert_array_equal(numbered.predict(X, groups), numbered.predict(X, 10 * codes))
    with pytest.raises(ValueError, match="groups has 5, which the fit did not see; it knows 0, 10"):
        numbered.predict(X[:1], [5])


def test_a_second_fit_forgets_the_groups_of_the_first():
    X, y, g, _ = rows()
    model = GroupDRONeuronCV("identity", **SMALL).fit(X, y, groups=g)
    assert hasattr(model, "group_coef_")
    model.set_params(group_known=False).fit(X, y, groups=g)
    assert model.uses_group_ == ""
    assert not hasattr(model, "group_coef_")
    assert not hasattr(model, "group_intercept_")
    assert model.predict(X).shape == (160,)
    assert model.certificate_ is not None


def test_robust_fits_with_the_group_as_a_feature_may_be_chosen():
    """A limit of a ball leaves out fits of single groups; slopes differ, so robustness pays."""
    X, y, g, _ = rows(sizes=(400, 100, 100), noise=0.5)
    y = y + np.where(g == "b", 6.0, 0.0)
    model = GroupDRONeuronCV("identity", radius=50.0, **{**SMALL, "nus": [0.0]})
    model.fit(X, y, groups=g)
    assert set(model.cv_results_["family"]) == {
        "average", "plain", "average, group as a feature", "group as a feature",
    }  # fmt: skip
    assert (model.robust_, model.uses_group_) == (True, FEATURE)
    assert model.verdict_.startswith(
        "Use the group: nu = 0 (with the group as a feature) holds up best. On held-out"
    )
    risks = [np.mean((y - model.predict(X, g))[g == k] ** 2) for k in "abc"]
    np.testing.assert_allclose(model.group_risks_, risks, rtol=1e-6)


def test_a_single_group_has_no_candidates_that_use_it():
    X, y, _, _ = rows()
    for groups in (None, np.zeros(len(y))):
        model = GroupDRONeuronCV("identity", **SMALL).fit(X, y, groups=groups)
        assert model.uses_group_ == ""
        assert model.cv_results_["family"] == ["average", "plain"]
        assert model.predict(X).shape == (160,)


def test_groups_without_weight_leave_a_single_group():
    X, y, g, _ = rows()
    model = GroupDRONeuronCV("identity", **SMALL)
    model.fit(X, y, groups=g, sample_weight=(g == "b").astype(float))
    assert model.groups_.tolist() == ["b"]
    assert model.cv_results_["family"] == ["average", "plain"]


def test_groups_that_decide_the_class_are_refused():
    """The label would be among the features."""
    X, y, g, _ = rows(sizes=(100, 80, 70))
    names = np.where(y > 0, "yes", "no")
    options = dict(nus=[0.1], reference=False, group_known=True)
    with pytest.raises(ValueError, match="every group here has rows of one class"):
        GroupDROClassifierCV(**options).fit(X, names, groups=np.char.add(g, names))
    other = GroupDROClassifierCV(**options).fit(X, names, groups=g)
    assert len(other.cv_results_["family"]) > 2


def test_overlapping_groups_are_refused():
    X, y, _, codes = rows()
    matrix = np.eye(3)[codes]
    matrix[:, 0] = 1.0
    with pytest.raises(ValueError, match=r"group_known=True needs one group per row.*overlap"):
        GroupDRONeuronCV("identity", **SMALL).fit(X, y, groups=Memberships(matrix))


# -- classifiers ---------------------------------------------------------------------------------


@pytest.mark.parametrize("classes", [2, 3])
def test_classifiers_use_the_group(classes, tmp_path):
    X, y, g, codes = rows(sizes=(300, 250, 200), noise=0.5)
    names = np.array(["no", "so", "yes"])[labels_of(X, y, classes).astype(int)]
    model = GroupDROClassifierCV(nus=[0.1], reference=False, group_known=True)
    model.fit(X, names, groups=g)
    assert model.uses_group_ == OWN
    assert model.verdict_.startswith(("Use the group: partial", "Use the group: one fit"))
    S = 1 if classes == 2 else 3
    assert model.group_coef_.shape == (4, S, 3)
    assert model.coef_.shape == (S, 3)
    plain = model.plain_twin().fit(X, names, groups=g)
    assert model.score(X, names, groups=g) > plain.score(X, names) + 0.05
    scores = np.einsum("nd,nsd->ns", X, model.group_coef_[codes]) + model.group_intercept_[codes]
    found = model.decision_function(X, g)
    np.testing.assert_allclose(found, scores[:, 0] if S == 1 else scores, atol=1e-10)
    chances = model.predict_proba(X, g)
    np.testing.assert_allclose(chances.sum(axis=1), 1.0)
    np.testing.assert_allclose(model.predict_log_proba(X, g), np.log(chances))
    np.testing.assert_array_equal(model.predict(X, g), model.classes_[chances.argmax(axis=1)])
    for call in (model.predict, model.predict_proba, model.decision_function):
        with pytest.raises(ValueError, match="groups must hold the group of every row"):
            call(X)
    model.save(tmp_path / "model")
    again = counterpoise.load(tmp_path / "model")
    np.testing.assert_array_equal(again.predict_proba(X, g), chances)


def test_own_fits_of_a_classifier_in_a_search_are_logistic_regressions():
    X, y, g, codes = rows(sizes=(200, 150, 150), noise=1.0)
    labels = labels_of(X, y, 2)
    splits = list(StratifiedKFold(3, shuffle=True, random_state=0).split(X, labels))
    model = GroupDROClassifierCV(nus=[0.1], reference=False, group_known=True, cv=splits, tol=1e-9)
    model.fit(X, labels, groups=g)
    losses = np.empty((2, len(y)))
    for train, test in splits:
        wide = with_indicators(X, codes, 3, 0)
        fit = LogisticRegression(C=np.inf, tol=1e-10, max_iter=5000)
        chances = fit.fit(wide[train], labels[train]).predict_proba(wide[test])
        losses[0, test] = -np.log(chances[np.arange(len(test)), labels[test].astype(int)])
        for k in range(3):
            a, b = train[codes[train] == k], test[codes[test] == k]
            chances = fit.fit(X[a], labels[a]).predict_proba(X[b])
            losses[1, b] = -np.log(chances[np.arange(len(b)), labels[b].astype(int)])
    for row, family in zip(losses, ("average, group as a feature", "own fits"), strict=True):
        expected = [row[codes == k].mean() for k in range(3)]
        np.testing.assert_allclose(result(model, family), expected, rtol=2e-3)


def test_only_losses_with_probabilities_are_partially_pooled():
    X, y, g, _ = rows(sizes=(200, 150, 150))
    model = GroupDROClassifierCV("squared_hinge", nus=[0.1], reference=False, group_known=True)
    model.fit(X, y > 0, groups=g)
    assert model.cv_results_["family"] == [
        "average", "plain", "average, group as a feature", "group as a feature", "own fits",
    ]  # fmt: skip
    assert model.uses_group_ != ""


def test_average_errors_are_weighted_as_the_candidates_are():
    """Balanced errors: the averages of the verdict are those of ``cv_results_``."""
    X, y, g, _ = rows(sizes=(200, 150, 150), noise=1.0)
    model = GroupDROClassifierCV(
        scoring="balanced_error", nus=[0.1], reference=False, group_known=True
    ).fit(X, y > 2.0, groups=g)
    plain = model.frontier_.plain
    told = model.held_out_comparison()
    assert told.plain_average == pytest.approx(model.cv_results_["average_risk"][plain])


# -- limits on costs -----------------------------------------------------------------------------


def slopes_apart():
    rng = np.random.default_rng(0)
    g = np.repeat(["a", "b", "c"], [400, 100, 100])
    X = rng.normal(size=(600, 3))
    slope = np.array([{"a": 1.0, "b": 1.2, "c": 2.0}[k] for k in g])
    return X, X[:, 0] * slope + 0.1 * rng.normal(size=600), g


@pytest.mark.parametrize("name", ["max_cost", "max_group_cost"])
def test_costs_above_the_limit_are_refused(name):
    X, y, g = slopes_apart()
    options = dict(nus=[0.0], truncate=None, reference=False)
    free = GroupDRONeuronCV("identity", **options).fit(X, y, groups=g)
    assert free.robust_
    assert "costs more" not in free.verdict_
    tight = GroupDRONeuronCV("identity", **options, **{name: 0.01}).fit(X, y, groups=g)
    assert not tight.robust_
    assert "but beats it only at a cost above your limit" in tight.verdict_
    assert "A fit with a lower worst-group error costs more than you allow." in tight.verdict_
    ample = GroupDRONeuronCV("identity", **options, **{name: 50}).fit(X, y, groups=g)
    np.testing.assert_array_equal(ample.coef_, free.coef_)


def test_limits_are_on_root_mean_squared_errors():
    X, y, g = slopes_apart()
    options = dict(nus=[0.0], truncate=None, reference=False)
    free = GroupDRONeuronCV("identity", **options).fit(X, y, groups=g)
    before, after = free.cv_results_["average_risk"]
    rise = math.sqrt(after / before) - 1
    assert rise < 0.5 * (after / before - 1)
    for limit, robust in ((rise + 1e-3, True), (rise - 1e-3, False)):
        model = GroupDRONeuronCV("identity", max_cost=limit, **options).fit(X, y, groups=g)
        assert model.robust_ == robust


@pytest.mark.parametrize("name", ["max_cost", "max_group_cost"])
@pytest.mark.parametrize("value", [-0.1, math.inf, math.nan, True, "10%"])
@pytest.mark.parametrize("kind", [GroupDRONeuronCV, GroupDROClassifierCV])
def test_limits_are_checked(kind, name, value):
    X, y, g, _ = rows()
    with pytest.raises(ValueError, match=f"{name} must be None or a number >= 0, such as 0.1"):
        kind(**{name: value}).fit(X, y > 0, groups=g)


def test_flags_are_checked():
    X, y, g, _ = rows()
    with pytest.raises(ValueError, match="group_known must be True or False; got 'yes'"):
        GroupDRONeuronCV("identity", group_known="yes").fit(X, y, groups=g)


# -- the plain column ----------------------------------------------------------------------------


@pytest.mark.parametrize("overlapping", [False, True])
@pytest.mark.parametrize("seed", [0, 3])
def test_the_plain_column_is_the_one_of_any_other_fit(overlapping, seed):
    """The same rows, folds and seed: the same held-out risks of the plain average."""
    X, y, g, codes = rows(kind="shifts")
    groups = g
    if overlapping:
        matrix = np.eye(3)[codes]
        matrix[::4, 1] = 1.0
        groups = Memberships(matrix, ["a", "b", "c"])
    chosen = GroupDRONeuronCV(
        "identity", nus=[0.0], truncate=None, reference=False, random_state=seed
    ).fit(X, y, groups=groups)
    single = GroupDRONeuron("identity", nu=0.0).fit(X, y, groups=groups)
    told = assess(
        single, X, y, groups, random_state=seed, diagnosis=False, regions=False
    ).comparison
    own = chosen.held_out_comparison()
    for name in ("values", "low", "high", "sizes"):
        np.testing.assert_allclose(
            getattr(chosen.plain_intervals_, name), getattr(told.plain, name), rtol=1e-6
        )
    assert own.plain_average == pytest.approx(told.plain_average, rel=1e-6)
    # The other column as well, where the search has this candidate alone and takes it.
    if chosen.robust_:
        np.testing.assert_allclose(chosen.intervals_.values, told.ours.values, rtol=1e-4)


def test_missing_groups_and_dates_are_understood():
    import pandas as pd

    from counterpoise.estimators.chosen import known_codes

    labels = np.array(["a", "b"])
    for given in (["b", None], pd.Series(["b", None]), pd.Series(["b", None], dtype="string")):
        assert known_codes(given, labels, 2).tolist() == [1, 2]
    assert known_codes(pd.Categorical(["b", None]), labels, 2).tolist() == [1, 2]
    days = np.array(["2020-01-01", "2020-01-02"], dtype="datetime64[D]")
    assert known_codes(days[::-1], days, 2).tolist() == [1, 0]
    numbers = np.array([3, 5])
    assert known_codes(pd.Series([5, None], dtype="Int64"), numbers, 2).tolist() == [1, 2]


def test_splits_that_hold_rows_out_again_add_no_rows():
    from sklearn.model_selection import RepeatedStratifiedKFold

    rng = np.random.default_rng(0)
    X, g = rng.normal(size=(400, 2)), np.repeat([0, 1], [300, 100])
    y = np.where(g == 0, X[:, 0], X[:, 0] + 0.3 * X[:, 1]) + rng.normal(size=400)
    options = dict(nus=[0.0], truncate=None, reference=False)
    splits = [
        pair
        for repeat in range(8)
        for pair in RepeatedStratifiedKFold(n_splits=4, n_repeats=1, random_state=repeat).split(
            X, g
        )
    ]
    once = GroupDRONeuronCV("identity", cv=splits[:4], **options).fit(X, y, groups=g)
    often = GroupDRONeuronCV("identity", cv=splits, **options).fit(X, y, groups=g)
    ratio = often.cv_results_["standard_error"] / once.cv_results_["standard_error"]
    np.testing.assert_allclose(ratio, 1.0, atol=0.15)
