"""What `Reweighter.certificate` claims: regret, its bound, and bands that tell noise apart."""

import math

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from counterpoise import Reweighter, ReweightWarning
from counterpoise.reweight.account import Account
from counterpoise.reweight.noise import separation
from counterpoise.reweight.rules import PrimalDualKL

NAMES = ["cc", "github", "wiki"]
PROXIMAL = ["pd-kl", "pd-chi2", "group-dro", "sheared", "doremi", "adaptive"]


def replayed(ours, rounds, **options):
    """Update by every round; return the weights that were in force when each was measured."""
    used = []
    for losses in rounds:
        used.append(ours.weights)
        ours.update(losses, **options)
    return np.array(used)


@settings(deadline=None, derandomize=True, max_examples=300)
@given(st.data())
def test_the_regret_stays_below_its_bound(data):
    """Any proximal rule, option and stream; also where some rounds lack a loss."""
    K, T = data.draw(st.integers(1, 5)), data.draw(st.integers(1, 25))
    rule = data.draw(st.sampled_from(PROXIMAL))
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    prior = rng.dirichlet(np.ones(K)) + 0.01
    pd = rule.startswith("pd")
    bounds = data.draw(st.booleans())
    ours = Reweighter(
        list(range(K)),
        rule,
        step=data.draw(st.sampled_from([0.1, 1.0, 5.0])) if rule != "adaptive" else 1.0,
        nu=data.draw(st.sampled_from([0.0, 0.1, 2.0])) if pd else 0.0,
        extrapolation=data.draw(st.sampled_from([0.0, 1.0, 3.0])) if pd else 1.0,
        smoothing=data.draw(st.sampled_from([1e-4, 0.2])),
        prior=prior / prior.sum(),
        clip=data.draw(st.sampled_from([None, True])),
        ema=data.draw(st.sampled_from([None, 0.7])),
        floor=0.3 / K if bounds else None,
        cap=min(1.0, 2.0 / K) if bounds else None,
    )
    size = data.draw(st.sampled_from([0.01, 1.0, 10.0]))
    rounds = size * (rng.normal(size=(T, K)) + rng.normal(size=K))
    counts = np.ones((T, K))
    if K > 1 and T > 1:
        counts[rng.random((T, K)) < data.draw(st.sampled_from([0.0, 0.2]))] = 0
        counts[0] = 1
    used = []
    for losses, count in zip(rounds, counts, strict=True):
        used.append(ours.weights)
        ours.update(losses, counts=count, absent_ok=True)
    whole = counts.all(axis=1)
    found = ours.certificate()
    assert (found.rounds, found.left_out) == (whole.sum(), (~whole).sum())
    mean_K = rounds[whole].mean(axis=0)
    weighted = np.sum(np.array(used)[whole] * rounds[whole], axis=1).mean()
    np.testing.assert_allclose(found.mean_excess, mean_K, rtol=1e-10, atol=1e-12 * size)
    assert found.weighted_excess == pytest.approx(weighted, rel=1e-9, abs=1e-12 * size)
    assert found.regret == pytest.approx(mean_K.max() - weighted, rel=1e-9, abs=1e-11 * size)
    slack = 1e-9 * (size + abs(found.bound))
    assert found.regret <= found.bound + slack
    assert found.regularized_regret <= found.regularized_bound + slack


def test_the_bound_of_exponential_weights_is_the_textbooks():
    """regret = bound minus the last distance; bound <= log K / (step T) + step range^2 / 8."""
    rng, step, T, K = np.random.default_rng(3), 0.3, 40, 4
    ours = Reweighter(range(K), "group-dro", step=step)
    rounds = rng.uniform(1.0, 2.5, size=(T, K))
    used = replayed(ours, rounds)
    found = ours.certificate()
    left = -math.log(ours.dual.weights[found.mean_excess.argmax()]) / (step * T)
    assert found.bound - found.regret == pytest.approx(left, rel=1e-9)
    assert found.bound <= math.log(K) / (step * T) + step * 1.5**2 / 8
    second = np.log(np.sum(used * np.exp(step * rounds), axis=1)) / step - np.sum(
        used * rounds, axis=1
    )
    assert found.bound == pytest.approx(math.log(K) / (step * T) + second.mean(), rel=1e-9)


