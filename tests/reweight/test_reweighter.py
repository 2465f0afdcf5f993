"""Reweighter: the paper's listing, Algorithm 1, faults of other code, and adversarial sequences."""

import json
import math
import warnings

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from paths import ROOT
from references import distance, solved

from counterpoise import Reweighter, ReweightWarning
from counterpoise.dual.step import DualState, dual_step, project
from counterpoise.reweight import OnlineDataMixing, Rule, Temperature
from counterpoise.reweight.rules import NAMED, ascend

property_test = settings(deadline=None, derandomize=True)
NAMES = ["cc", "github", "wiki", "arxiv"]


def softmax(x):
    e = np.exp(x - x.max())
    return e / e.sum()


def simplex(values):
    """Euclidean projection by sorting, independent of the library's bisection."""
    u = np.sort(values)[::-1]
    css = np.cumsum(u) - 1
    rho = np.nonzero(u - css / np.arange(1, len(u) + 1) > 0)[0][-1]
    return np.maximum(values - css[rho] / (rho + 1), 0)


def random_prior(rng, K):
    prior = rng.dirichlet(np.full(K, 2.0)) + 0.02
    return prior / prior.sum()


# ---------------------------------------------------------------- the paper's update


def listing(lam, diff, eta, c, extrapolation):
    """The update as the paper prints it."""
    new = softmax(np.log(lam + 1e-6) + eta * diff)
    bar = new + extrapolation * (new - lam)
    return new, (1 - c) * bar + c / len(lam)


@pytest.mark.parametrize("step", [0.1, 1.0])
@pytest.mark.parametrize("extrapolation", [0.0, 0.5, 1.0])
def test_pd_kl_without_nu_is_the_listing(step, extrapolation):
    rng = np.random.default_rng(0)
    start = random_prior(rng, 4)
    reference = rng.uniform(0.5, 2.0, 4)
    ours = Reweighter(
        NAMES, step=step, extrapolation=extrapolation, prior=start, reference=reference
    )
    lam = start
    for _ in range(30):
        losses = reference + 0.1 * rng.normal(size=4)
        lam, expected = listing(lam, losses - reference, step, 1e-4, extrapolation)
        assert expected.min() > 0  # else the listing itself has left the simplex
        np.testing.assert_allclose(ours.update(losses), expected, rtol=0, atol=1e-14)
        np.testing.assert_allclose(ours.dual.weights, lam, rtol=0, atol=1e-14)
    assert ours.projections == 0


def test_pd_chi2_without_nu_is_a_projected_step():
    """``lam + 0.15 * diff * prior``, projected (uniform prior): step 0.3."""
    rng = np.random.default_rng(1)
    ours = Reweighter(NAMES, "pd-chi2", step=0.3, extrapolation=1.0, smoothing=1e-4)
    lam = np.full(4, 0.25)
    for _ in range(40):
        diff = rng.normal(size=4)
        old, lam = lam, simplex(lam + 0.15 * diff / 4)
        bar = lam + (lam - old)
        bar = simplex(bar) if bar.min() < 0 else bar
        expected = (1 - 1e-4) * bar + 1e-4 / 4
        np.testing.assert_allclose(ours.update(diff), expected, rtol=0, atol=1e-13)


