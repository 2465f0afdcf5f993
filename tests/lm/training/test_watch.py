"""The watch over the ranks: what it takes for a lost rank, and what it does not."""

import json
import threading
import time

import pytest

from counterpoise.lm.training import watch as watching
from counterpoise.lm.training.watch import GRACE, KEPT, Watch


class Store:
    """The store of some ranks in this process; every connection to it can break."""

    def __init__(self):
        self.values, self.up, self.refusing, self.connected = {}, True, False, 0

    def connect(self):
        if not self.up:
            raise ConnectionRefusedError if self.refusing else TimeoutError
        self.connected += 1
        return Connection(self)


class Connection:
    def __init__(self, store):
        self.store, self.broken = store, False

    def _values(self):
        if self.broken or not self.store.up:
            self.broken = True
            raise RuntimeError("Connection reset by peer\nframe #0: c10::Error")
        return self.store.values

    def add(self, key, by):
        values = self._values()
        values[key] = values.get(key, 0) + by
        return values[key]

    def check(self, keys):
        return all(key in self._values() for key in keys)

    def get(self, key):
        return self._values()[key]

    def set(self, key, value):
        self._values()[key] = value


@pytest.fixture
def store():
    return Store()


@pytest.fixture
def clock(monkeypatch):
    """The watch's clock, which stands still by itself."""
    now = [1000.0]
    monkeypatch.setattr(watching.time, "monotonic", lambda: now[0])
    return now


def beat(watch):
    """One round of the thread that beats."""
    try:
        watch._exchange()
    except Exception:
        watch._reconnect()


def test_a_dropped_connection_is_replaced(store, clock):
    one, other = (Watch(store.connect, rank, 2, 600.0, "rank 0 at h:1") for rank in range(2))
    for _ in range(300):
        clock[0] += 2.0
        one.store.broken = True  # a client of the store never connects again by itself
        beat(one)
        beat(other)
        assert one._verdict(clock[0]) is None
        assert other._verdict(clock[0]) is None
    assert store.connected == 302


def test_a_host_out_of_reach_is_waited_for_as_long_as_a_rank(store, clock):
    one = Watch(store.connect, 0, 2, 60.0, "rank 0 at h:1")
    store.up = False
    for _ in range(29):
        clock[0] += 2.0
        beat(one)
        assert one._verdict(clock[0]) is None
    clock[0] += 4.0
    beat(one)
    assert "no sign of life for 60 s (train.timeout)" in one._verdict(clock[0])
    store.up = True
    beat(one)
    clock[0] += 1.0
    assert one._verdict(clock[0]) is None or "rank 1" in one._verdict(clock[0])


def test_a_host_that_refuses_is_gone(store, clock):
    one = Watch(store.connect, 1, 2, 600.0, "rank 0 at h:1")
    store.up, store.refusing = False, True
    beat(one)
    clock[0] += GRACE - 1
    beat(one)
    assert one._verdict(clock[0]) is None
    clock[0] += 2
    assert one._verdict(clock[0]) == f"rank 0 at h:1, through which the ranks meet, is gone. {KEPT}"


def test_after_a_freeze_no_time_lies_in_the_future(store, clock):
    """Otherwise a rank that is lost right after it would be given up too late."""
    one = Watch(store.connect, 0, 2, 60.0, "rank 0 at h:1")
    one._refused, one._told = clock[0], (clock[0], "rank 1 of 2 ended: OSError")
    clock[0] += 3600.0
    one._heard = clock[0]  # the other thread was faster
    one._shift(3590.0, clock[0])
    assert one._heard == clock[0]
    assert [one._answered, one._refused, one._told[0]] == [clock[0] - 10.0] * 3
    assert one._verdict(clock[0]) is None, "ten seconds are within the grace"


def test_the_reason_of_a_rank_outlives_the_store(store):
    one, other = (Watch(store.connect, rank, 2, 600.0, "rank 0 at h:1") for rank in range(2))
    one.report(OSError())
    other._exchange()
    store.up = False
    said = other.explain(RuntimeError("Connection closed by peer"))
    assert said == "rank 0 of 2 ended: OSError", "without a colon that nothing follows"


def test_a_rank_that_keeps_the_store_stays_until_the_others_have_read(store):
    watches = [
        Watch(store.connect, rank, 2, 1.0, "rank 0 at h:1", hosting=rank == 0) for rank in range(2)
    ]
    other = threading.Thread(target=watches[1]._beat)
    other.start()
    time.sleep(watches[1].beat / 2)
    watches[0].report(ValueError("no"))
    watches[0].linger()
    store.up = False
    watches[1].stop()
    other.join()
    assert watches[1]._told[1] == "rank 0 of 2 ended: ValueError: no"


def test_an_explanation_ends_with_the_error_that_it_explains(store):
    one = Watch(store.connect, 0, 2, 600.0, "rank 0 at h:1")
    store.up = False
    said = one.explain(RuntimeError("Connection closed by peer [10.0.0.2]:5\nframe #0"))
    assert "another rank, or rank 0 at h:1, is gone" in said
    assert said.endswith("(Connection closed by peer [10.0.0.2]:5)")


def test_a_store_that_breaks_while_the_ranks_gather_is_no_error(store):
    one = Watch(store.connect, 0, 1, 5.0, "rank 0 at h:1")
    one.store.broken = True
    one.start()
    one.gather()
    one.stop()
    assert json.loads(str(store.values["beat/0"])) >= 1
