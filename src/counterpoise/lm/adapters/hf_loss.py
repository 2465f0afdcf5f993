"""Weigh the losses of a Hugging Face Trainer by the factors that a mixture's batches carry."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn.functional import cross_entropy
from transformers import Trainer

from counterpoise.lm.adapters.hf_ranks import parallel_size
from counterpoise.lm.mixture.loader import name_of
from counterpoise.lm.mixture.samples import IGNORED, LOSS_WEIGHT

# Relative difference of two sums of the same token losses, at least and in units of rounding.
ROUNDING, EPSILONS = 1e-4, 4
REMEDY = "use sampling='weights', or multiply losses by batch['loss_weight'] in a loop of your own"


def weigh_losses_of(trainer: Trainer) -> None:
    """Let a Trainer weigh the loss of each sample of a batch that has factors.

    Its loss must be the usual one, the mean cross entropy of next tokens; any other is refused,
    here or at the first batch.
    """
    own = type(trainer).compute_loss is not Trainer.compute_loss
    config = getattr(trainer.model, "config", None)
    refused = {
        "a compute_loss of its own": own,
        "a compute_loss_func": trainer.compute_loss_func is not None,
        "label_smoothing_factor": trainer.label_smoother is not None,
        "use_liger_kernel, which keeps no logits": trainer.args.use_liger_kernel,
        "a model with output_router_logits, whose loss has another part": getattr(
            config, "output_router_logits", False
        ),
        "an encoder-decoder model": getattr(config, "is_encoder_decoder", False),
        f"a {type(trainer.model).__name__}, whose loss is another": _has_other_loss(trainer),
        "context parallelism, which cuts sequences": parallel_size(trainer, "cp") > 1,
    }
    for what, there in refused.items():
        if there:
            raise ValueError(
                f"sampling weighs the mean loss of next tokens, but this Trainer has {what}; leave "
                f"it out, {REMEDY}"
            )
    weighed = _WeighedLoss(trainer.compute_loss, name_of(trainer.data_collator))
    vars(trainer)["compute_loss"] = weighed.compute_loss
    trainer.compute_loss_func = weighed.of_tokens


def check_order(samples: list[Any], batch: Any, collator: str) -> None:
    """Refuse a batch whose rows are samples in another order, as far as their tokens say so."""
    rows = batch.get("input_ids")
    tensors = [one for one in (rows, *samples) if torch.is_tensor(one)]
    if len(tensors) != 1 + len(samples) or len(rows) != len(samples):
        return  # the loader counts the rows
    keys = [_key(one) for one in samples]
    places = {key: i for i, key in enumerate(keys)}
    for i, row in enumerate(rows):
        found = _key(row[: len(samples[i])])
        if found != keys[i] and found in places:
            raise ValueError(
                f"the collator {collator} put sample {places[found]} of a batch in row {i}, but "
                "the factors of the losses are in the order of the samples; use a collator that "
                "keeps it, or sampling='weights'"
            )


def _key(tokens: torch.Tensor) -> bytes:
    return tokens.long().numpy().tobytes()


def _has_other_loss(trainer: Any) -> bool:
    """Return whether transformers knows that the model's loss is not that of next tokens.

    It does not know the loss of some models of next tokens, such as GPT-2.
    """
    known = getattr(trainer.model, "loss_type", None) is not None
    return known and not getattr(trainer, "_loss_shifts_labels", True)


class _WeighedLoss:
    """The loss of a causal language model, with a factor for each sample."""

    def __init__(self, compute_loss: Any, collator: str) -> None:
        self._compute_loss, self._collator = compute_loss, collator
        self._factors: torch.Tensor | None = None
        self._own: _OwnLoss | None = None  # of the batch, while it is compared with ours
        self._compared = False

    def compute_loss(self, model: Any, inputs: dict[str, Any], *args: Any, **kwargs: Any) -> Any:
        """Take the factors out of a batch, which the model does not know."""
        inputs = dict(inputs)
        self._factors = inputs.pop(LOSS_WEIGHT, None)
        if not self._compared and "labels" in inputs:
            model = self._own = _OwnLoss(model, inputs["labels"])
        try:
            return self._compute_loss(model, inputs, *args, **kwargs)
        finally:
            self._own = None

    def of_tokens(
        self, outputs: Any, labels: torch.Tensor, num_items_in_batch: Any = None
    ) -> torch.Tensor:
        """Return the sum of weighed token losses by the number of tokens."""
        targets = labels[:, 1:]
        losses = cross_entropy(
            outputs["logits"][:, :-1].float().flatten(0, 1), targets.flatten(),
            ignore_index=IGNORED, reduction="none",
        ).view(targets.shape)  # fmt: skip
        count = (targets != IGNORED).sum()
        if self._own is not None:
            self._compare(losses.detach().sum() / count, self._own.loss)
        if self._factors is not None:
            if len(losses) != len(self._factors):
                raise ValueError(
                    f"the collator {self._collator} made {len(losses)} rows from "
                    f"{len(self._factors)} samples, but the loss of each sample has a factor of "
                    f"its own; {REMEDY}"
                )
            losses = losses * self._factors[:, None]
        if num_items_in_batch is None:
            num_items_in_batch = count
        elif torch.is_tensor(num_items_in_batch):
            num_items_in_batch = num_items_in_batch.to(losses.device)
        return losses.sum() / num_items_in_batch

    def _compare(self, ours: torch.Tensor, own: torch.Tensor) -> None:
        """Refuse a model whose own loss of a batch is not the mean over next tokens."""
        if own.numel() != 1 or not (torch.isfinite(ours) and torch.isfinite(own).all()):
            return  # of several cards, or of a batch without targets
        rounding = max(ROUNDING, EPSILONS * torch.finfo(own.dtype).eps)
        if abs(float(ours) - float(own)) > rounding * max(abs(float(own)), 1.0):
            raise ValueError(
                "sampling weighs the mean loss of next tokens, but the model's own loss of the "
                f"first batch is {float(own):.6g} and that mean is {float(ours):.6g}; {REMEDY}"
            )
        self._compared = True


class _OwnLoss:
    """Call a model with the labels, too, so that the same pass gives logits and its own loss."""

    def __init__(self, model: Any, labels: torch.Tensor) -> None:
        self.model, self.labels = model, labels
        self.loss = torch.tensor(torch.nan)

    def __call__(self, **inputs: Any) -> dict[str, Any]:
        inputs.pop("num_items_in_batch", None)  # without it, the loss is a mean
        found = self.model(**inputs, labels=self.labels)
        if not isinstance(found, dict) or found.get("logits") is None:
            raise ValueError(
                "sampling weighs the loss of every token, but the model returns no logits beside "
                f"its loss; {REMEDY}"
            )
        if found.get("loss") is not None:
            self.loss = found["loss"].detach()
        return {key: value for key, value in found.items() if key != "loss"}

    def __getattr__(self, name: str) -> Any:
        return getattr(self.model, name)
