"""Small corpora and models for the tests of language-model training."""

from __future__ import annotations

import numpy as np

from counterpoise.lm import write_tokens

END = 0


def write_corpus(folder, documents, vocab_size=64):
    return write_tokens(documents, folder, vocab_size=vocab_size, end=END)


def numbered_corpus(folder, sizes, length):
    """Domains whose sample ``i`` starts with ``(k + 1) * 1,000,000 + i``: each names itself."""
    documents = {}
    for k, (name, size) in enumerate(sizes.items()):
        ids = np.ones(size * length, dtype=np.int64)
        ids[::length] = (k + 1) * 1_000_000 + np.arange(size)
        documents[name] = [ids[:-1]]  # the end token fills the last place
    return write_corpus(folder, documents, vocab_size=10_000_000)


def markov_corpus(folder, sizes, vocab_size=32, seed=0, splits=("train", "validation")):
    """Domains of random walks, each with its own transitions: some are learnt sooner."""
    rng = np.random.default_rng(seed)
    documents = {}
    for k, (name, size) in enumerate(sizes.items()):
        table = rng.dirichlet(np.full(vocab_size - 1, 0.05 * (k + 1)), size=vocab_size)
        found = {}
        for split in splits:
            n = size if split == "train" else max(size // 10, 200)
            walk, at = np.empty(n, dtype=np.int64), 1
            draws = rng.random(n)
            ends = np.cumsum(table, axis=1)
            for i in range(n):
                at = 1 + min(int(np.searchsorted(ends[at], draws[i])), vocab_size - 2)
                walk[i] = at
            found[split] = np.array_split(walk, max(n // 100, 1))
        documents[name] = found
    return write_corpus(folder, documents, vocab_size)


def small_llama(vocab_size=32, seed=0, dropout=0.0, length=64, width=16):
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=vocab_size, hidden_size=width, intermediate_size=32, num_hidden_layers=1,
        num_attention_heads=2, max_position_embeddings=length, bos_token_id=0, eos_token_id=0,
        pad_token_id=0, attention_dropout=dropout,
    )  # fmt: skip
    return LlamaForCausalLM(config)


def lightning_llama(vocab_size=32):
    import lightning.pytorch as pl
    import torch

    class Module(pl.LightningModule):
        def __init__(self):
            super().__init__()
            self.model = small_llama(vocab_size)

        def training_step(self, batch, index):
            return self.model(input_ids=batch["input_ids"], labels=batch["labels"]).loss

        def validation_step(self, batch, index, dataloader_idx=0):
            loss = self.model(**batch).loss
            self.log("val_loss", loss, batch_size=len(batch["input_ids"]), sync_dist=True)

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.1)

    return Module()
