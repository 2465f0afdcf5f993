"""A small thread pool for kernels that release the interpreter lock.

Work is split into the same pieces for any number of threads, and partial sums are added in order.
So results do not depend on the number of threads.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from functools import lru_cache
from itertools import pairwise
from typing import TypeVar

from threadpoolctl import ThreadpoolController

T = TypeVar("T")


def n_threads() -> int:
    """Return the cores available to this process, limited by ``OMP_NUM_THREADS``."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    try:
        asked = int(os.environ.get("OMP_NUM_THREADS", "").split(",")[0])
    except ValueError:
        asked = 0
    return max(1, min(cores or 1, asked) if asked > 0 else cores or 1)


@lru_cache(maxsize=4)
def _pool(pid: int, threads: int) -> ThreadPoolExecutor:
    # Keyed by process: a pool does not survive a fork.
    return ThreadPoolExecutor(threads, thread_name_prefix="counterpoise")


def over_ranges(work: Callable[[int, int], T], n_items: int) -> list[T]:
    """Call ``work(lo, hi)`` on contiguous ranges that cover ``range(n_items)``, one per thread.

    The calling thread takes the first range.
    """
    threads = min(n_threads(), n_items)
    if threads <= 1:
        return [work(0, n_items)]
    cuts = [n_items * i // threads for i in range(threads + 1)]
    pool = _pool(os.getpid(), threads - 1)
    futures = [pool.submit(work, lo, hi) for lo, hi in pairwise(cuts[1:])]
    try:
        return [work(0, cuts[1]), *(f.result() for f in futures)]
    finally:
        for future in futures:  # even after an error, wait until all threads are done
            future.exception()


@lru_cache(maxsize=1)
def _controller() -> ThreadpoolController:
    return ThreadpoolController()


class _SingleThreadedBlas:
    """A reentrant limit: the first to enter sets it, and the last to leave lifts it.

    Limits are per process, and in some libraries only the thread that set a limit can lift it. So
    a dedicated thread does both, and overlapping fits from any threads restore BLAS correctly.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._inside = 0
        self._limit: AbstractContextManager[object] | None = None

    def __enter__(self) -> None:
        with self._lock:
            if self._inside == 0:
                self._limit = _keeper(os.getpid()).submit(self._set).result()
            self._inside += 1

    def __exit__(self, *exc: object) -> None:
        with self._lock:
            self._inside -= 1
            if self._inside == 0 and self._limit is not None:
                limit, self._limit = self._limit, None
                _keeper(os.getpid()).submit(limit.__exit__, None, None, None).result()

    @staticmethod
    def _set() -> AbstractContextManager[object]:
        limit = _controller().limit(limits=1, user_api="blas")
        limit.__enter__()
        return limit


@lru_cache(maxsize=4)
def _keeper(pid: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(1, thread_name_prefix="counterpoise-blas")


_blas = _SingleThreadedBlas()


def single_threaded_blas() -> AbstractContextManager[None]:
    """Return a context in which BLAS uses one thread, so that its sums have a fixed order."""
    return _blas
