"""Write one domain: token files, and a journal that survives a crash.

Tokens reach the disk first. Then a line of the journal records how far the source was read, and the
length and checksum of every file.
"""

from __future__ import annotations

import logging
import os
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from io import FileIO
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from counterpoise.lm.corpus.encoding import Encoded
from counterpoise.lm.corpus.journal import (
    JOURNAL,
    JournalEntry,
    last_sound,
    read_journal,
    sizes_of,
    write_journal,
)
from counterpoise.lm.corpus.metadata import INDEX, INDEX_FORMAT, VERSION, read_index
from counterpoise.lm.corpus.tokens import Tokens
from counterpoise.lm.sealed import write_sealed
from counterpoise.storage.files import sync_folder
from counterpoise.storage.remembered import forget

logger = logging.getLogger("counterpoise")

# The options in which two preparations may differ.
OPTIONS = (
    "pieces", "begin", "max_bytes", "tokenizer", "vocab_size", "end", "splits", "text", "source",
)  # fmt: skip


class Position(NamedTuple):
    """How far a source is read; see `Documents`."""

    part: int
    row: int
    rows: int
    empty: int
    taken: int = 0
    share: float | None = None


class DomainWriter:
    """Writes the folder of a domain.

    ``identity`` holds the options and the source as JSON. Only a preparation with the same identity
    may continue a domain.
    """

    def __init__(self, folder: Path, identity: dict[str, Any]) -> None:
        self.folder, self.identity = folder, identity
        self.name: str = identity["domain"]
        self.splits = list(identity["splits"])
        self.itemsizes = [np.dtype(identity["dtype"]).itemsize, 8] * len(self.splits)
        self.state = JournalEntry.nothing(len(self.splits))
        self._tokenless = 0  # documents of this run with text but without tokens
        self._anew = False

    def check(self, *, overwrite: bool) -> bool:
        """Return whether the domain is finished; raise if its folder holds something else.

        Damage is an error, unless the domain may be overwritten.
        """
        if not self.folder.exists():
            return False
        try:
            return self._check(overwrite)
        except ValueError as error:
            if not overwrite or not self._is_ours():
                raise
            logger.warning("domain %s is prepared anew: %s", self.name, error)
            self._anew = True
            return False

    def _check(self, overwrite: bool) -> bool:
        journal = read_journal(self.folder)
        begun = None if journal is None else journal[0]
        done = read_index(self.folder) if (self.folder / INDEX).is_file() else None
        if begun is not None and done is not None and differences(identity_of(done), begun):
            done = None  # another preparation had begun to replace it
        then = begun if done is None else identity_of(done)
        if then is None:
            if any(not path.name.startswith(".") for path in self.folder.iterdir()):
                raise ValueError(
                    f"{str(self.folder)!r} holds something other than a prepared domain; choose "
                    "another folder"
                )
            return False
        found = differences(then, self.identity)
        if found and not overwrite:
            raise ValueError(
                f"domain {self.name!r} in {str(self.folder)!r} was prepared with another "
                f"{'; another '.join(found)}; pass overwrite=True to prepare it anew, or choose "
                "another folder"
            )
        if found or done is None:
            return False
        for split in self.splits:
            Tokens(self.folder, done, split).verify()
        (self.folder / JOURNAL).unlink(missing_ok=True)
        return True

    def _is_ours(self) -> bool:
        """Whether a damaged folder holds nothing but the files of a domain."""
        names = {path.name for path in self.folder.iterdir() if not path.name.startswith(".")}
        files = names - {INDEX, JOURNAL}
        stems = {name.removesuffix(".bin").removesuffix(".docs") for name in files}
        pairs = {stem + end for stem in stems for end in (".bin", ".docs.bin")}
        known = {path.name for path in self._paths()}
        return bool(names & {INDEX, JOURNAL}) and (files <= known or files == pairs)

    def begin(self) -> None:
        """Open the files, and continue where the journal says."""
        self.folder.mkdir(exist_ok=True)
        forget(self.folder)
        if self._anew:
            write_journal(self.folder, self.identity)
        if (self.folder / INDEX).is_file():
            self._forget_index()
        journal = read_journal(self.folder)
        if journal is not None and not differences(journal[0], self.identity):
            sound = last_sound(journal[1], self._paths(), self.itemsizes)
            self.state = self.state if sound is None else sound
        if not self.state.rows:
            self._reset()
        else:
            write_journal(self.folder, self.identity, self.state)
        with ExitStack() as stack:
            self._files = [
                stack.enter_context(open(path, "r+b", buffering=0)) for path in self._paths()
            ]
            for file, size in zip(self._files, sizes_of(self.state, self.itemsizes), strict=True):
                file.truncate(size)
                file.seek(size)
            self._journal = stack.enter_context(open(self.folder / JOURNAL, "ab", buffering=0))
            self._stack = stack.pop_all()

    def append(self, encoded: Encoded, position: Position) -> None:
        """Add documents; `commit` makes them safe."""
        state = self.state
        for i, (ids, lengths) in enumerate(zip(encoded.ids, encoded.lengths, strict=True)):
            ends = np.uint64(state.tokens[i]) + np.cumsum(lengths, dtype=np.uint64)
            for k, data in ((2 * i, ids.tobytes()), (2 * i + 1, ends.astype("<u8").tobytes())):
                _write_all(self._files[k], data)
                state.checksums[k] = zlib.crc32(data, state.checksums[k])
            state.tokens[i] += len(ids)
            state.documents[i] += len(lengths)
        self._tokenless += encoded.empty
        state.part, state.row, state.rows = position.part, position.row, position.rows
        state.empty, state.taken = position.empty + self._tokenless, position.taken

    def commit(self) -> None:
        """Make sure that everything appended so far is on disk."""
        for file in self._files:
            with _named(file):
                os.fsync(file.fileno())
        _write_all(self._journal, self.state.line())
        with _named(self._journal):
            os.fsync(self._journal.fileno())

    def close(self) -> None:
        """Close the files; a later call continues."""
        self._stack.close()

    def finish(self) -> None:
        """Write the index, which marks the domain as finished."""
        self.commit()
        self.close()
        state = self.state
        crcs = [f"{crc:08x}" for crc in state.checksums]
        splits = {
            split: {
                "share": share,
                "tokens": state.tokens[i],
                "documents": state.documents[i],
                "checksums": crcs[2 * i : 2 * i + 2],
            }
            for i, (split, share) in enumerate(self.identity["splits"].items())
        }
        head = {"format": INDEX_FORMAT, "version": VERSION}
        write_sealed(
            self.folder / INDEX, head | self.identity | {"splits": splits, "empty": state.empty}
        )
        (self.folder / JOURNAL).unlink()

    def discard(self) -> None:
        """Remove everything written."""
        self.close()
        for path in (*self._paths(), self.folder / JOURNAL):
            path.unlink(missing_ok=True)
        with suppress(OSError):  # the folder holds something else
            self.folder.rmdir()

    def _paths(self) -> list[Path]:
        return [self.folder / (s + end) for s in self.splits for end in (".bin", ".docs.bin")]

    def _reset(self) -> None:
        # The journal first, because it claims the folder for this preparation.
        write_journal(self.folder, self.identity)
        for path in self.folder.glob("*.bin"):
            path.unlink()
        for path in self._paths():
            path.touch()
        sync_folder(self.folder)

    def _forget_index(self) -> None:
        """Remove the index, but leave a journal that claims the folder."""
        if read_journal(self.folder) is None:
            write_journal(self.folder, self.identity)
        (self.folder / INDEX).unlink()


