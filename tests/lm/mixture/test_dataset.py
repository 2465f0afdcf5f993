"""Mixtures: no sample lost or repeated, the same stream for all ranks and workers, exact resume."""

import copy
import json
from itertools import islice

import numpy as np
import pytest
import torch
from lm_problems import END, numbered_corpus, write_corpus
from torchdata.stateful_dataloader import StatefulDataLoader

from counterpoise import Reweighter
from counterpoise.lm import MixtureDataset, Samples
from counterpoise.lm.mixture.draws import Change

# torchdata 0.11.0 calls what torch 2.13 deprecates; more workers than cores is a test's own wish.
pytestmark = [
    pytest.mark.filterwarnings("ignore:'set_vital' is deprecated"),
    pytest.mark.filterwarnings("ignore:This DataLoader will create"),
]

SIZES = {"a": 40, "b": 11, "c": 90}
LENGTH = 4


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return numbered_corpus(tmp_path_factory.mktemp("corpus") / "c", SIZES, LENGTH)


def names(batch):
    """The samples of a batch, by the number each starts with."""
    return batch["input_ids"][:, 0].tolist()


def joined(batches):
    return [name for batch in batches for name in batch]


def stream(corpus, count, changes=(), batch=6, **options):
    """The first samples of the stream, read by one process without workers."""
    mixture = MixtureDataset(corpus, LENGTH, batch_size=batch, **options)
    seen, todo = [], list(changes)
    for loaded in mixture.loader():
        seen += names(loaded)
        while todo and len(seen) >= todo[0][0]:
            mixture.set_weights(todo.pop(0)[1])
        if len(seen) >= count:
            return seen[:count]
    return seen


def test_samples_carry_tokens_labels_and_domain(corpus):
    mixture = MixtureDataset(corpus, LENGTH, seed=3)
    for _, sample in zip(range(50), mixture, strict=False):
        k, i = divmod(int(sample["input_ids"][0]), 1_000_000)
        assert int(sample["domain"]) == k - 1
        expected = corpus.tokens(corpus.domains[k - 1]).read(i * LENGTH, (i + 1) * LENGTH)
        np.testing.assert_array_equal(sample["input_ids"], expected)
        np.testing.assert_array_equal(sample["labels"], expected)


def test_weights_are_shares_of_tokens_by_default(corpus):
    mixture = MixtureDataset(corpus, LENGTH)
    np.testing.assert_allclose(mixture.weights, np.array([40, 11, 90]) / 141)


