"""Ranks that are killed or frozen: the others end soon, in our words, and nothing is lost."""

import os
import signal
import subprocess
import sys
import time
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest
from lm_problems import markov_corpus
from lm_runs import SIZES, SPLITS, STEP, run_settings
from paths import SUPPORT, environment
from ranks import start, start_ranks

from counterpoise.common.toml import to_toml
from counterpoise.lm.training import checkpoints
from counterpoise.lm.training.run_folder import RunFolder

pytestmark = pytest.mark.distributed

TIMEOUT = 4.0  # seconds without a sign of life
SLACK = 60.0  # for two busy cores; the process group's own timeout is two hours


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return markov_corpus(tmp_path_factory.mktemp("lm") / "corpus", SIZES, splits=SPLITS)


def long_run(corpus, folder, **changes):
    """The configuration of a run that does not end by itself, with checkpoints every 8 steps."""
    chosen = {"tokens": STEP * 400_000, "checkpoint_every": STEP * 8, "evaluate_every": STEP * 8}
    settings = run_settings(corpus, train={**chosen, "timeout": TIMEOUT, **changes})
    file = folder / "c.toml"
    file.write_text(to_toml(replace(settings, out=str(folder / "run")).table))
    return file


def wait_for(what, running, seconds=SLACK):
    deadline = time.monotonic() + seconds
    while not what():
        codes = [rank.code for rank in running]
        said = "\n".join(rank.said[-2000:] for rank in running)
        assert time.monotonic() < deadline, f"exit codes {codes}\n{said}"
        assert set(codes) == {None}, f"exit codes {codes}\n{said}"
        time.sleep(0.05)


def ended(rank):
    deadline = time.monotonic() + TIMEOUT + SLACK
    while rank.code is None:
        assert time.monotonic() < deadline, rank.said[-3000:]
        time.sleep(0.05)
    return rank.said


@pytest.mark.parametrize(
    ("number", "victim", "parallel"),
    [
        (signal.SIGKILL, 0, "ddp"),
        (signal.SIGKILL, 1, "fsdp"),
        (signal.SIGSTOP, 0, "fsdp"),
        (signal.SIGSTOP, 1, "ddp"),
    ],
)
def test_a_lost_rank_ends_the_other(corpus, tmp_path, number, victim, parallel):
    file = long_run(corpus, tmp_path, parallel=parallel)
    saved = tmp_path / "run" / "checkpoints"
    with ExitStack() as stack:
        running = start_ranks(stack, "-m", "counterpoise", "lm", "train", file)
        wait_for(lambda: checkpoints.found(saved), running)
        running[victim].send(number)
        other = running[1 - victim]
        said = ended(other)
        assert other.code == 1, said
        assert f"rank {victim} of 2" in said, said
        assert "The last checkpoint is kept; run the same command to resume" in said
        assert "Traceback" not in said
        if number == signal.SIGSTOP:
            assert f"no sign of life for {TIMEOUT:g} s (train.timeout)" in said
    assert checkpoints.found(saved)


def start_torchrun(stack, file, err):
    command = [
        sys.executable, "-m", "torch.distributed.run", "--standalone", "--local-addr", "127.0.0.1",
        "--nproc-per-node", "2", "-m", "counterpoise", "lm", "train", str(file),
    ]  # fmt: skip
    env = environment(OMP_NUM_THREADS="1")
    with err.open("wb") as file:
        return start(stack, command, stdout=subprocess.DEVNULL, stderr=file, env=env)


def ranks_of(launcher):
    """Processes that a process started, by rank."""
    children = Path(f"/proc/{launcher.pid}/task/{launcher.pid}/children").read_text().split()
    found = {}
    for pid in map(int, children):
        for word in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
            if word.startswith(b"RANK="):
                found[int(word[5:])] = pid
    return found


@pytest.mark.skipif(sys.platform != "linux", reason="finds ranks in /proc")
@pytest.mark.parametrize("victim", ["rank", "launcher"])
def test_under_torchrun(corpus, tmp_path, victim):
    """A frozen rank ends the run; ranks do not outlive a launcher that was killed."""
    file, err = long_run(corpus, tmp_path), tmp_path / "err"
    with ExitStack() as stack:
        launcher = start_torchrun(stack, file, err)
        deadline = time.monotonic() + 2 * SLACK
        while not checkpoints.found(tmp_path / "run" / "checkpoints"):
            assert launcher.poll() is None, err.read_text()
            assert time.monotonic() < deadline, err.read_text()
            time.sleep(0.05)
        ranks = ranks_of(launcher)
        if victim == "rank":
            os.kill(ranks.pop(1), signal.SIGSTOP)  # torchrun ends it half a minute later
        else:
            launcher.kill()
            launcher.wait()
        deadline = time.monotonic() + 2 * SLACK
        while any(Path(f"/proc/{pid}").exists() for pid in ranks.values()):
            assert time.monotonic() < deadline, err.read_text()
            time.sleep(0.05)
    lost = {"rank": "rank 1 of 2 has shown no sign of life", "launcher": "the launcher at"}
    assert lost[victim] in err.read_text()


