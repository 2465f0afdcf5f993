"""Paired differences, spreads and tokens to equal quality: against closed forms and SciPy."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from lm_studies import curves, scores, study
from scipy.stats import ttest_rel

from counterpoise.lm.compare.bands import mean_curve, paired_curve
from counterpoise.lm.compare.estimates import first_reach, holm, student_interval, token_ratio
from counterpoise.lm.compare.markdown import fixed, interval, markdown_table, ratio
from counterpoise.lm.compare.results import LOSS_KINDS, Results
from counterpoise.lm.compare.summary import (
    Difference,
    Speedup,
    final_spreads,
    paired_differences,
    tokens_to_target,
)


def ends(values):
    """Results of one evaluation of one domain: ``values[run]`` holds a loss for each seed."""
    return curves({run: [[loss] for loss in losses] for run, losses in values.items()})


def test_differences_are_those_of_scipy():
    rng = np.random.default_rng(1)
    base, run = rng.normal(size=(2, 6))
    found, _ = paired_differences(ends({"base": base, "run": run, "other": base}), "base", "a")
    test = ttest_rel(run, base)
    bounds = test.confidence_interval(0.95)
    np.testing.assert_allclose(
        [found.mean, found.low, found.high, found.p],
        [(run - base).mean(), bounds.low, bounds.high, test.pvalue],
    )
    assert (found.run, found.baseline, found.metric, found.n) == ("run", "base", "a", 6)
    assert found.below == sum(run < base)
    np.testing.assert_allclose(found.sd, np.std(run - base, ddof=1))
    np.testing.assert_allclose(found.error, found.mean / test.statistic)
    unpaired = (np.var(run, ddof=1) / 6 + np.var(base, ddof=1) / 6) ** 0.5
    np.testing.assert_allclose(found.unpaired_error, unpaired)


def test_intervals_cover_as_often_as_they_say():
    rng = np.random.default_rng(2)
    cells = tuple(f"d{i}" for i in range(600))
    seeds = rng.normal(size=(5, 1, 600))
    noise = 0.05 * rng.normal(size=(2, 5, 1, 600))
    results = curves({"base": seeds + noise[0], "run": seeds + noise[1] - 0.02}, domains=cells)
    found = [paired_differences(results, "base", cell)[0] for cell in cells]
    covered = np.mean([d.low <= -0.02 <= d.high for d in found])
    assert 0.925 < covered < 0.972, covered
    assert np.mean([d.error for d in found]) < 0.1 * np.mean([d.unpaired_error for d in found])


def test_unpaired_errors_hide_what_paired_ones_show():
    for d in paired_differences(study(evaluations=2), "static", "average"):
        assert d.error < 0.1 * d.unpaired_error
    found = {d.run: d for d in paired_differences(study(evaluations=2), "static", "average")}
    assert found["dro + extrapolation"].high < 0 < found["uniform"].low


def test_only_seeds_that_both_have_are_compared():
    results = curves({"base": [[1.0], [2.0], [4.0]], "run": [[9.0], [2.5], [5.0]]})
    kept = ~((results.run == "run") & (results.seed == 0))
    fewer = Results(**{name: getattr(results, name)[kept] for name in LOSS_KINDS})
    (found,) = paired_differences(fewer, "base", "average")
    assert (found.n, found.mean, found.below) == (2, 0.75, 0)
    (none,) = paired_differences(
        ends({"base": [1.0], "run": [2.0]}).with_tasks(scores([("run", 0, 1, "qa", "acc", 0.5)])),
        "base", "task average",
    )  # fmt: skip
    assert (none.n, none.below) == (0, 0)
    assert math.isnan(none.mean)
    assert math.isnan(none.error)


def test_one_seed_gives_a_mean_and_no_interval():
    results = ends({"base": [1.0], "run": [0.75]})
    (found,) = paired_differences(results, "base", "average")
    assert (found.mean, found.n, found.below) == (-0.25, 1, 1)
    assert all(map(math.isnan, (found.low, found.high, found.sd, found.p, found.p_holm)))
    assert markdown_table([found]).split("\n")[2] == "| run |              -0.250 | 1 of 1 |"
    (faster,) = tokens_to_target(results, "base", "average")
    assert ratio(faster) == ">= 1.00"
    assert "±" not in markdown_table(final_spreads(results))


def test_a_loss_that_is_not_known_leaves_the_difference_open():
    results = ends({"base": [1.0, 2.0], "run": [0.5, math.nan]})
    (found,) = paired_differences(results, "base", "average")
    assert math.isnan(found.mean)
    assert math.isnan(found.p)
    (speed,) = tokens_to_target(results, "base", "average")
    assert math.isnan(speed.ratio)


def test_equal_runs_are_not_told_apart_and_constant_gaps_are():
    base = [1.0, 2.5, 4.0]
    found = paired_differences(
        ends({"base": base, "same": base, "more": [x + 0.25 for x in base]}), "base", "a"
    )
    assert [(d.p, d.low, d.high) for d in found] == [(1.0, 0.0, 0.0), (0.0, 0.25, 0.25)]


def test_differences_to_several_baselines_add_up():
    results = study(evaluations=2)

    def mean(run, baseline):
        return paired_differences(results, baseline, "worst", runs=[run])[0].mean

    np.testing.assert_allclose(mean("dro", "static"), -mean("static", "dro"))
    np.testing.assert_allclose(
        mean("chi2", "static"), mean("chi2", "dro") + mean("dro", "static"), atol=1e-12
    )


def test_at_a_number_of_tokens_curves_are_straight_between_evaluations():
    results = curves({"base": [[4.0, 2.0, 1.0]] * 2, "run": [[4.0, 1.0, 1.0]] * 2})
    (found,) = paired_differences(results, "base", "average", at=150)
    assert found.mean == 2.5 - 3.0
    (outside,) = paired_differences(results, "base", "average", at=301)
    assert math.isnan(outside.mean)
    with pytest.raises(ValueError, match="at must be 'end' or a number"):
        paired_differences(results, "base", "average", at="start")
    with pytest.raises(ValueError, match="run 'other' is not known"):
        paired_differences(results, "base", "average", runs=["other"])


def test_runs_of_other_lengths_are_warned_of(caplog):
    results = curves({"base": [[4.0, 2.0]], "run": [[4.0, 2.0, 1.0]]})
    paired_differences(results, "base", "average", at=200)
    assert not caplog.records
    paired_differences(results, "base", "average")
    assert "run ends at 300 tokens and base at 200" in caplog.text


def test_holm_by_hand():
    np.testing.assert_allclose(holm([0.01, 0.04, 0.03]), [0.03, 0.06, 0.06])
    np.testing.assert_allclose(holm([0.5, math.nan, 0.02]), [0.5, math.nan, 0.04])
    assert holm([]) == []
    rng = np.random.default_rng(3)
    runs = {f"r{i}": rng.normal(size=5) for i in range(3)} | {"base": rng.normal(size=5)}
    found = paired_differences(ends(runs), "base", "a")
    assert [d.p_holm for d in found] == holm([d.p for d in found])
    two = paired_differences(ends(runs), "base", "a", runs=["r0", "r1"])
    assert min(d.p_holm for d in two) == min(1.0, 2 * min(d.p for d in two))


@given(st.lists(st.floats(0.0, 1.0), min_size=1, max_size=8), st.floats(0.001, 0.2))
def test_holm_rejects_as_stepping_down_does(p, level):
    adjusted = holm(p)
    assert all(a >= q for a, q in zip(adjusted, p, strict=True))
    rejected = set()
    for k, i in enumerate(sorted(range(len(p)), key=p.__getitem__)):
        if p[i] * (len(p) - k) > level:
            break
        rejected.add(i)
    assert {i for i, a in enumerate(adjusted) if a <= level} == rejected


def test_spreads_are_of_the_last_evaluation():
    results = curves(
        {"x": [[[9.0, 9.0], [1.0, 5.0]], [[9.0, 9.0], [2.0, 5.0]]]}, domains=("a", "b")
    )
    a, b = final_spreads(results)
    assert (a.run, a.domain, a.mean, a.n) == ("x", "a", 1.5, 2)
    np.testing.assert_allclose(a.sd, 0.5**0.5)
    assert (b.domain, b.mean, b.sd) == ("b", 5.0, 0.0)
    weights = final_spreads(study({"s": 0.0}, seeds=2, evaluations=2), "weight")
    np.testing.assert_allclose([w.mean for w in weights], 1 / 6)
    with pytest.raises(ValueError, match="column 'tokens' is not known"):
        final_spreads(results, "tokens")


# 100, 200, ..., 1000 tokens; from 10 down to 1, and twice as fast.
SLOW = [11.0 - i for i in range(1, 11)]
FAST = [11.0 - 2 * i for i in range(1, 11)]


@pytest.mark.parametrize(
    ("run", "base", "ratio", "bounds"),
    [
        (FAST, SLOW, 2.0, (0, 0)),
        (SLOW, FAST, 0.5, (0, 0)),
        (SLOW, SLOW, 1.0, (0, 0)),
        # reaches 1 half way between 500 and 600 tokens
        ([10.0, 9.0, 8.0, 7.0, 2.0, 0.0, 0.0, 0.0, 0.0, 0.0], SLOW, 1000 / 550, (0, 0)),
        # the best so far counts, though the curve rises after it
        ([10.0, 1.0, 8.0, 7.0, 2.0, 2.0, 2.0, 2.0, 2.0, 1.0], SLOW, 5.0, (0, 0)),
        ([10.0, 2.0, 8.0] + [0.0] * 7, SLOW, 1000 / 350, (0, 0)),
        ([20.0] * 10, SLOW, 0.1, (1, 0)),
        ([0.5] * 10, SLOW, 10.0, (0, 1)),
        # what was not known before may have been reached before
        ([math.nan, 0.5] + [0.5] * 8, SLOW, 5.0, (0, 1)),
    ],
)
def test_tokens_to_equal_quality(run, base, ratio, bounds):
    (found,) = tokens_to_target(curves({"base": [base], "run": [run]}), "base", "average")
    np.testing.assert_allclose(found.ratio, ratio)
    assert (found.at_most, found.at_least) == bounds
    assert found.censored == sum(bounds)
    (text,) = markdown_table([found]).splitlines()[2:]
    assert ("<= " in text, ">= " in text) == tuple(map(bool, bounds))


def test_bounds_have_no_interval():
    """Four of five seeds reach the target at once; the spread of bounds is not that of ratios."""
    at_once = [0.5] * 10
    fast, slow = [at_once] * 4 + [FAST], [SLOW] * 5
    (found,) = tokens_to_target(curves({"base": slow, "run": fast}), "base", "average")
    assert (found.at_least, found.n) == (4, 5)
    np.testing.assert_allclose(found.ratio, (10.0**4 * 2) ** 0.2)
    assert math.isnan(found.low)
    assert math.isnan(found.high)
    (line,) = markdown_table([found]).splitlines()[2:]
    assert ">= 7.25, exact in 1 of 5 |" in line
    assert "[" not in line
    back, other = curves({"base": fast, "run": slow}), [[20.0] * 10] * 2 + [at_once] * 3
    (found,) = tokens_to_target(back, "base", "average")
    assert (found.at_most, math.isnan(found.high)) == (4, True)
    (found,) = tokens_to_target(curves({"base": slow, "run": other}), "base", "average")
    assert math.isnan(found.ratio), "an upper and a lower bound have no mean"
    assert "bounds both ways, exact in 0 of 5" in markdown_table([found])


def test_ratios_are_averaged_as_logarithms():
    results = curves({"base": [SLOW, FAST, SLOW], "run": [FAST, SLOW, FAST]})
    (found,) = tokens_to_target(results, "base", "average")
    np.testing.assert_allclose(found.ratios, [2.0, 0.5, 2.0])
    np.testing.assert_allclose(found.ratio, 2 ** (1 / 3))
    _, low, high = student_interval(np.log([2.0, 0.5, 2.0]))
    np.testing.assert_allclose([found.low, found.high], np.exp([low, high]))


def test_evaluations_of_the_untrained_model_say_nothing():
    """What a model is before it is trained cost no tokens, and bounds no ratio."""
    tokens = [0, 100, 200]
    results = curves({"base": [[5.0, 6.0, 4.0]] * 2, "run": [[5.0, 6.0, 5.5]] * 2}, tokens=tokens)
    (found,) = tokens_to_target(results, "base", "average")
    assert (found.ratio, found.censored) == (pytest.approx(125 / 200), 0)
    (found,) = tokens_to_target(results, "run", "average", runs=["base"])
    assert (found.ratio, found.censored) == (pytest.approx(200 / 125), 0)


def test_evaluations_that_are_no_numbers_are_passed_over():
    tokens, values = np.array([100, 200, 300]), np.array([10.0, np.nan, 0.0])
    assert first_reach(tokens, values, 5.0) == (200.0, False)


def test_higher_scores_are_better():
    rows = [(run, 0, 100 * i, "qa", "acc", rate * i) for i in range(1, 6)
            for run, rate in (("base", 0.1), ("run", 0.125))]  # fmt: skip
    results = ends({"base": [1.0], "run": [1.0]}).with_tasks(scores(rows))
    (found,) = tokens_to_target(results, "base", "task average")
    np.testing.assert_allclose(found.ratio, 1.25)
    (found,) = tokens_to_target(results, "run", "task average")
    np.testing.assert_allclose(found.ratio, 0.8)
    (difference,) = paired_differences(results, "base", "task qa")
    np.testing.assert_allclose(difference.mean, 0.125)


falls = st.lists(st.floats(0.01, 1.0), min_size=6, max_size=6)


@given(falls, falls)
@settings(max_examples=200)
def test_to_be_as_much_faster_is_to_be_as_much_slower(one, two):
    tokens = np.arange(1, 7) * 100
    a, b = (3.0 - np.cumsum(fall) for fall in (one, two))
    assume(a[-1] != b[-1])
    ratio, bound = token_ratio(tokens, a, tokens, b)
    back, bound_back = token_ratio(tokens, b, tokens, a)
    np.testing.assert_allclose(ratio * back, 1.0)
    assert bound == -bound_back
    assert (ratio > 1) == (a[-1] < b[-1])
    if not bound:
        better, target = (a, b[-1]) if ratio > 1 else (b, a[-1])
        needed, _ = first_reach(tokens, better, target)
        np.testing.assert_allclose(np.interp(needed, tokens, better), target)


def test_a_target_that_is_never_reached():
    needed, first = first_reach(np.array([1, 2]), np.array([3.0, 2.0]), 1.0)
    assert math.isnan(needed)
    assert not first


def test_bands_are_means_and_differences_along_tokens():
    results = curves({"base": [[4.0, 2.0], [5.0, 4.0]], "run": [[3.0, 2.0], [4.0, 3.0]]})
    band = mean_curve(results, "base", "average")
    assert (band.tokens.tolist(), band.mean.tolist()) == ([100, 200], [4.5, 3.0])
    np.testing.assert_allclose(band.high - band.mean, [12.706 / 2, 12.706], rtol=1e-4)
    gap = paired_curve(results, "run", "base", "average")
    assert gap.mean.tolist() == [-1.0, -0.5]
    assert (gap.low[0], gap.high[0]) == (-1.0, -1.0)
    (found,) = paired_differences(results, "base", "average")
    np.testing.assert_allclose([gap.low[1], gap.high[1]], [found.low, found.high])


def test_bands_end_where_the_shortest_curve_does():
    results = curves({"x": [[3.0, 2.0, 1.0], [3.0, 2.0]]})
    band = mean_curve(results, "x", "average")
    assert (band.tokens.tolist(), band.mean.tolist()) == ([100, 200], [3.0, 2.0])


def difference(run="dro", mean=-0.0312, half=0.0141, **changes):
    given = dict(
        run=run, baseline="static", metric="worst", mean=mean, low=mean - half, high=mean + half,
        n=5, below=5, sd=0.0113, unpaired_error=0.07, p=0.001, p_holm=0.0034,
    )  # fmt: skip
    return Difference(**(given | changes))


def test_differences_in_markdown():
    rows = [difference(), difference("no | floor", 0.0002, 0.021, below=2, p_holm=0.94)]
    assert markdown_table(rows) == (
        "| run         |     worst: minus static |  below | p (Holm) |  s.e. | s.e. unpaired |\n"
        "|:------------|------------------------:|-------:|---------:|------:|--------------:|\n"
        "| dro         | -0.031 [-0.045, -0.017] | 5 of 5 |    0.003 | 0.005 |         0.070 |\n"
        "| no \\| floor |   0.000 [-0.021, 0.021] | 2 of 5 |     0.94 | 0.005 |         0.070 |\n"
    )


def test_several_metrics_and_baselines_get_columns():
    rows = [difference(), difference(metric="average"), difference(baseline="uniform")]
    table = markdown_table(rows).splitlines()
    assert [cell.strip() for cell in table[0].split("|")][1:5] == [
        "run", "baseline", "metric", "minus baseline",
    ]  # fmt: skip
    assert [cell.strip() for cell in table[4].split("|")][1:4] == ["dro", "uniform", "worst"]
    assert len({len(line) for line in table}) == 1


def test_a_table_is_of_one_kind():
    with pytest.raises(ValueError, match="at least one"):
        markdown_table([])
    speedup = Speedup("dro", "static", "worst", 1.3, 1.2, 1.4, 5, 0, 0, ())
    with pytest.raises(TypeError, match="all alike"):
        markdown_table([difference(), speedup])


@pytest.mark.parametrize(
    ("numbers", "text"),
    [
        ((-0.0312, -0.0453, -0.0171), "-0.031 [-0.045, -0.017]"),
        ((12.34, 10.34, 14.34), "12.3 [10.3, 14.3]"),
        ((1234.5, 1000.0, 1469.0), "1234 [1000, 1469]"),
        ((0.5, 0.4004, 0.5996), "0.50 [0.40, 0.60]"),
        ((0.0312, math.nan, math.nan), "0.0312"),
        ((0.0, 0.0, 0.0), "0.00 [0.00, 0.00]"),
        ((math.nan, math.nan, math.nan), "-"),
    ],
)
def test_as_many_digits_as_the_interval_allows(numbers, text):
    assert interval(*numbers) == text


def test_zero_has_no_sign():
    assert (fixed(-0.0004, 3), fixed(-0.0006, 3), fixed(-0.0, 2)) == ("0.000", "-0.001", "0.00")
