"""Several fits of the same rows in lockstep: one read answers what all of them ask.

Every fit runs in a thread of its own, on a `Seat` at a common table. A question waits until all
other fits have asked theirs, or have ended. So which questions are answered together depends on
the fits alone, never on how threads are scheduled.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np

from counterpoise.rows.engines.base import SumEngine
from counterpoise.rows.engines.questions import Question
from counterpoise.rows.engines.together import same

Array = np.ndarray
T = TypeVar("T")


def in_lockstep(inner: SumEngine, tasks: Sequence[Callable[[SumEngine], T]]) -> list[T]:
    """Call every task with an engine for the rows of ``inner``, and return their results.

    Tasks run at the same time; their questions are answered together. If some raise, the error of
    the first task among them is raised after all tasks have ended.
    """
    if len(tasks) == 1:
        return [tasks[0](inner)]
    table = _Table(inner, len(tasks))
    results: list[Any] = [None] * len(tasks)
    errors: dict[int, BaseException] = {}

    def sit(place: int) -> None:
        try:
            results[place] = tasks[place](Seat(table, place))
        except BaseException as error:  # raised again below
            errors[place] = error
        finally:
            table.leave()

    threads = [
        threading.Thread(target=sit, args=(place,), name=f"counterpoise-fit-{place}", daemon=True)
        for place in range(len(tasks))
    ]
    for thread in threads:
        thread.start()
    try:
        for thread in threads:
            thread.join()
    except BaseException as error:  # such as a keyboard interrupt
        table.close(error)
        raise
    for place in sorted(errors):
        raise errors[place]
    return results


class Seat(SumEngine):
    """The rows of an engine, for one of several fits in lockstep."""

    def __init__(self, table: _Table, place: int) -> None:
        super().__init__(table.inner.census, table.inner.loss)
        self.table, self.place = table, place

    def ask(self, question: Question) -> Array:
        self.counter.count += 1
        return self.table.ask(self.place, question)

    def effective_sizes(self) -> Array:
        return self.table.inner.effective_sizes()

    @property
    def rounding(self) -> float:
        return self.table.inner.rounding

    @property
    def additions(self) -> int:
        return self.table.inner.additions


class _Table:
    """The questions of a round, and the fits that still take part."""

    def __init__(self, inner: SumEngine, seats: int) -> None:
        self.inner, self.seated = inner, seats
        self._lock = threading.Lock()
        self._asked: dict[int, tuple[Question, _Answer]] = {}
        self._closed: BaseException | None = None

    def ask(self, place: int, question: Question) -> Array:
        answer = _Answer()
        with self._lock:
            if self._closed is not None:
                raise InterruptedError("another fit was interrupted") from self._closed
            self._asked[place] = (question, answer)
            due = self._due()
        if due:
            self._round(due)
        return answer.wait()

    def leave(self) -> None:
        with self._lock:
            self.seated -= 1
            due = self._due()
        if due:
            self._round(due)

    def close(self, error: BaseException) -> None:
        """End all fits at their next question."""
        with self._lock:
            self._closed, asked = error, list(self._asked.values())
            self._asked = {}
        for _, answer in asked:
            answer.set(InterruptedError("another fit was interrupted"))

    def _due(self) -> list[tuple[Question, _Answer]]:
        """Take all questions if every fit has asked one; the lock is held."""
        if not self._asked or len(self._asked) < self.seated:
            return []
        due = [self._asked[place] for place in sorted(self._asked)]
        self._asked = {}
        return due

    def _round(self, due: list[tuple[Question, _Answer]]) -> None:
        """Answer all questions, each distinct one once."""
        keys = [same(question) for question, _ in due]
        distinct = {key: question for key, (question, _) in zip(keys, due, strict=True)}
        found: dict[Any, Any] = {}
        try:
            found = dict(zip(distinct, self.inner.ask_all([*distinct.values()]), strict=True))
        except BaseException as error:  # raised in every fit
            found = dict.fromkeys(distinct, error)
        for place, (key, (_, answer)) in enumerate(zip(keys, due, strict=True)):
            shared = key in keys[:place] and not isinstance(found[key], BaseException)
            answer.set(found[key].copy() if shared else found[key])  # fits may write to theirs


class _Answer:
    """An answer, or an error, that a fit waits for."""

    def __init__(self) -> None:
        self._there = threading.Event()
        self._value: Any = None

    def set(self, value: Any) -> None:
        self._value = value
        self._there.set()

    def wait(self) -> Array:
        self._there.wait()
        if isinstance(self._value, BaseException):
            raise self._value
        found: Array = self._value
        return found
