"""The choice among candidates: gains beyond noise, equals, costs, and folds without a say."""

import numpy as np
import pytest

from counterpoise.assessment.choice import (
    EQUAL,
    NEEDED_GAIN,
    STRIKING,
    SURE,
    CostLimits,
    choices_by_fold,
    choose,
    confirmed,
)
from counterpoise.assessment.held_out import HeldOut


def held(risks, sizes=(100.0,), spread=None, folds=5, **options):
    """Candidates with these risks (C, K) on every fold, and a covariance of their losses."""
    risks, sizes = np.atleast_2d(np.asarray(risks, dtype=float)), np.asarray(sizes, dtype=float)
    totals = np.tile(sizes / folds, (folds, 1))
    if spread is not None:
        spread = np.broadcast_to(spread, (len(sizes), len(risks), len(risks)))
    return HeldOut(totals[:, None] * risks, totals, spread=spread, **options)


def paired(own, common=9.0):
    """Covariance of losses with a large common part, and independent parts of these variances."""
    return common + np.diag(np.asarray(own, dtype=float))


# -- gains -------------------------------------------------------------------------------------


def test_a_candidate_that_is_clearly_better_is_taken():
    choice = choose(held([[2.0], [1.5], [1.9]], spread=paired([0.01, 0.01, 0.01])))
    assert (choice.chosen, choice.best, choice.spoken) == (1, 1, 1)
    assert choice.sure[1] == 1.0
    assert choice.sure[0] == 0.0, "nothing beats itself"
    assert not choice.dearer
    np.testing.assert_allclose(choice.error, 0.3, rtol=0.1)


def test_a_gain_within_noise_is_refused():
    """A gain of 5 % whose standard error is as large: about 84 % of samples."""
    noise = 0.1**2 * 100 / 2  # of each candidate: the difference has a standard error of 0.1
    choice = choose(held([[2.0], [1.9]], spread=paired([noise, noise])))
    assert (choice.chosen, choice.best, choice.spoken) == (0, 1, 1)
    assert choice.sure[1] == pytest.approx(0.841, abs=0.05)
    more = choose(held([[2.0], [1.9]], sizes=[400.0], spread=paired([noise, noise])))
    assert more.chosen == 1, "four times the rows: twice as many standard errors"
    assert more.sure[1] == pytest.approx(0.977, abs=0.02)


def test_pairs_decide_not_levels():
    """The same risks and the same errors of each; only their correlation differs."""
    risks = [[2.0], [1.9]]
    together = choose(held(risks, spread=paired([0.01, 0.01], common=9.0)))
    apart = choose(held(risks, spread=paired([9.01, 9.01], common=0.0)))
    np.testing.assert_allclose(together.error, apart.error, rtol=0.1)
    assert together.chosen == 1
    assert apart.chosen == 0


def test_a_sure_gain_below_one_percent_is_refused():
    small, enough = (choose(held([[1.0], [1.0 - gain]])) for gain in (0.009, 0.011))
    assert NEEDED_GAIN == 0.01
    assert small.sure[1] >= SURE
    assert (small.chosen, small.best, small.spoken) == (0, 1, 1)
    assert enough.chosen == 1


def test_without_a_better_candidate_the_best_is_still_named():
    choice = choose(held([[1.0], [1.5], [1.2]]))
    assert (choice.chosen, choice.best, choice.spoken) == (0, 2, 2)


def test_the_plain_average_alone():
    choice = choose(held([[1.0]]))
    assert (choice.chosen, choice.best, choice.spoken) == (0, 0, 0)


def test_another_candidate_may_be_the_plain_average():
    risks = [[1.0], [3.0], [2.0]]
    assert choose(held(risks), plain=0).chosen == 0
    assert choose(held(risks), plain=1).chosen == 0
    assert choose(held(risks), plain=2, excluded=[0]).chosen == 2


def test_a_steady_candidate_is_taken_where_the_best_is_noise():
    spread = paired([0.01, 40.0, 0.01])
    choice = choose(held([[2.0], [1.6], [1.8]], spread=spread))
    assert choice.sure[1] < SURE <= choice.sure[2]
    assert (choice.chosen, choice.best) == (2, 1)


def test_risks_below_the_floor_are_no_gain():
    assert choose(held([[1e-30], [1e-40]], floor=1e-20)).chosen == 0


# -- equals ------------------------------------------------------------------------------------

# Risks in a large group and in the worst one. Candidate 1 is best for the worst group, and the
# second costs less on average.
SIZES = [900.0, 100.0]


@pytest.mark.parametrize(("gap", "chosen"), [(0.01, 2), (0.05, 1)])
def test_among_equals_by_the_paired_difference_the_lowest_average_wins(gap, chosen):
    """Levels have a standard error of 0.2, the difference of the two one of 0.02."""
    spread = [np.zeros((3, 3)), paired([0.02, 0.02, 0.02], common=4.0)]
    found = held([[0.2, 2.0], [0.4, 1.0], [0.3, 1.0 + gap]], SIZES, spread)
    choice = choose(found)
    assert (choice.best, choice.chosen) == (1, chosen)
    assert choice.error[1] > 3 * gap
    draws = found.draws()
    difference = draws[:, 2] - draws[:, 1]
    assert difference.std() == pytest.approx(0.02, rel=0.1)
    assert (difference.mean() <= EQUAL * difference.std()) == (chosen == 2)


