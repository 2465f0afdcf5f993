"""Warm starts and paths over nu: cheaper than cold fits, and no worse."""

from __future__ import annotations

import numpy as np
import pytest
from problems import linear_with_known_minimiser, neuron_data
from sklearn.base import clone

from counterpoise import Chunks, GroupDRONeuron, Source, risk, solve, solve_path
from counterpoise.solver.solution import Start
from counterpoise.solver.solve import PATH

NUS = [0.01, 1.0, 0.0, 0.1]


def data(activation="relu", K=4, n=250, d=5, seed=0):
    return neuron_data(K=K, n=n, d=d, activation=activation, seed=seed)


class Counting(Source):
    """A list of chunks that counts how often it is read."""

    def __init__(self, X, y, g):
        self.chunks = [(X[i::3], y[i::3], g[i::3]) for i in range(3)]
        self.passes = 0

    def __iter__(self):
        self.passes += 1
        return iter(self.chunks)


# -- warm starts ---------------------------------------------------------------------------


@pytest.mark.parametrize("activation", ["relu", "identity", "softplus"])
@pytest.mark.parametrize("nu", ["auto", 0.0, 0.1])
def test_a_second_fit_is_no_worse_and_no_dearer(activation, nu):
    X, y, g = data(activation)
    model = GroupDRONeuron(activation, nu=nu, warm_start=True).fit(X, y, g)
    first = (model.risk_, model.nu_, model.n_iter_, model.n_passes_)
    model.fit(X, y, g)
    assert model.nu_ == pytest.approx(first[1], rel=3e-3)
    if nu == "auto":  # nu itself is known to a thousandth
        assert model.risk_ == pytest.approx(first[0], rel=1e-3)
    else:
        assert model.risk_ <= first[0] * (1 + 1e-9)
        assert model.risk_ == pytest.approx(first[0], rel=1e-4)
    assert model.n_iter_ <= first[2]
    assert model.n_passes_ < first[3]


def test_relu_refits_take_less_than_half_the_passes():
    X, y, g = data()
    model = GroupDRONeuron(nu=0.1, warm_start=True).fit(X, y, g)
    cold = model.n_passes_
    assert 2 * model.fit(X, y, g).n_passes_ < cold


def test_without_warm_start_a_second_fit_is_the_first():
    X, y, g = data()
    model = GroupDRONeuron(nu=0.1).fit(X, y, g)
    coef, passes = model.coef_.tobytes(), model.n_passes_
    model.fit(X, y, g)
    assert (model.coef_.tobytes(), model.n_passes_) == (coef, passes)


def test_a_warm_start_on_other_rows_ends_at_their_minimum():
    X, y, g = data("identity")
    model = GroupDRONeuron("identity", nu=0.0, warm_start=True).fit(X, y, g)
    X, y, g = data("identity", seed=7)
    cold = GroupDRONeuron("identity", nu=0.0).fit(X, y, g)
    model.fit(X, y, g)
    assert model.risk_ == pytest.approx(cold.risk_, rel=1e-6)
    np.testing.assert_allclose(model.coef_, cold.coef_, atol=1e-4)


def test_a_warm_start_of_more_rows_of_the_same_kind():
    X, y, g = data(n=1000)
    model = GroupDRONeuron(nu=0.1, warm_start=True).fit(X[::4], y[::4], g[::4])
    model.fit(X, y, g)
    cold = GroupDRONeuron(nu=0.1).fit(X, y, g)
    assert model.risk_ == pytest.approx(cold.risk_, rel=1e-3)
    assert model.n_passes_ < cold.n_passes_


def test_a_warm_start_from_another_nu():
    X, y, g = data("identity")
    model = GroupDRONeuron("identity", nu=1.0, warm_start=True).fit(X, y, g)
    model.set_params(nu=0.0).fit(X, y, g)
    assert model.risk_ == pytest.approx(
        solve(X, y, g, activation="identity", nu=0.0).risk, rel=1e-6
    )


