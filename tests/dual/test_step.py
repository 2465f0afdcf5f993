"""The dual update: closed form, a convex solver, bookkeeping, and long adversarial runs."""

import dataclasses

import cvxpy as cp
import numpy as np
import pytest
import references
from hypothesis import given, settings
from hypothesis import strategies as st

from counterpoise.dual import DualState, dual_step, extrapolate
from counterpoise.dual.divergences import KL, ChiSquare, SimplexPoint
from counterpoise.dual.step import proximal_weights

property_test = settings(deadline=None, derandomize=True)


def random_prior(rng, K):
    prior = rng.dirichlet(np.full(K, 2.0)) + 0.02
    return prior / prior.sum()


def normalised(logs):
    weights = np.exp(logs - logs.max())
    return weights / weights.sum()


@pytest.mark.parametrize("nu", [0.0, 1e-3, 0.2, 5.0])
@pytest.mark.parametrize("seed", range(3))
def test_kl_step_is_the_closed_form(nu, seed):
    """``log lam = [a loss + (nu0 + nu A) log lam_old + a nu log prior] / (nu0 + nu A_new)``."""
    rng = np.random.default_rng(seed)
    K, nu0 = 6, 0.05
    prior = random_prior(rng, K)
    state, logs, total = DualState.start(prior), np.log(prior), 0.0
    for _ in range(40):
        losses, a = rng.exponential(size=K), float(rng.uniform(0.01, 0.4))
        state = dual_step(state, losses, step=a, nu=nu, nu0=nu0, prior=prior)
        logs = a * losses + (nu0 + nu * total) * logs + a * nu * np.log(prior)
        total += a
        logs = logs / (nu0 + nu * total)
        logs = logs - logs.max()
        logs = logs - np.log(np.exp(logs).sum())
        np.testing.assert_allclose(state.weights, normalised(logs), rtol=1e-10, atol=1e-300)
        np.testing.assert_allclose(state.point.logs, logs, rtol=1e-10, atol=1e-12)


def distance(name, lam, centre, prior):
    if name == "kl":
        return float(np.sum(lam * np.log(lam / centre)))
    return float(np.sum((lam - centre) ** 2 / prior))


def reference_step(name, state, losses, *, step, nu, nu0, prior):
    """``argmax a L(., lam) - (nu0 + nu A) D(lam, lam_old)`` by a general convex solver."""
    lam = cp.Variable(len(losses), nonneg=True)
    objective = step * (losses @ lam - nu * references.distance(name, lam, prior, prior))
    moved = references.distance(name, lam, state.weights, prior)
    objective -= (nu0 + nu * state.total) * moved
    value = references.solved(cp.Problem(cp.Maximize(objective), [cp.sum(lam) == 1]))
    return value, lam.value


@pytest.mark.parametrize("name", ["chi2", "kl"])
@pytest.mark.parametrize("nu", [0.0, 0.3])
def test_steps_maximise_the_stated_objective(name, nu):
    rng = np.random.default_rng(7)
    K, nu0 = 5, 0.4
    prior = random_prior(rng, K)
    state = DualState.start(prior)
    for _ in range(6):
        losses, a = rng.exponential(size=K), float(rng.uniform(0.1, 0.5))
        options = {"step": a, "nu": nu, "nu0": nu0, "prior": prior}
        best, expected = reference_step(name, state, losses, **options)
        new = dual_step(state, losses, divergence=name, **options)
        np.testing.assert_allclose(new.weights, expected, atol=3e-4)  # root of its tolerance
        value = a * (losses @ new.weights - nu * distance(name, new.weights, prior, prior))
        value -= (nu0 + nu * state.total) * distance(name, new.weights, state.weights, prior)
        assert value == pytest.approx(best, abs=1e-7)
        assert value >= best - 1e-8
        state = new


def test_chi_squared_step_by_hand():
    """Interior: lam = lam_old + prior (loss - mean loss) / (2 kappa) without regularisation."""
    prior = np.array([0.25, 0.75])
    losses = np.array([2.0, 1.0])
    state = dual_step(
        DualState.start(prior), losses, step=0.5, nu=0.0, nu0=2.0, prior=prior, divergence="chi2"
    )
    kappa = 2.0 / 0.5
    expected = prior + prior * (losses - prior @ losses) / (2.0 * kappa)
    np.testing.assert_allclose(state.weights, expected, rtol=1e-14)


def test_bookkeeping():
    prior = np.array([0.3, 0.7])
    state = DualState.start(prior)
    assert (state.step, state.total, state.iteration) == (0.0, 0.0, 0)
    np.testing.assert_array_equal(state.weights, prior)
    np.testing.assert_array_equal(state.previous, prior)
    np.testing.assert_array_equal(state.change, [0.0, 0.0])
    steps = [0.5, 0.25, 2.0]
    for t, a in enumerate(steps, start=1):
        before = state.weights
        state = dual_step(state, np.array([1.0, 0.0]), step=a, nu=0.1, nu0=1.0, prior=prior)
        assert state.step == a
        assert state.total == sum(steps[:t])
        assert state.iteration == t
        np.testing.assert_array_equal(state.previous, before)
        np.testing.assert_array_equal(state.change, state.weights - before)
    assert state.weights[0] > prior[0]