def _write_all(file: FileIO, data: bytes) -> None:
    left = memoryview(data)
    with _named(file):
        while left:
            left = left[file.write(left) :]


@contextmanager
def _named(file: FileIO) -> Iterator[None]:
    """Let errors of the disk name the file, and say that nothing is lost."""
    try:
        yield
    except OSError as error:
        said = f"{error.strerror or error} (finished work is kept; run the same command to resume)"
        raise OSError(error.errno, said, str(file.name)) from error


def identity_of(index: dict[str, Any]) -> dict[str, Any]:
    """Return the identity of the preparation that wrote an index."""
    return index | {"splits": {name: found.get("share") for name, found in index["splits"].items()}}


def differences(then: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """Describe each difference between two identities."""
    found = []
    for key in OPTIONS:
        a, b = then.get(key), now.get(key)
        if key == "source":
            a, b = ({k: v for k, v in (s or {}).items() if k != "first"} for s in (a, b))
        if a != b or (key == "splits" and list(a or ()) != list(b or ())):
            found.append(f"{key} ({_shown(key, a)}, now {_shown(key, b)})")
    return found


def _shown(key: str, value: Any) -> str:
    if key == "tokenizer":
        return str(value)[:12]
    if key == "source":
        if not value:
            return "none"
        size = "" if value["bytes"] is None else f", {value['bytes']} bytes"
        return f"{value['parts']} files{size}, names and times {value['digest'][:8]}"
    return str(value)
