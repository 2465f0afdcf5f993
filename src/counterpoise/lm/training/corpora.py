"""Prepare the corpus that a configuration file describes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from counterpoise.lm.corpus.bpe import TOKENIZER, train_tokenizer
from counterpoise.lm.corpus.documents import Source
from counterpoise.lm.corpus.folders import folder_sources, redpajama_sources
from counterpoise.lm.corpus.grouping import GroupBy
from counterpoise.lm.corpus.prepare import prepare
from counterpoise.lm.corpus.tokenizers import FastEncoder, TokenizerSpec, get_tokenizer
from counterpoise.lm.corpus.tokens import Corpus
from counterpoise.lm.sealed import read_sealed, write_sealed
from counterpoise.lm.training.settings import CorpusSettings, Settings
from counterpoise.storage.files import checksum, write_text

MADE_OF = "tokenizer.made-of.json"


def prepare_corpus(settings: Settings, *, overwrite: bool = False, progress: bool = True) -> Corpus:
    """Find the documents, train a tokenizer if the settings ask for one, and write tokens.

    Finished domains are left alone. A call that was stopped continues where it was.
    """
    corpus = settings.corpus
    sources = find_sources(corpus)
    return prepare(
        sources,
        corpus.folder,
        tokenizer=_tokenizer(corpus, sources, overwrite),
        text=corpus.text,
        by=groups_of(corpus),
        splits=corpus.splits,
        pieces=corpus.pieces,
        begin=corpus.begin,
        max_bytes=corpus.max_bytes,
        max_document_bytes=corpus.max_document_bytes,
        overwrite=overwrite,
        progress=progress,
    )


def groups_of(corpus: CorpusSettings) -> GroupBy | None:
    """Return how documents are grouped into domains; None if each source is one."""
    if corpus.by is None:
        return None
    return GroupBy(corpus.by, missing=corpus.by_missing, least=corpus.by_least)


def find_sources(corpus: CorpusSettings) -> dict[str, Source]:
    """Return the domains and their documents, as ``corpus.recipe`` names them.

    With ``corpus.by``, these are sources that are yet to be split, and all are taken.
    """
    if corpus.source is None:
        raise ValueError("corpus.source is not set; name the folder that holds the documents")
    domains = corpus.domains if corpus.by is None else None
    if corpus.recipe == "redpajama":
        return dict(redpajama_sources(corpus.source, domains))
    return dict(folder_sources(corpus.source, domains))


def _tokenizer(
    corpus: CorpusSettings, sources: dict[str, Source], overwrite: bool
) -> TokenizerSpec:
    """Return the corpus's tokenizer, which is kept beside the tokens to be saved with models."""
    path = Path(corpus.folder, TOKENIZER)
    if corpus.tokenizer != "train":
        found = get_tokenizer(corpus.tokenizer)
        if isinstance(found.encoder, FastEncoder) and (overwrite or not path.is_file()):
            path.parent.mkdir(parents=True, exist_ok=True)
            write_text(path, found.encoder.text)
        return found
    if corpus.vocab_size is None:
        raise ValueError("corpus.tokenizer = 'train' needs corpus.vocab_size, such as 4096")
    made_of = path.with_name(MADE_OF)
    asked = {"vocab_size": corpus.vocab_size, "text": corpus.text, "domains": list(sources)}
    if path.is_file() and not overwrite:
        then = _made_of(made_of, path) if made_of.is_file() else asked
        differing = [name for name in asked if then.get(name) != asked[name]]
        if differing:
            name = differing[0]
            raise ValueError(
                f"the tokenizer in {str(path)!r} was trained with another {name} "
                f"({then.get(name)!r}, now {asked[name]!r}); prepare with overwrite, or choose "
                "another corpus.folder"
            )
        return path
    train_tokenizer(
        sources,
        path,
        vocab_size=corpus.vocab_size,
        text=corpus.text,
        max_document_bytes=corpus.max_document_bytes,
    )
    write_sealed(made_of, asked | {"tokenizer": checksum(path)})
    return path


def _made_of(path: Path, tokenizer: Path) -> dict[str, Any]:
    """Read what a tokenizer was trained on; release 0.1 wrote no checksums."""
    found = read_sealed(
        path,
        "delete it if the settings of the corpus are those that the tokenizer was trained with, or "
        "prepare with overwrite=True",
        new_entry="tokenizer",
    )
    if found.get("tokenizer", checksum(tokenizer)) != checksum(tokenizer):
        raise ValueError(
            f"{str(tokenizer)!r} is damaged: it is not the tokenizer that was trained; copy it "
            "again from where the corpus was prepared, or prepare with overwrite=True"
        )
    return found
