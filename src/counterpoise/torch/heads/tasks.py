"""What a head predicts: labels in, scores out, and a fit as the weights of a linear layer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from counterpoise.losses import Loss, NeuronLoss

Array = np.ndarray

TASKS = ("auto", "classification", "regression")


@dataclass(frozen=True)
class Task:
    """Whether a head classifies, and how many outputs it has.

    A classifier's output ``i`` belongs to class ``i``; a single output is the score of class 1
    against class 0.
    """

    classifies: bool
    outputs: int

    @property
    def classes(self) -> int:
        return max(2, self.outputs)

    def check_labels(self, y: Array) -> Array:
        """Return labels for the fit: numbers, or the classes 0, 1, ... as integers."""
        if not self.classifies:
            if y.dtype.kind not in "fiub":
                raise ValueError(f"labels must be numbers for regression; got {y.dtype}")
            return y.astype(float)
        classes = range(self.classes)
        found = np.unique(y)
        numbers = found.dtype.kind in "fiub" and np.isin(found, classes).all()
        if not numbers:
            strange = found if found.dtype.kind not in "fiub" else found[~np.isin(found, classes)]
            raise ValueError(
                f"labels must be the classes 0 to {self.classes - 1}, in the order of the head's "
                f"{self.outputs} output(s); got {strange.tolist()[:5]!r}"
            )
        missing = sorted(set(classes) - set(found.astype(int).tolist()))
        if missing:
            raise ValueError(
                f"class {missing[0]} of the head's {self.classes} classes has no rows; a head "
                "cannot be fitted without rows of each class"
            )
        return y.astype(np.int64)

    def scores(self, X: Array, weight: Array, bias: Array | None) -> Array:
        """Return scores for the loss: one per row, or one per row and class."""
        z = X.astype(float, copy=False) @ weight.T
        if bias is not None:
            z = z + bias
        if self.outputs == 1:
            return z[:, 0]
        return z[:, 1] - z[:, 0] if self.outputs == 2 else z

    def right(self, z: Array, y: Array) -> Array | None:
        """Return whether each row's class is predicted; None for regression."""
        if not self.classifies:
            return None
        return (z > 0 if z.ndim == 1 else z.argmax(1)) == y

    def weights(self, estimator: Any) -> tuple[Array, Array]:
        """Return a fit as the weight (outputs, d) and bias (outputs,) of a linear layer."""
        coef = np.atleast_2d(np.asarray(estimator.coef_, dtype=float))
        intercept = np.atleast_1d(np.asarray(estimator.intercept_, dtype=float))
        if self.classifies and self.outputs == 2:
            coef, intercept = np.vstack([-coef, coef]) / 2, np.append(-intercept, intercept) / 2
        return coef, intercept


def loss_of(estimator: Any) -> Loss:
    """Return the loss that a fitted estimator minimises."""
    if hasattr(estimator, "activation_"):
        return NeuronLoss(estimator.activation_)
    found: Loss = estimator.loss_
    return found


def task_of(task: str, y: Array, outputs: int | None) -> Task:
    """Choose the task from its name, the labels, and the number of outputs of a layer."""
    if task not in TASKS:
        raise ValueError(f"task={task!r} is not known; use one of {TASKS!r}")
    if task == "auto":
        whole = y.dtype.kind in "iub" or (y.dtype.kind == "f" and bool(np.isin(y, (0, 1)).all()))
        several = outputs is not None and outputs > 1
        task = "classification" if whole or several or y.dtype.kind not in "fiub" else "regression"
    if task == "regression":
        if outputs not in (None, 1):
            raise ValueError(
                f"the layer has {outputs} outputs; regression needs a layer with one output"
            )
        return Task(False, 1)
    if outputs is None:
        top = y.max() if len(y) and y.dtype.kind in "fiub" else 1
        outputs = max(2, int(top) + 1)
    return Task(True, outputs)
