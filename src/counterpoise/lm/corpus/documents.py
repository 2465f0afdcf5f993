"""Read documents from files, folders and datasets, one at a time."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
from collections.abc import Iterator, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

from counterpoise.common.arguments import check_whole
from counterpoise.common.packages import not_installed
from counterpoise.lm.corpus.readers import (
    COMPRESSED,
    LINES,
    DatasetLike,
    DatasetReader,
    JsonLinesReader,
    ParquetReader,
    Reader,
    SavedDatasetReader,
    TextReader,
)
from counterpoise.lm.model_checks.unattended import unattended

# Where documents come from; `read_documents` says what may be given.
Source = str | os.PathLike[str] | DatasetLike | Sequence["Source"]

logger = logging.getLogger("counterpoise")

HUB = re.compile(r"hf://(?P<name>[^:@]+)(:(?P<config>[^@:]+))?(@(?P<split>[^@]+))?")
REMEDY = (
    "give the path of a .jsonl, .json, .txt or .parquet file (the first three may be compressed: "
    f"{', '.join(COMPRESSED)}), a folder of them, a dataset, 'hf://owner/name:config@split', "
    "or a list of these"
)


def read_documents(
    source: Source, text: str = "text", *, max_document_bytes: int | None = None
) -> Documents:
    """Read the documents of a source, in order.

    Parameters
    ----------
    source : path, dataset, str or list of these
        - a ``.jsonl`` or ``.json`` file with one object per line, or a ``.txt`` file with one
          document; each may be compressed (``.gz``, ``.bz2``, ``.xz`` or ``.zst``);
        - a ``.parquet`` file;
        - a folder of such files, read in sorted order with its subfolders;
        - a ``datasets.Dataset`` or ``IterableDataset``, or a folder that ``save_to_disk`` wrote;
        - ``"hf://owner/name"`` or ``"hf://owner/name:config@split"``, a dataset of the hub, which
          is streamed. The split is ``train`` by default.
    text : str
        The field or column that holds the text.
    max_document_bytes : int, optional
        Longest document: a line of JSON, a text file, or a value of a table. A longer one is an
        error before it is read, so that a small compressed file cannot fill the memory. 64 MB by
        default; text files that are not compressed may then have any size.

    Returns
    -------
    Documents
        An iterator of strings. It skips blank documents and counts them in its attribute
        ``empty``.

    Raises
    ------
    ValueError
        If a row has no text, or too much of it; the message names the file and the line.
    """
    return Documents(find_readers(source, text, max_document_bytes))


class Documents(Iterator[str]):
    """An iterator over the documents of several readers, which knows how far it is.

    Attributes
    ----------
    part, row : int
        Number of the reader under way, and number of its next row.
    rows, empty : int
        Rows read, and how many of them were blank.
    most : int, optional
        Bytes of text to take, spread over the readers in proportion to their sizes, if these are
        known: each is read from its beginning. The first document is taken in any case.
    taken : int
        Bytes of text taken so far; counted only if ``most`` is given.
    """

    def __init__(
        self,
        readers: Sequence[Reader],
        *,
        part: int = 0,
        row: int = 0,
        rows: int = 0,
        empty: int = 0,
        most: int | None = None,
        taken: int = 0,
    ) -> None:
        self.readers = list(readers)
        self.most, self.taken = most, taken
        self.part, self.row, self.rows, self.empty = part, row, rows, empty
        self._rows: Iterator[str] | None = None
        sizes = [reader.size for reader in self.readers if reader.size is not None]
        known = len(sizes) == len(self.readers)
        self._before = [0, *accumulate(sizes)] if known else None

    def __next__(self) -> str:
        while True:
            if self._rows is None:
                if self.part >= len(self.readers):
                    raise StopIteration
                self._rows = self.readers[self.part].rows(self.row)
            document = next(self._rows, None)
            if document is None or not self._affords(document):
                self.part, self.row, self._rows = self.part + 1, 0, None
                continue
            self.row += 1
            self.rows += 1
            if document and not document.isspace():
                return document
            self.empty += 1

    def _affords(self, document: str) -> bool:
        """Count a document; False if the bytes that its reader may give are used up."""
        if self.most is None:
            return True
        size = len(document.encode("utf-8", "surrogatepass"))
        limit = self.most
        if self._before is not None and self._before[-1]:
            limit = self.most * self._before[self.part + 1] // self._before[-1]
        if self.taken and self.taken + size > limit:
            return False
        self.taken += size
        return True

    @property
    def share(self) -> float | None:
        """The share of the bytes read so far, if all sizes are known."""
        if self._before is None or not self._before[-1]:
            return None
        done = self._before[self.part]
        if self.part < len(self.readers):
            done += self.readers[self.part].done
        return done / self._before[-1]


def cut(document: str, most: int) -> list[str]:
    """Cut a document into pieces of at most ``most`` characters.

    A piece ends after a paragraph, line or word, whichever is found first in its second half.
    Joined again the pieces are the document, but for blank ones, which are left out.

    >>> cut("One two.\\n\\nThree four five.", 16)
    ['One two.\\n\\n', 'Three four five.']
    """
    pieces, at = [], 0
    while at < len(document):
        end = at + most
        if end < len(document):
            found = ((document.rfind(gap, at + most // 2, end), gap) for gap in ("\n\n", "\n", " "))
            border = next((i + len(gap) for i, gap in found if i >= 0), end)
            while border < end and document[border].isspace():
                border += 1
            end = border
        if not document[at:end].isspace():
            pieces.append(document[at:end])
        at = end
    return pieces


def beginning(document: str, most: int) -> str:
    """Return the first ``most`` bytes of a text, but at least one character."""
    data = document.encode()
    return document if len(data) <= most else data[:most].decode("utf-8", "ignore") or document[0]


def find_readers(source: Source, text: str = "text", most: int | None = None) -> list[Reader]:
    """Return a reader for each file or dataset of a source, in reading order.

    ``most`` is the longest document in bytes.
    """
    if most is not None:
        check_whole("max_document_bytes", most, 1)
    if not isinstance(text, str) or not text:
        raise ValueError(f"text must be the name of a field or column; got {text!r}")
    if isinstance(source, str) and source.startswith("hf://"):
        return [_hub(source, text, most)]
    if isinstance(source, (str, os.PathLike)):
        return _path(Path(source), text, most)
    if isinstance(source, (list, tuple)):
        readers = [reader for item in source for reader in find_readers(item, text, most)]
        if not readers:
            raise ValueError(f"the list of sources is empty; {REMEDY}")
        return readers
    given: Any = source  # from here on, what its attributes say
    if hasattr(given, "keys") and hasattr(given, "items"):
        raise TypeError(
            f"the source is a {type(given).__name__} with {list(given)[:5]!r}; choose one of them"
        )
    if hasattr(given, "column_names") and hasattr(given, "iter"):
        return [DatasetReader(given, text, most=most)]
    raise TypeError(f"{type(source).__name__} is not a source of documents; {REMEDY}")


def identify(readers: Sequence[Reader]) -> dict[str, Any]:
    """Return the identity of a source: names, sizes and times of its files, as JSON."""
    sha = hashlib.sha256()
    for reader in readers:
        sha.update(json.dumps(reader.identity()).encode() + b"\n")
    known = [reader.size for reader in readers]
    return {
        "first": readers[0].name,
        "parts": len(readers),
        "bytes": None if None in known else sum(size or 0 for size in known),
        "digest": sha.hexdigest(),
    }


def _path(path: Path, text: str, most: int | None) -> list[Reader]:
    if path.is_file():
        reader = _file(path, text, path.name, most)
        if reader is None:
            raise ValueError(f"the type of {str(path)!r} cannot be read; {REMEDY}")
        return [reader]
    if not path.is_dir():
        raise FileNotFoundError(f"there is no file or folder {str(path)!r}; {REMEDY}")
    if (path / "dataset_dict.json").is_file():
        inside = sorted(item.name for item in path.iterdir() if item.is_dir())
        raise ValueError(
            f"{str(path)!r} holds several datasets; give the folder of one of {inside!r}"
        )
    if (path / "state.json").is_file() and (path / "dataset_info.json").is_file():
        return [SavedDatasetReader(path, text, most)]
    readers, skipped = [], []
    for folder, folders, files in os.walk(path):
        folders[:] = [name for name in folders if not name.startswith(".")]
        skipped += [name for name in folders if os.path.islink(Path(folder, name))]
        for name in files:
            if name.startswith("."):
                continue
            file = Path(folder, name)
            reader = _file(file, text, file.relative_to(path).as_posix(), most)
            if reader is None:
                skipped.append(name)
            else:
                readers.append(reader)
    if skipped:
        logger.warning(
            "skipped in %s: %d linked folders or files of another type, such as %s",
            path, len(skipped), ", ".join(sorted(skipped)[:3]),
        )  # fmt: skip
    if not readers:
        raise FileNotFoundError(f"the folder {str(path)!r} has nothing to read; {REMEDY}")
    return sorted(readers, key=lambda reader: reader.within)


def stem_of(name: str) -> str | None:
    """Return a file name without its suffixes; None if its type cannot be read."""
    stem, last = os.path.splitext(name)
    if last.lower() == ".parquet":
        return stem
    if last.lower() in COMPRESSED:
        stem, last = os.path.splitext(stem)
    return stem if last.lower() in (*LINES, ".txt") else None


def _file(path: Path, text: str, within: str, most: int | None) -> Reader | None:
    stem = stem_of(path.name)
    if stem is None:
        return None
    kind = path.name[len(stem) :].lower()
    if kind == ".parquet":
        return ParquetReader(path, text, within, most)
    return (TextReader if kind.startswith(".txt") else JsonLinesReader)(path, text, within, most)


def _hub(source: str, text: str, most: int | None) -> DatasetReader:
    match = HUB.fullmatch(source)
    if match is None:
        raise ValueError(
            f"{source!r} does not name a dataset; write 'hf://owner/name', followed by ':config' "
            "and '@split' if needed"
        )
    try:
        from datasets import load_dataset
    except ImportError as error:
        raise not_installed(f"reading {source!r} needs", "datasets") from error
    with unattended():  # older releases ask whether to run a dataset's script
        data = load_dataset(
            match["name"], match["config"], split=match["split"] or "train", streaming=True
        )
    return DatasetReader(data, text, source, most)
