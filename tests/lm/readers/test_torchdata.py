"""torchdata nodes by published weights, under torchdata's own Loader."""

from __future__ import annotations

import copy
import itertools

import numpy as np
import pytest
from publishing import publisher_of
from torchdata.nodes import (
    Batcher,
    IterableWrapper,
    Loader,
    MultiNodeWeightedSampler,
    ParallelMapper,
    Prefetcher,
)

from counterpoise.lm.mixture.draws import Change, Draws
from counterpoise.lm.readers.plain import ENDLESS
from counterpoise.lm.readers.torchdata import PublishedSampler

DOMAINS = ("web", "code")
SIZES = {"web": 40, "code": 25}
WEIGHTS = ([0.7, 0.3], [0.2, 0.8])
EVERY = 10


@pytest.fixture
def publish(tmp_path):
    return publisher_of(tmp_path, DOMAINS, WEIGHTS)


def doubled(sample):
    return sample[0], 2 * sample[1]


def nodes(mapped=False):
    found = {name: IterableWrapper([(name, i) for i in range(SIZES[name])]) for name in DOMAINS}
    if mapped:  # reads ahead in threads of its own
        found["web"] = ParallelMapper(found["web"], doubled, num_workers=2, method="thread")
    return found


def sampler(path, mapped=False, **options):
    return PublishedSampler(nodes(mapped), path, **{"seed": 2, "every": EVERY, **options})


def test_it_stands_where_torchdatas_sampler_would(publish):
    """The same samples of every source in the same order, by weights that change."""
    mine = Loader(sampler(publish(0), exhaustion="stop"))
    found = []
    for number, sample in enumerate(mine):
        found.append(sample)
        if number == 12:
            publish(1)
    changes = [Change(0, np.array(WEIGHTS[0])), Change(20, np.array(WEIGHTS[1]))]
    draws = Draws(DOMAINS, np.full(2, ENDLESS), 2, changes).take(len(found) + 1)
    assert [name for name, _ in found] == [DOMAINS[k] for k in draws.domains[:-1]]
    theirs = MultiNodeWeightedSampler(nodes(), dict(zip(DOMAINS, WEIGHTS[0], strict=True)))
    read = list(itertools.islice(Loader(theirs), 40))
    for name in DOMAINS:
        samples, others = ([s for s in some if s[0] == name] for some in (found, read))
        assert samples == [(name, i) for i in range(len(samples))]
        both = min(len(samples), len(others))
        assert both > 5
        assert samples[:both] == others[:both]


@pytest.mark.parametrize("mapped", [False, True])
@pytest.mark.parametrize("cut", [1, 10, 33, 70])
def test_a_loader_resumes_it(mapped, cut, publish):
    whole = list(itertools.islice(Loader(sampler(publish(0), mapped)), 120))
    first = Loader(sampler(publish(0), mapped))
    found = list(itertools.islice(first, cut))
    state = copy.deepcopy(first.state_dict())
    again = Loader(sampler(publish(0), mapped))
    again.load_state_dict(state)
    assert found + list(itertools.islice(again, 120 - cut)) == whole


@pytest.mark.parametrize("cut", [1, 4, 13])
def test_nodes_that_read_ahead_resume_it(cut, publish):
    """Also if the weights have moved on before they begin again."""
    path, found = publish(0), []
    first = Loader(Prefetcher(Batcher(sampler(path), 2), 3))
    for number, batch in enumerate(first, 1):
        found += batch
        if number == 3:
            publish(1)
        if number == cut:
            break
    state = copy.deepcopy(first.state_dict())
    publish(1)
    again = Loader(Prefetcher(Batcher(sampler(path), 2), 3))
    again.load_state_dict(state)
    for batch in itertools.islice(again, 12):
        found += batch
    for name in DOMAINS:
        samples = [sample for sample in found if sample[0] == name]
        assert samples == [(name, i % SIZES[name]) for i in range(len(samples))]


def test_a_reset_starts_again(publish):
    node = sampler(publish(0))
    first = [next(node) for _ in range(15)]
    node.reset()
    assert [next(node) for _ in range(15)] == first


def test_sources_end_as_it_is_told(publish):
    found = list(sampler(publish(0), exhaustion="drop"))
    assert sorted(found) == sorted((n, i) for n in DOMAINS for i in range(SIZES[n]))
    again = sampler(publish(0))  # cycles by default
    assert len(list(itertools.islice(again, 200))) == 200


def test_what_is_no_node_is_refused(publish):
    with pytest.raises(TypeError, match=r"domain 'web' has list\. Wrap it in"):
        PublishedSampler({"web": [1], "code": [2]}, publish(0))
