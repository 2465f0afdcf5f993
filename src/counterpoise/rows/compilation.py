"""Kernels are compiled on first use, which takes seconds once; nobody should wait unawares."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Hashable
from typing import Any

import numpy as np

logger = logging.getLogger("counterpoise")

# Kernels read from the cache are there sooner than this.
PATIENCE_SECONDS = 0.5
MESSAGE = (
    "compiling, or loading what was compiled; the first time on a machine that takes some seconds"
)
_ready: set[Hashable] = set()


def ready(key: Hashable, work: Callable[[int, int], Any]) -> None:
    """Compile what ``work`` needs by calling it on no rows, and say so if that takes a while.

    ``key`` names the kernel and the types it is compiled for; the second call does nothing.
    """
    if key in _ready:
        return
    timer = threading.Timer(PATIENCE_SECONDS, _say_once)
    timer.daemon = True
    timer.start()
    try:
        work(0, 0)
    finally:
        timer.cancel()
    _ready.add(key)


def _say_once() -> None:
    if MESSAGE not in _ready:
        _ready.add(MESSAGE)
        logger.warning(MESSAGE)


def frozen(array: np.ndarray) -> np.ndarray:
    """A view that cannot be written to: kernels compile once, whatever they are given."""
    view = array.view()
    view.flags.writeable = False
    return view
