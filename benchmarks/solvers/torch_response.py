"""Adam on the exact risk: the weights are the closed-form response to the losses.

This is how deshift works. That package is on no registry, so its oracle (for groups: a softmax,
or the worst group) is written out here.
"""

from __future__ import annotations

from solvers.scaled import unit
from solvers.torch_groupdro import descend

NAME = "torch_response"
TITLE = "PyTorch exact weights (Adam)"
ENVIRONMENT = "torch"
NOTE = "deshift's way; the package itself cannot be had from a registry"
SETTINGS = [{"lr": lr} for lr in (0.001, 0.003, 0.01, 0.03, 0.1)]


def refuses(shape):
    return None


def run(problem, record, lr):
    import torch

    nu = problem.nu / unit(problem) ** 2

    def weigh(losses):
        if nu:
            return torch.softmax(losses / nu, 0)
        return torch.nn.functional.one_hot(losses.argmax(), len(losses)).to(losses.dtype)

    descend(problem, record, lr, weigh)
