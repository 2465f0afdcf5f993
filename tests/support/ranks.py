"""Start the processes of a distributed test, and let none of them outlive it."""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from paths import environment

SECONDS = 150.0  # an order of magnitude above what these tests take


def run_ranks(*words, ranks=2, seconds=SECONDS):
    """Run ``python WORDS`` once per rank, as torchrun would; return what each printed.

    A rank that fails, or time that runs out, ends all of them.
    """
    with contextlib.ExitStack() as stack:
        running = start_ranks(stack, *words, ranks=ranks)
        deadline = time.monotonic() + seconds
        while any(rank.code is None for rank in running):
            if any(rank.code for rank in running) or time.monotonic() > deadline:
                break
            time.sleep(0.02)
        codes = [rank.code for rank in running]
        said = "\n".join(rank.said[-3000:] for rank in running)
        assert codes == [0] * ranks, f"exit codes {codes} (None: was still running)\n{said}"
        return [rank.printed for rank in running]


@dataclass
class Rank:
    """A process that is one rank, and the files of what it prints."""

    process: subprocess.Popen
    out: Path
    err: Path

    @property
    def code(self):
        return self.process.poll()

    @property
    def printed(self):
        return self.out.read_text()

    @property
    def said(self):
        return self.err.read_text(errors="replace")

    def send(self, number):
        os.kill(self.process.pid, number)


def start_ranks(stack, *words, ranks=2, launcher=True):
    """Start ``python WORDS`` once per rank; all are killed when the stack unwinds.

    The store through which ranks meet lives in this process, so there is no port to race for, and
    ranks whose test was killed notice. Without a launcher, the first rank keeps it.
    """
    import torch.distributed as dist

    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    common = {
        "WORLD_SIZE": str(ranks), "LOCAL_WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(store.port), "OMP_NUM_THREADS": "1",
    }  # fmt: skip
    if launcher:
        stack.callback(lambda: store)  # it lives as long as the ranks
        common |= {"TORCHELASTIC_USE_AGENT_STORE": "True", "TORCHELASTIC_RUN_ID": "test"}
    else:
        del store  # its port is free now
    if sys.platform == "linux":  # a host name need not resolve
        common["GLOO_SOCKET_IFNAME"] = "lo"
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
    running = []
    for rank in range(ranks):
        out, err = (folder / f"{rank}.{name}" for name in ("out", "err"))
        files = [stack.enter_context(path.open("wb")) for path in (out, err)]
        mine = environment(**common, RANK=str(rank), LOCAL_RANK=str(rank))
        command = [sys.executable, *map(str, words)]
        process = start(stack, command, stdout=files[0], stderr=files[1], env=mine)
        running.append(Rank(process, out, err))
    return running


def torchrun(*words, ranks=2, seconds=SECONDS):
    """Run ``python WORDS`` by PyTorch's own launcher; return what it printed."""
    command = [
        sys.executable, "-m", "torch.distributed.run", "--standalone", "--local-addr", "127.0.0.1",
        "--nproc-per-node", str(ranks), *map(str, words),
    ]  # fmt: skip
    with contextlib.ExitStack() as stack:
        out, err = (stack.enter_context(tempfile.TemporaryFile("w+")) for _ in range(2))
        env = environment(OMP_NUM_THREADS="1")
        process = start(stack, command, stdout=out, stderr=err, env=env)
        try:
            code = process.wait(seconds)
        except subprocess.TimeoutExpired:
            code = f"none after {seconds:g} s"
        for file in (out, err):
            file.seek(0)
        assert code == 0, f"exit code {code}\n{err.read()[-3000:]}"
        return out.read()


def start(stack, command, env=None, **options):
    """Start a process in a session of its own; all that it starts is killed with the stack.

    torchrun starts every rank in a session of the rank's own, so a mark in the environment tells
    what belongs to the process.
    """
    mark = f"COUNTERPOISE_TEST={secrets.token_hex(8)}"
    name, _, value = mark.partition("=")
    env = {**(os.environ if env is None else env), name: value}
    process = subprocess.Popen(command, start_new_session=True, env=env, **options)
    stack.callback(process.wait)
    stack.callback(_kill, process, mark)
    return process


def _kill(process, mark):
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    for pid in marked(mark):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def marked(mark):
    """Processes with this in their environment, where /proc tells."""
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            if mark.encode() in path.read_bytes().split(b"\0"):
                found.append(int(path.parent.name))
    return found