def test_the_regularised_regret_is_the_objectives():
    rng, nu = np.random.default_rng(4), 0.4
    prior = np.array([0.2, 0.5, 0.3])
    ours = Reweighter(NAMES, nu=nu, prior=prior, step=0.7)
    rounds = rng.normal(size=(12, 3))
    used = replayed(ours, rounds)
    best = nu * np.log(prior @ np.exp(rounds.mean(axis=0) / nu))
    kl = np.sum(used * np.log(used / prior), axis=1)
    achieved = (np.sum(used * rounds, axis=1) - nu * kl).mean()
    assert ours.certificate().regularized_regret == pytest.approx(best - achieved, rel=1e-9)


@pytest.mark.parametrize("rule", ["static", "odm", "temperature"])
def test_rules_that_make_no_proximal_step_have_a_regret_without_bound(rule):
    ours = Reweighter(NAMES, rule)
    replayed(ours, [[1.0, 2.0, 3.0]] * 3)
    found = ours.certificate()
    assert (found.bound, found.regularized_bound) == (None, None)
    assert found.regret > 0
    assert "bound" not in str(found)


def test_there_is_no_certificate_before_a_whole_round():
    ours = Reweighter(NAMES)
    ours.update([1.0, 2.0, 3.0], counts=[1, 1, 0], absent_ok=True)
    assert not ours.certifies
    with pytest.raises(RuntimeError, match="needs an update with a loss of every domain"):
        ours.certificate()
    ours.update([1.0, 2.0, 3.0])
    assert "1 update without a usable loss of every domain does not count" in str(
        ours.certificate()
    )
    with pytest.raises(ValueError, match="confidence must be a finite number, between"):
        ours.certificate(confidence=95)


def test_the_account_survives_a_resume_with_domains_in_another_order():
    rng = np.random.default_rng(5)
    rounds, errors = rng.normal(size=(9, 3)), np.full(3, 0.1)
    whole = Reweighter(NAMES, nu=0.1)
    replayed(whole, rounds, errors=errors)
    half = Reweighter(NAMES, nu=0.1)
    replayed(half, rounds[:4], errors=errors)
    order = [2, 0, 1]
    again = Reweighter([NAMES[i] for i in order], nu=0.1)
    again.load_state_dict(half.state_dict())
    replayed(again, rounds[4:, order], errors=errors)
    one, two = whole.certificate(), again.certificate()
    assert two.as_dict() == pytest.approx(one.as_dict(), rel=1e-9)
    assert two.bands == {name: pytest.approx(one.bands[name]) for name in NAMES}


def test_a_state_of_0_1_has_no_account_and_gets_one():
    old = Reweighter(NAMES)
    old.update([1.0, 2.0, 3.0])
    state = old.state_dict()
    state["version"] = 1
    del state["account"]
    ours = Reweighter(NAMES)
    ours.load_state_dict(state)
    np.testing.assert_array_equal(ours.weights, old.weights)
    assert not ours.certifies
    replayed(ours, [[1.0, 3.0, 2.0]] * 2)
    found = ours.certificate()
    assert (ours.updates, found.rounds) == (3, 2)
    assert found.regret <= found.bound


@settings(deadline=None, derandomize=True)
@given(
    st.lists(
        st.tuples(st.floats(-5, 5), st.sampled_from([0.0, 0.1, 1.0, 3.0])), min_size=1, max_size=6
    )
)
def test_separation_is_the_largest_of_all_pairs(pairs):
    values, errors = (np.array(column) for column in zip(*pairs, strict=True))
    expected = 0.0
    for v, e in pairs:
        for u, f in pairs:
            if v > u:
                expected = max(expected, (v - u) / (e + f) if e + f else math.inf)
    assert separation(values, errors) == pytest.approx(expected, rel=1e-9)


FINITE = st.floats(allow_nan=False, allow_infinity=False)


