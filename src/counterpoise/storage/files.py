"""Files that are complete or absent, and folders that one process writes at a time."""

from __future__ import annotations

import errno
import glob
import hashlib
import io
import json
import os
import secrets
import stat
import sys
import time
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

LOCK = ".lock"
PID_BYTES = 20
PROBE = 1 << 16
CHUNK = 1 << 22
# Bytes of JSON that are read; as Python objects they may take thirty times as much.
JSON_LIMIT = 1 << 28
OTHER = "give another"
_NONBLOCK = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0)
_NOFOLLOW = getattr(os, "O_NOFOLLOW", 0)


def write_json(path: Path, value: Any) -> None:
    """Write a file so that a crash leaves either the old or the new one."""
    write_text(path, json.dumps(value, indent=2) + "\n")


def write_text(path: Path, text: str) -> None:
    write_bytes(path, text.encode())


def write_bytes(path: Path, data: bytes) -> None:
    with replacing(path) as file:
        file.write(data)


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """Open a draft, which takes the place of a file when the block ends.

    After an error, the old file is unchanged and the draft is gone; an OSError names the file and
    a remedy. Drafts that killed processes left beside the file are removed.
    """
    try:
        draft, file = _new_draft(path)
        try:
            with file:
                yield file
                file.flush()
                os.fsync(file.fileno())
                if sys.platform != "win32":  # there, an open file cannot be renamed
                    os.replace(draft, path)
            if sys.platform == "win32":
                os.replace(draft, path)
        finally:
            with suppress(OSError):
                draft.unlink(missing_ok=True)
    except OSError as error:
        if not _is_about(error, path):  # the block read another file
            raise
        raise unwritten(path, error) from None
    try:
        sync_folder(path.parent)
    except OSError as error:
        raise _named(
            error,
            f"{str(path)!r} is written, but a crash may lose it ({error.strerror}); check the disk "
            "or network share",
        ) from None
    sweep(path.parent, glob.escape(path.name))


def _is_about(error: OSError, path: Path) -> bool:
    """Return whether an error concerns a file or its draft; errors of writing name no file."""
    if not isinstance(error.filename, str):
        return True
    name = os.path.basename(error.filename)
    return name == path.name or name.startswith(f".{path.name}.")


def draft_of(path: Path) -> Path:
    """A temporary name beside a file, which no other process uses."""
    return path.with_name(f".{path.name}.{secrets.token_hex(4)}.new")


def _new_draft(path: Path) -> tuple[Path, BinaryIO]:
    """Create a draft and lock it, which tells others that its process is alive."""
    while True:
        draft = draft_of(path)
        file = open(draft, "xb")  # noqa: SIM115
        if _lock(file.fileno()) is not False:
            with suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(file.fileno()), os.lstat(draft)):
                    return draft, file
        file.close()  # another process removed it before it was locked


def sweep(folder: Path, name: str) -> None:
    """Remove the drafts of a file that killed processes left; ``name`` may be a pattern.

    A process holds a lock on its draft, so the drafts of processes that are alive are kept. Where
    files cannot be locked, nothing is removed.
    """
    if sys.platform == "win32":
        return
    with suppress(OSError):
        drafts = folder.glob(f".{name}.{'[0-9a-f]' * 8}.new")
        for draft in [found for found in drafts if not found.is_symlink()]:
            with suppress(OSError, ValueError), open_regular(draft) as file:
                if _lock(file.fileno()):
                    draft.unlink()


# What to do about an error of the system.
REMEDIES = {
    errno.ENOSPC: "free some space, or choose another disk",
    errno.EDQUOT: "free some of your quota, or choose another disk",
    errno.EFBIG: "raise the limit on the size of a file (ulimit -f), or choose another disk",
    errno.ENOENT: "create its folder first",
    errno.ENOTDIR: "create its folder first",
    errno.EISDIR: "choose the name of a file",
    errno.EACCES: "choose a folder that you can write to",
    errno.EPERM: "choose a folder that you can write to",
    errno.EROFS: "choose a folder that you can write to",
    errno.ENAMETOOLONG: "choose a shorter name",
}


