"""Parts of the rows on different machines: their sums, added in an order that never changes.

The engines for Dask, Spark and collectives share this: a part answers for its own groups, and a
`Tally` adds up the answers in a tree whose shape depends only on the number of parts.
"""

from __future__ import annotations

import copy
from functools import reduce

import numpy as np

from counterpoise.rows.engines.questions import Question
from counterpoise.rows.engines.row_part import RowPart
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


def answer_part(part: RowPart, question: Question, n_groups: int) -> Array:
    """Return the sums of a part, with zeros for groups that it does not have."""
    with single_threaded_blas():
        sums = part.answer(question)
    if question.pooled or len(part.codes) == n_groups:
        return sums
    wide = np.zeros((n_groups, *sums.shape[1:]))
    wide[part.codes] = sums
    return wide


class Tally:
    """Partial sums of ``count`` parts in a binary tree.

    A node ``(level, i)`` is the sum of its two children on the level below; a last node without a
    neighbour moves up alone. So the order of additions never depends on where the parts are.
    """

    def __init__(self, count: int) -> None:
        self.count = count
        self.nodes: dict[tuple[int, int], Array | None] = {}

    def add(self, level: int, index: int, sums: Array | None) -> None:
        """Add a node, and merge it with its neighbours as far up as they are present."""
        width = -(-self.count // (1 << level))
        while width > 1:
            neighbour = index ^ 1
            if neighbour < width:
                if (level, neighbour) not in self.nodes:
                    break
                sums = _plus(sums, self.nodes.pop((level, neighbour)))
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
    def total(self) -> Array:
        """The root, once all parts are added."""
        (total,) = self.nodes.values()
        assert total is not None  # some part has rows
        return total


def _plus(a: Array | None, b: Array | None) -> Array | None:
    """Add two answers; None is the answer of no rows."""
    return b if a is None else a if b is None else a + b
