"""Several fits of the same rows in lockstep: one read answers what all of them ask.

Every fit runs in a thread of its own, on a `Seat` at a common table. A question waits until all
other fits have asked theirs, or have ended. Only one fit computes at a time, each in its turn: the
interpreter would not let them compute at once, and changing between them costs time. So what is
answered together depends on the fits alone, never on how threads are scheduled.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np

from counterpoise.rows.engines.base import SumEngine
from counterpoise.rows.engines.questions import Question
from counterpoise.rows.engines.together import same

Array = np.ndarray
T = TypeVar("T")

# Seconds after which to look for an interrupt: if a library has system calls restarted after
# signals, waiting for a thread without a limit would not notice one.
POLL = 0.2


def in_lockstep(
    inner: SumEngine, tasks: Sequence[Callable[[SumEngine], T]], most: int | None = None
) -> list[T]:
    """Call every task with an engine for the rows of ``inner``, and return their results.

    Tasks run at the same time, as many as ``most`` if given; their questions are answered together.
    If some raise, the error of the first task among them is raised after those beside it have
    ended.
    """
    if most is not None and most < len(tasks):
        parts = [tasks[i : i + most] for i in range(0, len(tasks), most)]
        return [result for part in parts for result in in_lockstep(inner, part)]
    if len(tasks) == 1:
        return [tasks[0](inner)]
    table = _Table(inner, len(tasks))
    results: list[Any] = [None] * len(tasks)
    errors: dict[int, BaseException] = {}

    def sit(place: int) -> None:
        try:
            table.wait(place)
            results[place] = tasks[place](Seat(table, place))
        except BaseException as error:  # raised again below
            errors[place] = error
        finally:
            table.leave()

    threads = [
        threading.Thread(target=sit, args=(place,), name=f"counterpoise-fit-{place}", daemon=True)
        for place in range(len(tasks))
    ]
    try:
        for thread in threads:
            thread.start()
        table.start()
        for thread in threads:
            while thread.is_alive():
                thread.join(POLL)
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
    """The questions of a round, and whose turn it is."""

    def __init__(self, inner: SumEngine, seats: int) -> None:
        self.inner = inner
        self._turns = [threading.Event() for _ in range(seats)]
        self._waiting = deque(range(seats))  # for their turn, in order
        self._asked: dict[int, Question] = {}
        self._answers: dict[int, Any] = {}
        self._closed: BaseException | None = None

    def start(self) -> None:
        """Let the first fit begin."""
        self._pass_on()

    def wait(self, place: int) -> None:
        """Wait for one's turn."""
        self._turns[place].wait()
        self._turns[place].clear()
        if self._closed is not None:
            raise InterruptedError("another fit was interrupted") from self._closed

    def ask(self, place: int, question: Question) -> Array:
        self._asked[place] = question
        self._pass_on()
        self.wait(place)
        answer = self._answers.pop(place)
        if isinstance(answer, BaseException):
            raise answer
        found: Array = answer
        return found

    def leave(self) -> None:
        if self._closed is None:
            self._pass_on()

    def close(self, error: BaseException) -> None:
        """End all fits at their next question."""
        self._closed = error
        for turn in self._turns:
            turn.set()

    def _pass_on(self) -> None:
        """Let the next fit go on, after a round of answers if all have asked or ended."""
        if not self._waiting and self._asked:
            self._round()
        if self._waiting:
            self._turns[self._waiting.popleft()].set()

    def _round(self) -> None:
        """Answer all questions, each distinct one once."""
        asked, self._asked = self._asked, {}
        places = sorted(asked)
        try:
            self._answers |= self._answered(asked, places)
        except BaseException as error:  # raised in every fit
            self._answers |= dict.fromkeys(places, error)
        self._waiting.extend(places)

    def _answered(self, asked: dict[int, Question], places: list[int]) -> dict[int, Array]:
        """Return the answers by place; no two places share an array, because fits may write."""
        keys = [same(asked[place]) for place in places]
        distinct = {key: asked[place] for key, place in zip(keys, places, strict=True)}
        found = dict(zip(distinct, self.inner.ask_all([*distinct.values()]), strict=True))
        answers: dict[int, Array] = {}
        for key, place in zip(keys, places, strict=True):
            answers[place] = found[key].copy() if key not in distinct else found[key]
            distinct.pop(key, None)  # later places get copies
        return answers
