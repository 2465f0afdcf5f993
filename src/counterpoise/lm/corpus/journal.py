"""The journal of a preparation: how far the source was read, and what the files held then.

Every line carries a checksum of its own and those of the files up to there. Whatever follows the
last complete line does not count, nor does a line whose files are not as it says.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from counterpoise.lm.sealed import SEAL, is_whole, seal
from counterpoise.storage.files import write_text

JOURNAL, FORMAT, VERSION = "progress.jsonl", "counterpoise preparation", 2
CHUNK = 1 << 22


@dataclass
class JournalEntry:
    """A line: the position in the source, and each split's tokens and documents.

    Attributes
    ----------
    part, row, rows, empty, taken : int
        See `Documents`.
    tokens, documents : list of int
        Of every split.
    checksums : list of int
        CRC-32 of every file, the tokens and the document ends of each split in turn; empty in
        journals of release 0.1.
    """

    part: int
    row: int
    rows: int
    empty: int
    tokens: list[int]
    documents: list[int]
    taken: int = 0
    checksums: list[int] = field(default_factory=list)

    @classmethod
    def nothing(cls, splits: int) -> JournalEntry:
        return cls(0, 0, 0, 0, [0] * splits, [0] * splits, 0, [0] * (2 * splits))

    def line(self) -> bytes:
        return json.dumps(seal(asdict(self))).encode() + b"\n"

    def fits(self, splits: int) -> bool:
        """Whether every value is a count, of as many splits."""
        counts = [self.part, self.row, self.rows, self.empty, self.taken]
        lists = [self.tokens, self.documents, self.checksums]
        lengths = [len(x) if isinstance(x, list) else -1 for x in lists]
        if lengths[:2] != [splits] * 2 or lengths[2] not in (0, 2 * splits):
            return False
        flat = [*counts, *self.tokens, *self.documents, *self.checksums]
        return all(type(value) is int and 0 <= value < 1 << 62 for value in flat)


def write_journal(folder: Path, identity: dict[str, Any], *entries: JournalEntry) -> None:
    """Begin a journal."""
    head = seal({"format": FORMAT, "version": VERSION, "identity": identity})
    lines = [json.dumps(head).encode() + b"\n", *(entry.line() for entry in entries)]
    write_text(folder / JOURNAL, b"".join(lines).decode())


def read_journal(folder: Path) -> tuple[dict[str, Any], list[JournalEntry]] | None:
    """Return the identity of the preparation that began here, and its complete lines."""
    path = folder / JOURNAL
    if not path.is_file():
        return None
    lines = path.read_bytes().split(b"\n")[:-1]
    head = _parsed(lines[0]) if lines else None
    version = None if head is None or head.get("format") != FORMAT else head.get("version")
    identity: Any = None if head is None else head.get("identity")
    fits = isinstance(identity, dict) and isinstance(identity.get("splits"), dict)
    if version not in (1, VERSION) or not fits or not _is_written(head, version):
        raise ValueError(
            f"{str(path)!r} is damaged or was not written by this version; delete its folder, or "
            "choose another"
        )
    entries = []
    for line in lines[1:]:
        found = _parsed(line)
        if found is None or not _is_written(found, version):
            break
        found.pop(SEAL, None)
        try:
            entry = JournalEntry(**found)
        except TypeError:
            break
        if not entry.fits(len(identity["splits"])):
            break
        entries.append(entry)
    return identity, entries


def last_sound(
    entries: Sequence[JournalEntry], paths: Sequence[Path], itemsizes: Sequence[int]
) -> JournalEntry | None:
    """Return the last entry whose files are as it says, or None; files are read up to there."""
    found: JournalEntry | None = None
    crcs, at = [0] * len(paths), [0] * len(paths)
    for entry in entries:
        for i, (path, size) in enumerate(zip(paths, sizes_of(entry, itemsizes), strict=True)):
            crc = _extended(path, crcs[i], at[i], size)
            if crc is None:
                return found
            crcs[i], at[i] = crc, size
        if entry.checksums and entry.checksums != crcs:
            return found
        entry.checksums = list(crcs)
        found = entry
    return found


def sizes_of(entry: JournalEntry, itemsizes: Sequence[int]) -> list[int]:
    """Return the length of every file in bytes."""
    counts = [n for pair in zip(entry.tokens, entry.documents, strict=True) for n in pair]
    return [count * size for count, size in zip(counts, itemsizes, strict=True)]


def checksum_of_beginning(path: Path, size: int) -> str | None:
    """Return the CRC-32 of a file's first bytes; None if the file is too short."""
    crc = _extended(path, 0, 0, size)
    return None if crc is None else f"{crc:08x}"


def _extended(path: Path, crc: int, start: int, stop: int) -> int | None:
    """Extend the checksum of a file's beginning; None if the file is too short."""
    if stop < start or not path.is_file() or path.stat().st_size < stop:
        return None
    with open(path, "rb") as file:
        file.seek(start)
        while start < stop and (data := file.read(min(CHUNK, stop - start))):
            crc = zlib.crc32(data, crc)
            start += len(data)
    return crc if start == stop else None


def _parsed(line: bytes) -> dict[str, Any] | None:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _is_written(found: dict[str, Any] | None, version: Any) -> bool:
    """Whether a line is as it was written; release 0.1 wrote no checksums."""
    return found is not None and (is_whole(found) if version != 1 or SEAL in found else True)
