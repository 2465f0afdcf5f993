"""Whether a linear score separates classes exactly, decided by a linear program."""

from __future__ import annotations

import numpy as np
from scipy import sparse
from scipy.optimize import linprog

Array = np.ndarray

# Largest program to solve, in numbers.
MOST_NUMBERS = 1 << 22


def separates(X: Array, classes: Array, n_classes: int, *, intercept: bool) -> bool | None:
    """Return whether some linear scores put every row's own class first, by a margin.

    If so, the log loss has no minimum without a ridge. None if the rows are too many to decide.

    >>> import numpy as np
    >>> X = np.array([[0.0], [1.0], [2.0]])
    >>> separates(X, np.array([0, 0, 1]), 2, intercept=True)
    True
    >>> separates(X, np.array([0, 1, 0]), 2, intercept=True)
    False
    """
    present = np.unique(classes)
    if len(present) < 2:
        return True
    rows = np.column_stack([X, np.ones(len(X))]) if intercept else np.asarray(X, dtype=float)
    n, width = rows.shape
    C = len(present)
    own = np.searchsorted(present, classes)
    blocks = 1 if C == 2 else C
    if n * (C - 1) * blocks * width > MOST_NUMBERS:
        return None
    if C == 2:
        constraints: object = -(2.0 * own - 1.0)[:, None] * rows
    else:  # score of another class minus that of the row's own
        parts = []
        for c in range(C):
            other = np.flatnonzero(own != c)
            signs = np.zeros((len(other), C))
            signs[:, c] = 1.0
            signs[np.arange(len(other)), own[other]] = -1.0
            parts.append((signs[:, :, None] * rows[other, None, :]).reshape(len(other), -1))
        constraints = sparse.csr_matrix(np.concatenate(parts))
    size = blocks * width
    count = n if C == 2 else n * (C - 1)
    found = linprog(
        np.zeros(size), A_ub=constraints, b_ub=-np.ones(count), bounds=(None, None), method="highs"
    )
    return bool(found.status == 0) if found.status in (0, 2) else None
