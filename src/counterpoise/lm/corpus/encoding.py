"""Encode batches of documents, in this process or in others, always in the same order."""

from __future__ import annotations

import hashlib
import multiprocessing
import os
import pickle
import signal
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from counterpoise.common.stopping import end_with_parent
from counterpoise.lm.corpus.tokenizers import Tokenizer

Array = np.ndarray
Mark = TypeVar("Mark")


@dataclass(frozen=True)
class Encoded:
    """The tokens of some documents: for each split the ids and the documents' lengths."""

    ids: list[Array]
    lengths: list[Array]
    empty: int


@dataclass(frozen=True)
class DocumentEncoder:
    """Turns documents into tokens, and assigns them to splits.

    Attributes
    ----------
    tokenizer : Tokenizer
    bounds : sequence of int
        Where the splits end in the range up to 2**64. The hash of its text decides a document's
        split.
    begin : int, optional
        The id before every document.
    """

    tokenizer: Tokenizer
    bounds: Sequence[int]
    begin: int | None = None

    def encode(self, texts: Sequence[str]) -> Encoded:
        """Encode a batch of documents."""
        texts = [readable(text) for text in texts]
        ids: list[list[Array]] = [[] for _ in self.bounds]
        lengths: list[list[int]] = [[] for _ in self.bounds]
        begin, end = (
            np.array([] if id is None else [id], self.tokenizer.dtype)
            for id in (self.begin, self.tokenizer.end)
        )
        empty = 0
        for text, tokens in zip(texts, self.tokenizer.encode_batch(texts), strict=True):
            if not len(tokens):  # some tokenizers drop spaces, for instance
                empty += 1
                continue
            split = self.split(text)
            ids[split] += [begin, tokens, end]
            lengths[split].append(len(begin) + len(tokens) + 1)
        dtype = self.tokenizer.dtype
        return Encoded(
            [np.concatenate(some).astype(dtype) if some else np.empty(0, dtype) for some in ids],
            [np.array(some, np.uint64) for some in lengths],
            empty,
        )

    def split(self, text: str) -> int:
        """Return the number of the split that a text belongs to."""
        if len(self.bounds) == 1:
            return 0
        digest = int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big")
        return next(i for i, bound in enumerate(self.bounds) if digest < bound)


def readable(text: str) -> str:
    """Replace lone surrogates, which no encoding has, by U+FFFD.

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
    """Return the number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class EncoderPool:
    """Encodes in ``workers`` processes, or in this one if ``workers`` is 0.

    Processes start with the first batch and stay until the pool is closed.
    """

    def __init__(self, encoder: DocumentEncoder, workers: int) -> None:
        self.encoder, self.workers = encoder, workers
        self._pool: ProcessPoolExecutor | None = None
        if workers:
            try:
                pickle.dumps(encoder)
            except Exception as error:  # the tokenizer's own pickling may raise anything
                raise TypeError(
                    f"tokenizer {encoder.tokenizer.name} cannot be sent to other processes "
                    f"({error}); define its function in a module, or pass workers=0"
                ) from None

    def __enter__(self) -> EncoderPool:
        return self

    def __exit__(self, *_: object) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)
            self._pool = None

    def encode(
        self, batches: Iterable[tuple[Sequence[str], Mark]]
    ) -> Iterator[tuple[Encoded, Mark]]:
        """Yield encoded batches in the order given, each with its mark; only a few wait."""
        if not self.workers:
            for texts, mark in batches:
                yield self.encoder.encode(texts), mark
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
                "a worker process died. If it ran out of memory, pass fewer workers and run again; "
                "finished work is kept. If it could not start, call prepare under "
                "`if __name__ == '__main__':` in a script, or pass workers=0"
            ) from error
        finally:
            for future, _ in waiting:
                future.cancel()

    def _started(self) -> ProcessPoolExecutor:
        if self._pool is None:
            # spawn, because threads of other libraries do not survive a fork
            self._pool = ProcessPoolExecutor(
                self.workers, multiprocessing.get_context("spawn"), _begin, (self.encoder,)
            )
        return self._pool


_encoder: DocumentEncoder | None = None


def _begin(encoder: DocumentEncoder) -> None:
    """Set up a worker, which must not outlive the process that it works for."""
    global _encoder
    _encoder = encoder
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the main process decides what to do
    end_with_parent()


def _encode(texts: Sequence[str]) -> Encoded:
    assert _encoder is not None
    return _encoder.encode(texts)
