"""Runs that end when they are asked to, with nothing lost."""

from __future__ import annotations

import logging
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

logger = logging.getLogger("counterpoise")


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
        logger.warning("asked to stop: a checkpoint is saved after this step")

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
