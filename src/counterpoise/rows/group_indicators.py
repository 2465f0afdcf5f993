"""The group as a feature: one indicator per group, beside the other features."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse

Array = np.ndarray


def with_indicators(X: Any, codes: Array, n_groups: int, base: int | None) -> Any:
    """Append an indicator of every group, except the ``base`` group, to the features."""
    kept = [k for k in range(n_groups) if k != base]
    place = np.full(n_groups, -1)
    place[kept] = np.arange(len(kept))
    column = place[codes]
    rows = np.flatnonzero(column >= 0)
    shape = (len(codes), len(kept))
    if sparse.issparse(X):
        made = sparse.csr_matrix((np.ones(len(rows), X.dtype), (rows, column[rows])), shape)
        return sparse.hstack([X, made], format="csr")
    made = np.zeros(shape, dtype=X.dtype)
    made[rows, column[rows]] = 1.0
    return np.hstack([X, made])
