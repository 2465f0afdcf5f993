"""A growing file of losses, one line of JSON per evaluation, written by any trainer."""

from __future__ import annotations

import io
import json
import math
import os
import sys
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from counterpoise.common.arguments import is_number
from counterpoise.storage.files import check_regular, open_regular

TABLES = ("losses", "counts", "errors", "pieces")  # entries with a number for each domain
ENTRIES = ("step", *TABLES, "total")
FORM = '{"step": 400, "losses": {"web": 2.9, "code": 1.4}}'
CHUNK = 1 << 20
# Bytes of one line; more is no line of losses.
LONGEST = 1 << 26
REMEDY = (
    "if the trainer went back to a checkpoint or started over, start the watcher again without its "
    "state file, and it reads the whole file anew"
)


@dataclass(frozen=True)
class LossLine:
    """What a trainer measured at a step, by domain; NaN for a domain without a number."""

    step: int
    losses: dict[str, float]
    counts: dict[str, float] | None = None
    errors: dict[str, float] | None = None
    pieces: dict[str, float] | None = None
    total: float | None = None


def parse_losses(line: bytes) -> LossLine:
    """Read a line; raise ValueError that says what to write instead.

    >>> parse_losses(b'{"step": 400, "losses": {"web": 2.9, "code": null}}').losses
    {'web': 2.9, 'code': nan}
    """
    try:
        found = json.loads(line.decode(), object_pairs_hook=_without_repeats)
    except RecursionError:
        raise ValueError(f"it is nested too deeply; write a line such as {FORM}") from None
    except ValueError as error:
        raise ValueError(f"it is not JSON ({error}); write a line such as {FORM}") from None
    if not isinstance(found, dict):
        raise ValueError(f"it is not an object; write a line such as {FORM}")
    unknown = [key for key in found if key not in ENTRIES]
    if unknown:
        raise ValueError(
            f"there is no entry {unknown[0]!r}; write only {', '.join(map(repr, ENTRIES))}"
        )
    missing = [key for key in ("step", "losses") if key not in found]
    if missing:
        raise ValueError(f"it has no {missing[0]!r}; write a line such as {FORM}")
    step, total = found["step"], found.get("total")
    if isinstance(step, bool) or not isinstance(step, int) or step < 0:
        raise ValueError(f"its step must be a whole number >= 0; got {step!r}")
    if total is not None and not (is_number(total) and math.isfinite(_float(total, "its total"))):
        raise ValueError(f"its total must be a number; got {total!r}")
    tables = {key: None if found.get(key) is None else _numbers(key, found[key]) for key in TABLES}
    if not tables["losses"]:
        raise ValueError(f"it has no losses; write a line such as {FORM}")
    return LossLine(step=step, total=total, **tables)  # type: ignore[arg-type]


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a name comes twice")
    return found


def _numbers(entry: str, value: Any) -> dict[str, float]:
    if not isinstance(value, Mapping):
        raise ValueError(f"its {entry} must be an object of numbers by domain; got {value!r}")
    for name, number in value.items():
        if number is not None and not is_number(number):
            raise ValueError(
                f"its {entry} must be numbers, or null if unknown; domain {name!r} has {number!r}"
            )
    return {
        name: math.nan if number is None else _float(number, f"its {entry} for {name!r}")
        for name, number in value.items()
    }


def _float(number: float, what: str) -> float:
    try:
        return float(number)
    except OverflowError:
        digits = str(number)
        raise ValueError(
            f"{what} must be a number below {sys.float_info.max:.2g}; got {digits[:8]}..., which "
            f"has {len(digits)} digits"
        ) from None


class LossFile:
    """The complete lines of a file that grows, from where they were read last.

    Attributes
    ----------
    bytes, lines : int
        What was read so far.
    crc : int
        Checksum of these bytes, which shows after a restart whether they are still the same.
    behind : bool
        Whether the file had more to read than the lines that `pending` returned.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self.bytes = self.lines = self.crc = 0
        self._last = b""
        self.behind = False

    def resume(self, state: Mapping[str, Any]) -> None:
        """Continue after the bytes of a state; raise ValueError if they are no longer there."""
        size, crc, left, tail = int(state["bytes"]), 0, int(state["bytes"]), b""
        with self._opened() as file:
            while left and (data := file.read(min(left, CHUNK))):
                crc, left, tail = zlib.crc32(data, crc), left - len(data), (tail + data)[-CHUNK:]
        if left or crc != int(state["crc"]):
            raise self._changed(f"its first {size:,} bytes are not those that were read")
        self.bytes, self.lines, self.crc = size, int(state["lines"]), crc
        self._last = tail[tail.rfind(b"\n", 0, -1) + 1 :]

    def state_dict(self) -> dict[str, int]:
        """Return what was read so far."""
        return {"bytes": self.bytes, "lines": self.lines, "crc": self.crc}

    def pending(self) -> list[bytes]:
        """Return the next complete lines, without counting them as read.

        A line without an end is still being written. There are none if the file does not exist and
        nothing of it was read.
        """
        if not self.bytes and not self.path.exists():
            return []
        with self._opened() as file:
            size, known = os.fstat(file.fileno()).st_size, len(self._last)
            if size < self.bytes:
                raise self._changed(f"it is shorter than the {self.bytes:,} bytes that were read")
            file.seek(self.bytes - known)
            data = file.read(known + CHUNK)
            if data[:known] != self._last:
                raise self._changed(f"its line {self.lines} is not the one that was read")
            data = data[known:]
            while data and b"\n" not in data and (more := file.read(CHUNK)):
                data += more
                if len(data) > LONGEST:
                    raise ValueError(
                        f"{str(self.path)!r}, line {self.lines + 1}, is longer than {LONGEST:,} "
                        f"bytes; write lines such as {FORM}"
                    )
            self.behind = size > file.tell()
        *lines, _ = data.split(b"\n")
        return [line + b"\n" for line in lines]

    def count(self, line: bytes) -> None:
        """Count a pending line as read."""
        self.bytes += len(line)
        self.lines += 1
        self.crc = zlib.crc32(line, self.crc)
        self._last = line[-CHUNK:]

    def _opened(self) -> io.BufferedReader:
        try:
            check_regular(self.path)
        except FileNotFoundError:
            if not self.bytes:
                raise FileNotFoundError(
                    f"there is no file {str(self.path)!r}; check the path"
                ) from None
            raise self._changed("it is gone") from None
        return io.BufferedReader(open_regular(self.path))

    def _changed(self, how: str) -> ValueError:
        return ValueError(f"{str(self.path)!r} was cut or replaced: {how}; {REMEDY}")
