"""Texts to tokens on disk: by all cores, stopped and continued at any moment."""

from __future__ import annotations

import logging
import os
import re
import time
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from counterpoise.common.arguments import check_whole
from counterpoise.common.progress import CorpusBar
from counterpoise.lm.corpus.documents import Documents, cut, find_parts, identify
from counterpoise.lm.corpus.domain import Domain, Place, differences, identity_of
from counterpoise.lm.corpus.encoding import Crew, Task, cores
from counterpoise.lm.corpus.files import Part
from counterpoise.lm.corpus.tokenizers import Tokenizer, get_tokenizer
from counterpoise.lm.corpus.tokens import (
    CORPUS,
    CORPUS_FORMAT,
    REMEDY,
    VERSION,
    Corpus,
    PathLike,
    read_index,
)
from counterpoise.storage.files import locked, read_json, write_json

logger = logging.getLogger("counterpoise")

# Characters that a worker gets at a time, and what a document counts for besides its own.
BATCH_CHARACTERS = 1 << 21
DOCUMENT_COST = 64
# How often work is made safe on disk.
COMMIT_SECONDS = 2.0
# Sources below this size are done before other processes have started.
SMALL_BYTES = 1 << 22


def prepare(
    sources: Mapping[str, Any],
    out: PathLike,
    *,
    tokenizer: Any,
    text: str | Mapping[str, str] = "text",
    splits: Mapping[str, float] | None = None,
    pieces: int | None = None,
    begin: int | str | None = None,
    end: int | str | None = None,
    vocab_size: int | None = None,
    workers: int | None = None,
    overwrite: bool = False,
    progress: bool = True,
) -> Corpus:
    """Turn the documents of every domain into tokens on disk.

    A call that was stopped, even killed, goes on from where it was when it is made again, and
    gives the same bytes; finished domains are left alone, and domains that an earlier call wrote
    to the folder stay in the corpus.

    Parameters
    ----------
    sources : mapping from a domain's name to its source
        For sources see :func:`read_documents`. The names become folders.
    out : path
        A folder, made if need be.
    tokenizer, end, vocab_size
        See :func:`get_tokenizer`. Every document is followed by the token ``end``.
    begin : int or str, optional
        A token before every document, by its id or its name, as the model may have been trained
        with: LLaMA's ``"<s>"``. None by default.
    text : str or mapping from domains to str
        The field or column that holds the text.
    splits : mapping from names to shares, optional
        As ``{"train": 0.98, "validation": 0.02}``; all documents are in ``train`` by default.
        The hash of a document's text decides where it goes: a text is never in two splits.
    pieces : int, optional
        Cut longer documents into pieces of about so many characters, between paragraphs where it
        can be, each a document by itself: for domains of a few long ones, which no split of whole
        ones would suit. Pieces of one document may then be in two splits.
    workers : int, optional
        Processes that encode; 0 for none but this one. By default one for each core, and none
        where there is little to do. With any, scripts need ``if __name__ == "__main__":``.
    overwrite : bool
        Prepare domains anew whose tokenizer, options or source differ from those in the folder,
        in place of an error. A source of files differs if their names, sizes or times do.
    progress : bool
        Show a bar on a terminal, or log elsewhere.

    Returns
    -------
    Corpus

    Notes
    -----
    Documents without a visible character are left out and counted. Halves of surrogate pairs are
    replaced by U+FFFD.

    For each split the folder of a domain holds ``<split>.bin``, ids in 16 or 32 bits, and
    ``<split>.docs.bin``, where each document ends, in 64 bits; little endian. ``index.json``
    is written last.

    Examples
    --------
    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> _ = (folder / "a.jsonl").write_text('{"text": "Hi"}')
    >>> corpus = prepare({"talk": folder / "a.jsonl"}, folder / "out", tokenizer="bytes")
    >>> corpus["talk"].document(0).tolist()
    [72, 105, 256]
    """
    names = check_domains(sources)
    shares = _check_splits(splits)
    workers = _check_workers(workers)
    if pieces is not None:
        check_whole("pieces", pieces, 1)
    known = get_tokenizer(tokenizer, end=end, vocab_size=vocab_size)
    first = None if begin is None else known.id_of("begin", begin)
    _check_outside(sources, Path(out))
    columns = check_columns(text, names)
    parts = {name: parts_of(name, sources[name], columns[name]) for name in names}
    folder = Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    with locked(folder):
        domains = [
            Domain(
                folder / name,
                _identity(name, parts[name], columns[name], known, shares, pieces, first),
            )
            for name in names
        ]
        earlier = _earlier(folder, domains[0], names)
        # everything is checked before anything is begun
        todo = [domain for domain in domains if not domain.check(overwrite=overwrite)]
        if workers is None:
            workers = _workers_for([part for domain in todo for part in parts[domain.name]])
        bar = CorpusBar() if progress else None
        with Crew(Task(known, _bounds(shares), first), workers if todo else 0) as crew:
            try:
                for domain in todo:
                    _write(domain, parts[domain.name], crew, bar)
            finally:
                if bar is not None:
                    bar.close()
        about = {
            key: domains[0].identity[key] for key in ("tokenizer", "vocab_size", "end", "dtype")
        }
        head = {"format": CORPUS_FORMAT, "version": VERSION, "domains": [*earlier, *names]}
        write_json(folder / CORPUS, head | about | {"tokenizer_name": known.name, "splits": shares})
    return Corpus.open(folder)