@pytest.mark.parametrize(("rule", "name"), [("pd-kl", "kl"), ("pd-chi2", "chi2")])
def test_with_nu_it_is_algorithm_1(rule, name):
    """The argmax of ``a L(., lam) - (1 + nu A) D(lam, lam_old)``, by a convex solver."""
    rng = np.random.default_rng(2)
    nu, sizes, prior = 0.4, [0.3, 0.25, 0.3, 0.35, 0.3], random_prior(rng, 4)
    ours = Reweighter(NAMES, rule, step=lambda t: sizes[t - 1], nu=nu, prior=prior, smoothing=0.0)
    lam, total = prior, 0.0
    for t in range(4):
        losses, a = rng.exponential(size=4), sizes[t]
        x = cp.Variable(4, nonneg=True)
        value = a * (losses @ x - nu * distance(name, x, prior, prior))
        value -= (1 + nu * total) * distance(name, x, lam, prior)
        solved(cp.Problem(cp.Maximize(value), [cp.sum(x) == 1]))
        new, total = x.value, total + a
        bar = new + (a / sizes[t + 1]) * (new - lam)  # a_{t-1} / a_t of Algorithm 1
        np.testing.assert_allclose(ours.update(losses), bar, atol=2e-4)
        lam = ours.dual.weights
        np.testing.assert_allclose(lam, new, atol=1e-4)


def test_nu_pulls_to_the_prior():
    """At a standing loss the weights settle at prior * exp(loss / nu), whatever the start."""
    losses, prior = np.array([1.0, 2.0, 1.5, 1.2]), np.array([0.4, 0.3, 0.2, 0.1])
    ours = Reweighter(NAMES, nu=0.5, prior=prior, start=[0.01, 0.01, 0.97, 0.01], smoothing=0.0)
    for _ in range(2000):
        ours.update(losses)
    expected = prior * np.exp(losses / 0.5)
    np.testing.assert_allclose(ours.weights, expected / expected.sum(), atol=2e-3)


def test_the_step_is_the_solvers_own(monkeypatch):
    """One function moves weights: breaking it breaks every rule that moves."""
    from counterpoise.dual import step
    from counterpoise.reweight import rules

    def broken(*args, **kwargs):
        raise RuntimeError("moved")

    for room in (step, rules):
        monkeypatch.setattr(room, "proximal_weights", broken)
    for rule in set(NAMED) - {"static", "temperature"}:
        with pytest.raises(RuntimeError, match="moved"):
            Reweighter(NAMES, rule).update([1.0, 2.0, 3.0, 4.0])


# ---------------------------------------------------------------- baselines


def test_sheared_keeps_the_smoothed_weights_and_clips():
    rng = np.random.default_rng(3)
    ours = Reweighter(NAMES, "sheared", reference=[1.0] * 4, smoothing=1e-2)
    raw = Reweighter(NAMES, "sheared", reference=[1.0] * 4, smoothing=1e-2, clip=False)
    w = v = np.full(4, 0.25)
    for _ in range(20):
        losses = rng.normal(1.0, 0.5, 4)
        w = 0.99 * softmax(np.log(w) + np.maximum(losses - 1, 0)) + 0.01 / 4
        v = 0.99 * softmax(np.log(v) + (losses - 1)) + 0.01 / 4
        np.testing.assert_allclose(ours.update(losses), w, atol=1e-13)
        np.testing.assert_allclose(raw.update(losses), v, atol=1e-13)


def test_doremi_averages_its_weights():
    rng = np.random.default_rng(4)
    ours = Reweighter(NAMES, "doremi", smoothing=1e-3)
    seen = [ours.update(rng.exponential(size=4)) for _ in range(25)]
    np.testing.assert_allclose(ours.average_weights, np.mean(seen, axis=0), atol=1e-14)
    assert ours.average_weights.sum() == pytest.approx(1.0, abs=1e-12)


def test_doremi_is_the_authors_update():
    """alpha exp(eta max(excess, 0)), made to sum to one, (1 - c) of it and c / K; that is kept."""
    rng = np.random.default_rng(12)
    reference = rng.uniform(1.0, 2.0, 4)
    ours = Reweighter(NAMES, "doremi", step=1.0, smoothing=1e-3, reference=reference)
    alpha, total = np.full(4, 0.25), np.zeros(4)
    for _ in range(30):
        losses = reference + rng.normal(0.0, 0.3, 4)
        alpha = alpha * np.exp(np.maximum(losses - reference, 0.0))
        alpha = (1 - 1e-3) * alpha / alpha.sum() + 1e-3 / 4
        total += alpha
        np.testing.assert_allclose(ours.update(losses), alpha, atol=1e-13)
    np.testing.assert_allclose(ours.average_weights, total / 30, atol=1e-13)


