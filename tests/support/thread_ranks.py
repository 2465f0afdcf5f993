"""Ranks that are threads of one process, for tests of engines.

A fit needs processes: before Python 3.12, `functools.cached_property` lets one thread in at a time.
"""

from __future__ import annotations

import threading

import numpy as np

from counterpoise import Collective

SECONDS = 60.0


class Threads:
    """An all-reduce, an all-gather and an all-to-all among threads."""

    def __init__(self, size):
        self.size, self.barrier, self.sent = size, threading.Barrier(size), [None] * size
        self.calls = []

    def exchange(self, rank, values):
        self.sent[rank] = values.copy()
        self.barrier.wait(SECONDS)
        found = list(self.sent)
        self.barrier.wait(SECONDS)
        if rank == 0:
            self.calls.append(values.shape)
        return found

    def collective(self, rank, *, native=False):
        def allreduce(values):
            return np.sum(self.exchange(rank, values), axis=0)

        def allgather(values):
            return np.stack(self.exchange(rank, values))

        def alltoall(values):
            return np.stack([part[rank] for part in self.exchange(rank, values)])

        more = dict(allgather=allgather, alltoall=alltoall) if native else {}
        return Collective(None if native else allreduce, rank=rank, size=self.size, **more)


def on_ranks(size, work, *, native=False):
    """Call ``work(collective)`` on threads; return what each returned or raised."""
    threads, found = Threads(size), [None] * size

    def go(rank):
        try:
            found[rank] = work(threads.collective(rank, native=native))
        except Exception as error:
            found[rank] = error
            if isinstance(error, AssertionError):
                threads.barrier.abort()

    running = [threading.Thread(target=go, args=(rank,)) for rank in range(size)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    return found
