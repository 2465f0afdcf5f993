"""Attacks on training runs: kills, signals, full disks, damaged files, lost ranks.

Held means: the command ends as an undisturbed run does, with the same bits, or it refuses with one
line that names what is damaged.
"""

from __future__ import annotations

import contextlib
import io
import os
import resource
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from experiments.torture.harness import Trial, attack

STEP = 16 * 8  # tokens
CONFIG = """
out = "run"
[corpus]
folder = "{folder}/corpus"
source = "{folder}/texts"
tokenizer = "bytes"
[model]
hidden_size = 16
layers = 2
heads = 2
[train]
tokens = {tokens}
length = 16
batch = 8
learning_rate = 0.01
evaluate_every = {every}
checkpoint_every = {every}
keep = {keep}
threads = 1
[evaluate]
sequences = 8
"""
PATIENCE = 40.0  # seconds for a rank to notice that another is lost; its timeout is set to 4
LONG = 10_000_000  # steps


@dataclass(frozen=True)
class Prepared:
    """A corpus, an undisturbed run of it, and the same run as if stopped half-way."""

    config: Path
    whole: Path
    stopped: Path
    steps: int

    def model(self, run: Path) -> bytes:
        name = f"step-{self.steps:08d}"
        return (run / "checkpoints" / name / "model.safetensors").read_bytes()

    def same(self, run: Path) -> str | None:
        """None if a run ended as the undisturbed one did."""
        if not (run / "result.json").is_file():
            return "the run ended without a result"
        if self.model(run) != self.model(self.whole):
            return "the run ended with another model than an undisturbed one"
        for name in ("steps.jsonl", "weights.jsonl"):
            if (run / name).read_bytes() != (self.whole / name).read_bytes():
                return f"{name} is not that of an undisturbed run"
        return None


def prepare(folder: Path) -> Prepared:
    return _prepare(folder, steps=24, every=4, keep=99)


def prepare_longer(folder: Path) -> Prepared:
    return _prepare(folder, steps=160, every=8, keep=2)


def _prepare(folder: Path, steps: int, every: int, keep: int) -> Prepared:
    rng = np.random.default_rng(0)
    (folder / "texts").mkdir()
    for number, name in enumerate(("x", "y", "z")):
        letters = list("abcdefghij klmnop"[number:])
        texts = ["".join(rng.choice(letters, 400)) for _ in range(60)]
        lines = "".join(f'{{"text": "{text}"}}\n' for text in texts)
        (folder / "texts" / f"{name}.jsonl").write_text(lines)
    config = folder / "c.toml"
    lengths = {"tokens": STEP * steps, "every": STEP * every, "keep": keep}
    config.write_text(CONFIG.format(folder=folder, **lengths))
    for words in (["prepare", str(config)], ["train", str(config), "--out", str(folder / "whole")]):
        code, said = command("lm", *words)
        if code:
            raise RuntimeError(said)
    stopped = folder / "stopped"
    shutil.copytree(folder / "whole", stopped)
    (stopped / "result.json").unlink()
    for path in (stopped / "checkpoints").iterdir():
        if int(path.name[5:]) > steps // 2:
            shutil.rmtree(path)
    return Prepared(config, folder / "whole", stopped, steps)


def command(*words: str) -> tuple[int, str]:
    """Run the command in this process; return its exit code and what it said.

    An error that the command line does not expect, whether users see a traceback or are told of a
    bug, has the code -1.
    """
    from counterpoise.cli.main import main

    said = io.StringIO()
    with contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()):
        try:
            code = main(["-q", *words])
        except BaseException as error:
            return -1, f"traceback: {type(error).__name__}: {error}"
    text = said.getvalue().strip()
    return -1 if "This is a bug" in text else code, text


def start(words: list[str], out: Path, **options: Any) -> subprocess.Popen[bytes]:
    """Run the command in a process group of its own, with what it says in a file."""
    with out.open("wb") as file:
        return subprocess.Popen(
            [sys.executable, "-m", "counterpoise", *words],
            stdout=subprocess.DEVNULL, stderr=file, start_new_session=True, **options,
        )  # fmt: skip


