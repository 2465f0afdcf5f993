"""diagnose(): known laws, verdicts, advice, and that it comes with every fit."""

from __future__ import annotations

import math
import pickle

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from scipy.stats import norm
from sklearn.exceptions import NotFittedError

from counterpoise import Chunks, Diagnosis, GroupDRONeuron, GroupDRONeuronCV, PaperSteps, diagnose
from counterpoise.assessment.diagnosis.assumptions import GAMMAS
from counterpoise.assessment.diagnosis.diagnose import ASSUMPTIONS
from counterpoise.assessment.diagnosis.floors import filled, noise_floors
from counterpoise.assessment.diagnosis.verdicts import DOUBTFUL, HOLDS, VIOLATED
from counterpoise.solver.options import FitOptions
from counterpoise.solver.solve import open_solver

RAW = dict(precondition=None, fit_intercept=False)


def labelled(X, seed=0, noise=0.1):
    """ReLU labels of one neuron for rows of two groups."""
    rng = np.random.default_rng(seed)
    groups = np.repeat(["left", "right"], [len(X) // 2, len(X) - len(X) // 2])
    return X, np.maximum(X @ np.ones(X.shape[1]) / math.sqrt(X.shape[1]), 0) + noise * rng.normal(size=len(X)), groups  # fmt: skip # noqa: E501


LAWS = {
    "gaussian": lambda rng, shape: rng.normal(size=shape),
    "laplace": lambda rng, shape: rng.laplace(size=shape) / math.sqrt(2),
    "cube": lambda rng, shape: rng.integers(-1, 2, size=shape).astype(float),
    "heavy": lambda rng, shape: rng.standard_t(2.5, size=shape),
}


def law(name, n=20_000, d=4, seed=0):
    return LAWS[name](np.random.default_rng(seed), (n, d))


# -- laws whose constants are known ------------------------------------------------------------


def test_gaussian_constants():
    found = diagnose(*labelled(law("gaussian")), **RAW)
    for group in found.groups:
        assert pytest.approx(1 / -math.log(2 * norm.sf(1)), rel=0.06) == group.B
        assert group.zeta == pytest.approx(norm.sf(group.gamma), rel=0.12)
        zetas = norm.sf(GAMMAS)
        best = np.max(GAMMAS * zetas / (6 * 0.871 * np.log(20 * 0.871 / zetas**2)))
        assert group.c0 == pytest.approx(best, rel=0.2)
        assert group.c1 == pytest.approx(group.c0**2 / (24 * group.B), rel=1e-9)
        assert group.noise_floor == pytest.approx(0.01, rel=0.1)
        assert group.tail_share == pytest.approx(0.085, abs=0.03)
        assert 0.1 < group.measured_c1 <= 1.2
    for assumption in ("tails", "margin", "sharpness", "labels"):
        assert found.status(assumption) == HOLDS, found
    assert found.advice[0] == "proceed: nothing here argues against worst-group training."
    assert found.advice[1].startswith("expect little gain: ")


def test_laplace_constants():
    found = diagnose(*labelled(law("laplace")), **RAW)
    for group in found.groups:
        # sqrt(1/2) along axes, towards the Gaussian's along others
        assert 0.7 < group.B < 0.9
    assert found.status("tails") == HOLDS
    assert found.status("margin") == HOLDS


def test_cube_constants():
    found = diagnose(*labelled(law("cube")), **RAW)
    for group in found.groups:
        assert pytest.approx(1 / math.log(1.5), rel=0.06) == group.B
        assert 0.01 < group.zeta <= 2 / 9 + 0.01
    assert found.status("tails") == HOLDS
    assert found.status("margin") == HOLDS


@pytest.mark.parametrize("precondition", [None, "auto"])
def test_heavy_tails_are_flagged(precondition):
    X, y, g = labelled(law("heavy"))
    found = diagnose(X, y, g, precondition=precondition, fit_intercept=False)
    assert found.status("tails") == VIOLATED
    assert any(sentence.startswith("clip or transform features") for sentence in found.advice)
    assert "standard errors" in found["left"].verdicts["tails"].evidence


def test_the_heavy_feature_is_named_and_only_its_group_blamed():
    X, y, g = labelled(law("gaussian"))
    X = X.copy()
    X[g == "right", 2] = np.random.default_rng(1).standard_t(2.2, size=np.sum(g == "right"))
    found = diagnose(pd.DataFrame(X, columns=["a", "b", "income", "d"]), y, g)
    assert found["left"].verdicts["tails"].status == HOLDS
    assert found["right"].verdicts["tails"].status == VIOLATED
    assert "income" in found["right"].verdicts["tails"].evidence


# -- other verdicts ----------------------------------------------------------------------------


def test_a_few_rows_that_decide_the_loss():
    X, y, g = labelled(law("gaussian", n=4000))
    y = y.copy()
    y[np.flatnonzero(g == "right")[:15]] += 40.0
    found = diagnose(X, y, g)
    assert found["right"].verdicts["labels"].status == VIOLATED
    assert found["left"].verdicts["labels"].status == HOLDS
    assert found["right"].tail_share > 0.9
    assert found.advice[0].startswith("truncate labels, or raise nu")
    assert "right" in found.advice[0]


def test_small_groups_should_be_merged():
    X, _, _ = labelled(law("gaussian", n=400, d=10))
    y, g = X[:, 0], np.r_[np.zeros(370, int), np.ones(30, int)]
    found = diagnose(X, y, g, activation="identity")
    assert found[1].verdicts["rows"].status == VIOLATED
    assert found[1].verdicts["tails"].status == DOUBTFUL
    assert any(sentence.startswith("merge groups") for sentence in found.advice)


def test_noise_that_no_neuron_avoids_calls_for_reference_risks():
    X, y, g = labelled(law("gaussian", n=4000))
    y = y + np.where(g == "right", 3.0, 0.0) * np.random.default_rng(2).normal(size=len(y))
    found = diagnose(X, y, g)
    assert found["right"].noise_floor == pytest.approx(9.0, rel=0.15)
    assert any("use reference risks" in sentence for sentence in found.advice)


def test_a_neuron_that_is_silent_in_a_group():
    """Rows of one group lie where the others' neuron says nothing."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(4000, 3))
    g = np.repeat([0, 1], [3900, 100])
    X[g == 1, 0] = -8.0 - rng.random(100)
    y = np.maximum(X[:, 0], 0) + 0.01 * rng.normal(size=4000)
    found = diagnose(X, y, g)
    assert found[1].measured_c1 < 0.2 * found[0].measured_c1
    assert found[1].verdicts["margin"].status == VIOLATED


def test_a_linear_unit_needs_no_margin():
    X, y, g = labelled(np.abs(law("gaussian")))
    linear = diagnose(X, y, g, activation="identity", **RAW)
    assert linear.status("margin") == HOLDS
    assert linear["left"].zeta == pytest.approx(linear["left"].c1)
    relu = diagnose(X, y, g, **RAW)
    assert relu["left"].zeta == 0.0, "no row is active for a neuron that points away"
    assert relu.status("margin") == DOUBTFUL, "but many are at the fit"


@pytest.mark.slow
def test_many_features_are_not_checked_for_margin():
    X, y, g = labelled(law("gaussian", n=800, d=520))
    found = diagnose(sparse.csr_matrix(X), y, g)
    assert "too many features" in found["left"].verdicts["margin"].evidence


def test_groups_cut_by_the_sample_still_count_in_full():
    """Nine tenths of the rows have slope one: the average fit is theirs, sampled or not."""
    rng = np.random.default_rng(0)
    g = np.repeat([0, 1], [90_000, 10_000])
    X = rng.normal(size=(100_000, 20))
    y = X[:, 0] * np.array([1.0, 3.0])[g] + 0.1 * rng.normal(size=100_000)
    model = GroupDRONeuron("identity", nu=0.1).fit(X, y, groups=g)
    plain = GroupDRONeuron("identity", nu=math.inf, prior="rows").fit(X, y, groups=g)
    found = model.diagnose_
    assert found.sampled < 20_000
    for group, exact in zip(found.groups, plain.group_risks_, strict=True):
        assert group.average_loss == pytest.approx(exact, rel=0.1)


def test_a_group_that_hardly_varies_is_not_called_silent_if_the_unit_is_linear():
    X, y, g = labelled(law("gaussian", n=3000))
    X = np.where((g == "right")[:, None], 0.01 * X, X)
    found = diagnose(X, y, g, activation="identity")
    assert found["right"].verdicts["sharpness"].status == HOLDS
    assert not any("inactive" in sentence for sentence in found.advice)


def test_measured_sharpness_does_not_depend_on_units_under_the_papers_schedule():
    X, y, g = labelled(law("gaussian", n=600))
    one, other = (
        GroupDRONeuron("relu", schedule=PaperSteps(), fit_intercept=False, max_iter=30)
        .fit(unit * X, y, groups=g)
        .diagnose_["left"]
        .measured_c1
        for unit in (1.0, 100.0)
    )
    assert 0.05 < one < 5
    assert 0.05 < other < 5


def test_features_that_do_not_vary():
    y, g = np.random.default_rng(0).normal(size=200), np.repeat([0, 1], 100)
    for activation in ("relu", "identity"):
        found = diagnose(np.zeros((200, 3)), y, g, activation=activation)
        assert found.status("margin") == VIOLATED
        assert "no feature varies" in found[0].verdicts["margin"].evidence


def test_fewer_rows_than_coefficients_never_hold():
    X, y, g = labelled(law("gaussian", n=20, d=9))
    assert diagnose(X, y, g, epsilon=1e6).status("rows") == VIOLATED


# -- as a user meets it ------------------------------------------------------------------------


def test_report_reads_well():
    found = diagnose(*labelled(law("gaussian", n=2000)))
    assert isinstance(found, Diagnosis)
    text = str(found)
    assert text.startswith(found.worth.verdict())
    table = text.split("The theory's assumptions\n\n")[1]
    assert table.splitlines()[0].split() == [
        "group", "rows", "loss", "noise", "B", "zeta", *ASSUMPTIONS,
    ]  # fmt: skip
    assert "passes" not in text  # bounds, which nobody should take for predictions
    assert text.splitlines()[-1].startswith("Advice: ")
    with pytest.raises(KeyError):
        found["middle"]
    with pytest.raises(KeyError, match="not one of"):
        found.status("weather")
    for group in found.groups:
        assert set(group.verdicts) == set(ASSUMPTIONS)
        for verdict in group.verdicts.values():
            assert verdict.status in (HOLDS, DOUBTFUL, VIOLATED)
            assert str(verdict) == f"{verdict.status}: {verdict.evidence}"


def test_long_reports_are_cut_to_the_groups_with_trouble():
    rng = np.random.default_rng(0)
    X, g = rng.normal(size=(3000, 2)), np.repeat(np.arange(60), 50)
    text = str(diagnose(X, X[:, 0], g, activation="identity"))
    assert "35 groups with fewer problems" in text


def test_deterministic_under_its_seed():
    rows = labelled(law("gaussian", n=2000))
    first = diagnose(*rows, random_state=1)
    assert str(first) == str(diagnose(*rows, random_state=1))
    assert first.groups[0].c0 != diagnose(*rows, random_state=2).groups[0].c0


def test_units_of_labels_and_features_do_not_matter():
    X, y, g = labelled(law("gaussian", n=3000))
    one, other = diagnose(X, y, g), diagnose(1e3 * X + 5.0, 40.0 * y, g)
    for a, b in zip(one.groups, other.groups, strict=True):
        assert pytest.approx(a.B, rel=1e-6) == b.B
        assert b.zeta == pytest.approx(a.zeta, rel=1e-6)
        assert b.rows_needed == pytest.approx(a.rows_needed, rel=1e-2)
        assert b.noise_floor == pytest.approx(1600 * a.noise_floor, rel=1e-2)
        assert b.measured_c1 == pytest.approx(a.measured_c1, rel=0.1)
    assert other.truncation == pytest.approx(40 * one.truncation, rel=1e-2)
    assert other.paper_passes == pytest.approx(one.paper_passes, rel=1e-2)


@pytest.mark.slow
def test_large_tables_are_sampled_but_counted_in_full():
    rng = np.random.default_rng(0)
    X, g = rng.normal(size=(300_000, 30)), rng.integers(0, 3, 300_000)
    found = diagnose(X, np.maximum(X[:, 0], 0), g, activation="identity")
    assert found.sampled < 160_000
    assert sum(group.rows for group in found.groups) == 300_000


def test_weights_repeat_rows():
    X, y, g = labelled(law("gaussian", n=600))
    weight = np.random.default_rng(0).integers(1, 3, size=600).astype(float)
    found = diagnose(X, y, g, weight, activation="identity")
    again = np.repeat(np.arange(600), weight.astype(int))
    repeated = diagnose(X[again], y[again], g[again], activation="identity")
    assert found["left"].average_loss == pytest.approx(repeated["left"].average_loss, rel=1e-6)


def test_rows_elsewhere():
    X, y, g = labelled(law("gaussian", n=3000))
    cuts = [slice(a, a + 1000) for a in range(0, 3000, 1000)]
    found = diagnose(Chunks(lambda: ((X[s], y[s], g[s]) for s in cuts)))
    assert found["left"].rows == 1500
    assert found.status("tails") == HOLDS


def test_a_fit_has_its_own_diagnosis():
    X, y, g = labelled(law("gaussian", n=3000))
    model = GroupDRONeuron(nu=0.05).fit(pd.DataFrame(X, columns=list("wxyz")), y, groups=g)
    found = model.diagnose_
    assert found is model.diagnose_, "made once"
    np.testing.assert_allclose(
        [group.measured_c1 for group in found.groups],
        model.certificate_.group_sharpness,
        rtol=0.05,
    )
    stored = pickle.loads(pickle.dumps(model))
    assert str(stored.diagnose_) == str(found), "asked for before storing"
    again = pickle.loads(pickle.dumps(GroupDRONeuron(nu=0.05).fit(X, y, groups=g)))
    with pytest.raises(AttributeError, match="a stored model keeps no rows to diagnose"):
        again.diagnose_  # noqa: B018
    assert b"RowSample" not in pickle.dumps(again)
    with pytest.raises(NotFittedError):
        GroupDRONeuron().diagnose_  # noqa: B018
    refit = model.fit(X[:1000], y[:1000], groups=g[:1000])
    assert refit.diagnose_.groups[0].rows == 1000


def test_the_chosen_fit_has_one_too():
    X, y, g = labelled(law("gaussian", n=600))
    model = GroupDRONeuronCV("identity", nus=[0.0]).fit(X, y, groups=g)
    assert isinstance(model.best_estimator_.diagnose_, Diagnosis)
    assert isinstance(model.diagnose_, Diagnosis)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (dict(epsilon=0.0), "epsilon must be a positive number; got 0.0"),
        (dict(delta=1.0), "delta must be a probability between 0 and 1; got 1.0"),
        (dict(epsilon="a"), "epsilon must be a positive number; got 'a'"),
        (dict(epsilon=True), "epsilon must be a positive number; got True"),
        (dict(random_state=None), "random_state must be an integer >= 0; got None"),
        (dict(random_state=-1), "random_state must be an integer >= 0; got -1"),
        (dict(fit_intercept="yes"), "fit_intercept must be True or False; got 'yes'"),
        (dict(activation="tanh"), "tanh"),
        (dict(precondition="sphere"), "precondition='sphere' is not known"),
    ],
)
def test_bad_options(options, message):
    with pytest.raises(ValueError, match=message):
        diagnose(*labelled(law("gaussian", n=100)), **options)


# -- noise floors ------------------------------------------------------------------------------


@pytest.mark.parametrize("activation", ["identity", "relu", "softplus"])
def test_floors_find_the_noise_of_every_group(activation):
    from counterpoise.activations import NAMED

    rng = np.random.default_rng(0)
    g = np.repeat([0, 1, 2], 2000)
    X = rng.normal(size=(6000, 5))
    slopes = rng.normal(size=(3, 5))
    sigma = np.array([0.5, 1.0, 2.0])[g]
    y = NAMED[activation]().value(np.sum(X * slopes[g], axis=1)) + sigma * rng.normal(size=6000)
    floors = noise_floors(open_solver(X, y, g, options=FitOptions(activation=activation)))
    np.testing.assert_allclose(floors, [0.25, 1.0, 4.0], rtol=0.1)


def test_floors_are_unbiased_in_small_groups_and_unknown_in_tiny_ones():
    rng = np.random.default_rng(1)
    sizes = [40] * 60 + [15] * 3
    g = np.repeat(np.arange(63), sizes)
    X = rng.normal(size=(len(g), 9))
    y = X[:, 0] + rng.normal(size=len(g))
    floors = noise_floors(open_solver(X, y, g, options=FitOptions(activation="identity")))
    for k in range(0, 60, 7):
        rows = np.column_stack([X[g == k], np.ones(40)])
        rest = y[g == k] - rows @ np.linalg.lstsq(rows, y[g == k], rcond=None)[0]
        assert floors[k] == pytest.approx(rest @ rest / (40 - 10), rel=1e-6)
    assert np.isnan(floors[60:]).all()
    full = filled(floors, np.full(63, 2.0))
    share = np.median(np.minimum(floors[:60] / 2.0, 1.0))
    np.testing.assert_allclose(full[60:], 2.0 * share)
    assert filled(np.full(3, np.nan), np.ones(3)) is None