def test_a_constant_added_to_the_losses_changes_nothing():
    prior = np.array([0.2, 0.3, 0.5])
    losses = np.array([0.1, 0.7, 0.4])
    options = {"step": 0.3, "nu": 0.2, "nu0": 0.5, "prior": prior}
    for name in ("kl", "chi2"):
        start = DualState.start(prior)
        a = dual_step(start, losses, divergence=name, **options)
        b = dual_step(start, losses + 8.0, divergence=name, **options)
        np.testing.assert_allclose(a.weights, b.weights, rtol=1e-13)


def test_equal_losses_at_the_prior_stay_at_the_prior():
    prior = np.array([0.2, 0.3, 0.5])
    for name in ("kl", "chi2"):
        state = dual_step(
            DualState.start(prior), np.full(3, 4.0), step=1.0, nu=0.5, nu0=0.1, prior=prior,
            divergence=name,
        )  # fmt: skip
        np.testing.assert_allclose(state.weights, prior, rtol=1e-14)


def test_divergence_by_object_and_by_name_agree():
    prior = np.array([0.4, 0.6])
    for name, d_f in (("kl", KL()), ("chi2", ChiSquare())):
        states = [
            dual_step(
                DualState.start(prior), np.array([1.0, 0.0]), step=1.0, nu=0.5, nu0=0.1,
                prior=prior, divergence=given_as,
            )
            for given_as in (name, d_f)
        ]  # fmt: skip
        np.testing.assert_array_equal(states[0].weights, states[1].weights)


# -- long runs -----------------------------------------------------------------------------


