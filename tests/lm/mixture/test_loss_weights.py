"""Factors of losses: each sample carries that in force where it stands in the stream."""

import json

import numpy as np
import pytest
import torch
from lm_problems import numbered_corpus

from counterpoise.lm import MixtureDataset

# More workers than cores is a test's own wish.
pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create")

SIZES = {"a": 40, "b": 11, "c": 90}
LENGTH = 4
HALVES = [0.5, 0.25, 0.25]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return numbered_corpus(tmp_path_factory.mktemp("corpus") / "c", SIZES, LENGTH)


def flattened(samples):
    """Put all samples into one row, as collators without padding do."""
    return {"input_ids": torch.cat([s["input_ids"] for s in samples])[None]}


def rows(batch):
    """The samples of a batch, each with its factor."""
    factors = batch["loss_weight"].tolist()
    return list(zip(batch["input_ids"][:, 0].tolist(), factors, strict=True))


def test_batches_carry_the_factors_of_their_domains(corpus):
    mixture = MixtureDataset(corpus, LENGTH)
    mixture.set_weights(HALVES, loss_weights={"c": 4.0, "a": 1.0, "b": 0.5})
    for _, batch in zip(range(5), mixture.loader(8), strict=False):
        assert batch["loss_weight"].dtype == torch.float32
        expected = np.array([1.0, 0.5, 4.0])[batch["domain"].numpy()]
        np.testing.assert_array_equal(batch["loss_weight"].numpy(), expected)
    np.testing.assert_array_equal(mixture.loss_weights, [1.0, 0.5, 4.0])


def test_batches_have_no_factors_unless_asked_for(corpus):
    mixture = MixtureDataset(corpus, LENGTH)
    assert "loss_weight" not in next(iter(mixture.loader(8)))
    assert mixture.loss_weights is None
    assert mixture.state_dict()["version"] == 1  # what 0.1 reads, too