@settings(deadline=None, derandomize=True, max_examples=500)
@given(st.lists(st.tuples(FINITE, FINITE.map(abs)), min_size=1, max_size=6))
@example([(1e308, 1e308), (-1e308, 1e308), (1e300, 1e308)])
@example([(1e308, 0.0), (-1e308, 1e-300), (0.0, 1.0)])
def test_separation_ends_whatever_the_numbers(pairs):
    """Differences that overflow once had it turn for ever."""
    values, errors = (np.array(column) for column in zip(*pairs, strict=True))
    with np.errstate(all="ignore"):
        assert separation(values, errors) >= 0.0


STREAMS, ROUNDS, SEQUENCES = 1000, 12, 50


def streams(truth, correlation, seed, sequences=SEQUENCES):
    """Losses of held-out sequences: the same text every round, or text that partly differs."""
    rng = np.random.default_rng(seed)
    K = truth.shape[1]
    for _ in range(STREAMS):
        kept = rng.normal(size=(sequences, K))
        for expected in truth:
            new = rng.normal(size=(sequences, K))
            noise = math.sqrt(correlation) * kept + math.sqrt(1 - correlation) * new
            drawn = expected + 0.4 * noise
            yield drawn.mean(axis=0), drawn.std(axis=0, ddof=1) / math.sqrt(sequences)


@pytest.mark.slow
@pytest.mark.parametrize(("correlation", "fresh"), [(1.0, False), (0.0, False), (0.0, True)])
def test_bands_of_few_sequences_cover(correlation, fresh):
    """With five sequences per domain, standard errors are rough, and normal quantiles fail."""
    truth, missed, alarmed = np.ones((ROUNDS, 10)), 0, 0
    source = streams(truth, correlation, seed=8, sequences=5)
    number = STREAMS // 4
    for _ in range(number):
        ours = Reweighter(range(10), "static")
        left = False
        for expected in truth:
            losses, errors = next(source)
            ours.update(losses, errors=errors, pieces=[5] * 10)
            found = ours.certificate(fresh=fresh)
            left = left or bool((abs(found.mean_excess - expected) > found.radius).any())
        missed += left
        alarmed += not found.noise_only
    assert missed <= 0.05 * number
    assert alarmed <= 0.05 * number


@pytest.mark.slow
@pytest.mark.parametrize(
    ("correlation", "fresh"), [(1.0, False), (0.5, False), (0.0, False), (0.0, True)]
)
def test_bands_cover_all_domains_at_all_times(correlation, fresh):
    """At most 5 % of 1,000 streams ever leave a band; as few show equal domains as different."""
    truth = np.linspace(2.0, 1.0, ROUNDS)[:, None] * np.ones(4)
    means = np.cumsum(truth, axis=0) / np.arange(1, ROUNDS + 1)[:, None]
    missed = alarmed = 0
    source = streams(truth, correlation, seed=6)
    for _ in range(STREAMS):
        ours = Reweighter(range(4), "static")
        left = False
        for expected in means:
            losses, errors = next(source)
            ours.update(losses, errors=errors)
            found = ours.certificate(fresh=fresh)
            left = left or bool((abs(found.mean_excess - expected) > found.radius).any())
        missed += left
        alarmed += not found.noise_only
    assert missed <= 0.05 * STREAMS
    assert alarmed <= 0.05 * STREAMS


def test_a_difference_beyond_the_noise_is_seen_and_noise_is_named():
    rng = np.random.default_rng(7)
    apart, alike = (Reweighter(NAMES, "adaptive") for _ in range(2))
    for _ in range(6):
        noise = 0.05 * rng.normal(size=3)
        apart.update(np.array([1.0, 1.4, 1.0]) + noise, errors=[0.05] * 3)
        alike.update(np.ones(3) + noise, errors=[0.05] * 3)
    assert apart.certificate().noise_only is False
    assert apart.certificate().worst == "github"
    assert "github exceeds another" in str(apart.certificate())
    assert alike.certificate().noise_only is True
    assert "nothing shows that these weights do better than uniform ones" in str(
        alike.certificate()
    )
    unknown = Reweighter(NAMES)
    unknown.update([1.0, 2.0, 3.0], errors=[0.1, 0.1, math.nan])
    found = unknown.certificate()
    assert (found.noise_only, found.bands, found.level) == (None, None, None)


