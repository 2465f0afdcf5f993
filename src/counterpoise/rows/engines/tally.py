"""Parts of the rows on different machines: their sums, added in an order that never changes.

The engines for Dask and Spark share this: a part answers for its own groups, and a `Tally` adds up
the answers in a tree whose shape depends only on the number of parts. Collectives merge scans, too.
"""

from __future__ import annotations

import copy
from functools import reduce
from typing import Any

import numpy as np

from counterpoise.rows.engines.questions import Question
from counterpoise.rows.engines.row_part import RowPart
from counterpoise.rows.engines.together import Together
from counterpoise.rows.scan import Scan
from counterpoise.rows.threads import single_threaded_blas

Array = np.ndarray


def merge_scans(*scans: Scan) -> Scan:
    return reduce(Scan.merge, scans)


def place_part(part: RowPart | None, labels: Array) -> RowPart | None:
    """Return a copy of the part with the indices of its groups in ``labels``."""
    placed = copy.copy(part)
    if placed is not None:
        placed.codes = np.searchsorted(labels, placed.data.labels)
    return placed


def answer_parts(
    *parts: RowPart | None, indices: list[int], question: Question, n_groups: int, count: int
) -> Tally:
    """Return the sums of some of ``count`` parts, added up where neighbours are among them."""
    tally = Tally(count)
    for index, part in zip(indices, parts, strict=True):
        tally.add(0, index, None if part is None else answer_part(part, question, n_groups))
    return tally


def answer_part(part: RowPart, question: Question, n_groups: int) -> Any:
    """Return the sums of a part, with zeros for groups that it does not have."""
    with single_threaded_blas():
        if isinstance(question, Together):
            asked = question.questions
            answers, _ = part.answer_all(asked)
            return tuple(
                _widened(part, q, sums, n_groups) for q, sums in zip(asked, answers, strict=True)
            )
        return _widened(part, question, part.answer(question), n_groups)


def _widened(part: RowPart, question: Question, sums: Array, n_groups: int) -> Array:
    """Return sums of a part's own groups with zeros for all others."""
    if question.pooled or len(part.codes) == n_groups:
        return sums
    return widened(sums, part.codes, n_groups)


def widened(sums: Array, codes: Array, n_groups: int) -> Array:
    """Return sums of the groups with these codes, with zeros for all others."""
    wide = np.zeros((n_groups, *sums.shape[1:]))
    wide[codes] = sums
    return wide


class Tally:
    """Partial sums of ``count`` parts in a binary tree.

    A node ``(level, i)`` is the sum of its two children on the level below; a last node without a
    neighbour moves up alone. So the order of additions never depends on where the parts are.
    """

    def __init__(self, count: int) -> None:
        self.count = count
        self.nodes: dict[tuple[int, int], Any] = {}

    def add(self, level: int, index: int, sums: Any) -> None:
        """Add a node, and merge it with its neighbours as far up as they are present."""
        width = -(-self.count // (1 << level))
        while width > 1:
            neighbour = index ^ 1
            if neighbour < width:
                if (level, neighbour) not in self.nodes:
                    break
                sums = plus(sums, self.nodes.pop((level, neighbour)))
            index, level, width = index // 2, level + 1, -(-width // 2)
        self.nodes[level, index] = sums

    @classmethod
    def merge(cls, *tallies: Tally, count: int) -> Tally:
        merged = cls(count)
        for tally in tallies:
            for (level, index), sums in tally.nodes.items():
                merged.add(level, index, sums)
        return merged

    @property
    def total(self) -> Any:
        """The root, once all parts are added."""
        (total,) = self.nodes.values()
        assert total is not None  # some part has rows
        return total


def plus(a: Any, b: Any) -> Any:
    """Add two answers, or two tuples of answers; None is the answer of no rows."""
    if a is None or b is None:
        return b if a is None else a
    return tuple(map(plus, a, b)) if isinstance(a, tuple) else a + b
