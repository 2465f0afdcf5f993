"""Blends: Megatron's choices for one set of weights, and no repetition when the weights change."""

from __future__ import annotations

import itertools
import json

import numpy as np
import pytest

from counterpoise.lm import PublishedWeights
from counterpoise.lm.readers.megatron import BlendSchedule, blend, write_blend
from counterpoise.lm.sealed import DamagedFile

PATHS = {"web": "data/web", "code": "data/code"}


def reference(weights, size):
    """One dataset after the other is asked how far it is behind, as Megatron-LM does.

    The builder of blends divides the weights by their sum, and the blend does so again.
    """
    for _ in range(2):
        weights = (np.array(weights) / np.sum(weights)).tolist()
    counts, datasets, samples = [0] * len(weights), [], []
    for n in range(size):
        behind = [w * max(n, 1.0) - c for w, c in zip(weights, counts, strict=True)]
        chosen = behind.index(max(behind))
        datasets.append(chosen)
        samples.append(counts[chosen])
        counts[chosen] += 1
    return datasets, samples


def shares(k, seed):
    return np.random.default_rng(seed).dirichlet(np.ones(k)).tolist()


def schedule_of(*changes):
    names = tuple(f"d{i}" for i in range(len(changes[0][1])))
    return BlendSchedule(names, tuple((at, tuple(weights)) for at, weights in changes))


@pytest.mark.parametrize(("k", "seed"), [(1, 0), (2, 1), (3, 2), (7, 3), (40, 4)])
def test_one_set_of_weights_is_chosen_as_megatron_does(k, seed):
    weights = shares(k, seed)
    found = schedule_of((0, weights)).indices(0, 700)
    datasets, samples = reference(weights, 700)
    assert found.dataset_index.tolist() == datasets
    assert found.dataset_sample_index.tolist() == samples
    assert (found.dataset_index.dtype, found.dataset_sample_index.dtype) == (np.int16, np.int64)


@pytest.mark.parametrize(
    "weights",
    [
        (0.4, 0.3, 0.2, 0.1),
        (0.7, 0.2, 0.1),
        (0.05, 0.25, 0.6, 0.1),
        *itertools.permutations((0.5, 0.3, 0.15, 0.05)),
        (0.1,) * 10,
        (0.07,) * 13 + (0.09,),
        (0.4000001, 0.3, 0.2, 0.1),  # nearly sums to 1
    ],
)
def test_ties_between_datasets_fall_as_megatrons_do(weights, tmp_path):
    """Round weights leave datasets equally far behind but for the last digit."""
    schedule = BlendSchedule.starting({f"d{i}": w for i, w in enumerate(weights)})
    schedule.write(tmp_path / "schedule.json")
    for one in (schedule, BlendSchedule.read(tmp_path / "schedule.json")):
        found = one.indices(0, 2000)
        assert (found.dataset_index.tolist(), found.dataset_sample_index.tolist()) == reference(
            weights, 2000
        )


def test_datasets_without_weight_do_not_change_a_tie():
    """`blend` leaves them out, so Megatron does not see them."""
    weights = [0.0, 0.05, 0.25, 0.0, 0.6, 0.1, 0.0, 0.0, 0.0]
    found = schedule_of((0, weights)).indices(0, 2000).dataset_index
    named = np.flatnonzero(weights)
    assert found.tolist() == named[reference([w for w in weights if w], 2000)[0]].tolist()


def test_equal_weights_take_turns():
    found = schedule_of((0, [0.25] * 4)).indices(0, 12)
    assert found.dataset_index.tolist() == [0, 1, 2, 3] * 3


CHANGES = ((0, shares(5, 0)), (97, shares(5, 1)), (98, shares(5, 2)), (301, shares(5, 3)))


def test_no_sample_is_repeated_or_lost_when_weights_change():
    found = schedule_of(*CHANGES).indices(0, 600)
    for k in range(5):
        samples = found.dataset_sample_index[found.dataset_index == k]
        np.testing.assert_array_equal(samples, np.arange(len(samples)))


def test_a_blend_that_starts_anew_repeats_samples():
    """What Megatron does by itself: the new weights are applied from sample 0 on."""
    before, after = schedule_of((0, [0.9, 0.1])), schedule_of((0, [0.5, 0.5]))
    old = set(zip(*(x.tolist() for x in before.indices(0, 100)), strict=True))
    anew = set(zip(*(x.tolist() for x in after.indices(100, 200)), strict=True))
    assert old & anew
    changed = before.then({"d0": 0.5, "d1": 0.5}, from_sample=100)
    assert not old & set(zip(*(x.tolist() for x in changed.indices(100, 200)), strict=True))


