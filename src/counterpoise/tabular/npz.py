"""The arrays of an .npz file as the columns of a table."""

from __future__ import annotations

import io
import math
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.lib import format as npy

from counterpoise.common.text import one_line
from counterpoise.tabular.bounded import budget
from counterpoise.tabular.errors import DataError, no_memory

MATRIX, NAMES = "X", "feature_names"
# Bytes in which the header of an array must end; numpy refuses longer ones, too.
HEADER = 10_016
# What damaged archives and headers raise.
DAMAGE = (
    zipfile.BadZipFile, zlib.error, KeyError, NotImplementedError, EOFError, OSError, RuntimeError,
    SyntaxError, OverflowError,
)  # fmt: skip
Header = tuple[tuple[int, ...], np.dtype[Any]]


def read_npz(file: Path) -> Any:
    """Read an .npz file.

    Arrays of one dimension are columns. So are the columns of a matrix ``X``, which are named by
    ``feature_names`` or called ``X0``, ``X1``, ... Everything that the headers tell is checked
    before an array is read, so that a small file cannot fill the memory.
    """
    arrays = _arrays(file)
    columns: list[tuple[str, np.ndarray]] = []
    matrix = arrays.get(MATRIX)
    if matrix is not None and matrix.ndim == 2:
        del arrays[MATRIX]
        columns += zip(_names(arrays.pop(NAMES, None), matrix, file), matrix.T, strict=True)
    columns += arrays.items()
    data = [_column(name, array, file) for name, array in columns]
    return pa.Table.from_arrays(data, names=[name for name, _ in columns])


def _arrays(file: Path) -> dict[str, np.ndarray]:
    with open(file, "rb") as raw:
        start = raw.read(6)
        if start == b"\x93NUMPY":
            raise DataError(f"{str(file)!r} holds one array; save columns with numpy.savez")
        if not start.startswith(b"PK"):
            raise ValueError("it is not a zip archive")
        try:
            with zipfile.ZipFile(raw) as archive:
                found = {info: _header(archive, info, file) for info in archive.infolist()}
                _check_members(list(found), file)
                _check_shapes({_name(info): found[info] for info in found}, file)
                return {_name(info): _loaded(archive, info, file) for info in found}
        except DAMAGE as error:
            raise DataError(
                f"{str(file)!r} is truncated or damaged ({one_line(error)}); write it again"
            ) from None


def _name(info: zipfile.ZipInfo) -> str:
    return info.filename.removesuffix(".npy")


def _header(archive: zipfile.ZipFile, info: zipfile.ZipInfo, file: Path) -> Header:
    """Shape and dtype of a member, which must have as many bytes as they say."""
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise ValueError(f"{info.filename!r} is compressed in a way that numpy does not write")
    with archive.open(info) as stream:
        start = stream.read(HEADER)
    if not start.startswith(b"\x93NUMPY"):
        raise DataError(
            f"{str(file)!r} has {info.filename!r}, which is not an array; save columns with "
            "numpy.savez"
        )
    head = io.BytesIO(start)
    version = npy.read_magic(head)
    reads = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}.get(version)
    if reads is None:
        raise ValueError(f"{_name(info)!r} has version {version}")
    shape, _, dtype = reads(head)
    if dtype.hasobject:
        raise DataError(
            f"{str(file)!r}: the array {_name(info)!r} holds Python objects, which are not loaded "
            "because they can run code; save it as numbers or text, with array.astype(str)"
        )
    if not dtype.itemsize or head.tell() + math.prod(shape) * dtype.itemsize != info.file_size:
        raise ValueError(
            f"{_name(info)!r} claims shape {shape} and dtype {dtype} but has "
            f"{info.file_size:,} bytes"
        )
    return shape, dtype


def _check_members(members: list[zipfile.ZipInfo], file: Path) -> None:
    """Check that no bytes of the file serve twice, and that all arrays fit in memory."""
    if len({info.filename for info in members}) < len(members):
        raise ValueError("several arrays have the same name")
    offsets = {info.header_offset for info in members}
    stored = sum(info.compress_size for info in members)
    if len(offsets) < len(members) or stored > file.stat().st_size:
        raise ValueError("several arrays share the same bytes")
    if sum(info.file_size for info in members) > budget():
        raise no_memory(file)


def _check_shapes(headers: dict[str, Header], file: Path) -> None:
    lengths = {}
    for name, (shape, _) in headers.items():
        if len(shape) == 2 and name == MATRIX:
            if not shape[0] or not shape[1]:
                raise DataError(f"{str(file)!r}: {name!r} has shape {shape}; give some rows")
            lengths[name] = shape[0]
        elif len(shape) != 1:
            raise DataError(
                f"{str(file)!r}: the array {name!r} has shape {shape}; columns have one "
                f"dimension, and only {MATRIX!r} may have two: leave it out"
            )
        elif name != NAMES or len(headers.get(MATRIX, ((),))[0]) != 2:
            lengths[name] = shape[0]
    if len(set(lengths.values())) > 1:
        shown = ", ".join(f"{name!r} {rows:,}" for name, rows in list(lengths.items())[:20])
        raise DataError(
            f"{str(file)!r} has arrays of different lengths: {shown}; every column needs one "
            "value per row"
        )


def _loaded(archive: zipfile.ZipFile, info: zipfile.ZipInfo, file: Path) -> np.ndarray:
    try:
        with archive.open(info) as stream:
            return npy.read_array(stream, allow_pickle=False)
    except MemoryError:
        raise no_memory(file) from None


def _names(given: np.ndarray | None, matrix: np.ndarray, file: Path) -> list[str]:
    if given is None:
        return [f"{MATRIX}{j}" for j in range(matrix.shape[1])]
    if given.shape != (matrix.shape[1],) or given.dtype.kind != "U":
        raise DataError(
            f"{str(file)!r}: {NAMES!r} must hold the names of the {matrix.shape[1]:,} columns of "
            f"{MATRIX!r} as text; it has shape {given.shape} and dtype {given.dtype}"
        )
    return given.tolist()


def _column(name: str, array: np.ndarray, file: Path) -> Any:
    if array.dtype.kind == "S":
        array = np.char.decode(array, "utf-8")
    if array.dtype.kind == "f" and array.dtype.itemsize > 8:
        array = array.astype(float)
    if array.dtype.kind not in "fiubUmM":
        raise DataError(
            f"{str(file)!r}: the array {name!r} is of dtype {array.dtype}; save it as numbers, "
            "booleans or text"
        )
    return pa.array(np.ascontiguousarray(array.astype(array.dtype.newbyteorder("="), copy=False)))
