"""GroupDROClassifier and GroupDRORegressor."""

import numpy as np
import pytest
import torch
from scipy import sparse
from sklearn.linear_model import HuberRegressor, LogisticRegression, PoissonRegressor
from sklearn.metrics import log_loss
from sklearn.utils.estimator_checks import parametrize_with_checks

from counterpoise import Chunks, GroupDROClassifier, GroupDRONeuron, GroupDRORegressor, load
from counterpoise.losses import Huber, Loss, Multinomial


@parametrize_with_checks(
    [
        GroupDROClassifier(),
        GroupDROClassifier(nu=0.0, divergence="chi2", alpha=1e-3),
        GroupDROClassifier("squared_hinge", nu=0.0, alpha=1e-3),
        GroupDRORegressor(),
        GroupDRORegressor("huber", nu=0.0),
    ]
)
def test_scikit_learn(estimator, check):
    check(estimator)


def problem(n=600, d=4, n_classes=2, seed=0):
    rng = np.random.default_rng(seed)
    X, groups = rng.normal(size=(n, d)) * [1, 3, 0.1, 1], rng.integers(0, 3, n)
    W = rng.normal(size=(n_classes, d)) / [1, 3, 0.1, 1]
    scores = X @ W.T + np.outer(groups, np.linspace(-0.5, 0.5, n_classes))
    y = np.argmax(scores + rng.gumbel(size=scores.shape), axis=1)
    return X, y, groups


@pytest.mark.parametrize("n_classes", [2, 3, 4])
def test_the_average_over_rows_is_logistic_regression(n_classes):
    X, y, groups = problem(n_classes=n_classes)
    weights = np.random.default_rng(1).uniform(0.5, 2, len(y))
    share = weights / weights.sum()
    scale = np.sqrt(share @ (X - share @ X) ** 2)
    model = GroupDROClassifier(alpha=0.02, nu=np.inf, prior="rows", tol=1e-10)
    model.fit(X, y, groups=groups, sample_weight=weights)
    theirs = LogisticRegression(C=1 / (0.02 * weights.sum()), tol=1e-12, max_iter=10000)
    theirs.fit(X / scale, y, sample_weight=weights)
    np.testing.assert_allclose(model.feature_scale_, scale, rtol=1e-10)
    np.testing.assert_allclose(model.coef_ * scale, theirs.coef_, atol=2e-5)
    np.testing.assert_allclose(model.predict_proba(X), theirs.predict_proba(X / scale), atol=1e-5)
    np.testing.assert_allclose(np.exp(model.predict_log_proba(X)), model.predict_proba(X))
    assert (model.predict(X) == theirs.predict(X / scale)).all()
    assert model.decision_function(X).shape == theirs.decision_function(X).shape
    assert model.plain_twin().get_params()["alpha"] == 0.02


def test_the_worst_group_is_better_off_than_under_the_average():
    X, y, groups = problem()
    robust = GroupDROClassifier(nu=0.0).fit(X, y, groups=groups)
    plain = robust.plain_twin().fit(X, y, groups=groups)
    assert robust.group_risks_.max() < plain.group_risks_.max()
    for k, label in enumerate(robust.groups_):
        mine = groups == label
        mean = log_loss(y[mine], robust.predict_proba(X[mine]))
        assert robust.group_risks_[k] == pytest.approx(mean, rel=1e-9)
    ridge = 0.5 * robust.alpha * np.sum((robust.feature_scale_ * robust.coef_) ** 2)
    assert robust.risk_ == pytest.approx(robust.group_risks_.max() + ridge, rel=1e-9)
    assert robust.certificate_.risk == robust.risk_
    assert robust.certificate_.duality_gap < 1e-6