def test_group_dro_is_exponentiated_gradient():
    rng = np.random.default_rng(5)
    ours, q = Reweighter(NAMES, "group-dro", step=0.01), np.full(4, 0.25)
    for _ in range(50):
        losses = rng.exponential(size=4)
        q = q * np.exp(0.01 * losses)
        q = q / q.sum()
        np.testing.assert_allclose(ours.update(losses), q, atol=1e-14)


def test_odm_is_exp3():
    rng = np.random.default_rng(6)
    K, decay = 3, 0.8
    ours = Reweighter(NAMES[:K], OnlineDataMixing(decay))
    rewards, p = np.zeros(K), np.full(K, 1 / K)
    explore = [min(1 / K, math.sqrt(math.log(K) / (K * t))) for t in range(1, 60)]
    for t in range(1, 50):
        losses, seen = rng.exponential(size=K), rng.random(K) < 0.7
        seen[t % K] = True
        update = decay * rewards + (1 - decay) * losses / p
        rewards = np.where(seen, update, rewards)
        got = ours.update(losses, counts=seen.astype(int), absent_ok=True)
        p = (1 - K * explore[t]) * softmax(explore[t - 1] * rewards) + explore[t]
        np.testing.assert_allclose(got, p, atol=1e-13)


def test_odm_counts_the_weights_that_were_in_force():
    ours = Reweighter(["a", "b"], "odm", cap=0.6, start=[0.9, 0.1])
    ours.update([1.0, 1.0])
    np.testing.assert_allclose(ours.state_dict()["extra"]["rewards"], [0.1 / 0.6, 0.1 / 0.4])


def test_static_and_temperature_do_not_move():
    sizes = np.array([0.7, 0.2, 0.06, 0.04])
    static = Reweighter(NAMES, "static", prior=sizes)
    warm = Reweighter(NAMES, Temperature(3.0), prior=sizes)
    expected = sizes ** (1 / 3) / np.sum(sizes ** (1 / 3))
    for _ in range(3):
        np.testing.assert_allclose(static.update([9.0, 1.0, 1.0, 1.0]), sizes, atol=1e-15)
        np.testing.assert_allclose(warm.update([9.0, 1.0, 1.0, 1.0]), expected, atol=1e-14)
    uniform = Reweighter(NAMES, Temperature(math.inf), prior=sizes)
    np.testing.assert_allclose(uniform.weights, 0.25)


def test_one_s_own_rule():
    class Softly(Rule):
        name = "softly"

        def advance(self, state, losses, present, setting):
            return state.moved(ascend(state.dual, 0.1 * losses, present, setting))

    ours = Reweighter(NAMES, Softly())
    expected = softmax(0.1 * np.array([1.0, 2.0, 3.0, 4.0]))
    np.testing.assert_allclose(ours.update([1.0, 2.0, 3.0, 4.0]), expected, atol=1e-15)
    again = Reweighter(NAMES, Softly())
    again.load_state_dict(json.loads(json.dumps(ours.state_dict())))
    np.testing.assert_array_equal(again.weights, ours.weights)


# ---------------------------------------------------------------- faults of other code


