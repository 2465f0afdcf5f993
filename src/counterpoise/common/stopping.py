"""Stop long work on request without losing anything."""

from __future__ import annotations

import logging
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

logger = logging.getLogger("counterpoise")


PR_SET_PDEATHSIG = 1  # of Linux
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
    """Let the kernel kill this process when its parent ends, where the kernel can (Linux)."""
    if sys.platform != "linux":
        return
    import ctypes
    import multiprocessing

    parent = multiprocessing.parent_process()
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if parent is not None and os.getppid() != parent.pid:  # it ended before we asked
        os._exit(1)
