"""Attacks on published weights and on the watcher: flipped bits, cut files, kills.

Held means: a reader finds the weights that were written or refuses the file by name; a watcher
publishes what an undisturbed one does, or refuses with one line that names what is damaged.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from counterpoise.lm.published import PublishedWeights
from experiments.torture.attacks.training_runs import (
    change,
    command,
    killed_at_the_end,
    start,
    until,
)
from experiments.torture.harness import Trial, attack

LINES = 400


@dataclass(frozen=True)
class Prepared:
    """A file of losses, what a watcher made of it, and the same as if it had read only half."""

    losses: bytes
    weights: bytes
    half: Path


def words(folder: Path, *more: str) -> list[str]:
    files = ["--losses", str(folder / "losses.jsonl"), "--publish", str(folder / "weights.json")]
    return ["lm", "steer", *files, "--domains", "web,code,books", *more]


def prepare(folder: Path) -> Prepared:
    rng = np.random.default_rng(0)
    rows = [
        {"step": 10 * i, "losses": dict(zip(("web", "code", "books"), row, strict=True))}
        for i, row in enumerate(rng.normal(3.0, 0.3, (LINES, 3)).round(4).tolist(), 1)
    ]
    lines = [json.dumps(row) + "\n" for row in rows]
    folders = folder / "half", folder / "whole"
    for one, part in zip(folders, (lines[: LINES // 2], lines), strict=True):
        one.mkdir()
        (one / "losses.jsonl").write_text("".join(part))
        code, said = command(*words(one, "--once"))
        if code:
            raise RuntimeError(said)
    half, whole = folders
    return Prepared("".join(lines).encode(), (whole / "weights.json").read_bytes(), half)


def same(folder: Path, trial: Trial) -> str | None:
    found = (folder / "weights.json").read_bytes()
    return None if found == trial.prepared.weights else "other weights than an undisturbed watcher"


@attack("a bit flipped in published weights, or their end cut off, then read", tries=300)
def damaged_weights(trial: Trial) -> str | None:
    path = trial.folder / "weights.json"
    weights = trial.rng.dirichlet(np.ones(4)).tolist()
    names = ("web", "code", 3, "b k")
    first = PublishedWeights(dict(zip(names, weights, strict=True)), 3, 30, from_step=31)
    first.write(path)
    how = ("flip", "digit", "cut", "overwrite")[trial.number % 4]
    path.write_bytes(change(trial, path.read_bytes(), how))
    try:
        again = PublishedWeights.read(path)
    except ValueError as error:
        return None if "weights.json" in str(error) else f"the error does not name it: {error}"
    return None if again == first else f"other weights were read: {again}"


@attack("a bit flipped in what a watcher keeps, then lm steer", tries=60, prepare=prepare)
def damaged_watcher(trial: Trial) -> str | None:
    folder = trial.folder / "run"
    shutil.copytree(trial.prepared.half, folder)
    name = ("weights.state.json", "losses.jsonl", "weights.json")[trial.number % 3]
    (folder / "losses.jsonl").write_bytes(trial.prepared.losses)
    file = folder / name
    data = file.read_bytes()
    if name == "losses.jsonl":  # what was read already
        size = json.loads((folder / "weights.state.json").read_text())["read"]["bytes"]
        file.write_bytes(change(trial, data[:size], "flip") + data[size:])
    else:
        file.write_bytes(change(trial, data, "flip"))
    code, said = command(*words(folder, "--once"))
    if code == 0:
        fault = same(folder, trial)
        return fault and f"{name} was damaged: {fault}"
    clear = code == 1 and len(said.splitlines()) == 1 and name in said
    return None if clear else f"{name} was damaged, but the error does not name it: {said[:300]}"


@attack("kill -9 of a watcher while losses come in, then restart", tries=6, prepare=prepare)
def killed(trial: Trial) -> str | None:
    folder = trial.folder
    losses, weights = folder / "losses.jsonl", folder / "weights.json"
    data, written = trial.prepared.losses, 0
    while written < len(data):
        process = start(words(folder, "--interval", "0.001"), folder / "said")
        with killed_at_the_end(process):
            if not until(weights.exists, process, 0.01):
                return f"the watcher ended: {(folder / 'said').read_text()[:300]}"
            end = time.monotonic() + trial.rng.uniform(0.0, 2.0)
            while time.monotonic() < end and written < len(data):
                more = int(trial.rng.integers(1, 200))  # lines come in pieces
                with losses.open("ab") as file:
                    file.write(data[written : written + more])
                written += more
                time.sleep(0.01)
            if written < len(data):
                os.kill(process.pid, signal.SIGKILL)
    code, said = command(*words(folder, "--once"))
    return f"the restart was refused: {said[:300]}" if code else same(folder, trial)
