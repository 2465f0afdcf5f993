"""The loss of every row that a model minimises."""

from __future__ import annotations

from typing import Any

import numpy as np

from counterpoise.assessment.metrics import squared_errors
from counterpoise.losses import Loss, get_loss
from counterpoise.rows.classes import class_numbers

Array = np.ndarray


def row_losses(model: Any, X: Any, y: Any, groups: Any = None) -> Array:
    """Compute the losses of rows under a fitted model, without its ridge."""
    if hasattr(model, "classes_"):
        loss: Loss = model.loss_
        scores = model.decision_function(X, **group_argument(model, groups))
        return np.asarray(loss.value(scores, class_numbers(y, model.classes_)))
    return prediction_losses(model, y, model.predict(X, **group_argument(model, groups)))


def group_argument(model: Any, groups: Any) -> dict[str, Any]:
    """Return ``groups`` as an argument of ``predict``, if the model uses the group."""
    return {"groups": groups} if getattr(model, "uses_group_", "") else {}


def prediction_losses(model: Any, y: Any, predicted: Any) -> Array:
    """Compute the losses of rows from predictions of numbers.

    Neurons have squared errors, and so has a model whose loss is not known.
    """
    loss = get_loss(getattr(model, "loss", "squared"))
    if loss.is_quadratic:
        return squared_errors(y, predicted)
    # Counts are predicted by the exponential of the score.
    scores = np.log(predicted) if loss.name == "poisson" else predicted
    return np.asarray(loss.value(np.asarray(scores, dtype=float), np.asarray(y, dtype=float)))
