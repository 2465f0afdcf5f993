"""dro's GroupNNDRO: it has no ReLU neuron, but a network of ReLUs, timed as what it is."""

from __future__ import annotations

import numpy as np
from objectives.risk import group_means, risk_of_losses

from solvers.dro_group import without_torchvision
from solvers.scaled import Scaled

NAME = "dro_mlp"
TITLE = "dro GroupNNDRO (an MLP)"
ENVIRONMENT = "dro"
NOTE = "not a neuron: a network with two hidden layers, and the group's number as a feature"
SAME_MODEL = False
LARGEST = 1_000_000
LEVELS = [{"epochs": epochs} for epochs in (1, 3, 10)]


def refuses(shape):
    if shape.model != "relu":
        return "see dro GroupDRO"
    if shape.nu:
        return "no divergence between groups"
    if shape.n * shape.d > LARGEST:
        return f"not tried: more than {LARGEST:,} numbers"
    return None


def _features(problem):
    """Rows with the group's number, scaled, as the last feature; rows of a group together."""
    scaled = Scaled(problem)
    code = np.repeat(np.arange(problem.n_groups), scaled.counts)
    scaled.Z[:, -1] = code / max(problem.n_groups - 1, 1)
    return scaled


def fit(problem, epochs):
    without_torchvision()
    import torch
    from dro.neural_model import GroupNNDRO

    torch.manual_seed(0)
    scaled = _features(problem)
    d = scaled.Z.shape[1]
    model = GroupNNDRO(d, 1, group_idx=d - 1, task_type="regression", step_size=0.1,
                       device=torch.device("cpu"))  # fmt: skip
    # float32 codes, so that each batch finds the categories that fit() saw.
    model.fit(scaled.Z.astype(np.float32), scaled.t, train_ratio=0.99, lr=3e-3, batch_size=256,
              epochs=epochs, verbose=False)  # fmt: skip
    return model


def score(problem, model):
    scaled = _features(problem)
    predictions = np.empty(len(problem.y))
    order = np.argsort(problem.groups, kind="stable")
    predictions[order] = scaled.unit * model.predict(scaled.Z.astype(np.float32))
    return risk_of_losses(group_means(problem, (predictions - problem.y) ** 2), problem.nu)
