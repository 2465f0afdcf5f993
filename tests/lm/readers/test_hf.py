"""Hugging Face datasets by published weights, in this process and in a DataLoader's workers."""

from __future__ import annotations

import copy
import itertools
import json

import datasets
import numpy as np
import pytest
from publishing import publisher_of, read_until
from torch.utils.data import DataLoader
from torchdata.stateful_dataloader import StatefulDataLoader

from counterpoise.lm import mixed
from counterpoise.lm.mixture.draws import Change, Draws
from counterpoise.lm.readers.hf import interleave
from counterpoise.lm.readers.plain import ENDLESS

# torchdata 0.11.0 calls what torch 2.13 deprecates; more workers than cores is a test's own wish.
pytestmark = [
    pytest.mark.filterwarnings("ignore:'set_vital' is deprecated"),
    pytest.mark.filterwarnings("ignore:This DataLoader will create"),
]

DOMAINS = ("web", "code", "books")
SIZES = {"web": 120, "code": 60, "books": 90}
WEIGHTS = ([0.5, 0.3, 0.2], [0.1, 0.8, 0.1], [0.2, 0.2, 0.6])
EVERY = 10


@pytest.fixture
def publish(tmp_path):
    return publisher_of(tmp_path, DOMAINS, WEIGHTS)


def rows(name, shards=1):
    """Samples that name themselves, as a streamed dataset."""
    table = datasets.Dataset.from_dict({"id": [f"{name}-{i}" for i in range(SIZES[name])]})
    return table.to_iterable_dataset(num_shards=shards)


def interleaved(path, shards=1, **options):
    sources = {name: rows(name, shards) for name in DOMAINS}
    return interleave(sources, path, **{"seed": 1, "every": EVERY, **options})


def ids(samples):
    return [sample["id"] for sample in samples]


def numbers(found, name):
    return [int(text.split("-")[1]) for text in found if text.startswith(name)]


def test_new_weights_neither_repeat_nor_lose_a_sample(publish):
    """And each source's samples are those that `interleave_datasets` gives, in that order."""
    found = []
    for number, sample in enumerate(interleaved(publish(0))):
        found.append(sample["id"])
        if number in (24, 61):  # seen before draws 30 and 70
            publish(1 if number == 24 else 2)
        if number == 99:
            break
    changes = [Change(at, np.array(w)) for at, w in zip((0, 30, 70), WEIGHTS, strict=True)]
    draws = Draws(DOMAINS, np.full(3, ENDLESS), 1, changes).take(100)
    assert [text.split("-")[0] for text in found] == [DOMAINS[k] for k in draws.domains]
    theirs = datasets.interleave_datasets([rows(n) for n in DOMAINS], probabilities=WEIGHTS[0])
    theirs = ids(theirs)
    for name in DOMAINS:
        mine = numbers(found, name)
        assert mine == list(range(len(mine)))
        both = min(len(mine), len(numbers(theirs, name)))
        assert mine[:both] == numbers(theirs, name)[:both]


@pytest.mark.parametrize("cut", [1, 10, 37, 80])
def test_a_resumed_iteration_is_the_one_that_went_on(cut, publish):
    whole = ids(itertools.islice(interleaved(publish(0), exhaustion="repeat"), 300))
    first = interleaved(publish(0), exhaustion="repeat")
    found = ids(itertools.islice(first, cut))
    state = json.loads(json.dumps(first.state_dict()))
    again = interleaved(publish(0), exhaustion="repeat")
    again.load_state_dict(state)
    assert again.state_dict() == state
    assert found + ids(itertools.islice(again, 300 - cut)) == whole
    assert ids(itertools.islice(again, 50)) == whole[:50], "a new iteration starts over"


@pytest.mark.parametrize("cut", [1, 7, 25, 60])
def test_a_streamed_dataset_starts_over_in_a_plain_stream(cut, publish):
    """Every epoch after a resume is a whole one."""

    def stream():
        sources = {name: rows(name).take(8) for name in DOMAINS}
        return mixed(sources, publish(0), exhaustion="repeat")

    whole = list(itertools.islice(stream(), 120))
    first = stream()
    found = list(itertools.islice(first, cut))
    state = json.loads(json.dumps(first.state_dict()))
    again = stream()
    again.load_state_dict(state)
    assert found + list(itertools.islice(again, 120 - cut)) == whole


