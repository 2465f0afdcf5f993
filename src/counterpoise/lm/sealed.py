"""JSON that notices damage: a checksum of its own contents, in objects and in lines.

Files of earlier releases have none and are read as they are.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from counterpoise.storage.files import check_format, read_regular, write_json

SEAL = "crc32"  # the entry that holds the checksum of all others
LINE_END = re.compile(rf', "{SEAL}": "([0-9a-f]{{8}})"}}')


class DamagedFile(ValueError):
    """A file does not hold what was written to it."""


def seal(value: Mapping[str, Any]) -> dict[str, Any]:
    """Add the checksum of an object's entries to it.

    >>> sorted(seal({"step": 1}))
    ['crc32', 'step']
    """
    return {**value, SEAL: _checksum(value)}


def is_whole(value: Mapping[str, Any]) -> bool:
    """Return whether an object still has the entries that it was sealed with.

    >>> is_whole(seal({"step": 1})), is_whole({**seal({"step": 1}), "step": 2})
    (True, False)
    """
    return value.get(SEAL) == _checksum(value)


def write_sealed(path: Path, value: Mapping[str, Any]) -> None:
    write_json(path, seal(value))


def read_sealed(
    path: Path,
    remedy: str,
    *,
    kind: str | None = None,
    versions: tuple[int, ...] = (),
    since: int | None = None,
    new_entry: str | None = None,
) -> dict[str, Any]:
    """Read an object that `seal` closed, without its checksum; raise `DamagedFile` otherwise.

    Parameters
    ----------
    kind, versions : str, tuple of int
        The format and the versions that can be read; any if not given.
    since : int, optional
        A version that has checksums. Objects of others are accepted without one.
    new_entry : str, optional
        An entry that only objects with checksums have, if there are no versions.
    """
    value = _parsed(read_regular(path), repr(str(path)), remedy)
    if kind is not None:
        check_format(path, value, kind, versions, remedy)
    new = (since is not None and value.get("version") == since) or new_entry in value
    if SEAL not in value and not new:
        return value
    return _unsealed(value, repr(str(path)), remedy)


def open_sealed(data: bytes, what: str, remedy: str) -> dict[str, Any]:
    """Open the text of a sealed object, without its checksum; raise `DamagedFile` otherwise."""
    return _unsealed(_parsed(data, what, remedy), what, remedy)


def _parsed(data: bytes, what: str, remedy: str) -> dict[str, Any]:
    try:
        value = json.loads(data.decode())
    except (ValueError, RecursionError) as error:
        raise DamagedFile(f"{what} is damaged: not JSON ({error}); {remedy}") from None
    if not isinstance(value, dict):
        raise DamagedFile(f"{what} is damaged: not a JSON object; {remedy}")
    return value


def _unsealed(value: dict[str, Any], what: str, remedy: str) -> dict[str, Any]:
    if not is_whole(value):
        raise DamagedFile(f"{what} is damaged: its contents do not match their checksum; {remedy}")
    return {key: entry for key, entry in value.items() if key != SEAL}


def _checksum(value: Mapping[str, Any]) -> str:
    inner = {key: entry for key, entry in value.items() if key != SEAL}
    text = json.dumps(inner, sort_keys=True, separators=(",", ":"))
    return f"{zlib.crc32(text.encode()):08x}"


def seal_line(text: str) -> str:
    """Close a line that holds a JSON object with its checksum.

    >>> seal_line('{"step": 1}')
    '{"step": 1, "crc32": "3a87913d"}'
    """
    return f'{text[:-1]}, "crc32": "{zlib.crc32(text.encode()):08x}"}}'


def open_line(line: str) -> Any:
    """Read a line; raise `DamagedFile`, or another ValueError, if it is not as it was.

    >>> open_line(seal_line('{"step": 1}'))
    {'step': 1}
    """
    end = LINE_END.search(line, max(len(line) - 22, 0))
    if end is not None and end.end() == len(line):
        text = line[: end.start()] + "}"
        if zlib.crc32(text.encode()) != int(end[1], 16):
            raise DamagedFile("its checksum does not match")
        return json.loads(text)
    if line.endswith('"}'):  # no record of ours ends in a string but for its checksum
        raise DamagedFile("its checksum is not readable")
    return json.loads(line)