def test_fresh_bands_shrink_and_others_do_not():
    ours = Reweighter(NAMES)
    for _ in range(100):
        ours.update([1.0, 2.0, 3.0], errors=[0.1] * 3)
    wide, narrow = (ours.certificate(fresh=fresh).radius for fresh in (False, True))
    assert (wide > 0.3).all()
    assert (narrow < 0.05).all()


def test_fresh_rounds_tell_together_what_none_tells_alone():
    """Noise is named only where the bands have a common point."""
    rng = np.random.default_rng(9)
    ours = Reweighter(["a", "b"], "static")
    for _ in range(200):
        ours.update(np.array([1.0, 1.2]) + 0.1 * rng.normal(size=2), errors=[0.1, 0.1])
        found = ours.certificate(fresh=True)
        (_, low), (high, _) = found.bands["a"], found.bands["b"]
        assert found.noise_only == (low >= high)
    assert found.level < 1e-6
    assert "b exceeds another" in str(found)
    assert ours.certificate().noise_only is True  # if all rounds read the same text


def test_rounds_of_noise_alone_do_not_spoil_the_bound():
    """The adaptive rule is blind to them."""
    rng = np.random.default_rng(10)
    ours = Reweighter(NAMES, "adaptive")
    rounds = 1.0 + 0.05 * rng.normal(size=(20, 3))
    used = replayed(ours, rounds, errors=[0.05] * 3)
    found = ours.certificate()
    apart = rounds.max(axis=1) - np.sum(used * rounds, axis=1)
    assert found.regret <= found.bound == pytest.approx(apart.mean(), rel=1e-9)
    assert not found.by_theory
    assert "theory" not in str(found)


def test_the_adaptive_rules_own_objective_is_bounded_whatever_its_start():
    """Its first round goes to the prior, and is booked by what it lost."""
    rng = np.random.default_rng(11)
    ours = Reweighter(NAMES, "adaptive", start=[0.8, 0.1, 0.1])
    rounds = np.array([1.0, 1.5, 1.1]) + 0.05 * rng.normal(size=(100, 3))
    used = replayed(ours, rounds)
    found = ours.certificate()
    apart = rounds.max(axis=1) - np.sum(used * rounds, axis=1)
    assert found.bound == pytest.approx(apart.mean())
    assert found.regret <= found.bound + 1e-12
    assert 0 <= found.regularized_regret <= found.regularized_bound < 0.3
    ours.reset()
    replayed(ours, [rounds[0], rounds[0]])  # from the start, then from the prior
    lost = rounds[0].max() - np.array([0.8, 0.1, 0.1]) @ rounds[0]
    assert ours.certificate().regret == pytest.approx(
        (lost + rounds[0].max() - rounds[0].mean()) / 2
    )


def test_states_of_earlier_versions_begin_a_new_account():
    for rule in ("pd-kl", "adaptive"):
        old = Reweighter(NAMES, rule)
        replayed(old, [[1.0, 2.0, 3.0]] * 2, errors=[0.1] * 3)
        state = old.state_dict()
        state["version"] = 2
        del state["prior"], state["account"]["apart"]
        state["extra"] = {}
        ours = Reweighter(NAMES, rule)
        ours.load_state_dict(state)
        np.testing.assert_array_equal(ours.weights, old.weights)
        assert not ours.certifies
        replayed(ours, [[1.0, 2.0, 3.0]] * 2, errors=[0.1] * 3)
        assert ours.certificate().rounds == 2


def test_exact_losses_leave_no_doubt_however_the_errors_depend():
    for first, later in ((0.0, 0.01), (0.0, 0.0), (0.01, 0.0)):
        ours = Reweighter(NAMES, "static")
        for error in (first, *[later] * 49):
            ours.update([1.0, 2.0, 3.0], errors=[error] * 3)
        for fresh in (True, False):
            found = ours.certificate(fresh=fresh)
            assert found.noise_only is False
            assert found.level < 1e-3
    same = Reweighter(NAMES, "static")
    same.update([1.0, 1.0, 1.0], errors=[0.1] * 3)
    assert [same.certificate(fresh=fresh).level for fresh in (True, False)] == [1.0, 1.0]


