"""Compilation with numba. Importing this module imports numba, so import it where it is used."""

# Numba finds the types itself.
# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

import os
import sys
from types import ModuleType
from typing import Any

from numba import njit

# Nothing calls a kernel as a C function, and the wrapper for that takes time to compile.
LEAN: dict[str, Any] = {"no_cfunc_wrapper": True}


def compiled(**options):
    """Compile to run without the interpreter lock, and cache the result on disk if possible."""

    def wrap(function):
        try:
            found = njit(nogil=True, cache=True, **LEAN, **options)(function)
        except RuntimeError:  # neither the package nor the home folder is writable
            return njit(nogil=True, **LEAN, **options)(function)
        _stamp(found)
        return found

    return wrap


def _stamp(dispatcher: Any) -> None:
    """Have the cache forget a kernel if a file changes that functions inlined in it come from.

    By itself, numba looks at the kernel's own file alone.
    """
    files = sources(sys.modules[dispatcher.py_func.__module__])
    times = [os.stat(file) for file in sorted(files) if os.path.exists(file)]
    cache = getattr(getattr(dispatcher, "_cache", None), "_cache_file", None)
    if cache is not None and len(times) > 1:
        stamp = tuple((time.st_mtime, time.st_size) for time in times)
        cache._source_stamp = stamp  # noqa: SLF001  there is no public way


def sources(module: ModuleType) -> set[str]:
    """Return the file of a module of this package, and of those whose functions it refers to."""
    package = __name__.partition(".")[0] + "."
    found: dict[str, str] = {}
    todo = [module]
    while todo:
        module = todo.pop()
        if module.__name__ in found or not module.__file__:
            continue
        found[module.__name__] = module.__file__
        owners = {getattr(value, "__module__", None) for value in vars(module).values()}
        names = [owner for owner in owners if isinstance(owner, str) and owner.startswith(package)]
        todo += [sys.modules[name] for name in names if name in sys.modules]
    return set(found.values())
