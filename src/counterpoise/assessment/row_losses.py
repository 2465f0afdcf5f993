"""The loss of every row that a model minimises."""

from __future__ import annotations

from typing import Any

import numpy as np

from counterpoise.assessment.metrics import squared_errors
from counterpoise.losses import Loss, get_loss
from counterpoise.rows.classes import class_numbers

Array = np.ndarray


def row_losses(model: Any, X: Any, y: Any) -> Array:
    """Compute the losses of rows under a fitted model, without its ridge."""
    if hasattr(model, "classes_"):
        loss: Loss = model.loss_
        return np.asarray(loss.value(model.decision_function(X), class_numbers(y, model.classes_)))
    return prediction_losses(model, y, model.predict(X))


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
