"""The arrays of an .npz file as the columns of a table."""

from __future__ import annotations

import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from counterpoise.tabular.errors import DataError

MATRIX, NAMES = "X", "feature_names"


def read_npz(file: Path) -> Any:
    """Read an .npz file.

    Arrays of one dimension are columns. So are the columns of a matrix ``X``, which are named by
    ``feature_names`` or called ``X0``, ``X1``, ...
    """
    arrays = _arrays(file)
    columns: list[tuple[str, np.ndarray]] = []
    matrix = arrays.get(MATRIX)
    if matrix is not None and matrix.ndim == 2:
        del arrays[MATRIX]
        columns += zip(_names(arrays.pop(NAMES, None), matrix, file), matrix.T, strict=True)
    for name, array in arrays.items():
        if array.ndim != 1:
            raise DataError(
                f"{str(file)!r}: the array {name!r} has shape {array.shape}; columns have one "
                f"dimension, and only {MATRIX!r} may have two: leave it out"
            )
        columns.append((name, array))
    lengths = {name: len(array) for name, array in columns}
    if len(set(lengths.values())) > 1:
        raise DataError(
            f"{str(file)!r} has arrays of different lengths, {lengths!r}; every column needs one "
            "value per row"
        )
    data = [_column(name, array, file) for name, array in columns]
    return pa.Table.from_arrays(data, names=[name for name, _ in columns])


def _arrays(file: Path) -> dict[str, np.ndarray]:
    try:
        with open(file, "rb") as raw:  # numpy would leave a damaged file open
            found = np.load(raw, allow_pickle=False)
            if isinstance(found, np.ndarray):
                raise DataError(f"{str(file)!r} holds one array; save columns with numpy.savez")
            return {name: _loaded(found, name, file) for name in found.files}
    except (zipfile.BadZipFile, zlib.error, KeyError, NotImplementedError) as error:
        raise DataError(
            f"{str(file)!r} is truncated or damaged ({error}); write it again"
        ) from None


def _loaded(found: Any, name: str, file: Path) -> np.ndarray:
    try:
        array = found[name]
        if not isinstance(array, np.ndarray):
            raise DataError(
                f"{str(file)!r} has {name!r}, which is not an array; save columns with numpy.savez"
            )
        return array
    except ValueError as error:
        if "pickle" not in str(error):
            raise
        raise DataError(
            f"{str(file)!r}: the array {name!r} holds Python objects, which are not loaded because "
            "they can run code; save it as numbers or text, with array.astype(str)"
        ) from None


def _names(given: np.ndarray | None, matrix: np.ndarray, file: Path) -> list[str]:
    if given is None:
        return [f"{MATRIX}{j}" for j in range(matrix.shape[1])]
    if given.shape != (matrix.shape[1],) or given.dtype.kind != "U":
        raise DataError(
            f"{str(file)!r}: {NAMES!r} must hold the names of the {matrix.shape[1]} columns of "
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
