"""Small training runs: their settings, their models, and how they are cut short."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import torch
from safetensors.torch import load_file

from counterpoise.common.toml import build
from counterpoise.lm.training import train as training
from counterpoise.lm.training.run_folder import MODEL, RunFolder
from counterpoise.lm.training.settings import Settings

SIZES = {"x": 6000, "y": 3000, "z": 1500}
SPLITS = ("train", "validation", "test")
STEP = 16 * 8  # tokens


def run_settings(corpus, /, **changes):
    """Settings of a run of 24 steps that is evaluated every fourth; sections can be changed."""
    table = {
        "corpus": {"folder": str(corpus.folder)},
        "model": {"hidden_size": 16, "layers": 2, "heads": 2},
        "train": {
            "tokens": STEP * 24, "length": 16, "batch": 8, "learning_rate": 0.01,
            "evaluate_every": STEP * 4, "threads": 1,
        },
        "evaluate": {"sequences": 8},
    }  # fmt: skip
    for name, inner in changes.items():
        table[name] = {**table.get(name, {}), **inner}
    return build(Settings, table)


def model_of(folder):
    """Tensors of a finished run's model."""
    result = RunFolder(Path(folder)).result
    return load_file(Path(folder) / result["model"] / MODEL)


def assert_same_model(one, other):
    a, b = model_of(one), model_of(other)
    assert a.keys() == b.keys()
    for name in a:
        assert torch.equal(a[name], b[name]), name


def assert_close_model(one, other, atol):
    a, b = model_of(one), model_of(other)
    assert a.keys() == b.keys()
    for name in a:
        assert torch.allclose(a[name], b[name], atol=atol), name


def interrupt_at(monkeypatch, step, kind=None):
    """Once, after a step, raise an error or send this process SIGTERM."""
    advance = training.Trainer.advance
    told = []

    def interrupted(self):
        advance(self)
        if self.step == step and not told:
            told.append(step)
            if kind is not None:
                raise kind
            os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(training.Trainer, "advance", interrupted)
