"""Inputs of a run that the first rank checks for all, so that large files are read once."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch.distributed as dist

from counterpoise.lm.corpus.tokens import Corpus
from counterpoise.lm.training.inputs import inputs_of
from counterpoise.lm.training.ranks import Process
from counterpoise.lm.training.settings import Settings
from counterpoise.storage import remembered


def checked_inputs(
    settings: Settings, corpus: Corpus, domains: Iterable[str], process: Process
) -> dict[str, Any]:
    """Verify the corpus and return `inputs_of` the settings; every rank must call.

    Other ranks accept what the first one has read, if they see the same files. Copies on the disk
    of another machine differ in their times or inodes, and are read there.
    """
    found: list[Any] = [None]

    def check() -> None:
        corpus.verify(domains)
        found[0] = (inputs_of(settings), remembered.known())

    process.on_first_rank(check)
    if process.world > 1:
        dist.broadcast_object_list(found, 0)
    inputs, known = found[0]
    remembered.accept(known)
    return inputs
