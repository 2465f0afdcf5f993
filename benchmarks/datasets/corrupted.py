"""Synthetic neurons again; a tenth of one group's labels is adversarial."""

from __future__ import annotations

from datasets.source import Source
from datasets.synthetic import neurons


def load(model, cache):
    return neurons(5, 2_000, 20, model, corrupt=0.1, seed=1)


SOURCES = [
    Source("corrupted-5x2000x20", "synthetic, 10 % of one group's labels adversarial", load,
           quick=True)
]  # fmt: skip
