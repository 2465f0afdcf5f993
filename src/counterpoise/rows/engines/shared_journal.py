"""The journal of a fit by several ranks, which the first rank keeps for all.

Answers are the same on all ranks. So the first rank stores them; when a fit resumes, it reads them
and sends them to the others, whose files might end elsewhere.
"""

from __future__ import annotations

import os

import numpy as np

from counterpoise.rows.collective import Collective
from counterpoise.rows.engines.base import SumEngine
from counterpoise.rows.engines.journal import Answers, Journal

Array = np.ndarray


class SharedJournal:
    """Answers on the disk of the first rank; no other rank touches the path."""

    def __init__(
        self, path: str | os.PathLike[str], engine: SumEngine, collective: Collective
    ) -> None:
        self._collective = collective
        self._journal: Journal | None = collective.attempt(
            "opening the checkpoint",
            lambda: None if collective.rank else Journal(path, engine, first=False),
        )
        self.replaying = self._told()

    def _told(self) -> bool:
        """Return whether the first rank has more answers."""
        more = self._journal is not None and self._journal.replaying
        return bool(self._collective.gather(np.array([float(more)]))[0, 0])

    def next(self, digest: str) -> tuple[Array, int]:
        """Return the next stored answer and its passes; the question must be the same."""
        found, error = None, None
        try:
            found = None if self._journal is None else self._journal.next(digest)
        except Exception as failure:  # all ranks raise it
            error = failure
        answer, passes = (None, 0) if found is None else found
        shape = self._collective.meet(
            "reading the checkpoint", error, shape=None if answer is None else answer.shape
        )
        assert shape is not None
        # The other ranks add zeros.
        sent = np.zeros(shape) if answer is None else answer
        counted = self._collective.sum(np.append(sent.reshape(-1), float(passes)))
        self.replaying = self._told()
        return counted[:-1].reshape(shape), int(counted[-1])

    def append(self, digest: str, answer: Array, passes: int) -> None:
        """Store an answer; if the first rank cannot, all ranks raise its error."""
        journal = self._journal
        self._collective.attempt(
            "writing the checkpoint",
            lambda: None if journal is None else journal.append(digest, answer, passes),
        )

    def close(self, *, finished: bool) -> None:
        """Close the file, and delete it if the fit is finished."""
        if self._journal is not None:
            self._journal.close(finished=finished)


def open_journal(path: str | os.PathLike[str], engine: SumEngine) -> Answers:
    """Open the journal of an engine, which the first rank keeps if there are several."""
    if engine.collective is None:
        return Journal(path, engine)
    return SharedJournal(path, engine, engine.collective)
