"""Arrays in one file: a zip of ``.npy`` members of plain types, which are not compressed.

So a file cannot take much more memory than disk. Models of the formats 1 and 2 have compressed
members, whose sizes are checked before they are read.
"""

from __future__ import annotations

import io
import math
import zipfile
from collections.abc import Iterable, Mapping

import numpy as np

Array = np.ndarray

# Booleans, numbers, text, bytes, durations and dates.
KINDS = "biufUSmM"
# A file of n bytes with compressed members may hold arrays of FREE + RATIO * n bytes.
FREE, RATIO = 1 << 26, 100


def to_bytes(arrays: Iterable[Array]) -> tuple[bytes, list[str]]:
    """Return a file of arrays, and the names of its members.

    Members are numbered, because names of groups may not be valid names of files.
    """
    members = {f"a{i}": value for i, value in enumerate(arrays)}
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as file:
        for name, value in members.items():
            with file.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True) as member:
                np.lib.format.write_array(member, np.asanyarray(value), allow_pickle=False)
    return buffer.getvalue(), list(members)


def from_bytes(data: bytes, members: Mapping[str, str], *, compressed: bool) -> dict[str, Array]:
    """Return the arrays of a file by the keys of ``members``; raise ValueError for any other file.

    ``compressed`` allows compressed members.
    """
    if len(set(members.values())) < len(members):
        raise ValueError("it lists an array twice")
    with zipfile.ZipFile(io.BytesIO(data)) as file:
        found = {key: file.getinfo(f"{name}.npy") for key, name in members.items()}
        total = sum(member.file_size for member in found.values())
        if total > (FREE + RATIO * len(data) if compressed else len(data)):
            raise ValueError(f"it has {len(data):,} bytes, and its arrays would take {total:,}")
        for member in found.values():
            if (
                member.compress_type
                not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)[: 1 + compressed]
            ):
                raise ValueError(f"the array {member.filename!r} is compressed")
        return {key: _array(file.read(member), member.filename) for key, member in found.items()}


def _array(data: bytes, name: str) -> Array:
    """Return an array of exactly the size that its header declares."""
    stream = io.BytesIO(data)
    version = np.lib.format.read_magic(stream)
    readers = {
        (1, 0): np.lib.format.read_array_header_1_0,
        (2, 0): np.lib.format.read_array_header_2_0,
    }
    if version not in readers:
        raise ValueError(f"the array {name!r} has the unknown version {version}")
    shape, by_columns, dtype = readers[version](stream)
    size, left = math.prod(shape) * dtype.itemsize, len(data) - stream.tell()
    if dtype.kind not in KINDS or not dtype.itemsize:
        raise ValueError(f"the array {name!r} holds {dtype}, not numbers, text or dates")
    if size != left or any(length < 0 for length in shape):
        raise ValueError(f"the array {name!r} declares {size:,} bytes and has {left:,}")
    flat = np.frombuffer(data, dtype, offset=stream.tell())
    return flat.reshape(shape, order="F" if by_columns else "C").copy()
