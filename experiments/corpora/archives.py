"""Read the files inside a package in memory; nothing is unpacked, installed or run."""

from __future__ import annotations

import io
import lzma
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath
from typing import IO

Member = tuple[str, bytes]
Wanted = Callable[[str], bool]

# What archive readers and the decompressors below them raise.
DAMAGE = (
    zipfile.BadZipFile, tarfile.TarError, OSError, EOFError, zlib.error, lzma.LZMAError,
    struct.error, UnicodeError, RuntimeError,
)  # fmt: skip


def members(path: Path, wanted: Wanted) -> Iterator[Member]:
    """Yield names and contents of the wanted files, in the package's order.

    The package is a ``.whl`` or ``.zip``, a ``.tar.*`` or ``.tgz``, or a ``.deb``.
    """
    with open(path, "rb") as file:  # a missing file is not a damaged one
        try:
            if path.suffix in (".whl", ".zip"):
                yield from _zip(file, wanted)
            elif path.suffix == ".deb":
                yield from _tar(_debian(file), wanted)
            else:
                yield from _tar(file, wanted)
        except DAMAGE as error:
            raise ValueError(
                f"{str(path)!r} is damaged ({error}); remove it and run again to fetch it anew"
            ) from error


def _zip(file: IO[bytes], wanted: Wanted) -> Iterator[Member]:
    with zipfile.ZipFile(file) as archive:
        for info in archive.infolist():
            name = _plain(info.filename)
            if not info.is_dir() and wanted(name):
                yield name, archive.read(info)


def _tar(file: IO[bytes], wanted: Wanted) -> Iterator[Member]:
    with tarfile.open(fileobj=file) as archive:
        for info in archive:
            name = _plain(info.name)
            if info.isfile() and wanted(name):
                found = archive.extractfile(info)
                assert found is not None  # a regular file
                yield name, found.read()
        _check_end(archive)


def _check_end(archive: tarfile.TarFile) -> None:
    """Make sure that nothing but zeros follows what `tarfile` took for the end.

    It takes a damaged header for the end, too. Reading to the end also makes the decompressor
    compare its checksums.
    """
    assert archive.fileobj is not None  # the archive is open
    archive.fileobj.seek(archive.offset)
    length = 0
    while block := archive.fileobj.read(1 << 16):
        length += len(block)
        if block.count(0) < len(block):
            raise tarfile.ReadError(f"what follows byte {archive.offset:,} cannot be read")
    if length < tarfile.BLOCKSIZE:
        raise tarfile.ReadError("it is cut off")


def _plain(name: str) -> str:
    """Return a name without a leading ``./``."""
    return PurePosixPath(name).as_posix()


def _debian(file: IO[bytes]) -> io.BytesIO:
    """Return the data tar of a Debian package, which is an ``ar`` archive."""
    if file.read(8) != b"!<arch>\n":
        raise tarfile.ReadError("not an ar archive")
    while len(head := file.read(60)) == 60:
        name = head[:16].decode("ascii", "replace").strip().rstrip("/")
        digits = head[48:58].strip()
        if not digits.isdigit():
            raise tarfile.ReadError(f"the size of {name!r} is {digits!r}")
        size = int(digits)
        if name.startswith("data.tar"):
            data = file.read(size)
            if len(data) < size:
                raise EOFError(f"{name} is cut off")
            return io.BytesIO(_unzstd(data) if name.endswith(".zst") else data)
        file.seek(size + size % 2, io.SEEK_CUR)
    raise tarfile.ReadError("it has no data.tar")


def _unzstd(data: bytes) -> bytes:
    import zstandard

    try:
        with zstandard.ZstdDecompressor().stream_reader(data, read_across_frames=True) as stream:
            return bytes(stream.read())
    except zstandard.ZstdError as error:
        raise tarfile.ReadError(str(error)) from error
