"""A run's folder: everything that is needed to repeat it, to go on with it and to read it."""

from __future__ import annotations

import json
import platform
import subprocess
import sys
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from counterpoise.common.toml import build, read_toml, to_toml
from counterpoise.lm.logs import JsonLines
from counterpoise.lm.training.settings import Settings, upgraded
from counterpoise.storage.files import write_json, write_text

CONFIG, INPUTS, ENVIRONMENT = "config.toml", "inputs.json", "environment.json"
RESULT = "result.json"
PACKAGES = ("counterpoise", "numpy", "torch", "transformers", "tokenizers", "safetensors")


class RunFolder:
    """Files of one run.

    ``config.toml`` are its settings, all of them; ``inputs.json`` tells the corpus and the
    reference losses it was made of; ``environment.json`` what it ran on, for every start;
    ``steps.jsonl`` and ``evaluations.jsonl`` are what was measured, ``weights.jsonl`` every update
    of the weights; ``checkpoints/`` holds models, and ``result.json`` is there when it has ended.
    ``scores.jsonl`` is what `measure_run` found afterwards.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.checkpoints = path / "checkpoints"
        self.steps = JsonLines(path / "steps.jsonl")
        self.evaluations = JsonLines(path / "evaluations.jsonl")
        self.scores = JsonLines(path / "scores.jsonl")
        self.weights = path / "weights.jsonl"

    @property
    def result(self) -> dict[str, Any] | None:
        """What the run ended with; None before that."""
        file = self.path / RESULT
        return json.loads(file.read_text(encoding="utf-8")) if file.is_file() else None

    @property
    def settings(self) -> Settings:
        return build(Settings, upgraded(read_toml(self.path / CONFIG)))

    def open(
        self, settings: Settings, inputs: Mapping[str, Any], surroundings: Mapping[str, Any]
    ) -> None:
        """Make the folder, or make sure that it is of these very settings and inputs."""
        file = self.path / CONFIG
        if file.is_file() and self.begun:
            self.check(settings, inputs)
        else:
            self.path.mkdir(parents=True, exist_ok=True)
            write_json(self.path / INPUTS, dict(inputs))
            table = {k: v for k, v in settings.table.items() if k != "compare"}
            table["out"] = str(self.path)
            head = "Settings of this run; counterpoise lm train --out ELSEWHERE repeats it."
            write_text(file, to_toml(table, head))
        starts = self.path / ENVIRONMENT
        before = json.loads(starts.read_text(encoding="utf-8")) if starts.is_file() else []
        write_json(starts, [*before, environment() | dict(surroundings)])

    @property
    def begun(self) -> bool:
        """Whether anything was measured or saved."""
        return bool(self.evaluations.read()) or self.checkpoints.is_dir()

    def check(self, settings: Settings, inputs: Mapping[str, Any] | None = None) -> None:
        """Make sure that the run in the folder has these settings, and was made of these inputs."""
        then = self.settings
        if then.identity != settings.identity:
            one, other = then.decisive, settings.decisive
            raise ValueError(
                f"{str(self.path)!r} holds a run with other settings "
                f"({', '.join(differing(one, other)[:5])}); choose another folder (--out), or "
                "remove that one"
            )
        file = self.path / INPUTS
        if inputs is not None and file.is_file():
            known = json.loads(file.read_text(encoding="utf-8"))
            changed = [name for name in inputs if known.get(name) != inputs[name]]
            if changed:
                raise ValueError(
                    f"{str(self.path)!r} holds a run with another {' and another '.join(changed)} "
                    "than there is now; choose another folder (--out), or remove that one"
                )

    def rewind(self, step: int) -> None:
        """Forget what was measured after a step."""
        for lines in (self.steps, self.evaluations):
            lines.keep([r for r in lines.read() if r["step"] <= step])

    def finish(self, result: Mapping[str, Any]) -> None:
        write_json(self.path / RESULT, dict(result))


def differing(one: Mapping[str, Any], other: Mapping[str, Any], path: str = "") -> list[str]:
    """Names of settings that differ.

    >>> differing({"train": {"seed": 0, "batch": 1}}, {"train": {"seed": 1, "batch": 1}})
    ['train.seed']
    """
    names: list[str] = []
    for key in dict.fromkeys([*one, *other]):
        a, b = one.get(key), other.get(key)
        if isinstance(a, Mapping) and isinstance(b, Mapping):
            names += differing(a, b, f"{path}{key}.")
        elif a != b:
            names.append(f"{path}{key}")
    return names


def environment() -> dict[str, Any]:
    """Versions, machine and command."""
    versions: dict[str, str | None] = {}
    for name in PACKAGES:
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            versions[name] = None
    return {
        "directory": str(Path.cwd()),
        "command": [Path(sys.argv[0]).name, *sys.argv[1:]],
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "packages": versions,
        "revision": _revision(),
    }


def _revision() -> str | None:
    """Of the code, where it is a git checkout."""
    here = Path(__file__).parent
    try:
        asked = ["git", "describe", "--always", "--dirty"]
        found = subprocess.run(asked, cwd=here, capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return found.stdout.strip() or None if found.returncode == 0 else None