def test_negative_extrapolated_weights_are_projected_and_counted():
    """They are no NaN in the next logarithm: the state kept is never the extrapolated vector."""
    ours = Reweighter(["a", "b"], step=5.0, smoothing=0.0)
    weights = ours.update([0.0, 3.0])
    lam = softmax(np.log(0.5 + 1e-6) + 5 * np.array([0.0, 3.0]))
    assert (2 * lam - 0.5).min() < 0
    np.testing.assert_allclose(weights, [0.0, 1.0], atol=1e-12)
    np.testing.assert_allclose(ours.dual.weights, lam, atol=1e-14)
    assert ours.projections == 1
    for losses in ([3.0, 0.0], [0.0, 3.0], [1.0, 1.0]):
        assert np.isfinite(ours.update(losses)).all()


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("rule", sorted(set(NAMED) - {"odm"}))
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_one_broken_loss_leaves_its_own_dual_alone(rule, bad, smoothing):
    """The others move as if they were alone; nothing becomes NaN."""
    prior = np.array([0.4, 0.3, 0.2, 0.1])
    plain = {} if rule == "adaptive" else {"extrapolation": 0.0}
    ours = Reweighter(NAMES, rule, prior=prior, smoothing=smoothing, **plain)
    before = ours.dual.weights
    with pytest.warns(ReweightWarning, match="'github'.*not a finite number.*left out"):
        weights = ours.update([0.5, bad, 1.0, 0.2])
    assert ours.dual.weights[1] == pytest.approx(before[1], abs=1e-15)
    assert ours.missed == {"cc": 0, "github": 1, "wiki": 0, "arxiv": 0}
    assert weights.sum() == pytest.approx(1.0, abs=1e-12)
    if rule in ("pd-kl", "sheared", "doremi", "group-dro") and smoothing == 0:
        lift = 1e-6 if rule == "pd-kl" else 0.0
        rest = softmax(np.log(before[[0, 2, 3]] + lift) + np.array([0.5, 1.0, 0.2]))
        np.testing.assert_allclose(weights[[0, 2, 3]], (1 - before[1]) * rest, atol=1e-14)


@pytest.mark.parametrize("name", ["kl", "chi2"])
@pytest.mark.parametrize("nu", [0.0, 0.7])
def test_a_step_with_some_groups_is_the_constrained_maximum(name, nu):
    rng = np.random.default_rng(8)
    prior = random_prior(rng, 5)
    state = dual_step(
        DualState.start(prior), rng.normal(size=5), step=0.3, nu=nu, nu0=0.5, prior=prior,
        divergence=name,
    )  # fmt: skip
    losses, present = rng.normal(size=5), np.array([True, False, True, True, False])
    options = {"step": 0.8, "nu": nu, "nu0": 0.5, "prior": prior, "divergence": name}
    got = dual_step(state, np.where(present, losses, 1e9), present=present, **options)
    x = cp.Variable(5, nonneg=True)
    value = 0.8 * (losses @ x - nu * distance(name, x, prior, prior))
    value -= (0.5 + nu * state.total) * distance(name, x, state.weights, prior)
    fixed = [x[i] == state.weights[i] for i in np.flatnonzero(~present)]
    best = solved(cp.Problem(cp.Maximize(value), [cp.sum(x) == 1, *fixed]))
    np.testing.assert_allclose(got.weights, x.value, atol=3e-4)  # root of its tolerance
    x.value = got.weights
    assert value.value == pytest.approx(best, abs=1e-7)
    np.testing.assert_array_equal(got.weights[~present], state.weights[~present])
    nobody = dual_step(state, losses, present=np.zeros(5, dtype=bool), **options)
    assert nobody is state


def test_a_domain_without_tokens_is_no_division_by_zero():
    ours = Reweighter(NAMES, smoothing=0.0, extrapolation=0.0)
    with pytest.warns(ReweightWarning, match=r"\['wiki'\] had no tokens"):
        weights = ours.update([1.0, 2.0, np.nan, 1.0], counts=[10, 10, 0, 10])
    assert weights[2] == 0.25
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ours.update([1.0, 2.0, 0.0, 1.0], counts=[10, 10, 0, 10], absent_ok=True)
    assert ours.missed["wiki"] == 2
    weights = ours.weights
    with pytest.warns(ReweightWarning):
        np.testing.assert_array_equal(ours.update([np.nan] * 4), weights)


