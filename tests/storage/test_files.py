"""Files that are complete or absent, of a known kind, and folders that one process writes."""

from __future__ import annotations

import errno
import os
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from paths import environment

from counterpoise.storage import files
from counterpoise.storage.files import read_json


@pytest.mark.parametrize("text", ["{", "[]", '{"format": "b"}', '{"format": "a", "version": 2}'])
def test_the_remedy_is_the_caller_s(tmp_path, text):
    path = tmp_path / "a.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=r"a\.json' (is|has) .*write it again, or give another$"):
        read_json(path, "a", 1)
    with pytest.raises(ValueError, match=r"a\.json' (is|has) .*ask for it$"):
        read_json(path, "a", 1, "ask for it")


def test_a_checksum_is_the_crc_of_all_bytes(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "CHUNK", 4)
    path = tmp_path / "digits"
    path.write_bytes(b"123456789")
    assert files.checksum(path) == "cbf43926"  # the check value of CRC-32


# -- errors of the system ------------------------------------------------------------------


@pytest.mark.parametrize("number", ["ENOSPC", "EDQUOT", "EFBIG", "EIO", "ESTALE", "EXDEV", "EROFS"])
@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_an_error_names_the_file_and_a_remedy(tmp_path, monkeypatch, number, call):
    path = tmp_path / "a.json"
    path.write_text("old")

    def fail(*_):
        raise OSError(getattr(errno, number), os.strerror(getattr(errno, number)))

    monkeypatch.setattr(os, call, fail)
    with pytest.raises(
        OSError, match=r"a\.json' cannot be written \(.*the old one is unch"
    ) as told:
        files.write_json(path, {"new": 1})
    assert told.value.errno == getattr(errno, number)
    assert "\n" not in str(told.value)
    assert "[Errno" not in str(told.value)
    assert path.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["a.json"]


def test_a_folder_that_is_not_there(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"x.a' cannot be written .*; create its folder f"):
        files.write_text(tmp_path / "x" / "a", "")
    (tmp_path / "a").mkdir()
    with pytest.raises(IsADirectoryError, match="choose the name of a file"):
        files.write_text(tmp_path / "a", "")
    assert [p.name for p in tmp_path.iterdir()] == ["a"]


FULL = """
import resource, sys
from pathlib import Path
from counterpoise.storage.files import write_bytes
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
try:
    write_bytes(Path(sys.argv[1]), bytes(5000))
except OSError as error:
    sys.exit(str(error))
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="no limits")
def test_a_file_that_is_too_large_leaves_nothing(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", FULL, str(tmp_path / "a")],
        capture_output=True, text=True, env=environment(), timeout=60,
    )  # fmt: skip
    assert "a' cannot be written (File too large); raise the limit" in done.stderr
    assert list(tmp_path.iterdir()) == []


# -- drafts --------------------------------------------------------------------------------

DYING = """
import os, signal, sys, time
from pathlib import Path
from counterpoise.storage.files import replacing
with replacing(Path(sys.argv[1])) as file:
    file.write(b"half")
    file.flush()
    if sys.argv[2] == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    print("ready", flush=True)
    sys.stdin.readline()
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="no SIGKILL")
def test_drafts_of_dead_processes_are_swept_and_of_live_ones_kept(tmp_path):
    path, command = tmp_path / "a[1].json", [sys.executable, "-c", DYING]
    subprocess.run([*command, path, "die"], env=environment(), timeout=60)
    (left,) = tmp_path.glob(".a*.new")
    other = tmp_path / ".a1.json.01234567.new"  # of another file
    other.write_text("")
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    alive = subprocess.Popen([*command, path, "wait"], env=environment(), **pipes)
    try:
        assert alive.stdout.readline() == b"ready\n"
        files.write_text(path, "mine")
        assert not left.exists()
        assert len(list(tmp_path.glob(".a[[]1*.new"))) == 1
        assert other.exists()
        assert path.read_text() == "mine"
        alive.communicate(b"\n", timeout=60)
        assert path.read_text() == "half", "the last to finish"
    finally:
        alive.kill()
        alive.wait()
    assert sorted(p.name for p in tmp_path.iterdir()) == [".a1.json.01234567.new", "a[1].json"]