def test_unknown_pieces_count_as_many():
    known, unknown = (Reweighter(NAMES, "static") for _ in range(2))
    for ours, pieces in ((known, None), (unknown, [math.nan, math.nan, math.nan])):
        ours.update([1.0, 2.0, 3.0], errors=[0.1] * 3, pieces=pieces)
    assert unknown.certificate().level == known.certificate().level
    some = Reweighter(NAMES, "static")
    some.update([1.0, 2.0, 3.0], errors=[0.1] * 3, pieces=[math.nan, 4, 100])
    radius = some.certificate().radius
    assert radius[0] == pytest.approx(known.certificate().radius[0])
    assert radius[0] < radius[2] < radius[1]


def test_with_another_prior_the_certificate_begins_anew():
    ours = Reweighter(["a", "b"], nu=1.0, prior=[0.01, 0.99], smoothing=0.0, extrapolation=0.0)
    replayed(ours, [[2.0, 1.0]] * 50)
    other = Reweighter(["a", "b"], nu=1.0, prior=[0.99, 0.01], smoothing=0.0, extrapolation=0.0)
    with pytest.warns(ReweightWarning, match="another prior; the certificate begins anew"):
        other.load_state_dict(ours.state_dict())
    assert not other.certifies
    replayed(other, [[2.0, 1.0]])
    assert other.certificate().rounds == 1
    assert other.certificate().regret <= other.certificate().bound


def test_the_objective_of_a_vanished_weight_is_still_measured():
    nu, rounds = 0.01, np.array([[1.0, 20.0, 2.0]] * 10)
    ours = Reweighter(NAMES, nu=nu, step=100.0)
    used = replayed(ours, rounds)
    found = ours.certificate()
    prior = np.full(3, 1 / 3)
    kl = np.sum(np.where(used > 0, used * np.log(np.maximum(used, 1e-300) / prior), 0.0), axis=1)
    best = 20.0 + nu * math.log(1 / 3)
    expected = best - (np.sum(used * rounds, axis=1) - nu * kl).mean()
    assert found.regularized_regret == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize(
    ("where", "name"), [(PrimalDualKL, "advance"), (PrimalDualKL, "propose"), (Account, "after")]
)
def test_an_interrupt_finds_the_update_made_or_not_made(where, name, monkeypatch):
    def interrupt(*args):
        raise KeyboardInterrupt

    ours = Reweighter(NAMES)
    ours.update([1.0, 2.0, 3.0])
    before = ours.state_dict()
    with monkeypatch.context() as patch:
        patch.setattr(where, name, interrupt)
        with pytest.raises(KeyboardInterrupt):
            ours.update([3.0, 2.0, 1.0], [1, 1, 0], absent_ok=True)
    assert ours.state_dict() == before
    ours.update([3.0, 2.0, 1.0], [1, 1, 0], absent_ok=True)
    assert ours.missed == {"cc": 0, "github": 0, "wiki": 1}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"pieces": [3, 3, 3]}, "pieces are those behind errors; give errors, too"),
        ({"errors": [0.1] * 3, "pieces": [-1, 2, 2]}, "pieces must be numbers >= 0"),
        ({"errors": [-1.0, 0.0, 0.0]}, "errors must be standard errors >= 0"),
        ({"errors": {"cc": 1.0}}, "errors has no value for domain"),
        ({"counts": [1, 2, 3], "total": 7}, "counts add up to 6, but total=7"),
        ({"total": 7}, "give counts, too"),
    ],
)
def test_what_cannot_be_right_is_refused_and_changes_nothing(given, message):
    ours = Reweighter(NAMES)
    before = ours.state_dict()
    with pytest.raises(ValueError, match=message):
        ours.update([1.0, 2.0, 3.0], **given)
    assert ours.state_dict() == before