def test_unknown_and_missing_names_are_errors():
    ours = Reweighter(NAMES)
    good = dict.fromkeys(NAMES, 1.0)
    with pytest.raises(ValueError, match=r"losses names domains that are not known: \['book'\]"):
        ours.update({**good, "book": 1.0})
    with pytest.raises(ValueError, match=r"losses has no value for domain\(s\) \['wiki'\]"):
        ours.update({k: v for k, v in good.items() if k != "wiki"})
    with pytest.raises(ValueError, match=r"reference names domains .*'githb'"):
        Reweighter(NAMES, reference={**good, "githb": 1.0})
    with pytest.raises(ValueError, match=r"unknown domain\(s\) 'book'"):
        ours.codes(["cc", "book"])
    assert ours.codes(["wiki", "cc"]).tolist() == [2, 0]
    assert ours.updates == 0


def test_names_may_come_in_any_order():
    one, two = Reweighter(NAMES), Reweighter(NAMES)
    losses = {"wiki": 3.0, "cc": 1.0, "arxiv": 0.5, "github": 2.0}
    np.testing.assert_array_equal(one.update(losses), two.update([1.0, 2.0, 3.0, 0.5]))


def test_evaluations_at_start_up_and_after_a_resume_add_nothing():
    ours = Reweighter(NAMES)
    with pytest.warns(ReweightWarning, match="losses of step 0, before the first batch, make no"):
        ours.update([1.0, 2.0, 3.0, 4.0], step=0)
    ours.update([1.0, 2.0, 3.0, 4.0], step=0)  # said once
    assert ours.updates == 0
    assert ours.weights.tolist() == [0.25] * 4
    first = ours.update([1.0, 2.0, 3.0, 4.0], step=100)
    again = Reweighter(NAMES)
    again.load_state_dict(ours.state_dict())
    np.testing.assert_array_equal(again.update([9.0, 2.0, 3.0, 4.0], step=100), first)
    before = again.state_dict()
    with pytest.raises(ValueError, match="step=50 comes after step 100: steps must not go back"):
        again.update([9.0, 2.0, 3.0, 4.0], step=50)
    assert again.state_dict() == before
    assert (again.updates, again.repeated) == (1, 3)
    assert not np.array_equal(again.update([9.0, 2.0, 3.0, 4.0], step=101), first)


def test_a_new_run_counts_its_steps_from_the_start():
    ours = Reweighter(NAMES)
    weights = ours.update([1.0, 2.0, 3.0, 4.0], step=100)
    ours.begin_run()
    np.testing.assert_array_equal(ours.weights, weights)
    ours.update([1.0, 2.0, 3.0, 4.0], step=10)
    assert ours.updates == 2


def test_losses_may_be_tensors():
    torch = pytest.importorskip("torch")
    one, two = Reweighter(NAMES), Reweighter(NAMES)
    losses = torch.tensor([1.0, 2.0, 3.0, 4.0], dtype=torch.bfloat16, requires_grad=True)
    np.testing.assert_array_equal(one.update(losses), two.update([1.0, 2.0, 3.0, 4.0]))
    by_name = dict(zip(NAMES, losses, strict=True))
    np.testing.assert_array_equal(one.update(by_name), two.update([1.0, 2.0, 3.0, 4.0]))
    np.testing.assert_array_equal(one.update(list(losses)), two.update([1.0, 2.0, 3.0, 4.0]))


def test_weights_do_not_collapse():
    """Smoothing leaves every domain its share, and a vanished weight comes back."""
    ours = Reweighter(["a", "b"], smoothing=1e-3)
    for _ in range(500):
        weights = ours.update([10.0, 0.0])
    assert weights[1] >= 0.5e-3 * (1 - 1e-9)
    for _ in range(3):
        weights = ours.update([0.0, 10.0])
    assert weights[1] > 0.9


# ---------------------------------------------------------------- state