@pytest.mark.slow
@settings(property_test, max_examples=8)
@given(
    st.sampled_from(["kl", "chi2"]),
    st.integers(0, 2**32 - 1),
    st.integers(1, 8),
    st.sampled_from([0.0, 1e-6, 0.1, 1e3]),
    st.floats(-3.0, 3.0),
    st.sampled_from(["noise", "alternate", "one-sided", "wild"]),
)
def test_five_thousand_adversarial_steps_keep_a_probability_vector(
    name, seed, K, nu, log_step, style
):
    rng = np.random.default_rng(seed)
    prior = random_prior(rng, K)
    state = DualState.start(prior)
    for t in range(5000):
        losses = rng.exponential(size=K)
        if style == "alternate":
            losses = np.where(np.arange(K) % 2 == t // 50 % 2, 1e3, 0.0)
        elif style == "one-sided":
            losses = np.where(np.arange(K) == 0, 1e6, 0.0)
        elif style == "wild":
            losses = losses * 10.0 ** rng.uniform(-8.0, 8.0)
        state = dual_step(
            state, losses, step=10.0**log_step, nu=nu, nu0=0.1, prior=prior, divergence=name
        )
        weights = state.weights
        assert weights.min() >= 0.0
        assert abs(weights.sum() - 1.0) <= 1e-12
        assert not np.isnan(state.point.logs).any()
    assert state.iteration == 5000


@settings(property_test, max_examples=40)
@given(
    st.sampled_from(["kl", "chi2"]),
    st.lists(
        st.tuples(
            st.lists(st.floats(-1e8, 1e8), min_size=3, max_size=3),
            st.floats(-6.0, 6.0),
        ),
        min_size=1,
        max_size=30,
    ),
    st.sampled_from([0.0, 1e-9, 1.0, 1e9]),
)
def test_any_short_sequence_keeps_a_probability_vector(name, moves, nu):
    prior = np.array([0.2, 0.5, 0.3])
    state = DualState.start(prior)
    for losses, log_step in moves:
        state = dual_step(
            state, np.array(losses), step=10.0**log_step, nu=nu, nu0=1e-3, prior=prior,
            divergence=name,
        )  # fmt: skip
        assert (state.weights >= 0).all()
        assert abs(state.weights.sum() - 1.0) <= 1e-12
        assert abs(extrapolate(state, 0.7).sum() - 1.0) <= 1e-12


def test_a_group_lost_to_underflow_comes_back_under_kl():
    prior = np.array([0.5, 0.5])
    state = DualState.start(prior)
    options = {"step": 1.0, "nu": 0.0, "nu0": 1.0, "prior": prior}
    for _ in range(20):
        state = dual_step(state, np.array([0.0, 100.0]), **options)
    assert state.weights[0] == 0.0
    assert state.point.logs[0] == pytest.approx(-2000.0)
    for _ in range(19):
        state = dual_step(state, np.array([100.0, 0.0]), **options)
        assert state.weights[0] < 1e-40
    for _ in range(2):
        state = dual_step(state, np.array([100.0, 0.0]), **options)
    assert state.weights[0] == pytest.approx(1.0, abs=1e-15)


def test_a_group_at_zero_comes_back_under_chi_squared():
    prior = np.array([0.5, 0.5])
    state = DualState.start(prior)
    options = {"step": 1.0, "nu": 0.1, "nu0": 1.0, "prior": prior, "divergence": "chi2"}
    for _ in range(50):
        state = dual_step(state, np.array([0.0, 10.0]), **options)
    assert state.weights[0] == 0.0
    for _ in range(50):
        state = dual_step(state, np.array([10.0, 0.0]), **options)
    assert state.weights[0] == 1.0


def test_regularised_steps_on_fixed_losses_converge_to_the_best_response():
    """With nu > 0 and steps that keep pace with A the weights reach the maximiser of L."""
    prior, losses = np.array([0.2, 0.3, 0.5]), np.array([1.0, 0.4, 0.1])
    for d_f in (KL(), ChiSquare()):
        state = DualState.start(prior)
        for _ in range(60):
            state = dual_step(
                state, losses, step=1.0 + state.total, nu=0.3, nu0=1.0, prior=prior,
                divergence=d_f,
            )  # fmt: skip
        expected = d_f.respond(losses, prior, nu=0.3).weights
        np.testing.assert_allclose(state.weights, expected, rtol=1e-9)


# -- extrapolation, purity, errors ---------------------------------------------------------


@pytest.mark.parametrize("factor", [0.0, 0.5, 1.0, 3.0])
def test_extrapolation_is_the_formula_and_sums_to_one(factor):
    prior = np.array([0.1, 0.2, 0.7])
    state = DualState.start(prior)
    np.testing.assert_array_equal(extrapolate(state, factor), prior)
    for losses in ([5.0, 0.0, 1.0], [0.0, 6.0, 1.0]):
        state = dual_step(state, np.array(losses), step=1.0, nu=0.1, nu0=0.5, prior=prior)
    got = extrapolate(state, factor)
    expected = (1.0 + factor) * state.weights - factor * state.previous
    np.testing.assert_allclose(got, expected, rtol=1e-13, atol=1e-16)
    assert got.sum() == pytest.approx(1.0, abs=1e-14)
    if factor >= 1.0:
        assert got.min() < 0.0, "this example leaves the simplex, and is allowed to"


def test_inputs_are_not_mutated():
    prior = np.array([0.25, 0.75])
    losses = np.array([1.0, 3.0])
    prior.flags.writeable = losses.flags.writeable = False
    for name in ("kl", "chi2"):
        first = DualState.start(prior)
        kept = [a.copy() for a in (first.weights, first.point.logs, first.previous)]
        second = dual_step(first, losses, step=1.0, nu=0.1, nu0=0.5, prior=prior, divergence=name)
        extrapolate(second, 1.0)
        for now, then in zip((first.weights, first.point.logs, first.previous), kept, strict=True):
            np.testing.assert_array_equal(now, then)


def test_the_start_does_not_alias_the_prior():
    prior = np.array([0.25, 0.75])
    state = DualState.start(prior)
    prior[:] = 0.5
    np.testing.assert_array_equal(state.weights, [0.25, 0.75])


def test_a_state_cannot_be_reassigned():
    state = DualState.start(np.array([0.5, 0.5]))
    for name in ("point", "previous", "step", "total", "iteration"):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(state, name, 1)


@pytest.mark.parametrize("name", ["kl", "chi2"])
@pytest.mark.parametrize("nu", [0.0, np.inf])
def test_no_regularisation_and_nothing_else_are_refused(name, nu):
    prior = np.array([0.5, 0.5])
    with pytest.raises(ValueError, match=f"must be positive and finite; got nu={nu}"):
        dual_step(
            DualState.start(prior), np.array([1.0, 2.0]), step=1.0, nu=nu, nu0=0.0, prior=prior,
            divergence=name,
        )  # fmt: skip


def test_proximal_weights_refuse_nan_strength():
    prior = np.array([0.5, 0.5])
    with pytest.raises(ValueError, match="kappa"):
        proximal_weights(
            np.array([1.0, 2.0]), SimplexPoint.of(prior), nu=0.0, kappa=float("nan"), prior=prior,
            divergence="kl",
        )  # fmt: skip


def test_unknown_divergence_is_refused():
    prior = np.array([0.5, 0.5])
    with pytest.raises(ValueError, match="divergence='tv' is not known"):
        dual_step(
            DualState.start(prior), np.array([1.0, 2.0]), step=1.0, nu=0.1, nu0=0.1, prior=prior,
            divergence="tv",
        )  # fmt: skip
