"""Train a byte-pair tokenizer on all domains alike."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import cycle
from pathlib import Path
from typing import Any

from counterpoise.common.arguments import check_whole
from counterpoise.common.packages import not_installed
from counterpoise.lm.corpus.arguments import check_columns, check_domains, readers_of
from counterpoise.lm.corpus.documents import Documents, Source, beginning
from counterpoise.lm.corpus.readers import Reader
from counterpoise.lm.corpus.tokenizers import END_NAMES
from counterpoise.lm.corpus.tokens import PathLike
from counterpoise.storage.files import write_text

END = END_NAMES[0]
TOKENIZER = "tokenizer.json"  # in the folder of a corpus
# All bytes and the end of a document.
SMALLEST = 257


def train_tokenizer(
    sources: Mapping[str, Source],
    out: PathLike,
    *,
    vocab_size: int,
    max_bytes_per_domain: int = 1_000_000,
    text: str | Mapping[str, str] = "text",
    max_document_bytes: int | None = None,
) -> Path:
    """Train a byte-level BPE tokenizer on equal amounts of text from every domain.

    Equal amounts make sure that the script of a small domain gets tokens of its own. The same
    texts give the same file.

    Parameters
    ----------
    sources : mapping from a domain's name to its source
        As for :func:`prepare`.
    out : path
        The file to write, such as ``tokenizer.json``; :func:`prepare` takes it as ``tokenizer``.
    vocab_size : int
        Number of ids, at least 257: the bytes and ``<|endoftext|>``, which ends a document.
    max_bytes_per_domain : int
        Most bytes to read from the beginning of a domain. Smaller domains are repeated until all
        have given the same amount.
    text : str or mapping from domains to str
        The field or column that holds the text.
    max_document_bytes : int, optional
        As for :func:`prepare`.

    Returns
    -------
    Path
        ``out``.
    """
    names = check_domains(sources)
    columns = check_columns(text, names)
    most = check_whole("max_bytes_per_domain", max_bytes_per_domain, 1)
    size = check_whole("vocab_size", vocab_size)
    if size < SMALLEST:
        raise ValueError(
            f"vocab_size must be at least {SMALLEST}, for 256 bytes and {END}; got {vocab_size}"
        )
    path = Path(out)
    if path.is_dir():
        raise ValueError(f"out={str(out)!r} is a folder; give a file such as {path / TOKENIZER}")
    tokenizers = _package()
    shares = {
        name: _first(readers_of(name, sources[name], columns[name], max_document_bytes), name, most)
        for name in names
    }
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=size,
        special_tokens=[END],
        initial_alphabet=sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_alike(shares), trainer)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, tokenizer.to_str(pretty=True) + "\n")
    return path


def _first(readers: list[Reader], name: str, most: int) -> list[str]:
    """Return a domain's first documents, the last of them cut."""
    found: list[str] = []
    for document in Documents(readers):
        document = document.encode("utf-8", "replace").decode()  # lone surrogates
        found.append(beginning(document, most))
        most -= _size(document)
        if most <= 0:
            return found
    if not found:
        raise ValueError(
            f"domain {name!r} has no document with text; give it another source, or leave it out"
        )
    return found


def _alike(shares: Mapping[str, list[str]]) -> Iterator[str]:
    """Yield as much text of every domain as the largest has."""
    share = max(sum(map(_size, texts)) for texts in shares.values())
    for texts in shares.values():
        left = share
        for document in cycle(texts):
            yield beginning(document, left)
            left -= _size(document)
            if left <= 0:
                break


def _size(document: str) -> int:
    return len(document.encode())


def _package() -> Any:
    try:
        import tokenizers
    except ImportError as error:
        raise not_installed("training a tokenizer needs", "tokenizers") from error
    return tokenizers
