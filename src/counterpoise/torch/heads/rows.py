"""Keep embeddings in memory or, if there are too many, in a .npy file."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import IO, Any

import numpy as np

from counterpoise.rows.sources import Chunk, Npy, Source

Array = np.ndarray

EMBEDDINGS, LABELS, GROUPS = "embeddings.npy", "labels.npy", "groups.npy"


class HeadRows(Source):
    """Embeddings in memory or in a .npy file, with labels and groups, in chunks."""

    def __init__(self, X: Array | str | os.PathLike[str], y: Array, groups: Any) -> None:
        self._rows, self._groups = Npy(X, y), groups
        if len(groups) != len(y):
            raise ValueError(f"y has {len(y)} entries but groups has {len(groups)}")

    def __iter__(self) -> Iterator[Chunk]:
        start = 0
        for X, y, *_ in self._rows:
            yield X, y, self._groups[start : start + len(y)]
            start += len(y)

    @property
    def n_rows(self) -> int:
        return self._rows.n_rows


def plain_groups(groups: Any) -> Array:
    """Return groups as an array: labels, or the matrix of memberships."""
    return groups.matrix.toarray() if hasattr(groups, "matrix") else groups


class EmbeddingRows:
    """Rows of one width, added a batch at a time.

    Parameters
    ----------
    memory : int
        Bytes to keep in memory; with more, all rows move to a file.
    folder : path
        Folder of the file, which is made when it is needed.
    """

    def __init__(self, memory: int, folder: Path) -> None:
        self.memory, self.folder = memory, folder
        self._chunks: list[Array] = []
        self._bytes = self._rows = 0
        self._file: IO[bytes] | None = None
        self._head: dict[str, Any] = {}

    def add(self, rows: Array) -> None:
        """Add the rows of a batch."""
        self._check(rows)
        self._rows += len(rows)
        self._bytes += rows.nbytes
        if self._file is None and self._bytes <= self.memory:
            self._chunks.append(rows)
            return
        file = self._file or self._open()
        file.write(np.ascontiguousarray(rows).data)

    def finish(self) -> Array | Path:
        """Return all rows: an array, or the path of a .npy file."""
        if self._file is None:
            found = np.concatenate(self._chunks)
            self._chunks.clear()
            return found
        length = self._file.tell()
        self._write_head()
        assert self._rows * self._row_bytes + self._file.tell() == length
        self._file.close()
        path = self.folder / EMBEDDINGS
        os.replace(self._file.name, path)
        self._file = None
        return path

    def close(self) -> None:
        """Remove an unfinished file."""
        if self._file is not None:
            self._file.close()
            Path(self._file.name).unlink()
            self._file = None

    def __enter__(self) -> EmbeddingRows:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def _row_bytes(self) -> int:
        return int(self._head["dtype"].itemsize * self._head["width"])

    def _check(self, rows: Array) -> None:
        if not self._head:
            self._head = {"dtype": rows.dtype, "width": rows.shape[1]}
        if (rows.dtype, rows.shape[1]) != (self._head["dtype"], self._head["width"]):
            raise ValueError(
                f"a batch has embeddings of {rows.shape[1]} x {rows.dtype}, those before it had "
                f"{self._head['width']} x {self._head['dtype']}"
            )

    def _open(self) -> IO[bytes]:
        self.folder.mkdir(parents=True, exist_ok=True)
        self._file = open(self.folder / f"{EMBEDDINGS}.part", "wb")  # noqa: SIM115
        self._write_head()
        for chunk in self._chunks:
            self._file.write(np.ascontiguousarray(chunk).data)
        self._chunks.clear()
        return self._file

    def _write_head(self) -> None:
        """Write the header, which numpy pads so that a longer array's has the same length."""
        assert self._file is not None
        self._file.seek(0)
        np.lib.format.write_array_header_1_0(
            self._file,
            {
                "descr": np.lib.format.dtype_to_descr(self._head["dtype"]),
                "fortran_order": False,
                "shape": (self._rows, self._head["width"]),
            },
        )


def new_folder(path: str | os.PathLike[str]) -> Path:
    """Return a folder to keep embeddings in; it must not have any yet."""
    folder = Path(path)
    taken = [name for name in (EMBEDDINGS, LABELS, GROUPS) if (folder / name).exists()]
    if taken:
        raise FileExistsError(
            f"folder={str(folder)!r} already has {taken[0]!r}; fit to it with fit_head, or name "
            "another folder"
        )
    return folder
