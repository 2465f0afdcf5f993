"""Language models whose mixture of training domains follows the group weights.

Names are imported when they are first used: preparing a corpus needs numpy, not torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from counterpoise.lm.corpus import prepare
    from counterpoise.lm.documents import read_documents
    from counterpoise.lm.tokenizers import Tokenizer, get_tokenizer
    from counterpoise.lm.tokens import Corpus, Tokens

__all__ = ["Corpus", "Tokenizer", "Tokens", "get_tokenizer", "prepare", "read_documents"]

_MODULES = {
    "Corpus": "tokens",
    "Tokenizer": "tokenizers",
    "Tokens": "tokens",
    "get_tokenizer": "tokenizers",
    "prepare": "corpus",
    "read_documents": "documents",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
