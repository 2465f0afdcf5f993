"""A tokenizer of one's own: byte-level BPE, learnt from equal shares of every domain's text."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from counterpoise.arguments import check_whole
from counterpoise.lm.disk import write_text
from counterpoise.lm.documents import read_documents
from counterpoise.lm.tokens import PathLike

logger = logging.getLogger("counterpoise")

END = "<|endoftext|>"
TOKENIZER = "tokenizer.json"  # in the folder of a corpus that one was learnt for
SHARE = 1 << 20  # characters of each domain, by default


def train_tokenizer(
    sources: Mapping[str, Any],
    out: PathLike,
    *,
    vocab_size: int,
    share: int = SHARE,
    text: str = "text",
) -> Path:
    """Learn a tokenizer and write it to a tokenizer.json.

    Parameters
    ----------
    sources : mapping from a domain's name to its source
        As for :func:`counterpoise.lm.prepare`.
    out : path
        The file; the same sources and options give the same bytes.
    vocab_size : int
        All 256 bytes and the end token are in it, so every text can be written.
    share : int
        Characters of each domain that are learnt from, so that a large one does not starve the
        others.
    text : str
        The field or column that holds the text.
    """
    try:
        from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    except ImportError as error:
        raise ImportError("train_tokenizer needs: pip install tokenizers") from error
    if check_whole("vocab_size", vocab_size) < 257:
        raise ValueError(
            f"vocab_size must be at least 257, for the bytes and the end token; got {vocab_size}"
        )
    check_whole("share", share, 1)
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=[END],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_shares(sources, share, text), trainer)
    path = Path(out)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, tokenizer.to_str(pretty=False))
    logger.info("tokenizer of %d tokens: %s", tokenizer.get_vocab_size(), path)
    return path


def _shares(sources: Mapping[str, Any], share: int, text: str) -> Iterator[str]:
    for source in sources.values():
        left = share
        for document in read_documents(source, text):
            yield document[:left]
            left -= len(document)
            if left <= 0:
                break
