"""Checkpoints of a run: safetensors and JSON, written whole or not at all.

Each is also a model that transformers loads as it is. ``state.json`` has the checksums
of all files; see `integrity`.
"""

from __future__ import annotations

import copy
import json
import logging
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_optimizer_state_dict,
    get_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
)

from counterpoise.lm.sealed import DamagedFile, seal
from counterpoise.lm.training.integrity import FORMAT, VERSION, files_of, read_state, verify
from counterpoise.lm.training.placing import is_sharded
from counterpoise.lm.training.ranks import Process
from counterpoise.lm.training.run_folder import MODEL, OPTIMIZER, STATE
from counterpoise.storage.files import sync_folder

logger = logging.getLogger("counterpoise")

HEAD = "lm_head.weight"


def save(
    folder: Path,
    step: int,
    model: Any,
    optimizer: torch.optim.Optimizer,
    state: dict[str, Any],
    process: Process,
    *,
    keep: int = 1,
    regular: bool = True,
    keep_optimizers: int | None = None,
    with_optimizer: bool = True,
    beside: Callable[[Path], None] | None = None,
) -> Path:
    """Write ``folder/step-<step>`` and return it; every rank must call, the first one writes.

    ``beside`` may add files of its own. An existing checkpoint of this step is left alone. An error
    of the first rank, such as a full disk, is raised on all, and the checkpoints before stay.

    The last ``keep`` regular checkpoints stay, and so does the latest of all: stopping a run
    between two regular checkpoints costs none of them.
    """
    target = folder / f"step-{step:08d}"
    if process.any(target in found(folder)):
        return target
    options = StateDictOptions(full_state_dict=True, cpu_offload=True)
    states: Any = get_state_dict(model, optimizer, options=options)
    tensors, moments = cast(tuple[dict[str, Any], dict[str, Any]], states)
    plain = getattr(model, "module", model)

    def write() -> None:
        draft = folder / f".step-{step:08d}.new"
        try:
            _sweep(folder)
            draft.mkdir(parents=True)
            _write_model(draft, plain, tensors)
            if with_optimizer:
                _write_moments(draft, moments)
            if beside is not None:
                beside(draft)
            _write_state(draft, {"step": step, "regular": regular, "rng": _rng(), **state})
            _put_in_place(draft, target)
        except BaseException as error:
            shutil.rmtree(draft, ignore_errors=True)
            if isinstance(error, (OSError, SafetensorError)):
                raise OSError(
                    f"the checkpoint {str(target)!r} could not be written ({error}); make room or "
                    "repair the disk, and run the same command to resume from the checkpoint before"
                ) from error
            raise
        _thin_out(folder, keep, keep_optimizers or keep)

    process.on_first_rank(write)
    return target


def _sweep(folder: Path) -> None:
    """Remove what processes that were killed left behind."""
    for left in folder.glob(".step-*"):
        shutil.rmtree(left)


def _write_model(draft: Path, plain: Any, tensors: dict[str, Any]) -> None:
    if plain.config.tie_word_embeddings:
        tensors.pop(HEAD, None)  # the same numbers as the embeddings
    whole = {name: t.contiguous() for name, t in tensors.items()}
    save_file(whole, draft / MODEL, metadata={"format": "pt"})
    _plain_config(plain).save_pretrained(draft)


def _write_moments(draft: Path, moments: dict[str, Any]) -> None:
    flat = {
        f"{key}/{name}": torch.as_tensor(value).contiguous()
        for name, values in moments["state"].items()
        for key, value in values.items()
    }
    save_file(flat, draft / OPTIMIZER)


def _write_state(draft: Path, state: dict[str, Any]) -> None:
    """Write the state last: it lists the other files with their checksums."""
    known = {"format": FORMAT, "version": VERSION, **state, "files": files_of(draft)}
    text = json.dumps(seal(known), allow_nan=False)
    (draft / STATE).write_text(text + "\n", encoding="utf-8")


def _put_in_place(draft: Path, target: Path) -> None:
    """Flush a checkpoint to disk and give it its name."""
    for path in draft.iterdir():
        with open(path, "r+b") as file:
            os.fsync(file.fileno())
    sync_folder(draft)
    if target.exists():
        _discard(target)
    os.replace(draft, target)
    sync_folder(target.parent)


def _thin_out(folder: Path, keep: int, keep_optimizers: int) -> None:
    """Remove checkpoints and optimizers that need not be kept; what is damaged stays."""
    there = found(folder)
    whole = {path: regular for path in there if (regular := _is_regular(path)) is not None}
    kept = [path for path, regular in whole.items() if regular][-keep:]
    for old in whole:
        if old not in kept and old != there[-1]:
            _discard(old)
    for old in [path for path in found(folder) if path in whole][:-keep_optimizers]:
        (old / OPTIMIZER).unlink(missing_ok=True)


