"""Several questions about the same rows, answered in one read."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

import numpy as np

from counterpoise.rows.engines.questions import Gram, Labels, Question

Array = np.ndarray


@dataclass(frozen=True, eq=False)
class Together(Question):
    """Questions whose answers are a tuple, one after the other."""

    questions: tuple[Question, ...]


def same(question: Question) -> Hashable:
    """Return a key that questions with the same answer share."""
    match question:
        case Labels():
            return "labels", question.pivot, question.truncate
        case Gram(w=None, share_K=None, basis=None):
            return "moments", question.shift.tobytes()
    return id(question)
