"""Any iterables by published weights: who draws what, when new weights hold, and resumes."""

from __future__ import annotations

import itertools
import json

import numpy as np
import pytest
from publishing import publisher_of, read_until

from counterpoise.lm import mixed
from counterpoise.lm.mixture.draws import Change, Draws
from counterpoise.lm.readers.feed import Feed
from counterpoise.lm.readers.plain import ENDLESS, Version

EVERY = 20
DOMAINS = ("web", "code", "books")
# Weights by update.
WEIGHTS = ([0.5, 0.3, 0.2], [0.1, 0.8, 0.1], [0.3, 0.0, 0.7])


class Numbers:
    """A source that knows its place, and may end."""

    def __init__(self, end=None):
        self.end, self.at, self.start = end, 0, 0

    def __iter__(self):
        self.at, self.start = self.start, 0
        while self.end is None or self.at < self.end:
            self.at += 1
            yield self.at - 1

    def state_dict(self):
        return {"at": self.at}

    def load_state_dict(self, state):
        self.start = state["at"]


class Plain:
    """The same source, without a state."""

    def __init__(self, end=None):
        self.end = end

    def __iter__(self):
        return iter(itertools.count() if self.end is None else range(self.end))


class Failing:
    """A source that fails once, before a sample; its iterator is dead then."""

    def __init__(self, source, before, error):
        self.source, self.before, self.error = source, before, error

    def __iter__(self):
        for i, sample in enumerate(self.source):
            if i == self.before and self.error is not None:
                error, self.error = self.error, None
                raise error
            yield sample


class FailingNumbers(Failing):
    """The same, with the state of its source."""

    def state_dict(self):
        return self.source.state_dict()

    def load_state_dict(self, state):
        self.source.load_state_dict(state)


@pytest.fixture
def publish(tmp_path):
    return publisher_of(tmp_path, DOMAINS, WEIGHTS)


def stream(path, kind=Plain, ends=(None, None, None), **options):
    sources = dict(zip(DOMAINS, map(kind, ends), strict=True))
    return mixed(sources, path, **{"seed": 3, "every": EVERY, **options})


def expected(changes, count, seed=3):
    """The domains of all draws, from the weights and the draws from which they hold."""
    draws = Draws(
        DOMAINS, np.full(3, ENDLESS), seed, [Change(at, np.array(w)) for at, w in changes]
    )
    return [DOMAINS[k] for k in draws.take(count).domains]


def read_on(drawn, publish, upto, updates):
    """Draw; publish updates just before the draws that they are given for."""
    out = []
    while drawn.number < upto:
        if drawn.number in updates:
            publish(updates[drawn.number])
        out.append(next(drawn))
    return out


def test_every_draw_is_known_from_the_weights(publish):
    """Weights published before draw 33 hold from draw 40 on, the next look; 60 is one at once."""
    drawn = stream(publish(0))
    found = read_on(drawn, publish, 200, {33: 1, 60: 2})
    domains = expected([(0, WEIGHTS[0]), (40, WEIGHTS[1]), (60, WEIGHTS[2])], 200)
    assert [domain for domain, _ in found] == domains
    for name in DOMAINS:  # each source in its own order, without gaps
        samples = [sample for domain, sample in found if domain == name]
        assert samples == list(range(len(samples)))
    assert drawn.versions == [Version(0, 0, 0), Version(40, 1, 10), Version(60, 2, 20)]
    assert [drawn.version(n).update for n in (0, 39, 40, 59, 60, 199)] == [0, 0, 1, 1, 2, 2]
    assert drawn.version().update == 2
    assert drawn.weights == dict(zip(DOMAINS, WEIGHTS[2], strict=True))
    assert "books=0.7; 200 draws" in repr(drawn)


def test_shares_follow_the_weights(publish):
    drawn = stream(publish(0))
    found = [next(drawn)[0] for _ in range(2048)]
    shares = [found.count(name) / 2048 for name in DOMAINS]
    np.testing.assert_allclose(shares, WEIGHTS[0], atol=2 / 1024)


def test_other_seeds_draw_otherwise(publish):
    a, b = (stream(publish(0), seed=seed) for seed in (0, 1))
    assert [next(a) for _ in range(30)] != [next(b) for _ in range(30)]


