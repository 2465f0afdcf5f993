"""GroupDRONeuron as scikit-learn sees it."""

from __future__ import annotations

import logging
import pickle
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pandas as pd
import polars as pl
import pytest
from problems import neuron_data
from scipy import sparse
from sklearn import config_context
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.metrics import make_scorer
from sklearn.model_selection import GridSearchCV, GroupKFold, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from counterpoise import (
    Activation,
    AdaptiveSteps,
    Certificate,
    GroupDRONeuron,
    PaperSteps,
    group_risks,
    leaky_relu,
    risk,
    worst_group_risk,
)


@parametrize_with_checks(
    [
        GroupDRONeuron(),
        GroupDRONeuron("identity", nu=0.0),
        GroupDRONeuron("softplus", divergence="chi2", nu=0.1),
        GroupDRONeuron("leaky_relu", polish=False, precondition="scale", fit_intercept=False),
    ]
)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_scikit_learn_conformance(estimator, check):
    check(estimator)


@pytest.fixture
def data():
    X, y, g = neuron_data(K=4, n=100, d=5)
    return X, y, np.array(["north", "east", "south", "west"])[g]


def test_fitted_attributes(data):
    X, y, g = data
    m = GroupDRONeuron(activation="relu", divergence="kl", nu=0.1).fit(X, y, groups=g)
    assert m.groups_.tolist() == ["east", "north", "south", "west"]
    assert m.coef_.shape == (5,)
    assert isinstance(m.intercept_, float)
    assert m.n_features_in_ == 5
    assert m.nu_ == 0.1
    by_group = group_risks(y, m.predict(X), groups=g)
    np.testing.assert_allclose(m.group_risks_, [by_group[k] for k in m.groups_])
    assert m.risk_ == pytest.approx(risk(m.group_risks_, 0.1))
    weights = np.exp(m.group_risks_ / 0.1)
    np.testing.assert_allclose(m.group_weights_, weights / weights.sum(), rtol=1e-6)
    assert set(m.history_) == {"risk", "worst", "step", "slack", "weights", "group_risks"}
    assert {len(v) for v in m.history_.values()} == {m.n_iter_}
    assert m.history_["weights"].shape == (m.n_iter_, 4)
    np.testing.assert_array_equal(m.history_["group_risks"].max(axis=1), m.history_["worst"])
    assert m.n_passes_ > m.n_iter_
    assert m.status_.startswith("Converged")
    assert isinstance(m.certificate_, Certificate)
    assert m.worst_group_risk(X, y, g) == pytest.approx(m.group_risks_.max())


def test_no_groups_means_one_group(data):
    X, y, _ = data
    alone = GroupDRONeuron(nu=0.1).fit(X, y)
    assert alone.groups_.shape == alone.group_weights_.shape == (1,)
    same = GroupDRONeuron(nu=0.1).fit(X, y, groups=["all"] * len(y))
    np.testing.assert_array_equal(alone.coef_, same.coef_)


def test_it_helps_the_worst_group(data):
    X, y, g = data
    average = GroupDRONeuron(nu=1e6).fit(X, y, groups=g)
    robust = GroupDRONeuron(nu=0.0).fit(X, y, groups=g)
    assert robust.group_risks_.max() < average.group_risks_.max()
    assert robust.group_risks_.mean() >= average.group_risks_.mean() * (1 - 1e-3)


def test_clone_keeps_parameters_untouched():
    own = Activation(lambda t: np.maximum(t, 0.5 * t), None, 1.0, 1.0, name="own")
    prior = {"a": 0.25, "b": 0.75}
    m = GroupDRONeuron(own, prior=prior, schedule=AdaptiveSteps(c1=0.1))
    twin = clone(m)
    assert twin.get_params()["prior"] == prior
    assert twin.get_params()["schedule"] == AdaptiveSteps(c1=0.1)
    assert m.prior is prior
    assert m.activation is own


