"""Files inside packages, read in memory: nothing is unpacked to disk, installed or run."""

from __future__ import annotations

import io
import lzma
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath

#: a file in a package larger than this is no text that anybody wrote
LARGEST = 1 << 28

Member = tuple[str, bytes]
Wanted = Callable[[str], bool]


def members(path: Path, wanted: Wanted) -> Iterator[Member]:
    """Names and contents of the files of a package, in the package's order.

    Parameters
    ----------
    path : Path
        A ``.whl`` or ``.zip``, a ``.tar.*`` or ``.tgz``, or a ``.deb``.
    wanted : function from a name to a bool
        Which files are read.
    """
    try:
        if path.suffix in (".whl", ".zip"):
            yield from _zip(path, wanted)
        elif path.suffix == ".deb":
            yield from _tar(_debian(path), path, wanted)
        else:
            with open(path, "rb") as file:
                yield from _tar(file, path, wanted)
    except (zipfile.BadZipFile, tarfile.ReadError, EOFError, zlib.error, lzma.LZMAError) as error:
        raise ValueError(
            f"{str(path)!r} is damaged ({error}); remove it, so that it is fetched again"
        ) from error


def _zip(path: Path, wanted: Wanted) -> Iterator[Member]:
    with zipfile.ZipFile(path) as archive:
        for info in archive.infolist():
            name = _checked(info.filename, path)
            if not info.is_dir() and wanted(name) and info.file_size <= LARGEST:
                yield name, archive.read(info)


def _tar(file: io.BufferedIOBase | io.BufferedReader, path: Path, wanted: Wanted) \
        -> Iterator[Member]:  # fmt: skip
    with tarfile.open(fileobj=file) as archive:
        for info in archive:
            name = _checked(info.name, path)
            if info.isfile() and wanted(name) and info.size <= LARGEST:
                found = archive.extractfile(info)
                assert found is not None  # it is a regular file
                yield name, found.read()


def _checked(name: str, path: Path) -> str:
    """A name without a leading ``./``; one that points out of the package is refused."""
    parts = PurePosixPath(name.replace("\\", "/"))
    if parts.is_absolute() or ".." in parts.parts or name[1:2] == ":":
        raise ValueError(
            f"{str(path)!r} holds a file named {name!r}, which points out of the package; it is "
            "not read. Remove it, and fetch it from a registry that you trust"
        )
    return parts.as_posix()


def _debian(path: Path) -> io.BytesIO:
    """The tar of data in a Debian package, which is an ``ar`` archive."""
    with open(path, "rb") as file:
        if file.read(8) != b"!<arch>\n":
            raise tarfile.ReadError("not an ar archive")
        while len(head := file.read(60)) == 60:
            name, size = head[:16].decode("ascii", "replace").strip().rstrip("/"), int(head[48:58])
            if name.startswith("data.tar"):
                data = file.read(size)
                if len(data) < size:
                    raise EOFError(f"{name} is cut off")
                return io.BytesIO(_unzstd(data, path) if name.endswith(".zst") else data)
            file.seek(size + size % 2, io.SEEK_CUR)
    raise tarfile.ReadError("no data.tar in it")


def _unzstd(data: bytes, path: Path) -> bytes:
    try:
        import zstandard
    except ImportError as error:
        raise ImportError(
            f"{str(path)!r} needs the package zstandard: pip install zstandard"
        ) from error
    with zstandard.ZstdDecompressor().stream_reader(data) as stream:
        return stream.read()