def test_an_intercept_may_come_and_go_between_fits():
    X, y, g = data("identity")
    model = GroupDRONeuron("identity", nu=0.1, warm_start=True).fit(X, y, g)
    with_intercept = model.risk_
    model.set_params(fit_intercept=False).fit(X, y, g)
    without = solve(X, y, g, activation="identity", nu=0.1, fit_intercept=False)
    assert model.intercept_ == 0.0
    assert model.risk_ == pytest.approx(without.risk, rel=1e-6)
    model.set_params(fit_intercept=True).fit(X, y, g)
    assert model.risk_ == pytest.approx(with_intercept, rel=1e-6)


def test_a_smaller_ball_is_kept_by_a_warm_start():
    X, y, g = data()
    model = GroupDRONeuron(nu=0.1, warm_start=True).fit(X, y, g)
    radius = 0.5 * np.linalg.norm(model.coef_)
    model.set_params(radius=radius).fit(X, y, g)
    assert np.linalg.norm(model.coef_) <= radius * (1 + 1e-9)
    assert model.risk_ == pytest.approx(solve(X, y, g, nu=0.1, radius=radius).risk, rel=1e-3)


@pytest.mark.parametrize("change", ["features", "groups"])
def test_other_shapes_are_refused_and_leave_the_model(change):
    X, y, g = data()
    model = GroupDRONeuron(nu=0.1, warm_start=True).fit(X, y, g)
    coef = model.coef_.copy()
    other = (X[:, :4], y, g) if change == "features" else (X, y, np.minimum(g, 2))
    name = "coef" if change == "features" else "weights"
    with pytest.raises(ValueError, match=rf"start\.{name} has shape .* this problem needs"):
        model.fit(*other)
    np.testing.assert_array_equal(model.coef_, coef)
    model.set_params(warm_start=False).fit(*other)


@pytest.mark.parametrize("value", [1, 0, "yes", None])
def test_warm_start_is_true_or_false(value):
    X, y, g = data()
    with pytest.raises(ValueError, match=f"warm_start must be True or False; got {value!r}"):
        GroupDRONeuron(warm_start=value).fit(X, y, g)


def test_warm_start_and_checkpoint_are_parameters_like_others(tmp_path):
    model = GroupDRONeuron(warm_start=True, checkpoint=tmp_path / "j", nu=0.1)
    assert model.get_params()["warm_start"] is True
    assert model.get_params()["checkpoint"] == tmp_path / "j"
    assert GroupDRONeuron().get_params()["warm_start"] is False
    X, y, g = data()
    model.fit(X, y, g)
    copy = clone(model)
    assert copy.get_params() == model.get_params()
    assert not hasattr(copy, "coef_")
    # A clone has nothing to start from: its first fit is a cold one.
    assert copy.fit(X, y, g).coef_.tobytes() == model.coef_.tobytes()


def test_a_source_is_warmed_by_a_fit_in_memory():
    X, y, g = data()
    model = GroupDRONeuron(nu=0.1, warm_start=True).fit(X, y, g)
    cold = model.risk_
    source = Counting(X, y, g)
    model.fit(source)
    assert model.risk_ == pytest.approx(cold, rel=1e-6)
    assert model.n_passes_ == source.passes
    assert source.passes < solve(Chunks(source.chunks), nu=0.1).n_passes


# -- starts --------------------------------------------------------------------------------


def test_a_solution_says_where_it_ended():
    X, y, g = data()
    found = solve(X, y, g)
    np.testing.assert_array_equal(found.start.coef, np.append(found.coef, found.intercept))
    np.testing.assert_array_equal(found.start.weights, found.weights)
    assert found.start.surrogate.shape == found.start.average.shape == (6,)
    without = solve(X, y, g, nu=0.1, fit_intercept=False)
    np.testing.assert_allclose(without.start.coef, without.coef, rtol=1e-15)
    assert without.start.average is None, "the average fit is made only where it is needed"


def test_a_start_at_the_known_minimum_stays_there():
    X, y, g, w, levels = linear_with_known_minimiser()
    start = Start(w, np.full(4, 0.25))
    options = dict(activation="identity", fit_intercept=False)
    for nu in (0.0, 0.1):
        found = solve(X, y, g, nu=nu, start=start, **options)
        np.testing.assert_allclose(found.coef, w, atol=1e-7)
        assert found.risk == pytest.approx(risk(levels, nu), rel=1e-9)