@pytest.mark.parametrize("kind", [Plain, Numbers])
@pytest.mark.parametrize("cut", [0, 1, 33, 40, 45, 60, 99])
def test_a_resumed_stream_is_the_one_that_went_on(kind, cut, publish):
    updates = {33: 1, 60: 2}
    whole = read_on(stream(publish(0), kind), publish, 150, updates)
    first = stream(publish(0), kind)
    found = read_on(first, publish, cut, updates)
    state = json.loads(json.dumps(first.state_dict()))
    for drawn in (stream(publish(0), kind), first):  # a new stream, and the old one set back
        again = max((u for at, u in updates.items() if at < cut), default=0)
        publish(again)  # as the trainer does when it resumes
        drawn.load_state_dict(state)
        assert drawn.state_dict() == state
        assert found + read_on(drawn, publish, 150, updates) == whole
        assert [v.draw for v in drawn.versions] == [0, 40, 60]


def test_a_state_of_another_stream_is_refused(publish):
    state = stream(publish(0)).state_dict()
    with pytest.raises(ValueError, match="seed=3, but this one has 4"):
        stream(publish(0), seed=4).load_state_dict(state)
    with pytest.raises(ValueError, match="exhaustion='stop', but this one has 'drop'"):
        stream(publish(0), exhaustion="drop").load_state_dict(state)
    with pytest.raises(ValueError, match="version 9"):
        stream(publish(0)).load_state_dict({**state, "version": 9})
    state["sources"][0] = {"taken": 50, "epoch": 0, "state": None}
    short = stream(publish(0), ends=(10, None, None))
    short.load_state_dict(state)
    with pytest.raises(ValueError, match="50 samples into domain 'web', but its source has fewer"):
        list(itertools.islice(short, 20))


def test_a_reader_that_saw_later_weights_refuses_earlier_ones(publish):
    drawn = stream(publish(1))
    publish(0)
    with pytest.raises(ValueError, match=r"went back from update 1 to 0: .* Start this reader"):
        next(drawn)


def test_the_stream_ends_with_a_source(publish):
    drawn = stream(publish(0), ends=(None, 5, None))
    found = list(drawn)
    assert [s for name, s in found if name == "code"] == list(range(5))
    domains = expected([(0, WEIGHTS[0])], len(found) + 1)
    assert [name for name, _ in found] == domains[:-1]
    assert domains[-1] == "code"
    assert list(drawn) == []


@pytest.mark.parametrize("kind", [Plain, Numbers])
def test_sources_start_again(kind, publish):
    drawn = stream(publish(0), kind, (7, 100, 9), exhaustion="repeat")
    found = [next(drawn) for _ in range(90)]
    assert [name for name, _ in found] == expected([(0, WEIGHTS[0])], 90)
    web = [s for name, s in found if name == "web"]
    assert web == [i % 7 for i in range(len(web))]
    state = drawn.state_dict()
    assert state["sources"][0]["epoch"] == (len(web) - 1) // 7
    again = stream(publish(0), kind, (7, 100, 9), exhaustion="repeat")
    again.load_state_dict(state)
    assert [next(again) for _ in range(60)] == [next(drawn) for _ in range(60)]


@pytest.mark.parametrize("kind", [Plain, Numbers])
@pytest.mark.parametrize("cut", [10, 47, 70])
def test_the_others_go_on_without_a_source(kind, cut, publish):
    """All samples come, each once; a resume knows who has ended."""
    ends = (8, 50, 31)
    whole = list(stream(publish(0), kind, ends, exhaustion="drop"))
    every = [(name, i) for name, end in zip(DOMAINS, ends, strict=True) for i in range(end)]
    assert sorted(whole) == sorted(every)
    first = stream(publish(0), kind, ends, exhaustion="drop")
    found = list(itertools.islice(first, cut))
    again = stream(publish(0), kind, ends, exhaustion="drop")
    again.load_state_dict(json.loads(json.dumps(first.state_dict())))
    assert found + list(again) == whole


def test_an_iterator_is_read_once(publish):
    sources = {"web": iter(range(3)), "code": itertools.count(), "books": itertools.count()}
    drawn = mixed(sources, publish(0), exhaustion="repeat")
    with pytest.raises(ValueError, match="'web' is an iterator, which cannot start again"):
        [next(drawn) for _ in range(100)]


