"""What a first look at the rows shows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

Array = np.ndarray


@dataclass(frozen=True)
class Census:
    """What one look at the rows tells: the groups, their total weights, and a centre.

    ``shift`` (zero where centring is not wanted) and ``pivot`` are points near the features' and
    the labels' means: moments about them keep digits. ``precision`` is the rounding of the
    features as stored.
    """

    labels: Array
    totals: Array
    n_rows: int
    n_features: int
    intercept: bool
    shift: Array
    pivot: float
    precision: float

    @property
    def n_groups(self) -> int:
        return len(self.labels)
