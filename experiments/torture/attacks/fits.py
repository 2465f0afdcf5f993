"""Attacks on fits: their journals, their groups and masks, and the workers that compute them."""

from __future__ import annotations

import datetime as dt
import json
import subprocess
import sys
import time
import uuid
from contextlib import suppress
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from counterpoise import Chunks, GroupDRONeuron, load
from experiments.torture.attacks.stored_models import one_line, rows, run
from experiments.torture.harness import Trial, attack

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
from experiments.torture.attacks.fits import fit, rows, Stopping
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
    from experiments.torture.attacks.fits import bits, rows

    X, y, groups = rows(n=2400)
    with LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None,
                      silence_logs=50) as cluster, Client(cluster) as client:
        def fit():
            return GroupDRONeuron(nu=0.05).fit(
                da.from_array(X, chunks=(300, 3)), da.from_array(y, chunks=300),
                da.from_array(groups, chunks=300))
        fit()  # compiles
        began = time.time()
        known = bits(fit())
        took = time.time() - began
        pids = list(client.run(os.getpid).values())

        def kill():
            time.sleep(took * float(sys.argv[1]))
            for pid in pids:
                os.kill(pid, signal.SIGKILL)
            print("killed", flush=True)

        threading.Thread(target=kill, daemon=True).start()
        try:
            print("same" if bits(fit()) == known else "OTHER NUMBERS", flush=True)
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
    _, killed, after = text.partition("killed\n")
    if not killed:
        return f"the fit ended before its workers were killed: {text[-200:]}"
    held = any(line.startswith(("same", "refused:")) for line in after.splitlines())
    return None if held else f"exit code {code}: {text[-300:]}"
