"""Compilation with numba. Importing this module imports numba, so import it where it is used."""

# Numba finds the types itself.
# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from typing import Any

from numba import njit

# Nothing calls a kernel as a C function, and the wrapper for that takes time to compile.
LEAN: dict[str, Any] = {"no_cfunc_wrapper": True}


def compiled(**options):
    """Compile to run without the interpreter lock, and cache the result on disk if possible."""

    def wrap(function):
        try:
            return njit(nogil=True, cache=True, **LEAN, **options)(function)
        except RuntimeError:  # neither the package nor the home folder is writable
            return njit(nogil=True, **LEAN, **options)(function)

    return wrap
