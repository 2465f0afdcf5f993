"""GroupDRONeuronCV: what it chooses, that it never hides it, and how it takes rows."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.model_selection import GroupKFold, KFold, ShuffleSplit
from sklearn.utils.estimator_checks import parametrize_with_checks

from counterpoise import (
    Frontier,
    GroupDRONeuron,
    GroupDRONeuronCV,
    frontier,
    worst_group_risk,
)
from counterpoise.estimators.designs import Candidate, references


@pytest.mark.slow
@parametrize_with_checks([GroupDRONeuronCV("identity", cv=2)])
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_scikit_learn_conformance(estimator, check):
    check(estimator)


def shifted(seed=0, sizes=(400, 100, 100), noise=0.1):
    """Groups whose slopes differ; the smaller ones lose from a fit to the average."""
    rng = np.random.default_rng(seed)
    groups = np.repeat(np.array(["a", "b", "c"])[: len(sizes)], sizes)
    X = rng.normal(size=(len(groups), 3))
    slope = np.array([{"a": 1.0, "b": 1.2, "c": 2.0}[g] for g in groups])
    return X, X[:, 0] * slope + noise * rng.normal(size=len(groups)), groups


def test_robustness_is_chosen_where_it_pays_and_said_so():
    X, y, g = shifted()
    model = GroupDRONeuronCV("identity").fit(X, y, groups=g)
    assert model.robust_
    assert model.verdict_.startswith("Chose nu = ")
    assert "compared with" in model.verdict_
    fresh = shifted(seed=1)
    plain = GroupDRONeuron("identity", nu=math.inf, prior="rows").fit(X, y, groups=g)
    assert model.worst_group_risk(*fresh) < 0.7 * plain.worst_group_risk(*fresh)
    assert isinstance(model.best_estimator_, GroupDRONeuron)
    assert model.best_params_["nu"] == model.nu_
    np.testing.assert_array_equal(model.coef_, model.best_estimator_.coef_)
    np.testing.assert_array_equal(model.predict(X), model.best_estimator_.predict(X))
    assert model.intervals_["c"].low < model.intervals_["c"].value < model.intervals_["c"].high


def test_falls_back_to_least_squares_where_robustness_does_not_pay():
    """One law for all groups: which is worst is chance, and chasing it only adds variance."""
    rng = np.random.default_rng(2)
    g = np.repeat([0, 1, 2, 3], 60)
    X = rng.normal(size=(240, 20))
    y = X[:, 0] + rng.normal(size=240)
    model = GroupDRONeuronCV("identity").fit(X, y, groups=g)
    assert not model.robust_
    assert model.verdict_.startswith("Chose the plain average over rows")
    assert model.best_params_ == dict(nu=math.inf, prior="rows", truncate=None, reference=None)
    exact, *_ = np.linalg.lstsq(np.column_stack([X, np.ones(240)]), y, rcond=None)
    np.testing.assert_allclose(np.append(model.coef_, model.intercept_), exact, atol=1e-6)
    assert model.frontier_.family[model.frontier_.chosen] == "average"


@pytest.mark.slow
def test_heavy_tailed_labels_do_no_harm():
    """The worst group is worst by a few absurd labels: nu = 0 chases them, the choice must not."""
    ratios = []
    for seed in range(3):
        rng = np.random.default_rng(seed)
        g = np.repeat([0, 1, 2], [800, 800, 150])
        X = rng.normal(size=(1750, 8))
        noise = np.where(g == 2, 6.0, 1.0) * rng.standard_t(2.2, size=1750)
        y = X[:, 0] + noise
        test = rng.random(1750) < 0.3
        fits = [
            m.fit(X[~test], y[~test], groups=g[~test])
            for m in (
                GroupDRONeuronCV("identity"),
                GroupDRONeuron("identity", nu=math.inf, prior="rows"),
                GroupDRONeuron("identity", nu=0.0),
            )
        ]
        chosen, average, worst = (m.worst_group_risk(X[test], y[test], g[test]) for m in fits)
        ratios.append(chosen / min(average, worst))
    assert np.mean(ratios) < 1.02


@pytest.mark.slow
def test_results_are_consistent_with_each_other():
    X, y, g = shifted()
    model = GroupDRONeuronCV("identity", cv=4, repeats=2).fit(X, y, groups=g)
    found, C, K = model.cv_results_, len(model.frontier_), 3
    assert found["family"][0] == "average"
    assert found["group_risks"].shape == (C, K)
    assert found["fold_worst"].shape == (C, 8)
    assert np.isfinite(found["standard_error"]).all()
    np.testing.assert_allclose(found["worst_group_risk"], model.frontier_.worst)
    np.testing.assert_allclose(
        found["worst_group_risk"], found["group_risks"].max(axis=1), rtol=1e-12
    )
    assert found["beats_average"][0] == 0.0
    assert ((found["beats_average"] >= 0) & (found["beats_average"] <= 1)).all()
    assert found["nu"][model.frontier_.chosen] == pytest.approx(model.nu_)
    families = set(found["family"])
    assert families == {
        "average", "plain", "reference risks", "truncated at 0.99",
        "truncated at 0.99, reference risks",
    }  # fmt: skip


def test_intervals_are_of_the_fits_that_the_other_folds_chose():
    X, y, g = shifted()
    options = dict(nus=[0.0], truncate=None, reference=False)
    model = GroupDRONeuronCV("identity", **options).fit(X, y, groups=g)
    found = model.cv_results_
    assert model.robust_
    # With a clear gain, every set of folds chooses the same candidate.
    np.testing.assert_allclose(model.plain_intervals_.values, found["group_risks"][0], rtol=1e-9)
    np.testing.assert_allclose(model.intervals_.values, found["group_risks"][1], rtol=1e-9)
    told = model.held_out_comparison()
    assert told.how == "rows held out in 5 folds, each by the fit that the other folds chose"
    assert told.plain_average == pytest.approx(found["average_risk"][0])
    assert told.ours_average == pytest.approx(found["average_risk"][1])
    before, after = (math.sqrt(side.worst.value) for side in (told.plain, told.ours))
    assert f"worst group is {after:.4g}, compared with {before:.4g} for" in model.verdict_
    # With repeats, the figures are those of the first partition: they count every row once.
    often = GroupDRONeuronCV("identity", repeats=3, **options).fit(X, y, groups=g)
    np.testing.assert_allclose(often.intervals_.values, model.intervals_.values, rtol=1e-9)
    assert often.intervals_.sizes.tolist() == model.intervals_.sizes.tolist() == [400, 100, 100]
    assert often.held_out_comparison().how == told.how


def test_folds_that_choose_otherwise_are_judged_by_their_own_choice(monkeypatch):
    """Fold 0 is predicted by the plain average, the others by the robust fit."""
    from counterpoise.estimators import chosen

    X, y, g = shifted()
    splits = list(KFold(3, shuffle=True, random_state=0).split(X))
    monkeypatch.setattr(chosen, "choices_by_fold", lambda *_: [0, 1, 1])
    model = GroupDRONeuronCV(
        "identity", nus=[0.0], truncate=None, reference=False, cv=splits
    ).fit(X, y, groups=g)  # fmt: skip
    assert model.robust_
    losses = np.empty(len(y))
    for f, (train, test) in enumerate(splits):
        fit = GroupDRONeuron("identity", **(dict(nu=0.0) if f else dict(nu=math.inf, prior="rows")))
        fit.fit(X[train], y[train], groups=g[train])
        losses[test] = (y[test] - fit.predict(X[test])) ** 2
    expected = [losses[g == k].mean() for k in "abc"]
    np.testing.assert_allclose(model.intervals_.values, expected, rtol=1e-5)
    scores = model.held_out_scores
    np.testing.assert_allclose((scores.y - scores.ours[:, 0]) ** 2, losses, rtol=1e-3, atol=1e-9)


def test_held_out_losses_are_of_rows_the_fit_did_not_see():
    """Recomputed by hand for one candidate: nu = 0 on every fold."""
    X, y, g = shifted(sizes=(60, 30, 30))
    splits = list(KFold(3, shuffle=True, random_state=0).split(X))
    model = GroupDRONeuronCV(
        "identity", nus=[0.0], truncate=None, reference=False, cv=splits
    ).fit(X, y, groups=g)  # fmt: skip
    worst = []
    for train, test in splits:
        fit = GroupDRONeuron("identity", nu=0.0).fit(X[train], y[train], groups=g[train])
        worst.append(worst_group_risk(y[test], fit.predict(X[test]), groups=g[test]))
    np.testing.assert_allclose(model.cv_results_["fold_worst"][1], worst, rtol=1e-6)


@pytest.mark.slow
def test_same_seed_same_choice_and_order_of_groups_does_not_matter():
    X, y, g = shifted()
    one = GroupDRONeuronCV("identity", random_state=3).fit(X, y, groups=g)
    two = clone(one).fit(X, y, groups=g)
    np.testing.assert_array_equal(one.coef_, two.coef_)
    np.testing.assert_array_equal(one.frontier_.worst, two.frontier_.worst)
    other = clone(one).set_params(random_state=4).fit(X, y, groups=g)
    assert not np.array_equal(one.frontier_.worst, other.frontier_.worst)


def test_inputs_are_left_alone_and_kinds_of_rows_agree():
    X, y, g = shifted()
    before = X.copy(), y.copy(), g.copy()
    options = dict(nus=[0.0, 0.1], reference=False, truncate=None)
    dense = GroupDRONeuronCV("identity", **options).fit(X, y, groups=g)
    for now, then in zip((X, y, g), before, strict=True):
        np.testing.assert_array_equal(now, then)
    thin = GroupDRONeuronCV("identity", **options).fit(sparse.csr_matrix(X), y, groups=g)
    np.testing.assert_allclose(dense.coef_, thin.coef_, atol=1e-5)
    frame = GroupDRONeuronCV("identity", **options).fit(
        pd.DataFrame(X, columns=["u", "v", "w"]), pd.Series(y), groups=pd.Series(g)
    )
    np.testing.assert_array_equal(dense.coef_, frame.coef_)
    assert frame.feature_names_in_.tolist() == ["u", "v", "w"]


@pytest.mark.slow
def test_rows_without_weight_are_as_if_absent():
    X, y, g = shifted()
    weight = np.ones(len(y))
    weight[::7] = 0.0
    kept = weight > 0
    with_zeros = GroupDRONeuronCV("identity").fit(X, y, groups=g, sample_weight=weight)
    without = GroupDRONeuronCV("identity").fit(X[kept], y[kept], groups=g[kept])
    np.testing.assert_allclose(with_zeros.coef_, without.coef_, atol=1e-10)


def test_weights_count_in_held_out_risks():
    X, y, g = shifted()
    weight = np.where(X[:, 1] > 0, 5.0, 1.0)
    model = GroupDRONeuronCV("identity", nus=[0.1]).fit(X, y, groups=g, sample_weight=weight)
    assert model.intervals_.sizes[0] < 400


def test_groups_of_one_row_stay_in_training_and_are_named():
    X, y, g = shifted()
    g = g.copy()
    g[0] = "z"
    model = GroupDRONeuronCV("identity", nus=[0.1]).fit(X, y, groups=g)
    assert "Groups with one row cannot be judged: z." in model.verdict_
    assert list(model.intervals_) == ["a", "b", "c", "z"]
    assert math.isnan(model.intervals_["z"].value)
    assert model.intervals_["z"].high == model.intervals_.worst.high == math.inf
    assert math.isnan(model.cv_results_["group_risks"][0, 3])


def test_a_group_missing_from_training_is_still_judged():
    """Splits by group: the prior is shared among those that are there."""
    X, y, g = shifted()
    splits = [(np.flatnonzero(g != k), np.flatnonzero(g == k)) for k in "abc"]
    model = GroupDRONeuronCV(
        "identity", nus=[0.0], cv=splits, prior={"a": 0.5, "b": 0.25, "c": 0.25}
    ).fit(X, y, groups=g)  # fmt: skip
    assert model.cv_results_["fold_worst"].shape[1] == 3
    fit = GroupDRONeuron("identity", nu=0.0).fit(X[g != "c"], y[g != "c"], groups=g[g != "c"])
    expected = worst_group_risk(y[g == "c"], fit.predict(X[g == "c"]), groups=g[g == "c"])
    assert model.cv_results_["fold_worst"][1, 2] == pytest.approx(expected, rel=1e-6)


def test_splitters_of_scikit_learn_and_their_own_errors():
    X, y, g = shifted(sizes=(60, 30, 30))
    options = dict(nus=[0.1], truncate=None, reference=False)
    for cv in (KFold(3), ShuffleSplit(4, random_state=0), GroupKFold(3)):
        model = GroupDRONeuronCV("identity", cv=cv, **options).fit(X, y, groups=g)
        assert model.cv_results_["fold_worst"].shape[1] == cv.get_n_splits(X, y, g)
    with pytest.raises(ValueError, match="Cannot have number of splits n_splits=9"):
        GroupDRONeuronCV("identity", cv=GroupKFold(9), **options).fit(X, y, groups=g)


def test_standard_errors_do_not_shrink_by_dealing_the_same_rows_again():
    X, y, g = shifted()
    options = dict(nus=[0.1], truncate=None, reference=False)
    once, often = (
        GroupDRONeuronCV("identity", repeats=r, **options).fit(X, y, groups=g) for r in (1, 8)
    )
    ratio = often.cv_results_["standard_error"] / once.cv_results_["standard_error"]
    assert (ratio > 0.5).all()


def test_references_of_truncated_labels_are_floors_of_truncated_labels():
    rng = np.random.default_rng(0)
    g = np.repeat([0, 1], [300, 300])
    X = rng.normal(size=(600, 3))
    y = X[:, 0] + np.where(g == 1, 30.0 * (rng.random(600) < 0.02), 0.0) + rng.normal(size=600)
    model = GroupDRONeuronCV("identity", nus=[0.0], truncate=0.9, reference=True).fit(
        X, y, groups=g
    )
    if model.robust_:
        level = model.best_params_["truncate"]
        assert model.best_params_["reference"][1] < np.var(np.clip(y[g == 1], -level, level))
    from counterpoise.solver.options import FitOptions
    from counterpoise.solver.solve import open_solver

    for activation in ("identity", "relu"):  # quadratics, and groups fitted one by one
        solver = open_solver(X, y, g, options=FitOptions(activation=activation))
        raw = references(solver, np.zeros(4))
        clipped = references(solver.variant(truncate=3.0), np.zeros(4))
        assert raw[1] > 5 * clipped[1]


@pytest.mark.slow
def test_without_known_floors_there_are_no_reference_candidates():
    rng = np.random.default_rng(0)
    X, g = rng.normal(size=(120, 4)), np.repeat(np.arange(30), 4)
    model = GroupDRONeuronCV("identity").fit(X, X[:, 0], groups=g)
    assert set(model.cv_results_["family"]) == {"average", "plain", "truncated at 0.99"}


@pytest.mark.parametrize("level", [0.0, 3.0])
def test_constant_labels(level):
    X, _, g = shifted(sizes=(30, 20, 20))
    model = GroupDRONeuronCV("identity").fit(X, np.full(70, level), groups=g)
    np.testing.assert_allclose(model.predict(X), level, atol=1e-9)


def test_the_chosen_estimator_knows_the_features_and_takes_its_params_again():
    X, y, g = shifted()
    frame = pd.DataFrame(X, columns=["u", "v", "w"])
    model = GroupDRONeuronCV("identity", nus=[0.05], truncate=None, reference=True)
    model.fit(frame, y, groups=g)
    assert model.best_estimator_.predict(frame).shape == (600,)
    assert set(model.best_params_["reference"]) == {"a", "b", "c"}
    again = GroupDRONeuron("identity", **model.best_params_).fit(frame, y, groups=g)
    np.testing.assert_array_equal(again.coef_, model.coef_)


@pytest.mark.slow
def test_a_striking_fold_is_mentioned():
    X, y, g = shifted()
    y = y.copy()
    y[-1] += 500.0
    model = GroupDRONeuronCV("identity").fit(X, y, groups=g)
    assert "a few rows dominate it" in model.verdict_


@pytest.mark.slow
def test_relu_and_chi_squared_choose_as_well():
    rng = np.random.default_rng(0)
    X, g = rng.normal(size=(400, 3)), np.repeat([0, 1], [320, 80])
    y = np.maximum(X[:, 0] * np.array([1.0, 2.0])[g], 0) + 0.05 * rng.normal(size=400)
    model = GroupDRONeuronCV("relu", divergence="chi2").fit(X, y, groups=g)
    assert model.robust_
    assert model.certificate_.duality_gap is None


# -- the frontier ------------------------------------------------------------------------------


@pytest.mark.slow
def test_frontier_table_and_picture(tmp_path):
    X, y, g = shifted()
    found = frontier(X, y, g, activation="identity")
    assert isinstance(found, Frontier)
    plain = [i for i, family in enumerate(found.family) if family == "plain"]
    assert (np.diff(found.nu[plain]) < 0).all(), "from the average to the worst group"
    assert found.average[plain[-1]] > found.average[0], "robustness costs on average"
    assert found.worst[found.chosen] < found.worst[0]
    lines = str(found).splitlines()
    assert len(lines) == len(found) + 2
    assert [line[0] for line in lines[1:-1]].count("*") == 1
    assert lines[1 + found.chosen].startswith("*")
    ax = found.plot(path=tmp_path / "frontier.png")
    assert (tmp_path / "frontier.png").exists()
    labels = ax.get_legend_handles_labels()[1]
    assert "average" in labels
    assert "chosen" in labels
    assert found.plot(ax=ax) is ax


@pytest.mark.slow
def test_families_far_off_are_named_not_drawn():
    X, y, g = shifted()
    y = y + 10.0  # clipped at a low quantile, everything is wrong
    found = frontier(X, y, g, activation="identity", truncate=(None, 0.05))
    legend = found.plot().get_legend()
    assert "not shown: truncated at 0.05" in legend.get_title().get_text()


# -- bad input ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (dict(nus=[]), "nus is empty"),
        (dict(nus=[-1.0]), "nu must be >= 0; got -1.0"),
        (dict(nus=0.1), "nus must be a list of numbers >= 0, or None; got 0.1"),
        (dict(nus="auto"), "nus must be a list of numbers >= 0, or None; got 'auto'"),
        (dict(truncate=[[0.9]]), "truncate must be a flat list"),
        (dict(cv=[(np.arange(70), np.arange(70))] * 2), "make the two disjoint"),
        (dict(cv=KFold(3), repeats=2), "leave repeats at 1"),
        (dict(truncate=(1.5,)), r"truncate must list quantiles between 0 and 1, or None; got 1.5"),
        (dict(truncate=()), "must list at least one choice"),
        (dict(reference=("yes",)), "reference must list True or False; got 'yes'"),
        (dict(cv=1), "cv must be at least 2 folds; got 1"),
        (dict(cv="five"), "cv must be a number of folds"),
        (dict(cv=[(np.arange(5), np.arange(5, 9))]), "cv must give at least two splits; got 1"),
        (dict(cv=[(np.arange(5), []), ([], np.arange(5))]), "no rows"),
        (dict(repeats=0), "repeats must be a positive integer; got 0"),
        (dict(level=2.0), "level must be a probability"),
        (dict(prior="even"), "prior='even' is not known"),
        (dict(fit_intercept=1), "fit_intercept must be True or False; got 1"),
    ],
)
def test_bad_options(options, message):
    X, y, g = shifted(sizes=(30, 20, 20))
    with pytest.raises(ValueError, match=message):
        GroupDRONeuronCV("identity", **options).fit(X, y, groups=g)


def test_every_group_of_one_row_is_an_error():
    with pytest.raises(ValueError, match="two rows or more"):
        GroupDRONeuronCV("identity").fit(np.eye(3), np.arange(3.0), groups=[0, 1, 2])


# -- candidates --------------------------------------------------------------------------------


def test_candidates_scale_with_the_loss_and_labels():
    half = Candidate(0.5)
    assert half.strength(8.0) == 4.0
    assert Candidate(0.5, relative=False).strength(8.0) == 0.5
    assert Candidate(math.inf).strength(8.0) == math.inf
    assert Candidate(0.0).strength(math.nan) == 0.0
    y = np.linspace(-10, 5, 301)
    assert Candidate(1.0, quantile=0.9).truncation(y) == pytest.approx(np.quantile(np.abs(y), 0.9))
    assert Candidate(1.0, quantile=0.5).truncation(np.zeros(9)) is None
    assert Candidate(1.0).truncation(y) is None
