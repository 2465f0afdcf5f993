"""Full disks, failing renames, signals while a checkpoint is written, and kills."""

import errno
import os
import signal
import subprocess
import sys
import time
from contextlib import ExitStack, contextmanager
from dataclasses import replace

import pytest
from lm_problems import markov_corpus
from lm_runs import SIZES, SPLITS, STEP, assert_same_model
from lm_runs import run_settings as settings
from paths import environment
from ranks import start

from counterpoise.common.stopping import Stopped
from counterpoise.common.toml import to_toml
from counterpoise.lm.logs import JsonLines
from counterpoise.lm.training import checkpoints
from counterpoise.lm.training.integrity import verify
from counterpoise.lm.training.run_folder import RunFolder
from counterpoise.lm.training.train import train

resource = pytest.importorskip("resource", reason="limits the size of files")


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return markov_corpus(tmp_path_factory.mktemp("lm") / "corpus", SIZES, splits=SPLITS)


@pytest.fixture(scope="module")
def often(corpus):
    return settings(corpus, train={"checkpoint_every": STEP * 8})


@pytest.fixture(scope="module")
def whole(often, tmp_path_factory):
    out = tmp_path_factory.mktemp("whole")
    train(often, out, progress=False)
    return out


def names(out):
    return sorted(p.name for p in (out / "checkpoints").iterdir())


@contextmanager
def file_limit(size):
    """No file may grow beyond this; as on a full disk, writing more is an error."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def during(monkeypatch, step, what):
    """Do something around the writing of the checkpoint of a step."""
    writing = checkpoints._write_model

    def disturbed(draft, *args):
        if draft.name == f".step-{step:08d}.new":
            with what(draft):
                writing(draft, *args)
        else:
            writing(draft, *args)

    monkeypatch.setattr(checkpoints, "_write_model", disturbed)


def test_a_full_disk_costs_no_checkpoint(often, whole, tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        during(patch, 16, lambda draft: file_limit(5000))
        with pytest.raises(
            OSError, match=r"checkpoints/step-00000016' could not be written.*resume"
        ):
            train(often, tmp_path, progress=False)
    assert names(tmp_path) == ["step-00000008"]
    verify(tmp_path / "checkpoints" / "step-00000008")
    train(often, tmp_path, progress=False)
    assert_same_model(tmp_path, whole)


@pytest.mark.parametrize("fault", [errno.ESTALE, errno.EIO, errno.EBUSY])
def test_a_rename_that_fails_costs_no_checkpoint(often, whole, tmp_path, monkeypatch, fault):
    """As network file systems fail."""
    replacing = os.replace

    def failing(source, target):
        if str(target).endswith("step-00000016"):
            raise OSError(fault, os.strerror(fault), str(source))
        replacing(source, target)

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", failing)
        with pytest.raises(OSError, match=r"step-00000016' could not be written"):
            train(often, tmp_path, progress=False)
    assert names(tmp_path) == ["step-00000008"]
    train(often, tmp_path, progress=False)
    assert_same_model(tmp_path, whole)


@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signals_while_a_checkpoint_is_written(often, whole, tmp_path, monkeypatch, number, times):
    """The first lets it be finished; the second ends the run at once and leaves the one before."""

    @contextmanager
    def told(draft):
        for _ in range(times):
            os.kill(os.getpid(), number)
        yield

    with monkeypatch.context() as patch:
        during(patch, 16, told)
        with pytest.raises(Stopped if times == 1 else KeyboardInterrupt):
            train(often, tmp_path, progress=False)
    assert names(tmp_path) == [f"step-000000{'16' if times == 1 else '08'}"]
    train(often, tmp_path, progress=False)
    assert_same_model(tmp_path, whole)


def test_a_log_on_a_full_disk_keeps_whole_lines(tmp_path):
    lines = JsonLines(tmp_path / "log.jsonl")
    lines.append({"step": 1})
    with file_limit(lines.path.stat().st_size + 10), pytest.raises(OSError, match=r"log\.jsonl"):
        lines.append({"step": 2})
    lines.append({"step": 3})
    assert lines.read() == [{"step": 1}, {"step": 3}]


def test_a_clock_that_is_set_back_changes_nothing(often, whole, tmp_path, monkeypatch):
    now = [1e9]

    def backwards():
        now[0] -= 3600.0
        return now[0]

    monkeypatch.setattr(time, "time", backwards)
    result = train(often, tmp_path, progress=False)
    assert result["seconds"] >= 0
    assert_same_model(tmp_path, whole)


@pytest.mark.slow
def test_a_killed_run_with_workers_can_be_repeated_at_once(corpus, tmp_path):
    """Workers end with their parent, and so does its lock."""
    chosen = settings(corpus, train={"workers": 2, "tokens": STEP * 400_000})
    file, out = tmp_path / "c.toml", tmp_path / "run"
    file.write_text(to_toml(replace(chosen, out=str(out)).table))
    command = [sys.executable, "-m", "counterpoise", "lm", "train", str(file)]
    with ExitStack() as stack:
        first = start(stack, command, stderr=subprocess.PIPE, env=environment())
        stack.callback(first.stderr.close)
        deadline = time.monotonic() + 100
        while len(RunFolder(out).steps.read()) < 5:
            assert first.poll() is None, first.stderr.read().decode()[-2000:]
            assert time.monotonic() < deadline
            time.sleep(0.05)
        first.kill()
        first.wait()
        small = replace(chosen, train=replace(chosen.train, tokens=STEP * 24))
        assert small.identity != chosen.identity
        with pytest.raises(ValueError, match="other settings"):  # and not: another process is ...
            train(small, out, progress=False)
