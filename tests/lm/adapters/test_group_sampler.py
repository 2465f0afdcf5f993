"""The order of rows by group, as a trainer's loader reads it: ahead of what it trains on."""

import json
from itertools import islice

import numpy as np
import pytest

from counterpoise import Reweighter
from counterpoise.lm import Steering
from counterpoise.lm.adapters.group_sampler import GroupSampler

GROUPS = ["a"] * 12 + ["b"] * 6 + ["c"] * 3


def read(sampler, batches, *, ahead=0, act=None):
    """Rows of each batch trained on, while a loader reads some batches ahead of it."""
    size = sampler.rows * sampler.repeats
    found, waiting, stream = [], [], iter(())
    while len(found) < batches:
        if not waiting:  # an epoch ends when all of it was trained on
            stream = iter(sampler)
        while len(waiting) <= ahead:
            batch = list(islice(stream, size))
            if not batch:
                break
            waiting.append(batch)
        found.append(waiting.pop(0))
        sampler.count_batch()
        if act is not None:
            act(len(found))
    return found


def test_rows_and_batches_repeat_as_the_trainer_asks():
    sampler = GroupSampler(GROUPS, rows=4, repeats=3, copies=2)
    indices = list(sampler)
    assert len(indices) == len(sampler) == 21 // 4 * 4 * 3 * 2
    batches = np.array(indices).reshape(-1, 4, 3)
    assert (batches == batches[:, :, :1]).all()
    assert (batches[::2] == batches[1::2]).all()
    firsts = batches[::2, :, 0].ravel()
    assert len(firsts) == 20
    assert abs(np.bincount(np.searchsorted([12, 18], firsts, side="right")) - [12, 6, 3]).max() <= 3


@pytest.mark.parametrize(
    ("rows", "copies", "together", "batches"),
    [(2, 1, 1, 10), (2, 1, 4, 8), (2, 2, 4, 20), (2, 3, 2, 30), (4, 3, 2, 12), (10, 1, 4, 4)],
)
def test_an_epoch_is_a_whole_number_of_steps(rows, copies, together, batches):
    """Of the 21 rows, as many as fit; no row is lost, since the next epoch goes on."""
    sampler = GroupSampler(GROUPS, rows=rows, copies=copies, together=together)
    assert sampler.batches == batches
    assert len(list(sampler)) == len(sampler) == batches * rows
    plain = GroupSampler(GROUPS, rows=rows, copies=copies)
    assert read(sampler, 40) == read(plain, 40)


@pytest.mark.parametrize("copies", [1, 3])
@pytest.mark.parametrize("trained", [1, 6, 7, 13])
def test_the_epoch_of_a_resume_ends_where_it_would_have(copies, trained):
    """Batches that the trainer skips are there to be counted; the others are the epoch's rest."""
    sampler = GroupSampler(GROUPS, rows=4, copies=copies)
    epochs = [read(sampler, sampler.batches) for _ in range(4)]
    resumed = GroupSampler(GROUPS, rows=4, copies=copies)
    read(resumed, trained)
    resumed.resume_after(trained)
    epoch, before = divmod(trained, sampler.batches)
    found = np.array(list(resumed)).reshape(-1, 4)
    assert len(found) == sampler.batches
    assert found[before:].tolist() == epochs[epoch][before:]
    for _ in range(sampler.batches - before):
        resumed.count_batch()
    assert np.array(list(resumed)).reshape(-1, 4).tolist() == epochs[epoch + 1]


