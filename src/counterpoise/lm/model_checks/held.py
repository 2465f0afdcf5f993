"""How much the weight files of a model hold."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Held:
    """Number of tensors in weight files, and of their elements."""

    tensors: int
    elements: int

    def __add__(self, other: Held) -> Held:
        return Held(self.tensors + other.tensors, self.elements + other.elements)
