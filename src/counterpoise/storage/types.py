"""Checks of values against the annotations of their classes, for content that files declare."""

from __future__ import annotations

import builtins
import sys
from collections.abc import Callable, Mapping
from functools import lru_cache
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import numpy as np


def check_types(made: type, values: Mapping[str, Any], known: Callable[[str], Any]) -> None:
    """Raise ValueError if a value is not of the type that the class annotates it with.

    ``known`` returns the type of a name that the module of the class does not import at run time;
    None if there is no such type, and then the annotation is not checked.
    """
    hints = _hints(made, known)
    for name, value in values.items():
        if not fits(value, hints.get(name, Any)):
            raise ValueError(f"{made.__name__}.{name} is {value!r:.60}, of the wrong type")


def fits(value: Any, hint: Any) -> bool:
    """Whether a value is of an annotated type; an int is also a float.

    >>> fits({"a": (1, 2.5)}, dict[str, tuple[float, ...]])
    True
    >>> fits([True], list[int])
    False
    """
    origin, args = get_origin(hint), get_args(hint)
    if hint is Any:
        return True
    if origin in (Union, UnionType):
        return any(fits(value, one) for one in args)
    if origin is Literal:
        return any(type(value) is type(one) and value == one for one in args)
    if hint in (int, float):
        return _is_number(value, whole=hint is int)
    if hint is None:
        return value is None
    if origin is not None:
        return _items_fit(value, origin, args)
    return not isinstance(hint, type) or isinstance(value, hint)


def _is_number(value: Any, *, whole: bool) -> bool:
    if isinstance(value, int):
        return not isinstance(value, bool) and (whole or abs(value) < 1 << 1023)
    return isinstance(value, np.integer if whole else (float, np.integer, np.floating))


def _items_fit(value: Any, origin: Any, args: tuple[Any, ...]) -> bool:
    if not isinstance(origin, type):
        return True
    if not isinstance(value, origin) or origin is np.ndarray:
        return isinstance(value, origin)
    items: Any = value
    if isinstance(items, Mapping):
        return all(fits(k, args[0]) and fits(v, args[1]) for k, v in items.items())
    if origin is tuple and args[-1] is not Ellipsis:
        return len(items) == len(args) and all(map(fits, items, args))
    return not isinstance(items, (list, tuple)) or all(fits(item, args[0]) for item in items)


class _Names(dict[str, Any]):
    """Names that annotations may use; one that nobody knows is Any."""

    def __init__(self, module: Mapping[str, Any], known: Callable[[str], Any]) -> None:
        super().__init__(vars(builtins) | dict(module))
        self.known = known

    def __missing__(self, name: str) -> Any:
        found = self.known(name)
        return Any if found is None else found


@lru_cache(maxsize=256)
def _hints(made: type, known: Callable[[str], Any]) -> dict[str, Any]:
    hints: dict[str, Any] = {}
    for base in reversed(made.__mro__):
        ours = base.__module__.split(".")[0] == __name__.split(".")[0]
        if ours and "__annotations__" in vars(base):
            names = _Names(vars(sys.modules[base.__module__]), known)
            alone = type(base.__name__, (), {"__annotations__": base.__annotations__})
            hints |= get_type_hints(alone, localns=names)
    return {name: NoneType if hint is None else hint for name, hint in hints.items()}
