"""Clusters of documents: make groups where no field says what a document is about.

Documents become vectors, by their words or by a function of your own, and k-means groups them. The
label of each document's cluster is written beside its text, as a field that `prepare` can group by.
"""

from __future__ import annotations

import hashlib
import heapq
import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from counterpoise.common.arguments import check_whole
from counterpoise.lm.corpus.documents import Source, beginning, find_readers
from counterpoise.lm.corpus.encoding import readable
from counterpoise.lm.corpus.readers import FileReader, JsonLinesReader, Reader, text_of
from counterpoise.lm.corpus.tokens import PathLike
from counterpoise.storage.files import replacing

Array = np.ndarray

CLUSTER = "cluster"  # the field of a document's label
WORDS = r"(?u)\w+|[^\w\s]"  # punctuation, too, which tells code from prose
FEATURES = 1 << 18
# Bytes at the beginning of a document that decide its cluster.
READ_BYTES = 1 << 13
BATCH = 1024


def embed(texts: Sequence[str], *, size: int = 64, seed: int = 0) -> Array:
    """Embed texts by their words: hashed TF-IDF and a truncated SVD.

    It knows which words come together in these texts, and nothing of their meaning. Nothing is
    downloaded.

    Parameters
    ----------
    texts : sequence of str
    size : int, default 64
        Length of the vectors; less if there are few texts.
    seed : int, default 0

    Returns
    -------
    array of shape (n, size)
        Vectors of length one; zero for a text without words.
    """
    return WordEmbedder(texts, size, seed)(texts)


class WordEmbedder:
    """Embeds texts by the words that some texts have; see `embed`."""

    def __init__(self, texts: Sequence[str], size: int = 64, seed: int = 0) -> None:
        from sklearn.decomposition import TruncatedSVD
        from sklearn.feature_extraction.text import HashingVectorizer, TfidfTransformer
        from sklearn.pipeline import make_pipeline
        from sklearn.preprocessing import Normalizer

        if not texts:
            raise ValueError("texts is empty; give at least one")
        size = min(check_whole("size", size, 1), len(texts))
        self._pipeline = make_pipeline(
            HashingVectorizer(n_features=FEATURES, token_pattern=WORDS, alternate_sign=False),
            TfidfTransformer(sublinear_tf=True),
            TruncatedSVD(size, random_state=seed),
            Normalizer(),
        )
        with threadpool_limits(1), np.errstate(divide="ignore", invalid="ignore"):
            self._pipeline.fit(texts)

    def __call__(self, texts: Sequence[str]) -> Array:
        with threadpool_limits(1):
            return np.asarray(self._pipeline.transform(texts))


def cluster(embeddings: Array, k: int, *, seed: int = 0) -> Array:
    """Label vectors by k-means over mini-batches.

    Parameters
    ----------
    embeddings : array of shape (n, d)
        May be memory-mapped, and is read in batches.
    k : int
        Number of clusters.
    seed : int, default 0
        The same seed gives the same labels, whatever the number of threads.

    Returns
    -------
    array of int, of shape (n,)
        Labels from 0 to ``k - 1``; 0 is the largest cluster.

    Examples
    --------
    >>> cluster(np.array([[0.0], [0.1], [5.0], [0.2]]), k=2).tolist()
    [0, 0, 1, 0]
    """
    return Clusters(embeddings, k, seed)(embeddings)


class Clusters:
    """Centres of clusters, found in some vectors; see `cluster`."""

    def __init__(self, embeddings: Array, k: int, seed: int = 0) -> None:
        from sklearn.cluster import MiniBatchKMeans

        found = _check_embeddings(embeddings)
        k = check_whole("k", k, 1)
        if k > len(found):
            raise ValueError(f"k={k} clusters need as many vectors; there are {len(found)}")
        self._means = MiniBatchKMeans(k, random_state=seed, batch_size=4 * BATCH, n_init=3)
        with threadpool_limits(1):
            self._means.fit(found)
        self._order = np.arange(k)
        counts = np.bincount(self(found), minlength=k)
        self._order = np.argsort(np.argsort(-counts, kind="stable"), kind="stable")

    def __call__(self, embeddings: Array) -> Array:
        """Return the labels of vectors."""
        found = _check_embeddings(embeddings)
        with threadpool_limits(1):
            labels = [
                self._means.predict(found[first : first + 4 * BATCH])
                for first in range(0, len(found), 4 * BATCH)
            ]
        return self._order[np.concatenate(labels)] if labels else np.zeros(0, dtype=np.int64)


