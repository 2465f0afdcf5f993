"""Environments for peers whose versions may not live beside ours.

    python benchmarks/environments.py [NAME ...]

makes ``.venv-bench/NAME`` from ``benchmarks/environments/NAME.txt``. A pinned torch is installed
first and by itself: left to a resolver, another one may come with gigabytes of GPU libraries.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import venv
from pathlib import Path

HERE = Path(__file__).resolve().parent
HOME = HERE.parent / ".venv-bench"
MAIN = "main"  # the environment that runs the benchmark


class Unavailable(RuntimeError):
    """Something a benchmark needs cannot be had; the message says what and why."""


def names() -> list[str]:
    return sorted(path.stem for path in (HERE / "environments").glob("*.txt"))


def python_of(name: str) -> Path:
    """The interpreter of an environment, which is made first if need be."""
    if name == MAIN:
        return Path(sys.executable)
    home, wanted = HOME / name, HERE / "environments" / f"{name}.txt"
    python = home / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    stamp, digest = home / ".made", hashlib.sha256(wanted.read_bytes()).hexdigest()
    if stamp.exists() and stamp.read_text() == digest:
        return python
    print(f"making environment {name} in {os.path.relpath(home)}", flush=True)
    venv.create(home, with_pip=True, clear=True)
    torch = [line for line in wanted.read_text().splitlines() if line.startswith("torch==")]
    for what in ([torch] if torch else []) + [["-r", str(wanted)]]:
        command = [str(python), "-m", "pip", "install", "-q", "--disable-pip-version-check", *what]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            last = (done.stderr.strip().splitlines() or ["no message"])[-1]
            raise Unavailable(f"environment {name}: pip install {' '.join(what)} failed: {last}")
    stamp.write_text(digest)
    return python


if __name__ == "__main__":
    for name in sys.argv[1:] or names():
        print(name, os.path.relpath(python_of(name)))
