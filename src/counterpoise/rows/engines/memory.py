"""The engine for rows in memory, where one part answers every question."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from counterpoise.activations import Activation
from counterpoise.losses import Loss
from counterpoise.rows.census import Census
from counterpoise.rows.engines.base import SumEngine, fingerprint_of
from counterpoise.rows.engines.dense import DensePart
from counterpoise.rows.engines.questions import Labels, Question
from counterpoise.rows.engines.row_part import RowPart
from counterpoise.rows.engines.sparse import SparsePart
from counterpoise.rows.groups import GroupedData
from counterpoise.rows.sample import RowSample

Array = np.ndarray


def make_part(data: GroupedData, codes: Array | None = None) -> RowPart:
    """Make the part for dense or sparse ``data``; ``codes`` as in :class:`RowPart`."""
    return (SparsePart if data.is_sparse else DensePart)(data, codes)


class MemoryEngine(SumEngine):
    """All rows in memory, dense or sparse."""

    def __init__(self, data: GroupedData, loss: Loss | Activation, *, centred: bool = True) -> None:
        self.data, self.part = data, make_part(data)
        shift, pivot = data.centre()
        census = Census(
            labels=data.labels,
            totals=data.totals,
            n_rows=data.X.shape[0],
            n_features=data.n_features,
            intercept=data.intercept,
            shift=shift if centred else np.zeros_like(shift),
            pivot=pivot,
            precision=float(np.finfo(data.X.dtype).eps),
            label_size=float(np.abs(data.y).max(initial=0.0)),
        )
        super().__init__(census, loss)

    def sample(self) -> RowSample:
        data = self.data
        weights = data.row_weights if data.row_weights.size else None
        return RowSample.draw(data.X, data.y, data.codes, data.labels, weights)

    def group_rows(self, k: int) -> GroupedData:
        rows = slice(int(self.data.offsets[k]), int(self.data.offsets[k + 1]))
        return self.data.alone(rows, self.data.row_weights[rows], self.data.labels[k : k + 1])

    def effective_sizes(self) -> Array:
        data = self.data
        if data.row_weights.size:
            return data.totals**2 / np.add.reduceat(data.row_weights**2, data.offsets[:-1])
        return np.diff(data.offsets).astype(float)

    def fingerprint(self) -> str:
        X = self.data.X
        rows = (X.data, X.indices, X.indptr) if self.data.is_sparse else (X,)
        return fingerprint_of([*rows, self.data.y, self.data.offsets, self.data.row_weights])

    @property
    def additions(self) -> int:
        parts = self.part.segments
        return int((parts.stops - parts.starts).max()) + len(parts.starts)

    def ask(self, question: Question) -> Array:
        self.counter.count += not isinstance(question, Labels)
        return self.part.answer(question)

    def ask_all(self, questions: Sequence[Question]) -> Sequence[Array]:
        answers, reads = self.part.answer_all(questions)
        self.counter.count += reads
        return answers


def make_engine(data: GroupedData, loss: Loss | Activation, *, centred: bool = True) -> SumEngine:
    """Make the engine for rows in memory.

    ``centred`` engines measure second moments about a centre of the features, ``engine.shift``.
    """
    return MemoryEngine(data, loss, centred=centred)
