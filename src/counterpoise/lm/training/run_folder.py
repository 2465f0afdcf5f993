"""The folder of a run: all that is needed to repeat it, resume it and read it."""

from __future__ import annotations

import json
import logging
import platform
import subprocess
import sys
import tomllib
import zlib
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from counterpoise.common.toml import build, read_toml, to_toml
from counterpoise.lm.logs import JsonLines
from counterpoise.lm.sealed import DamagedFile, read_sealed, write_sealed
from counterpoise.lm.training.settings import Settings, decisive, upgraded
from counterpoise.storage.files import sweep, write_bytes, write_json, write_text

logger = logging.getLogger("counterpoise")

CONFIG, INPUTS, ENVIRONMENT = "config.toml", "inputs.json", "environment.json"
RESULT = "result.json"
MODEL, STATE, OPTIMIZER = "model.safetensors", "state.json", "optimizer.safetensors"
LOGS = ("steps.jsonl", "evaluations.jsonl", "weights.jsonl")
PACKAGES = ("counterpoise", "numpy", "torch", "transformers", "tokenizers", "safetensors")


class RunFolder:
    """Files of one run.

    ``config.toml`` holds all settings, ``inputs.json`` identifies the corpus, the reference losses
    and the models, and ``environment.json`` describes the machine at every start. ``steps.jsonl``
    and ``evaluations.jsonl`` hold the measurements, ``weights.jsonl`` every update of the weights,
    ``checkpoints/`` the models, each with a copy of the measurements so far. ``result.json``
    appears when the run ends, ``scores.jsonl`` when `measure_run` has measured it. What damages
    these files is noticed when they are read; see `counterpoise.lm.sealed`.
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
        if not file.is_file():
            return None
        return read_sealed(
            file, "remove it and run the same command, which makes it from the last checkpoint"
        )

    @property
    def settings(self) -> Settings:
        """The settings in ``config.toml``; those that decide the numbers must be as at the start.

        Others, such as ``train.timeout``, may be changed there.
        """
        file = self.path / CONFIG
        table = read_toml(file)
        if self.inputs.get("settings") not in (None, _digest(table)):
            raise DamagedFile(
                f"{str(file)!r} was damaged or changed since the run began: settings that decide "
                "its numbers are no longer the same; undo the change, or choose another folder "
                "(--out) to train with these settings"
            )
        try:
            return build(Settings, upgraded(table))
        except ValueError as error:
            raise ValueError(f"{str(file)!r}: {error}") from None

    @property
    def inputs(self) -> dict[str, Any]:
        """What ``inputs.json`` holds; nothing if there is none."""
        file = self.path / INPUTS
        return read_sealed(file, "restore it from a copy") if file.is_file() else {}

    def open(
        self, settings: Settings, inputs: Mapping[str, Any], running_on: Mapping[str, Any]
    ) -> None:
        """Make the folder, or check that it belongs to these settings and inputs."""
        file = self.path / CONFIG
        if self.begun:
            self.check(settings, inputs)
        if not (self.begun and file.is_file()):
            self.path.mkdir(parents=True, exist_ok=True)
            text = self._written(settings)
            digest = _digest(tomllib.loads(text))
            write_sealed(self.path / INPUTS, {**inputs, "settings": digest})
            write_text(file, text)
        sweep(self.path, "*")
        self._note_start(environment() | dict(running_on))

    def _written(self, settings: Settings) -> str:
        """The text of ``config.toml``."""
        table = {k: v for k, v in settings.table.items() if k != "compare"}
        table["out"] = str(self.path)
        head = "Settings of this run; counterpoise lm train THIS --out ELSEWHERE repeats it."
        return to_toml(table, head)

    def _note_start(self, start: dict[str, Any]) -> None:
        file = self.path / ENVIRONMENT
        before: list[Any] = []
        if file.is_file():
            try:
                before = list(json.loads(file.read_text(encoding="utf-8")))
            except (ValueError, TypeError, RecursionError):
                logger.warning("%s was damaged; earlier starts are no longer in it", file)
        write_json(file, [*before, start])

    @property
    def begun(self) -> bool:
        """Whether anything has been measured or saved."""
        measured = self.evaluations.path
        return (measured.is_file() and measured.stat().st_size > 0) or self.checkpoints.is_dir()

    def check(self, settings: Settings, inputs: Mapping[str, Any] | None = None) -> None:
        """Refuse settings or inputs that are not those of the run in this folder."""
        if (self.path / CONFIG).is_file():
            then = self.settings
            if then.identity != settings.identity:
                names = ", ".join(differing(then.decisive, settings.decisive)[:5])
                raise ValueError(
                    f"{str(self.path)!r} holds a run with other settings ({names}); choose another "
                    "folder, or remove this one"
                )
        else:
            self._check_without_config(settings)
        known = self.inputs
        if inputs is not None and known:
            changed = [name for name in inputs if not _same_input(known.get(name), inputs[name])]
            if changed:
                raise ValueError(
                    f"{str(self.path)!r} holds a run that used other files: {', '.join(changed)} "
                    "changed since; choose another folder, or remove this one"
                )

    def _check_without_config(self, settings: Settings) -> None:
        """Compare settings with what else the folder knows of them: a digest, and checkpoints."""
        known = self.inputs.get("settings")
        same = known in (None, _digest(tomllib.loads(self._written(settings))))
        for file in sorted(self.checkpoints.glob(f"step-*/{STATE}"), reverse=True):
            try:
                identity = read_sealed(file, "").get("identity")
            except (OSError, ValueError):
                continue  # a damaged checkpoint is refused when the run resumes
            same = same and identity in (None, settings.identity)
            break
        if not same:
            raise ValueError(
                f"{str(self.path)!r} holds a run with other settings, and its {CONFIG} is missing; "
                "restore it from a copy, choose another folder, or remove this one"
            )

    def measured(self) -> list[dict[str, Any]]:
        """Read the evaluations; those of a finished run must reach its end."""
        records = self.evaluations.read()
        self.check_end(records[-1]["step"] if records else None)
        return records

    def check_end(self, step: int | None) -> None:
        """Refuse evaluations that end at another step than the run did, if it has ended."""
        result = self.result or {}
        if step != result.get("steps", step):
            raise DamagedFile(
                f"{str(self.evaluations.path)!r} is damaged: it does not reach the run's last "
                f"step, {result['steps']}; copy it from {str(self.path / result['model'])!r}"
            )

    def copy_logs(self, folder: Path) -> None:
        """Copy the measurements so far, from which a resumed run restores them."""
        for name in LOGS:
            if (self.path / name).is_file():
                write_bytes(folder / name, (self.path / name).read_bytes())

    def restore_logs(self, checkpoint: Path | None, step: int) -> None:
        """Make the logs what they were at a checkpoint; without one, empty them.

        Checkpoints of earlier releases hold no copies, and records after their step are dropped.
        """
        copied = checkpoint is not None and any((checkpoint / name).is_file() for name in LOGS)
        if checkpoint is not None and not copied:
            for lines in (self.steps, self.evaluations):
                lines.keep([r for r in lines.read() if r["step"] <= step])
            return
        for name in LOGS:
            file = self.path / name
            kept = checkpoint / name if checkpoint is not None else None
            then = kept.read_bytes() if kept is not None and kept.is_file() else b""
            now = file.read_bytes() if file.is_file() else b""
            if not now.startswith(then):
                logger.warning("%s was damaged or changed; it is restored from %s", file, kept)
            if now != then:
                write_bytes(file, then)

    def finish(self, result: Mapping[str, Any]) -> None:
        write_sealed(self.path / RESULT, result)


def _digest(table: Mapping[str, Any]) -> str:
    """Checksum of the settings in a file that decide a run's numbers.

    It is of the file's own entries, so that defaults which later releases add do not change it.
    """
    text = json.dumps(decisive(table), sort_keys=True, default=str)
    return f"{zlib.crc32(text.encode()):08x}"


def _same_input(known: Any, now: Any) -> bool:
    """Compare the descriptions of an input; those of release 0.1 lack checksums of models."""
    if isinstance(known, str) and isinstance(now, str) and "-" not in known:
        return known == now.partition("-")[0]
    return bool(known == now)


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
