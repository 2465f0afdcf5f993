"""Recognise files that are not tables, or have another format than their name says."""

from __future__ import annotations

import stat
from pathlib import Path

from counterpoise.tabular.errors import DataError

# Formats of other programs, by suffix.
FOREIGN = {
    **dict.fromkeys((".xlsx", ".xlsm", ".xlsb", ".xls"), "an Excel workbook"),
    ".ods": "an OpenDocument spreadsheet",
    ".numbers": "a Numbers spreadsheet",
    **dict.fromkeys((".sav", ".zsav", ".por"), "an SPSS file"),
    ".dta": "a Stata file",
    **dict.fromkeys((".sas7bdat", ".xpt"), "a SAS file"),
    **dict.fromkeys((".rds", ".rda", ".rdata"), "an R file"),
    ".mat": "a MATLAB file",
    **dict.fromkeys((".json", ".jsonl", ".ndjson"), "a JSON file"),
    **dict.fromkeys((".xml", ".html", ".htm"), "a file of markup"),
    **dict.fromkeys((".pkl", ".pickle", ".joblib"), "a pickle, which could run code,"),
    **dict.fromkeys((".h5", ".hdf5", ".hdf"), "an HDF5 file"),
    **dict.fromkeys((".db", ".sqlite", ".sqlite3", ".duckdb"), "a database"),
    ".orc": "an ORC file",
    ".avro": "an Avro file",
    ".npy": "a single numpy array",
    **dict.fromkeys((".zip", ".tar", ".tgz", ".7z", ".rar"), "an archive"),
    ".pdf": "a PDF",
}
SAVE = "save the table as CSV or Parquet and give that file"
# First bytes of formats that a .csv file may really have.
MAGIC = {
    b"PK\x03\x04": ("a zip archive, as Excel workbooks are", SAVE),
    b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1": ("an old Excel workbook", SAVE),
    b"PAR1\x15": ("a Parquet file", "open it with format='parquet'"),
    b"ARROW1\0\0": ("an Arrow file", "open it with format='arrow'"),
    b"\x93NUMPY": ("a single numpy array", SAVE),
    b"\x89HDF": ("an HDF5 file", SAVE),
    b"SQLite format 3\x00": ("a database", SAVE),
    b"%PDF-": ("a PDF", SAVE),
    b"\x1f\x8b": ("compressed with gzip", "add .gz to its name"),
    b"\x28\xb5\x2f\xfd": ("compressed with zstandard", "add .zst to its name"),
    **{
        b"BZh%d1AY&SY" % level: ("compressed with bzip2", "add .bz2 to its name")
        for level in range(1, 10)
    },
    b"\xfd7zXZ\x00": ("compressed with xz", "decompress it first"),
}


def check_regular(file: Path) -> None:
    """Check that a path is a regular file or a folder: devices and pipes may never end."""
    mode = file.stat().st_mode
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        raise DataError(
            f"{str(file)!r} is a pipe, a device or a socket, and tables are read more than once; "
            "save the data to a file and give that"
        )


def check_suffix(file: Path) -> None:
    """Refuse the files of other programs with the way out."""
    what = FOREIGN.get(file.suffix.lower())
    if what is not None:
        raise DataError(f"{str(file)!r} is {what} and cannot be read; {SAVE}")


def check_content(file: Path, head: bytes) -> None:
    """Check that the first bytes of a CSV file, decompressed, are not those of another format."""
    for magic, (what, remedy) in MAGIC.items():
        if head.startswith(magic):
            raise DataError(f"{str(file)!r} is {what}, not a CSV file; {remedy}", argument="format")