@pytest.mark.parametrize("n_classes", [2, 3])
def test_every_kind_of_rows_gives_the_same_fit(n_classes):
    import dask.array as da
    import dask.dataframe as dd
    import pandas as pd

    X, codes, groups = problem(n_classes=n_classes)
    names = np.array(["ant", "bee", "cat"])[codes]
    weights = np.random.default_rng(2).uniform(0.5, 2, len(codes))
    model = GroupDROClassifier(nu=0.0, tol=1e-9)
    memory = model.fit(X, names, groups=groups, sample_weight=weights)
    coef, probabilities = memory.coef_, memory.predict_proba(X)
    chunks = Chunks([
        (X[i : i + 200], names[i : i + 200], groups[i : i + 200], weights[i : i + 200])
        for i in range(0, 600, 200)
    ])  # fmt: skip
    lazy = da.from_array(X, chunks=(150, 4))
    frame = pd.DataFrame(X, columns=list("abcd")).assign(y=names, g=groups, w=weights)
    given = {
        "sparse": (sparse.csr_matrix(X), names, groups, weights),
        "chunks": (chunks,),
        "dask": (lazy, da.from_array(names, chunks=150), groups, weights),
        "dask frame": (dd.from_pandas(frame, npartitions=3), "y", "g", "w"),
        "tensor": (torch.tensor(X), names, torch.tensor(groups), torch.tensor(weights)),
    }
    for kind, (rows, *others) in given.items():
        fitted = GroupDROClassifier(nu=0.0, tol=1e-9).fit(rows, *others)
        np.testing.assert_allclose(fitted.coef_, coef, rtol=1e-4, atol=1e-5, err_msg=kind)
        assert fitted.classes_.tolist() == memory.classes_.tolist()
        found = fitted.predict_proba(rows)
        found = found.compute() if hasattr(found, "compute") else np.asarray(found)
        np.testing.assert_allclose(found, probabilities, atol=1e-4, err_msg=kind)
        labels = fitted.predict(rows)
        labels = labels.compute() if hasattr(labels, "compute") else labels
        assert (np.asarray(labels) == memory.predict(X)).mean() > 0.995, kind


def test_labels_may_be_anything_that_sorts():
    X, y, groups = problem()
    base = GroupDROClassifier().fit(X, y, groups=groups)
    for labels in (y == 1, np.where(y == 1, "yes", "no"), np.where(y == 1, 7, -2)):
        model = GroupDROClassifier().fit(X, labels, groups=groups)
        assert model.classes_.tolist() == sorted(set(labels.tolist()))
        np.testing.assert_allclose(model.coef_, base.coef_)
        assert model.score(X, labels) == base.score(X, y)
        assert (model.predict(X) == np.where(base.predict(X) == 1, *model.classes_[::-1])).all()


def test_a_warm_start_and_a_checkpoint(tmp_path):
    X, y, groups = problem()
    model = GroupDROClassifier(nu=0.0, warm_start=True).fit(X, y, groups=groups)
    cold, risk = model.n_passes_, model.risk_
    model.fit(X, y, groups=groups)
    assert model.n_passes_ < cold
    assert model.risk_ == pytest.approx(risk, rel=1e-7)
    with pytest.raises(ValueError, match="warm_start=False"):
        model.fit(X, y + 1, groups=groups)
    other = GroupDROClassifier(nu=0.0, checkpoint=tmp_path / "journal")
    assert other.fit(X, y, groups=groups).risk_ == pytest.approx(risk, rel=1e-12)
    assert not (tmp_path / "journal").exists()


def test_references_and_a_radius():
    X, y, groups = problem()
    free = GroupDROClassifier(nu=0.0).fit(X, y, groups=groups)
    kept = GroupDROClassifier(nu=0.0, radius=0.5).fit(X, y, groups=groups)
    assert np.linalg.norm(kept.coef_) <= 0.5
    assert kept.certificate_.duality_gap < 1e-6
    assert kept.risk_ > free.risk_
    floor = {0: 0.0, 1: 0.0, 2: 0.2}
    spared = GroupDROClassifier(nu=0.0, reference=floor).fit(X, y, groups=groups)
    excess = spared.group_risks_ - [0.0, 0.0, 0.2]
    ridge = 0.5 * spared.alpha * np.sum((spared.feature_scale_ * spared.coef_) ** 2)
    assert spared.risk_ == pytest.approx(excess.max() + ridge, rel=1e-9)


def test_separable_classes_have_a_minimum():
    X = np.linspace(-1, 1, 60)[:, None]
    y, groups = X[:, 0] > 0.1, np.arange(60) % 3
    model = GroupDROClassifier(nu=0.0).fit(X, y, groups=groups)
    assert model.converged_
    assert model.score(X, y) == 1.0
    assert "separate" in model.status_
    assert 0 <= model.certificate_.duality_gap <= 1e-6


