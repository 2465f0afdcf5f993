"""The corpus that a configuration file describes."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

from counterpoise.lm.corpus.bpe import TOKENIZER, train_tokenizer
from counterpoise.lm.corpus.folders import folder_sources, redpajama_sources
from counterpoise.lm.corpus.prepare import prepare
from counterpoise.lm.corpus.tokenizers import Fast, get_tokenizer
from counterpoise.lm.corpus.tokens import Corpus
from counterpoise.lm.sources.registry import fetch_registry
from counterpoise.lm.training.settings import CorpusSettings, Settings
from counterpoise.storage.files import write_json, write_text

logger = logging.getLogger("counterpoise")

MADE_OF = "tokenizer.made-of.json"


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
        begin=corpus.begin,
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
    """The tokenizer of the corpus, which is kept beside the tokens: models are saved with it."""
    path = Path(corpus.folder, TOKENIZER)
    if corpus.tokenizer != "train":
        found = get_tokenizer(corpus.tokenizer)
        if isinstance(found.encoder, Fast) and (overwrite or not path.is_file()):
            path.parent.mkdir(parents=True, exist_ok=True)
            write_text(path, found.encoder.text)
        return found
    if corpus.vocab_size is None:
        raise ValueError("corpus.tokenizer = 'train' needs corpus.vocab_size, such as 4096")
    made_of = path.with_name(MADE_OF)
    asked = {"vocab_size": corpus.vocab_size, "text": corpus.text, "domains": list(sources)}
    if path.is_file() and not overwrite:
        then = json.loads(made_of.read_text(encoding="utf-8")) if made_of.is_file() else asked
        differing = [name for name in asked if then.get(name) != asked[name]]
        if differing:
            raise ValueError(
                f"the tokenizer in {str(path)!r} was learnt with another {differing[0]} "
                f"({then[differing[0]]!r}, now {asked[differing[0]]!r}); prepare with --overwrite, "
                "or choose another corpus.folder"
            )
        return path
    train_tokenizer(sources, path, vocab_size=corpus.vocab_size, text=corpus.text)
    write_json(made_of, asked)
    return path
