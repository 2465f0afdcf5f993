"""Checkpoints that are whole or not there: safetensors and JSON, and a model that transformers
loads as it is."""

from __future__ import annotations

import copy
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_optimizer_state_dict,
    get_state_dict,
    set_model_state_dict,
    set_state_dict,
)

from counterpoise.lm.training.ranks import Place
from counterpoise.lm.training.references import OPTIMIZER
from counterpoise.storage.files import sync_folder

FORMAT, VERSION = "counterpoise checkpoint", 1
MODEL, STATE = "model.safetensors", "state.json"
HEAD = "lm_head.weight"


def save(
    folder: Path,
    step: int,
    model: Any,
    optimizer: torch.optim.Optimizer,
    state: dict[str, Any],
    place: Place,
    *,
    keep: int = 1,
    regular: bool = True,
    keep_optimizers: int | None = None,
    with_optimizer: bool = True,
    beside: Callable[[Path], None] | None = None,
) -> Path:
    """Write ``folder/step-<step>``, and what ``beside`` puts into it; all ranks call, the first one
    writes. A whole one of that step is left as it is.

    The last ``keep`` of those that are ``regular`` stay, and the latest: a run that is stopped
    between them does not lose what it would have kept."""
    target = folder / f"step-{step:08d}"
    if place.any(target in found(folder)):
        return target
    options = StateDictOptions(full_state_dict=True, cpu_offload=True)
    tensors, moments = get_state_dict(model, optimizer, options=options)
    if place.first:
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
    place.wait()
    return target


def found(folder: Path) -> list[Path]:
    """Checkpoints of a folder, the earliest first."""
    whole = (p for p in folder.glob("step-*") if (p / STATE).is_file() and (p / MODEL).is_file())
    return sorted(whole)


def _discard(path: Path) -> None:
    """Remove a checkpoint such that it is whole until it is none."""
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
    path: Path, model: Any, optimizer: torch.optim.Optimizer, place: Place
) -> dict[str, Any]:
    """Load what `save` wrote; returns its state. A checkpoint without its optimizer is enough for
    a run that has nothing left to train."""
    from safetensors.torch import load_file

    state = read_state(path)
    tensors = load_file(path / MODEL)
    plain = getattr(model, "module", model)
    if plain.config.tie_word_embeddings and HEAD not in tensors:
        head = plain.get_input_embeddings()
        name = next(n for n, module in plain.named_modules() if module is head)
        tensors[HEAD] = tensors[f"{name}.weight"]
    options = StateDictOptions(full_state_dict=True)
    if not (path / OPTIMIZER).is_file():
        set_model_state_dict(model, tensors, options=options)
        return state
    now = get_optimizer_state_dict(model, optimizer)  # for its groups; nothing is gathered
    moments: dict[str, dict[str, torch.Tensor]] = {}
    for name, tensor in load_file(path / OPTIMIZER).items():
        key, _, parameter = name.partition("/")
        moments.setdefault(parameter, {})[key] = tensor
    now["state"] = moments
    set_state_dict(
        model, optimizer, model_state_dict=tensors, optim_state_dict=now, options=options
    )
    if place.world == 1:
        torch.set_rng_state(torch.tensor(state["rng"], dtype=torch.uint8))
    return state


def read_state(path: Path) -> dict[str, Any]:
    state = json.loads((path / STATE).read_text(encoding="utf-8"))
    if state.get("format") != FORMAT or state.get("version") != VERSION:
        raise ValueError(
            f"{str(path)!r} is not a checkpoint that this release reads ({FORMAT} {VERSION}); it "
            f"says {state.get('format')!r} {state.get('version')!r}"
        )
    return state


def _rng() -> list[int]:
    return torch.get_rng_state().tolist()
