"""Frozen dataclasses from TOML tables, and back: strict, with errors that name the key."""

from __future__ import annotations

import dataclasses
import difflib
import json
import math
import os
import tomllib
import types
import typing
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")


def read_toml(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The tables of a file."""
    file = Path(path)
    if not file.is_file():
        raise FileNotFoundError(f"there is no configuration file {str(file)!r}")
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{str(file)!r} is not TOML: {error}") from None


def build(kind: type[T], table: Any, where: str = "") -> T:
    """An object of a dataclass from a table; tables within are dataclasses within.

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
    ValueError: there is no setting 'z'; known are 'x'
    """
    if not isinstance(table, Mapping):
        raise ValueError(f"{where or 'the configuration'} must be a table; got {table!r}")
    kinds = typing.get_type_hints(kind)
    known = [f.name for f in dataclasses.fields(kind) if f.init]  # type: ignore[arg-type]
    for key in table:
        if key not in known:
            close = difflib.get_close_matches(key, known, 1)
            remedy = f"did you mean {close[0]!r}?" if close else f"known are {_listed(known)}"
            raise ValueError(f"there is no setting {_name(where, key)!r}; {remedy}")
    found = {key: _converted(value, kinds[key], _name(where, key)) for key, value in table.items()}
    missing = [
        f.name
        for f in dataclasses.fields(kind)  # type: ignore[arg-type]
        if f.default is dataclasses.MISSING
        and f.default_factory is dataclasses.MISSING
        and f.name not in found
    ]
    if missing:
        raise ValueError(f"the setting {_name(where, missing[0])!r} is missing; it has no default")
    return kind(**found)


def with_changes(table: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """A copy in which settings named by their path, ``"train.seed"``, have other values.

    >>> with_changes({"train": {"seed": 0}}, {"train.seed": 1, "model.layers": 2})
    {'train': {'seed': 1}, 'model': {'layers': 2}}
    """
    out = _copied(table)
    for path, value in changes.items():
        *tables, last = path.split(".")
        inner = out
        for name in tables:
            inner = inner.setdefault(name, {})
            if not isinstance(inner, dict):
                raise ValueError(f"cannot set {path!r}: {name!r} is not a table")
        inner[last] = _copied(value)
    return out


def parse_changes(texts: Iterable[str]) -> dict[str, Any]:
    """``["train.seed=1"]`` as changes; values are TOML, and what is not TOML is a string.

    >>> parse_changes(["train.seed=1", "reweight.rule=pd-kl", "reweight.nu=0.1"])
    {'train.seed': 1, 'reweight.rule': 'pd-kl', 'reweight.nu': 0.1}
    """
    found: dict[str, Any] = {}
    for text in texts:
        path, equals, value = text.partition("=")
        if not equals or not path.strip():
            raise ValueError(f"--set {text!r} must be written as name.of.setting=value")
        try:
            found[path.strip()] = tomllib.loads(f"value = {value}")["value"]
        except tomllib.TOMLDecodeError:
            found[path.strip()] = value.strip()
    return found


def as_table(value: Any) -> dict[str, Any]:
    """A dataclass as plain tables; None, which TOML does not know, is left out."""
    out = {}
    for field in dataclasses.fields(value):
        found = getattr(value, field.name)
        if found is not None and field.init:
            out[field.name] = _plain(found)
    return out


def to_toml(table: Mapping[str, Any], head: str = "") -> str:
    """Plain tables as the text of a file."""
    lines = [f"# {line}" if line else "#" for line in head.splitlines()]
    _write(lines, table, ())
    return "\n".join(lines).strip("\n") + "\n"


def _write(lines: list[str], table: Mapping[str, Any], path: tuple[str, ...]) -> None:
    inner = {k: v for k, v in table.items() if isinstance(v, Mapping) and len(path) == 0}
    arrays = {k: v for k, v in table.items() if _is_tables(v) and len(path) <= 1}
    for key, value in table.items():
        if key not in inner and key not in arrays:
            lines.append(f"{_key(key)} = {_value(value)}")
    for key, value in inner.items():
        lines += ["", f"[{'.'.join((*path, _key(key)))}]"]
        _write(lines, value, (*path, _key(key)))
    for key, values in arrays.items():
        for value in values:
            lines += ["", f"[[{'.'.join((*path, _key(key)))}]]"]
            _write(lines, value, (*path, _key(key), ""))


def _is_tables(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(v, Mapping) for v in value)


def _key(key: str) -> str:
    plain = key.replace("-", "").replace("_", "")
    return key if plain.isalnum() and plain.isascii() else _quoted(key)


def _value(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_key(k)} = {_value(v)}" for k, v in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(_value, value)) + "]"
    if isinstance(value, float):
        return str(value) if math.isfinite(value) else ("nan" if value != value else f"{value}")
    return _quoted(value) if isinstance(value, str) else json.dumps(value)


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return as_table(value)
    if isinstance(value, Mapping):
        return {k: _plain(v) for k, v in value.items()}
    return [_plain(v) for v in value] if isinstance(value, (list, tuple)) else value


def _copied(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {k: _copied(v) for k, v in value.items()}
    return [_copied(v) for v in value] if isinstance(value, (list, tuple)) else value


def _converted(value: Any, kind: Any, name: str) -> Any:
    """The value as its annotation has it; only whole numbers become others, as floats."""
    origin = typing.get_origin(kind)
    if origin in (typing.Union, types.UnionType):
        return _one_of(value, typing.get_args(kind), name)
    if dataclasses.is_dataclass(kind) and isinstance(kind, type):
        return value if isinstance(value, kind) else build(kind, value, name)
    if origin is tuple:
        if not isinstance(value, (list, tuple)):
            raise ValueError(f"{name} must be a list; got {value!r}")
        (inner, *_) = typing.get_args(kind)
        return tuple(_converted(v, inner, f"{name}[{i}]") for i, v in enumerate(value))
    if origin is dict:
        if not isinstance(value, Mapping):
            raise ValueError(f"{name} must be a table; got {value!r}")
        _, inner = typing.get_args(kind)
        return {k: _converted(v, inner, _name(name, k)) for k, v in value.items()}
    if kind is Any or (isinstance(value, kind) and (kind is bool or not isinstance(value, bool))):
        return value
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if kind is int and isinstance(value, float) and value.is_integer():  # 1e6 tokens
        return int(value)
    names = {float: "a number", int: "a whole number", str: "a string", bool: "true or false"}
    raise ValueError(f"{name} must be {names.get(kind, kind)}; got {value!r}")


def _one_of(value: Any, kinds: tuple[Any, ...], name: str) -> Any:
    problems = []
    for kind in kinds:
        if kind is type(None):
            if value is None:
                return None
            continue
        try:
            return _converted(value, kind, name)
        except ValueError as error:
            problems.append(str(error))
    raise ValueError("; or ".join(dict.fromkeys(problems)))


def _name(where: str, key: str) -> str:
    return f"{where}.{key}" if where else key


def _listed(names: list[str]) -> str:
    return ", ".join(map(repr, names))
