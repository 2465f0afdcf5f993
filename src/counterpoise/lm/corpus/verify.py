"""Check token files against their checksums, once, and remember which were whole.

A file is checked again when its size, times or inode change. What was found is kept in a small
file beside the tokens. If that cannot be written, every process checks for itself.
"""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from counterpoise.lm.corpus.metadata import AGAIN_FROM
from counterpoise.storage.files import checksum, write_json

if TYPE_CHECKING:
    from counterpoise.lm.corpus.tokens import Tokens

logger = logging.getLogger("counterpoise")

VERIFIED, FORMAT, VERSION = ".verified.json", "counterpoise verified files", 1
# A file can change without its times changing, as long as these are so young (in nanoseconds).
SETTLED = 2_000_000_000
# Files that take long enough to say so.
LARGE = 1 << 30
CHUNK = 1 << 22
_known: dict[str, list[Any]] = {}  # of this process


def verify_tokens(tokens: Tokens) -> None:
    """Raise ValueError if the files of a split are not as they were written.

    Files of release 0.1, which have no checksums, are checked for ids outside of the vocabulary and
    for documents that do not end with the end token.
    """
    if tokens.checksums is None:
        stated = ["", ""]
        if not _remembered(tokens, stated):
            _check_ids(tokens)
            _check_ends(tokens)
            _remember(tokens, stated)
        return
    stated = list(tokens.checksums)
    if _remembered(tokens, stated):
        return
    before = _states(tokens, stated)
    size = sum(path.stat().st_size for path in _paths(tokens))
    if size >= LARGE:
        logger.info("checking %s, %.1f GB, once", tokens.path, size / 1e9)
    for path, expected in zip(_paths(tokens), stated, strict=True):
        found = checksum(path)
        if found != expected:
            raise ValueError(
                f"{str(path)!r} is damaged: its checksum is {found} and was {expected} when it was "
                f"written; {AGAIN_FROM}"
            )
    if before == _states(tokens, stated):  # else it changed while it was read
        _remember(tokens, stated)


def _paths(tokens: Tokens) -> list[Path]:
    return [tokens.path, tokens.ends_path]


def _states(tokens: Tokens, stated: list[str]) -> dict[str, list[Any]]:
    """Describe files so that changed ones are recognised."""
    found = {}
    for path, crc in zip(_paths(tokens), stated, strict=True):
        of = path.stat()
        found[path.name] = [of.st_size, of.st_mtime_ns, of.st_ctime_ns, of.st_ino, crc]
    return found


def _remembered(tokens: Tokens, stated: list[str]) -> bool:
    states = _states(tokens, stated)
    kept: dict[str, Any] | None = None
    for path in _paths(tokens):
        state = states[path.name]
        if _known.get(str(path.resolve())) == state:
            continue
        if kept is None:
            kept = _kept(tokens.folder)
        if kept.get(path.name) != state:
            return False
    return True


def _remember(tokens: Tokens, stated: list[str]) -> None:
    states = _states(tokens, stated)
    now = time.time_ns()
    settled = {
        name: state for name, state in states.items() if now - max(state[1], state[2]) > SETTLED
    }
    if not settled:
        return
    for path in _paths(tokens):
        if path.name in settled:
            _known[str(path.resolve())] = settled[path.name]
    head = {"format": FORMAT, "version": VERSION}
    with suppress(OSError):  # a corpus may be on a disk that is only read
        files = _kept(tokens.folder) | settled
        write_json(tokens.folder / VERIFIED, head | {"files": files})


def _kept(folder: Path) -> dict[str, Any]:
    """Return what was remembered; nothing if the file is missing or damaged."""
    try:
        found = json.loads((folder / VERIFIED).read_text(encoding="utf-8"))
        of_us = (found["format"], found["version"]) == (FORMAT, VERSION)
        return dict(found["files"]) if of_us else {}
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        return {}


def _check_ids(tokens: Tokens) -> None:
    for start, ids in _chunks(tokens.path, tokens.dtype):
        if int(ids.max()) >= tokens.vocab_size:
            at = start + int(np.argmax(ids >= tokens.vocab_size))
            raise ValueError(
                f"{str(tokens.path)!r} is damaged: token {at} is {ids[at - start]}, outside of the "
                f"vocabulary of {tokens.vocab_size}; {AGAIN_FROM}"
            )


def _check_ends(tokens: Tokens) -> None:
    """Check that documents follow one another, up to the last token."""
    last = 0
    for start, ends in _chunks(tokens.ends_path, np.dtype("<u8")):
        ends = ends.astype(np.int64)
        steps = np.diff(ends, prepend=last)
        wrong = (steps <= 0) | (ends > tokens.n_tokens)
        if not wrong.any():
            wrong = tokens.at(ends - 1) != tokens.end
        if wrong.any():
            raise ValueError(
                f"{str(tokens.ends_path)!r} or {str(tokens.path)!r} is damaged: document "
                f"{start + int(np.argmax(wrong))} does not end with the token {tokens.end}; "
                f"{AGAIN_FROM}"
            )
        last = int(ends[-1])
    if last != tokens.n_tokens:
        raise ValueError(
            f"{str(tokens.ends_path)!r} is damaged: the last document ends at {last} of "
            f"{tokens.n_tokens} tokens; {AGAIN_FROM}"
        )


def _chunks(path: Path, dtype: np.dtype) -> Iterator[tuple[int, np.ndarray]]:
    with open(path, "rb") as file:
        start = 0
        while data := file.read(CHUNK * dtype.itemsize):
            found = np.frombuffer(data, dtype)
            yield start, found
            start += len(found)


def forget(folder: Path) -> None:
    """Forget what was remembered about a domain that is about to be written anew."""
    (folder / VERIFIED).unlink(missing_ok=True)
    root = str(folder.resolve()) + os.sep
    for path in [path for path in _known if path.startswith(root)]:
        del _known[path]
