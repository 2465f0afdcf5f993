"""Attacks on preparations that split a source into domains by a field of its documents."""

from __future__ import annotations

import json
import shutil
import signal
from pathlib import Path

from experiments.torture.attacks.corpora import (
    BYTES,
    contents,
    flip,
    is_refused,
    killed,
    project,
    run,
    texts,
)
from experiments.torture.harness import Trial, attack


def grouped(folder: Path) -> tuple[Path, dict[str, bytes]]:
    """Sources whose documents are in seven groups, and the corpus that they make."""
    made = project(folder / "made", tokenizer=f'{BYTES}\nby = "kind"\nby_least = 900')
    for seed, name in enumerate(("web", "code")):
        rows = [{"text": t, "kind": f"k{i % 7 * (i % 3)}"} for i, t in enumerate(texts(6000, seed))]
        lines = "".join(json.dumps(row) + "\n" for row in rows)
        (made / "texts" / f"{name}.jsonl").write_text(lines, encoding="utf-8")
    code, said = run(made, "prepare", "run.toml")
    if code:
        raise RuntimeError(said)
    whole = contents(made / "corpus")
    shutil.rmtree(made / "corpus")
    return made, whole


@attack("lm prepare by a field killed, then run again: the same bytes", tries=8, prepare=grouped)
def kill_groups(trial: Trial) -> str | None:
    made, whole = trial.prepared
    folder = Path(shutil.copytree(made, trial.folder / "copy"))
    for _ in range(2):
        killed(folder, float(trial.rng.uniform(0, 0.8)), signal.SIGKILL)
    code, said = run(folder, "prepare", "run.toml")
    if code:
        return said[-200:]
    return None if contents(folder / "corpus") == whole else "other bytes"


@attack("lm prepare by a field asked to stop (SIGTERM)", tries=4, prepare=grouped)
def stop_groups(trial: Trial) -> str | None:
    made, whole = trial.prepared
    folder = Path(shutil.copytree(made, trial.folder / "copy"))
    ended = killed(folder, float(trial.rng.uniform(0.0, 0.6)), signal.SIGTERM)
    if ended not in (0, 75):
        return f"it ended with {ended}"
    code, said = run(folder, "prepare", "run.toml")
    return None if not code and contents(folder / "corpus") == whole else f"{code} {said[-200:]}"


@attack("lm prepare by a field killed, a bit of its texts flipped", tries=6, prepare=grouped)
def flip_groups(trial: Trial) -> str | None:
    made, whole = trial.prepared
    folder = Path(shutil.copytree(made, trial.folder / "copy"))
    killed(folder, float(trial.rng.uniform(0.2, 0.8)), signal.SIGKILL)
    files = sorted(p for p in (folder / "corpus/.documents").rglob("*.json*") if p.stat().st_size)
    if not files:
        return None
    path = files[int(trial.rng.integers(len(files)))]
    flip(path, trial.rng)
    code, said = run(folder, "prepare", "run.toml")
    if code:
        if not is_refused(code, said, path.parent.name, path.name):
            return f"{path.name}: {said[-200:]}"
        if path.name == "groups.json":  # the message says to delete the folder
            shutil.rmtree(path.parent)
        code, said = run(folder, "prepare", "run.toml", "--overwrite")
    same = contents(folder / "corpus") == whole
    return None if same else f"{path.name}: other bytes ({said[-200:]})"
