"""The folder of a run: all that is needed to repeat it, resume it and read it."""

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
MODEL, STATE, OPTIMIZER = "model.safetensors", "state.json", "optimizer.safetensors"
PACKAGES = ("counterpoise", "numpy", "torch", "transformers", "tokenizers", "safetensors")


class RunFolder:
    """Files of one run.

    ``config.toml`` holds all settings, ``inputs.json`` identifies the corpus, the reference losses
    and the models, and ``environment.json`` describes the machine at every start. ``steps.jsonl``
    and ``evaluations.jsonl`` hold the measurements, ``weights.jsonl`` every update of the weights,
    ``checkpoints/`` the models. ``result.json`` appears when the run ends, ``scores.jsonl`` when
    `measure_run` has measured it.
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
        """The end of the run; None if it has not ended."""
        file = self.path / RESULT
        return json.loads(file.read_text(encoding="utf-8")) if file.is_file() else None

    @property
    def settings(self) -> Settings:
        return build(Settings, upgraded(read_toml(self.path / CONFIG)))

    def open(
        self, settings: Settings, inputs: Mapping[str, Any], running_on: Mapping[str, Any]
    ) -> None:
        """Make the folder, or check that it belongs to these settings and inputs."""
        file = self.path / CONFIG
        if file.is_file() and self.begun:
            self.check(settings, inputs)
        else:
            self.path.mkdir(parents=True, exist_ok=True)
            write_json(self.path / INPUTS, dict(inputs))
            table = {k: v for k, v in settings.table.items() if k != "compare"}
            table["out"] = str(self.path)
            head = "Settings of this run; counterpoise lm train THIS --out ELSEWHERE repeats it."
            write_text(file, to_toml(table, head))
        starts = self.path / ENVIRONMENT
        before = json.loads(starts.read_text(encoding="utf-8")) if starts.is_file() else []
        write_json(starts, [*before, environment() | dict(running_on)])

    @property
    def begun(self) -> bool:
        """Whether anything has been measured or saved."""
        return bool(self.evaluations.read()) or self.checkpoints.is_dir()

    def check(self, settings: Settings, inputs: Mapping[str, Any] | None = None) -> None:
        """Refuse settings or inputs that are not those of the run in this folder."""
        then = self.settings
        if then.identity != settings.identity:
            one, other = then.decisive, settings.decisive
            raise ValueError(
                f"{str(self.path)!r} holds a run with other settings "
                f"({', '.join(differing(one, other)[:5])}); choose another folder, or remove "
                "this one"
            )
        file = self.path / INPUTS
        if inputs is not None and file.is_file():
            known = json.loads(file.read_text(encoding="utf-8"))
            changed = [name for name in inputs if known.get(name) != inputs[name]]
            if changed:
                raise ValueError(
                    f"{str(self.path)!r} holds a run that used other files: {', '.join(changed)} "
                    "changed since; choose another folder, or remove this one"
                )

    def rewind(self, step: int) -> None:
        """Drop measurements made after a step."""
        for lines in (self.steps, self.evaluations):
            lines.keep([r for r in lines.read() if r["step"] <= step])

    def finish(self, result: Mapping[str, Any]) -> None:
        write_json(self.path / RESULT, dict(result))


def differing(one: Mapping[str, Any], other: Mapping[str, Any], path: str = "") -> list[str]:
    """List the names of settings that differ.

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
    """Describe versions, machine and command."""
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
    """Return the revision of the code, if it is a git checkout."""
    here = Path(__file__).parent
    try:
        asked = ["git", "describe", "--always", "--dirty"]
        found = subprocess.run(asked, cwd=here, capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return found.stdout.strip() or None if found.returncode == 0 else None