def test_a_bad_start_does_no_harm():
    X, y, g = data("identity")
    cold = solve(X, y, g, activation="identity", nu=0.0)
    rng = np.random.default_rng(0)
    for size in (1.0, 1e3):
        start = Start(size * rng.normal(size=6), np.array([1.0, 0.0, 0.0, 0.0]))
        found = solve(X, y, g, activation="identity", nu=0.0, start=start)
        assert found.risk == pytest.approx(cold.risk, rel=1e-6)
        assert found.converged


def test_a_start_is_not_changed():
    X, y, g = data()
    first = solve(X, y, g).start
    kept = [v.copy() for v in (first.coef, first.weights, first.surrogate, first.average)]
    for v in (first.coef, first.weights, first.surrogate, first.average):
        v.setflags(write=False)
    solve(X, y, g, start=first)
    for now, then in zip(
        (first.coef, first.weights, first.surrogate, first.average), kept, strict=True
    ):
        np.testing.assert_array_equal(now, then)


def test_the_papers_schedule_starts_where_the_paper_does():
    X, y, g = data()
    options = dict(nu=0.1, schedule="paper", max_iter=5, polish=False, radius=5.0)
    cold = solve(X, y, g, **options)
    warm = solve(X, y, g, start=solve(X, y, g, nu=0.1).start, **options)
    np.testing.assert_array_equal(warm.coef, cold.coef)


@pytest.mark.parametrize("field", ["coef", "weights", "surrogate", "average"])
def test_starts_of_other_shapes_are_refused(field):
    X, y, g = data()
    good = {"coef": np.zeros(6), "weights": np.full(4, 0.25), "surrogate": None, "average": None}
    for bad in (np.zeros(3), np.zeros((6, 1)), np.zeros(7)):
        with pytest.raises(ValueError, match=rf"start\.{field} has shape .*start from a solution"):
            solve(X, y, g, nu=0.1, start=Start(**{**good, field: bad}))


@pytest.mark.parametrize(
    ("field", "bad"),
    [("coef", np.full(6, np.nan)), ("coef", np.full(6, np.inf)), ("weights", np.full(4, np.nan)),
     ("weights", np.array([2.0, -0.5, -0.25, -0.25]))],
)  # fmt: skip
def test_starts_of_bad_numbers_are_refused_by_name(field, bad):
    X, y, g = data()
    good = {"coef": np.zeros(6), "weights": np.full(4, 0.25)}
    with pytest.raises(ValueError, match=rf"start\.{field}"):
        solve(X, y, g, nu=0.1, start=Start(**{**good, field: bad}))


# -- paths ---------------------------------------------------------------------------------


def test_identity_paths_are_the_cold_solves():
    X, y, g = data("identity")
    path = solve_path(X, y, g, nus=NUS, activation="identity")
    assert [s.nu for s in path] == NUS, "in the order given"
    for s in path:
        cold = solve(X, y, g, nu=s.nu, activation="identity")
        assert s.risk == pytest.approx(cold.risk, rel=1e-6)
        assert s.risk == pytest.approx(risk(s.losses, s.nu), rel=1e-9)
        np.testing.assert_allclose(s.losses, cold.losses, rtol=1e-3)
        assert s.n_passes <= cold.n_passes
        assert s.converged


@pytest.mark.parametrize("divergence", ["kl", "chi2"])
def test_relu_paths_reach_the_cold_solves_in_fewer_passes(divergence):
    X, y, g = data(seed=4)
    path = solve_path(X, y, g, nus=NUS, divergence=divergence)
    cold = [solve(X, y, g, nu=nu, divergence=divergence) for nu in NUS]
    assert [s.nu for s in path] == NUS
    for s, c in zip(path, cold, strict=True):
        assert s.risk <= c.risk * (1 + 1e-3)
        assert s.risk == pytest.approx(risk(s.losses, s.nu, divergence), rel=1e-6)
    assert sum(s.n_passes for s in path) < 0.7 * sum(c.n_passes for c in cold)