def unwritten(path: Path, error: OSError, kept: str = "the old one is unchanged") -> OSError:
    """Return an error of the same type and number that names the file and a remedy.

    ``kept`` says what is left of a file that is there already.
    """
    if getattr(error, "named", False):
        return error
    remedy = REMEDIES.get(error.errno or 0, "check the disk or network share, then try again")
    said = f"; {kept}" if os.path.lexists(path) else ""
    why = error.strerror or str(error) or type(error).__name__
    return _named(error, f"{str(path)!r} cannot be written ({why}){said}; {remedy}")


def _named(error: OSError, message: str) -> OSError:
    """Return an error of the same type and number with another message."""
    made = type(error)(message)
    made.errno = error.errno
    made.named = True  # type: ignore[attr-defined]
    return made


def open_regular(path: Path, flags: int = os.O_RDONLY) -> io.FileIO:
    """Open a regular file; `check_regular` says what is refused.

    Opening never waits for another process. The file has no buffer.
    """
    check_regular(path)  # a device is not opened at all
    handle = os.open(path, flags | _NONBLOCK | getattr(os, "O_BINARY", 0))
    try:
        _check_mode(path, os.fstat(handle).st_mode, OTHER)
        return io.FileIO(handle, "rb" if flags == os.O_RDONLY else "r+b")
    except BaseException:
        os.close(handle)
        raise


def check_regular(path: Path, remedy: str = OTHER) -> int:
    """Return the size of a regular file; refuse a folder, a device, a pipe or a socket.

    A link to a regular file passes: the cache of the hub consists of them. The error, a ValueError,
    or a FileNotFoundError for a link to nothing, ends with the remedy.
    """
    try:
        status = os.stat(path)
    except FileNotFoundError:
        if not path.is_symlink():
            raise
        raise FileNotFoundError(f"{str(path)!r} is a link to nothing; {remedy}") from None
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        raise ValueError(f"{str(path)!r} is a link that leads in a circle; {remedy}") from None
    _check_mode(path, status.st_mode, remedy)
    return status.st_size


def _check_mode(path: Path, mode: int, remedy: str) -> None:
    if stat.S_ISREG(mode):
        return
    kinds = {
        stat.S_IFDIR: "a folder", stat.S_IFIFO: "a named pipe", stat.S_IFSOCK: "a socket",
        stat.S_IFCHR: "a device", stat.S_IFBLK: "a device",
    }  # fmt: skip
    kind = kinds.get(stat.S_IFMT(mode), "a special file")
    raise ValueError(f"{str(path)!r} is {kind}, not a file; {remedy}")


def read_regular(path: Path, limit: int = JSON_LIMIT) -> bytes:
    """Read a regular file of at most ``limit`` bytes; raise ValueError for any other."""
    with io.BufferedReader(open_regular(path)) as file:
        size = os.fstat(file.fileno()).st_size
        if size > limit:
            raise ValueError(
                f"{str(path)!r} has {size:,} bytes, more than the {limit:,} that are read; give "
                "another"
            )
        data = file.read(size + 1)
    if len(data) != size:
        raise ValueError(f"{str(path)!r} changed while it was read; try again")
    return data


def read_json(
    path: Path,
    kind: str,
    version: int | tuple[int, ...],
    remedy: str = "write it again, or give another",
) -> dict[str, Any]:
    """Read a file that `write_json` wrote, and check its kind and version.

    Errors end with the remedy. Several versions may be given if all of them can be read.
    """
    versions = (version,) if isinstance(version, int) else version
    data = read_regular(path)
    try:
        value = json.loads(data.decode())
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{str(path)!r} is not JSON ({error}); {remedy}") from None
    check_format(path, value, kind, versions, remedy)
    return value


def check_format(path: Path, value: Any, kind: str, versions: tuple[int, ...], remedy: str) -> None:
    """Check the kind and version that JSON from a file has."""
    if not isinstance(value, dict) or value.get("format") != kind:
        raise ValueError(f"{str(path)!r} is not a {kind}; {remedy}")
    if value.get("version") not in versions:
        raise ValueError(
            f"{str(path)!r} has version {value.get('version')!r} and this library reads version "
            f"{' and '.join(map(str, versions))}; use the library that wrote it, or {remedy}"
        )