def test_an_error_in_a_dataset_loses_nothing(publish):
    """An iteration that failed is not at its end, and is resumed."""
    failures, lost = iter([OSError("network")]), iter([TimeoutError(), EOFError()])

    def mapped(sample):
        """Fail twice for one sample; the dataset's own state is past it by then."""
        if sample["id"] == "books-30" and (error := next(lost, None)) is not None:
            raise error
        return sample

    def samples(name):
        for i in range(SIZES[name]):
            if name == "code" and i == 6 and (error := next(failures, None)) is not None:
                raise error
            yield {"id": f"{name}-{i}"}

    def sources():
        made = datasets.IterableDataset.from_generator
        streams = {name: made(samples, gen_kwargs={"name": name}) for name in DOMAINS}
        return {**streams, "books": streams["books"].map(mapped)}

    drawn = iter(interleave(sources(), publish(0), exhaustion="drop"))
    found = read_until(drawn, OSError)
    assert 6 <= len(found) < 60
    found += read_until(drawn, TimeoutError)
    assert read_until(drawn, EOFError) == []
    found += list(drawn)
    assert ids(found) == ids(interleave(sources(), publish(0), exhaustion="drop"))
    assert len(found) == sum(SIZES.values())


def test_weights_and_sources_survive_a_resume_together(publish):
    """The state is of update 1; the file has moved on to update 2 by then."""
    first = interleaved(publish(1))
    found = ids(itertools.islice(first, 25))
    state = copy.deepcopy(first.state_dict())
    publish(2)
    again = interleaved(publish(2))
    again.load_state_dict(state)
    found += ids(itertools.islice(again, 45))
    changes = [Change(0, np.array(WEIGHTS[1])), Change(30, np.array(WEIGHTS[2]))]
    draws = Draws(DOMAINS, np.full(3, ENDLESS), 1, changes).take(70)
    assert [text.split("-")[0] for text in found] == [DOMAINS[k] for k in draws.domains]
    for name in DOMAINS:
        assert numbers(found, name) == list(range(len(numbers(found, name))))


@pytest.mark.slow
def test_workers_share_every_source(publish):
    """Each sample comes once, whatever worker reads it, and workers see new weights."""
    loader = DataLoader(
        interleaved(publish(0), shards=4, exhaustion="drop"), batch_size=5, num_workers=2
    )
    found = []
    for number, batch in enumerate(loader):
        found += batch["id"]
        if number == 3:
            publish(1)
    assert sorted(found) == sorted(f"{n}-{i}" for n in DOMAINS for i in range(SIZES[n]))
    with pytest.raises(ValueError, match="'web' has 1 shards for 2 workers"):
        next(iter(DataLoader(interleaved(publish(1)), num_workers=2)))


@pytest.mark.slow
@pytest.mark.parametrize("workers", [0, 2])
def test_a_stateful_loader_resumes_it(workers, publish):
    def loader():
        samples = interleaved(publish(0), shards=4, exhaustion="repeat")
        return StatefulDataLoader(samples, batch_size=4, num_workers=workers)

    whole = [batch["id"] for batch in itertools.islice(loader(), 20)]
    first = loader()
    batches = iter(first)
    found = [next(batches)["id"] for _ in range(7)]
    state = first.state_dict()
    again = loader()
    again.load_state_dict(state)
    assert found + [batch["id"] for batch in itertools.islice(again, 13)] == whole


@pytest.mark.slow
@pytest.mark.parametrize("workers", [0, 1])
def test_a_loader_resumes_although_the_weights_move_on(workers, publish):
    """Its state is of the last batch, so no draw is made again by other weights."""

    def loader():
        samples = interleaved(path)
        return StatefulDataLoader(samples, batch_size=4, num_workers=workers)

    path = publish(0)
    first, found = loader(), []
    batches = iter(first)
    for number in range(9):
        found += next(batches)["id"]
        if number == 3:
            publish(1)
    state = first.state_dict()
    del batches, first
    publish(2)
    again = loader()
    again.load_state_dict(state)
    for batch in itertools.islice(again, 12):
        found += batch["id"]
    for name in DOMAINS:
        assert numbers(found, name) == list(range(len(numbers(found, name))))
    assert numbers(found, "books")


def test_map_style_datasets_and_a_column_of_domains(publish):
    tables = {name: datasets.Dataset.from_dict({"n": list(range(SIZES[name]))}) for name in DOMAINS}
    found = list(interleave(tables, publish(0), exhaustion="drop", domain_column="domain"))
    assert sorted((s["domain"], s["n"]) for s in found) == sorted(
        (name, i) for name, size in SIZES.items() for i in range(size)
    )


def test_what_is_no_dataset_is_refused(publish):
    split = datasets.DatasetDict({"train": datasets.Dataset.from_dict({"n": [1]})})
    sources = {name: rows(name) for name in DOMAINS}
    with pytest.raises(TypeError, match=r"domain 'web' has DatasetDict\. Choose a split"):
        interleave({**sources, "web": split}, publish(0))
    with pytest.raises(ValueError, match=r"have \['books'\]"):
        interleave({"web": rows("web"), "code": rows("code")}, publish(0))
