"""Engines: who reads the rows.

An engine knows rows and groups and nothing of group weights. It answers a handful of
questions, each in one read of the rows, and counts the reads.
"""

from counterpoise.activations import Activation
from counterpoise.engines.base import Engine, GroupEval, RowEngine
from counterpoise.engines.dense import DenseEngine
from counterpoise.engines.quadratic import QuadraticEngine
from counterpoise.engines.sparse import SparseEngine
from counterpoise.groups import GroupedData

__all__ = [
    "DenseEngine",
    "Engine",
    "GroupEval",
    "QuadraticEngine",
    "RowEngine",
    "SparseEngine",
    "make_engine",
]


def make_engine(data: GroupedData, activation: Activation, *, centred: bool = True) -> RowEngine:
    """The in-memory engine that fits the storage of ``data``.

    ``centred`` engines give second moments about a centre of the features, ``engine.shift``.
    """
    kind = SparseEngine if data.is_sparse else DenseEngine
    return kind(data, activation, centred=centred)
