"""Workers end with the process that they work for, however they were started, and not before."""

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from contextlib import ExitStack

import pytest
from paths import environment
from ranks import start

WORKERS = """
import multiprocessing, os, sys, threading, time
from counterpoise.common.stopping import ignore_signals

def work(number, pipe):
    ignore_signals(number)
    pipe.send(os.getpid())
    if number < 2:
        time.sleep(1000)
    time.sleep(1)
    pipe.send("done")

def begin(context, pipe):
    for number in range(3):
        context.Process(target=work, args=(number, pipe)).start()

if __name__ == "__main__":
    context = multiprocessing.get_context(sys.argv[1])
    ours, theirs = context.Pipe()
    # A thread that starts workers and ends must not take them along.
    thread = threading.Thread(target=begin, args=(context, theirs))
    thread.start()
    thread.join()
    pids = []
    while ours.poll(30) and (got := ours.recv()) != "done":
        pids.append(got)
    print(*pids, flush=True)
    time.sleep(1000)
"""


def alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.slow
@pytest.mark.parametrize("method", multiprocessing.get_all_start_methods())
def test_workers_live_as_long_as_their_parent(method, tmp_path):
    file = tmp_path / "workers.py"
    file.write_text(WORKERS)
    with ExitStack() as stack:
        command = [sys.executable, str(file), method]
        parent = start(stack, command, stdout=subprocess.PIPE, env=environment())
        stack.callback(parent.stdout.close)
        pids = [int(word) for word in parent.stdout.readline().split()]
        assert len(pids) == 3
        workers = [pid for pid in pids if alive(pid)]
        assert len(workers) >= 2, "they work on while their parent lives"
        for pid in workers:
            os.kill(pid, signal.SIGTERM)  # as a signal to the whole group, which they outlive
        parent.kill()
        parent.wait()
        deadline = time.monotonic() + 30
        while any(map(alive, workers)):
            assert time.monotonic() < deadline
            time.sleep(0.02)
