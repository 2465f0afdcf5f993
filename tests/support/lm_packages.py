"""Packages as registries have them, made by hand: wheels, npm's tarballs, Debian's archives."""

from __future__ import annotations

import io
import json
import sys
import tarfile
import zipfile

from experiments.corpora.domains import PACKAGES

PROSE = "The sea was calm, and {} ships lay in the bay; nobody knew whose they were.\n"


def tarred(files, compression="gz"):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode=f"w:{compression}") as archive:
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return out.getvalue()


def zipped(files):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return out.getvalue()


def debian(data, name="data.tar.xz"):
    """An ``ar`` archive; its members begin at even places."""
    out = b"!<arch>\n"
    for member, content in (("debian-binary", b"2.0"), ("control.tar.xz", b"x"), (name, data)):
        head = f"{member:<16}{0:<12}{0:<6}{0:<6}{'100644':<8}{len(content):<10}`\n"
        out += head.encode() + content + b"\n" * (len(content) % 2)
    return out


def wheel(folder, name, version, files):
    """One that pip takes for a wheel."""
    stem = name.replace("-", "_")
    info = f"{stem}-{version}.dist-info"
    about = {
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n".encode(),
        f"{info}/WHEEL": b"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/RECORD": b"",
    }
    path = folder / f"{stem}-{version}-py3-none-any.whl"
    path.write_bytes(zipped(files | about))
    return path


def put(out, package, data):
    """A package where an earlier call left it."""
    path = package.path(out / PACKAGES)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def bible(books):
    """Files of a Bible: chapters, lists of verses, by books."""
    return {
        f"pybible/resources/bibles_json/kj/{title}.json": json.dumps(
            {
                "_Bible__books": [
                    {
                        "_Book__title": title,
                        "_Book__chapters": {
                            "py/tuple": [
                                {
                                    "_Chapter__number": n,
                                    "_Chapter__verses": {
                                        "py/tuple": [{"_Verse__text": v} for v in verses]
                                    },
                                }
                                for n, verses in enumerate(chapters, 1)
                            ]
                        },
                    }
                ]
            }
        ).encode()
        for title, chapters in books.items()
    }


def program(folder, name, lines):
    """A client of one's own on the path: lines of Python."""
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text("\n".join([f"#!{sys.executable}", "import sys, shutil", *lines]) + "\n")
    path.chmod(0o755)
    return path