@pytest.mark.parametrize("start", [0, 1, 96, 97, 98, 99, 301, 450])
def test_a_restart_at_any_sample_gives_the_same(start, tmp_path):
    schedule = schedule_of(*CHANGES)
    whole = schedule.indices(0, 600)
    schedule.write(tmp_path / "schedule.json")
    again = BlendSchedule.read(tmp_path / "schedule.json")
    assert again == schedule
    part = again.indices(start, 600)
    np.testing.assert_array_equal(part.dataset_index, whole.dataset_index[start:])
    np.testing.assert_array_equal(part.dataset_sample_index, whole.dataset_sample_index[start:])
    counts = np.bincount(whole.dataset_index[:start], minlength=5)
    assert list(again.counts(start).values()) == counts.tolist()


def test_changes_leave_what_was_read_as_it_was():
    first = schedule_of(CHANGES[0])
    later = first.then(dict(zip(first.domains, CHANGES[1][1], strict=True)), from_sample=97)
    for old, new in zip(first.indices(0, 97), later.indices(0, 97), strict=True):
        np.testing.assert_array_equal(old, new)


def test_no_dataset_is_more_than_a_sample_ahead_of_its_due():
    schedule = schedule_of(*CHANGES)
    found, due = schedule.indices(0, 600), np.zeros(5)
    counts = np.zeros(5)
    for n in range(600):
        weights = [w for at, w in schedule.changes if at <= n][-1]
        counts[found.dataset_index[n]] += 1
        assert (counts <= due + 1 + 1e-9).all()
        due += weights
    assert abs(counts.sum() - due.sum()) < 1e-6


def test_a_dataset_without_weight_gives_nothing():
    schedule = schedule_of((0, [0.0, 0.6, 0.4])).then({"d0": 0.5, "d1": 0.0, "d2": 0.5}, 50)
    found = schedule.indices(0, 100).dataset_index
    assert set(found[:50].tolist()) == {1, 2}
    assert set(found[50:].tolist()) == {0, 2}


def test_published_weights_say_from_which_sample_they_hold():
    schedule = BlendSchedule.starting(PublishedWeights({"web": 0.5, 7: 0.5}, 0))
    weights = PublishedWeights({7: 0.25, "web": 0.75}, 1, from_sample=64)
    assert schedule.then(weights).changes[-1] == (64, (0.75, 0.25))
    assert schedule.then(weights, from_sample=80).changes[-1][0] == 80
    with pytest.raises(ValueError, match="from_sample is not known"):
        schedule.then(PublishedWeights({7: 0.25, "web": 0.75}, 1))
    with pytest.raises(ValueError, match="from_sample=64 must be above 64"):
        schedule.then(weights).then(weights)
    with pytest.raises(ValueError, match=r"lack \['web'\] and have \['books'\]"):
        schedule.then(PublishedWeights({7: 0.25, "books": 0.75}, 1), 99)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ([], "must hold the weights from sample 0 on"),
        ([(5, [0.5, 0.5])], "must begin at sample 0"),
        ([(0, [0.5, 0.5]), (0, [0.4, 0.6])], "sample 0 comes after 0"),
        ([(0, [0.5, 0.6])], "must sum to 1"),
    ],
)
def test_a_schedule_that_is_none_is_refused(changes, message):
    changes = tuple((at, tuple(weights)) for at, weights in changes)
    with pytest.raises(ValueError, match=message):
        BlendSchedule(("web", "code"), changes)


def test_a_damaged_schedule_is_refused(tmp_path):
    path = tmp_path / "schedule.json"
    schedule_of(*CHANGES).write(path)
    found = json.loads(path.read_text())
    found["changes"][1][0] += 1
    path.write_text(json.dumps(found))
    with pytest.raises(DamagedFile, match="restore it from a copy"):
        BlendSchedule.read(path)


def test_a_blend_lists_weights_and_paths(tmp_path):
    """To the last digit, in the order of the paths, without domains that have no weight."""
    third = PublishedWeights({"code": 1 / 3, "web": 2 / 3}, 1)
    words = blend(third, PATHS)
    assert words == [repr(2 / 3), "data/web", repr(1 / 3), "data/code"]
    assert [float(word) for word in words[::2]] == [2 / 3, 1 / 3]
    write_blend(tmp_path / "blend.txt", third, PATHS)
    assert (tmp_path / "blend.txt").read_text().split() == words
    assert blend(PublishedWeights({"code": 1.0, "web": 0.0}, 1), PATHS) == ["1.0", "data/code"]
    with pytest.raises(ValueError, match=r"have \['code'\]"):
        blend(third, {"web": "data/web"})
    with pytest.raises(ValueError, match="must not contain blanks"):
        write_blend(tmp_path / "blend.txt", third, {"web": "my data/web", "code": "data/code"})