def test_bad_input_is_told():
    X, y, groups = problem()
    with pytest.raises(ValueError, match="loss='huber' is not a loss of classes"):
        GroupDROClassifier("huber").fit(X, y, groups=groups)
    with pytest.raises(ValueError, match="loss='log' is not a loss of numbers"):
        GroupDRORegressor("log").fit(X, y, groups=groups)
    with pytest.raises(ValueError, match="one class"):
        GroupDROClassifier().fit(X, np.zeros(len(X)))
    with pytest.raises(ValueError, match="Only binary"):
        GroupDROClassifier("squared_hinge").fit(X, groups)
    with pytest.raises(ValueError, match="for 4 classes, but y has 2"):
        GroupDROClassifier(Multinomial(4)).fit(X, y)
    with pytest.raises(ValueError, match="alpha must be"):
        GroupDROClassifier(alpha=-1).fit(X, y)
    with pytest.raises(ValueError, match="labels >= 0"):
        GroupDRORegressor("poisson").fit(X, y - 1.0)
    model = GroupDROClassifier("squared_hinge").fit(X, y)
    assert not hasattr(model, "predict_proba")


def test_regressors_are_those_of_scikit_learn():
    rng = np.random.default_rng(4)
    X, groups = rng.normal(size=(400, 3)), rng.integers(0, 2, 400)
    counts = rng.poisson(np.exp(X @ [0.5, -0.2, 0.1] + 0.3))
    ours = GroupDRORegressor("poisson", nu=np.inf, prior="rows", tol=1e-10)
    theirs = PoissonRegressor(alpha=0.0, tol=1e-10, max_iter=1000).fit(X, counts)
    ours.fit(X, counts, groups=groups)
    np.testing.assert_allclose(ours.coef_, theirs.coef_, atol=1e-5)
    np.testing.assert_allclose(ours.predict(X), theirs.predict(X), rtol=1e-4)
    y = X @ [1.0, 2.0, 0.0] + rng.standard_t(1.5, 400)
    fixed = HuberRegressor(epsilon=1.35, alpha=0.0, tol=1e-10, max_iter=10000).fit(X, y)
    # With scikit-learn's estimate of the scale, ours has the same minimiser.
    ours = GroupDRORegressor(Huber(1.35 * fixed.scale_), nu=np.inf, prior="rows", tol=1e-12)
    np.testing.assert_allclose(ours.fit(X, y, groups=groups).coef_, fixed.coef_, atol=1e-4)
    squared = GroupDRORegressor(nu=0.0).fit(X, y, groups=groups)
    neuron = GroupDRONeuron("identity", nu=0.0).fit(X, y, groups=groups)
    np.testing.assert_allclose(squared.coef_, neuron.coef_, atol=1e-5)


def test_an_own_loss():
    class Cosh(Loss):
        name = "cosh"

        def value(self, z, y):
            r = np.abs(z - y)
            return r + np.log1p(np.exp(-2 * r)) - np.log(2)

        def slope(self, z, y):
            return np.tanh(z - y)

        def bend(self, z, y):
            return 1 - np.tanh(z - y) ** 2

        def least_bend(self, z, y, reach):
            return 1 - np.tanh(np.abs(z - y) + reach) ** 2

    rng = np.random.default_rng(5)
    X, groups = rng.normal(size=(300, 2)), rng.integers(0, 3, 300)
    y = X[:, 0] * (1 + groups) + rng.standard_cauchy(300)
    model = GroupDRORegressor(Cosh(), nu=0.0).fit(X, y, groups=groups)
    assert model.certificate_.duality_gap < 1e-6

    class Doubled(Cosh):
        def outputs(self, z):
            return 2.0 * z

    doubled = GroupDRORegressor(Doubled(), nu=0.0).fit(X, y, groups=groups)
    np.testing.assert_allclose(doubled.predict(torch.tensor(X)), doubled.predict(X))
    sparse_fit = GroupDRORegressor(Cosh(), nu=0.0).fit(sparse.csr_matrix(X), y, groups=groups)
    np.testing.assert_allclose(sparse_fit.coef_, model.coef_, atol=1e-4)


def test_two_scores_for_two_classes_are_stored_and_loaded(tmp_path):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 2))
    y = np.where(X[:, 0] + rng.logistic(size=60) > 0, "yes", "no")
    model = GroupDROClassifier(Multinomial(2)).fit(X, y)
    again = load(model.save(tmp_path / "model"))
    assert again.coef_.shape == (2, 2)
    assert again.predict(X).tolist() == model.predict(X).tolist()