def test_pipeline_and_metadata_routing(data):
    X, y, g = data
    with config_context(enable_metadata_routing=True):
        neuron = GroupDRONeuron(nu=0.1).set_fit_request(groups=True, sample_weight=True)
        pipeline = make_pipeline(StandardScaler().set_fit_request(sample_weight=False), neuron)
        pipeline.fit(X, y, groups=g, sample_weight=np.ones(len(y)))
        assert len(pipeline[-1].groups_) == 4
        scorer = make_scorer(worst_group_risk, greater_is_better=False).set_score_request(
            groups=True
        )
        scores = cross_validate(
            pipeline, X, y, scoring=scorer, cv=3, params={"groups": g, "sample_weight": None}
        )
        assert (scores["test_score"] < 0).all()


@pytest.mark.slow
def test_grid_search_by_worst_group(data):
    X, y, g = data
    with config_context(enable_metadata_routing=True):
        scorer = make_scorer(worst_group_risk, greater_is_better=False).set_score_request(
            groups=True
        )
        search = GridSearchCV(
            GroupDRONeuron().set_fit_request(groups=True),
            {"nu": [0.0, 0.1, 1e6], "divergence": ["kl", "chi2"]},
            scoring=scorer,
            cv=3,
        ).fit(X, y, groups=g)
    best = -search.best_score_
    table = -search.cv_results_["mean_test_score"]
    assert best == table.min()
    assert best < table[[p == {"nu": 1e6, "divergence": "kl"}
                         for p in search.cv_results_["params"]]][0]  # fmt: skip
    assert len(search.best_estimator_.groups_) == 4


def test_groups_may_also_drive_the_split(data):
    X, y, g = data
    with config_context(enable_metadata_routing=True):
        result = cross_validate(
            GroupDRONeuron(nu=0.1).set_fit_request(groups=True), X, y, cv=GroupKFold(4),
            params={"groups": g}, return_estimator=True,
        )  # fmt: skip
    assert all(len(m.groups_) == 3 for m in result["estimator"])


@pytest.mark.slow
def test_parallel_workers_agree(data):
    X, y, g = data
    with config_context(enable_metadata_routing=True):
        scores = [
            cross_validate(
                GroupDRONeuron(nu=0.1).set_fit_request(groups=True), X, y, cv=3,
                params={"groups": g}, n_jobs=jobs,
            )["test_score"]
            for jobs in (1, 2)
        ]  # fmt: skip
    np.testing.assert_array_equal(*scores)


def test_frames(data):
    X, y, g = data
    columns = [f"x{i}" for i in range(5)]
    base = GroupDRONeuron(nu=0.1).fit(X, y, groups=g)
    frame = pd.DataFrame(X, columns=columns)
    m = GroupDRONeuron(nu=0.1).fit(frame, pd.Series(y), groups=pd.Series(g, dtype="category"))
    assert m.feature_names_in_.tolist() == columns
    np.testing.assert_allclose(m.coef_, base.coef_, rtol=1e-10)
    np.testing.assert_allclose(m.predict(frame), base.predict(X), rtol=1e-10)
    with pytest.raises(ValueError, match="feature names"):
        m.predict(frame[columns[::-1]])
    m = GroupDRONeuron(nu=0.1).fit(
        pl.DataFrame(X, schema=columns), pl.Series(y), groups=pl.Series(g.tolist())
    )
    assert m.feature_names_in_.tolist() == columns
    assert m.groups_.tolist() == base.groups_.tolist()
    np.testing.assert_allclose(m.coef_, base.coef_, rtol=1e-10)


def test_sparse_and_float32_predictions(data):
    X, y, g = data
    m = GroupDRONeuron(nu=0.1).fit(sparse.csr_matrix(X), y, groups=g)
    np.testing.assert_allclose(m.predict(sparse.csr_matrix(X)), m.predict(X))
    m32 = GroupDRONeuron(nu=0.1).fit(X.astype(np.float32), y, groups=g)
    np.testing.assert_allclose(m32.predict(X.astype(np.float32)), m32.predict(X), atol=1e-5)


