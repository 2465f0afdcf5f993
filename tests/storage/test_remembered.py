"""Large files are read once, until they change, and what was read is remembered somewhere."""

import logging
import os

import pytest

from counterpoise.storage import remembered
from counterpoise.storage.files import checksum
from counterpoise.storage.remembered import checksums_once


@pytest.fixture(autouse=True)
def fresh(monkeypatch):
    monkeypatch.setattr(remembered, "_known", {})
    monkeypatch.setattr(remembered, "_said", set())
    monkeypatch.setattr(remembered, "SETTLED", -1)


@pytest.fixture
def reads(monkeypatch):
    seen = []
    monkeypatch.setattr(
        remembered, "checksum", lambda path: (seen.append(path.name), checksum(path))[1]
    )
    return seen


@pytest.fixture
def files(tmp_path):
    folder = tmp_path / "model"
    folder.mkdir()
    paths = [folder / "one.safetensors", folder / "two.safetensors"]
    for number, path in enumerate(paths):
        path.write_bytes(bytes(range(100 + number)))
    return paths


def another_process():
    remembered._known.clear()


def refuse(monkeypatch, *, cache):
    """Let nothing be written beside files and, if asked, in the cache folder either."""
    real = remembered.write_json

    def write(path, value):
        if cache or path.name == remembered.VERIFIED:
            raise PermissionError(13, "Permission denied", str(path))
        real(path, value)

    monkeypatch.setattr(remembered, "write_json", write)


@pytest.mark.parametrize("beside", [True, False])
def test_files_are_read_once_until_they_change(files, reads, tmp_path, beside):
    found = [checksum(path) for path in files]
    for _ in range(3):
        assert checksums_once(files, beside=beside) == found
        another_process()
    assert reads == [path.name for path in files]
    assert (files[0].parent / remembered.VERIFIED).exists() == beside
    assert bool(list(tmp_path.glob(".cache/checksums/*.json"))) != beside
    then = files[1].stat()
    files[1].write_bytes(b"x" * 101)
    os.utime(files[1], ns=(then.st_atime_ns, then.st_mtime_ns))
    assert checksums_once(files, beside=beside) == [found[0], checksum(files[1])] != found
    assert reads[2:] == ["two.safetensors"]


def test_a_folder_that_cannot_be_written_is_remembered_in_the_cache(files, reads, monkeypatch):
    refuse(monkeypatch, cache=False)
    for _ in range(3):
        checksums_once(files, beside=True)
        another_process()
    assert len(reads) == 2
    assert not (files[0].parent / remembered.VERIFIED).exists()


@pytest.mark.parametrize("homeless", [True, False])
def test_where_nothing_can_be_remembered_it_is_said_once(
    files, reads, monkeypatch, caplog, homeless
):
    refuse(monkeypatch, cache=not homeless)
    if homeless:
        monkeypatch.setattr(remembered, "cache_folder", lambda: (_ for _ in ()).throw(RuntimeError))
    with caplog.at_level(logging.WARNING, "counterpoise"):
        for _ in range(2):
            checksums_once(files, beside=True)
            another_process()
    assert len(reads) == 4
    assert [record.getMessage().split(",")[0] for record in caplog.records] == [
        f"{files[0].parent} has been checked"
    ]


def test_other_processes_accept_what_one_has_read_of_the_same_files(files, reads, monkeypatch):
    refuse(monkeypatch, cache=True)
    checksums_once(files)
    known = remembered.known()
    another_process()
    remembered.accept(known)
    checksums_once(files)
    assert len(reads) == 2
    another_process()
    copy = files[1].read_bytes()  # a machine with a copy of its own
    files[1].unlink()
    files[1].write_bytes(copy)
    remembered.accept(known)
    checksums_once(files)
    assert reads[2:] == ["two.safetensors"]


def test_what_differs_from_the_stated_checksum_is_not_remembered(files, reads):
    """A disk may err once; what it then seemed to hold must not outlast that."""
    for _ in range(2):
        assert checksums_once(files[:1], ["00000000"]) == [checksum(files[0])]
    assert len(reads) == 2
    for _ in range(2):
        checksums_once(files[:1], [checksum(files[0])])
    assert len(reads) == 3
    assert checksums_once(files[:1], ["00000000"]) != ["00000000"]
    assert len(reads) == 4, "a difference is never taken from memory"


def test_links_as_in_the_cache_of_the_hub(files, reads, tmp_path):
    snapshot = tmp_path / "snapshot"
    snapshot.mkdir()
    for path in files:
        (snapshot / path.name).symlink_to(path)
    for _ in range(2):
        checksums_once(sorted(snapshot.iterdir()))
        another_process()
    assert len(reads) == 2
    assert len(list(snapshot.iterdir())) == 2


def test_forgotten_files_are_read_again(files, reads, monkeypatch):
    for beside in (True, False):
        checksums_once(files, beside=beside)
    remembered.forget(files[0].parent)
    checksums_once(files)
    assert len(reads) == 4


@pytest.mark.parametrize("text", ["", "{", "[]", '{"format": 3}', "[" * 100_000])
def test_a_damaged_memory_is_no_memory(files, reads, tmp_path, text):
    checksums_once(files)
    (cache,) = tmp_path.glob(".cache/checksums/*.json")
    cache.write_text(text)
    another_process()
    checksums_once(files)
    assert len(reads) == 4


def test_the_cache_folder(monkeypatch, tmp_path):
    """The variable counts only if it is absolute, as its standard says."""
    monkeypatch.undo()
    for given, root in ((str(tmp_path), tmp_path), ("here", tmp_path / "home/.cache")):
        monkeypatch.setenv("HOME", str(tmp_path / "home"))
        monkeypatch.setenv("XDG_CACHE_HOME", given)
        assert remembered.cache_folder() == root / "counterpoise"