@pytest.mark.parametrize("rule", sorted(NAMED))
def test_a_resume_goes_on_to_the_bit(rule):
    rng = np.random.default_rng(9)
    losses = rng.exponential(size=(30, 4))
    losses[7, 2] = np.nan

    def make():
        return Reweighter(
            NAMES,
            rule,
            nu=0.1 if rule.startswith("pd") else 0.0,
            step=1.0 if rule == "adaptive" else 0.5,
            ema=0.5,
            floor=0.01,
        )

    whole, parts = make(), make()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ReweightWarning)
        for t, row in enumerate(losses, 1):
            expected = whole.update(row, step=t)
            got = parts.update(row, step=t)
            np.testing.assert_array_equal(got, expected)
            saved = json.loads(json.dumps(parts.state_dict(), allow_nan=False))
            parts = make()
            parts.load_state_dict(saved)
    assert parts.state_dict() == whole.state_dict()


def test_the_previous_iterate_survives_a_resume():
    """Without it the next extrapolation would start from nothing."""
    ours = Reweighter(NAMES)
    ours.update([1.0, 2.0, 3.0, 4.0])
    saved = ours.state_dict()
    assert saved["dual"]["previous"] == [0.25] * 4
    assert saved["dual"]["weights"] != saved["dual"]["previous"]
    assert saved["dual"]["total"] == 1.0


def test_a_state_is_read_by_name():
    ours = Reweighter(NAMES, nu=0.2, prior=[0.4, 0.3, 0.2, 0.1])
    ours.update([1.0, 2.0, 3.0, 4.0])
    turned = Reweighter(NAMES[::-1], nu=0.2, prior=[0.1, 0.2, 0.3, 0.4])
    turned.load_state_dict(ours.state_dict())
    np.testing.assert_array_equal(turned.weights, ours.weights[::-1])
    a, b = ours.update([4.0, 2.0, 1.0, 4.0]), turned.update([4.0, 1.0, 2.0, 4.0])
    np.testing.assert_allclose(b, a[::-1], atol=1e-15)


def test_a_wrong_state_changes_nothing():
    ours = Reweighter(NAMES)
    ours.update([1.0, 2.0, 3.0, 4.0])
    before = ours.state_dict()
    damaged = {**before, "weights": [0.5, 0.5]}
    no_weights = {**before, "weights": [5.0, -3.0, -1.0, 0.0]}
    for state, message in [
        ({**before, "version": 99}, "version 99"),
        (Reweighter(NAMES, "odm").state_dict(), "rule 'odm'"),
        ({**before, "options": "PrimalDualKL(2)"}, r"PrimalDualKL\(2\)"),
        (Reweighter(["a", "b"]).state_dict(), "domains"),
        (damaged, "damaged"),
        (no_weights, "are not valid weights"),
        ({"version": 1}, "damaged: KeyError 'rule'"),
        ({**before, "dual": None}, "damaged: TypeError"),
    ]:
        with pytest.raises(ValueError, match=message):
            ours.load_state_dict(state)
        assert ours.state_dict() == before


# ---------------------------------------------------------------- options


def test_ema_shows_the_rule_a_running_average():
    ours = Reweighter(["a", "b"], "group-dro", ema=0.9, reference=[1.0, 0.0])
    ours.update([2.0, 5.0])
    np.testing.assert_allclose(ours.last.excess, [1.0, 5.0])
    ours.update([4.0, 0.0])
    np.testing.assert_allclose(ours.last.excess, [0.9 + 0.3, 4.5])
    with pytest.warns(ReweightWarning):
        ours.update([np.nan, 0.0])
    ours.update([1.0, 0.0])
    assert ours.last.excess[0] == pytest.approx(0.9 * 1.2)


