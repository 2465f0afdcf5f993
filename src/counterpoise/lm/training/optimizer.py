"""AdamW and its learning-rate schedule."""

from __future__ import annotations

import math
from typing import Any

import torch

from counterpoise.lm.training.ranks import Process
from counterpoise.lm.training.settings import TrainSettings


def learning_rate(train: TrainSettings, step: int) -> float:
    """Return the rate of a step, from 0: a linear warm-up, then a cosine down to ``final``."""
    warm = train.warmup * train.schedule_steps
    if step + 1 < warm:
        return train.learning_rate * (step + 1) / warm
    if train.schedule == "constant":
        return train.learning_rate
    along = min((step + 1 - warm) / max(train.schedule_steps - warm, 1.0), 1.0)
    cosine = 0.5 * (1.0 + math.cos(math.pi * along))
    return train.learning_rate * (train.final + (1.0 - train.final) * cosine)


def make_optimizer(model: Any, train: TrainSettings, process: Process) -> torch.optim.AdamW:
    """Make AdamW; vectors, such as those of norms, do not decay."""
    named = [p for p in model.parameters() if p.requires_grad]
    groups = [
        {"params": [p for p in named if p.ndim >= 2], "weight_decay": train.weight_decay},
        {"params": [p for p in named if p.ndim < 2], "weight_decay": 0.0},
    ]
    first, second = train.betas
    return torch.optim.AdamW(
        groups,
        lr=train.learning_rate,
        betas=(first, second),
        eps=train.eps,
        fused=process.world == 1 or train.parallel == "ddp",
    )
