"""Rows by group: shares, no repeats, regrouping from a known draw, and states."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from counterpoise.lm.mixture.row_draws import RowDraws

NAMES = ["a", "b", "c"]
CODES = np.repeat([0, 1, 2], [50, 7, 20])


def make(weights=(0.5, 0.3, 0.2), codes=CODES, seed=0):
    return RowDraws(NAMES, codes, np.asarray(weights, dtype=float), seed=seed)


def test_shares_follow_the_weights_and_groups_do_not_repeat_early():
    draws = make()
    rows = draws.take(2048)
    counts = np.bincount(CODES[rows], minlength=3)
    np.testing.assert_allclose(counts, 2048 * np.array([0.5, 0.3, 0.2]), atol=4)
    np.testing.assert_array_equal(draws.counts, counts)
    np.testing.assert_allclose(draws.expected, 2048 * np.array([0.5, 0.3, 0.2]))
    for k, size in enumerate([50, 7, 20]):
        mine = rows[CODES[rows] == k]
        for start in range(0, len(mine) - size + 1, size):
            assert len(set(mine[start : start + size])) == size


@settings(deadline=None, derandomize=True, max_examples=40)
@given(st.lists(st.integers(1, 40), min_size=1, max_size=8), st.integers(0, 5))
def test_rows_do_not_depend_on_how_many_are_taken_at_once(sizes, seed):
    total = sum(sizes)
    whole, parts = make(seed=seed), make(seed=seed)
    for draws in (whole, parts):
        draws.change(11, np.array([0.0, 0.0, 1.0]))
        draws.regroup(23, np.roll(CODES, 5))
    found = [parts.take(n) for n in sizes]
    np.testing.assert_array_equal(whole.take(total), np.concatenate(found))
    assert parts.state_dict() == whole.state_dict()


def test_changes_hold_from_their_draw_on():
    draws = make((1.0, 0.0, 0.0))
    draws.change(10, np.array([0.0, 1.0, 0.0]))
    assert (CODES[draws.take(10)] == 0).all()
    assert (CODES[draws.take(10)] == 1).all()
    draws.regroup(25, (CODES + 1) % 3)  # the third group's rows are now those of the second
    assert (CODES[draws.take(5)] == 1).all()
    assert (CODES[draws.take(20)] == 0).all()


def test_empty_groups_leave_their_weight_to_the_others():
    draws = make((0.2, 0.4, 0.4), codes=np.repeat([0, 2], [10, 10]))
    rows = draws.take(1024)
    assert np.bincount(rows < 10).tolist() == pytest.approx([1024 * 2 / 3, 1024 / 3], abs=2)
    assert draws.expected[1] == 0.0
    draws.change(1024, np.array([0.0, 1.0, 0.0]))  # nothing has any weight
    assert np.bincount(draws.take(1024) < 10).tolist() == pytest.approx([512, 512], abs=2)


@pytest.mark.parametrize("cut", [0, 7, 31, 64])
def test_a_state_resumes_the_stream(cut):
    whole, begun = make(), make()
    for draws in (whole, begun):
        draws.change(20, np.array([0.1, 0.8, 0.1]))
        draws.regroup(30, np.roll(CODES, 3))
        draws.regroup(60, np.roll(CODES, 9))
    rows = whole.take(100)
    begun.take(cut)
    resumed = make()
    resumed.load_state_dict(json.loads(json.dumps(begun.state_dict())))
    np.testing.assert_array_equal(resumed.take(100 - cut), rows[cut:])
    assert resumed.state_dict() == whole.state_dict()


def test_a_copy_moves_alone():
    draws = make()
    ahead = draws.copy()
    rows = ahead.take(30)
    assert draws.number == 0
    np.testing.assert_array_equal(draws.take(30), rows)
    draws.change(40, np.array([0.0, 0.0, 1.0]))
    assert ahead.state_dict() != draws.state_dict()


def test_states_of_other_rows_and_bad_codes_are_refused():
    state = make().state_dict()
    with pytest.raises(ValueError, match="seed=0, but these have 1"):
        make(seed=1).load_state_dict(state)
    with pytest.raises(ValueError, match="digest="):
        make(codes=np.roll(CODES, 1)).load_state_dict(state)
    with pytest.raises(ValueError, match="version 9"):
        make().load_state_dict({**state, "version": 9})
    with pytest.raises(ValueError, match="between 0 and 2"):
        make().regroup(0, CODES + 1)
    with pytest.raises(ValueError, match="one group per row"):
        make(codes=np.zeros((2, 2)))


def test_rows_that_change_their_groups_before_the_first_draw_are_in_the_new_ones():
    codes, swapped = np.repeat([0, 1], 4), np.tile([0, 1], 4)
    draws = RowDraws(["a", "b"], codes, np.array([1.0, 0.0]))
    draws.state_dict()  # forms the first groups
    draws.regroup(0, swapped)
    again = RowDraws(["a", "b"], codes, np.array([1.0, 0.0]))
    again.load_state_dict(json.loads(json.dumps(draws.state_dict())))
    np.testing.assert_array_equal(again.codes, swapped)
    rows = draws.take(4)
    assert sorted(rows) == [0, 2, 4, 6]
    np.testing.assert_array_equal(again.take(4), rows)
