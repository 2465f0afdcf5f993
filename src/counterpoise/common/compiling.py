"""Compilation with numba. Importing this module imports numba, so import it where it is used."""

# Numba finds the types itself.
# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from numba import njit


def compiled(**options):
    """Compile to run without the interpreter lock, and cache the result on disk if possible."""

    def wrap(function):
        try:
            return njit(nogil=True, cache=True, **options)(function)
        except RuntimeError:  # neither the package nor the home folder is writable
            return njit(nogil=True, **options)(function)

    return wrap
