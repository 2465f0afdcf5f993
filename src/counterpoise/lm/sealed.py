"""JSON that notices damage: a digest of its own contents, in objects and in lines.

Files of earlier releases have none and are read as they are.
"""

from __future__ import annotations

import hashlib
import json
import re
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

DIGEST = "digest"
LINE_END = re.compile(r', "crc32": "([0-9a-f]{8})"}')


class DamagedFile(ValueError):
    """A file does not hold what was written to it."""


def seal(value: Mapping[str, Any]) -> dict[str, Any]:
    """Add the digest of an object to it.

    >>> sorted(seal({"step": 1}))
    ['digest', 'step']
    """
    return {**value, DIGEST: _digest(value)}


def read_sealed(path: Path, remedy: str, since: int | None = None) -> dict[str, Any]:
    """Read an object that `seal` closed, without its digest; raise `DamagedFile` otherwise.

    An object without a digest is accepted, unless its version is one that has digests: ``since``.
    """
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise DamagedFile(f"{str(path)!r} is damaged: not JSON ({error}); {remedy}") from None
    if not isinstance(value, dict):
        raise DamagedFile(f"{str(path)!r} is damaged: not a JSON object; {remedy}")
    known = value.pop(DIGEST, None)
    if known is None and (since is None or value.get("version") != since):
        return value
    if known != _digest(value):
        raise DamagedFile(
            f"{str(path)!r} is damaged: its contents do not match their digest; {remedy}"
        )
    return value


def _digest(value: Mapping[str, Any]) -> str:
    inner = {k: v for k, v in value.items() if k != DIGEST}
    text = json.dumps(inner, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:32]


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
