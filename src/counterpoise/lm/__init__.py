"""Language models whose mixture of training domains follows the group weights.

Names are imported when they are first used: preparing a corpus needs numpy, not torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from counterpoise.common.lazy import lazy_names

if TYPE_CHECKING:
    from counterpoise.lm.corpus.arrays import write_tokens
    from counterpoise.lm.corpus.bpe import train_tokenizer
    from counterpoise.lm.corpus.documents import read_documents
    from counterpoise.lm.corpus.folders import folder_sources, redpajama_sources
    from counterpoise.lm.corpus.prepare import prepare
    from counterpoise.lm.corpus.tokenizers import Tokenizer, get_tokenizer
    from counterpoise.lm.corpus.tokens import Corpus, Tokens
    from counterpoise.lm.evaluate import DomainLosses, domain_losses, held_out
    from counterpoise.lm.logs import JsonlLog, Log, TensorBoardLog, WandbLog
    from counterpoise.lm.mixture.dataset import MixtureDataset
    from counterpoise.lm.mixture.loader import MixtureLoader
    from counterpoise.lm.mixture.samples import Samples
    from counterpoise.lm.model_files import load_checkpoint
    from counterpoise.lm.steering import Steering
    from counterpoise.lm.tasks.catalog import PAPER_TASKS, Task, get_task
    from counterpoise.lm.tasks.evaluate import evaluate_tasks
    from counterpoise.lm.tasks.scores import Score, average

_MODULES = {
    "Corpus": "corpus.tokens",
    "DomainLosses": "evaluate",
    "JsonlLog": "logs",
    "Log": "logs",
    "MixtureDataset": "mixture.dataset",
    "MixtureLoader": "mixture.loader",
    "PAPER_TASKS": "tasks.catalog",
    "Samples": "mixture.samples",
    "Score": "tasks.scores",
    "Steering": "steering",
    "Task": "tasks.catalog",
    "TensorBoardLog": "logs",
    "Tokenizer": "corpus.tokenizers",
    "Tokens": "corpus.tokens",
    "WandbLog": "logs",
    "average": "tasks.scores",
    "domain_losses": "evaluate",
    "evaluate_tasks": "tasks.evaluate",
    "get_task": "tasks.catalog",
    "folder_sources": "corpus.folders",
    "get_tokenizer": "corpus.tokenizers",
    "held_out": "evaluate",
    "load_checkpoint": "model_files",
    "prepare": "corpus.prepare",
    "read_documents": "corpus.documents",
    "redpajama_sources": "corpus.folders",
    "train_tokenizer": "corpus.bpe",
    "write_tokens": "corpus.arrays",
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
    "folder_sources",
    "get_task",
    "get_tokenizer",
    "held_out",
    "load_checkpoint",
    "prepare",
    "read_documents",
    "redpajama_sources",
    "train_tokenizer",
    "write_tokens",
]

__getattr__, __dir__ = lazy_names(__name__, _MODULES)