@pytest.mark.parametrize(("copies", "ahead"), [(1, 0), (1, 1), (1, 5), (2, 1), (3, 4), (4, 1)])
def test_new_weights_hold_from_the_first_batch_that_cannot_have_been_read(copies, ahead):
    sampler = GroupSampler(GROUPS, rows=2, copies=copies, ahead=ahead, weights=[1, 0, 0])
    starts = []

    def act(done):
        if done == 3:
            starts.append(sampler.set_weights([0, 1, 0]))

    found = read(sampler, 20, ahead=ahead, act=act)
    first = next(i for i, rows in enumerate(found) if min(rows) >= 12)
    # Three batches were trained on and `ahead` more were read; a batch that was begun is finished.
    assert first == -(-(3 + ahead) // copies) * copies
    assert starts == [first // copies * 2]
    assert all(max(rows) < 12 for rows in found[:first])
    assert all(min(rows) >= 12 and max(rows) < 18 for rows in found[first:])


@pytest.mark.parametrize("cut", [0, 1, 4, 7])
@pytest.mark.parametrize(("copies", "ahead"), [(1, 1), (2, 3)])
def test_a_resume_gives_the_same_rows(cut, copies, ahead):
    def make():
        return GroupSampler(GROUPS, rows=2, copies=copies, ahead=ahead, seed=3)

    def steer(sampler, since=0):
        def act(done):
            if (since + done) % 3 == 0:
                sampler.regroup(np.roll(sampler.codes, since + done))
                sampler.set_weights(np.roll([0.6, 0.3, 0.1], since + done))

        return act

    whole, begun, resumed = make(), make(), make()
    expected = read(whole, 40, ahead=ahead, act=steer(whole))
    read(begun, cut, ahead=ahead, act=steer(begun))
    resumed.load_state_dict(json.loads(json.dumps(begun.state_dict())))
    found = read(resumed, 40 - cut, ahead=ahead, act=steer(resumed, cut))
    assert found == expected[cut:]
    assert resumed.state_dict() == whole.state_dict()


def test_the_batch_that_is_trained_on_is_known():
    sampler = GroupSampler(GROUPS, rows=3, copies=2, ahead=2)
    before = [sampler.batch.tolist()]
    found = read(sampler, 6, ahead=2, act=lambda done: before.append(sampler.batch.tolist()))
    assert found == before[:-1]


def test_steering_takes_a_sampler_for_a_mixture():
    sampler = GroupSampler(GROUPS, rows=3)
    steering = Steering(Reweighter(sampler.domains, start=sampler.weights), sampler)
    read(sampler, 7)
    steering.observe({"a": 1.0, "b": 2.0, "c": 3.0}, step=1)
    np.testing.assert_allclose(sampler.weights, steering.weights)
    report = steering.record()["domains"]
    assert sum(report[name]["samples"] for name in "abc") == 21
    assert report["a"]["target"] == pytest.approx(12 / 21)


def test_arguments_are_checked():
    with pytest.raises(ValueError, match="takes 5 rows, but there are 2"):
        GroupSampler(["a", "b"], rows=5)
    with pytest.raises(ValueError, match="group 'b' is none of"):
        GroupSampler(["a", "b"], names=["a"])
    with pytest.raises(ValueError, match="repeats must be"):
        GroupSampler(["a", "b"], repeats=0)
    with pytest.raises(ValueError, match="one for each of 2 rows; got 3"):
        GroupSampler(["a", "b"]).regroup(np.zeros(3))


def test_a_state_within_a_batch_is_of_that_batch():
    begun = GroupSampler(GROUPS, rows=2, copies=4)
    read(begun, 3)
    state = begun.state_dict()
    with pytest.raises(ValueError, match="within a batch with copies=4, but this sampler has 2"):
        GroupSampler(GROUPS, rows=2, copies=2).load_state_dict(state)
    read(begun, 1)
    GroupSampler(GROUPS, rows=2, copies=2).load_state_dict(begun.state_dict())


def test_groups_that_are_empty_for_now_can_be_steered():
    sampler = GroupSampler(["a", "a", "b"], names=["a", "b", "c"])
    start = Steering(mixture=sampler).weights
    assert start.min() > 0
    np.testing.assert_allclose(start, [2 / 3, 1 / 3, 0], atol=1e-4)


def test_batches_without_factors_are_not_drawn_apart(tmp_path):
    sampler = GroupSampler(GROUPS)
    with pytest.raises(ValueError, match="batches of a GroupSampler carry no factors"):
        Steering(Reweighter(sampler.domains), sampler, sampling="variance")
    steering = Steering(Reweighter(sampler.domains), sampler, publish=tmp_path / "w.json")
    assert steering.published().corpus is None