@pytest.mark.parametrize("exhaustion", ["stop", "drop", "repeat"])
@pytest.mark.parametrize("kind", [Failing, FailingNumbers])
@pytest.mark.parametrize("error", [OSError("network"), KeyboardInterrupt()])
@pytest.mark.parametrize(
    ("before", "ends", "count"),
    [(0, (12, 50, 31), 80), (5, (12, 50, 31), 80), (230, (260, 900, 900), 700)],
)
def test_an_error_in_a_source_loses_nothing(exhaustion, kind, error, before, ends, count, publish):
    """The next draw makes up for it, and so does a stream that resumes from there."""
    whole = list(itertools.islice(stream(publish(0), Numbers, ends, exhaustion=exhaustion), count))

    def failing():
        sources = dict(zip(DOMAINS, map(Numbers, ends), strict=True))
        sources["web"] = kind(sources["web"], before, error)
        return mixed(sources, publish(0), seed=3, every=EVERY, exhaustion=exhaustion)

    first = failing()
    found = read_until(first, type(error))
    assert found == whole[: len(found)]
    state = json.loads(json.dumps(first.state_dict()))
    again = stream(publish(0), Numbers, ends, exhaustion=exhaustion)
    again.load_state_dict(state)
    for drawn in (first, again):
        assert found + list(itertools.islice(drawn, count - len(found))) == whole


def test_an_error_while_a_source_is_read_again_loses_nothing(publish):
    whole = list(itertools.islice(stream(publish(0)), 60))
    first = stream(publish(0))
    found = list(itertools.islice(first, 30))
    sources = {name: Plain() for name in DOMAINS}
    sources["web"] = Failing(Plain(), 3, OSError("network"))
    again = mixed(sources, publish(0), seed=3, every=EVERY)
    again.load_state_dict(first.state_dict())
    found += read_until(again, OSError)
    assert found + list(itertools.islice(again, 60 - len(found))) == whole


@pytest.mark.parametrize("exhaustion", ["stop", "drop", "repeat"])
def test_a_generator_that_failed_has_not_ended(exhaustion, publish):
    sources = {"web": iter(Failing(range(50), 5, OSError("network")))}
    sources |= {"code": range(50), "books": range(50)}
    drawn = mixed(sources, publish(0), exhaustion=exhaustion)
    with pytest.raises(OSError, match="network"):
        list(drawn)
    for _ in range(2):
        with pytest.raises(ValueError, match="'web' is an iterator, which cannot start again"):
            list(drawn)


@pytest.mark.parametrize(
    ("sources", "options", "kind", "message"),
    [
        ({"web": [], "code": [1]}, {}, ValueError, r"have \['books'\]"),
        (dict.fromkeys(DOMAINS, 3), {}, TypeError, "domain 'web' has int"),
        (
            dict.fromkeys(DOMAINS, ()),
            {"every": 0},
            ValueError,
            "every must be a whole number >= 1",
        ),
        (dict.fromkeys(DOMAINS, ()), {"exhaustion": "end"}, ValueError, "exhaustion must be one"),
    ],
)
def test_what_cannot_be_mixed_is_refused(sources, options, kind, message, publish):
    with pytest.raises(kind, match=message):
        mixed(sources, publish(0), **options)


def test_an_empty_source_is_named(publish):
    drawn = stream(publish(0), ends=(0, None, None), exhaustion="repeat")
    with pytest.raises(ValueError, match="source of domain 'web' is empty; leave the domain out"):
        list(itertools.islice(drawn, 100))


class Live:
    """A source that hands out its live state, and fails once."""

    def __init__(self, size, fails):
        self.size, self.fails, self.state = size, fails, {"at": 0}

    def __iter__(self):
        while self.state["at"] < self.size:
            self.state["at"] += 1
            if self.state["at"] == self.fails:
                self.fails = None
                raise OSError("once")
            yield self.state["at"] - 1
        self.state["at"] = 0

    def state_dict(self):
        return self.state

    def load_state_dict(self, state):
        self.state = dict(state)


def test_a_source_that_hands_out_its_live_state_loses_nothing():
    feed = Feed("web", Live(200, fails=151))
    found = [feed.draw(False) for _ in range(150)]
    with pytest.raises(OSError, match="once"):
        feed.draw(False)
    found += [feed.draw(False) for _ in range(50)]
    assert found == list(range(200))