def _write(domain: Domain, parts: list[Part], crew: Crew, bar: CorpusBar | None) -> None:
    domain.begin()
    state = domain.state
    try:
        if state.rows:
            logger.info("domain %s: goes on after %s rows", domain.name, f"{state.rows:,}")
        documents = Documents(
            parts, part=state.part, row=state.row, rows=state.rows, empty=state.empty
        )
        if bar is not None:
            bar(domain.name, sum(state.documents), sum(state.tokens), None)
        committed = time.monotonic()
        for encoded, place in crew.encode(_batches(documents, domain.identity.get("pieces"))):
            domain.append(encoded, place)
            if time.monotonic() - committed >= COMMIT_SECONDS:
                domain.commit()
                committed = time.monotonic()
            if bar is not None:
                bar(domain.name, sum(state.documents), sum(state.tokens), place.share)
        if identify(parts) != domain.identity["source"]:
            raise ValueError(
                f"the source of domain {domain.name!r} changed while it was read; prepare it anew "
                "with overwrite=True"
            )
        if not sum(state.documents):
            domain.discard()
            raise ValueError(
                f"domain {domain.name!r} has no document ({state.empty} empty ones); give it "
                "another source, or leave it out"
            )
        domain.finish()
    finally:
        domain.close()
    if bar is not None:
        bar(domain.name, sum(state.documents), sum(state.tokens), 1.0, done=True)
    for split, count in zip(domain.splits, state.documents, strict=True):
        if not count:
            warnings.warn(
                f"domain {domain.name!r} has no document in the split {split!r}; give the split a "
                "larger share, or the domain more documents",
                UserWarning,
                stacklevel=3,
            )


def _batches(documents: Documents, pieces: int | None) -> Iterator[tuple[list[str], Place]]:
    """Documents in batches of about the same length; the last may have none."""
    texts: list[str] = []
    size = 0

    def place() -> Place:
        d = documents
        return Place(d.part, d.row, d.rows, d.empty, d.share)

    for document in documents:
        texts.extend([document] if pieces is None else cut(document, pieces))
        size += len(document) + DOCUMENT_COST
        if size >= BATCH_CHARACTERS:
            yield texts, place()
            texts, size = [], 0
    yield texts, place()


def _identity(
    name: str,
    parts: list[Part],
    text: str,
    tokenizer: Tokenizer,
    shares: dict[str, float],
    pieces: int | None,
    begin: int | None,
) -> dict[str, Any]:
    asked = {"pieces": pieces, "begin": begin}
    return {key: value for key, value in asked.items() if value is not None} | {
        "domain": name,
        "tokenizer": tokenizer.fingerprint,
        "vocab_size": tokenizer.vocab_size,
        "end": tokenizer.end,
        "dtype": tokenizer.dtype.str,
        "text": text,
        "source": identify(parts),
        "splits": shares,
    }


def _earlier(folder: Path, domain: Domain, names: list[str]) -> list[str]:
    """Domains of the corpus that this call does not name; they must fit those it does."""
    if not (folder / CORPUS).is_file():
        return []
    known = read_json(folder / CORPUS, CORPUS_FORMAT, VERSION, REMEDY)["domains"]
    others = [name for name in known if name not in names]
    for name in others:
        then = identity_of(read_index(folder / name))
        same = {key: then.get(key) for key in ("text", "source")}  # each domain has its own
        found = differences(then, domain.identity | same)
        if found:
            raise ValueError(
                f"the corpus in {str(folder)!r} has the domain {name!r}, made with another "
                f"{'; another '.join(found)}; name it among the sources too, with overwrite=True, "
                "or choose another folder"
            )
    return others


