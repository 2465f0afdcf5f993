"""Split the documents of a source into domains by a field that every document has.

The first pass over a source counts the documents of every value, which decides the domains. The
second writes each document to the file of its domain, in order. Those files are then prepared as
any others are. A call that was stopped continues, and the same source gives the same bytes.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from counterpoise.common.arguments import check_whole
from counterpoise.common.stopping import Stopped, asked_to_stop
from counterpoise.lm.corpus.arguments import (
    check_columns,
    check_domains,
    check_outside,
    readers_of,
)
from counterpoise.lm.corpus.documents import Source, beginning, identify
from counterpoise.lm.corpus.encoding import readable
from counterpoise.lm.corpus.journal import checksum_of_beginning
from counterpoise.lm.corpus.readers import MAX_DOCUMENT_BYTES, FileReader, Reader
from counterpoise.lm.sealed import read_sealed, write_sealed
from counterpoise.storage.files import locked, sync_folder
from counterpoise.storage.remembered import checksums_once, forget

logger = logging.getLogger("counterpoise")

FORMAT, VERSION = "counterpoise groups", 1
STATE = "groups.json"
TEXT = "text"
BETWEEN = "+"  # between the tags of a document that has several
# Values that one source may have, and domains that may be made of them.
MOST_VALUES, MOST_DOMAINS = 100_000, 10_000
LONGEST_NAME = 80  # bytes
OTHER = "other"
# Where the documents of groups are kept, in the folder of the corpus.
FOLDER = ".documents"
# Text that waits in memory before it is written, and that is written before it is made safe.
BUFFER_BYTES, COMMIT_BYTES = 1 << 26, 1 << 30
# How far the documents are written.
NOTHING: dict[str, Any] = {"part": 0, "row": 0, "sizes": {}, "checksums": {}}
# Most bytes of a line of JSON for each byte of its text.
ESCAPED = 6
STOPPED = "stopped; finished work is kept, and the same command resumes"


@dataclass(frozen=True)
class GroupBy:
    """How documents are grouped into domains.

    Parameters
    ----------
    field : str
        The field or column that holds the group, or a dotted path such as ``"meta.source"``. It
        holds a text or a whole number. A list of them stands for several tags: documents with the
        same tags form a domain, ``code+en``.
    missing : str, optional
        Name for documents without a value; by default they are an error.
    least : int, default 1
        Values with fewer documents than this are merged into the group ``other``.
    """

    field: str
    missing: str | None = None
    least: int = 1

    def __post_init__(self) -> None:
        for name in ("field", "missing"):
            value = getattr(self, name)
            if not (isinstance(value, str) and value.strip()) and (name, value) != (
                "missing",
                None,
            ):
                raise ValueError(f"by: {name} must be a name; got {value!r}")
        check_whole("by: least", self.least, 1)


def grouped_sources(
    sources: Mapping[str, Source],
    out: Path,
    by: str | GroupBy,
    *,
    text: str | Mapping[str, str] = TEXT,
    max_document_bytes: int | None = None,
    overwrite: bool = False,
) -> tuple[dict[str, Path], int]:
    """Split every source by its groups; return the domains, and the longest line of their files."""
    if not isinstance(by, (str, GroupBy)):
        raise TypeError(f"by must be the name of a field, or a GroupBy; got {by!r}")
    by = GroupBy(by) if isinstance(by, str) else by
    names = check_domains(sources)
    check_outside(sources, out)
    columns = check_columns(text, names)
    readers = {
        name: readers_of(name, sources[name], columns[name], max_document_bytes) for name in names
    }
    out.mkdir(parents=True, exist_ok=True)
    found: dict[str, Path] = {}
    with locked(out), asked_to_stop() as stopped:
        for name in names:
            folder = out / FOLDER / name
            made = split_documents(
                name, readers[name], folder, by, overwrite=overwrite, stopped=stopped
            )
            twice = [domain for domain in made if domain in found]
            if twice:
                raise ValueError(
                    f"two sources have the group {twice[0]!r}; give one of them another name"
                )
            found |= made
    return found, ESCAPED * (max_document_bytes or MAX_DOCUMENT_BYTES) + 64


def split_documents(
    name: str,
    readers: Sequence[Reader],
    folder: Path,
    by: GroupBy,
    *,
    overwrite: bool = False,
    stopped: Sequence[int] = (),
) -> dict[str, Path]:
    """Write the documents of a source to a file for each of their groups.

    Parameters
    ----------
    name : str
        Of the source; the domains are called ``<name>-<group>``.
    readers : sequence of Reader
    folder : path
        Where the files are kept, and ``groups.json``, which says what they are.
    by : GroupBy
    overwrite : bool
        Split anew what was split of another source or in another way, instead of raising an error.
    stopped : sequence
        Becomes true when the work is to stop.

    Returns
    -------
    dict from domains to JSON lines
        Sorted by name; each line has a field ``text``. Files are as old as the newest of those that
        they come from, so that a folder that was deleted and made again counts as the same source.
    """
    asked = {
        "by": asdict(by), "text": sorted({r.text for r in readers}), "source": _source(readers)
    }  # fmt: skip
    state = _begun(folder, asked, overwrite)
    if state is None:
        folder.mkdir(parents=True, exist_ok=True)
        for path in folder.glob("*.jsonl"):
            path.unlink()
        counts, several = _count(name, readers, by, stopped)
        groups = named_groups(counts, by.least)
        state = {
            "format": FORMAT, "version": VERSION, **asked, "groups": groups,
            "documents": dict(sorted(_summed(counts, groups).items())), "several": several,
            "done": False, **NOTHING,
        }  # fmt: skip
        write_sealed(folder / STATE, state)
    if not state["done"]:
        _write(name, readers, folder, state, by, stopped)
    return {f"{name}-{group}": _path(folder, group) for group in state["documents"]}


def named_groups(counts: Mapping[str, int], least: int) -> dict[str, str]:
    """Return the name of each value's group, which can be part of a file's name on any disk.

    Values with fewer than ``least`` documents are in the group ``other``, as is a value of that
    name. Characters that a name cannot have become ``_``. Values that then have the same name, or
    differ in capitals only, get the beginning of their hash as well.

    >>> named_groups({"en": 9, "a/b": 5, "a:b": 5, "fr": 1}, least=2)
    {'a/b': 'a_b-82badf67', 'a:b': 'a_b-78d6dbab', 'en': 'en', 'fr': 'other'}
    """
    common = sorted(value for value, count in counts.items() if count >= least)
    plain = {value: _plain(value) for value in common}
    plain = {value: name for value, name in plain.items() if name.casefold() != OTHER}
    groups, hashed = dict(plain), set[str]()
    while twice := _alike(groups) - hashed:
        groups |= {value: f"{plain[value]}-{_hash(value)}" for value in twice}
        hashed |= twice
    groups |= {value: OTHER for value in counts if value not in groups}
    if len(set(groups.values())) > MOST_DOMAINS:
        raise ValueError(
            f"by: {len(set(groups.values())):,} groups have {least} documents or more, and at most "
            f"{MOST_DOMAINS:,} are made; raise least, or group by a coarser field"
        )
    return dict(sorted(groups.items()))


def _alike(groups: Mapping[str, str]) -> set[str]:
    """Return the values whose names differ from that of another in capitals only, or not at all."""
    shared = Counter(name.casefold() for name in groups.values())
    return {value for value, name in groups.items() if shared[name.casefold()] > 1}


def domain_tags(folder: str | os.PathLike[str]) -> dict[str, list[str]]:
    """Return the tags of every domain of a corpus that was prepared with ``by=``.

    They are as documents have them, while names of domains are changed where a file cannot have
    them. Values with few documents, which are in the group ``other``, have that one tag.

    Parameters
    ----------
    folder : path
        Of the corpus, with the folder ``.documents`` that `prepare` left there.
    """
    found: dict[str, list[str]] = {}
    for path in sorted((Path(folder) / FOLDER).glob(f"*/{STATE}")):
        state = read_sealed(
            path, "prepare the corpus again", kind=FORMAT, versions=(VERSION,), since=VERSION
        )
        groups = state["groups"]
        several = set(state.get("several", groups))  # not written at first
        for value, group in groups.items():
            name = f"{path.parent.name}-{group}"
            tags = value.split(BETWEEN) if value in several else [value]
            found[name] = [OTHER] if group == OTHER else tags
    if not found:
        raise FileNotFoundError(
            f"{str(Path(folder) / FOLDER)!r} has no groups; prepare the corpus with by=..., and "
            f"keep {STATE!r} in the folders of its sources"
        )
    return dict(sorted(found.items()))


def label_of(value: Any, by: GroupBy, where: str) -> str:
    """Return a document's group: its value as text, or its tags in order, each once.

    >>> label_of(["en", "code", "en"], GroupBy("tags"), ""), label_of(7, GroupBy("cluster"), "")
    ('code+en', '7')
    """
    if isinstance(value, (list, tuple)):
        tags = sorted({label_of(tag, by, where) for tag in value if not _is_missing(tag)})
        if any(BETWEEN in tag for tag in tags):
            raise ValueError(
                f"{where} has the tags {tags[:5]!r} in {by.field!r}; {BETWEEN!r} stands between "
                "tags, so none may contain it; rename it"
            )
        value = BETWEEN.join(tags)
    if _is_missing(value):
        if by.missing is None:
            raise ValueError(
                f"{where} has no value in {by.field!r}; name a group for such documents with "
                "missing=..., or add the value"
            )
        return by.missing
    if isinstance(value, (str, int)):
        return readable(str(value))
    raise ValueError(
        f"{where} has {value!r:.60} in {by.field!r}; a group must be a text, a whole number, true "
        "or false, or a list of these"
    )


def _is_missing(value: Any) -> bool:
    return value is None or value != value or (isinstance(value, str) and not value.strip())


def _plain(value: str) -> str:
    name = re.sub(r'[/\\:*?"<>|\s\x00-\x1f\x7f]+', "_", value.strip()).strip("._") or "_"
    cut = beginning(name, LONGEST_NAME)
    return name if cut == name else f"{cut}-{_hash(value)}"


def _path(folder: Path, group: str) -> Path:
    return folder / f"{group}.jsonl"


def _source(readers: Sequence[Reader]) -> dict[str, Any]:
    """Return the identity of a source, wherever it is."""
    return {key: value for key, value in identify(readers).items() if key != "first"}


def _hash(value: str) -> str:
    return hashlib.blake2b(value.encode(), digest_size=4).hexdigest()


def _summed(counts: Mapping[str, int], groups: Mapping[str, str]) -> Counter[str]:
    found: Counter[str] = Counter()
    for value, group in groups.items():
        found[group] += counts[value]
    return found


def _count(
    name: str, readers: Sequence[Reader], by: GroupBy, stopped: Sequence[int]
) -> tuple[Counter[str], list[str]]:
    """Count the documents of every value; return also the values that are several tags."""
    counts: Counter[str] = Counter()
    several: dict[str, bool] = {}
    for _, _, label, _, listed in _labelled(readers, by, 0, 0):
        counts[label] += 1
        if BETWEEN in label and several.setdefault(label, listed) != listed:
            raise ValueError(
                f"domain {name!r}: {by.field!r} is the text {label!r} in one document and a list "
                "of these tags in another; rename one of them"
            )
        if len(counts) > MOST_VALUES:
            raise ValueError(
                f"domain {name!r} has more than {MOST_VALUES:,} values in {by.field!r}; group by a "
                "coarser field, such as clusters of embeddings"
            )
        if stopped:
            raise Stopped(STOPPED)
    if not counts:
        raise ValueError(
            f"domain {name!r} has no document with text; give it another source, or leave it out"
        )
    logger.info("domain %s: %s values in %s", name, f"{len(counts):,}", by.field)
    return counts, sorted(label for label, listed in several.items() if listed)


def _labelled(
    readers: Sequence[Reader], by: GroupBy, part: int, row: int
) -> Iterator[tuple[int, int, str, str, bool]]:
    """Yield reader, rows read of it, group, text and whether the group is a list of several tags.

    Blank documents are left out.
    """
    for number in range(part, len(readers)):
        skipped = row if number == part else 0
        rows = readers[number].labelled(skipped, by.field)
        for at, (value, text) in enumerate(rows, skipped + 1):
            if text and not text.isspace():
                label = label_of(value, by, f"{readers[number].name!r}, row {at},")
                tagged = isinstance(value, (list, tuple)) and not all(map(_is_missing, value))
                yield number, at, label, text, tagged


def _begun(folder: Path, asked: Mapping[str, Any], overwrite: bool) -> dict[str, Any] | None:
    """Return what an earlier call has done; None to begin."""
    path = folder / STATE
    if not path.is_file():
        return None
    remedy = f"delete {str(folder)!r} and prepare again"
    found = read_sealed(path, remedy, kind=FORMAT, versions=(VERSION,), since=VERSION)
    then = {key: found[key] for key in asked}
    differing = [key for key in asked if then[key] != asked[key]]
    if differing and not overwrite:
        key = differing[0]
        shown = ("", "") if key == "source" else (f" ({then[key]!r}", f", now {asked[key]!r})")
        raise ValueError(
            f"the documents in {str(folder)!r} were grouped with another {key}{''.join(shown)}; "
            "pass overwrite=True to group them anew, or choose another folder"
        )
    if differing:
        return None
    if not found["done"]:
        sound = all(
            checksum_of_beginning(_path(folder, group), size) == found["checksums"][group]
            for group, size in found["sizes"].items()
        )
        return found if sound else found | NOTHING
    damaged = _damaged(folder, found)
    if damaged is not None and not overwrite:
        raise ValueError(
            f"{str(damaged)!r} is not as it was written; prepare with overwrite=True, which makes "
            "the files of groups and the domains of changed ones anew"
        )
    return found if damaged is None else None


def _damaged(folder: Path, state: Mapping[str, Any]) -> Path | None:
    """Return a file that is not as a finished call left it; None if all are."""
    paths = [_path(folder, group) for group in state["checksums"]]
    missing = [path for path in paths if not path.is_file()]
    if missing:
        return missing[0]
    stated = list(state["checksums"].values())
    found = checksums_once(paths, stated, beside=True)
    wrong = [path for path, crc, known in zip(paths, found, stated, strict=True) if crc != known]
    return wrong[0] if wrong else None


class _Files:
    """Files that are appended to through one buffer, so that one is open at a time."""

    def __init__(self, folder: Path, state: Mapping[str, Any]) -> None:
        self.folder = folder
        groups = list(state["documents"])
        self.sizes = dict.fromkeys(groups, 0) | state["sizes"]
        self._crcs = dict.fromkeys(groups, 0)
        self._crcs |= {group: int(crc, 16) for group, crc in state["checksums"].items()}
        self._waiting: dict[str, list[bytes]] = {}
        self._unsafe: set[str] = set()
        self.waiting_bytes = self.unsafe_bytes = 0
        forget(folder)
        for group, size in self.sizes.items():
            _path(folder, group).touch()
            os.truncate(_path(folder, group), size)

    @property
    def state(self) -> dict[str, Any]:
        """What a resume needs to know of the files."""
        crcs = {group: f"{crc:08x}" for group, crc in self._crcs.items()}
        return {"sizes": self.sizes, "checksums": crcs}

    def add(self, group: str, text: str) -> None:
        line = json.dumps({TEXT: readable(text)}, ensure_ascii=False).encode() + b"\n"
        self._waiting.setdefault(group, []).append(line)
        self.waiting_bytes += len(line)
        if self.waiting_bytes >= BUFFER_BYTES:
            self.flush()

    def flush(self) -> None:
        """Write what waits."""
        for group, lines in self._waiting.items():
            data = b"".join(lines)
            with open(_path(self.folder, group), "ab") as file:
                file.write(data)
            self.sizes[group] += len(data)
            self._crcs[group] = zlib.crc32(data, self._crcs[group])
        self._unsafe |= self._waiting.keys()
        self.unsafe_bytes += self.waiting_bytes
        self._waiting, self.waiting_bytes = {}, 0

    def make_safe(self) -> None:
        """Make sure that everything is on disk."""
        self.flush()
        for group in self._unsafe:
            with open(_path(self.folder, group), "ab") as file:
                os.fsync(file.fileno())
        sync_folder(self.folder)
        self._unsafe, self.unsafe_bytes = set(), 0


def _write(
    name: str,
    readers: Sequence[Reader],
    folder: Path,
    state: dict[str, Any],
    by: GroupBy,
    stopped: Sequence[int],
) -> None:
    """Write the documents from where the state says; keep the state up to date."""
    files = _Files(folder, state)
    part, row = state["part"], state["row"]
    documents = _labelled(readers, by, part, row)
    for part, row, label, text, _ in documents:
        if label not in state["groups"]:
            raise ValueError(f"the source of domain {name!r} changed while it was read; try again")
        files.add(state["groups"][label], text)
        if files.unsafe_bytes >= COMMIT_BYTES or stopped:
            files.make_safe()
            write_sealed(folder / STATE, state | files.state | {"part": part, "row": row})
        if stopped:
            raise Stopped(STOPPED)
    files.make_safe()
    if _source(readers) != state["source"]:
        raise ValueError(
            f"the source of domain {name!r} changed while it was read; prepare it anew with "
            "overwrite=True"
        )
    paths = [reader.path for reader in readers if isinstance(reader, FileReader)]
    newest = max((path.stat().st_mtime_ns for path in paths), default=0)
    for group in files.sizes:
        os.utime(_path(folder, group), ns=(newest, newest))
    done = {"part": part, "row": row, "done": True}
    write_sealed(folder / STATE, state | files.state | done)
