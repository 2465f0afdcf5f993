"""Compilation of kernels on first use, with a message if it takes long."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Hashable
from contextlib import suppress
from multiprocessing import current_process
from typing import Any, NamedTuple

import numpy as np

from counterpoise.activations import Activation
from counterpoise.activations.base import Kernel
from counterpoise.losses import Loss, NeuronLoss

logger = logging.getLogger("counterpoise")

# Loading kernels from the cache takes less than this.
PATIENCE_SECONDS = 0.5
MESSAGE = "compiling or loading kernels; the first time on a machine, this takes a few seconds"
_ready: set[Hashable] = set()
# What a compiled kernel computes: an activation, without or with its slope, or a loss.
VALUES, SLOPES, LOSSES = 0, 1, 2
# Compiled kernels of activations and losses, by their Python function.
_kernels: dict[Kernel, Any] = {}


def ready(key: Hashable, work: Callable[[int, int], Any]) -> None:
    """Compile what ``work`` needs by calling it on no rows, with a message if it takes long.

    ``key`` names the kernel and its types; a second call with the same key does nothing.
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


class RowKernel(NamedTuple):
    """A compiled function of scores: its address (0 for the identity), and what it computes."""

    address: int
    parameters: tuple[float, float, float]
    kind: int


def kernel_address(activation: Activation) -> int | None:
    """Return the address of an activation's compiled kernel: 0 for the identity, None if none."""
    if activation.is_identity:
        return 0
    return _address(type(activation).kernel, f"activation {activation.name!r}")


def evaluation_kernel(loss: Loss, *, surrogate: bool) -> RowKernel | None:
    """Return the kernel for losses and gradients; None if Python must compute them."""
    if isinstance(loss, NeuronLoss):
        address, kind = kernel_address(loss.activation), VALUES if surrogate else SLOPES
    else:
        address, kind = _address(type(loss).kernel, f"loss {loss.name!r}"), LOSSES
    return None if address is None else RowKernel(address, loss.parameters, kind)


def stretch_kernel(loss: Loss) -> RowKernel | None:
    """Return the kernel for second derivatives; None if Python must compute them."""
    if isinstance(loss, NeuronLoss):
        address, kind = kernel_address(loss.activation), SLOPES
    else:
        address, kind = _address(type(loss).bend_kernel, f"loss {loss.name!r}"), LOSSES
    return None if address is None else RowKernel(address, loss.parameters, kind)


def _address(kernel: Kernel | None, owner: str) -> int | None:
    if kernel is None:
        return None
    if kernel not in _kernels:
        try:
            ready(kernel, lambda lo, hi: _kernels.setdefault(kernel, _compile(kernel)))
        except Exception as error:  # numba raises of every kind
            raise TypeError(
                f"{owner}: numba cannot compile its kernel(); correct it, or leave it out to use "
                "its methods for arrays"
            ) from error
    return int(_kernels[kernel].address)


def _compile(kernel: Kernel) -> Any:
    from numba import cfunc, types

    numbers, double = types.CPointer(types.float64), types.float64
    signature = types.void(numbers, numbers, types.intp, double, double, double)
    if kernel.__module__.startswith("counterpoise."):
        with suppress(RuntimeError):  # neither the package nor the home folder is writable
            return cfunc(signature, cache=True, error_model="numpy")(kernel)
    return cfunc(signature, error_model="numpy")(kernel)


def _say_once() -> None:
    # Workers stay silent: the process that started them has said so.
    if MESSAGE not in _ready and current_process().name == "MainProcess":
        _ready.add(MESSAGE)
        logger.warning(MESSAGE)


def frozen(array: np.ndarray) -> np.ndarray:
    """Return a read-only view, so that kernels compile for one array type only."""
    view = array.view()
    view.flags.writeable = False
    return view
