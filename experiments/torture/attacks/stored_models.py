"""Attacks on stored models, journals of fits, locks and labels of groups."""

from __future__ import annotations

import datetime as dt
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
import uuid
import warnings
import zipfile
from contextlib import suppress
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from counterpoise import Chunks, GroupDRONeuron, assess, load
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


# -- journals ------------------------------------------------------------------------------

STOPPED = RuntimeError("stopped")


class Stopping(Chunks):
    """Three chunks; a pass may stop everything."""

    def __init__(self, data: tuple[Any, ...], stop: int | None = None) -> None:
        super().__init__([tuple(c[i : i + 80] for c in data) for i in (0, 80, 160)])
        self.stop, self.passes = stop, 0

    def __iter__(self) -> Any:
        self.passes += 1
        if self.passes == self.stop:
            raise STOPPED
        return super().__iter__()


def journaled(folder: Path) -> dict[str, Any]:
    """A journal of a stopped fit, for rows of each kind, and what the whole fit finds."""
    found: dict[str, Any] = {}
    for kind in ("chunked", "memory", "sparse"):
        path = folder / kind
        with suppress(RuntimeError):
            fit(kind, rows(), path, stop=9)
        found[kind] = (path.read_bytes(), bits(fit(kind, rows(), None)))
    return found


def fit(kind: str, data: Any, checkpoint: Path | None, stop: int | None = None) -> GroupDRONeuron:
    model = GroupDRONeuron(nu=0.05, checkpoint=checkpoint)
    if kind == "chunked":
        return model.fit(Stopping(data, stop))
    X, y, groups = data
    X = sparse.csr_matrix(X) if kind == "sparse" else X
    if stop is None:
        return model.fit(X, y, groups=groups)
    from counterpoise import solve

    def callback(progress: Any) -> None:
        if progress.iteration == 4:
            raise STOPPED

    solve(X, y, groups, nu=0.05, checkpoint=checkpoint, callback=callback)
    raise AssertionError("the fit ended before it was stopped")


def bits(model: GroupDRONeuron) -> tuple[Any, ...]:
    return model.coef_.tobytes(), model.intercept_, model.n_passes_, model.n_iter_, model.risk_


@attack("a changed byte of a journal's lines", tries=150, prepare=journaled)
def journal_lines(trial: Trial) -> str | None:
    data, _ = trial.prepared["chunked"]
    lines, at = [], 0
    while at < len(data):
        end = data.index(b"\n", at)
        lines += range(at, end + 1)
        head = json.loads(data[at:end])
        at = end + 1 + 8 * int(np.prod(head.get("shape", [0]), dtype=int))
    return changed_journal(trial, "chunked", int(trial.rng.choice(lines)))


@attack("a changed byte of a journal", tries=40, prepare=journaled)
def journal_bytes(trial: Trial) -> str | None:
    kind = ("chunked", "memory", "sparse")[trial.number % 3]
    return changed_journal(trial, kind, int(trial.rng.integers(len(trial.prepared[kind][0]))))


def changed_journal(trial: Trial, kind: str, at: int) -> str | None:
    data, known = trial.prepared[kind]
    broken = bytearray(data)
    broken[at] = int(trial.rng.integers(256))
    path = trial.folder / "journal"
    path.write_bytes(broken)
    try:
        found = bits(fit(kind, rows(), path))
    except Exception as error:
        return one_line(error)
    return None if found == known else "the fit goes on to other numbers"


@attack("the last bit of an entry changed under a journal", tries=120, prepare=journaled)
def last_bits(trial: Trial) -> str | None:
    kind = ("memory", "sparse", "chunked")[trial.number % 3]
    data, _ = trial.prepared[kind]
    path = trial.folder / "journal"
    path.write_bytes(data)
    X, y, groups = rows()
    values = X if trial.number % 2 else y
    values.reshape(-1).view(np.uint64)[trial.rng.integers(values.size)] ^= np.uint64(1)
    try:
        found = bits(fit(kind, (X, y, groups), path))
    except Exception as error:
        return one_line(error)
    return None if found == bits(fit(kind, (X, y, groups), None)) else "resumed with other rows"


KILL_FIT = """
import sys, time
from experiments.torture.attacks.stored_models import fit, rows, Stopping
Stopping.__iter__ = lambda self, real=Stopping.__iter__: time.sleep(0.01) or real(self)
print("ready", flush=True)
fit("chunked", rows(), sys.argv[1])
print("done", flush=True)
"""


@attack("kill -9 during a fit with a journal", tries=8, prepare=journaled)
def killed_fit(trial: Trial) -> str | None:
    path = trial.folder / "journal"
    process = subprocess.Popen(
        [sys.executable, "-c", KILL_FIT, str(path)], stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )  # fmt: skip
    assert process.stdout is not None
    process.stdout.readline()
    time.sleep(float(trial.rng.uniform(0.1, 1.5)))
    process.kill()
    process.communicate()
    found = bits(fit("chunked", rows(), path))
    if found != trial.prepared["chunked"][1]:
        return "the fit ends with other bits"
    left = sorted(p.name for p in trial.folder.iterdir())
    return None if not left else f"it leaves {left}"


# -- arguments -----------------------------------------------------------------------------


