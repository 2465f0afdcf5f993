"""A corpus on disk: one memory-mapped array of tokens for every domain and split."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from counterpoise.lm.corpus.metadata import AGAIN_FROM, CORPUS, read_corpus_file, read_index
from counterpoise.lm.corpus.verify import verify_tokens
from counterpoise.storage.files import probed

Array = np.ndarray
PathLike = str | os.PathLike[str]


class Tokens:
    """The tokens of one split of a domain: documents one after the other, each with its end token.

    Files are mapped on first use. A pickled copy opens them again.

    Attributes
    ----------
    name, split : str
        The domain and the split.
    n_tokens, n_documents : int
    end : int
        The id that follows every document.
    vocab_size : int
        Number of ids.
    checksums : tuple of str or None
        CRC-32 of the two files; None for those of release 0.1.
    """

    def __init__(self, folder: PathLike, index: dict[str, Any], split: str) -> None:
        self.folder = Path(folder)
        self.name: str = index["domain"]
        self.split = split
        self.n_tokens: int = index["splits"][split]["tokens"]
        self.n_documents: int = index["splits"][split]["documents"]
        self.end: int = index["end"]
        self.vocab_size: int = index["vocab_size"]
        self.dtype = np.dtype(index["dtype"])
        found = index["splits"][split].get("checksums")
        self.checksums: tuple[str, str] | None = None if found is None else (found[0], found[1])
        self._maps: tuple[Array, Array] | None = None
        self._check(self.path, self.n_tokens * self.dtype.itemsize)
        self._check(self.ends_path, self.n_documents * 8)

    @property
    def path(self) -> Path:
        """The file of token ids."""
        return self.folder / f"{self.split}.bin"

    @property
    def ends_path(self) -> Path:
        """The file of document ends."""
        return self.folder / f"{self.split}.docs.bin"

    def _check(self, path: Path, size: int) -> None:
        found = path.stat().st_size if path.is_file() else None
        if found != size:
            shown = "is missing" if found is None else f"has {found} bytes instead of {size}"
            raise ValueError(f"{str(path)!r} {shown}; {AGAIN_FROM}")

    def verify(self) -> None:
        """Raise ValueError if the files are not as they were written.

        Files are read once; see `counterpoise.storage.remembered`.
        """
        verify_tokens(self)

    def _mapped(self) -> tuple[Array, Array]:
        if self._maps is None:
            self._maps = (
                _map(self.path, self.dtype, self.n_tokens),
                _map(self.ends_path, np.dtype("<u8"), self.n_documents),
            )
        return self._maps

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_maps": None}

    def __len__(self) -> int:
        return self.n_tokens

    def read(self, start: int, stop: int) -> Array:
        """Return the tokens from ``start`` up to but without ``stop``, as int64."""
        if not 0 <= start <= stop <= self.n_tokens:
            raise IndexError(
                f"start={start}, stop={stop} must be within 0 and {self.n_tokens}, the number of "
                f"tokens of {self.name!r}"
            )
        found = self._mapped()[0][start:stop].astype(np.int64)
        if len(found) and found.max() >= self.vocab_size:
            raise ValueError(
                f"{str(self.path)!r} is damaged: token {start + int(found.argmax())} is "
                f"{found.max()}, outside of the vocabulary of {self.vocab_size}; {AGAIN_FROM}"
            )
        return found

    def at(self, positions: Array) -> Array:
        """Return the tokens at some positions."""
        return self._mapped()[0][positions]

    def document_bounds(self, i: int) -> tuple[int, int]:
        """Return where document ``i`` starts and where the next one does."""
        if not 0 <= i < self.n_documents:
            raise IndexError(
                f"i={i} must be between 0 and {self.n_documents - 1}, the last document of "
                f"{self.name!r}"
            )
        ends = self._mapped()[1]
        return int(ends[i - 1]) if i else 0, int(ends[i])

    def ends(self, first: int, last: int) -> Array:
        """Return where documents ``first`` up to but without ``last`` end, as int64."""
        return self._mapped()[1][first:last].astype(np.int64)

    def document(self, i: int) -> Array:
        """Return the tokens of document ``i`` with its end token, as int64."""
        return self.read(*self.document_bounds(i))

    def __repr__(self) -> str:
        return (
            f"Tokens({self.name!r}, {self.split!r}: {self.n_tokens:,} tokens, "
            f"{self.n_documents:,} documents)"
        )


class Corpus:
    """The domains that :func:`prepare` wrote to a folder.

    ``corpus["web"]`` gives the tokens of a domain's first split. Iteration gives the names.

    Attributes
    ----------
    domains : list of str
        In the order of preparation.
    splits : list of str
    vocab_size, end : int
        Number of ids, and the id that follows every document.
    tokenizer : str
        The fingerprint of the tokenizer.
    """

    def __init__(self, folder: PathLike, known: dict[str, Any]) -> None:
        self.folder = Path(folder)
        self.domains: list[str] = list(known["domains"])
        self.splits: list[str] = list(known["splits"])
        self.vocab_size: int = known["vocab_size"]
        self.end: int = known["end"]
        self.tokenizer: str = known["tokenizer"]
        self._tokens: dict[tuple[str, str], Tokens] = {}
        same = ("tokenizer", "vocab_size", "end")
        for domain in self.domains:
            index = read_index(self.folder / domain)
            if list(index["splits"]) != self.splits or any(index[k] != known[k] for k in same):
                raise ValueError(
                    f"{str(self.folder / domain)!r} was prepared with another tokenizer or other "
                    "splits than the rest of the corpus; prepare it again with overwrite=True"
                )
            for split in self.splits:
                self._tokens[domain, split] = Tokens(self.folder / domain, index, split)

    @classmethod
    def open(cls, folder: PathLike) -> Corpus:
        """Open the corpus in a folder, and check its metadata and the sizes of its files.

        `verify` checks their contents.
        """
        path = Path(folder, CORPUS)
        if not path.is_file():
            raise FileNotFoundError(
                f"{os.fspath(folder)!r} has no corpus (no {CORPUS}); prepare it, or continue if "
                "the preparation was stopped"
            )
        return cls(folder, read_corpus_file(Path(folder)))

    def verify(self, domains: Iterable[str] | None = None) -> None:
        """Raise ValueError if a token file is not as it was written; the message names it.

        A file is read once and then remembered until it changes: in ``.verified.json`` beside it,
        or in the user's cache folder if that cannot be written.
        A run does this when it starts, before it reads samples.
        """
        for domain in self.domains if domains is None else domains:
            for split in self.splits:
                self.tokens(domain, split).verify()

    def tokens(self, domain: str, split: str = "train") -> Tokens:
        """Return the tokens of one split of a domain."""
        if domain not in self.domains:
            raise KeyError(f"domain={domain!r} is not in the corpus; it has {self.domains!r}")
        self._check_split(split)
        return self._tokens[domain, split]

    def sizes(self, split: str = "train") -> dict[str, int]:
        """Return the number of tokens of each domain."""
        self._check_split(split)
        return {domain: self._tokens[domain, split].n_tokens for domain in self.domains}

    def fingerprint(self) -> str:
        """Return a hash that changes with the tokenizer, domains, splits or tokens.

        Tokens are probed, not read in full; see `counterpoise.storage.files.probed`.
        """
        ordered = sorted(self._tokens.items())
        names = json.dumps([self.tokenizer, [key for key, _ in ordered]])
        files = probed(tokens.path for _, tokens in ordered)
        return hashlib.sha256(f"{names} {files}".encode()).hexdigest()[:16]

    def _check_split(self, split: str) -> None:
        if split not in self.splits:
            raise KeyError(f"split={split!r} is not in the corpus; it has {self.splits!r}")

    def __getitem__(self, domain: str) -> Tokens:
        return self.tokens(domain, self.splits[0])

    def __iter__(self) -> Iterator[str]:
        return iter(self.domains)

    def __len__(self) -> int:
        return len(self.domains)

    def __contains__(self, domain: object) -> bool:
        return domain in self.domains

    def __repr__(self) -> str:
        head = f"Corpus({str(self.folder)!r}, vocab_size={self.vocab_size}, end={self.end})"
        width = max(map(len, self.domains), default=0)
        lines = [head]
        for domain in self.domains:
            shown = [f"{split} {self._tokens[domain, split].n_tokens:,}" for split in self.splits]
            lines.append(f"  {domain:{width}}  {', '.join(shown)} tokens")
        return "\n".join(lines)


def _map(path: Path, dtype: np.dtype, count: int) -> Array:
    if not count:
        return np.empty(0, dtype)  # an empty file cannot be mapped
    return np.memmap(path, dtype, mode="r", shape=(count,))
