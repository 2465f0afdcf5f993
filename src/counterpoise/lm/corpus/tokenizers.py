"""Tokenizers of any kind behind one small class that can be sent to worker processes."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from counterpoise.common.packages import not_installed
from counterpoise.common.text import one_line
from counterpoise.lm.corpus.metadata import dtype_of
from counterpoise.lm.model_checks.unattended import panics_as_errors

Array = np.ndarray
Encoder = Callable[[Sequence[str]], list[Array]]


class FastTokenizerLike(Protocol):
    """What is used of a ``tokenizers.Tokenizer``."""

    def to_str(self) -> str: ...
    def token_to_id(self, token: str) -> int | None: ...


class TransformersTokenizerLike(Protocol):
    """What is used of a tokenizer of transformers."""

    @property
    def eos_token_id(self) -> Any: ...
    def convert_tokens_to_ids(self, tokens: Any) -> Any: ...
    def get_vocab(self) -> dict[str, int]: ...
    def __len__(self) -> int: ...


# Usual names of the token that ends a document, the most common first.
END_NAMES = (
    "<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>", "<|eos|>", "<EOS>", "[EOS]",
    "<｜end▁of▁sentence｜>",  # noqa: RUF001
)  # fmt: skip

# Texts whose ids serve as the fingerprint of tokenizers without a file.
PROBES = (
    "The quick brown fox jumps over the lazy dog.",
    "  def f(x):\n\treturn x**2  # 3.14159, 1,000,000\r\n",
    "Ünïcödé: 你好, мир, ∑∫ 🙂 \u00a0 don't",
    "aaaaaaaa AAAA <s> </s> <|endoftext|> [CLS]",
)


@dataclass(frozen=True, repr=False)
class Tokenizer:
    """Turns texts into token ids. Made by :func:`get_tokenizer`; can be pickled.

    Attributes
    ----------
    name : str
        Where it comes from.
    vocab_size : int
        Number of ids.
    end : int
        The id that follows every document.
    fingerprint : str
        Changes when the tokenizer changes.
    """

    name: str
    encoder: Encoder
    vocab_size: int
    end: int
    fingerprint: str

    def encode_batch(self, texts: Sequence[str]) -> list[Array]:
        """Return the ids of each text, without special tokens at its beginning or end."""
        found = self.encoder(texts)
        for ids in found:
            for id in (ids.min(), ids.max()) if len(ids) else ():
                if not 0 <= id < self.vocab_size:
                    raise ValueError(
                        f"the tokenizer {self.name} returned the id {id}, which is outside of its "
                        f"vocabulary of {self.vocab_size}; pass the right vocab_size"
                    )
        return found

    def id_of(self, argument: str, token: int | str) -> int:
        """Return the id of a token, given by id or, for tokenizers with names, by name."""
        found: int | None = None
        if isinstance(token, str):
            if isinstance(self.encoder, FastEncoder):
                found = self.encoder.made.token_to_id(token)
        elif not isinstance(token, bool) and 0 <= token < self.vocab_size:
            found = int(token)
        if found is None:
            raise ValueError(
                f"{argument}={token!r} is not a token of the tokenizer {self.name}; give one of "
                f"its names (functions have none), or an id below {self.vocab_size}"
            )
        return found

    @property
    def dtype(self) -> np.dtype:
        return dtype_of(self.vocab_size)

    def __repr__(self) -> str:
        return f"Tokenizer({self.name}, vocab_size={self.vocab_size}, end={self.end})"


# What `get_tokenizer` takes.
TokenizerSpec = (
    str
    | os.PathLike[str]
    | Tokenizer
    | FastTokenizerLike
    | TransformersTokenizerLike
    | Callable[[str], Any]
)


def get_tokenizer(
    spec: TokenizerSpec, *, end: int | str | None = None, vocab_size: int | None = None
) -> Tokenizer:
    """Return a tokenizer, given by name, file or object.

    Parameters
    ----------
    spec : str, path or object
        - ``"bytes"``: UTF-8 bytes; 256 ends a document;
        - the path of a ``tokenizer.json`` (package ``tokenizers``), of a folder that
          ``transformers.AutoTokenizer`` loads, or of a ``.gguf`` file;
        - a ``tokenizers.Tokenizer`` or a tokenizer of transformers;
        - a function from a text to its ids, together with ``end`` and ``vocab_size``.
    end : int or str, optional
        The token after every document, by id or, except for functions, by name. By default what
        the tokenizer says, or one of the usual names such as ``<|endoftext|>``.
    vocab_size : int, optional
        Number of ids, for functions.

    Returns
    -------
    Tokenizer
        It reads special tokens spelled out in a document as plain text.

    Examples
    --------
    >>> tokenizer = get_tokenizer("bytes")
    >>> tokenizer.encode_batch(["abc"])[0].tolist(), tokenizer.end, tokenizer.vocab_size
    ([97, 98, 99], 256, 257)
    """
    _check_end(end)
    if isinstance(spec, Tokenizer):
        return spec if end is None else _finish(spec.name, spec.encoder, spec.vocab_size, end,
                                                spec.fingerprint)  # fmt: skip
    if isinstance(spec, str) and spec == "bytes":
        return _finish("bytes", Utf8Encoder(), 256, 256 if end is None else end, "bytes")
    if isinstance(spec, (str, os.PathLike)):
        return _from_path(Path(spec), end)
    given: Any = spec  # from here on, what its attributes say
    if hasattr(given, "to_str") and hasattr(given, "token_to_id"):
        return _from_fast(given, type(given).__name__, end)
    if hasattr(given, "convert_tokens_to_ids") and hasattr(given, "eos_token_id"):
        return _from_transformers(given, end)
    if callable(given):
        return _from_function(given, end, vocab_size)
    raise TypeError(
        f"tokenizer={spec!r} is not known; give 'bytes', the path of a tokenizer.json or of a "
        "folder for AutoTokenizer, a tokenizer object, or a function from a text to its ids"
    )


def _check_end(end: Any) -> None:
    if end is None or isinstance(end, str):
        return
    if isinstance(end, bool) or not isinstance(end, (int, np.integer)) or end < 0:
        raise ValueError(f"end must be the id or the name of a token; got {end!r}")


def _finish(
    name: str, encoder: Encoder, vocab_size: int, end: int | str, fingerprint: str
) -> Tokenizer:
    if isinstance(end, str):
        raise ValueError(f"end={end!r}: the tokenizer {name} has no names; give the token's id")
    size = max(int(vocab_size), int(end) + 1)
    if size > 1 << 32:
        raise ValueError(f"the tokenizer {name} has {size} ids; ids are kept in 32 bits")
    return Tokenizer(name, encoder, size, int(end), fingerprint)


def _from_path(path: Path, end: int | str | None) -> Tokenizer:
    if path.is_dir():
        from counterpoise.lm.model_files import load_tokenizer_folder

        return _from_transformers(load_tokenizer_folder(path), end, str(path))
    if path.suffix == ".gguf" and path.is_file():
        from counterpoise.lm.model_files import load_tokenizer

        return _from_transformers(load_tokenizer(path), end, str(path))
    if not path.is_file():
        raise FileNotFoundError(
            f"tokenizer={str(path)!r} does not exist; give 'bytes', or the path of a "
            "tokenizer.json or of a folder for AutoTokenizer"
        )
    try:
        with panics_as_errors():
            tokenizer = _package().from_str(path.read_text(encoding="utf-8"))
    except ImportError:
        raise
    except Exception as error:  # the package raises nothing more precise
        raise ValueError(
            f"tokenizer={str(path)!r} is not a tokenizer.json of the package tokenizers "
            f"({one_line(error)}); copy or download it again, or give another"
        ) from None
    return _from_fast(tokenizer, str(path), end)


def _from_fast(tokenizer: FastTokenizerLike, name: str, end: int | str | None) -> Tokenizer:
    own = _package().from_str(tokenizer.to_str())
    own.no_padding()
    own.no_truncation()
    text = own.to_str()
    size = max(own.get_vocab(with_added_tokens=True).values(), default=-1) + 1
    found = _named_end(own.token_to_id, end, name)
    return _finish(name, FastEncoder(text), size, found, _digest(json.loads(text)))


def _from_transformers(tokenizer: Any, end: int | str | None, name: str | None = None) -> Tokenizer:
    name = name or type(tokenizer).__name__
    if end is None and tokenizer.eos_token_id is not None:
        end = int(tokenizer.eos_token_id)
    if getattr(tokenizer, "is_fast", False):
        return _from_fast(tokenizer.backend_tokenizer, name, end)
    vocab = tokenizer.get_vocab()
    size = max(max(vocab.values(), default=-1) + 1, len(tokenizer))
    found = _named_end(vocab.get, end, name)
    encoder = FunctionEncoder(_Slow(tokenizer))
    return _finish(
        name, encoder, size, found, _digest([name, sorted(vocab.items()), _probe(encoder)])
    )


def _from_function(
    function: Callable[[str], Any], end: int | str | None, vocab_size: int | None
) -> Tokenizer:
    name = getattr(function, "__qualname__", type(function).__qualname__)
    for argument, value in (("end", end), ("vocab_size", vocab_size)):
        if value is None:
            raise ValueError(
                f"the tokenizer {name} is a function, whose {argument} is unknown; pass "
                f"{argument}=..., a number"
            )
    if isinstance(vocab_size, bool) or not isinstance(vocab_size, (int, np.integer)) \
            or vocab_size < 1:  # fmt: skip
        raise ValueError(f"vocab_size must be a positive integer; got {vocab_size!r}")
    assert end is not None
    encoder = FunctionEncoder(function)
    return _finish(name, encoder, int(vocab_size), end, _digest([name, _probe(encoder)]))


def _named_end(id_of: Callable[[str], int | None], end: int | str | None, name: str) -> int:
    if isinstance(end, str):
        found = id_of(end)
        if found is None:
            raise ValueError(f"end={end!r} is not a token of the tokenizer {name}")
        return found
    if end is not None:
        return int(end)
    for usual in END_NAMES:
        found = id_of(usual)
        if found is not None:
            return found
    raise ValueError(
        f"the tokenizer {name} does not say which token ends a document, and has none of "
        f"{', '.join(END_NAMES[:4])}; pass end=..., a token's name or id"
    )


def _package() -> Any:
    try:
        from tokenizers import Tokenizer as FastTokenizer
    except ImportError as error:
        raise not_installed("this tokenizer needs", "tokenizers") from error
    return FastTokenizer


def _probe(encoder: Encoder) -> list[list[int]]:
    return [ids.tolist() for ids in encoder(PROBES)]


def _digest(value: Any) -> str:
    text = json.dumps(value, sort_keys=True, ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()


class Utf8Encoder:
    """Encodes a text as its UTF-8 bytes."""

    def __call__(self, texts: Sequence[str]) -> list[Array]:
        return [np.frombuffer(text.encode(), np.uint8) for text in texts]


class FastEncoder:
    """Encodes with the package tokenizers; every process makes its tokenizer from JSON."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._made: Any = None

    @property
    def made(self) -> Any:
        """The tokenizer of the package."""
        if self._made is None:
            self._made = _package().from_str(self.text)
            self._made.encode_special_tokens = True
        return self._made

    def __call__(self, texts: Sequence[str]) -> list[Array]:
        found = self.made.encode_batch_fast(list(texts), add_special_tokens=False)
        return [np.array(item.ids, np.uint32) for item in found]

    def __getstate__(self) -> dict[str, Any]:
        return {"text": self.text, "_made": None}


class FunctionEncoder:
    """Encodes with a function from a text to its ids."""

    def __init__(self, function: Callable[[str], Any]) -> None:
        self.function = function

    def __call__(self, texts: Sequence[str]) -> list[Array]:
        return [self._ids(text) for text in texts]

    def _ids(self, text: str) -> Array:
        ids = np.asarray(self.function(text))
        if ids.ndim != 1 or (ids.size and ids.dtype.kind not in "iu"):
            raise TypeError(
                "a tokenizer must return a list of integers for a text; got an array of shape "
                f"{ids.shape} of {ids.dtype}"
            )
        return ids.astype(np.int64)


class _Slow:
    """A tokenizer of transformers without a fast implementation."""

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer

    def __call__(self, text: str) -> list[int]:
        return self.tokenizer.encode(text, add_special_tokens=False, split_special_tokens=True)
