"""Documents from files, folders and datasets, one at a time: no file is held whole."""

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

from counterpoise.lm.corpus.files import (
    COMPRESSED,
    LINES,
    Lines,
    ParquetRows,
    Part,
    Rows,
    SavedRows,
    WholeText,
)

logger = logging.getLogger("counterpoise")

HUB = re.compile(r"hf://(?P<name>[^:@]+)(:(?P<config>[^@:]+))?(@(?P<split>[^@]+))?")
REMEDY = (
    "give the path of a .jsonl, .json, .txt or .parquet file (the first three may be compressed: "
    f"{', '.join(COMPRESSED)}), a folder of them, a dataset, 'hf://owner/name:config@split', "
    "or a list of these"
)


def read_documents(source: Any, text: str = "text") -> Documents:
    """The documents of a source, in order.

    Parameters
    ----------
    source : path, dataset, str or list of these
        A ``.jsonl`` or ``.json`` file of one object per line, a ``.txt`` file of one document
        (these plain, ``.gz``, ``.bz2``, ``.xz`` or ``.zst``), a ``.parquet`` file; a folder of
        them, read in sorted order with its subfolders; a ``datasets.Dataset`` or
        ``IterableDataset``, or a folder saved by ``save_to_disk``; or ``"hf://owner/name"``,
        ``"hf://owner/name:config@split"``, streamed (its split is ``train`` by default).
    text : str
        The field or column that holds the text.

    Returns
    -------
    Documents
        An iterator of strings. Documents without a visible character are skipped, and counted
        in its attribute ``empty``.

    Raises
    ------
    ValueError
        At a row without text, with the file and the line.
    """
    return Documents(find_parts(source, text))


class Documents(Iterator[str]):
    """Documents of several parts, and how far they were read.

    Attributes
    ----------
    part, row : int
        Where the next row is read: the part's number, and the row's number in it.
    rows, empty : int
        Rows read, and those of them that were empty.
    """

    def __init__(
        self, parts: Sequence[Part], *, part: int = 0, row: int = 0, rows: int = 0, empty: int = 0
    ) -> None:
        self.parts = list(parts)
        self.part, self.row, self.rows, self.empty = part, row, rows, empty
        self._rows: Iterator[str] | None = None
        sizes = [part.size for part in self.parts if part.size is not None]
        known = len(sizes) == len(self.parts)
        self._before = [0, *accumulate(sizes)] if known else None

    def __next__(self) -> str:
        while True:
            if self._rows is None:
                if self.part >= len(self.parts):
                    raise StopIteration
                self._rows = self.parts[self.part].rows(self.row)
            document = next(self._rows, None)
            if document is None:
                self.part, self.row, self._rows = self.part + 1, 0, None
                continue
            self.row += 1
            self.rows += 1
            if document and not document.isspace():
                return document
            self.empty += 1

    @property
    def share(self) -> float | None:
        """The share of the bytes that was read, where sizes are known."""
        if self._before is None or not self._before[-1]:
            return None
        done = self._before[self.part]
        if self.part < len(self.parts):
            done += self.parts[self.part].done
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
    """The first of a text, of so many bytes at most but of a character at least."""
    data = document.encode()
    return document if len(data) <= most else data[:most].decode("utf-8", "ignore") or document[0]


def find_parts(source: Any, text: str = "text") -> list[Part]:
    """What a source consists of: files and datasets, in the order they are read."""
    if not isinstance(text, str) or not text:
        raise ValueError(f"text must be the name of a field or column; got {text!r}")
    if isinstance(source, str) and source.startswith("hf://"):
        return [_hub(source, text)]
    if isinstance(source, (str, os.PathLike)):
        return _path(Path(source), text)
    if isinstance(source, (list, tuple)):
        parts = [part for item in source for part in find_parts(item, text)]
        if not parts:
            raise ValueError(f"the list of sources is empty; {REMEDY}")
        return parts
    if hasattr(source, "keys") and hasattr(source, "items"):
        raise TypeError(
            f"the source is a {type(source).__name__} of {list(source)[:5]!r}; choose one of them"
        )
    if hasattr(source, "column_names") and hasattr(source, "iter"):
        return [Rows(source, text)]
    raise TypeError(f"{type(source).__name__} is not a source of documents; {REMEDY}")


def identify(parts: Sequence[Part]) -> dict[str, Any]:
    """What tells one state of a source from another: names, sizes and times of its files."""
    sha = hashlib.sha256()
    for part in parts:
        sha.update(json.dumps(part.identity()).encode() + b"\n")
    known = [part.size for part in parts]
    return {
        "first": parts[0].name,
        "parts": len(parts),
        "bytes": None if None in known else sum(size or 0 for size in known),
        "digest": sha.hexdigest(),
    }


def _path(path: Path, text: str) -> list[Part]:
    if path.is_file():
        part = _file(path, text, path.name)
        if part is None:
            raise ValueError(f"{str(path)!r} is not of a kind that can be read; {REMEDY}")
        return [part]
    if not path.is_dir():
        raise FileNotFoundError(f"there is no file or folder {str(path)!r}; {REMEDY}")
    if (path / "dataset_dict.json").is_file():
        inside = sorted(item.name for item in path.iterdir() if item.is_dir())
        raise ValueError(
            f"{str(path)!r} holds several datasets; give the folder of one of {inside!r}"
        )
    if (path / "state.json").is_file() and (path / "dataset_info.json").is_file():
        return [SavedRows(path, text)]
    parts, left_out = [], []
    for folder, folders, files in os.walk(path):
        folders[:] = [name for name in folders if not name.startswith(".")]
        left_out += [name for name in folders if os.path.islink(Path(folder, name))]
        for name in files:
            if name.startswith("."):
                continue
            file = Path(folder, name)
            part = _file(file, text, file.relative_to(path).as_posix())
            if part is None:
                left_out.append(name)
            else:
                parts.append(part)
    if left_out:
        logger.warning(
            "left out of %s: %d files that cannot be read or linked folders, such as %s",
            path, len(left_out), ", ".join(sorted(left_out)[:3]),
        )  # fmt: skip
    if not parts:
        raise FileNotFoundError(f"there is nothing to read in the folder {str(path)!r}; {REMEDY}")
    return sorted(parts, key=lambda part: part.within)


def stem_of(name: str) -> str | None:
    """The name of a file without what tells its kind; None if its kind cannot be read."""
    stem, last = os.path.splitext(name)
    if last.lower() == ".parquet":
        return stem
    if last.lower() in COMPRESSED:
        stem, last = os.path.splitext(stem)
    return stem if last.lower() in (*LINES, ".txt") else None


def _file(path: Path, text: str, within: str) -> Part | None:
    stem = stem_of(path.name)
    if stem is None:
        return None
    kind = path.name[len(stem) :].lower()
    if kind == ".parquet":
        return ParquetRows(path, text, within)
    return (WholeText if kind.startswith(".txt") else Lines)(path, text, within)


def _hub(source: str, text: str) -> Rows:
    match = HUB.fullmatch(source)
    if match is None:
        raise ValueError(
            f"{source!r} is not the name of a dataset; write 'hf://owner/name', and after it "
            "':config' and '@split' as needed"
        )
    try:
        from datasets import load_dataset
    except ImportError as error:
        raise ImportError(f"{source!r} needs the package datasets: pip install datasets") from error
    data = load_dataset(
        match["name"], match["config"], split=match["split"] or "train", streaming=True
    )
    return Rows(data, text, source)
