"""Files inside packages, read in memory: nothing is unpacked to disk, installed or run."""

from __future__ import annotations

import io
import lzma
import re
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath
from typing import IO, Any

from counterpoise.lm.corpus.files import zstandard_for

#: a file in a package larger than this is no text that anybody wrote
LARGEST = 1 << 28

Member = tuple[str, bytes]
Wanted = Callable[[str], bool]

# What the readers of archives and the decompressors below them raise.
DAMAGE = (
    zipfile.BadZipFile, tarfile.TarError, OSError, EOFError, zlib.error, lzma.LZMAError,
    struct.error, UnicodeError, RuntimeError,
)  # fmt: skip
DRIVE = re.compile(r"[A-Za-z]:(/|$)")


def members(path: Path, wanted: Wanted) -> Iterator[Member]:
    """Names and contents of the files of a package, in the package's order.

    Parameters
    ----------
    path : Path
        A ``.whl`` or ``.zip``, a ``.tar.*`` or ``.tgz``, or a ``.deb``.
    wanted : function from a name to a bool
        Which files are read.
    """
    with open(path, "rb") as file:  # one that is not there is not damaged
        try:
            if path.suffix in (".whl", ".zip"):
                yield from _zip(file, path, wanted)
            elif path.suffix == ".deb":
                yield from _tar(_debian(file, path), path, wanted)
            else:
                yield from _tar(file, path, wanted)
        except DAMAGE as error:
            raise ValueError(
                f"{str(path)!r} is damaged ({error}); remove it, so that it is fetched again"
            ) from error


def bounded(stream: IO[bytes] | Any, what: str = "the file") -> bytes:
    """All that a stream decompresses to; more than ``LARGEST`` bytes are refused."""
    data: bytes = stream.read(LARGEST + 1)
    if len(data) > LARGEST:
        raise ValueError(
            f"{what} decompresses to more than {LARGEST:,} bytes, which is no text that anybody "
            "wrote"
        )
    return data


def _zip(file: IO[bytes], path: Path, wanted: Wanted) -> Iterator[Member]:
    with zipfile.ZipFile(file) as archive:
        for info in archive.infolist():
            name = _checked(info.filename, path)
            if not info.is_dir() and wanted(name) and info.file_size <= LARGEST:
                with archive.open(info) as found:
                    yield name, bounded(found)


def _tar(file: IO[bytes], path: Path, wanted: Wanted) -> Iterator[Member]:
    with tarfile.open(fileobj=file) as archive:
        for info in archive:
            name = _checked(info.name, path)
            if info.isfile() and wanted(name) and info.size <= LARGEST:
                found = archive.extractfile(info)
                assert found is not None  # it is a regular file
                yield name, found.read()
        _check_end(archive)


def _check_end(archive: tarfile.TarFile) -> None:
    """The reader takes a damaged header for the end, where nothing but zeros may follow.

    Reading on also has the decompressor compare its checksums.
    """
    assert archive.fileobj is not None  # it is open
    archive.fileobj.seek(archive.offset)
    length = 0
    while block := archive.fileobj.read(1 << 16):
        length += len(block)
        if block.count(0) < len(block):
            raise tarfile.ReadError(f"what follows byte {archive.offset:,} cannot be read")
    if length < tarfile.BLOCKSIZE:
        raise tarfile.ReadError("it is cut off")


def _checked(name: str, path: Path) -> str:
    """A name without a leading ``./``; one that points out of the package is refused."""
    parts = PurePosixPath(name.replace("\\", "/"))
    if parts.is_absolute() or ".." in parts.parts or DRIVE.match(parts.as_posix()):
        raise ValueError(
            f"{str(path)!r} holds a file named {name!r}, which points out of the package; it is "
            "not read. Remove it, and fetch it from a registry that you trust"
        )
    return parts.as_posix()


def _debian(file: IO[bytes], path: Path) -> io.BytesIO:
    """The tar of data in a Debian package, which is an ``ar`` archive."""
    if file.read(8) != b"!<arch>\n":
        raise tarfile.ReadError("not an ar archive")
    while len(head := file.read(60)) == 60:
        name = head[:16].decode("ascii", "replace").strip().rstrip("/")
        digits = head[48:58].strip()
        if not digits.isdigit():
            raise tarfile.ReadError(f"{name!r} is said to have {digits!r} bytes")
        size = int(digits)
        if name.startswith("data.tar"):
            data = file.read(size)
            if len(data) < size:
                raise EOFError(f"{name} is cut off")
            return io.BytesIO(_unzstd(data, path) if name.endswith(".zst") else data)
        file.seek(size + size % 2, io.SEEK_CUR)
    raise tarfile.ReadError("no data.tar in it")


def _unzstd(data: bytes, path: Path) -> bytes:
    zstandard = zstandard_for(path)
    try:
        with zstandard.ZstdDecompressor().stream_reader(data, read_across_frames=True) as stream:
            return bounded(stream, repr(str(path)))
    except zstandard.ZstdError as error:
        raise tarfile.ReadError(str(error)) from error
