"""The dimensions of a model that decide its memory and work, without making it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from counterpoise.lm.corpus.tokens import Corpus
from counterpoise.lm.training.settings import Settings


@dataclass(frozen=True)
class Shape:
    """A decoder of LLaMA-like blocks.

    Attributes
    ----------
    vocab, hidden, intermediate, layers, heads, kv_heads, head_size : int
    tied : bool
        Whether the head shares the embeddings.
    longest : int or None
        Longest sequence, in tokens.
    parameters, block, matrices : int
        Parameters of the model, of one block, and of one block's matrices.
    """

    vocab: int
    hidden: int
    intermediate: int
    layers: int
    heads: int
    kv_heads: int
    head_size: int
    tied: bool
    longest: int | None
    parameters: int
    block: int
    matrices: int

    @property
    def embeddings(self) -> int:
        """Parameters of the embeddings, and of the head if it is separate."""
        return (1 if self.tied else 2) * self.vocab * self.hidden

    @property
    def multiplied(self) -> int:
        """Parameters that a token is multiplied by: matrices and head, not the embeddings."""
        return self.layers * self.matrices + self.vocab * self.hidden

    @property
    def attention_width(self) -> int:
        return self.heads * self.head_size

    def forward_flops(self, length: int) -> float:
        """Operations of one token's forward pass in a sequence of ``length`` tokens."""
        return 2.0 * self.multiplied + 4.0 * self.layers * self.attention_width * length


def shape_of(settings: Settings, corpus: Corpus | None = None) -> Shape:
    """Find the shape of a run's model.

    It is that of the checkpoint if it can be read, else that of ``[model]``.
    """
    import torch
    from transformers import AutoModelForCausalLM

    from counterpoise.lm.training.model import blocks_of, llama_config

    config = None
    if settings.model.checkpoint is not None:
        config = _config_of(settings.model.checkpoint, settings.model.described)
    if config is None:
        config = llama_config(settings, _vocabulary(settings, corpus))
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config, trust_remote_code=False)
    blocks = blocks_of(model)
    heads = config.num_attention_heads
    return Shape(
        vocab=config.vocab_size,
        hidden=config.hidden_size,
        intermediate=config.intermediate_size,
        layers=len(blocks),
        heads=heads,
        kv_heads=getattr(config, "num_key_value_heads", None) or heads,
        head_size=getattr(config, "head_dim", None) or config.hidden_size // heads,
        tied=bool(config.tie_word_embeddings),
        longest=getattr(config, "max_position_embeddings", None),
        parameters=sum(p.numel() for p in model.parameters()),
        block=sum(p.numel() for p in blocks[0].parameters()),
        matrices=sum(p.numel() for p in blocks[0].parameters() if p.ndim >= 2),
    )


def local_checkpoint(checkpoint: str) -> Path | None:
    """Find the file that describes a local checkpoint, config.json or .gguf; None if absent."""
    path = Path(checkpoint)
    if path.is_file():
        return path if path.suffix == ".gguf" else None
    if (path / "config.json").is_file():
        return path / "config.json"
    files = sorted(path.glob("*.gguf"))
    return files[0] if len(files) == 1 else None


def _config_of(checkpoint: str, described: bool) -> Any:
    """Load a checkpoint's configuration.

    Returns None if it is out of reach and ``[model]`` describes a shape instead.
    """
    from counterpoise.lm.model_files import is_hub_name, load_config

    file = local_checkpoint(checkpoint)
    if file is not None:
        return load_config(file if file.suffix == ".gguf" else file.parent)
    if described:
        return None
    problem: Exception | None = None
    if is_hub_name(checkpoint):
        try:
            return load_config(checkpoint)
        except OSError as error:
            problem = error
    raise FileNotFoundError(
        f"model.checkpoint={checkpoint!r} is neither on this disk nor reachable on the hub; to "
        "estimate the run anyway, give its shape in [model] (hidden_size, layers, heads, "
        "vocab_size, ...)"
    ) from problem


def _vocabulary(settings: Settings, corpus: Corpus | None) -> int:
    """Return the size of the vocabulary, now or after the corpus is prepared."""
    chosen = settings.corpus
    if settings.model.vocab_size is not None:
        return settings.model.vocab_size
    if corpus is not None:
        return corpus.vocab_size
    if chosen.tokenizer == "bytes":
        from counterpoise.lm.corpus.tokenizers import get_tokenizer

        return get_tokenizer("bytes").vocab_size
    if chosen.tokenizer == "train" and chosen.vocab_size is not None:
        return chosen.vocab_size
    raise ValueError(
        f"the vocabulary of corpus.tokenizer={chosen.tokenizer!r} is unknown until the corpus is "
        "prepared; set model.vocab_size"
    )