def labels(kind: str) -> list[Any]:
    import pandas as pd

    days = [f"2024-01-0{i}" for i in (1, 2, 3)]
    found: dict[str, list[Any]] = {
        "zoned": [pd.Timestamp(day, tz="Europe/Berlin") for day in days],
        "offset": [pd.Timestamp(f"{day}T00:00+05:30") for day in days],
        "period": [pd.Period(day, "M") + i for i, day in enumerate(days)],
        "interval": list(pd.interval_range(0, 3)),
        "uuid": [uuid.UUID(int=i) for i in range(3)],
        "decimal": [Decimal(i) / 10 for i in range(3)],
        "date": [dt.date(2024, 1, i) for i in (1, 2, 3)],
        "datetime": [dt.datetime(2024, 1, i, tzinfo=dt.UTC) for i in (1, 2, 3)],
        "time": [dt.time(i) for i in (1, 2, 3)],
        "bytes": [b"a", b"b", b"c"],
        "tuple": [("a", 1), ("b", 2), ("c", 3)],
        "complex": [1j, 2j, 3j],
        "own": [Own(i) for i in range(3)],
    }
    return found[kind] if kind else list(found)


class Own:
    def __init__(self, i: int) -> None:
        self.i = i

    def __lt__(self, other: Own) -> bool:
        return self.i < other.i


@attack("groups of dates, periods, UUIDs and other objects", tries=13)
def odd_labels(trial: Trial) -> str | None:
    kind = labels("")[trial.number % 13]
    X, y, _ = rows()
    groups = np.empty(len(y), dtype=object)
    for i in range(len(y)):
        groups[i] = labels(kind)[i % 3] if kind != "own" else OWN[i % 3]
    try:
        model = GroupDRONeuron(nu=0.1).fit(X, y, groups=groups)
    except (TypeError, ValueError) as error:
        return None if "groups" in str(error) else f"{kind}: {error}"
    try:
        again = load(model.save(trial.folder / "model"))
    except Exception as error:
        return f"{kind}: fitted, but not stored: {error}"
    same = list(again.groups_) == list(model.groups_)
    return None if same else f"{kind}: other labels come back"


OWN = [Own(i) for i in range(3)]


@attack("a mask over X, y, groups or weights", tries=8)
def masked(trial: Trial) -> str | None:
    X, y, groups = rows()
    given = {"X": X, "y": y, "groups": groups, "sample_weight": np.ones(len(y))}
    name = list(given)[trial.number % 4]
    mask = np.zeros(given[name].shape, dtype=bool)
    mask[trial.rng.integers(len(y))] = True
    given[name] = np.ma.array(given[name], mask=mask)
    try:
        if trial.number < 4:
            GroupDRONeuron().fit(**given)
        else:
            GroupDRONeuron().fit(Chunks([tuple(given.values())]))
    except ValueError as error:
        return None if name in str(error) else f"{name}: {error}"
    return f"{name}: the hidden values are used"


MANY = """
import sys
import numpy as np
from counterpoise import GroupDRONeuron, load
from counterpoise.assessment.intervals import risk_intervals
K, rng = int(sys.argv[1]), np.random.default_rng(0)
X, groups = rng.normal(size=(2 * K, 2)), np.arange(2 * K) % K
y = X @ [1.0, 2.0] + 0.1 * rng.normal(size=2 * K)
model = GroupDRONeuron("identity").fit(X, y, groups=groups)
assert len(str(model.certificate_)) < 10_000
assert load(model.save(sys.argv[2])).coef_.tobytes() == model.coef_.tobytes()
assert str(risk_intervals(y, model.predict(X), groups=groups)).count("\\n") > K
print("fine")
"""


@attack("a hundred thousand groups", tries=1)
def many_groups(trial: Trial) -> str | None:
    code, text, _ = run(
        sys.executable, "-c", MANY, 100_000, trial.folder / "model", seconds=120, memory=8 << 30
    )
    if code == 124:
        return "not done after 120 s"
    return None if "fine" in text else text[-300:]


# -- Dask ----------------------------------------------------------------------------------

DASK = """
import os, signal, sys, threading, time
import numpy as np

def main():
    sys.path.insert(0, os.getcwd())
    import dask.array as da
    from distributed import Client, LocalCluster
    from counterpoise import GroupDRONeuron
    from experiments.torture.attacks.stored_models import bits, rows

    X, y, groups = rows(n=2400)
    with LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None,
                      silence_logs=50) as cluster, Client(cluster) as client:
        def fit():
            return GroupDRONeuron(nu=0.05).fit(
                da.from_array(X, chunks=(300, 3)), da.from_array(y, chunks=300),
                da.from_array(groups, chunks=300))
        began = time.time()
        known = bits(fit())
        took = time.time() - began
        pids = list(client.run(os.getpid).values())

        def kill():
            time.sleep(took * float(sys.argv[1]))
            for pid in pids:
                os.kill(pid, signal.SIGKILL)

        threading.Thread(target=kill, daemon=True).start()
        try:
            print("same" if bits(fit()) == known else "OTHER NUMBERS")
        except Exception as error:
            print("refused:", type(error).__name__, str(error)[:300].replace("\\n", " "))

if __name__ == "__main__":
    main()
"""


@attack("both workers of a Dask cluster lost during a fit", tries=2)
def lost_workers(trial: Trial) -> str | None:
    script = trial.folder / "lost.py"
    script.write_text(DASK)
    share = (0.2, 0.5, 0.8)[trial.number % 3]
    code, text, _ = run(sys.executable, script, share, seconds=90)
    if code == 124:
        return "it hangs for more than 90 s"
    last = text.strip().splitlines()[-1:] or [""]
    return None if last[0].startswith(("same", "refused:")) else f"exit code {code}: {text[-300:]}"