@pytest.mark.parametrize("how", ["ending", "failing"])
def test_nothing_holds_on_to_a_process_group_that_is_destroyed(corpus, tmp_path, how):
    """A wrapped model that outlives it can keep the process from ending."""
    file = long_run(corpus, tmp_path, tokens=STEP * 9)
    with ExitStack() as stack:
        running = start_ranks(stack, SUPPORT / "lost_workers.py", "tear_down", file, how)
        for rank in running:
            said = ended(rank)
            assert rank.code == (how == "failing"), said
            assert rank.printed == "1 made, 0 alive\n", said


def test_a_rank_that_was_frozen_for_a_while_goes_on(corpus, tmp_path):
    file, saved = long_run(corpus, tmp_path, timeout=20.0), tmp_path / "run" / "checkpoints"
    with ExitStack() as stack:
        running = start_ranks(stack, "-m", "counterpoise", "lm", "train", file)
        wait_for(lambda: checkpoints.found(saved), running)
        for rank in running:
            rank.send(signal.SIGSTOP)
            time.sleep(3.0)
            rank.send(signal.SIGCONT)
        before = checkpoints.found(saved)[-1].name
        wait_for(lambda: checkpoints.found(saved)[-1].name > before, running)


def test_a_rank_that_writes_for_long_is_waited_for(corpus, tmp_path):
    file = long_run(corpus, tmp_path, tokens=STEP * 8, timeout=6.0)
    with ExitStack() as stack:
        job = (SUPPORT / "lost_workers.py", "slow_disk", file, 9.0)
        running = start_ranks(stack, *job)
        for rank in running:
            said = ended(rank)
            assert rank.code == 0, said
    assert RunFolder(tmp_path / "run").result is not None


def test_a_dropped_connection_to_the_store_ends_nothing(corpus, tmp_path):
    file = long_run(corpus, tmp_path, tokens=STEP * 8, timeout=8.0)
    with ExitStack() as stack:
        running = start_ranks(stack, SUPPORT / "lost_workers.py", "dropped", file)
        for rank in running:
            said = ended(rank)
            assert rank.code == 0, said
    assert RunFolder(tmp_path / "run").result is not None


@pytest.mark.parametrize(
    ("job", "message"),
    [
        ("broken", "rank 1 of 2 ended: ArithmeticError: no more numbers"),
        ("full_disk", "could not be written ([Errno 28] No space left on device)"),
    ],
)
def test_an_error_of_one_rank_is_told_by_the_others(corpus, tmp_path, job, message):
    with ExitStack() as stack:
        work = (SUPPORT / "lost_workers.py", job, long_run(corpus, tmp_path))
        running = start_ranks(stack, *work)
        said = [ended(rank) for rank in running]
        assert [rank.code for rank in running] == [1, 1]
    other = said[0 if job == "broken" else 1]
    assert message in other
    if job == "full_disk":
        assert "the first rank failed: OSError: the checkpoint '" in other


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_a_plain_loop_says_that_a_rank_was_lost(corpus, tmp_path, number):
    """The process group is the user's, and so is its timeout."""
    mark = tmp_path / "mark"
    with ExitStack() as stack:
        job = (SUPPORT / "lost_workers.py", "loop", corpus.folder, mark)
        running = start_ranks(stack, *job)
        wait_for(mark.exists, running)
        running[1].send(number)
        said = ended(running[0])
    assert "LostRank: rank 0 of 2 lost another rank while losses were summed" in said
    assert "resume from the last checkpoint" in said


def test_ranks_that_never_come_are_named(corpus, tmp_path):
    file = long_run(corpus, tmp_path, timeout=2.0)
    with ExitStack() as stack:
        running = start_ranks(stack, "-m", "counterpoise", "lm", "train", file, ranks=2)
        running[1].send(signal.SIGKILL)  # before it has imported anything
        said = ended(running[0])
    assert running[0].code == 1
    assert "rank 1 of 2 did not join within 2 s (train.timeout)" in said


def test_the_reason_of_the_rank_that_keeps_the_store_is_told(corpus, tmp_path):
    """Without torchrun, the store ends with the first rank."""
    with ExitStack() as stack:
        work = (SUPPORT / "lost_workers.py", "broken", long_run(corpus, tmp_path), 0)
        running = start_ranks(stack, *work, launcher=False)
        said = [ended(rank) for rank in running]
        assert [rank.code for rank in running] == [1, 1]
    assert "rank 0 of 2 ended: ArithmeticError: no more numbers" in said[1]


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        ("none", 0, "the ranks did not part within 0.5 s. everything is written"),
        ("lost", 1, "error: another rank, or the launcher at 127.0.0.1"),
        ("value", 1, "within 0.5 s. error: ValueError: no such number"),
    ],
)
def test_ranks_that_do_not_part_say_how_the_run_ended(corpus, tmp_path, error, code, message):
    file = long_run(corpus, tmp_path, tokens=STEP * 9)
    with ExitStack() as stack:
        job = (SUPPORT / "lost_workers.py", "parting", error, "lm", "train", file)
        (rank,) = start_ranks(stack, *job, ranks=1)
        said = ended(rank)
    assert rank.code == code, said
    assert said.count(message) == 1, said
    assert "Thread 0x" not in said, "no dump of threads"
    assert (RunFolder(tmp_path / "run").result is None) == bool(code)