def probed(files: Iterable[Path]) -> str:
    """A digest of files that reads little of them.

    It covers their sizes, and bytes at the beginning, in the middle and at the end.
    """
    sha = hashlib.sha256()
    for path in files:
        size = path.stat().st_size
        sha.update(size.to_bytes(8, "little"))
        with path.open("rb") as file:
            for at in (0, size // 2, max(size - PROBE, 0)):
                file.seek(at)
                sha.update(file.read(PROBE))
    return sha.hexdigest()[:16]


def checksum(path: Path) -> str:
    """Return the CRC-32 of a file in hexadecimal.

    It detects damage, not forgery, and is read at the speed of the disk.
    """
    crc = 0
    with path.open("rb") as file:
        while chunk := file.read(CHUNK):
            crc = zlib.crc32(chunk, crc)
    return f"{crc:08x}"


def sync_folder(folder: Path) -> None:
    """Flush the names in a folder to disk, if the system allows it."""
    if sys.platform == "win32":
        return
    try:
        handle = os.open(folder, os.O_RDONLY)
    except OSError:  # it may be written to but not read
        return
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP, errno.EBADF):
            raise
    finally:
        os.close(handle)


# Locks of this process. A forked child closes them, since a lock lasts until every copy is closed.
_held: set[int] = set()


def _forget() -> None:
    for handle in _held:
        with suppress(OSError):
            os.close(handle)
    _held.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)


@contextmanager
def locked(folder: Path, wait: float = 0.0) -> Iterator[None]:
    """Lock a folder until the block or the process ends.

    If another process holds it, raise RuntimeError after ``wait`` seconds. Children of the process
    do not hold the lock.
    """
    path = folder / LOCK
    handle = _take(path, time.monotonic() + wait)
    try:
        with suppress(OSError):  # on a full disk, others do not learn who holds it
            os.write(handle, f"{os.getpid():<{PID_BYTES}}".encode())
        yield
    finally:
        if handle in _held:  # not in a forked child
            if sys.platform != "win32" and _is_at(handle, path):  # there, it cannot be removed
                path.unlink(missing_ok=True)
            _let_go(handle)


def _take(path: Path, until: float) -> int:
    while True:
        handle = _open_lock(path)
        _held.add(handle)
        try:
            locked = _lock(handle)
            if locked is None:
                raise OSError(errno.ENOLCK, "its file system does not lock files")
            holder = _holder(handle, path)
            if locked and _is_at(handle, path):
                os.lseek(handle, 0, os.SEEK_SET)
                return handle
        except BaseException as error:
            _let_go(handle)
            if isinstance(error, OSError):
                raise unwritten(path, error) from None
            raise
        _let_go(handle)
        if locked:
            continue  # its holder removed the file before we locked it
        if time.monotonic() >= until:
            raise RuntimeError(
                f"another process{holder and f' ({holder})'} is writing to {str(path.parent)!r}; "
                "wait for it, or choose another folder"
            )
        time.sleep(0.2)


def _open_lock(path: Path) -> int:
    """Open or create a file to lock, which must not be a link, and leave its content."""
    flags = os.O_RDWR | os.O_CREAT | _NOFOLLOW | _NONBLOCK
    try:
        handle = os.open(path, flags, 0o644)
    except OSError as error:
        if path.is_symlink() or (path.exists() and not path.is_file()):
            raise _not_a_lock(path) from None
        raise unwritten(path, error) from None
    if stat.S_ISREG(os.fstat(handle).st_mode) and os.fstat(handle).st_nlink <= 1:
        return handle
    os.close(handle)
    raise _not_a_lock(path)


def _holder(handle: int, path: Path) -> str:
    """Return the number of the process that holds a lock, if it has written it."""
    if sys.platform == "win32":  # there, a locked file cannot be read
        return ""
    text = os.read(handle, PID_BYTES + 1).strip()
    if text and not (text.isdigit() and len(text) < PID_BYTES):
        raise _not_a_lock(path)
    return text.decode()


def _not_a_lock(path: Path) -> FileExistsError:
    made = FileExistsError(f"{str(path)!r} is not a lock of counterpoise; move it away first")
    made.named = True  # type: ignore[attr-defined]
    return made


def _lock(handle: int) -> bool | None:
    """Lock a file without waiting; False if another holds it, None where there are no locks."""
    try:
        if sys.platform == "win32":
            msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)
        else:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        held = (errno.EWOULDBLOCK, errno.EAGAIN, errno.EACCES, errno.EDEADLK)
        return False if error.errno in held else None
    return True


def _is_at(handle: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(handle), os.lstat(path))
    except FileNotFoundError:
        return False


def _let_go(handle: int) -> None:
    _held.discard(handle)
    os.close(handle)
