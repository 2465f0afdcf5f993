"""Engines: who reads the rows.

An engine knows rows and groups and nothing of group weights. It answers a handful of
questions, each in one read of the rows, and counts the reads.
"""

from counterpoise.activations import Activation
from counterpoise.engines.base import Census, Engine, GroupEval, SumEngine
from counterpoise.engines.memory import MemoryEngine
from counterpoise.engines.quadratic import QuadraticEngine
from counterpoise.groups import GroupedData

__all__ = [
    "Census",
    "Engine",
    "GroupEval",
    "MemoryEngine",
    "QuadraticEngine",
    "SumEngine",
    "make_engine",
]


def make_engine(data: GroupedData, activation: Activation, *, centred: bool = True) -> SumEngine:
    """The engine for rows in memory.

    ``centred`` engines give second moments about a centre of the features, ``engine.shift``.
    """
    return MemoryEngine(data, activation, centred=centred)
