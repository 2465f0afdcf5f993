"""Stop long work on request without losing anything."""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

logger = logging.getLogger("counterpoise")

STOPPED = 75  # exit code of a process that can be resumed (EX_TEMPFAIL)


class Stopped(Exception):
    """The work was asked to stop and has saved what it needs to resume."""


@contextmanager
def asked_to_stop() -> Iterator[list[int]]:
    """Collect requests to stop, SIGTERM and Ctrl-C, in a list.

    The first request only fills the list; a second one raises `KeyboardInterrupt` at once.
    """
    asked: list[int] = []

    def note(number: int, frame: Any) -> None:
        if asked:
            raise KeyboardInterrupt
        asked.append(number)
        logger.warning("stopping after saving the work in progress; ask again to stop at once")

    before = {}
    for number in (signal.SIGTERM, signal.SIGINT):
        try:
            before[number] = signal.signal(number, note)
        except ValueError:  # not the main thread, which alone receives signals
            break
    try:
        yield asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def ignore_signals(worker: int) -> None:
    """Let a data-loading worker outlive a signal sent to its whole process group.

    It ends with its parent, which decides when to stop, and at once if that is killed.
    """
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    end_with_parent()


def end_with_parent() -> None:
    """Let this process end as soon as the one that it works for has ended, however it did.

    The process that called, not the one that forked, is watched: under ``forkserver`` they differ.
    """
    import multiprocessing

    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_end_with, args=(parent.sentinel,), daemon=True).start()


def _end_with(sentinel: int) -> None:
    from multiprocessing.connection import wait

    wait([sentinel])
    os._exit(1)
