"""Token losses, the basis of training and evaluation."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn.functional import cross_entropy

Batch = dict[str, torch.Tensor]


def token_losses(model: Any, ids: torch.Tensor) -> torch.Tensor:
    """Return the loss of every token but the first of each sequence, (B, L - 1), in float32."""
    logits = model(input_ids=ids).logits[:, :-1].float()
    return cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten(), reduction="none").view(
        ids[:, 1:].shape
    )


def summed_losses(model: Any, batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the sum and number of each sequence's token losses, for `domain_losses`."""
    losses = token_losses(model, batch["input_ids"])
    return losses.double().sum(1), torch.full((len(losses),), losses.shape[1])
