"""Language models whose mixture of training domains follows the group weights.

Names are imported when they are first used: preparing a corpus needs numpy, not torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from counterpoise.lazy import lazy_names

if TYPE_CHECKING:
    from counterpoise.lm.arrays import write_tokens
    from counterpoise.lm.corpus import prepare
    from counterpoise.lm.documents import read_documents
    from counterpoise.lm.downstream.task_data import offline_tasks, prepare_tasks
    from counterpoise.lm.downstream.tasks import (
        PAPER_TASKS,
        Score,
        Task,
        average,
        evaluate_tasks,
        get_task,
    )
    from counterpoise.lm.evaluate import DomainLosses, domain_losses, held_out
    from counterpoise.lm.loader import MixtureLoader
    from counterpoise.lm.logs import JsonlLog, Log, TensorBoardLog, WandbLog
    from counterpoise.lm.mixture import MixtureDataset
    from counterpoise.lm.model_files import load_checkpoint
    from counterpoise.lm.samples import Samples
    from counterpoise.lm.sources.bpe import train_tokenizer
    from counterpoise.lm.sources.folders import folder_sources, redpajama_sources
    from counterpoise.lm.sources.registry import fetch_registry, registry_domains
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
    "PAPER_TASKS": "downstream.tasks",
    "Samples": "samples",
    "Score": "downstream.tasks",
    "Steering": "steering",
    "Task": "downstream.tasks",
    "TensorBoardLog": "logs",
    "Tokenizer": "tokenizers",
    "Tokens": "tokens",
    "WandbLog": "logs",
    "average": "downstream.tasks",
    "domain_losses": "evaluate",
    "evaluate_tasks": "downstream.tasks",
    "get_task": "downstream.tasks",
    "fetch_registry": "sources.registry",
    "folder_sources": "sources.folders",
    "get_tokenizer": "tokenizers",
    "held_out": "evaluate",
    "load_checkpoint": "model_files",
    "offline_tasks": "downstream.task_data",
    "prepare": "corpus",
    "prepare_tasks": "downstream.task_data",
    "read_documents": "documents",
    "redpajama_sources": "sources.folders",
    "registry_domains": "sources.registry",
    "train_tokenizer": "sources.bpe",
    "write_tokens": "arrays",
}

__all__ = [
    "PAPER_TASKS",
    "Corpus",
    "DomainLosses",
    "JsonlLog",
    "Log",
    "MixtureDataset",
    "MixtureLoader",
    "Samples",
    "Score",
    "Steering",
    "Task",
    "TensorBoardLog",
    "Tokenizer",
    "Tokens",
    "WandbLog",
    "average",
    "domain_losses",
    "evaluate_tasks",
    "fetch_registry",
    "folder_sources",
    "get_task",
    "get_tokenizer",
    "held_out",
    "load_checkpoint",
    "offline_tasks",
    "prepare",
    "prepare_tasks",
    "read_documents",
    "redpajama_sources",
    "registry_domains",
    "train_tokenizer",
    "write_tokens",
]

__getattr__, __dir__ = lazy_names(__name__, _MODULES)
