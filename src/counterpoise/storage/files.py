"""Files that are complete or absent, and folders that one process writes at a time."""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import sys
import time
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

LOCK = ".lock"
PROBE = 1 << 16
CHUNK = 1 << 22


def write_json(path: Path, value: Any) -> None:
    """Write a file so that a crash leaves either the old or the new one."""
    write_text(path, json.dumps(value, indent=2) + "\n")


def write_text(path: Path, text: str) -> None:
    write_bytes(path, text.encode())


def write_bytes(path: Path, data: bytes) -> None:
    draft = draft_of(path)
    try:
        with open(draft, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(draft, path)
    finally:
        draft.unlink(missing_ok=True)
    sync_folder(path.parent)


def draft_of(path: Path) -> Path:
    """A temporary name beside a file, which no other process uses."""
    return path.with_name(f".{path.name}.{secrets.token_hex(4)}.new")


def read_json(
    path: Path,
    kind: str,
    version: int | tuple[int, ...],
    remedy: str = "write it again, or give another",
) -> dict[str, Any]:
    """Read a file that `write_json` wrote, and check its kind and version.

    Errors end with the remedy. Several versions may be given if all of them can be read.
    """
    versions = (version,) if isinstance(version, int) else version
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{str(path)!r} is not JSON ({error}); {remedy}") from None
    if not isinstance(value, dict) or value.get("format") != kind:
        raise ValueError(f"{str(path)!r} is not a {kind}; {remedy}")
    if value.get("version") not in versions:
        raise ValueError(
            f"{str(path)!r} has version {value.get('version')!r} and this library reads version "
            f"{' and '.join(map(str, versions))}; use the library that wrote it, or {remedy}"
        )
    return value


def probed(files: Iterable[Path]) -> str:
    """A digest of files that reads little of them.

    It covers their sizes, and bytes at the beginning, in the middle and at the end.
    """
    sha = hashlib.sha256()
    for path in files:
        size = path.stat().st_size
        sha.update(size.to_bytes(8, "little"))
        with path.open("rb") as file:
            for at in (0, size // 2, max(size - PROBE, 0)):
                file.seek(at)
                sha.update(file.read(PROBE))
    return sha.hexdigest()[:16]


def checksum(path: Path) -> str:
    """Return the CRC-32 of a file in hexadecimal.

    It detects damage, not forgery, and is read at the speed of the disk.
    """
    crc = 0
    with path.open("rb") as file:
        while chunk := file.read(CHUNK):
            crc = zlib.crc32(chunk, crc)
    return f"{crc:08x}"


def sync_folder(folder: Path) -> None:
    """Flush the names in a folder to disk, if the system allows it."""
    if sys.platform != "win32":
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


@contextmanager
def locked(folder: Path, wait: float = 0.0) -> Iterator[None]:
    """Lock a folder until the block or the process ends.

    If another process holds it, raise RuntimeError after ``wait`` seconds.
    """
    path = folder / LOCK
    handle = _take(path, time.monotonic() + wait)
    try:
        os.truncate(handle, 0)
        os.write(handle, str(os.getpid()).encode())
        yield
    finally:
        if sys.platform != "win32":  # there, an open file cannot be removed
            path.unlink(missing_ok=True)
        os.close(handle)


def _take(path: Path, until: float) -> int:
    while True:
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            if sys.platform == "win32":
                msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)
            else:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            holder = "" if sys.platform == "win32" else os.read(handle, 20).decode()
            os.close(handle)
            if time.monotonic() < until:
                time.sleep(0.2)
                continue
            raise RuntimeError(
                f"another process{holder and f' ({holder})'} is writing to {str(path.parent)!r}; "
                "wait for it, or choose another folder"
            ) from None
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(handle), os.stat(path)):
                return handle
        os.close(handle)  # its holder removed the file before we locked it
