"""Language models whose mixture of training domains follows the group weights.

Names are imported when they are first used: preparing a corpus needs numpy, not torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from counterpoise.lazy import lazy_names

if TYPE_CHECKING:
    from counterpoise.lm.arrays import write_tokens
    from counterpoise.lm.bpe import train_tokenizer
    from counterpoise.lm.corpus import prepare
    from counterpoise.lm.documents import read_documents
    from counterpoise.lm.evaluate import DomainLosses, domain_losses, held_out
    from counterpoise.lm.folders import folder_sources, redpajama_sources
    from counterpoise.lm.loader import MixtureLoader
    from counterpoise.lm.logs import JsonlLog, Log, TensorBoardLog, WandbLog
    from counterpoise.lm.mixture import MixtureDataset
    from counterpoise.lm.registry import fetch_registry, registry_domains
    from counterpoise.lm.samples import Samples
    from counterpoise.lm.steering import Steering
    from counterpoise.lm.tokenizers import Tokenizer, get_tokenizer
    from counterpoise.lm.tokens import Corpus, Tokens

_MODULES = {
    "Corpus": "tokens",
    "DomainLosses": "evaluate",
    "JsonlLog": "logs",
    "Log": "logs",
    "MixtureDataset": "mixture",
    "MixtureLoader": "loader",
    "Samples": "samples",
    "Steering": "steering",
    "TensorBoardLog": "logs",
    "Tokenizer": "tokenizers",
    "Tokens": "tokens",
    "WandbLog": "logs",
    "domain_losses": "evaluate",
    "fetch_registry": "registry",
    "folder_sources": "folders",
    "get_tokenizer": "tokenizers",
    "held_out": "evaluate",
    "prepare": "corpus",
    "read_documents": "documents",
    "redpajama_sources": "folders",
    "registry_domains": "registry",
    "train_tokenizer": "bpe",
    "write_tokens": "arrays",
}

__all__ = [
    "Corpus",
    "DomainLosses",
    "JsonlLog",
    "Log",
    "MixtureDataset",
    "MixtureLoader",
    "Samples",
    "Steering",
    "TensorBoardLog",
    "Tokenizer",
    "Tokens",
    "WandbLog",
    "domain_losses",
    "fetch_registry",
    "folder_sources",
    "get_tokenizer",
    "held_out",
    "prepare",
    "read_documents",
    "redpajama_sources",
    "registry_domains",
    "train_tokenizer",
    "write_tokens",
]

__getattr__, __dir__ = lazy_names(__name__, _MODULES)
