"""TOML files as frozen dataclasses: strict, with errors that name the setting.

msgspec and cattrs do not do this as well: neither suggests the setting that was meant nor shows the
value it got, and strict types would refuse ``tokens = 1e6``.
"""

from __future__ import annotations

import copy
import dataclasses
import difflib
import os
import tomllib
import types
import typing
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")

DEPTH = 50  # of tables and lists inside each other
KINDS = {float: "a number", int: "a whole number", str: "a string", bool: "true or false"}


def read_toml(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Read the tables of a file."""
    file = Path(path)
    if not file.is_file():
        raise FileNotFoundError(f"there is no configuration file {str(file)!r}; check the path")
    try:
        return _parsed(file.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, TooDeep) as error:
        raise ValueError(f"{str(file)!r} is not TOML: {error}") from None


def to_toml(table: Mapping[str, Any], head: str = "") -> str:
    """Write plain tables as the text of a file, with comments at its head."""
    import tomli_w

    comments = "".join(f"# {line}".rstrip() + "\n" for line in head.splitlines())
    return comments + tomli_w.dumps(table)


def build(kind: type[T], table: Any, where: str = "") -> T:
    """Make a dataclass from a table; tables inside it become dataclasses too.

    Examples
    --------
    >>> @dataclasses.dataclass(frozen=True)
    ... class Point:
    ...     x: float = 0.0
    >>> build(Point, {"x": 1})
    Point(x=1.0)
    >>> build(Point, {"z": 1})
    Traceback (most recent call last):
        ...
    ValueError: there is no setting 'z'; choose one of 'x'
    """
    _check_names(table, kind, where)  # in all tables, since a typo is also a missing setting
    return _built(kind, table, where)


def as_table(value: Any) -> dict[str, Any]:
    """Turn a dataclass into plain tables; None, which TOML lacks, is left out."""
    found = {f.name: getattr(value, f.name) for f in dataclasses.fields(value) if f.init}
    return {name: _plain(v) for name, v in found.items() if v is not None}


def with_changes(table: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Copy tables and change settings named by their path.

    >>> with_changes({"train": {"seed": 0}}, {"train.seed": 1, "model.layers": 2})
    {'train': {'seed': 1}, 'model': {'layers': 2}}
    """
    out = copy.deepcopy(dict(table))
    for path, value in changes.items():
        *tables, last = path.split(".")
        inner = out
        for name in tables:
            inner = inner.setdefault(name, {})
            if not isinstance(inner, dict):
                raise ValueError(f"cannot set {path!r}: {name!r} is not a table")
        inner[last] = copy.deepcopy(value)
    return out


def parse_changes(texts: Iterable[str]) -> dict[str, Any]:
    """Parse changes such as ``train.seed=1``; a value that is not TOML is a string.

    >>> parse_changes(["train.seed=1", "reweight.rule=pd-kl", "reweight.nu=0.1"])
    {'train.seed': 1, 'reweight.rule': 'pd-kl', 'reweight.nu': 0.1}
    """
    found: dict[str, Any] = {}
    for text in texts:
        path, equals, value = text.partition("=")
        if not equals or not path.strip():
            raise ValueError(f"a change must have the form name.of.setting=value; got {text!r}")
        try:
            found[path.strip()] = _parsed(f"value = {value}")["value"]
        except tomllib.TOMLDecodeError:
            found[path.strip()] = value.strip()
        except TooDeep as error:
            raise ValueError(f"cannot set {path.strip()!r}: {error}") from None
    return found


class TooDeep(ValueError):
    """Tables or lists are nested more deeply than any setting needs."""


def _parsed(text: str) -> dict[str, Any]:
    """Parse the text of a file; refuse one that is nested too deeply to work with."""
    try:
        found = tomllib.loads(text)
    except RecursionError:
        raise TooDeep(f"it is nested more than {DEPTH} levels deep") from None
    level: list[Any] = [found]
    for _ in range(DEPTH):
        if not level:
            return found
        level = [inner for value in level for inner in _inside(value)]
    raise TooDeep(f"it is nested more than {DEPTH} levels deep")


def _inside(value: Any) -> Iterable[Any]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()


def _check_names(value: Any, kind: Any, where: str) -> None:
    """Refuse names of no setting, in a table and in all tables inside it."""
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        others = [k for k in inner if k is not type(None)]
        if len(others) == 1:  # among several types, only the conversion can tell which is meant
            _check_names(value, others[0], where)
    elif origin is tuple and isinstance(value, (list, tuple)):
        for i, item in enumerate(value):
            _check_names(item, inner[0], f"{where}[{i}]")
    elif origin is dict and isinstance(value, Mapping):
        for key, item in value.items():
            _check_names(item, inner[1], _name(where, key))
    elif dataclasses.is_dataclass(kind) and isinstance(value, Mapping):
        fields = [f.name for f in dataclasses.fields(kind) if f.init]
        for key in value:
            if key not in fields:
                close = difflib.get_close_matches(key, fields, 1)
                names = ", ".join(map(repr, fields))
                remedy = f"did you mean {close[0]!r}?" if close else f"choose one of {names}"
                raise ValueError(f"there is no setting {_name(where, key)!r}; {remedy}")
        kinds = typing.get_type_hints(kind)
        for key, item in value.items():
            _check_names(item, kinds[key], _name(where, key))


def _built(kind: type[T], table: Any, where: str) -> T:
    """Make a dataclass from a table whose names have been checked."""
    if not isinstance(table, Mapping):
        raise ValueError(f"{where or 'the configuration'} must be a table; got {table!r}")
    kinds = typing.get_type_hints(kind)
    for field in dataclasses.fields(kind):  # type: ignore[arg-type]
        needed = field.default is field.default_factory is dataclasses.MISSING
        if field.init and needed and field.name not in table:
            raise ValueError(f"the setting {_name(where, field.name)!r} has no default; add it")
    return kind(**{k: _converted(v, kinds[k], _name(where, k)) for k, v in table.items()})


def _converted(value: Any, kind: Any, name: str) -> Any:
    """Convert a value to its annotation; only numbers change their type."""
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        return _one_of(value, inner, name)
    if dataclasses.is_dataclass(kind) and isinstance(kind, type):
        return value if isinstance(value, kind) else build(kind, value, name)
    if origin is tuple:
        if not isinstance(value, (list, tuple)):
            raise ValueError(f"{name} must be a list; got {value!r}")
        return tuple(_converted(v, inner[0], f"{name}[{i}]") for i, v in enumerate(value))
    if origin is dict:
        if not isinstance(value, Mapping):
            raise ValueError(f"{name} must be a table; got {value!r}")
        return {k: _converted(v, inner[1], _name(name, k)) for k, v in value.items()}
    if kind is Any or (isinstance(value, kind) and (kind is bool or not isinstance(value, bool))):
        return value
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if kind is int and isinstance(value, float) and value.is_integer():  # 1e6 tokens
        return int(value)
    raise ValueError(f"{name} must be {KINDS.get(kind, kind)}; got {value!r}")


def _one_of(value: Any, kinds: tuple[Any, ...], name: str) -> Any:
    """Convert to the first of several types that fits."""
    if value is None and type(None) in kinds:
        return None
    problems = []
    for kind in kinds:
        if kind is not type(None):
            try:
                return _converted(value, kind, name)
            except ValueError as error:
                problems.append(str(error))
    raise ValueError("; or ".join(dict.fromkeys(problems)))


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return as_table(value)
    if isinstance(value, Mapping):
        return {k: _plain(v) for k, v in value.items()}
    return [_plain(v) for v in value] if isinstance(value, (list, tuple)) else value


def _name(where: str, key: str) -> str:
    return f"{where}.{key}" if where else key
