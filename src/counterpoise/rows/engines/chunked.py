"""The engine for rows that do not fit in memory, read chunk by chunk in every pass."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

import numpy as np

from counterpoise.activations import Activation
from counterpoise.losses import Loss
from counterpoise.rows.engines.memory import make_part
from counterpoise.rows.engines.questions import Question
from counterpoise.rows.engines.row_part import RowPart
from counterpoise.rows.engines.scanned import ScannedEngine
from counterpoise.rows.engines.tally import answer_part, plus
from counterpoise.rows.engines.together import Together
from counterpoise.rows.fold_cut import FoldCut
from counterpoise.rows.groups import GroupedData, places_of
from counterpoise.rows.scan import NoRows, Rows, Scan, check_chunk
from counterpoise.rows.sources import Source

Array = np.ndarray
T = TypeVar("T")
# Called with (pass, rows read, total rows or None) after every chunk.
PassProgress = Callable[[int, int, int | None], None]


class ChunkedEngine(ScannedEngine):
    """Sums over the chunks of a source; only a few chunks and the answer are in memory.

    The next chunk is read while the current one is summed. Chunks are added in order, so answers
    depend only on the rows and, through rounding, on how they are split into chunks.
    """

    def __init__(
        self,
        source: Source,
        loss: Loss | Activation,
        *,
        intercept: bool = True,
        centred: bool = True,
        progress: PassProgress | None = None,
        cut: FoldCut | None = None,
    ) -> None:
        self.source, self.progress, self.cut = source, progress, cut
        self.scan = self._first_look()
        super().__init__(self.scan.census(intercept=intercept, centred=centred), loss)
        self.counter.count = 1

    def ask(self, question: Question) -> Array:
        total: Array | None = None
        for part in read_ahead(self._parts()):
            sums = part.answer(question)
            if question.pooled:
                total = sums if total is None else total + sums
            else:
                if total is None:
                    total = np.zeros((self.n_groups, *sums.shape[1:]))
                total[part.codes] += sums
        assert total is not None
        self.counter.count += 1
        return total

    def ask_all(self, questions: Sequence[Question]) -> Sequence[Array]:
        total, asked = None, Together(tuple(questions))
        for part in read_ahead(self._parts()):
            total = plus(total, answer_part(part, asked, self.n_groups))
        assert total is not None
        self.counter.count += 1
        answers: Sequence[Array] = total
        return answers

    def _chunks(self) -> Iterator[tuple[int, Rows]]:
        done, first = 0, not hasattr(self, "census")

        def report() -> None:
            if self.progress is not None:
                total = self.source.n_rows if first else self.scan.n_read
                self.progress(1 if first else self.passes + 1, done, total)

        report()
        for index, chunk in enumerate(self.source):
            rows = check_chunk(
                *unpack(chunk, index), f"chunk {index}", seen=not first, cut=self.cut
            )
            if not first and rows.X.shape[1] != self.n_features:
                raise ValueError(
                    f"chunk {index}: X has {rows.X.shape[1]} features, but had {self.n_features} "
                    "on the first pass; a source must give the same chunks every time"
                )
            yield index, rows
            done += rows.n_read
            report()

    def _first_look(self) -> Scan:
        scan: Scan | None = None
        for _, rows in read_ahead(self._chunks()):
            found = Scan.of(rows)
            scan = found if scan is None else scan.merge(found)
        if scan is None:
            raise NoRows("the source gave no chunks; it must give at least one")
        return scan

    def _parts(self) -> Iterator[RowPart]:
        seen = 0
        for index, rows in self._chunks():
            seen += len(rows.y)
            if len(rows.y):
                yield to_part(rows, self.census.labels, self.census.intercept, f"chunk {index}")
        if seen != self.census.n_rows:
            raise ValueError(
                f"the source gave {self.census.n_rows} rows at first and {seen} on a later pass. "
                "It must give the same chunks every time. A generator can be read only once; pass "
                "the function that makes it."
            )


def to_part(rows: Rows, labels: Array, intercept: bool, where: str) -> RowPart:
    """Sort the rows of a chunk by group, and find the indices of its groups in ``labels``."""
    place = places_of(rows.labels, labels, where)
    data = GroupedData.sort(
        rows.X, rows.y, rows.codes, rows.labels, rows.weights, intercept=intercept
    )
    return make_part(data, place)


def unpack(chunk: Any, index: int) -> tuple[Any, Any, Any, Any]:
    """Unpack ``(X, y)``, ``(X, y, groups)`` or ``(X, y, groups, sample_weight)``."""
    if not isinstance(chunk, (tuple, list)) or not 2 <= len(chunk) <= 4:
        raise ValueError(
            f"chunk {index} must be (X, y), (X, y, groups) or (X, y, groups, sample_weight); "
            f"got {type(chunk).__name__}"
        )
    X, y, groups, weights = (*chunk, None, None)[:4]
    return X, y, groups, weights


def read_ahead(items: Iterable[T], depth: int = 1) -> Iterator[T]:
    """Yield the items, while a thread fetches the next ones."""
    ready: queue.Queue[tuple[bool, Any]] = queue.Queue(maxsize=depth)
    stopped = threading.Event()

    def put(entry: tuple[bool, Any]) -> bool:
        while not stopped.is_set():
            try:
                ready.put(entry, timeout=0.1)
            except queue.Full:
                continue
            return True
        return False

    def fetch() -> None:
        try:
            for item in items:
                if not put((True, item)):
                    return
        except BaseException as error:  # raised in the reader
            put((False, error))
            return
        put((False, None))

    thread = threading.Thread(target=fetch, name="counterpoise-reader", daemon=True)
    thread.start()
    try:
        while True:
            more, item = ready.get()
            if not more:
                if item is not None:
                    raise item
                return
            yield item
            del item
    finally:
        stopped.set()
        thread.join()
