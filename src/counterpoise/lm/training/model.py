"""The model of a run: a new LLaMA of a given shape, or a checkpoint."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import torch

from counterpoise.lm.corpus.bpe import TOKENIZER
from counterpoise.lm.corpus.tokens import Corpus
from counterpoise.lm.training.integrity import verify_model
from counterpoise.lm.training.settings import Settings

logger = logging.getLogger("counterpoise")


def make_model(settings: Settings, corpus: Corpus) -> Any:
    """Make a new model, the same for equal seeds, or load ``model.checkpoint``; in float32."""
    torch.manual_seed(settings.train.seed)
    if settings.model.checkpoint is not None:
        from counterpoise.lm.model_files import load_model

        verify_model(settings.model.checkpoint)
        model = load_model(settings.model.checkpoint, dtype=torch.float32).train()
        rows = model.get_input_embeddings().weight.shape[0]
        longest = getattr(model.config, "max_position_embeddings", None)
        check_checkpoint(settings, corpus.vocab_size, rows, longest)
    else:
        from transformers import LlamaForCausalLM

        config = llama_config(settings, corpus.vocab_size, corpus.end)
        if config.vocab_size < corpus.vocab_size:
            raise ValueError(
                f"model.vocab_size={config.vocab_size} is less than the {corpus.vocab_size} tokens "
                "of the corpus; raise it, or leave it out"
            )
        model = LlamaForCausalLM(config)
    model.config.use_cache = False
    if settings.train.activation_checkpointing:
        recompute_activations(model)
    return model


def make_skeleton(settings: Settings, config: Any) -> Any:
    """Make a model like that of `make_model`, whose configuration this is, without its numbers."""
    from transformers import AutoModelForCausalLM

    if hasattr(config, "quantization_config"):
        del config.quantization_config  # the numbers are those of float32
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config, trust_remote_code=False)
    model = model.float().train()
    if settings.train.activation_checkpointing:
        recompute_activations(model)
    return model


def recompute_activations(model: Any) -> None:
    """Turn on activation checkpointing; transformers renamed the method in release 5."""
    enable = getattr(model, "activation_checkpointing_enable", None)
    (enable or model.gradient_checkpointing_enable)({"use_reentrant": False})


def save_tokenizer(settings: Settings, corpus: Corpus, folder: Path) -> None:
    """Save the tokenizer beside a model, so that it can be given text.

    The tokenizer of bytes is not saved, since transformers does not know it.
    """
    if settings.model.checkpoint is not None:
        from counterpoise.lm.model_files import load_tokenizer

        try:
            load_tokenizer(settings.model.checkpoint).save_pretrained(folder)
        except Exception as error:  # from any package; the model is usable without it
            logger.warning("could not save the tokenizer with the model: %s", error)
    elif (file := corpus.folder / TOKENIZER).is_file():
        from transformers import PreTrainedTokenizerFast

        own = PreTrainedTokenizerFast(tokenizer_file=str(file))
        end = own.convert_ids_to_tokens(corpus.end)
        own.add_special_tokens({"bos_token": end, "eos_token": end, "pad_token": end})
        own.save_pretrained(folder)


def llama_config(settings: Settings, vocab_size: int, end: int = 0) -> Any:
    """Make the transformers configuration of the shape in ``[model]``."""
    from transformers import LlamaConfig

    shape = settings.model
    make: Any = LlamaConfig  # its types lack rope_theta
    return make(
        vocab_size=shape.vocab_size or vocab_size,
        hidden_size=shape.hidden_size,
        intermediate_size=shape.intermediate_size or round_up(shape.hidden_size * 8 / 3, 8),
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.kv_heads or shape.heads,
        max_position_embeddings=settings.train.length,
        tie_word_embeddings=shape.tie_embeddings,
        rope_theta=shape.rope_theta,
        rms_norm_eps=shape.norm_eps,
        bos_token_id=end,
        eos_token_id=end,
    )


def round_up(value: float, to: int) -> int:
    """Round up to the next multiple.

    >>> round_up(341.3, 8)
    344
    """
    return int(-(-value // to)) * to


def blocks_of(model: Any) -> Any:
    """Return the model's blocks, in order."""
    lists = [m for m in model.modules() if isinstance(m, torch.nn.ModuleList)]
    if not lists:
        raise ValueError(f"{type(model).__name__} has no list of blocks; use parallel = 'ddp'")
    return max(lists, key=lambda blocks: sum(p.numel() for p in blocks.parameters()))


def check_checkpoint(settings: Settings, vocab_size: int, rows: int, longest: int | None) -> None:
    """Check that a checkpoint's vocabulary and context length suffice."""
    if vocab_size > rows:
        raise ValueError(
            f"model.checkpoint={settings.model.checkpoint!r} knows {rows} tokens, but the corpus "
            f"has {vocab_size}; prepare it with the checkpoint's own tokenizer"
        )
    if longest is not None and settings.train.length > longest:
        raise ValueError(
            f"train.length={settings.train.length} is longer than the {longest} tokens that the "
            "checkpoint was made for; shorten it"
        )
