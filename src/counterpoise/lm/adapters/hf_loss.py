"""Weigh the losses of a Hugging Face Trainer by the factors that a mixture's batches carry."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn.functional import cross_entropy
from transformers import Trainer

from counterpoise.lm.mixture.samples import IGNORED, LOSS_WEIGHT


def weigh_losses_of(trainer: Trainer) -> None:
    """Let a Trainer weigh the loss of each sample of a batch that has factors.

    Its loss must be the usual one, the mean cross entropy of next tokens; any other is refused.
    """
    own = type(trainer).compute_loss is not Trainer.compute_loss
    refused = {
        "a compute_loss of its own": own,
        "a compute_loss_func": trainer.compute_loss_func is not None,
        "label_smoothing_factor": trainer.label_smoother is not None,
        "use_liger_kernel, which keeps no logits": trainer.args.use_liger_kernel,
        "a model with output_router_logits, whose loss has another part": getattr(
            getattr(trainer.model, "config", None), "output_router_logits", False
        ),
    }
    for what, there in refused.items():
        if there:
            raise ValueError(
                f"sampling weighs the mean loss of next tokens, but this Trainer has {what}; leave "
                "it out, use sampling='weights', or multiply losses by batch['loss_weight'] in a "
                "loop of your own"
            )
    weighed = _WeighedLoss(trainer.compute_loss)
    vars(trainer)["compute_loss"] = weighed.compute_loss
    trainer.compute_loss_func = weighed.of_tokens


class _WeighedLoss:
    """The loss of a causal language model, with a factor for each sample."""

    def __init__(self, compute_loss: Any) -> None:
        self._compute_loss = compute_loss
        self._factors: torch.Tensor | None = None

    def compute_loss(self, model: Any, inputs: dict[str, Any], *args: Any, **kwargs: Any) -> Any:
        """Take the factors out of a batch, which the model does not know."""
        inputs = dict(inputs)
        self._factors = inputs.pop(LOSS_WEIGHT, None)
        return self._compute_loss(model, inputs, *args, **kwargs)

    def of_tokens(
        self, outputs: Any, labels: torch.Tensor, num_items_in_batch: Any = None
    ) -> torch.Tensor:
        """Return the sum of weighed token losses by the number of tokens."""
        targets = labels[:, 1:]
        losses = cross_entropy(
            outputs["logits"][:, :-1].float().flatten(0, 1), targets.flatten(),
            ignore_index=IGNORED, reduction="none",
        ).view(targets.shape)  # fmt: skip
        if self._factors is not None:
            losses = losses * self._factors[:, None]
        if num_items_in_batch is None:
            num_items_in_batch = (targets != IGNORED).sum()
        elif torch.is_tensor(num_items_in_batch):
            num_items_in_batch = num_items_in_batch.to(losses.device)
        return losses.sum() / num_items_in_batch
