"""Checksums of large files, which are read once and remembered until the file changes.

A file counts as changed when its size, times or inode do. What was read is kept in a small file:
beside a corpus, or in the user's cache folder for models and for folders that cannot be written.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from counterpoise.storage.files import checksum, read_regular, write_json

logger = logging.getLogger("counterpoise")

VERIFIED, FORMAT, VERSION = ".verified.json", "counterpoise verified files", 1
# A file can change without its times changing, as long as these are so young (in nanoseconds).
SETTLED = 2_000_000_000
# Files that take long enough to say so.
LARGE = 1 << 30

State = list[int]
Record = list[Any]  # the state, and the checksum or another finding
_known: dict[str, Record] = {}  # what this process has read
_said: set[str] = set()


def checksums_once(
    paths: Sequence[Path], stated: Sequence[str] | None = None, *, beside: bool = False
) -> list[str]:
    """Return the CRC-32 of files; read only those that changed since they were last read.

    Parameters
    ----------
    paths : sequence of Path
    stated : sequence of str, optional
        What the checksums should be. Others are not remembered, so that damage is always read.
    beside : bool
        Whether to remember in the files' own folder, for all who read it.
    """
    found, fresh = [], {}
    expected: Sequence[str | None] = [None] * len(paths) if stated is None else stated
    for path, wanted in zip(paths, expected, strict=True):
        before = state_of(path)
        known = recall(path, beside=beside)
        if not known or (wanted is not None and known != wanted):
            if before[0] >= LARGE:
                logger.info("checking %s, %.1f GB, once", path, before[0] / 1e9)
            known = checksum(path)
            if wanted is None or known == wanted:
                fresh[path] = [*before, known]
        found.append(known)
    remember(fresh, beside=beside)
    return found


def state_of(path: Path) -> State:
    """Describe a file so that a changed one is recognised."""
    of = path.stat()
    return [of.st_size, of.st_mtime_ns, of.st_ctime_ns, of.st_ino]


def recall(path: Path, *, beside: bool = False) -> str | None:
    """Return what was found in a file; None if it is not known or the file has changed."""
    state, real = state_of(path), path.resolve()
    if (found := _finding(_known.get(str(real)), state)) is not None:
        return found
    places = [(path.parent / VERIFIED, path.name)] if beside else []
    if (cache := _cache_of(real.parent)) is not None:
        places.append((cache, real.name))
    for file, name in places:
        record = _kept(file).get(name)
        if (found := _finding(record, state)) is not None:
            _known[str(real)] = [*state, found]
            return found
    return None


def remember(fresh: Mapping[Path, Record], *, beside: bool = False) -> None:
    """Remember findings by the states before; not of files that are young or have changed since."""
    now = time.time_ns()
    left = {
        path: record
        for path, record in fresh.items()
        if now - max(record[1], record[2]) > SETTLED and record[:4] == state_of(path)
    }
    _known.update({str(path.resolve()): record for path, record in left.items()})
    if beside:
        for folder, named in _by_folder(left).items():
            if _write(folder / VERIFIED, named):
                left = {path: record for path, record in left.items() if path.parent != folder}
    real = {path.resolve(): record for path, record in left.items()}
    for folder, named in _by_folder(real).items():
        cache = _cache_of(folder)
        if (cache is None or not _write(cache, named)) and str(folder) not in _said:
            _said.add(str(folder))
            logger.warning(
                "%s has been checked, but this cannot be remembered, so it is read again at every "
                "start; set XDG_CACHE_HOME to a folder that you can write to",
                folder,
            )


def _by_folder(records: Mapping[Path, Record]) -> dict[Path, dict[str, Record]]:
    found: dict[Path, dict[str, Record]] = {}
    for path, record in records.items():
        found.setdefault(path.parent, {})[path.name] = record
    return found


def known() -> dict[str, Record]:
    """Return what this process remembers, for other processes to `accept`."""
    return dict(_known)


def accept(found: Mapping[str, Record]) -> None:
    """Remember what another process found. It counts where the same files have the same states."""
    _known.update(found)


def forget(folder: Path) -> None:
    """Forget the files of a folder that are about to be written anew."""
    (folder / VERIFIED).unlink(missing_ok=True)
    real = folder.resolve()
    if (cache := _cache_of(real)) is not None:
        with suppress(OSError):
            cache.unlink(missing_ok=True)
    root = str(real) + os.sep
    for path in [path for path in _known if path.startswith(root)]:
        del _known[path]


def _finding(record: Any, state: State) -> str | None:
    if isinstance(record, list) and len(record) == 5 and record[:4] == state:
        return record[4] if isinstance(record[4], str) else None
    return None


def cache_folder() -> Path:
    """Return the user's cache folder; raise RuntimeError if the user has no home."""
    given = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return (given if given.is_absolute() else Path.home() / ".cache") / "counterpoise"


def _cache_of(folder: Path) -> Path | None:
    """Return the file that remembers a folder in the user's cache."""
    name = hashlib.sha256(os.fsencode(folder)).hexdigest()[:32]
    with suppress(RuntimeError):
        return cache_folder() / "checksums" / f"{name}.json"
    return None


def _write(file: Path, named: dict[str, Record]) -> bool:
    """Add records to a file; return whether that was possible."""
    try:
        if file.name != VERIFIED:
            file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        head = {"format": FORMAT, "version": VERSION}
        write_json(file, head | {"files": _kept(file) | named})
    except OSError:
        return False
    return True


def _kept(file: Path) -> dict[str, Any]:
    """Return what was remembered; nothing if the file is missing or damaged."""
    try:
        found = json.loads(read_regular(file))
        of_us = (found["format"], found["version"]) == (FORMAT, VERSION)
        return dict(found["files"]) if of_us else {}
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        return {}
