"""One problem as every solver gets it, and how it travels between processes (.npz, no pickle)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

Array = np.ndarray
MODELS = ("identity", "relu", "logistic")


@dataclass(frozen=True)
class Problem:
    """Raw rows in no order, codes 0..K-1 for the groups, and what is to be minimised.

    ``model`` is a neuron with squared error ("identity", "relu"), or "logistic": a linear score
    with log loss and labels 0 and 1. ``nu = 0`` is the worst group; otherwise the
    Kullback-Leibler risk with that ``nu``.
    """

    X: Array
    y: Array
    groups: Array
    model: str
    nu: float = 0.0

    @property
    def n_groups(self) -> int:
        return int(self.groups.max()) + 1

    def small(self, rows: int = 20) -> Problem:
        """A few rows of every group: enough to compile and import everything once."""
        order = np.argsort(self.groups, kind="stable")
        first = np.searchsorted(self.groups[order], np.arange(self.n_groups))
        ends = np.append(first[1:], len(order))
        rows = max(rows, 4 * self.X.shape[1] // self.n_groups)
        keep = [order[a : min(a + rows, b)] for a, b in zip(first, ends, strict=True)]
        index = np.concatenate(keep)
        return replace(self, X=self.X[index], y=self.y[index], groups=self.groups[index])


def save_rows(path: Path, X: Array, y: Array, groups: Array) -> None:
    """Write rows to ``path`` so that a half-written file is never seen."""
    scratch = path.with_name(path.stem + ".part.npz")
    np.savez(scratch, X=X, y=y, groups=groups)
    scratch.replace(path)


def load_problem(path: Path, model: str, nu: float) -> Problem:
    with np.load(path, allow_pickle=False) as rows:
        return Problem(rows["X"], rows["y"], rows["groups"], model, nu)