def parts_of(name: str, source: Any, text: str) -> list[Part]:
    """What a domain's source consists of; errors name the domain."""
    try:
        return find_parts(source, text)
    except (ValueError, TypeError, FileNotFoundError) as error:
        kinds = (FileNotFoundError, TypeError, ValueError)
        kind = next(kind for kind in kinds if isinstance(error, kind))
        raise kind(f"domain {name!r}: {error}") from error


def _workers_for(parts: list[Part]) -> int:
    sizes = [part.size for part in parts]
    small = None not in sizes and sum(size or 0 for size in sizes) < SMALL_BYTES
    return 0 if small else cores()


def _bounds(shares: dict[str, float]) -> list[int]:
    """The shares added up, as numbers of 64 bits."""
    sums = np.cumsum(list(shares.values()))
    return [*(round(float(s) * 2**64) for s in sums[:-1]), 2**64]


def check_domains(sources: Any) -> list[str]:
    """Names that can be those of folders."""
    if not isinstance(sources, Mapping) or not sources:
        raise TypeError(
            f"sources must be a mapping from domains to sources, of at least one; got {sources!r}"
        )
    for name in sources:
        if (
            not isinstance(name, str)
            or not name.strip()
            or name != name.strip()
            or name.startswith(".")
            or name == CORPUS
            or re.search(r'[/\\:*?"<>|\x00-\x1f]', name)
        ):
            raise ValueError(
                f"{name!r} cannot be the name of a domain, which becomes a folder's; use letters, "
                "digits, '-', '_' and '.', the last not at its beginning"
            )
    if len({name.casefold() for name in sources}) < len(sources):
        raise ValueError(
            f"the domains {list(sources)!r} differ in capitals only, which not all disks tell "
            "apart; use other names"
        )
    return list(sources)


def _check_splits(splits: Any) -> dict[str, float]:
    if splits is None:
        return {"train": 1.0}
    if not isinstance(splits, Mapping) or not splits:
        raise TypeError(
            f"splits must be a mapping as {{'train': 0.98, 'validation': 0.02}}; got {splits!r}"
        )
    for name, share in splits.items():
        if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z0-9_-]+", name):
            raise ValueError(
                f"splits: {name!r} cannot be a split's name; use letters, digits, '-' and '_'"
            )
        if isinstance(share, bool) or not isinstance(share, (int, float)) or not 0 < share <= 1:
            raise ValueError(f"splits: {name!r} must have a share between 0 and 1; got {share!r}")
    total = sum(splits.values())
    if abs(total - 1) > 1e-9:
        raise ValueError(f"splits: the shares must add up to 1; they add up to {total:g}")
    return {name: float(share) for name, share in splits.items()}


def _check_workers(workers: Any) -> int | None:
    if workers is None:
        return None
    if isinstance(workers, bool) or not isinstance(workers, (int, np.integer)) or workers < 0:
        raise ValueError(f"workers must be None or an integer >= 0; got {workers!r}")
    return int(workers)


def check_columns(text: Any, names: list[str]) -> dict[str, str]:
    """The field of every domain's texts."""
    if isinstance(text, str):
        return dict.fromkeys(names, text)
    if not isinstance(text, Mapping):
        raise TypeError(f"text must be a field's name, or a mapping from domains; got {text!r}")
    if set(text) != set(names):
        raise ValueError(f"text must name a field for each of {names!r}; got {dict(text)!r}")
    return {name: text[name] for name in names}


def _check_outside(sources: Mapping[str, Any], out: Path) -> None:
    """What is written must not become part of what is read."""
    for name, source in sources.items():
        for item in source if isinstance(source, (list, tuple)) else [source]:
            if not isinstance(item, (str, os.PathLike)) or not os.path.isdir(item):
                continue
            if out.resolve().is_relative_to(Path(item).resolve()):
                raise ValueError(
                    f"out={str(out)!r} is inside the source {os.fspath(item)!r} of domain {name!r}"
                    "; choose a folder outside of it"
                )