def test_the_order_given_changes_nothing_but_the_order():
    X, y, g = data()
    one = solve_path(X, y, g, nus=NUS)
    other = solve_path(X, y, g, nus=np.array(NUS[::-1]))
    for a, b in zip(one, other[::-1], strict=True):
        assert a.coef.tobytes() == b.coef.tobytes()
        assert (a.nu, a.n_passes) == (b.nu, b.n_passes)


def test_duplicates_are_solved_once():
    X, y, g = data()
    path = solve_path(X, y, g, nus=[0.1, 1, 0.1, 1.0])
    assert path[0] is path[2]
    assert path[1] is path[3]
    assert [s.nu for s in path] == [0.1, 1.0, 0.1, 1.0]


@pytest.mark.parametrize("seed", range(3))
def test_the_worst_group_gains_as_nu_falls(seed):
    """Less regularised weights: the worst loss falls, the average one rises."""
    X, y, g = data("identity", seed=seed)
    path = solve_path(X, y, g, activation="identity")
    worst = np.array([s.losses.max() for s in path])
    mean = np.array([s.losses.mean() for s in path])
    assert (np.diff(worst) <= 1e-6 * worst[0]).all()
    assert (np.diff(mean) >= -1e-6 * mean[0]).all()
    assert worst[-1] < worst[0] * (1 - 1e-3), "and here there is something to gain"
    # Between the limits: the plain average, and the worst group.
    average = np.linalg.lstsq(np.c_[X, np.ones(len(X))], y, rcond=None)[1][0] / len(y)
    assert mean[0] == pytest.approx(average, rel=1e-2)
    assert worst[-1] == pytest.approx(path[-1].risk, rel=1e-9)


@pytest.mark.parametrize("activation", ["identity", "relu"])
def test_the_default_path_ends_at_the_worst_group(activation):
    X, y, g = data(activation, seed=4)
    path = solve_path(X, y, g, activation=activation)
    assert len(path) == len(PATH)
    nus = [s.nu for s in path]
    assert nus == sorted(nus, reverse=True)
    assert nus[-1] == 0.0
    unit = solve(X, y, g, activation=activation).nu / 0.1
    np.testing.assert_allclose(nus, np.multiply(PATH, unit), rtol=1e-12)
    worst = solve(X, y, g, nu=0.0, activation=activation)
    assert path[-1].risk <= worst.risk * (1 + 1e-3)


@pytest.mark.parametrize("nus", [None, NUS])
def test_passes_add_up_to_the_reads_of_the_rows(nus):
    source = Counting(*data())
    path = solve_path(source, nus=nus)
    assert sum(s.n_passes for s in path) == source.passes
    assert all(s.n_passes > 0 for s in path)


def test_options_reach_every_solution():
    X, y, g = data()
    prior = np.array([0.1, 0.2, 0.3, 0.4])
    path = solve_path(X, y, g, nus=[0.5, 0.05], prior=prior, radius=0.4, truncate=1.5)
    for s in path:
        assert np.linalg.norm(s.coef) <= 0.4 * (1 + 1e-9)
        assert (s.radius, s.truncation) == (0.4, 1.5)
        assert s.risk == pytest.approx(risk(s.losses, s.nu, "kl", prior), rel=1e-9)


def test_one_group_has_the_same_fit_for_every_nu():
    X, y, _ = data("identity")
    path = solve_path(X, y, nus=[1.0, 0.0], activation="identity")
    assert path[0].risk == pytest.approx(path[1].risk, rel=1e-9)
    w = np.linalg.lstsq(np.c_[X, np.ones(len(X))], y, rcond=None)[0]
    np.testing.assert_allclose(path[1].coef, w[:-1], atol=1e-6)


@pytest.mark.parametrize(
    ("nus", "message"),
    [([], "nus is empty"), (np.array([]), "nus is empty"), ([0.1, -1.0], "nu must be >= 0"),
     (["auto"], "nus must be numbers >= 0; got 'auto'"), ([0.1, "0.2"], "got '0.2'"),
     ([np.nan], "nu must be >= 0"), ([None], "nu must be")],
)  # fmt: skip
def test_bad_paths_are_refused_before_rows_are_read(nus, message):
    source = Counting(*data())
    with pytest.raises(ValueError, match=message):
        solve_path(source, nus=nus)
    assert source.passes == 0
