"""Turn texts into tokens on disk, on all cores; a stopped run continues where it was."""

from __future__ import annotations

import logging
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from counterpoise.common.arguments import check_whole
from counterpoise.common.progress import CorpusBar
from counterpoise.common.stopping import Stopped, asked_to_stop
from counterpoise.lm.corpus.arguments import (
    check_columns,
    check_domains,
    check_outside,
    check_split_shares,
    check_workers,
    readers_of,
)
from counterpoise.lm.corpus.documents import Documents, Source, cut, identify
from counterpoise.lm.corpus.encoding import DocumentEncoder, EncoderPool, cores
from counterpoise.lm.corpus.grouping import TEXT, GroupBy, grouped_sources
from counterpoise.lm.corpus.metadata import (
    CORPUS,
    CORPUS_FORMAT,
    VERSION,
    read_corpus_file,
    read_index,
    write_corpus_file,
)
from counterpoise.lm.corpus.readers import Reader
from counterpoise.lm.corpus.tokenizers import Tokenizer, TokenizerSpec, get_tokenizer
from counterpoise.lm.corpus.tokens import Corpus, PathLike
from counterpoise.lm.corpus.writer import (
    DomainWriter,
    Position,
    differences,
    identity_of,
)
from counterpoise.storage.files import locked, sweep

logger = logging.getLogger("counterpoise")
E = TypeVar("E")

# Characters in a batch, and the overhead that every document counts for in addition.
BATCH_CHARACTERS = 1 << 21
DOCUMENT_COST = 64
# Time between commits to disk.
COMMIT_SECONDS = 2.0
STOPPED = "stopped; finished work is kept, and the same command resumes"
# Smaller sources are finished before other processes have started.
SMALL_BYTES = 1 << 22


