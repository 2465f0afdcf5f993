"""Runs that end when they are asked to, with nothing lost."""

from __future__ import annotations

import logging
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

logger = logging.getLogger("counterpoise")


STOPPED = 75  # how a process ends that can go on (EX_TEMPFAIL)


class Stopped(Exception):
    """The run was asked to stop, and has saved a checkpoint to go on from."""


@contextmanager
def asked_to_stop() -> Iterator[list[int]]:
    """A list that is no longer empty once the process was asked to stop, by SIGTERM or an
    interrupt; asked twice, it ends at once."""
    asked: list[int] = []

    def note(number: int, frame: Any) -> None:
        if asked:
            raise KeyboardInterrupt
        asked.append(number)
        logger.warning("asked to stop: what is under way is saved first; ask again to end at once")

    before = {}
    for number in (signal.SIGTERM, signal.SIGINT):
        try:
            before[number] = signal.signal(number, note)
        except ValueError:  # not the main thread, where signals do not arrive
            break
    try:
        yield asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def deaf(worker: int) -> None:
    """A worker that reads samples ends with its parent, and not when a whole group is told to."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