def cluster_documents(
    source: Source,
    out: PathLike,
    k: int,
    *,
    text: str = "text",
    field: str = CLUSTER,
    embed: Callable[[list[str]], Array] | None = None,
    size: int = 64,
    sample: int = 20_000,
    seed: int = 0,
    max_document_bytes: int | None = None,
) -> dict[int, int]:
    """Write the documents of a source to a file, each with the label of its cluster.

    The first pass takes a sample of documents, in which clusters are found; the second labels all
    documents. The first 8 KB of a document decide.

    Parameters
    ----------
    source : path, dataset, str or list of these
        See :func:`read_documents`.
    out : path
        A file of JSON lines, ``*.jsonl``; it appears when it is complete. Documents of JSON lines
        keep their fields, others have their text alone. Blank documents are left out.
    k : int
        Number of clusters.
    text : str
        The field or column that holds the text.
    field : str, default "cluster"
        The field of the label, an integer. ``prepare(..., by="cluster")`` makes a domain of each.
    embed : callable, optional
        Takes a list of texts, returns an array with a row for each. By default texts are embedded
        by their words; see :func:`embed`.
    size : int, default 64
        Length of these embeddings.
    sample : int, default 20,000
        Documents in which clusters are found, chosen by the hash of their text.
    seed : int, default 0
    max_document_bytes : int, optional
        See :func:`read_documents`.

    Returns
    -------
    dict from labels to numbers of documents
    """
    path = Path(out)
    if path.suffix != ".jsonl":
        raise ValueError(f"out={str(out)!r} must end in .jsonl, the format that is written")
    k, sample = check_whole("k", k, 1), check_whole("sample", sample, 1)
    seed = check_whole("seed", seed)
    if k > sample:
        raise ValueError(f"k={k} clusters cannot be found in sample={sample} documents; raise it")
    readers = find_readers(source, text, max_document_bytes)
    sources = [reader.path for reader in readers if isinstance(reader, FileReader)]
    if path.exists() and any(of.exists() and path.samefile(of) for of in sources):
        raise ValueError(f"out={str(out)!r} is one of the files to read; choose another")
    texts = _sampled((shown for _, shown in _documents(readers, field)), sample, seed)
    if k > len(texts):
        raise ValueError(
            f"k={k} is more than the {len(texts)} different documents of the sample; use fewer "
            "clusters, or a larger sample"
        )
    vectors_of: Callable[[list[str]], Array] = embed or WordEmbedder(texts, size, seed)
    clusters = Clusters(_vectors(vectors_of, texts), k, seed)
    counts: Counter[int] = Counter(dict.fromkeys(range(k), 0))
    documents = _documents(readers, field)
    with replacing(path) as file:
        while batch := list(islice(documents, BATCH)):
            labels = clusters(_vectors(vectors_of, [shown for _, shown in batch])).tolist()
            counts.update(labels)
            for (row, _), label in zip(batch, labels, strict=True):
                line = json.dumps({**row, field: label}, ensure_ascii=False)
                file.write(readable(line).encode() + b"\n")
    return dict(counts)


def _documents(readers: Sequence[Reader], field: str) -> Iterator[tuple[dict[str, Any], str]]:
    """Yield every document that is not blank: its row, and the beginning of its text."""
    for reader in readers:
        for row, text in _rows(reader):
            if field in row:
                raise ValueError(
                    f"{reader.name!r} has a field {field!r} already; name another with field=..."
                )
            if text and not text.isspace():
                yield row, beginning(readable(text), READ_BYTES)


def _rows(reader: Reader) -> Iterator[tuple[dict[str, Any], str]]:
    if isinstance(reader, JsonLinesReader):
        for where, row in reader.objects(0):
            yield row, text_of(row, reader.text, where)
    else:
        for text in reader.rows(0):
            yield {reader.text: text}, text


def _sampled(texts: Iterator[str], count: int, seed: int) -> list[str]:
    """Return the different texts with the least hashes, in the order of these."""
    kept: list[tuple[int, str]] = []  # a heap of the largest
    there: set[int] = set()
    key = seed.to_bytes(8, "little")
    for text in texts:
        digest = hashlib.blake2b(text.encode(), digest_size=8, key=key).digest()
        rank = -int.from_bytes(digest, "little")
        if rank in there or (len(kept) == count and rank <= kept[0][0]):
            continue
        there.add(rank)
        if len(kept) < count:
            heapq.heappush(kept, (rank, text))
        else:
            there.discard(heapq.heappushpop(kept, (rank, text))[0])
    return [text for _, text in sorted(kept, reverse=True)]


def _vectors(embed: Callable[[list[str]], Array], texts: list[str]) -> Array:
    found = _check_embeddings(np.asarray(embed(texts)))
    if len(found) != len(texts):
        raise ValueError(f"embed returned {len(found)} vectors for {len(texts)} texts")
    return found


def _check_embeddings(embeddings: Any) -> Array:
    found = np.asanyarray(embeddings)
    if found.ndim != 2 or found.dtype.kind not in "fiu":
        raise ValueError(
            "embeddings must be an array of numbers with a row for each text; got shape "
            f"{found.shape} of {found.dtype}"
        )
    return found