@contextlib.contextmanager
def killed_at_the_end(*processes: subprocess.Popen[bytes]) -> Iterator[None]:
    try:
        yield
    finally:
        for process in processes:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def until(happens: Callable[[], Any], process: subprocess.Popen[bytes], pause: float) -> bool:
    """Wait for something that a process does; False if it ends, or takes a minute."""
    deadline = time.monotonic() + 60
    while not happens():
        if process.poll() is not None or time.monotonic() > deadline:
            return False
        time.sleep(pause)
    return True


def resumed(trial: Trial, run: Path) -> str | None:
    code, said = command("lm", "train", str(trial.prepared.config), "--out", str(run))
    return trial.prepared.same(run) if code == 0 else f"the resume was refused: {said[:300]}"


def held(trial: Trial, run: Path, *names: str) -> str | None:
    """None if a run whose files were damaged ends as it should, or one of them is named."""
    code, said = command("lm", "train", str(trial.prepared.config), "--out", str(run))
    if code == 0:
        fault = trial.prepared.same(run)
        return fault and f"{names[0]} was damaged: {fault}"
    if code == -1:
        return f"{names[0]} was damaged: {said[:300]}"
    clear = len(said.splitlines()) == 1 and any(name in said for name in names)
    return (
        None if clear else f"{names[0]} was damaged, but the error does not name it: {said[:300]}"
    )


def latest(run: Path) -> Path:
    return max((run / "checkpoints").glob("step-*"))


def copy(trial: Trial) -> Path:
    run = trial.folder / "run"
    shutil.copytree(trial.prepared.stopped, run)
    return run


def change(trial: Trial, data: bytes, how: str, where: bytes | None = None) -> bytes:
    """Flip a bit, change a digit (that ``where`` has too), cut the end off, or overwrite bytes."""
    rng = trial.rng
    place = int(rng.integers(len(data)))
    if how == "digit":
        digits = [i for i, byte in enumerate(where or data) if byte in b"0123456789"]
        place = int(rng.choice(digits))
        other = rng.choice([d for d in b"0123456789" if d != data[place]])
        return data[:place] + bytes([other]) + data[place + 1 :]
    if how == "cut":
        return data[:place]
    if how == "overwrite":
        return data[:place] + rng.bytes(8) + data[place + 8 :]
    return data[:place] + bytes([data[place] ^ (1 << int(rng.integers(8)))]) + data[place + 1 :]


@attack("a bit flipped in a file of a checkpoint, then resume", tries=60, prepare=prepare)
def flipped(trial: Trial) -> str | None:
    run = copy(trial)
    files = ("model.safetensors", "optimizer.safetensors", "state.json", "config.json")
    file = latest(run) / files[trial.number % 4]
    file.write_bytes(change(trial, file.read_bytes(), "flip"))
    return held(trial, run, file.name)


@attack("a digit changed in the state of a checkpoint, then resume", tries=30, prepare=prepare)
def other_digit(trial: Trial) -> str | None:
    run = copy(trial)
    file = latest(run) / "state.json"
    text = file.read_bytes()
    random = range(text.find(b'"rng"'), text.find(b"]", text.find(b'"rng"')))  # 5,000 numbers
    rest = bytes(0 if i in random else byte for i, byte in enumerate(text))
    file.write_bytes(change(trial, text, "digit", text if trial.number % 3 == 0 else rest))
    return held(trial, run, file.name)


@attack("a file of a checkpoint cut short or overwritten, then resume", tries=24, prepare=prepare)
def cut_short(trial: Trial) -> str | None:
    run = copy(trial)
    files = sorted(p for p in latest(run).iterdir() if p.is_file())
    file = files[trial.number % len(files)]
    how = "cut" if trial.number % 2 else "overwrite"
    file.write_bytes(change(trial, file.read_bytes(), how))
    return held(trial, run, file.name)