def test_an_equal_with_a_higher_average_is_not_preferred():
    spread = [np.zeros((3, 3)), paired([0.02, 0.02, 0.02], common=4.0)]
    found = held([[0.2, 2.0], [0.3, 1.0], [0.5, 1.001]], SIZES, spread)
    assert choose(found).chosen == 1


def test_an_equal_must_beat_the_average_by_itself():
    """Candidate 2 is as good as the best within its own large error, which is why it is unsure."""
    spread = paired([0.02, 0.02, 60.0], common=0.0)
    found = held([[0.2, 2.0], [0.5, 1.0], [0.1, 1.3]], SIZES, spread)
    draws = found.draws()
    gap = draws[:, 2] - draws[:, 1]
    assert gap.mean() < EQUAL * gap.std()
    assert choose(found).sure[2] < SURE
    assert choose(found).chosen == 1


# -- costs -------------------------------------------------------------------------------------


def test_a_limit_on_the_average_refuses_and_says_so():
    """Candidate 1 raises the average from 0.38 to 0.55, candidate 2 to 0.3997 (5.2 %)."""
    found = held([[0.2, 2.0], [0.5, 1.0], [0.233, 1.9]], SIZES)
    np.testing.assert_allclose(found.average, [0.38, 0.55, 0.3997])
    free = choose(found)
    assert (free.chosen, free.dearer) == (1, False)
    some = choose(found, limits=CostLimits(average=0.06))
    assert (some.chosen, some.dearer) == (2, True)
    none = choose(found, limits=CostLimits(average=0.05))
    assert (none.chosen, none.dearer, none.spoken) == (0, True, 1)
    ample = choose(found, limits=CostLimits(average=0.45))
    assert (ample.chosen, ample.dearer) == (1, False)


def test_a_limit_on_groups_looks_at_every_one():
    """The average falls, but the second group of three pays 20 %."""
    risks = [[1.0, 0.50, 4.0], [0.9, 0.60, 2.0], [1.0, 0.52, 3.0]]
    found = held(risks, [300.0, 100.0, 100.0])
    assert choose(found, limits=CostLimits(average=0.0)).chosen == 1
    strict = choose(found, limits=CostLimits(group=0.1))
    assert (strict.chosen, strict.dearer) == (2, True)
    assert choose(found, limits=CostLimits(group=0.21)).chosen == 1
    assert choose(found, limits=CostLimits(group=0.0)).chosen == 0
    both = choose(found, limits=CostLimits(average=0.0, group=0.1))
    assert both.chosen == 2


def test_limits_are_on_errors_as_they_are_shown():
    """A mean squared error that rises by 44.7 % is a root that rises by 20.3 %."""
    risks = [[0.2, 2.0], [0.5, 1.0]]
    rise = 0.55 / 0.38 - 1.0
    assert 0.44 < rise < 0.45
    limits = CostLimits(average=0.25)
    assert choose(held(risks, SIZES), limits=limits).chosen == 0
    assert choose(held(risks, SIZES, rooted=True), limits=limits).chosen == 1
    tight = CostLimits(average=np.sqrt(1 + rise) - 1 - 1e-6)
    assert choose(held(risks, SIZES, rooted=True), limits=tight).chosen == 0


def test_a_costly_fit_that_is_no_better_is_not_called_dearer():
    """The limit leaves out candidate 2, but the chosen one is better for the worst group."""
    found = held([[0.2, 2.0], [0.2, 1.0], [0.9, 1.5]], SIZES)
    choice = choose(found, limits=CostLimits(average=0.1))
    assert (choice.chosen, choice.dearer) == (1, False)
    # Nor is one that does not clearly beat the plain average.
    noisy = held([[0.2, 2.0], [0.9, 1.95]], SIZES, spread=paired([9.0, 9.0]))
    assert not choose(noisy, limits=CostLimits(average=0.1)).dearer


def test_groups_without_rows_cost_nothing():
    found = held([[0.2, 2.0, 1.0], [0.2, 1.0, 1.0]], [900.0, 100.0, 0.0])
    assert np.isnan(found.risks()[:, 2]).all()
    choice = choose(found, limits=CostLimits(average=0.0, group=0.0))
    assert (choice.chosen, choice.dearer) == (1, False)


# -- candidates that are left out, and kinds of losses -------------------------------------------


def test_excluded_candidates_are_never_chosen():
    found = held([[3.0], [1.0], [2.0]])
    assert choose(found).chosen == 1
    without = choose(found, excluded=[0, 1])
    assert (without.chosen, without.best, without.spoken) == (2, 2, 2)
    nothing = choose(found, excluded=[0, 1, 2])
    assert (nothing.chosen, nothing.best, nothing.spoken) == (0, 0, 0)
    assert choices_by_fold(found, 0, [1], CostLimits()) == [2] * 5