def prepare(
    sources: Mapping[str, Source],
    out: PathLike,
    *,
    tokenizer: TokenizerSpec,
    text: str | Mapping[str, str] = "text",
    by: str | GroupBy | None = None,
    splits: Mapping[str, float] | None = None,
    pieces: int | None = None,
    begin: int | str | None = None,
    end: int | str | None = None,
    vocab_size: int | None = None,
    max_bytes: int | None = None,
    max_document_bytes: int | None = None,
    workers: int | None = None,
    overwrite: bool = False,
    progress: bool = True,
) -> Corpus:
    """Turn the documents of every domain into tokens on disk.

    A call that was stopped, even killed, continues when it is made again and gives the same bytes.
    Finished domains are left alone. Domains that an earlier call wrote to the folder stay in the
    corpus.

    Parameters
    ----------
    sources : mapping from a domain's name to its source
        See :func:`read_documents` for sources. The names become folders.
    out : path
        A folder, made if need be.
    tokenizer, end, vocab_size
        See :func:`get_tokenizer`. The token ``end`` follows every document.
    begin : int or str, optional
        A token before every document, by id or name, if the model was trained with one, such as
        LLaMA's ``"<s>"``.
    text : str or mapping from domains to str
        The field or column that holds the text.
    by : str or GroupBy, optional
        A field or column, such as ``"language"`` or ``"meta.source"``, that splits each source into
        domains ``<source>-<value>``. `GroupBy` says what becomes of missing and rare values. The
        documents of each domain are written to ``.documents`` in the folder first, which takes as
        much room as they do; it can be deleted in the end.
    splits : mapping from names to shares, optional
        For instance ``{"train": 0.98, "validation": 0.02}``; by default everything is ``train``.
        The hash of its text decides a document's split, so a text is never in two splits.
    pieces : int, optional
        Cut longer documents into pieces of about this many characters, between paragraphs if
        possible. Every piece becomes a document, so pieces of one document may be in two splits.
        This suits domains of a few long documents.
    max_bytes : int, optional
        Most bytes of text to take from each domain, spread over its files in proportion to their
        sizes: each file is read from its beginning. By default everything is taken.
    max_document_bytes : int, optional
        Longest document: a line of JSON, a text file, or a value of a table. A longer one is an
        error that names the file and the line, before it is read. 64 MB by default; text files
        that are not compressed may then have any size.
    workers : int, optional
        Processes that encode; 0 encodes in this process. By default one for each core, or 0 if
        there is little to do. Scripts that use workers need ``if __name__ == "__main__":``.
    overwrite : bool
        Prepare domains anew whose files are damaged, or whose tokenizer, options or source changed,
        instead of raising an error. A source of files counts as changed if their names, sizes or
        times did.
    progress : bool
        Show a bar on a terminal; elsewhere log.

    Returns
    -------
    Corpus

    Notes
    -----
    Blank documents are skipped and counted. Lone surrogates are replaced by U+FFFD.

    For each split the folder of a domain holds ``<split>.bin``, ids of 16 or 32 bits, and
    ``<split>.docs.bin``, the end of each document in 64 bits, all little endian. ``index.json``
    is written last and has the CRC-32 of every file. A finished domain is left alone only if its
    files still agree; see :meth:`Corpus.verify`.

    SIGTERM and Ctrl-C end the work after the current batch with `Stopped`.

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
    shares = check_split_shares(splits)
    workers = check_workers(workers)
    for argument, value in (("pieces", pieces), ("max_bytes", max_bytes)):
        if value is not None:
            check_whole(argument, value, 1)
    known = get_tokenizer(tokenizer, end=end, vocab_size=vocab_size)
    first = None if begin is None else known.id_of("begin", begin)
    if by is not None:
        sources, max_document_bytes = grouped_sources(
            sources, Path(out), by, text=text, max_document_bytes=max_document_bytes,
            overwrite=overwrite,
        )  # fmt: skip
        text, names = TEXT, check_domains(sources)
    check_outside(sources, Path(out))
    columns = check_columns(text, names)
    readers = {
        name: readers_of(name, sources[name], columns[name], max_document_bytes) for name in names
    }
    folder = Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    asked = {"pieces": pieces, "begin": first, "max_bytes": max_bytes}
    with locked(folder), asked_to_stop() as stopped:
        domains = [
            DomainWriter(
                folder / name, _identity(name, readers[name], columns[name], known, shares, asked)
            )
            for name in names
        ]
        for path in (folder, *(domain.folder for domain in domains)):
            sweep(path, "*")
        earlier = _earlier(folder, domains[0], names)
        # check everything before beginning anything
        todo = [domain for domain in domains if not domain.check(overwrite=overwrite)]
        if workers is None:
            workers = _workers_for([r for domain in todo for r in readers[domain.name]])
        bar = CorpusBar() if progress else None
        encoder = DocumentEncoder(known, _bounds(shares), first)
        with EncoderPool(encoder, workers if todo else 0) as pool:
            try:
                for domain in todo:
                    _write(domain, readers[domain.name], pool, bar, stopped)
            finally:
                if bar is not None:
                    bar.close()
        about = {
            key: domains[0].identity[key] for key in ("tokenizer", "vocab_size", "end", "dtype")
        }
        head = {"format": CORPUS_FORMAT, "version": VERSION, "domains": [*earlier, *names]}
        write_corpus_file(folder, head | about | {"tokenizer_name": known.name, "splits": shares})
    return Corpus.open(folder)


def _write(
    domain: DomainWriter,
    readers: list[Reader],
    pool: EncoderPool,
    bar: CorpusBar | None,
    stopped: Sequence[int],
) -> None:
    domain.begin()
    state = domain.state
    try:
        if state.rows:
            logger.info("domain %s: continues after %s rows", domain.name, f"{state.rows:,}")
        documents = Documents(
            readers,
            part=state.part,
            row=state.row,
            rows=state.rows,
            empty=state.empty,
            most=domain.identity.get("max_bytes"),
            taken=state.taken,
        )
        if bar is not None:
            bar(domain.name, sum(state.documents), sum(state.tokens), None)
        committed = time.monotonic()
        batches = _batches(documents, domain.identity.get("pieces"))
        for encoded, position in _until(stopped, pool.encode(batches)):
            domain.append(encoded, position)
            if stopped or time.monotonic() - committed >= COMMIT_SECONDS:
                domain.commit()
                committed = time.monotonic()
            if stopped:
                raise Stopped(STOPPED)
            if bar is not None:
                bar(domain.name, sum(state.documents), sum(state.tokens), position.share)
        if identify(readers) != domain.identity["source"]:
            raise ValueError(
                f"the source of domain {domain.name!r} changed while it was read; prepare it anew "
                "with overwrite=True"
            )
        if not sum(state.documents):
            domain.discard()
            raise ValueError(
                f"domain {domain.name!r} has no document with text (and {state.empty} without); "
                "give it another source, or leave it out"
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


def _until(stopped: Sequence[int], encoded: Iterator[E]) -> Iterator[E]:
    """Yield batches; workers that a signal ended are no error if this process is to stop, too."""
    try:
        yield from encoded
    except RuntimeError:
        if not stopped:
            raise
        raise Stopped(STOPPED) from None


def _batches(documents: Documents, pieces: int | None) -> Iterator[tuple[list[str], Position]]:
    """Yield batches of documents of about the same length; the last may be empty."""
    texts: list[str] = []
    size = 0

    def position() -> Position:
        d = documents
        return Position(d.part, d.row, d.rows, d.empty, d.taken, d.share)

    for document in documents:
        texts.extend([document] if pieces is None else cut(document, pieces))
        size += len(document) + DOCUMENT_COST
        if size >= BATCH_CHARACTERS:
            yield texts, position()
            texts, size = [], 0
    yield texts, position()


def _identity(
    name: str,
    readers: list[Reader],
    text: str,
    tokenizer: Tokenizer,
    shares: dict[str, float],
    asked: Mapping[str, int | None],
) -> dict[str, Any]:
    return {key: value for key, value in asked.items() if value is not None} | {
        "domain": name,
        "tokenizer": tokenizer.fingerprint,
        "vocab_size": tokenizer.vocab_size,
        "end": tokenizer.end,
        "dtype": tokenizer.dtype.str,
        "text": text,
        "source": identify(readers),
        "splits": shares,
    }


def _earlier(folder: Path, domain: DomainWriter, names: list[str]) -> list[str]:
    """Return the corpus's other domains, which must fit the ones that this call names."""
    if not (folder / CORPUS).is_file():
        return []
    others = [name for name in read_corpus_file(folder)["domains"] if name not in names]
    for name in others:
        then = identity_of(read_index(folder / name))
        same = {key: then.get(key) for key in ("text", "source")}  # each domain has its own
        found = differences(then, domain.identity | same)
        if found:
            raise ValueError(
                f"the corpus in {str(folder)!r} has the domain {name!r}, prepared with another "
                f"{'; another '.join(found)}; add it to the sources and pass overwrite=True, or "
                "choose another folder"
            )
    return others


def _workers_for(readers: list[Reader]) -> int:
    sizes = [reader.size for reader in readers]
    small = None not in sizes and sum(size or 0 for size in sizes) < SMALL_BYTES
    return 0 if small else cores()


def _bounds(shares: dict[str, float]) -> list[int]:
    """Return the cumulated shares as numbers of 64 bits."""
    sums = np.cumsum(list(shares.values()))
    return [*(round(float(s) * 2**64) for s in sums[:-1]), 2**64]