@attack("a log or settings file of a run damaged, then resume", tries=48, prepare=prepare)
def damaged_logs(trial: Trial) -> str | None:
    run = copy(trial)
    names = (
        "weights.jsonl", "steps.jsonl", "evaluations.jsonl", "inputs.json", "config.toml",
        "environment.json",
    )  # fmt: skip
    file = run / names[trial.number % 6]
    how = ("flip", "cut", "digit", "overwrite")[trial.number // 6 % 4]
    file.write_bytes(change(trial, file.read_bytes(), how))
    return held(trial, run, file.name, str(run))


@attack("a digit changed in the log of a finished run, then report", tries=12, prepare=prepare)
def damaged_report(trial: Trial) -> str | None:
    run = trial.folder / "run"
    shutil.copytree(trial.prepared.whole, run)
    file = run / ("evaluations.jsonl", "weights.jsonl", "steps.jsonl")[trial.number % 3]
    file.write_bytes(change(trial, file.read_bytes(), "digit"))
    code, said = command("report", str(run))
    if code == 0:
        return f"{file.name} was damaged, and a page shows its numbers"
    clear = code > 0 and file.name in said and len(said.splitlines()) == 1
    return None if clear else f"{file.name} was damaged: {said[:300]}"


@attack("a bit flipped in a finished model, then lm evaluate", tries=12, prepare=prepare)
def damaged_model(trial: Trial) -> str | None:
    run = trial.folder / "run"
    shutil.copytree(trial.prepared.whole, run)
    file = latest(run) / "model.safetensors"
    file.write_bytes(change(trial, file.read_bytes(), "flip"))
    code, said = command("lm", "evaluate", str(run))
    clear = code > 0 and file.name in said and len(said.splitlines()) == 1
    return None if clear else f"the damaged model was measured: {code} {said[:300]}"


@attack("kill -9 at a random moment, then resume", tries=6, prepare=prepare_longer)
def killed(trial: Trial) -> str | None:
    run = trial.folder / "run"
    words = ["lm", "train", str(trial.prepared.config), "--out", str(run)]
    process = start(words, trial.folder / "said")
    with killed_at_the_end(process):
        until(lambda: (run / "steps.jsonl").is_file(), process, 0.01)
        time.sleep(float(trial.rng.uniform(0, 2.5)))
    return resumed(trial, run)


@attack("a signal while a checkpoint is written, then resume", tries=6, prepare=prepare_longer)
def signalled(trial: Trial) -> str | None:
    run = trial.folder / "run"
    words = ["lm", "train", str(trial.prepared.config), "--out", str(run)]
    process = start(words, trial.folder / "said")
    number = (signal.SIGTERM, signal.SIGINT, signal.SIGKILL)[trial.number % 3]
    with killed_at_the_end(process):
        saving = run / "checkpoints"
        until(lambda: any(saving.glob("step-*")), process, 0.01)
        until(lambda: any(saving.glob(".step-*")), process, 0.0)
        time.sleep(float(trial.rng.uniform(0, 0.01)))
        process.send_signal(number)
        try:
            code = process.wait(60)
        except subprocess.TimeoutExpired:
            return "the run did not end within a minute of the signal"
    if number != signal.SIGKILL and code not in (0, 75):
        return f"exit code {code}: {(trial.folder / 'said').read_text()[-300:]}"
    return resumed(trial, run)


@attack("a rerun right after kill -9 of a run with workers", tries=3, prepare=prepare_longer)
def rerun(trial: Trial) -> str | None:
    run = trial.folder / "run"
    more = ["--set", "train.workers=2", "--out", str(run)]
    process = start(["lm", "train", str(trial.prepared.config), *more], trial.folder / "said")
    with killed_at_the_end(process):
        if not until(lambda: any(run.glob("checkpoints/step-*")), process, 0.01):
            return "the run ended before it was killed"
        process.kill()
        process.wait()
        code, said = command("lm", "train", str(trial.prepared.config), *more)
    return None if code == 0 else f"the rerun was refused: {said[:300]}"


@contextlib.contextmanager
def full_disk(size: int) -> Iterator[None]:
    """No file may become larger than this."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@attack("a disk that is full when a checkpoint is written", tries=12, prepare=prepare)
def no_room(trial: Trial) -> str | None:
    run = copy(trial)
    there = {path.name for path in (run / "checkpoints").iterdir()}
    largest = max(path.stat().st_size for path in latest(run).iterdir())
    with full_disk(int(trial.rng.integers(7000, largest))):
        code, said = command("lm", "train", str(trial.prepared.config), "--out", str(run))
    if code == 0:
        return "the run ended although its checkpoint has no room"
    if code == -1 or str(run) not in said or len(said.splitlines()) != 1:
        return f"the error does not name a path: {said[:300]}"
    if left := there - {path.name for path in (run / "checkpoints").iterdir()}:
        return f"the full disk cost {left}"
    return resumed(trial, run)


@attack("a rank of two killed or frozen", tries=8, prepare=prepare)
def lost_rank(trial: Trial) -> str | None:
    number = (signal.SIGKILL, signal.SIGSTOP)[trial.number % 2]
    victim = trial.number // 2 % 2
    parallel = ("ddp", "fsdp")[trial.number // 4 % 2]
    run = trial.folder / "run"
    words = [
        "lm", "train", str(trial.prepared.config), "--out", str(run),
        "--set", f"train.tokens={STEP * LONG}", "--set", "train.keep=2",
        "--set", f"train.parallel={parallel}",
    ]  # fmt: skip
    if _has_timeout():
        words += ["--set", "train.timeout=4"]
    said = [trial.folder / f"said-{rank}" for rank in range(2)]
    with contextlib.ExitStack() as stack:
        ranks = []
        port = str(_free_port())
        for rank in range(2):
            env = {
                **os.environ, "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2",
                "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "GLOO_SOCKET_IFNAME": "lo",
                "OMP_NUM_THREADS": "1",
            }  # fmt: skip
            ranks.append(start(words, said[rank], env=env))
            stack.enter_context(killed_at_the_end(ranks[-1]))
        if not until(lambda: any(run.glob("checkpoints/step-*")), ranks[0], 0.05):
            return f"the run did not start: {said[0].read_text()[-300:]}"
        os.kill(ranks[victim].pid, number)
        try:
            code = ranks[1 - victim].wait(PATIENCE)
        except subprocess.TimeoutExpired:
            return f"rank {1 - victim} still waited {PATIENCE:g} s after the other was lost"
    text = said[1 - victim].read_text()
    if code == 0 or "Traceback" in text or "checkpoint is kept" not in text:
        return f"exit code {code}: {text[-300:]}"
    named = f"rank {victim}" in text
    return None if named else f"the lost rank {victim} is not named: {text[-300:]}"


def _has_timeout() -> bool:
    from counterpoise.lm.training.settings import TrainSettings

    return "timeout" in TrainSettings.__dataclass_fields__


def _free_port() -> int:
    with socket.socket() as asked:
        asked.bind(("127.0.0.1", 0))
        return int(asked.getsockname()[1])


@attack("a run whose memory is limited (ulimit -v)", tries=4, prepare=prepare)
def little_memory(trial: Trial) -> str | None:
    run = copy(trial)
    # Where torch itself cannot be imported, no words are promised, only the files. At about 0.8 GB,
    # OpenBLAS waits for ever when SciPy is imported, long before anything of ours.
    gigabytes = (0.25, 0.6, 0.7, 0.95)[trial.number % 4]
    size = int(gigabytes * 2**30)
    words = ["lm", "train", str(trial.prepared.config), "--out", str(run)]
    process = start(
        words,
        trial.folder / "said",
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (size, size)),
    )
    with killed_at_the_end(process):
        try:
            code = process.wait(120)
        except subprocess.TimeoutExpired:
            return f"the run did not end within {gigabytes} GB"
    if code == 0:
        return trial.prepared.same(run)
    return resumed(trial, run)