def test_errors_of_zero_are_the_best_there_is():
    """Two folds of ten rows; the first candidate is never wrong."""
    sums = np.array([[[0.0], [2.0]], [[0.0], [3.0]]])
    found = HeldOut(sums, np.full((2, 1), 10.0), bounded=True)
    assert choose(found, plain=1).chosen == 0
    assert choose(found, plain=0).chosen == 0
    nobody = choose(held(np.zeros((3, 1)), bounded=True))
    assert (nobody.chosen, nobody.sure.tolist()) == (0, [0.0, 0.0, 0.0])


@pytest.mark.parametrize("bounded", [False, True])
def test_striking_folds_are_counted_for_losses_without_bound(bounded):
    """One fold of five is far above three medians for the robust fit alone."""
    risks = np.array([[1.2, 1.2, 1.2, 1.2, 4.0], [0.4, 0.4, 0.4, 0.4, 0.4 * STRIKING + 0.1]])
    found = HeldOut(20.0 * risks.T[:, :, None], np.full((5, 1), 20.0), bounded=bounded)
    choice = choose(found)
    assert choice.chosen == 1
    assert choice.striking == (0 if bounded else 1)
    assert choose(found, folds=[0, 1, 2, 3]).striking == 0


# -- choices without a fold ----------------------------------------------------------------------


def uneven(seed=0, folds=5):
    """Folds that disagree: each has another favourite among four candidates."""
    rng = np.random.default_rng(seed)
    risks = np.array([[0.5, 1.0], [0.5, 0.98], [0.52, 0.97], [0.6, 0.96]])
    factors = 1.0 + 0.1 * rng.standard_normal((folds, *risks.shape))
    totals = np.full((folds, 2), 40.0)
    return HeldOut(risks * factors * totals[:, None], totals)


@pytest.mark.parametrize("fold", range(5))
def test_no_fold_has_a_say_in_its_own_choice(fold):
    """Any rows may be in the fold: its choice stays, whereas the choice by all folds changes."""
    found = uneven(seed=11)
    limits = CostLimits(average=0.1, group=0.3)
    before = choices_by_fold(found, 0, [0], limits)
    assert len(before) == 5
    overall = set()
    for winner in range(4):
        sums = found.sums.copy()
        sums[fold] = 400.0
        sums[fold, winner] = 0.04
        other = HeldOut(sums, found.totals)
        assert choices_by_fold(other, 0, [0], limits)[fold] == before[fold]
        overall.add(choose(other).chosen)
    assert overall == {0, 1, 2, 3}


@pytest.mark.parametrize("fold", range(5))
def test_nor_do_averages_over_rows_of_overlapping_groups(fold):
    """Two equals for the worst group, so the average over the rows of the other folds decides."""
    found = held([[0.2, 2.0], [0.4, 1.0], [0.3, 1.0]], SIZES)
    totals = np.full(5, 200.0)
    rows = np.tile([40.0, 60.0, 50.0], (5, 1))
    rows[fold] = [40.0, 1.0, 1e6]
    other = HeldOut(found.sums, found.totals, rows=rows, row_totals=totals)
    assert choose(other).chosen == 1, "by all rows"
    assert choices_by_fold(other, 0, [], CostLimits())[fold] == 2


def test_choices_by_fold_are_those_of_the_other_folds_alone():
    found = uneven(seed=11)
    expected = []
    for f in range(5):
        rest = [g for g in range(5) if g != f]
        expected.append(choose(HeldOut(found.sums[rest], found.totals[rest])).chosen)
        assert choose(found, folds=rest).chosen == expected[-1]
    assert len(set(expected)) > 1, "folds that all agree would show nothing"
    assert choices_by_fold(found, 0, [], CostLimits()) == expected


def test_repeats_choose_by_the_first_partition():
    found = uneven(seed=11)
    other = uneven(seed=5)
    both = HeldOut(
        np.concatenate([found.sums, other.sums]), np.concatenate([found.totals, other.totals]),
        repeats=2,
    )  # fmt: skip
    once = choices_by_fold(found, 0, [], CostLimits())
    assert choices_by_fold(both, 0, [], CostLimits()) == once
    assert choices_by_fold(other, 0, [], CostLimits()) != once


def test_limits_hold_in_every_fold():
    found = held([[0.2, 2.0], [0.5, 1.0]], SIZES)
    assert choices_by_fold(found, 0, [], CostLimits()) == [1] * 5
    assert choices_by_fold(found, 0, [], CostLimits(average=0.1)) == [0] * 5


def test_a_choice_that_does_not_hold_up_by_fold_is_dropped():
    """Two candidates, two folds, one group of ten rows a fold."""
    sums = np.array([[[10.0], [4.0]], [[10.0], [4.0]]])
    heldout = HeldOut(sums, np.full((2, 1), 10.0))
    found = choose(heldout, 0)
    assert found.chosen == 1
    assert confirmed(heldout, found, 0, [1, 1]) == found
    assert confirmed(heldout, found, 0, [0, 1]) == found  # still lower together
    dropped = confirmed(heldout, found, 0, [0, 0])
    assert (dropped.chosen, dropped.spoken, dropped.overruled) == (0, 1, True)