def test_clip_and_references_of_one_round():
    ours = Reweighter(["a", "b"], clip=True, reference=[1.0, 1.0])
    np.testing.assert_allclose(ours.update([0.0, 0.5]), 0.5)
    ours.update([0.0, 0.5], reference={"a": 0.0, "b": 0.25})
    np.testing.assert_allclose(ours.last.excess, [0.0, 0.25])


def test_floor_and_cap():
    ours = Reweighter(NAMES, floor={"cc": 0.3, "github": 0.0, "wiki": 0.05, "arxiv": 0.0}, cap=0.6)
    for _ in range(20):
        weights = ours.update([0.0, 1.0, 0.0, 5.0])
    np.testing.assert_allclose(weights, [0.3, weights[1], 0.05, 0.6], atol=1e-12)
    assert weights.sum() == pytest.approx(1.0, abs=1e-12)


def test_new_bounds_hold_from_a_resume_on():
    ours = Reweighter(["a", "b"])
    for _ in range(5):
        ours.update([0.0, 9.0])
    bounded = Reweighter(["a", "b"], floor=0.2)
    bounded.load_state_dict(ours.state_dict())
    np.testing.assert_allclose(bounded.weights, [0.2, 0.8])


def test_a_rule_s_own_numbers_are_not_missing():
    odm = Reweighter(NAMES, "odm")
    with pytest.raises(ValueError, match=r"the rule's own \['rewards'\] are not in it"):
        odm.load_state_dict({**odm.state_dict(), "extra": {}})


def test_a_state_of_other_options_is_refused():
    with pytest.raises(ValueError, match=r"OnlineDataMixing\(decay=0.5\)"):
        Reweighter(NAMES, "odm").load_state_dict(
            Reweighter(NAMES, OnlineDataMixing(0.5)).state_dict()
        )


@property_test
@given(st.integers(0, 10**6), st.integers(1, 12))
def test_projection_is_the_nearest_point(seed, K):
    rng = np.random.default_rng(seed)
    values = rng.normal(size=K) * 10 ** rng.uniform(-3, 2)
    np.testing.assert_allclose(project(values), simplex(values), atol=1e-12)
    low = rng.dirichlet(np.ones(K)) * rng.uniform(0, 1)
    high = np.maximum(low, rng.uniform(1 / K, 1, K))
    got = project(values, low, high)
    assert got.sum() == pytest.approx(1.0, abs=1e-12)
    assert (got >= low).all()
    assert (got <= high).all()
    inside = low + (1 - low.sum()) * (high - low) / max((high - low).sum(), 1e-300)
    # Optimality: no feasible direction points towards the values.
    assert (values - got) @ (inside - got) <= 1e-9 * (1 + np.abs(values).max())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rule": "pdkl"}, "rule='pdkl' is not known.*'pd-kl'"),
        ({"step": 0.0}, "step must be a finite number, positive; got 0.0"),
        ({"step": lambda t: -1.0}, "step must be"),
        ({"nu": -1.0}, "nu must be >= 0"),
        ({"nu": math.inf}, "rule='static'"),
        ({"extrapolation": -1.0}, "extrapolation must be"),
        ({"smoothing": 1.5}, "smoothing must be a finite number, between 0 and 1"),
        ({"prior": [1.0, 1.0, 1.0, 1.0]}, "prior must sum to 1"),
        ({"start": [1.0, 0.0, 0.0, 0.0]}, "start must be positive and finite; domain 'github'"),
        ({"start": [0.5, 0.5]}, "start must hold one number for each of 4 domains"),
        ({"ema": 1.0}, "ema must be below 1"),
        ({"clip": 3}, "clip must be"),
        ({"floor": 0.3}, "floors must add up"),
        ({"cap": 0.2}, "caps to at least 1"),
        ({"floor": 2.0}, r"floor must be in \[0, 1\]"),
        ({"reference": [1.0]}, "reference must hold one"),
        ({"reference": {**dict.fromkeys(NAMES, 1.0), "cc": "low"}}, "reference must map domains"),
    ],
)
def test_options_are_checked(options, message):
    with pytest.raises(ValueError, match=message):
        Reweighter(NAMES, **options)


