"""Measure how fast a model trains on this machine."""

from __future__ import annotations

import time
from typing import Any

import torch

from counterpoise.lm.corpus.tokens import Corpus
from counterpoise.lm.training.losses import token_losses
from counterpoise.lm.training.model import llama_config, recompute_activations
from counterpoise.lm.training.ranks import join_ranks
from counterpoise.lm.training.settings import Settings
from counterpoise.lm.training.shape import shape_of

SECONDS = 5.0


def measured_rate(settings: Settings, corpus: Corpus | None = None) -> float:
    """Measure operations per second of forward and backward passes on one rank.

    A LLaMA of the model's shape with random parameters, which do not change its speed, is trained
    for some seconds on one sequence at a time, or on ``train.micro_batch`` of them.
    """
    from transformers import LlamaForCausalLM

    train, shape = settings.train, shape_of(settings, corpus)
    described = {
        "model.checkpoint": None,
        "model.vocab_size": shape.vocab,
        "model.hidden_size": shape.hidden,
        "model.intermediate_size": shape.intermediate,
        "model.layers": shape.layers,
        "model.heads": shape.heads,
        "model.kv_heads": shape.kv_heads,
        "model.tie_embeddings": shape.tied,
    }
    config = llama_config(settings.changed(described), shape.vocab)
    config.use_cache = False
    with join_ranks(train.threads, train.timeout) as process:
        model: Any = LlamaForCausalLM(config)
        model.to(process.device)
        if train.activation_checkpointing:
            recompute_activations(model)
        ids = torch.randint(shape.vocab, (train.micro_batch or 1, train.length)).to(process.device)

        def passes() -> None:
            with process.autocast(train.precision):
                loss = token_losses(model, ids).mean()
            loss.backward()
            if process.device.type == "cuda":
                torch.cuda.synchronize()

        passes()  # allocate memory and choose kernels
        began, number = time.perf_counter(), 0
        while number == 0 or time.perf_counter() - began < SECONDS:
            passes()
            number += 1
        seconds = time.perf_counter() - began
    again = 4 / 3 if train.activation_checkpointing else 1.0
    return number * ids.numel() * 3 * again * shape.forward_flops(train.length) / seconds