GROUPS_OF_MANY_KINDS = {
    "int": lambda g: g,
    "bool": lambda g: g > 1,
    "str": lambda g: g.astype(str),
    "object": lambda g: np.array([f"g{i}" for i in g], dtype=object),
    "float": lambda g: g + 0.5,
    "date": lambda g: np.datetime64("2020-01-01") + g,
    "list": lambda g: g.tolist(),
    "category": lambda g: pd.Categorical(g.astype(str)),
}


@pytest.mark.parametrize("kind", GROUPS_OF_MANY_KINDS)
def test_group_labels_of_any_sortable_kind(kind):
    X, y, g = neuron_data(K=4, n=40, d=3)
    labels = GROUPS_OF_MANY_KINDS[kind](g)
    m = GroupDRONeuron(nu=0.1).fit(X, y, groups=labels)
    assert m.groups_.tolist() == sorted(set(np.asarray(labels).tolist()))


BAD = {
    "activation": (dict(activation="tanh"), "activation='tanh' is not known; use one of"),
    "divergence": (dict(divergence="tv"), "divergence='tv' is not known"),
    "negative nu": (dict(nu=-1.0), "nu must be >= 0; got -1.0"),
    "nu word": (dict(nu="big"), "nu must be a number >= 0 or 'auto'; got 'big'"),
    "nu nan": (dict(nu=float("nan")), "nu must be >= 0"),
    "radius": (dict(radius=0.0), "radius must be None or a positive finite number; got 0.0"),
    "truncate": (dict(truncate=-2), "truncate must be None or a positive finite number; got -2"),
    "prior length": (dict(prior=[0.5, 0.5]), "prior must hold one weight for each of 4 groups"),
    "prior sum": (dict(prior=[1.0, 1.0, 1.0, 1.0]), "prior must sum to 1; it sums to 4"),
    "prior sign": (dict(prior=[0.5, 0.5, -0.1, 0.1]), "prior must be positive and finite; entry 2"),
    "prior name": (dict(prior={"nort": 1.0}), "prior names groups that are not in the data"),
    "prior missing": (dict(prior={"north": 1.0}), "prior has no value for group"),
    "reference name": (dict(reference={"up": 0.1}), "reference names groups that are not in the"),
    "reference nan": (dict(reference=[0, 0, 0, np.nan]), "reference risks must be finite"),
    "schedule": (dict(schedule="fast"), "schedule='fast' is not known; use one of 'adaptive'"),
    "precondition": (dict(precondition="pca"), "precondition='pca' is not known"),
    "max_iter": (dict(max_iter=0), "max_iter must be a positive integer; got 0"),
    "tol": (dict(tol=-1e-3), "tol must be a number >= 0; got -0.001"),
    "polish": (dict(polish="yes"), "polish must be True or False; got 'yes'"),
    "epsilon": (
        dict(schedule=PaperSteps(epsilon=5.0), radius=1.0), "choose a smaller epsilon",
    ),
    "outside the class": (
        dict(activation=Activation(np.tanh, None, 0.1, 1.0, name="tanh")),
        "activation 'tanh' is outside the class.*near t =",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_bad_options_are_refused_before_any_work(case, data, monkeypatch):
    options, message = BAD[case]
    X, y, g = data
    if case != "epsilon":  # which depends on what the data say of beta and radius
        monkeypatch.setattr("counterpoise.solver.frame.Frame.measure", no_work)
    m = GroupDRONeuron(**options)
    with pytest.raises(ValueError, match=message):
        m.fit(X, y, groups=g)
    assert not hasattr(m, "coef_")


def no_work(*_):
    raise AssertionError("work began before the arguments were checked")


def test_bad_rows_are_refused(data, monkeypatch):
    X, y, g = data
    monkeypatch.setattr("counterpoise.solver.frame.Frame.measure", no_work)
    m = GroupDRONeuron()
    holed = X.copy()
    holed[3, 1] = np.nan
    with pytest.raises(ValueError, match="NaN"):
        m.fit(holed, y, groups=g)
    holed[3, 1] = np.inf
    with pytest.raises(ValueError, match="infinity"):
        m.fit(holed, y, groups=g)
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        m.fit(X, y[:-1], groups=g)
    with pytest.raises(ValueError, match=r"groups must hold one label for each of the 400 rows"):
        m.fit(X, y, groups=g[:-1])
    gone = g.astype(object)
    gone[7] = None
    with pytest.raises(ValueError, match=r"groups is missing at 1 row\(s\), first at row 7"):
        m.fit(X, y, groups=gone)
    with pytest.raises(ValueError, match="sample_weight"):
        m.fit(X, y, groups=g, sample_weight=np.ones(3))
    with pytest.raises(ValueError, match="not negative"):
        m.fit(X, y, groups=g, sample_weight=-np.ones(len(y)))


def test_not_fitted():
    with pytest.raises(NotFittedError):
        GroupDRONeuron().predict(np.zeros((2, 2)))


def test_convergence_warning(data):
    X, y, g = data
    with pytest.warns(ConvergenceWarning, match="Raise max_iter"):
        GroupDRONeuron(nu=0.1, polish=False, max_iter=2).fit(X, y, groups=g)


def test_verbose_logs_and_cleans_up(data, capsys):
    X, y, g = data
    logger = logging.getLogger("counterpoise")
    before = (logger.level, list(logger.handlers))
    logger.propagate = False
    try:
        GroupDRONeuron(nu=0.1, verbose=1).fit(X, y, groups=g)
        quiet = capsys.readouterr()
        GroupDRONeuron(nu=0.1, verbose=2).fit(X, y, groups=g)
        chatty = capsys.readouterr()
        GroupDRONeuron(nu=0.1).fit(X, y, groups=g)
        silent = capsys.readouterr()
    finally:
        logger.propagate = True
    assert quiet.out == chatty.out == silent.out == silent.err == ""
    assert "Algorithm 1:" in quiet.err
    assert "polish:" in quiet.err
    assert chatty.err.count("\n") > quiet.err.count("\n") + 5
    assert (logger.level, list(logger.handlers)) == before


def test_prior_as_a_series_is_read_by_its_index(data):
    X, y, g = data
    weights = {"west": 0.1, "north": 0.4, "south": 0.3, "east": 0.2}
    by_name = GroupDRONeuron(nu=0.1, prior=weights).fit(X, y, groups=g)
    series = GroupDRONeuron(nu=0.1, prior=pd.Series(weights)).fit(X, y, groups=g)
    np.testing.assert_array_equal(by_name.coef_, series.coef_)


def test_prior_keyed_by_dates():
    X, y, g = neuron_data(K=2, n=40, d=3)
    days = pd.to_datetime(["2020-01-01", "2020-01-02"]).to_numpy()
    m = GroupDRONeuron(nu=0.1, prior={days[0]: 0.25, days[1]: 0.75}).fit(X, y, groups=days[g])
    assert m.groups_.tolist() == days.tolist()
    assert list(group_risks(y, m.predict(X), groups=days[g])) == list(days)


def test_fitted_models_keep_their_activation_and_pickle(data):
    X, y, g = data
    m = GroupDRONeuron(leaky_relu(0.1), nu=0.1).fit(X, y, groups=g)
    before = m.predict(X)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(m)).predict(X), before)
    m.set_params(activation="identity")
    np.testing.assert_array_equal(m.predict(X), before)


def test_fits_in_threads_leave_blas_as_it_was(data):
    from threadpoolctl import threadpool_info

    def blas_threads():
        return [lib["num_threads"] for lib in threadpool_info() if lib["user_api"] == "blas"]

    X, y, g = data
    before = blas_threads()
    alone = GroupDRONeuron(nu=0.1).fit(X, y, groups=g).coef_

    def fit(i):
        time.sleep(0.003 * i)
        return GroupDRONeuron(nu=0.1).fit(X, y, groups=g).coef_

    with ThreadPoolExecutor(6) as pool:
        for coef in pool.map(fit, range(12)):
            np.testing.assert_array_equal(coef, alone)
    assert blas_threads() == before
