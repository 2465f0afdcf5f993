"""Write one domain: token files, and a journal that survives a crash.

Tokens reach the disk first. Then a line of the journal records how far the source was read and how
long every file is. Whatever follows the last complete line does not count.
"""

from __future__ import annotations

import json
import os
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from counterpoise.lm.corpus.encoding import Encoded
from counterpoise.lm.corpus.tokens import INDEX, INDEX_FORMAT, VERSION, Tokens, read_index
from counterpoise.storage.files import sync_folder, write_json, write_text

JOURNAL, JOURNAL_FORMAT = "progress.jsonl", "counterpoise preparation"

# The options in which two preparations may differ.
OPTIONS = ("pieces", "begin", "tokenizer", "vocab_size", "end", "splits", "text", "source")


class Position(NamedTuple):
    """How far a source is read; see `Documents`."""

    part: int
    row: int
    rows: int
    empty: int
    share: float | None = None


@dataclass
class JournalEntry:
    """A line of the journal: the position in the source, and each split's tokens and documents."""

    part: int
    row: int
    rows: int
    empty: int
    tokens: list[int]
    documents: list[int]


class DomainWriter:
    """Writes the folder of a domain.

    ``identity`` holds the options and the source as JSON. Only a preparation with the same identity
    may continue a domain.
    """

    def __init__(self, folder: Path, identity: dict[str, Any]) -> None:
        self.folder, self.identity = folder, identity
        self.name: str = identity["domain"]
        self.splits = list(identity["splits"])
        self.itemsize = np.dtype(identity["dtype"]).itemsize
        self.state = self._nothing()
        self._tokenless = 0  # documents of this run with text but without tokens

    def _nothing(self) -> JournalEntry:
        n = len(self.splits)
        return JournalEntry(0, 0, 0, 0, [0] * n, [0] * n)

    def check(self, *, overwrite: bool) -> bool:
        """Return whether the domain is finished; raise if its folder holds something else."""
        if not self.folder.exists():
            return False
        journal = self._read_journal()
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
            Tokens(self.folder, done, split)  # raises if a file is incomplete
        (self.folder / JOURNAL).unlink(missing_ok=True)
        return True

    def begin(self) -> None:
        """Open the files, and continue where the journal says."""
        self.folder.mkdir(exist_ok=True)
        if (self.folder / INDEX).is_file():
            self._forget_index()
        journal = self._read_journal()
        if journal is not None and not differences(journal[0], self.identity):
            self.state = next((s for s in reversed(journal[1]) if self._holds(s)), self._nothing())
        if not self.state.rows:
            self._reset()
        else:
            self._write_journal(self.state)
        with ExitStack() as stack:
            self._files = [stack.enter_context(open(path, "r+b")) for path in self._paths()]
            for file, size in zip(self._files, self._sizes(self.state), strict=True):
                file.truncate(size)
                file.seek(size)
            self._journal = stack.enter_context(open(self.folder / JOURNAL, "ab"))
            self._stack = stack.pop_all()

    def append(self, encoded: Encoded, position: Position) -> None:
        """Add documents; `commit` makes them safe."""
        state = self.state
        for i, (ids, lengths) in enumerate(zip(encoded.ids, encoded.lengths, strict=True)):
            ends = np.uint64(state.tokens[i]) + np.cumsum(lengths, dtype=np.uint64)
            self._files[2 * i].write(ids.data)
            self._files[2 * i + 1].write(ends.astype("<u8").data)
            state.tokens[i] += len(ids)
            state.documents[i] += len(lengths)
        self._tokenless += encoded.empty
        state.part, state.row, state.rows = position.part, position.row, position.rows
        state.empty = position.empty + self._tokenless

    def commit(self) -> None:
        """Make sure that everything appended so far is on disk."""
        for file in self._files:
            file.flush()
            os.fsync(file.fileno())
        self._journal.write(json.dumps(asdict(self.state)).encode() + b"\n")
        self._journal.flush()
        os.fsync(self._journal.fileno())

    def close(self) -> None:
        """Close the files; a later call continues."""
        self._stack.close()

    def finish(self) -> None:
        """Write the index, which marks the domain as finished."""
        self.commit()
        self.close()
        state = self.state
        splits = {
            split: {"share": share, "tokens": tokens, "documents": documents}
            for (split, share), tokens, documents in zip(
                self.identity["splits"].items(), state.tokens, state.documents, strict=True
            )
        }
        head = {"format": INDEX_FORMAT, "version": VERSION}
        write_json(
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

    def _sizes(self, state: JournalEntry) -> list[int]:
        pairs = zip(state.tokens, state.documents, strict=True)
        return [size for tokens, docs in pairs for size in (tokens * self.itemsize, docs * 8)]

    def _holds(self, state: JournalEntry) -> bool:
        return all(
            path.is_file() and path.stat().st_size >= size
            for path, size in zip(self._paths(), self._sizes(state), strict=True)
        )

    def _reset(self) -> None:
        # The journal first, because it claims the folder for this preparation.
        self._write_journal()
        for path in self.folder.glob("*.bin"):
            path.unlink()
        for path in self._paths():
            path.touch()
        sync_folder(self.folder)

    def _forget_index(self) -> None:
        """Remove the index, but leave a journal that claims the folder."""
        if self._read_journal() is None:
            self._write_journal()
        (self.folder / INDEX).unlink()

    def _write_journal(self, *states: JournalEntry) -> None:
        head = {"format": JOURNAL_FORMAT, "version": VERSION, "identity": self.identity}
        lines = [json.dumps(line) for line in (head, *map(asdict, states))]
        write_text(self.folder / JOURNAL, "\n".join(lines) + "\n")

    def _read_journal(self) -> tuple[dict[str, Any], list[JournalEntry]] | None:
        """Return the identity of the preparation that began here, and its complete lines."""
        path = self.folder / JOURNAL
        if not path.is_file():
            return None
        lines = path.read_bytes().split(b"\n")[:-1]
        try:
            head = json.loads(lines[0])
            known = (head["format"], head["version"]) == (JOURNAL_FORMAT, VERSION)
        except (ValueError, LookupError, TypeError):
            known = False
        if not known:
            raise ValueError(
                f"{str(path)!r} was not written by this version; delete its folder, or choose "
                "another"
            )
        states = []
        for line in lines[1:]:
            try:
                states.append(JournalEntry(**json.loads(line)))
            except (ValueError, TypeError):
                break
        return head["identity"], states


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
        size = "" if value["bytes"] is None else f", {value['bytes']} bytes"
        return f"{value['parts']} files{size}, names and times {value['digest'][:8]}"
    return str(value)