def test_no_sample_comes_twice_in_an_epoch(corpus):
    seen = np.array(stream(corpus, 600, weights=[0.3, 0.5, 0.2]))
    for k, size in enumerate(SIZES.values()):
        mine = seen[seen // 1_000_000 == k + 1] % 1_000_000
        for lo in range(0, len(mine), size):
            epoch = mine[lo : lo + size]
            assert len(set(epoch)) == len(epoch)
        assert sorted(mine[:size]) == list(range(size))


@pytest.mark.slow
@pytest.mark.parametrize("workers", [0, 1, 2, 3])
@pytest.mark.parametrize("world", [1, 2])
def test_ranks_and_workers_share_one_stream(corpus, workers, world):
    """The same samples in the same global batches, also when weights change on the way."""
    changes = [(24, [0.05, 0.05, 0.9]), (60, [0.9, 0.05, 0.05])]
    lag, whole = 6, 12
    batches = {}
    for rank in range(world):
        mixture = MixtureDataset(corpus, LENGTH, seed=1, rank=rank, world_size=world)
        loader = mixture.loader(whole // world, num_workers=workers, lag=lag)
        todo = list(changes)
        for number, batch in enumerate(loader):
            batches.setdefault(number, []).extend(names(batch))
            if todo and mixture.number >= todo[0][0]:
                mixture.set_weights(todo.pop(0)[1])
            if number == 19:
                break
    flat = [name for number in range(20) for name in batches[number]]
    # What one process without workers reads, with the same lag.
    mixture = MixtureDataset(corpus, LENGTH, seed=1)
    loader, expected, todo = mixture.loader(whole, lag=lag), [], list(changes)
    for batch in loader:
        expected += names(batch)
        if todo and mixture.number >= todo[0][0]:
            mixture.set_weights(todo.pop(0)[1])
        if len(expected) == 20 * whole:
            break
    assert flat == expected
    shares = np.bincount(np.array(expected[12 * 12 : 13 * 12]) // 1_000_000, minlength=4)[1:]
    assert shares[0] >= 8  # the second change has arrived


def test_weights_arrive_after_the_stated_lag(corpus):
    """Not before, where workers have drawn already; not after."""
    for workers, factor in ((0, None), (2, 2), (2, 3)):
        mixture = MixtureDataset(corpus, LENGTH, weights=[1.0, 0.0, 0.0])
        loader = mixture.loader(4, num_workers=workers, prefetch_factor=factor)
        assert loader.lag == workers * (factor or 0)
        seen = []
        for number, batch in enumerate(loader):
            seen.append({name // 1_000_000 for name in names(batch)})
            if number == 2:
                at = loader.set_weights([0.0, 0.0, 1.0])
                assert at == (3 + loader.lag) * 4
            if number == 2 + loader.lag + 3:
                break
        assert seen == [{1}] * (3 + loader.lag) + [{3}] * 3


def test_weights_set_before_a_loader_runs_hold_at_once(corpus):
    mixture = MixtureDataset(corpus, LENGTH, weights=[1.0, 0.0, 0.0])
    loader = mixture.loader(4, num_workers=2)
    assert mixture.set_weights([0.0, 0.0, 1.0]) == 0
    assert {name // 1_000_000 for name in names(next(iter(loader)))} == {3}


@pytest.mark.slow
def test_workers_are_told_by_spawn_too(corpus):
    """Nothing is inherited: the board travels to a fresh process as shared memory."""
    mixture = MixtureDataset(corpus, LENGTH, weights={"a": 1.0, "b": 0.0, "c": 0.0})
    loader = mixture.loader(4, num_workers=1, multiprocessing_context="spawn")
    for number, batch in enumerate(loader):
        last = names(batch)
        if number == 0:
            mixture.set_weights({"a": 0.0, "b": 1.0, "c": 0.0})
        if number == 4:
            break
    assert {name // 1_000_000 for name in last} == {2}


def test_a_late_change_is_an_error_not_a_silent_split(corpus):
    """Workers that had drawn past it would disagree about all later samples."""
    mixture = MixtureDataset(corpus, LENGTH, batch_size=4)
    loader = iter(mixture.loader(4, num_workers=1))
    for _ in range(4):
        next(loader)
    with pytest.raises(ValueError, match="at=16 is too early: samples before 24 may have been"):
        mixture.set_weights([0.2, 0.2, 0.6], at=16)
    mixture._board.post(Change(8, np.array([0.2, 0.2, 0.6])))  # as if somebody were late
    with pytest.raises(RuntimeError, match="samples were drawn"):
        list(islice(loader, 12))


@pytest.mark.slow
@pytest.mark.parametrize("first", [(1, 0, 12), (2, 2, 6)])
@pytest.mark.parametrize("second", [(1, 0, 12), (1, 2, 8), (2, 1, 6), (3, 0, 4)])
def test_resume_is_exact_for_other_ranks_and_workers(corpus, first, second):
    """7 batches, a state through JSON, and the rest of the stream: nothing lost, nothing twice."""
    changed = [0.1, 0.6, 0.3]

    def read(state, world, workers, batch, count, change_at=None):
        """Samples of the stream in order, and the state after them."""
        parts, states = [], []
        for rank in range(world):
            mixture = MixtureDataset(corpus, LENGTH, seed=5, rank=rank, world_size=world)
            loader = mixture.loader(batch, num_workers=workers, lag=4)
            if state is not None:
                loader.load_state_dict(state)
            seen = []
            for number, loaded in enumerate(loader):
                seen.append(names(loaded))
                if number == change_at:
                    loader.set_weights(changed)
                if (number + 1) * batch * world >= count:
                    break
            parts.append(seen)
            states.append(json.loads(json.dumps(loader.state_dict())))
        assert all(s == states[0] for s in states)
        return [n for turn in zip(*parts, strict=True) for part in turn for n in part], states[0]

    whole, _ = read(None, 1, 0, 12, 240, change_at=5)
    begun, state = read(None, *first, 84, change_at=5)
    assert begun == whole[:84]
    rest, _ = read(state, *second, 156)
    assert rest[: 240 - 84] == whole[84:240]


@pytest.mark.slow
def test_state_is_small_and_does_not_grow(corpus):
    mixture = MixtureDataset(corpus, LENGTH)
    loader = mixture.loader(4)
    sizes = []
    for number, _ in enumerate(loader):
        if number % 10 == 0:
            mixture.set_weights([0.2, 0.3, 0.5])
            sizes.append(len(json.dumps(mixture.state_dict())))
        if number == 400:
            break
    assert max(sizes) < 1000
    assert sizes[-1] <= sizes[1] + 30  # digits of counters


@pytest.mark.slow
def test_new_weights_on_resume_neither_repeat_nor_lose_samples(corpus):
    mixture = MixtureDataset(corpus, LENGTH, exhaustion="drop")
    loader = mixture.loader(3)
    seen = []
    for batch in loader:
        seen += names(batch)
        if len(seen) == 30:
            break
    again = MixtureDataset(corpus, LENGTH, exhaustion="drop")
    other = again.loader(3)
    other.load_state_dict(loader.state_dict())
    again.set_weights([0.8, 0.1, 0.1])
    for batch in other:
        seen += names(batch)
    everything = [(k + 1) * 1_000_000 + i for k, n in enumerate(SIZES.values()) for i in range(n)]
    assert sorted(seen) == everything


@pytest.mark.slow
def test_a_new_iteration_goes_on(corpus):
    expected = stream(corpus, 60)
    loader = MixtureDataset(corpus, LENGTH).loader(6, num_workers=2)
    seen = []
    for _ in range(5):
        for number, batch in enumerate(loader):
            seen += names(batch)
            if number == 1:
                break
    assert seen == expected


def test_batches_fetched_but_not_trained_on_come_again(corpus):
    expected = stream(corpus, 60)
    mixture = MixtureDataset(corpus, LENGTH)
    loader = mixture.loader(6)
    for number, _ in enumerate(loader):
        if number == 2:
            mixture.set_weights(mixture.weights)  # also a change does not disturb it
        if number == 4:
            break
    mixture.count_untrained = lambda: 2
    state = loader.state_dict()
    assert state["number"] == 18
    again = MixtureDataset(corpus, LENGTH).loader(6)
    again.load_state_dict(state)
    assert names(next(iter(again))) == expected[18:24]
    assert sum(row["samples"] for row in mixture.report().values()) == 18
    assert names(next(iter(loader))) == expected[18:24]
    assert mixture.handed == 5 - 2 + 1
    mixture.count_untrained = lambda: 1000
    with pytest.raises(RuntimeError, match="1000 batches are reported as untrained"):
        mixture.state_dict()


@pytest.mark.parametrize("workers", [0, 2])
def test_torchdata_s_loader_resumes_it(corpus, workers):
    """The dataset's own state, kept by each worker: exact with the same number of them."""

    def loader():
        mixture = MixtureDataset(corpus, LENGTH, seed=2, batch_size=4)
        return StatefulDataLoader(mixture, batch_size=4, num_workers=workers)

    whole = [names(batch) for _, batch in zip(range(15), loader(), strict=False)]
    assert joined(whole) == stream(corpus, 60, seed=2, batch=4)
    first = loader()
    for number, batch in enumerate(first):
        assert names(batch) == whole[number]
        if number == 6:
            break
    state = first.state_dict()
    again = loader()
    again.load_state_dict(state)
    rest = [names(batch) for _, batch in zip(range(8), again, strict=False)]
    assert rest == whole[7:]


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("packed", [True, False])
def test_batches_are_those_of_the_samples(tmp_path, workers, packed):
    """However they travel."""
    corpus, _ = documents_corpus(tmp_path)
    mixture = MixtureDataset(corpus, 8, packed=packed)
    expected = torch.utils.data.default_collate(list(islice(mixture, 12)))
    options = [{}, {"collate_fn": torch.utils.data.default_collate}]
    for option in options:
        loader = MixtureDataset(corpus, 8, packed=packed).loader(12, num_workers=workers, **option)
        batch = next(iter(loader))
        assert batch.keys() == expected.keys()
        for key, values in expected.items():
            assert batch[key].dtype == values.dtype
            assert torch.equal(batch[key], values), key
    bare = MixtureDataset(corpus, 8, packed=packed).loader(12, with_domain=False)
    assert "domain" not in next(iter(bare))


def test_accelerate_keeps_its_state(corpus, tmp_path):
    """Through Accelerator.prepare and save_state, with its stateful loader."""
    from accelerate import Accelerator
    from accelerate.utils import DataLoaderConfiguration

    def begin():
        config = DataLoaderConfiguration(use_stateful_dataloader=True, dispatch_batches=False)
        accelerator = Accelerator(cpu=True, dataloader_config=config)
        mixture = MixtureDataset(corpus, LENGTH, seed=2, batch_size=4)
        plain = torch.utils.data.DataLoader(mixture, batch_size=4)
        return accelerator, accelerator.prepare(plain)

    expected = stream(corpus, 40, seed=2, batch=4)
    accelerator, loader = begin()
    for number, batch in enumerate(loader):
        assert names(batch) == expected[4 * number : 4 * number + 4]
        if number == 4:
            break
    accelerator.save_state(str(tmp_path / "state"))
    accelerator, loader = begin()
    accelerator.load_state(str(tmp_path / "state"))
    rest = [names(batch) for _, batch in zip(range(5), loader, strict=False)]
    assert joined(rest) == expected[20:40]


@pytest.mark.parametrize("exhaustion", ["drop", "stop"])
@pytest.mark.parametrize("workers", [0, 2])
def test_ends_are_alike_on_all_ranks(corpus, exhaustion, workers):
    lengths, seen = [], []
    for rank in range(2):
        mixture = MixtureDataset(
            corpus, LENGTH, exhaustion=exhaustion, rank=rank, world_size=2, weights=[0.3, 0.3, 0.4]
        )
        batches = [names(batch) for batch in mixture.loader(2, num_workers=workers)]
        lengths.append(len(batches))
        seen += joined(batches)
    assert lengths[0] == lengths[1]
    assert len(set(seen)) == len(seen)
    if exhaustion == "drop":
        assert 141 - 4 < len(seen) <= 141  # what does not fill a batch of all ranks is left


def test_report_holds_realised_against_target(corpus):
    mixture = MixtureDataset(corpus, LENGTH, weights=[0.5, 0.25, 0.25])
    for number, _ in enumerate(mixture.loader(8)):
        if number == 49:
            mixture.set_weights([0.1, 0.1, 0.8])
        if number == 99:
            break
    report = mixture.report()
    assert report["a"]["samples"] + report["b"]["samples"] + report["c"]["samples"] == 800
    for name, target in {"a": 0.3, "b": 0.175, "c": 0.525}.items():
        row = report[name]
        assert row["target"] == pytest.approx(target, abs=1e-9)
        assert row["share"] == pytest.approx(target, abs=0.02)
        assert row["tokens"] == row["samples"] * LENGTH
        assert row["epochs"] == row["samples"] / SIZES[name]
    assert report["c"]["weight"] == 0.8


def documents_corpus(tmp_path):
    rng = np.random.default_rng(0)
    lengths = {"short": rng.integers(1, 6, 300), "long": rng.integers(5, 40, 200)}
    documents = {name: [np.full(n, 7) for n in ns] for name, ns in lengths.items()}
    return write_corpus(tmp_path / "documents", documents), lengths


def test_documents_by_themselves(tmp_path):
    corpus, lengths = documents_corpus(tmp_path)
    samples = Samples(corpus.tokens("long"), 16, packed=False)
    assert len(samples) == 200
    for i in range(50):
        n = min(int(lengths["long"][i]) + 1, 16)
        sample = samples[i]
        assert sample["attention_mask"].sum() == n
        assert (sample["labels"][n:] == -100).all()
        assert (sample["labels"][:n] == sample["input_ids"][:n]).all()
        assert (sample["input_ids"][n:] == END).all()
    assert samples.mean_tokens() == np.minimum(lengths["long"] + 1, 16).mean()


@pytest.mark.parametrize("proportions", ["tokens", "samples"])
def test_proportions_of_tokens_or_samples(tmp_path, proportions):
    corpus, _ = documents_corpus(tmp_path)
    mixture = MixtureDataset(corpus, 16, packed=False, weights=[0.5, 0.5], proportions=proportions)
    tokens, samples = np.zeros(2), np.zeros(2)
    for number, batch in enumerate(mixture.loader(16)):
        for domain, mask in zip(batch["domain"], batch["attention_mask"], strict=True):
            tokens[domain] += mask.sum()
            samples[domain] += 1
        if number == 255:
            break
    counted = tokens if proportions == "tokens" else samples
    np.testing.assert_allclose(counted / counted.sum(), 0.5, atol=0.02)
    other = samples if proportions == "tokens" else tokens
    assert abs(other[0] / other.sum() - 0.5) > 0.1
    share = mixture.report()["short"]["share"]
    assert share == pytest.approx(counted[0] / counted.sum(), abs=0.01)


def test_a_reweighter_s_weights_can_be_used_as_they_are(corpus):
    mixture = MixtureDataset(corpus, LENGTH)
    reweighter = Reweighter(mixture.domains, start=mixture.weights, step=20.0, smoothing=0.0)
    mixture.set_weights(reweighter.update([0.0, 5.0, 0.0]))
    assert mixture.weights[1] > 0.99


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"weights": [0.5, 0.5]}, "weights must hold"),
        ({"weights": [0.5, 0.6, 0.1]}, "sum to 1"),
        ({"weights": [1.5, -0.5, 0.0]}, "weights must be >= 0 and finite; domain 'b' has -0.5"),
        ({"weights": {"a": 0.5, "b": 0.5}}, r"no value for domain\(s\) \['c'\]"),
        ({"weights": {"a": 0.5, "b": 0.5, "c": 0.0, "d": 0.0}}, "not known: \\['d'\\]"),
        ({"exhaustion": "loop"}, "exhaustion must be one of"),
        ({"proportions": "bytes"}, "proportions must be"),
        ({"batch_size": 0}, "batch_size must be"),
        ({"length": 0}, "length must be"),
        ({"length": 100}, "'b' has 44 tokens in the split 'train', fewer than"),
        ({"rank": 1}, "both rank and world_size"),
        ({"rank": 2, "world_size": 2}, "rank must be between"),
    ],
)
def test_options_are_checked(corpus, options, message):
    with pytest.raises(ValueError, match=message):
        MixtureDataset(corpus, **{"length": LENGTH, **options})


def test_loader_options_are_checked(corpus):
    mixture = MixtureDataset(corpus, LENGTH)
    for options, message in [
        ({"shuffle": True}, "shuffle=True cannot be set"),
        ({"persistent_workers": True}, "persistent_workers"),
        ({"num_workers": 2, "lag": 3}, "use at least 4"),
        ({"lag": 2.5}, "lag must be a whole number"),
        ({"num_workers": 1, "prefetch_factor": 0}, "prefetch_factor must be a whole number >= 1"),
        ({"in_order": False}, "in_order=False cannot be set"),
    ]:
        with pytest.raises(ValueError, match=message):
            mixture.loader(4, **options)


def test_states_of_other_mixtures_are_refused(corpus, tmp_path):
    state = MixtureDataset(corpus, LENGTH).state_dict()
    other = numbered_corpus(tmp_path / "other", {"a": 40, "b": 12, "c": 90}, LENGTH)
    for mixture, message in [
        (MixtureDataset(corpus, LENGTH, seed=1), "seed=0"),
        (MixtureDataset(corpus, 2), r"sizes=\[40, 11, 90\]"),
        (MixtureDataset(other, LENGTH), "sizes="),
    ]:
        with pytest.raises(ValueError, match=message):
            mixture.load_state_dict(state)
    with pytest.raises(ValueError, match="version 7"):
        MixtureDataset(corpus, LENGTH).load_state_dict({**state, "version": 7})


def test_an_old_iteration_is_no_longer_used(corpus):
    mixture = MixtureDataset(corpus, LENGTH)
    loader = mixture.loader(4)
    old = iter(loader)
    next(old)
    new = iter(loader)
    next(new)
    with pytest.raises(RuntimeError, match="a later iteration"):
        next(old)
    mixture.load_state_dict(mixture.state_dict())
    with pytest.raises(RuntimeError, match="a state was loaded"):
        next(new)


def test_a_look_at_one_sample_disturbs_nothing(corpus):
    mixture = MixtureDataset(corpus, LENGTH)
    expected = stream(corpus, 9, batch=8)
    assert int(next(iter(mixture))["input_ids"][0]) == expected[0]
    assert names(next(iter(mixture.loader(8)))) == expected[1:9]


def test_samples_of_one_s_own_travel_as_they_are(corpus):
    class Masked(MixtureDataset):
        def read(self, domain, ordinal):
            sample = super().read(domain, ordinal)
            sample["labels"][:2] = -100
            return sample | {"importance": torch.tensor(0.5)}

    for workers in (0, 1):
        batch = next(iter(Masked(corpus, LENGTH).loader(3, num_workers=workers)))
        assert (batch["labels"][:, :2] == -100).all()
        assert batch["importance"].tolist() == [0.5] * 3


def test_some_domains_of_a_corpus(corpus):
    mixture = MixtureDataset(corpus, LENGTH, domains=["c", "a"])
    assert mixture.domains == ["c", "a"]
    np.testing.assert_allclose(mixture.weights, [90 / 130, 40 / 130])
    with pytest.raises(KeyError, match="'d' is not in the corpus"):
        MixtureDataset(corpus, LENGTH, domains=["d"])


def test_an_old_loader_is_no_longer_used(corpus):
    mixture = MixtureDataset(corpus, LENGTH)
    old, new = mixture.loader(8), mixture.loader(2)
    next(iter(new))
    assert mixture.number == 2
    with pytest.raises(RuntimeError, match="newer loader"):
        next(iter(old))


def test_samples_taken_around_the_loader_are_refused(corpus):
    """Accelerate makes a loader of its own from what it is given; the mixture would not know."""
    from accelerate import Accelerator

    loader = MixtureDataset(corpus, LENGTH).loader(4)
    prepared = Accelerator(cpu=True).prepare(loader)
    with pytest.raises(RuntimeError, match=r"Accelerator\.prepare"):
        next(iter(prepared))


def test_a_deep_copy_is_a_mixture_of_its_own(corpus):
    first = MixtureDataset(corpus, LENGTH, weights=[1.0, 0.0, 0.0])
    second = copy.deepcopy(first)
    for number, batch in enumerate(second.loader(4, num_workers=1, multiprocessing_context="fork")):
        last = names(batch)
        if number == 0:
            second.set_weights([0.0, 0.0, 1.0])
        if number == 4:
            break
    assert {name // 1_000_000 for name in last} == {3}
    assert first.weights.tolist() == [1.0, 0.0, 0.0]
    plain = copy.deepcopy(first)
    plain.set_weights([0.0, 1.0, 0.0])
    loader = torch.utils.data.DataLoader(plain, num_workers=1, multiprocessing_context="fork")
    assert names(next(iter(loader)))[0] // 1_000_000 == 2


def test_iterating_takes_nothing_from_the_model_s_random_numbers(corpus):
    """A framework restores torch's generator, then iterates; dropout must go on."""
    loader = MixtureDataset(corpus, LENGTH).loader(4)
    before = torch.get_rng_state()
    next(iter(loader))
    assert torch.equal(torch.get_rng_state(), before)


def test_a_rank_may_be_known_late(corpus, monkeypatch):
    """Lightning sets up torch.distributed after the loader was made."""
    from counterpoise.lm.mixture import dataset as module

    expected = stream(corpus, 8, batch=8)
    mixture = MixtureDataset(corpus, LENGTH)
    loader = mixture.loader(4)
    monkeypatch.setattr(module, "rank_of", lambda: 1)
    monkeypatch.setattr(module, "world_size", lambda: 2)
    assert names(next(iter(loader))) == expected[4:]
    assert mixture.number == 8


def test_policies_may_change_on_resume(corpus):
    """What was read more than once counts as read."""
    mixture = MixtureDataset(corpus, LENGTH, weights=[0.1, 0.8, 0.1])
    for number, _ in enumerate(mixture.loader(4)):
        if number == 19:
            break
    left = MixtureDataset(corpus, LENGTH, exhaustion="drop")
    left.load_state_dict(mixture.state_dict())
    seen = [name // 1_000_000 for batch in left.loader(1) for name in names(batch)]
    assert set(seen) == {1, 3}


def test_limited_samples_are_evenly_spread(tmp_path):
    corpus = numbered_corpus(tmp_path / "corpus", {"a": 100}, 4)
    samples = Samples(corpus.tokens("a"), 4, limit=10)
    numbers = [int(samples[i]["input_ids"][0]) % 1_000_000 for i in range(10)]
    assert numbers == list(range(0, 100, 10))
    assert len(Samples(corpus.tokens("a"), 4, limit=1000)) == 100
