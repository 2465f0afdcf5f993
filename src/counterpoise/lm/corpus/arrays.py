"""Write a corpus of token ids that exist already."""

from __future__ import annotations

import os
import shutil
import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from counterpoise.common.arguments import check_whole
from counterpoise.lm.corpus.arguments import check_domains
from counterpoise.lm.corpus.metadata import (
    CORPUS,
    CORPUS_FORMAT,
    INDEX,
    INDEX_FORMAT,
    VERSION,
    dtype_of,
    is_split_name,
)
from counterpoise.lm.corpus.tokens import Corpus
from counterpoise.lm.sealed import write_sealed
from counterpoise.storage.files import sync_folder

Array = np.ndarray


def write_tokens(
    documents: Mapping[str, Any],
    out: str | os.PathLike[str],
    *,
    vocab_size: int,
    end: int,
    tokenizer: str = "given",
) -> Corpus:
    """Write token ids as the corpus that `prepare` would have made from their texts.

    Parameters
    ----------
    documents : mapping
        For each domain an iterable of documents, or a mapping from splits to such iterables. A
        document is an array of ids without the end token; empty ones are skipped. Without splits
        all documents are ``train``.
    out : path
        A folder that does not exist yet. It appears when everything is written.
    vocab_size : int
        Upper bound of the ids.
    end : int
        The id to add after every document.
    tokenizer : str, optional
        A name for the tokenizer that made the ids.
    """
    folder = Path(out)
    if folder.exists():
        raise FileExistsError(f"{str(folder)!r} exists; choose another folder, or delete it")
    check_domains(documents)
    vocab_size, end = check_whole("vocab_size", vocab_size, 1), check_whole("end", end)
    dtype_of(vocab_size)
    if end >= vocab_size:
        raise ValueError(f"end={end} must be below vocab_size={vocab_size}")
    draft = folder.with_name(f".{folder.name}.new")
    shutil.rmtree(draft, ignore_errors=True)
    try:
        _write_all(draft, documents, vocab_size, end, tokenizer)
        draft.rename(folder)
        sync_folder(folder.parent)
    except BaseException:
        shutil.rmtree(draft, ignore_errors=True)
        raise
    return Corpus.open(folder)


def _write_all(
    folder: Path, documents: Mapping[str, Any], vocab_size: int, end: int, tokenizer: str
) -> None:
    head = {"version": VERSION, "vocab_size": vocab_size, "end": end, "tokenizer": tokenizer}
    splits: list[str] = []
    for name, given in documents.items():
        by_split = given if isinstance(given, Mapping) else {"train": given}
        if splits and list(by_split) != splits:
            raise ValueError(
                f"domain {name!r} has the splits {list(by_split)!r}, but the domains before it "
                f"have {splits!r}; give all domains the same splits"
            )
        splits = list(by_split)
        unfit = [split for split in splits if not is_split_name(split)]
        if unfit or not splits:
            raise ValueError(
                f"domain {name!r} has the splits {splits!r}; use names of letters, digits, '-' and "
                "'_'"
            )
        (folder / name).mkdir(parents=True)
        index = {**head, "format": INDEX_FORMAT, "domain": name, "dtype": dtype_of(vocab_size).str}
        found = {
            split: _write(folder / name, split, some, vocab_size, end)
            for split, some in by_split.items()
        }
        if not any(counts["documents"] for counts in found.values()):
            raise ValueError(f"domain {name!r} has no documents; leave it out")
        write_sealed(folder / name / INDEX, index | {"splits": found})
    known = {**head, "format": CORPUS_FORMAT, "domains": list(documents), "splits": splits}
    write_sealed(folder / CORPUS, known)


def _write(
    folder: Path, split: str, documents: Iterable[Any], vocab_size: int, end: int
) -> dict[str, Any]:
    """Write the ids and document ends of a split; return its counts and checksums."""
    total, crc = 0, 0
    ends: list[int] = []
    with open(folder / f"{split}.bin", "wb") as file:
        for document in documents:
            ids = np.asarray(document)
            if ids.size == 0:
                continue
            whole = ids.ndim == 1 and ids.dtype.kind in "iu"
            if not whole or ids.min() < 0 or ids.max() >= vocab_size:
                raise ValueError(
                    f"document {len(ends)} of domain {folder.name!r} must be a list of whole "
                    f"numbers from 0 to vocab_size - 1 = {vocab_size - 1}"
                )
            data = np.append(ids, end).astype(dtype_of(vocab_size)).tobytes()
            file.write(data)
            crc = zlib.crc32(data, crc)
            total += len(ids) + 1
            ends.append(total)
        _flush(file)
    data = np.array(ends, dtype="<u8").tobytes()
    with open(folder / f"{split}.docs.bin", "wb") as file:
        file.write(data)
        _flush(file)
    checksums = [f"{crc:08x}", f"{zlib.crc32(data):08x}"]
    return {"tokens": total, "documents": len(ends), "checksums": checksums}


def _flush(file: BinaryIO) -> None:
    file.flush()
    os.fsync(file.fileno())
