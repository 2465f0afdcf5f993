"""Attacks on stored models, and on locks of folders."""

from __future__ import annotations

import hashlib
import io
import json
import logging
import os
import resource
import shutil
import signal
import socket
import subprocess
import sys
import time
import warnings
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from counterpoise import GroupDRONeuron, assess, load
from experiments.torture.harness import Trial, attack

MEGABYTE = 1 << 20


def rows(seed: int = 0, n: int = 240) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    y = np.maximum(X @ [1.0, 2.0, 0.5], 0.0) + 0.1 * rng.normal(size=n)
    return X, y, np.array(["a", "b", "c"])[np.arange(n) % 3]


def one_line(error: BaseException) -> str | None:
    """None for an error of one short line; else what is wrong with it."""
    text = str(error)
    if not isinstance(error, (ValueError, OSError)):
        return f"a raw {type(error).__name__}: {text[:150]}"
    if "\n" in text or len(text) > 1000:
        return f"an error of {len(text)} characters: {text[:80]!r}"
    return None


def run(*command: Any, seconds: float = 60.0, memory: int | None = None) -> tuple[int, str, float]:
    """Run a command; return its exit code (124 if it hangs), its output and its memory in MB."""

    def limit() -> None:
        if memory is not None:
            resource.setrlimit(resource.RLIMIT_AS, (memory, memory))

    process = subprocess.Popen(
        [str(part) for part in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True, preexec_fn=limit,
    )  # fmt: skip
    try:
        text, _ = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        return 124, "", 0.0
    peak = [line for line in text.splitlines() if line.startswith("PEAK ")]
    return process.returncode, text, float(peak[-1].split()[1]) if peak else 0.0


# Load a model and say how much memory that took.
LOAD = """
import resource, sys
import numpy, sklearn.pipeline, counterpoise, counterpoise.estimators.neuron
from counterpoise import load
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    load(sys.argv[1])
    print("loaded")
except ValueError as error:
    print("refused:", error)
print("PEAK", (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024)
"""


# -- files of a model ----------------------------------------------------------------------


def stored(folder: Path) -> dict[str, Any]:
    """Two models, and a folder with each."""
    X, y, groups = rows()
    found: dict[str, Any] = {}
    for name, nu in (("one", 0.1), ("two", 5.0)):
        model = GroupDRONeuron(nu=nu).fit(X, y, groups=groups)
        found[name] = model
        found[f"{name} folder"] = model.save(folder / name)
    return found


def fault_of(folder: Path, known: Any) -> str | None:
    """None if a folder loads as a known model or is refused with one line."""
    try:
        found = load(folder)
    except Exception as error:
        return one_line(error)
    same = found.coef_.tobytes() == known.coef_.tobytes()
    same = same and found.intercept_ == known.intercept_ and found.status_ == known.status_
    return None if same else "another model was loaded"


@attack("a flipped byte of a stored model", tries=600, prepare=stored)
def flipped(trial: Trial) -> str | None:
    folder = shutil.copytree(trial.prepared["one folder"], trial.folder / "model")
    files = sorted(folder.iterdir())
    path = files[trial.number % len(files)]
    data = bytearray(path.read_bytes())
    data[trial.rng.integers(len(data))] ^= 1 << int(trial.rng.integers(8))
    path.write_bytes(data)
    return fault_of(folder, trial.prepared["one"])


@attack("a truncated or lengthened file of a stored model", tries=200, prepare=stored)
def cut(trial: Trial) -> str | None:
    folder = shutil.copytree(trial.prepared["one folder"], trial.folder / "model")
    files = sorted(folder.iterdir())
    path = files[trial.number % len(files)]
    data = path.read_bytes()
    if trial.number % 5:
        path.write_bytes(data[: trial.rng.integers(len(data))])
    else:
        path.write_bytes(data + trial.rng.bytes(100))
    return fault_of(folder, trial.prepared["one"])


def seal(folder: Path, whole: dict[str, Any]) -> None:
    """Write a model.json with the checksum that belongs to it."""
    text = json.dumps([whole["content"], whole["arrays"]], sort_keys=True, separators=(",", ":"))
    whole["sha256"] = hashlib.sha256(text.encode()).hexdigest()
    (folder / "model.json").write_text(json.dumps(whole))


VALUES: list[Any] = [
    None, 0, -1, 1.5, "x", "", [], {}, [1, 2], {"a": 1}, True, 1e308, float("nan"), 10**400,
    {"!": "float", "is": "x"}, {"!": "tuple", "items": []}, {"!": "objects", "items": [1]},
    {"!": "array", "name": "nothing"}, {"!": 5}, {"!": "os.system"}, [[[]]], "\n" * 30, "DELETE",
]  # fmt: skip


def places(tree: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    items = enumerate(tree) if isinstance(tree, list) else getattr(tree, "items", tuple)()
    return [at] + [place for key, item in items for place in places(item, (*at, key))]


@attack("a strange value in a field of model.json, with the right checksum", tries=600,
        prepare=stored)  # fmt: skip
def forged(trial: Trial) -> str | None:
    folder = shutil.copytree(trial.prepared["one folder"], trial.folder / "model")
    whole = json.loads((folder / "model.json").read_text())
    spots = [at for at in places(whole) if at and at[0] in ("content", "arrays")]
    *inner, last = spots[trial.rng.integers(len(spots))]
    target = whole
    for key in inner:
        target = target[key]
    value = VALUES[trial.rng.integers(len(VALUES))]
    if value == "DELETE" and inner:
        del target[last]
    else:
        target[last] = value
    seal(folder, whole)
    try:
        load(folder).predict(rows()[0])
    except Exception as error:
        return one_line(error)
    return None


def bombed(folder: Path) -> dict[str, Any]:
    """A model, and arrays that are small on disk and large in memory."""
    found = stored(folder)
    for name, size in (("large", 800), ("repeated", 20)):
        out = io.BytesIO()
        with (
            zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as file,
            file.open("a0.npy", "w", force_zip64=True) as member,
        ):
            head = {"descr": "<f8", "fortran_order": False, "shape": (size * MEGABYTE // 8,)}
            np.lib.format.write_array_header_1_0(member, head)
            for _ in range(size):
                member.write(bytes(MEGABYTE))
        found[name] = out.getvalue()
    return found


@attack("a small file of arrays that unpacks to gigabytes", tries=4, prepare=bombed)
def bombs(trial: Trial) -> str | None:
    folder = shutil.copytree(trial.prepared["one folder"], trial.folder / "model")
    data = trial.prepared["repeated" if trial.number % 2 else "large"]
    whole = json.loads((folder / "model.json").read_text())
    whole["version"] = 2 if trial.number < 2 else whole["version"]
    (folder / whole["arrays"]["file"]).write_bytes(data)
    whole["arrays"].update(sha256=hashlib.sha256(data).hexdigest(), bytes=len(data))
    count = 50 if trial.number % 2 else 1
    whole["arrays"]["members"] = {f"x{i}": "a0" for i in range(count)}
    seal(folder, whole)
    code, text, peak = run(sys.executable, "-c", LOAD, folder, memory=8 << 30)
    if "refused:" not in text:
        return f"not refused, exit code {code}: {text[-200:]}"
    return f"refused after {peak:.0f} MB" if peak > 200 else None


@attack("a pipe, a device, a folder or a socket in place of a file of a model", tries=8,
        prepare=stored)  # fmt: skip
def special(trial: Trial) -> str | None:
    folder = shutil.copytree(trial.prepared["one folder"], trial.folder / "model")
    path = sorted(folder.iterdir())[trial.number % 2]
    path.unlink()
    kind = trial.number // 2
    if kind == 0:
        os.mkfifo(path)
    elif kind == 1:
        path.symlink_to("/dev/zero")
    elif kind == 2:
        path.mkdir()
    else:
        here = Path.cwd()
        os.chdir(folder)
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(path.name)
        os.chdir(here)
    code, text, _ = run(sys.executable, "-c", LOAD, folder, seconds=25, memory=4 << 30)
    if code == 124:
        return "it hangs"
    return None if "refused:" in text else f"exit code {code}: {text[-200:]}"


# -- saving --------------------------------------------------------------------------------

SAVE = """
import sys
from counterpoise import load
one, two = load(sys.argv[1]), load(sys.argv[2])
print("ready", flush=True)
for i in range(100_000):
    (two if i % 2 else one).save(sys.argv[3])
"""


@attack("kill -9 while a model is saved", tries=12, prepare=stored)
def killed_save(trial: Trial) -> str | None:
    known = trial.prepared
    target = known["one"].save(trial.folder / "model")
    process = subprocess.Popen(
        [sys.executable, "-c", SAVE, known["one folder"], known["two folder"], target],
        stdout=subprocess.PIPE,
    )  # fmt: skip
    assert process.stdout is not None
    process.stdout.readline()
    time.sleep(float(trial.rng.uniform(0.0, 0.15)))
    process.kill()
    process.communicate()
    faults = [fault_of(target, known[name]) for name in ("one", "two")]
    if None not in faults:
        return faults[0]
    try:
        load(target)
    except ValueError as error:
        return f"no model is left: {error}"
    known["one"].save(target)
    left = sorted(path.name for path in target.iterdir())
    return None if len(left) == 2 else f"the next save leaves {left}"


FULL = """
import resource, sys
from counterpoise import load
model = load(sys.argv[1])
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[3]), int(sys.argv[3])))
try:
    model.save(sys.argv[2])
    print("saved")
except OSError as error:
    print("refused:", error)
"""


@attack("a disk that fills up while a model is saved", tries=8, prepare=stored)
def full_disk(trial: Trial) -> str | None:
    known = trial.prepared
    target = known["one"].save(trial.folder / "model")
    limit = int(trial.rng.integers(1, 25_000))
    _, text, _ = run(sys.executable, "-c", FULL, known["two folder"], target, limit)
    if "saved" in text:
        return fault_of(target, known["two"])
    if "refused:" not in text or "model" not in text or len(text.strip().splitlines()) > 1:
        return f"with {limit} bytes: {text[-200:]}"
    if len(list(target.iterdir())) != 2:
        return f"it leaves {sorted(path.name for path in target.iterdir())}"
    return fault_of(target, known["one"])


@attack("the report of a model that is replaced", tries=2, prepare=stored)
def stale_report(trial: Trial) -> str | None:
    from counterpoise.report import write_report

    known, (X, y, groups) = trial.prepared, rows()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assess(known["one"], X, y, groups, folds=None, diagnosis=False).save(trial.folder)
        page = write_report(trial.folder).read_bytes()
        logging.disable()  # which says that the report is gone
        known["two"].save(trial.folder)
        logging.disable(logging.NOTSET)
    report = trial.folder / "report.html"
    stale = report.exists() and report.read_bytes() == page
    return "report.html describes the old model" if stale else None


# -- locks ---------------------------------------------------------------------------------


@attack("a lock that is a link to another file", tries=4, prepare=stored)
def linked_lock(trial: Trial) -> str | None:
    victim, lock = trial.folder / "thesis", trial.folder / "model" / ".lock"
    lock.parent.mkdir()
    victim.write_text("all of it")
    (lock.symlink_to if trial.number % 2 else lock.hardlink_to)(victim)
    try:
        trial.prepared["one"].save(lock.parent)
    except Exception as error:
        fault = one_line(error)
        if fault is not None:
            return fault
    kept = victim.exists() and victim.read_text() == "all of it"
    return None if kept else "the file that the link names is overwritten"


HOLD = """
import multiprocessing, os, sys, time
from pathlib import Path
from counterpoise.storage.files import locked

def work():
    print(os.getpid(), flush=True)
    time.sleep(30)

with locked(Path(sys.argv[1])):
    child = multiprocessing.get_context("fork").Process(target=work)
    child.start()
    time.sleep(30)
"""


@attack("a rerun right after kill -9 of a process whose workers live on", tries=4)
def orphans(trial: Trial) -> str | None:
    from counterpoise.storage.files import locked

    process = subprocess.Popen([sys.executable, "-c", HOLD, trial.folder], stdout=subprocess.PIPE)
    assert process.stdout is not None
    child = int(process.stdout.readline())
    try:
        process.kill()
        process.wait()
        with locked(trial.folder):
            return None
    except RuntimeError as error:
        return str(error)
    finally:
        os.kill(child, signal.SIGKILL)
        process.stdout.close()
