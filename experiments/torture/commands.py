"""Run many commands quickly: one process imports the library, and every command is a fork of it."""

from __future__ import annotations

import json
import os
import re
import resource
import signal
import subprocess
import sys
import time
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# What a terminal would obey, except for line ends and tabs.
CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


@dataclass(frozen=True)
class Ended:
    """A command that ended: its exit code (negative for a signal), output and peak memory."""

    code: int
    out: str
    err: str
    rss: int
    seconds: float

    def fault(self, *names: str, codes: tuple[int, ...] = (0, 1, 2, 3, 4, 5)) -> str | None:
        """What is wrong with how it ended; an error must name one of ``names``."""
        said = self.err.strip().splitlines()[-1:] or [""]
        if self.code < 0:
            return f"died of signal {-self.code}"
        if "Traceback" in self.err or "This is a bug" in self.err:
            return f"a traceback or a bug: {said[0]}"
        if self.code not in codes:
            return f"exit code {self.code}: {said[0]}"
        if self.code in (1, 3, 4) and names and not any(name in self.err for name in names):
            return f"the error names neither file nor column: {said[0]}"
        found = CONTROL.search(self.out + self.err)
        return f"control character {found[0]!r} in the output" if found else None


class Commands:
    """Runs ``counterpoise`` commands in forks of a process that has imported it."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "experiments.torture.commands"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(
        self,
        args: list[Any],
        folder: Path,
        *,
        memory: int | None = None,
        file_size: int | None = None,
        timeout: float = 120,
    ) -> Ended:
        """Run a command in a folder.

        ``memory`` bounds how many bytes more than after the imports it may address, and
        ``file_size`` the bytes of a file.
        """
        given = {
            "args": [str(arg) for arg in args],
            "folder": str(folder),
            "memory": memory,
            "file_size": file_size,
            "timeout": timeout,
        }
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(given) + "\n")
        self._process.stdin.flush()
        answer = json.loads(self._process.stdout.readline())
        texts = []
        for name in ("out", "err"):
            path = folder / f".{name}"
            texts.append(path.read_bytes().decode("utf-8", "surrogateescape"))
            path.unlink()
        return Ended(answer["code"], texts[0], texts[1], answer["rss"], answer["seconds"])


def _serve() -> None:
    import numpy  # noqa: F401
    import pyarrow.csv
    import pyarrow.parquet  # noqa: F401
    import sklearn.pipeline  # noqa: F401

    import counterpoise.cli.fit
    import counterpoise.cli.predict
    import counterpoise.storage.models
    import counterpoise.tabular.fit  # noqa: F401

    for line in sys.stdin:
        given = json.loads(line)
        began = time.perf_counter()
        child = os.fork()
        if child == 0:
            _run(given)
        code, rss = _waited(child, given["timeout"])
        answer = {"code": code, "rss": rss, "seconds": time.perf_counter() - began}
        print(json.dumps(answer), flush=True)


def _waited(child: int, timeout: float) -> tuple[int, int]:
    until = time.monotonic() + timeout
    while True:
        ended, status, usage = os.wait4(child, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status), usage.ru_maxrss * 1024
        if time.monotonic() > until:
            os.kill(child, signal.SIGKILL)
        time.sleep(0.005)


def _run(given: dict[str, Any]) -> None:
    """Become the command; never returns."""
    code = 1
    try:
        os.chdir(given["folder"])
        for name, handle in ((".out", 1), (".err", 2)):
            file = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
            os.dup2(file, handle)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        if given["memory"] is not None:
            pages = int(Path("/proc/self/statm").read_text().split()[0])
            size = pages * os.sysconf("SC_PAGE_SIZE") + given["memory"]
            resource.setrlimit(resource.RLIMIT_AS, (size, size))
        if given["file_size"] is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (given["file_size"],) * 2)
        from counterpoise.cli.main import script

        sys.argv = ["counterpoise", *given["args"]]
        script()
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except OSError:
                code = code or 120
        os._exit(code)


if __name__ == "__main__":
    _serve()
