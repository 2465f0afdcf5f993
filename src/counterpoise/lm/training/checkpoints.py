"""Checkpoints of a run: safetensors and JSON, written whole or not at all.

Each is also a model that transformers loads as it is.
"""

from __future__ import annotations

import copy
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import torch
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_optimizer_state_dict,
    get_state_dict,
    set_model_state_dict,
    set_state_dict,
)

from counterpoise.lm.training.ranks import Process
from counterpoise.lm.training.run_folder import MODEL, OPTIMIZER, STATE
from counterpoise.storage.files import sync_folder

FORMAT, VERSION = "counterpoise checkpoint", 2
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

    ``beside`` may add files of its own. An existing checkpoint of this step is left alone.

    The last ``keep`` regular checkpoints stay, and so does the latest of all: stopping a run
    between two regular checkpoints costs none of them.
    """
    target = folder / f"step-{step:08d}"
    if process.any(target in found(folder)):
        return target
    options = StateDictOptions(full_state_dict=True, cpu_offload=True)
    states: Any = get_state_dict(model, optimizer, options=options)
    tensors, moments = cast(tuple[dict[str, Any], dict[str, Any]], states)
    if process.first:
        from safetensors.torch import save_file

        for left in folder.glob(".step-*"):  # by a process that was killed
            shutil.rmtree(left)
        draft = folder / f".step-{step:08d}.new"
        draft.mkdir(parents=True)
        plain = getattr(model, "module", model)
        if plain.config.tie_word_embeddings:
            tensors.pop(HEAD, None)  # the same numbers as the embeddings
        whole = {name: t.contiguous() for name, t in tensors.items()}
        save_file(whole, draft / MODEL, metadata={"format": "pt"})
        _plain_config(plain).save_pretrained(draft)
        if with_optimizer:
            flat = {
                f"{key}/{name}": torch.as_tensor(value).contiguous()
                for name, values in moments["state"].items()
                for key, value in values.items()
            }
            save_file(flat, draft / OPTIMIZER)
        known = {
            "format": FORMAT, "version": VERSION, "step": step, "regular": regular,
            "rng": _rng(), **state,
        }  # fmt: skip
        (draft / STATE).write_text(json.dumps(known, allow_nan=False) + "\n", encoding="utf-8")
        if beside is not None:
            beside(draft)
        for path in draft.iterdir():
            with open(path, "r+b") as file:
                os.fsync(file.fileno())
        sync_folder(draft)
        if target.exists():
            _discard(target)
        os.replace(draft, target)
        sync_folder(folder)
        kept = [path for path in found(folder) if read_state(path)["regular"]][-keep:]
        for old in found(folder)[:-1]:
            if old not in kept:
                _discard(old)
        for old in found(folder)[: -(keep_optimizers or keep)]:
            (old / OPTIMIZER).unlink(missing_ok=True)
    process.wait()
    return target


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


def restore(
    path: Path, model: Any, optimizer: torch.optim.Optimizer, process: Process
) -> dict[str, Any]:
    """Load a checkpoint into a model and its optimizer; return its state.

    The optimizer may be missing if nothing is left to train.
    """
    from safetensors.torch import load_file

    state = read_state(path)
    tensors: dict[str, Any] = load_file(path / MODEL)
    plain = getattr(model, "module", model)
    if plain.config.tie_word_embeddings and HEAD not in tensors:
        head = plain.get_input_embeddings()
        name = next(n for n, module in plain.named_modules() if module is head)
        tensors[HEAD] = tensors[f"{name}.weight"]
    options = StateDictOptions(full_state_dict=True)
    if not (path / OPTIMIZER).is_file():
        set_model_state_dict(model, tensors, options=options)
        return state
    now: dict[str, Any] = dict(get_optimizer_state_dict(model, optimizer))  # for its groups
    moments: dict[str, Any] = {}
    for name, tensor in load_file(path / OPTIMIZER).items():
        key, _, parameter = name.partition("/")
        moments.setdefault(parameter, {})[key] = tensor
    now["state"] = moments
    set_state_dict(
        model, optimizer, model_state_dict=tensors, optim_state_dict=now, options=options
    )
    if process.world == 1:
        torch.set_rng_state(torch.tensor(state["rng"], dtype=torch.uint8))
    return state


def read_state(path: Path) -> dict[str, Any]:
    """Read a checkpoint's state as this release has it, whichever release wrote it."""
    state = json.loads((path / STATE).read_text(encoding="utf-8"))
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
    return MIGRATIONS[version](state)


def _from_version_1(state: dict[str, Any]) -> dict[str, Any]:
    """Release 0.1 saved the mixture twice: by itself, and with the weights that steer it."""
    state = dict(state)
    steering = state.pop("steering")
    return {**state, "version": VERSION, "reweighter": steering["reweighter"]}


MIGRATIONS = {1: _from_version_1}


def _rng() -> list[int]:
    return torch.get_rng_state().tolist()