@pytest.mark.parametrize(
    ("domains", "message"),
    [
        ("abc", "single string"),
        ([], "at least one"),
        (["a", "a"], "more than once: 'a'"),
        ([1.5], "strings or integers"),
    ],
)
def test_domains_are_checked(domains, message):
    with pytest.raises(ValueError, match=message):
        Reweighter(domains)


def test_rounds_are_checked():
    ours = Reweighter(NAMES)
    for arguments, message in [
        (([1.0, 2.0],), "one number for each of 4 domains"),
        ((1.0,), "one number for each"),
        ((["a", "b", "c", "d"],), "losses must be an array of numbers"),
        (([1.0] * 4, [1, 1, 1, -1]), "counts must be finite numbers >= 0"),
        (([1.0] * 4, None, -3), "step must be a whole number >= 0; got -3"),
        (([1.0] * 4, None, 1.5), "step must be"),
    ]:
        with pytest.raises(ValueError, match=message):
            ours.update(*arguments)
    assert ours.updates == 0
    with pytest.raises(ValueError, match="read-only"):
        ours.weights[0] = 1.0


def test_weights_that_are_handed_out_are_copies():
    """Tensors may share their memory without a warning, and change nothing of ours."""
    torch = pytest.importorskip("torch")
    ours = Reweighter(NAMES)
    for step in (1, 1, 2):  # the second call makes no update
        given = ours.update([1.0, 2.0, 3.0, 4.0], step=step)
        kept = ours.weights.tolist()
        torch.from_numpy(given).zero_()  # warns of memory that cannot be written
        assert ours.weights.tolist() == kept
        assert ours.last.weights.tolist() == kept


def test_an_evaluation_at_step_0_can_move_the_weights():
    ours, theirs = Reweighter(NAMES), Reweighter(NAMES)
    ours.begin_run(-1)
    ours.update([1.0, 2.0, 3.0, 4.0], step=0)
    with pytest.warns(ReweightWarning, match=r"call begin_run\(-1\) first"):
        theirs.update([1.0, 2.0, 3.0, 4.0], step=0)
    assert (ours.updates, theirs.updates) == (1, 0)
    ours.update([1.0, 2.0, 3.0, 4.0], step=0)
    assert (ours.updates, ours.repeated) == (1, 1)
    again = Reweighter(NAMES)
    again.load_state_dict(ours.state_dict())
    again.update([1.0, 2.0, 3.0, 4.0], step=0)
    assert again.updates == 1


def test_a_state_stored_by_release_0_1_goes_on():
    stored = json.loads((ROOT / "tests" / "data" / "reweighter-0.1.json").read_text())
    ours = Reweighter(["web", "code", "books"], rule="pd-kl", step=0.5, nu=0.1, smoothing=0.01)
    ours.load_state_dict(stored)
    assert ours.updates == 5
    expected = [0.13535852781534446, 0.103714592747998, 0.7609268794366576]
    np.testing.assert_allclose(ours.update([0.3, 0.2, 0.9]), expected, rtol=1e-12)


def test_a_reweighter_prints_its_weights_and_progress():
    r = Reweighter(["web", "a b\n", 7], rule=Temperature(3.0))
    assert repr(r) == (
        "Reweighter({'web': 0.333, 'a b\\n': 0.333, 7: 0.333}, rule=Temperature(temperature=3.0), "
        "updates=0, global_step=0)"
    )
    many = Reweighter([f"d{k}" for k in range(8)], rule="static")
    many.update(np.ones(8), step=300)
    assert repr(many) == (
        "Reweighter({'d0': 0.125, 'd1': 0.125, 'd2': 0.125, 'd3': 0.125, 'd4': 0.125, "
        "'d5': 0.125, ...}, domains=8, rule='static', updates=1, global_step=300)"
    )
