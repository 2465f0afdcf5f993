"""The census: groups, sizes and centre of the rows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

Array = np.ndarray


@dataclass(frozen=True)
class Census:
    """The groups, their total weights, and a centre of the rows, from a first pass.

    ``shift`` is near the mean of the features (zero without centring), and ``pivot`` near that of
    the labels. Moments about them lose fewer digits. ``precision`` is the relative rounding of the
    stored features, and ``label_size`` the largest absolute label. ``notes`` are sentences for the
    user about groups that overlap.
    """

    labels: Array
    totals: Array
    n_rows: int
    n_features: int
    intercept: bool
    shift: Array
    pivot: float
    precision: float
    label_size: float
    notes: tuple[str, ...] = ()

    @property
    def n_groups(self) -> int:
        return len(self.labels)
