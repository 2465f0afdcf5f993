"""Checks of what was asked for that need no data, and neither numpy nor pyarrow.

A wrong path is reported before those are imported.
"""

from __future__ import annotations

import codecs
import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from counterpoise.common.arguments import check_choice
from counterpoise.tabular.errors import DataError
from counterpoise.tabular.foreign import check_regular, check_suffix

SUFFIXES = {
    ".csv": "csv",
    ".tsv": "csv",
    ".txt": "csv",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".arrow": "arrow",
    ".feather": "arrow",
    ".ipc": "arrow",
    ".npz": "npz",
}
FORMATS = ("csv", "parquet", "arrow", "npz")
# Only for CSV; the other formats compress internally.
COMPRESSED = (".gz", ".bz2", ".zst", ".lz4")
# Suffixes of files that predictions are written to.
WRITTEN = (".csv", ".parquet", ".arrow")


class FileRequest(NamedTuple):
    """A file or folder that exists, its format, and Arrow's name of its encoding."""

    path: Path
    format: str
    encoding: str


def check_file(
    path: str | os.PathLike[str],
    *,
    format: str | None = None,
    delimiter: str | None = None,
    decimal: str = ".",
    encoding: str = "utf-8",
) -> FileRequest:
    """Check everything about a table's file that can be known without reading it."""
    for name, mark in (("delimiter", delimiter), ("decimal", decimal)):
        if mark is not None and len(mark) != 1:
            raise ValueError(f"{name} must be one character; got {mark!r}")
    known = known_encoding(encoding)
    file = Path(path)
    if not file.exists():
        raise FileNotFoundError(f"there is no file or folder {str(file)!r}; check the path")
    check_regular(file)
    kind = _format(file, format)
    if kind != "parquet":
        if file.is_dir():
            raise DataError(
                f"{str(file)!r} is a folder, and only Parquet is read from folders; give a file"
            )
        if not file.stat().st_size:
            raise DataError(f"{str(file)!r} is empty; write it again, or give another file")
    return FileRequest(file, kind, known)


def _format(file: Path, format: str | None) -> str:
    if format is not None:
        check_choice("format", format, FORMATS)
        return format
    if file.is_dir():
        return "parquet"
    suffixes = [suffix.lower() for suffix in file.suffixes]
    if suffixes and suffixes[-1] in COMPRESSED and SUFFIXES.get("".join(suffixes[-2:-1])) == "csv":
        return "csv"
    found = SUFFIXES.get("".join(suffixes[-1:]))
    if found is None:
        check_suffix(file)
        raise DataError(
            f"{str(file)!r} has an unknown suffix; known are {', '.join(SUFFIXES)} and CSV "
            f"compressed as {', '.join(COMPRESSED)}. Rename the file, or give its format, such as "
            "format='csv'",
            argument="format",
        )
    return found


def known_encoding(encoding: str) -> str:
    """Arrow's name of an encoding."""
    try:
        found = codecs.lookup(encoding)
        "".encode(found.name)  # some codecs map bytes to bytes
    except (LookupError, ValueError):
        raise ValueError(
            f"encoding must be one that Python knows, such as utf-8, utf-16 or cp1252; "
            f"got {encoding!r}"
        ) from None
    return "utf8" if found.name in ("utf-8", "utf-8-sig") else found.name


def check_roles(target: str | None, group: Sequence[str], weight: str | None) -> None:
    """Check that no column has two roles; no file needs to be read for this."""
    for name, role in ((target, "target"), (weight, "weight")):
        if name is not None and name in group:
            raise DataError(f"column {name!r} cannot be {role} and group at once; give another")
    if target is not None and target == weight:
        raise DataError(f"column {target!r} cannot be target and weight at once; give another")


def check_written(path: Path) -> None:
    """Check that predictions can be written to a file."""
    if path.suffix.lower() not in WRITTEN:
        raise ValueError(
            f"predictions are written as {', '.join(WRITTEN)}; got {str(path)!r}. Use one of "
            "these suffixes"
        )
    if not path.parent.is_dir():
        raise FileNotFoundError(f"there is no folder {str(path.parent)!r}; make it first")
