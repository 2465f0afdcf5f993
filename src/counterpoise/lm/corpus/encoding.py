"""Batches of documents become tokens, in this process or in others, always in the same order."""

from __future__ import annotations

import hashlib
import multiprocessing
import os
import pickle
import signal
import threading
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from multiprocessing.connection import wait
from typing import TypeVar

import numpy as np

from counterpoise.lm.corpus.tokenizers import Tokenizer

Array = np.ndarray
Mark = TypeVar("Mark")


@dataclass(frozen=True)
class Encoded:
    """Tokens of some documents: of each split the ids, and the length of each document."""

    ids: list[Array]
    lengths: list[Array]
    empty: int


@dataclass(frozen=True)
class Task:
    """How documents become tokens.

    ``bounds`` cut the numbers up to 2**64 in splits: a document is where the hash of its text is.
    ``begin`` is the id that comes before every document, if one does.
    """

    tokenizer: Tokenizer
    bounds: Sequence[int]
    begin: int | None = None

    def encode(self, texts: Sequence[str]) -> Encoded:
        texts = [readable(text) for text in texts]
        ids: list[list[Array]] = [[] for _ in self.bounds]
        lengths: list[list[int]] = [[] for _ in self.bounds]
        begin, end = (
            np.array([] if id is None else [id], self.tokenizer.dtype)
            for id in (self.begin, self.tokenizer.end)
        )
        empty = 0
        for text, tokens in zip(texts, self.tokenizer.encode_batch(texts), strict=True):
            if not len(tokens):  # nothing is left of it, as of spaces in some tokenizers
                empty += 1
                continue
            split = self.split(text)
            ids[split] += [begin, tokens, end]
            lengths[split].append(len(begin) + len(tokens) + 1)
        dtype = self.tokenizer.dtype
        return Encoded(
            [np.concatenate(part).astype(dtype) if part else np.empty(0, dtype) for part in ids],
            [np.array(part, np.uint64) for part in lengths],
            empty,
        )

    def split(self, text: str) -> int:
        if len(self.bounds) == 1:
            return 0
        place = int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big")
        return next(i for i, bound in enumerate(self.bounds) if place < bound)


def readable(text: str) -> str:
    """The text with halves of surrogate pairs, which no encoding has, replaced by U+FFFD.

    >>> readable("a\\ud800b") == "a\\ufffdb"
    True
    """
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class Crew:
    """Those who encode: ``workers`` processes, or this one if there are none.

    Processes are started at the first batch and stay until the crew is closed.
    """

    def __init__(self, task: Task, workers: int) -> None:
        self.task, self.workers = task, workers
        self._pool: ProcessPoolExecutor | None = None
        if workers:
            try:
                pickle.dumps(task)
            except Exception as error:  # whatever the tokenizer's own pickling raises
                raise TypeError(
                    f"tokenizer {task.tokenizer.name} cannot be sent to other processes ({error}); "
                    "define its function in a module, or pass workers=0"
                ) from None

    def __enter__(self) -> Crew:
        return self

    def __exit__(self, *_: object) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)
            self._pool = None

    def encode(
        self, batches: Iterable[tuple[Sequence[str], Mark]]
    ) -> Iterator[tuple[Encoded, Mark]]:
        """Batches encoded, in the order given, each with its mark; few are waiting at a time."""
        if not self.workers:
            for texts, mark in batches:
                yield self.task.encode(texts), mark
            return
        waiting: deque[tuple[Future[Encoded], Mark]] = deque()
        try:
            for texts, mark in batches:
                waiting.append((self._started().submit(_encode, texts), mark))
                while waiting and (waiting[0][0].done() or len(waiting) >= 2 * self.workers + 2):
                    future, then = waiting.popleft()
                    yield future.result(), then
            while waiting:
                future, then = waiting.popleft()
                yield future.result(), then
        except BrokenProcessPool as error:
            raise RuntimeError(
                "a worker process ended before its work. If it ran out of memory, pass fewer "
                "workers and run again: what is done is kept. If it could not start, call prepare "
                "under `if __name__ == '__main__':` in a script, or pass workers=0"
            ) from error
        finally:
            for future, _ in waiting:
                future.cancel()

    def _started(self) -> ProcessPoolExecutor:
        if self._pool is None:
            # threads of other libraries do not survive a fork: processes start afresh
            self._pool = ProcessPoolExecutor(
                self.workers, multiprocessing.get_context("spawn"), _begin, (self.task,)
            )
        return self._pool


_task: Task | None = None


def _begin(task: Task) -> None:
    """In a worker: each process is one of many, and must not outlive the one it works for."""
    global _task
    _task = task
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the first process decides what to do
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_end_with, args=(parent.sentinel,), daemon=True).start()


def _end_with(sentinel: int) -> None:
    wait([sentinel])
    os._exit(1)


def _encode(texts: Sequence[str]) -> Encoded:
    assert _task is not None
    return _task.encode(texts)