def _is_regular(path: Path) -> bool | None:
    """Return whether a checkpoint was due, and not only saved on request; None if damaged."""
    try:
        return bool(read_state(path)["regular"])
    except (OSError, ValueError, KeyError):
        return None


def found(folder: Path) -> list[Path]:
    """List the checkpoints of a folder, the earliest first."""
    whole = (p for p in folder.glob("step-*") if (p / STATE).is_file() and (p / MODEL).is_file())
    return sorted(whole)


def _discard(path: Path) -> None:
    """Remove a checkpoint; if this is interrupted, no half of one is left under its name."""
    doomed = path.with_name(f".{path.name}.old")
    os.replace(path, doomed)
    shutil.rmtree(doomed)


def _plain_config(model: Any) -> Any:
    """The configuration of what is saved, whatever it was loaded from or trained with."""
    config = copy.deepcopy(model.config)
    config.architectures = [type(model).__name__]
    config.use_cache = True
    if hasattr(config, "quantization_config"):
        del config.quantization_config
    return config


def latest(folder: Path) -> Path | None:
    """Return the checkpoint to resume from; None if there is none.

    Folders that hold only half of one are named in a warning and left out.
    """
    there = found(folder)
    for path in sorted(folder.glob("step-*")):
        if path not in there:
            logger.warning("%s is not a whole checkpoint and is left out", path)
    return there[-1] if there else None


def check(path: Path) -> dict[str, Any]:
    """Verify the checkpoint that a run resumes from; return its state.

    The error says what to resume from instead. Nothing is chosen silently.
    """
    return verify(path, f"{instead(path)}, and run the same command")


def instead(path: Path) -> str:
    """Say how to resume without a checkpoint."""
    for before in reversed(found(path.parent)):
        if before < path and (before / OPTIMIZER).is_file():
            try:
                verify(before)
            except ValueError:
                continue
            return f"to resume from {before.name} instead, remove the folder {str(path)!r}"
    return (
        f"no other checkpoint can be resumed from, so restore it from a copy, or remove "
        f"{str(path.parent)!r} to train from the beginning"
    )


def restore(
    path: Path, model: Any, optimizer: torch.optim.Optimizer, process: Process
) -> dict[str, Any]:
    """Load a checkpoint into a model and its optimizer; return its state.

    The optimizer may be missing if nothing is left to train. Of a sharded model, only the first
    rank reads the numbers; every rank gets its part of them.
    """
    state = read_state(path)
    sharded = is_sharded(model)
    read: list[tuple[dict[str, Any], dict[str, Any]]] = []
    plain = getattr(model, "module", model)
    if sharded:
        process.on_first_rank(lambda: read.append(_numbers(path, plain)))
    else:
        read.append(_numbers(path, plain))
    tensors, moments = read.pop() if read else ({}, {})
    options = StateDictOptions(full_state_dict=True, broadcast_from_rank0=sharded)
    resumable = (path / OPTIMIZER).is_file()
    if resumable:  # before the model: to be ready for its state, the optimizer takes a step
        now: dict[str, Any] = dict(get_optimizer_state_dict(model, optimizer))  # for its groups
        now["state"] = moments
        known = {} if sharded and not process.first else now
        set_optimizer_state_dict(model, optimizer, known, options=options)
    set_model_state_dict(model, tensors, options=options)
    if resumable and process.world == 1:
        torch.set_rng_state(torch.tensor(state["rng"], dtype=torch.uint8))
    return state


def _numbers(path: Path, plain: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Read the parameters of a checkpoint, and the optimizer's state for each of them."""
    tensors = _load(path / MODEL)
    if plain.config.tie_word_embeddings and HEAD not in tensors:
        head = plain.get_input_embeddings()
        name = next(n for n, module in plain.named_modules() if module is head)
        tensors[HEAD] = tensors[f"{name}.weight"]
    moments: dict[str, Any] = {}
    if (path / OPTIMIZER).is_file():
        for name, tensor in _load(path / OPTIMIZER).items():
            key, _, parameter = name.partition("/")
            moments.setdefault(parameter, {})[key] = tensor
    return tensors, moments


def _load(file: Path) -> dict[str, Any]:
    try:
        return dict(load_file(file))
    except SafetensorError as error:
        raise DamagedFile(f"{str(file)!r} is damaged ({error}); {instead(file.parent)}") from None


def _rng() -> list[int]:
    return torch.get_rng_state().tolist()
