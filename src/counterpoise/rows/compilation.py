"""Kernels are compiled on first use, which takes seconds once; nobody should wait unawares."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Hashable
from typing import Any

import numpy as np

from counterpoise.activations import Activation
from counterpoise.activations.base import Kernel

logger = logging.getLogger("counterpoise")

# Kernels read from the cache are there sooner than this.
PATIENCE_SECONDS = 0.5
MESSAGE = (
    "compiling, or loading what was compiled; the first time on a machine that takes some seconds"
)
_ready: set[Hashable] = set()
# Compiled kernels of activations, by the function they were compiled from.
_kernels: dict[Kernel, Any] = {}


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


def kernel_address(activation: Activation) -> int | None:
    """The address of an activation's compiled kernel: 0 for the identity, None if it has none."""
    if activation.is_identity:
        return 0
    kernel = type(activation).kernel
    if kernel is None:
        return None
    if kernel not in _kernels:
        ready(kernel, lambda lo, hi: _kernels.setdefault(kernel, _compile(kernel)))
    return int(_kernels[kernel].address)


def _compile(kernel: Kernel) -> Any:
    from numba import cfunc, types

    numbers, double = types.CPointer(types.float64), types.float64
    signature = types.void(numbers, numbers, types.intp, double, double, double)
    options = {"error_model": "numpy"}
    if kernel.__module__.startswith("counterpoise."):
        try:
            return cfunc(signature, cache=True, **options)(kernel)
        except RuntimeError:  # neither the package nor the home folder can be written to
            pass
    return cfunc(signature, **options)(kernel)


def _say_once() -> None:
    if MESSAGE not in _ready:
        _ready.add(MESSAGE)
        logger.warning(MESSAGE)


def frozen(array: np.ndarray) -> np.ndarray:
    """A view that cannot be written to: kernels compile once, whatever they are given."""
    view = array.view()
    view.flags.writeable = False
    return view
