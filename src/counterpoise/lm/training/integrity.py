"""Checksums of a checkpoint: ``state.json`` lists its files, and carries one of its own."""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path
from typing import Any

from counterpoise.lm.sealed import DamagedFile, read_sealed
from counterpoise.lm.training.run_folder import MODEL, OPTIMIZER, STATE
from counterpoise.storage.files import checksum, read_regular
from counterpoise.storage.remembered import checksums_once

FORMAT, VERSION = "counterpoise checkpoint", 3
CONFIG = "config.json"
RESTORE = "restore it from a copy, or use another checkpoint"


def read_state(path: Path, remedy: str = RESTORE) -> dict[str, Any]:
    """Read a checkpoint's state as this release has it, whichever release wrote it.

    A damaged state raises `DamagedFile`, which ends with the remedy.
    """
    state = read_sealed(path / STATE, remedy, since=VERSION)
    version = state.get("version")
    if state.get("format") != FORMAT:
        raise ValueError(
            f"{str(path)!r} is not a checkpoint of a run: its {STATE} has the format "
            f"{state.get('format')!r} instead of {FORMAT!r}"
        )
    if version == VERSION:
        return state
    if version not in MIGRATIONS:
        raise ValueError(
            f"{str(path)!r} has version {version!r}; this release reads versions 1 to {VERSION}. "
            "Resume it with the release that wrote it, or install a newer one"
        )
    try:
        return MIGRATIONS[version](state)
    except KeyError as error:
        raise DamagedFile(
            f"{str(path / STATE)!r} is damaged: it has no {error}; {remedy}"
        ) from None


def _from_version_1(state: dict[str, Any]) -> dict[str, Any]:
    """Release 0.1 saved the mixture twice: by itself, and with the weights that steer it."""
    state = dict(state)
    steering = state.pop("steering")
    return _from_version_2({**state, "reweighter": steering["reweighter"]})


def _from_version_2(state: dict[str, Any]) -> dict[str, Any]:
    """Version 2 had no checksums."""
    for name in ("step", "regular", "seconds", "reweighter", "mixture", "rng"):
        _ = state[name]
    return {**state, "version": VERSION, "files": {}}


MIGRATIONS = {1: _from_version_1, 2: _from_version_2}


def files_of(folder: Path) -> dict[str, dict[str, Any]]:
    """List the files of a checkpoint that is being written, with sizes and checksums."""
    return {
        path.name: {"bytes": path.stat().st_size, "crc32": checksum(path)}
        for path in sorted(folder.iterdir())
        if path.name != STATE
    }


def verify(
    path: Path, remedy: str = RESTORE, *, only: Collection[str] | None = None
) -> dict[str, Any]:
    """Read the files of a checkpoint and compare their checksums; return its state.

    All files are read, or only those named. The first that is damaged or missing raises
    `DamagedFile`. The optimizer may be missing.
    """
    state = read_state(path, remedy)
    for name, known in state["files"].items():
        file = path / name
        if only is not None and name not in only:
            continue
        if name == OPTIMIZER and not file.is_file():
            continue
        if not file.is_file():
            raise DamagedFile(f"{str(file)!r} is missing; {remedy}")
        size = file.stat().st_size
        if size != known["bytes"]:
            raise DamagedFile(
                f"{str(file)!r} is damaged: it has {size:,} bytes instead of "
                f"{known['bytes']:,}; {remedy}"
            )
        stated = [known["crc32"]]  # models are read often, and checkpoints to be resumed rarely
        if stated != ([checksum(file)] if only is None else checksums_once([file], stated)):
            raise DamagedFile(
                f"{str(file)!r} is damaged: its contents do not match the checksum in {STATE}; "
                f"{remedy}"
            )
    return state


def verify_model(spec: str | os.PathLike[str]) -> None:
    """Verify a model if it is a checkpoint of a run; other models have no checksums here.

    Only what a model is loaded from is read. Logs that were removed, or a tokenizer that was given
    a chat template, make no other model of it.
    """
    path = Path(spec)
    if _is_ours(path / STATE) and (path / MODEL).is_file():
        remedy = "restore it from a copy, use another checkpoint, or train the model again"
        verify(path, remedy, only=(MODEL, CONFIG))


def _is_ours(file: Path) -> bool:
    """Return whether a ``state.json`` is of a checkpoint, even if it is damaged in one place."""
    if not file.is_file():
        return False
    try:
        data = read_regular(file)
    except ValueError:
        return False
    return any(mark in data for mark in (FORMAT.encode(), b'"reweighter"', b'"mixture"'))