# -- regular files -------------------------------------------------------------------------


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes")
def test_only_regular_files_are_read(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "zero").symlink_to("/dev/zero")
    (tmp_path / "file").write_bytes(b"123")
    (tmp_path / "link").symlink_to(tmp_path / "file")
    server = socket.socket(socket.AF_UNIX)
    here = Path.cwd()
    try:
        os.chdir(tmp_path)  # names of sockets are short
        server.bind("socket")
    finally:
        os.chdir(here)
        server.close()
    kinds = {"pipe": "a named pipe", "zero": "a device", "socket": "a socket", ".": "a folder"}
    for name, kind in kinds.items():
        with pytest.raises(ValueError, match=f" is {kind}, not a file; give another"):
            files.read_regular(tmp_path / name)
        with pytest.raises(ValueError, match="not a file"):
            read_json(tmp_path / name, "a", 1)
    assert files.read_regular(tmp_path / "link", 3) == b"123"
    with pytest.raises(ValueError, match="file' has 3 bytes, more than the 2 that are read"):
        files.read_regular(tmp_path / "file", 2)
    with pytest.raises(FileNotFoundError):
        files.read_regular(tmp_path / "nothing")
    assert files.check_regular(tmp_path / "link") == 3
    (tmp_path / "lost").symlink_to(tmp_path / "nothing")
    with pytest.raises(FileNotFoundError, match="lost' is a link to nothing; copy it again"):
        files.check_regular(tmp_path / "lost", "copy it again")
    (tmp_path / "circle").symlink_to(tmp_path / "circle")
    with pytest.raises(ValueError, match="circle' is a link that leads in a circle; give another"):
        files.read_regular(tmp_path / "circle")


def test_deep_json_is_refused(tmp_path):
    (tmp_path / "a").write_text("[" * 100_000)
    with pytest.raises(ValueError, match="is not JSON"):
        read_json(tmp_path / "a", "a", 1)


# -- locks ---------------------------------------------------------------------------------

posix = pytest.mark.skipif(sys.platform == "win32", reason="other locks")


def test_a_lock_holds_and_goes(tmp_path):
    with files.locked(tmp_path):
        with pytest.raises(RuntimeError, match=rf"another process \({os.getpid()}\) is writing to"):
            files.locked(tmp_path).__enter__()
        assert (tmp_path / ".lock").read_text().strip() == str(os.getpid())
    assert list(tmp_path.iterdir()) == []
    (tmp_path / ".lock").write_text("123456789")  # of a process that was killed
    with files.locked(tmp_path):
        assert (tmp_path / ".lock").read_text().strip() == str(os.getpid())
    assert list(tmp_path.iterdir()) == []


@posix
@pytest.mark.parametrize("how", ["symlink", "dangling", "hard link", "file", "pipe", "folder"])
def test_what_is_not_a_lock_is_left_alone(tmp_path, how):
    victim, lock = tmp_path / "thesis", tmp_path / ".lock"
    victim.write_text("all of it")
    make = {
        "symlink": lambda: lock.symlink_to(victim),
        "dangling": lambda: lock.symlink_to(tmp_path / "nothing"),
        "hard link": lambda: os.link(victim, lock),
        "file": lambda: lock.write_text("all of it"),
        "pipe": lambda: os.mkfifo(lock),
        "folder": lambda: lock.mkdir(),
    }
    make[how]()
    before = os.lstat(lock).st_ino
    with (
        pytest.raises(FileExistsError, match=r"lock' is not a lock of counterpoise; move it away"),
        files.locked(tmp_path),
    ):
        pass
    assert victim.read_text() == "all of it"
    assert os.lstat(lock).st_ino == before
    assert not (tmp_path / "nothing").exists()
    assert files._held == set()


ORPHAN = """
import multiprocessing, os, signal, sys, time
from pathlib import Path
from counterpoise.storage.files import locked

def outlive(folder):
    with locked(Path(folder).parent):  # locks of its own are no matter
        print(os.getpid(), flush=True)
        time.sleep(60)

with locked(Path(sys.argv[1])):
    child = multiprocessing.get_context("fork").Process(target=outlive, args=[sys.argv[1]])
    child.start()
    sys.stdin.readline()
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.slow
@posix
def test_a_child_that_outlives_its_killed_parent_holds_no_lock(tmp_path):
    folder = tmp_path / "run"
    folder.mkdir()
    parent = subprocess.Popen(
        [sys.executable, "-c", ORPHAN, str(folder)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment(),
    )  # fmt: skip
    child = int(parent.stdout.readline())
    try:
        with pytest.raises(RuntimeError, match=rf"another process \({parent.pid}\)"):
            files.locked(folder).__enter__()
        parent.stdin.write(b"\n")
        parent.stdin.flush()
        assert parent.wait(60) == -signal.SIGKILL
        os.kill(child, 0)  # it is alive
        with files.locked(folder):
            pass
        assert list(folder.iterdir()) == []
    finally:
        os.kill(child, signal.SIGKILL)
        parent.stdin.close()
        parent.stdout.close()


@posix
def test_a_child_does_not_remove_the_lock_of_its_parent(tmp_path):
    with files.locked(tmp_path):
        child = os.fork()
        if not child:
            code = 1
            with suppress(RuntimeError):  # leave the block in the child as well
                files.locked(tmp_path).__enter__()
                code = 2
            held = bool(files._held)
            os._exit(code if held else 0)
        assert os.waitpid(child, 0)[1] == 0
        with pytest.raises(RuntimeError, match="another process"):
            files.locked(tmp_path).__enter__()


def test_an_error_about_another_file_keeps_its_name(tmp_path):
    """What a block reads while it writes is not what it writes."""
    with (
        pytest.raises(FileNotFoundError, match="source"),
        files.replacing(tmp_path / "target") as file,
    ):
        file.write((tmp_path / "other" / "source").read_bytes())
