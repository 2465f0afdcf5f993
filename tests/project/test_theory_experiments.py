"""The theory experiments: what they evaluate, on cases small enough to know the answer."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest

from counterpoise import AdaptiveSteps, PaperSteps, solve
from counterpoise.dual.divergences import get_divergence

sys.path.insert(0, str(Path(__file__).parents[2] / "experiments" / "theory"))
import certified
import extrapolation
import inequality
import noise
import rates
import report
import run as command
from problems_known import (
    LAWS,
    best_known,
    by_group,
    conflicting,
    corrupted,
    planted,
    problem_of,
    scale_of,
)
from sides import Sides, sides, slack_sums, trace


def small(activation="relu", divergence="kl", nu=0.1, *, share=0.0, law="gaussian"):
    rows = planted(activation, law, K=3, n=80, d=3, spread=0.15, seed=1)
    rows = corrupted(rows, activation, "flipped", share, groups=None, seed=1)
    problem = problem_of(rows, activation, get_divergence(divergence), nu)
    return rows, problem, scale_of(problem, rows, 3.0)


# -- study 1 --------------------------------------------------------------------------------


@pytest.mark.parametrize("activation", ["relu", "identity"])
@pytest.mark.parametrize(("divergence", "nu"), [("kl", 0.1), ("kl", 0.0), ("chi2", 0.1)])
def test_inequality_holds_and_fails_when_the_right_side_is_cut(activation, divergence, nu):
    rows, problem, scale = small(activation, divergence, nu)
    printed = inequality.paper_steps(problem, rows, scale.moment, np.random.default_rng(0))
    assert isinstance(printed, PaperSteps)
    for steps in (AdaptiveSteps(), printed):
        found = sides(trace(problem, scale, steps, 60), rows.w, B=scale.moment / 6)
        for right in (found.paper, found.ours, found.signed):
            assert np.isfinite(right).all()
            assert not len(Sides.broken(found.left, right))
    # The first iterates of the printed steps hardly move: left is about half of the right side.
    assert found.left[0] / found.paper[0] == pytest.approx(0.5, rel=0.1)
    assert Sides.broken(found.left, 0.4 * found.paper)[0] == 1
    assert Sides.broken(found.left, 0.4 * found.ours)[0] == 1


def test_inequality_needs_its_noise_term():
    """With adversarial labels the target is not where the run goes; only OPT pays for that."""
    rows, problem, scale = small(share=0.2)
    run = trace(problem, scale, AdaptiveSteps(), 150)
    assert not len(Sides.broken(run_left(run, rows), sides(run, rows.w, B=scale.moment / 6).paper))
    cut = sides(run, rows.w, B=1e-9).paper
    assert len(Sides.broken(run_left(run, rows), cut)) > 0


def run_left(run, rows):
    return sides(run, rows.w, B=1.0).left


@pytest.mark.parametrize("divergence", ["kl", "chi2"])
@pytest.mark.parametrize("nu", [0.1, 0.0])
def test_recomputed_slack_and_weights_agree_with_the_run(divergence, nu):
    _, problem, scale = small("softplus", divergence, nu)
    run = trace(problem, scale, AdaptiveSteps(), 80)
    direct, coupling, boundary = slack_sums(run)
    account = run.run.account
    assert direct[-1] == pytest.approx(account.direct, rel=1e-6)
    assert coupling[-1] == pytest.approx(account.coupling, rel=1e-6)
    assert boundary[-1] == pytest.approx(account.boundary, rel=1e-6, abs=1e-12)
    np.testing.assert_allclose(run.weights[1:], run.run.history["weights"], atol=1e-12)
    assert len(run.points) == len(run.total) == 81


@pytest.mark.parametrize("activation", ["relu", "softplus", "elu"])
@pytest.mark.parametrize("law", LAWS)
def test_planted_neuron_is_stationary_in_every_group(activation, law):
    rows = planted(activation, law, K=3, n=60, d=4)
    problem = problem_of(rows, activation, get_divergence("kl"), 0.1)
    loss, grad = problem.evaluate(rows.w, surrogate=False)
    np.testing.assert_allclose(grad, 0.0, atol=1e-12)
    np.testing.assert_allclose(np.sqrt(loss), [0.1, 0.3, 0.5])


@pytest.mark.parametrize("nu", [0.1, 0.0])
def test_best_known_agrees_with_the_convex_solution(nu):
    rows = conflicting("identity", K=4, n=60, d=3)
    problem = problem_of(rows, "identity", get_divergence("kl"), nu)
    w, lowest = best_known(problem, [rows.w])
    fit = solve(rows.X, rows.y, rows.groups, activation="identity", nu=nu, fit_intercept=False)
    assert lowest == pytest.approx(fit.risk, rel=1e-6)
    np.testing.assert_allclose(w, fit.coef, atol=1e-3)


def test_adversary_replaces_the_share_it_is_given():
    rows = planted(K=4, n=50, d=3)
    hit = corrupted(rows, "relu", "large", 0.2, groups=(1,))
    changed = by_group(rows, (hit.y != rows.y).astype(float))
    np.testing.assert_allclose(changed, [0.0, 0.2, 0.0, 0.0])


def test_certificate_check_names_a_broken_bound():
    rows, problem, _ = small("identity")
    star, _ = best_known(problem, [rows.w])
    found = inequality.certificate_check(rows, "identity", "kl", 0.1, star)
    assert not found["returned_broken"]
    elsewhere = inequality.certificate_check(rows, "identity", "kl", 0.1, star + 1.0)
    assert elsewhere["returned_broken"]


# -- study 2 --------------------------------------------------------------------------------


def test_true_gradient_never_leaves_zero_and_the_surrogate_does():
    methods = ("average, true gradient", "exponentiated gradient", "average, surrogate")
    found = noise.success(("from zero",), 3, (*methods, "group DRO"), n=60)["from zero"]
    assert [found[m]["near"] for m in methods] == [0.0, 0.0, 1.0]
    assert [found[m]["low"] for m in methods] == [0.0, 0.0, 1.0]
    assert found["group DRO"]["low"] == 1.0
    assert found["average, true gradient"]["median_error"] == pytest.approx(1.0)


def test_error_stays_below_the_theorem_and_grows_with_the_noise():
    lines = noise.curves(1, (0.0, 0.4), n=80, methods=("group DRO",))
    assert all(r["error"] <= r["bound"] for r in lines)
    clean = [r["error"] for r in lines if r["share"] == 0.0]
    rough = [r["error"] for r in lines if r["share"] == 0.4]
    assert max(clean) < 1e-2 < min(rough)


# -- study 3 --------------------------------------------------------------------------------


@pytest.mark.parametrize("power", [-0.5, 0.0, 1.0])
def test_slopes_of_power_laws(power):
    x = np.logspace(-3, 2, 9)
    assert report.slope(x, 7.0 * x**power) == pytest.approx(power, abs=1e-12)
    wavy = x**power * np.exp(0.1 * (-1.0) ** np.arange(9))
    assert report.slope(x, wavy) == pytest.approx(power, abs=0.05)


def test_slope_skips_what_never_ended():
    assert report.slope([1, 2, 4, 8], [3, 6, 12, np.inf]) == pytest.approx(1.0)
    assert np.isnan(report.slope([1, 2], [3, np.inf]))


def test_settled_counts_the_last_time_outside():
    assert report.settled(np.array([3.0, 1.0, 2.0, 1.001, 1.0]), 1.0, 0.01) == 4
    assert report.settled(np.array([1.0, 1.0]), 1.0, 0.01) == 1
    assert report.settled(np.array([1.0, 2.0]), 1.0, 0.01) == np.inf


def test_closed_form_counts_the_printed_steps():
    found = rates.closed_form_check()
    assert found["closed_form"] == pytest.approx(found["one_by_one"], rel=0.01)
    said = rates.predictions()["slopes"]
    assert said["K"]["printed"] == pytest.approx(0.5, abs=0.02)
    assert said["1/epsilon"]["printed"] == pytest.approx(1.0, abs=0.1)
    # In the usual range the first sequence of the printed minimum decides, and nu does not.
    assert abs(said["nu"]["printed"]) < 0.01


# -- study 4 and the command ------------------------------------------------------------------


def test_longer_steps_swing_where_the_usual_ones_settle():
    rows = conflicting("identity", K=2, n=80, d=4, spread=1.0, noise=(0.1, 0.5))
    found = extrapolation.runs(rows, "identity", "kl", 0.0, 1.0, 150)
    limit = extrapolation.limit_of([found["dual"]["risk"]])
    assert report.settled(found["dual"]["risk"], limit, 0.001) < 100
    assert (found["dual"]["slack"] <= 0).all()
    assert (found["dual, shorter steps"]["slack"] <= 0).all()
    assert report.settled(found["dual, longer steps"]["risk"], limit, 0.001) == np.inf
    assert (found["dual, longer steps"]["slack"] > 0).any()


@pytest.mark.parametrize(("divergence", "modulus"), [("kl", 1.0), ("chi2", 2.0)])
def test_scale_knows_how_convex_the_divergence_is(divergence, modulus):
    _, _, scale = small(divergence=divergence)
    assert scale.modulus == modulus


def test_room_changes_the_dual_part_of_the_steps_by_its_root():
    _, _, scale = small()
    moved, still = (extrapolation.Measurement(2, 1.0, 0.0, spread) for spread in (10.0, 0.0))
    steps = [extrapolation.RoomySteps(room=room) for room in (1.0, 2.0, 0.5)]
    lengths = [s.step(scale, 0.2, 1.0, moved) for s in steps]
    np.testing.assert_allclose(np.divide(lengths, lengths[0]) ** 2, [1.0, 2.0, 0.5])
    assert lengths[0] == AdaptiveSteps().step(scale, 0.2, 1.0, moved)
    assert len({s.step(scale, 0.2, 1.0, still) for s in steps}) == 1


def test_upward_adds_rises_and_no_falls():
    assert extrapolation.upward(np.array([9.0, 5.0, 2.0, 3.0, 2.0, 2.5]), 2.0) == 0.75


def test_duel_counts_fewer_alike_and_more():
    lines = [
        {"variant": v, "to_01": count}
        for v, counts in (("dual", [10, 100, 50, np.inf]), ("none", [20, 101, 40, np.inf]))
        for count in counts
    ]
    assert extrapolation.duel(lines, "dual", "none") == ["dual", "none", 3, 1, 1, 1]


@pytest.mark.slow
def test_command_writes_its_files(tmp_path, monkeypatch, capsys):
    study = extrapolation.study
    tiny = dict(seeds=1, max_iter=15, groups=(2,), conds=(1.0,), n=30)
    monkeypatch.setattr(extrapolation, "study", lambda **_: study(**tiny))
    out = tmp_path / "deep" / "theory"
    command.main(["--quick", "--only", "extrapolation", "--out", str(out)])
    assert "Extrapolation on and off" in capsys.readouterr().out
    lines = json.loads((out / "extrapolation.json").read_text())["runs"]
    assert {r["variant"] for r in lines} == set(extrapolation.VARIANTS)
    assert (out / "theory-extrapolation.png").exists()
    assert "| cond | divergence |" in (out / "summary.md").read_text()


def test_numbers_are_written_so_that_json_and_readers_take_them():
    value = {"a": np.array([np.inf, 1.23456789]), "b": (np.int64(3), np.True_, None)}
    assert report.plain_numbers(value) == {"a": ["inf", 1.23457], "b": [3, True, None]}
    assert report.table(("x", "y"), [(1234, 0.12345), (None, np.inf)]).splitlines() == [
        "| x | y |", "|---|---|", "| 1,234 | 0.123 |", "| - | infinite |",
    ]  # fmt: skip


# -- study 5 --------------------------------------------------------------------------------


@pytest.mark.parametrize("activation", ["relu", "softplus", "identity"])
def test_certified_regions_hold_the_best_known_minimiser(activation):
    found = certified.check(activation, "gaussian", "noise", "kl", 0.1, 0, 120)
    assert not found["broken"]
    assert found["gaps"] == sorted(found["gaps"])
    assert found["gaps"][0] < 1e-3
    assert found["lowest"] <= found["risk"] * (1 + 1e-3)
    assert (found["theorem"] > 1.0) == (activation != "identity")
