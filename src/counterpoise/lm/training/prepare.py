"""The corpus that a configuration file describes."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

from counterpoise.lm.corpus import prepare
from counterpoise.lm.sources.bpe import TOKENIZER, train_tokenizer
from counterpoise.lm.sources.folders import folder_sources, redpajama_sources
from counterpoise.lm.sources.registry import fetch_registry
from counterpoise.lm.tokens import Corpus
from counterpoise.lm.training.settings import CorpusSettings, Settings

logger = logging.getLogger("counterpoise")


def prepare_corpus(settings: Settings, *, overwrite: bool = False, progress: bool = True) -> Corpus:
    """Find the documents, learn a tokenizer if one is to be learnt, and write tokens.

    What is there already is left alone; a call that was stopped goes on.
    """
    corpus = settings.corpus
    sources = find_sources(corpus, progress=progress)
    return prepare(
        sources,
        corpus.folder,
        tokenizer=_tokenizer(corpus, sources, overwrite),
        text=corpus.text,
        splits=corpus.splits,
        pieces=corpus.pieces,
        overwrite=overwrite,
        progress=progress,
    )


def find_sources(corpus: CorpusSettings, *, progress: bool = True) -> dict[str, Any]:
    """Domains and their documents, by the recipe."""
    if corpus.source is None:
        raise ValueError(
            "corpus.source is not set; it is the folder that holds the documents (or, for the "
            "recipe 'registry', where packages are fetched to)"
        )
    if corpus.recipe == "registry":
        options = {} if corpus.max_bytes is None else {"max_bytes": corpus.max_bytes}
        return dict(fetch_registry(corpus.source, corpus.domains, progress=progress, **options))
    if corpus.recipe == "redpajama":
        return dict(redpajama_sources(corpus.source, corpus.domains))
    return dict(folder_sources(corpus.source, corpus.domains))


def _tokenizer(corpus: CorpusSettings, sources: dict[str, Any], overwrite: bool) -> Any:
    if corpus.tokenizer != "train":
        return corpus.tokenizer
    if corpus.vocab_size is None:
        raise ValueError("corpus.tokenizer = 'train' needs corpus.vocab_size, such as 4096")
    path = Path(corpus.folder, TOKENIZER)
    if overwrite or not path.is_file():
        train_tokenizer(sources, path, vocab_size=corpus.vocab_size, text=corpus.text)
    return path
