"""Small corpora and models for the tests of language-model training."""

from __future__ import annotations

import numpy as np

from counterpoise.lm import Corpus
from counterpoise.lm.disk import write_json
from counterpoise.lm.tokens import CORPUS, CORPUS_FORMAT, INDEX, INDEX_FORMAT, VERSION

END = 0


def write_corpus(folder, documents, splits=("train",), vocab_size=64):
    """A corpus of given documents: by domain and split, or by domain alone."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, found in documents.items():
        found = found if isinstance(found, dict) else {"train": found}
        (folder / name).mkdir()
        index = {
            "format": INDEX_FORMAT, "version": VERSION, "domain": name, "dtype": "<u4",
            "vocab_size": vocab_size, "end": END, "tokenizer": "test", "splits": {},
        }  # fmt: skip
        for split in splits:
            ids = [np.append(np.asarray(d), END) for d in found[split]]
            ends = np.cumsum([len(d) for d in ids]).astype("<u8")
            np.concatenate(ids).astype("<u4").tofile(folder / name / f"{split}.bin")
            ends.tofile(folder / name / f"{split}.docs.bin")
            index["splits"][split] = {"tokens": int(ends[-1]), "documents": len(ids)}
        write_json(folder / name / INDEX, index)
    known = {
        "format": CORPUS_FORMAT, "version": VERSION, "domains": list(documents),
        "splits": list(splits), "vocab_size": vocab_size, "end": END, "tokenizer": "test",
    }  # fmt: skip
    write_json(folder / CORPUS, known)
    return Corpus.open(folder)


def numbered_corpus(folder, sizes, length):
    """Domains whose sample ``i`` starts with ``1000 * (k + 1) * 1000 + i``: each names itself."""
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
    return write_corpus(folder, documents, splits, vocab_size)


def small_llama(vocab_size=32, seed=0, dropout=0.0):
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=vocab_size, hidden_size=16, intermediate_size=32, num_hidden_layers=1,
        num_attention_heads=2, max_position_embeddings=64, bos_token_id=0, eos_token_id=0,
        pad_token_id=0, attention_dropout=dropout,
    )  # fmt: skip
    return LlamaForCausalLM(config)
