"""Engines that scan their rows on the first look, and know from the scan what does not change."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from counterpoise.rows.engines.base import SumEngine
from counterpoise.rows.engines.questions import Question
from counterpoise.rows.engines.together import Together
from counterpoise.rows.sample import RowSample
from counterpoise.rows.scan import Scan

Array = np.ndarray


class ScannedEngine(SumEngine):
    """An engine with a ``scan`` of all rows."""

    scan: Scan

    def fingerprint(self) -> str:
        return self.scan.fingerprint

    def checksum(self) -> Array:
        return np.array([self.scan.checksum])

    def sample(self) -> RowSample:
        return self.scan.sample


class ClusterEngine(ScannedEngine):
    """An engine whose rows are on other machines; one job answers several questions."""

    def ask(self, question: Question) -> Array:
        return np.require(self._sum(question), requirements="W")

    def ask_all(self, questions: Sequence[Question]) -> Sequence[Array]:
        answers: Sequence[Array] = self._sum(Together(tuple(questions)))
        return [np.require(answer, requirements="W") for answer in answers]

    def _sum(self, question: Question) -> Any:
        """Return the answer, or a tuple of answers to questions together, from all machines."""
        raise NotImplementedError(type(self).__name__)