@pytest.mark.parametrize(("workers", "own"), [(0, False), (2, False), (1, True)])
def test_factors_change_with_the_shares_that_they_belong_to(corpus, workers, own):
    """Whatever workers have read ahead was drawn by the old shares."""
    mixture = MixtureDataset(corpus, LENGTH, weights=[1.0, 0.0, 0.0])
    mixture.set_weights([1.0, 0.0, 0.0], loss_weights=[2.0, 1.0, 1.0])
    options = {"collate_fn": torch.utils.data.default_collate} if own else {}
    loader = mixture.loader(4, num_workers=workers, lag=4, **options)
    seen = []
    for number, batch in enumerate(loader):
        seen.append({(int(n) // 1_000_000, f) for n, f in rows(batch)})
        if number == 2:
            assert mixture.set_weights([0.0, 0.0, 1.0], loss_weights=[1.0, 1.0, 3.0]) == 7 * 4
        if number == 9:
            break
    assert seen == [{(1, 2.0)}] * 7 + [{(3, 3.0)}] * 3


@pytest.mark.parametrize("workers", [0, 1])
def test_factors_alone_change_with_the_next_batch(corpus, workers):
    """Shares stay, so that no worker has read too far."""
    plain = MixtureDataset(corpus, LENGTH, weights=HALVES).loader(4)
    mixture = MixtureDataset(corpus, LENGTH, weights=HALVES)
    assert mixture.set_weights(None, loss_weights=[2.0, 2.0, 2.0]) == 0
    seen, read = [], []
    for number, batch in enumerate(mixture.loader(4, num_workers=workers)):
        seen.append(set(batch["loss_weight"].tolist()))
        read.append(batch["input_ids"][:, 0].tolist())
        if number == 2:
            assert mixture.set_weights(None, loss_weights=[5.0, 5.0, 5.0]) == 3 * 4
        if number == 5:
            break
    assert seen == [{2.0}] * 3 + [{5.0}] * 3
    for ours, theirs in zip(read, plain, strict=False):
        assert ours == theirs["input_ids"][:, 0].tolist()


def test_factors_alone_wait_for_shares_that_are_on_their_way(corpus):
    mixture = MixtureDataset(corpus, LENGTH, weights=HALVES)
    loader = iter(mixture.loader(4, lag=3))
    next(loader)
    at = mixture.set_weights([0.2, 0.2, 0.6])
    assert mixture.set_weights(None, loss_weights=[1.0, 1.0, 2.0]) == at == 16
    first = [next(loader)["loss_weight"] for _ in range(3)]
    assert torch.cat(first).tolist() == [1.0] * 12  # drawn by the weights
    assert set(next(loader)["loss_weight"].tolist()) <= {1.0, 2.0}
    np.testing.assert_allclose(mixture.weights, [0.2, 0.2, 0.6])


@pytest.mark.slow
@pytest.mark.parametrize("first", [(1, 0, 12), (2, 2, 6)])
@pytest.mark.parametrize("second", [(1, 0, 8), (2, 1, 6), (3, 0, 5)])
def test_resume_keeps_every_sample_s_factor(corpus, first, second):
    """Also with changes on their way, and where batches are cut elsewhere."""

    def read(state, world, workers, batch, count, changing=False):
        parts, states = [], []
        for rank in range(world):
            mixture = MixtureDataset(corpus, LENGTH, seed=5, rank=rank, world_size=world)
            loader = mixture.loader(batch, num_workers=workers, lag=4)
            if state is None:
                mixture.set_weights(HALVES, loss_weights=[1.0, 2.0, 3.0])
            else:
                loader.load_state_dict(state)
            seen = []
            for number, loaded in enumerate(loader):
                seen.append(rows(loaded))
                if changing and number == 1:
                    loader.mixture.set_weights(None, loss_weights=[4.0, 5.0, 6.0])
                if changing and number == 5:
                    mixture.set_weights([0.1, 0.6, 0.3], loss_weights=[7.0, 8.0, 9.0])
                if (number + 1) * batch * world >= count:
                    break
            parts.append(seen)
            states.append(json.loads(json.dumps(loader.state_dict())))
        assert all(s == states[0] for s in states)
        return [n for turn in zip(*parts, strict=True) for part in turn for n in part], states[0]

    whole, _ = read(None, 1, 0, 12, 240, changing=True)
    assert {factor for _, factor in whole} == set(map(float, range(1, 10)))
    begun, state = read(None, *first, 84, changing=True)
    assert begun == whole[:84]
    assert state["version"] == 2
    rest, _ = read(state, *second, 156)
    assert rest[: 240 - 84] == whole[84:240]


def test_batches_fetched_but_not_trained_on_keep_their_factors(corpus):
    mixture = MixtureDataset(corpus, LENGTH)
    mixture.set_weights(None, loss_weights=[1.0, 1.0, 1.0])
    loader, seen = mixture.loader(6), []
    for number, batch in enumerate(loader):
        seen.append(rows(batch))
        if number in (1, 3):
            mixture.set_weights(HALVES, loss_weights=[number + 1.0] * 3)
        if number == 4:
            break
    assert [batch[0][1] for batch in seen] == [1.0, 1.0, 2.0, 2.0, 4.0]
    mixture.count_untrained = lambda: 3
    again = MixtureDataset(corpus, LENGTH).loader(6)
    again.load_state_dict(loader.state_dict())
    repeated = [rows(batch) for _, batch in zip(range(3), again, strict=False)]
    assert repeated == seen[2:]


def test_batches_of_other_entries_are_counted_by_their_first_tensor(corpus):
    def collate(samples):
        kept = samples[1:] if dropping else samples
        return {"name": "n", "scale": torch.tensor(2.0), "x": torch.ones(len(kept), 3)}

    mixture = MixtureDataset(corpus, LENGTH)
    mixture.set_weights(HALVES, loss_weights=[1.0, 1.0, 2.0])
    dropping = False
    assert next(iter(mixture.loader(4, collate_fn=collate)))["loss_weight"].shape == (4,)
    dropping = True
    with pytest.raises(ValueError, match="collator collate made 3 rows of 'x' from 4 samples"):
        next(iter(mixture.loader(4, collate_fn=collate)))


def test_what_would_lose_a_factor_is_refused(corpus):
    mixture = MixtureDataset(corpus, LENGTH)
    with pytest.raises(ValueError, match="weights=None keeps the weights; give loss_weights"):
        mixture.set_weights(None)
    with pytest.raises(ValueError, match="loss_weights must be finite numbers >= 0"):
        mixture.set_weights(HALVES, loss_weights=[1.0, -1.0, 1.0])
    mixture.set_weights(HALVES, loss_weights=[1.0, 1.0, 2.0])
    with pytest.raises(RuntimeError, match="only batches of mixture"):
        next(iter(mixture))
    with pytest.raises(TypeError, match="let collate_fn return a dictionary"):
        next(iter(mixture.loader(2, collate_fn=list)))
    with pytest.raises(ValueError, match="collator flattened made 1 rows of 'input_ids' from 2"):
        next(iter(mixture.loader(2, collate_fn=flattened)))
    dropping = MixtureDataset(corpus, LENGTH, exhaustion="drop")
    with pytest.raises(ValueError, match="use exhaustion='repeat' or 'stop'"):
        dropping.set_weights(HALVES, loss_weights=[1.0, 1.0, 2.0])
