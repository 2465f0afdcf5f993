"""dro's linear GroupDRO: the worst group by a cone program with every row in it."""

from __future__ import annotations

import sys
from unittest.mock import MagicMock

import numpy as np
from objectives.risk import group_losses, risk_of_losses, scores

from solvers.cvxpy_rows import LARGEST
from solvers.scaled import Scaled

NAME = "dro_group"
TITLE = "dro GroupDRO"
ENVIRONMENT = "dro"
NOTE = "has one coefficient more: the group's number must be a feature"
SAME_MODEL = False
LEVELS = [{}]  # it offers no tolerance


def refuses(shape):
    if shape.model == "relu":
        return "no ReLU neuron (see its MLP)"
    if shape.nu:
        return "no divergence between groups"
    if shape.n * shape.d > LARGEST:
        return f"not tried: more than {LARGEST:,} numbers in the cone program"
    return None


def without_torchvision():
    """Let dro be imported where torchvision, which it needs for images only, does not load.

    Its wheels are made for one build of torch and fail beside another, such as a CPU one.
    """
    try:
        import torchvision  # noqa: F401
    except (ImportError, RuntimeError):
        for name in [name for name in sys.modules if name.split(".")[0] == "torchvision"]:
            del sys.modules[name]
        for name in ("torchvision", "torchvision.models", "torchvision.transforms"):
            sys.modules[name] = MagicMock(name=name)


def fit(problem):
    without_torchvision()
    from dro.linear_model import GroupDRO

    scaled = Scaled(problem)
    scaled.Z[:, -1] = np.repeat(np.arange(problem.n_groups), scaled.counts)
    d = scaled.Z.shape[1]
    classes = problem.model == "logistic"
    kind, labels = ("logistic", 2.0 * scaled.t - 1.0) if classes else ("ols", scaled.t)
    model = GroupDRO(input_dim=d, group_idx=d - 1, model_type=kind, solver="CLARABEL")
    model.fit(scaled.Z, labels)
    return np.asarray(model.theta, float), float(np.squeeze(model.b))


def score(problem, model):
    theta, intercept = model
    scaled = Scaled(problem)
    w = scaled.back(np.append(theta[:-1], intercept))
    extra = scaled.unit * theta[-1] * problem.groups
    return risk_of_losses(group_losses(problem, scores(problem, w) + extra), problem.nu)
