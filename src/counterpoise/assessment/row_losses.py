"""Losses of rows, from predictions of numbers."""

from __future__ import annotations

from typing import Any

import numpy as np

from counterpoise.assessment.metrics import squared_errors

Array = np.ndarray


def prediction_losses(model: Any, y: Array, predicted: Array) -> Array:
    """Compute the loss of every row that a model of numbers minimises, from its predictions.

    This is the squared error for neurons and wherever the loss is not known.
    """
    loss = getattr(model, "loss", "squared")
    if loss == "squared" or getattr(model, "activation", None) is not None:
        return squared_errors(y, predicted)
    from counterpoise.losses import get_loss

    found = get_loss(loss)
    # Counts are predicted by the exponential of the score.
    scores = np.log(predicted) if found.name == "poisson" else predicted
    return np.asarray(found.value(np.asarray(scores, dtype=float), np.asarray(y, dtype=float)))
