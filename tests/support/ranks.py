"""Start the processes of a distributed test, and let none of them outlive it."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from paths import environment

SECONDS = 150.0  # an order of magnitude above what these tests take


def run_ranks(*words, ranks=2, seconds=SECONDS):
    """Run ``python WORDS`` once per rank, as torchrun would; return what each printed.

    The store through which ranks meet lives in this process, so there is no port to race for. A
    rank that fails, or time that runs out, ends all of them.
    """
    import torch.distributed as dist

    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    common = {
        "WORLD_SIZE": str(ranks), "LOCAL_WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(store.port), "TORCHELASTIC_USE_AGENT_STORE": "True",
        "TORCHELASTIC_RUN_ID": "test", "OMP_NUM_THREADS": "1",
    }  # fmt: skip
    if sys.platform == "linux":  # a host name need not resolve
        common["GLOO_SOCKET_IFNAME"] = "lo"
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        processes, outputs = [], []
        for rank in range(ranks):
            out, err = (Path(folder, f"{rank}.{name}") for name in ("out", "err"))
            files = [stack.enter_context(path.open("wb")) for path in (out, err)]
            mine = environment(**common, RANK=str(rank), LOCAL_RANK=str(rank))
            command = [sys.executable, *map(str, words)]
            processes.append(start(stack, command, stdout=files[0], stderr=files[1], env=mine))
            outputs.append((out, err))
        deadline = time.monotonic() + seconds
        while any(p.poll() is None for p in processes):
            failed = [rank for rank, p in enumerate(processes) if p.poll()]
            if failed or time.monotonic() > deadline:
                break
            time.sleep(0.02)
        codes = [p.poll() for p in processes]
        said = "\n".join(err.read_text(errors="replace")[-3000:] for _, err in outputs)
        assert codes == [0] * ranks, f"exit codes {codes} (None: was still running)\n{said}"
        return [out.read_text() for out, _ in outputs]


def start(stack, command, **options):
    """Start a process in a session of its own; all of it is killed when the stack unwinds."""
    process = subprocess.Popen(command, start_new_session=True, **options)
    stack.callback(process.wait)
    stack.callback(_kill, process)
    return process


def _kill(process):
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
