"""The usual recipe in PyTorch: exponentiated gradient on the weights, Adam on the model."""

from __future__ import annotations

from itertools import count, product

from solvers.scaled import Scaled, unit

NAME = "torch_groupdro"
TITLE = "PyTorch GroupDRO (Adam)"
ENVIRONMENT = "torch"
SETTINGS = [{"lr": lr, "eta": eta} for lr, eta in product((0.003, 0.01, 0.03, 0.1), (0.1, 1.0))]


def refuses(shape):
    return None


def run(problem, record, lr, eta):
    import torch

    nu = problem.nu / unit(problem) ** 2
    logs = torch.zeros(problem.n_groups)

    def weigh(losses):
        logs.add_(eta * losses).div_(1.0 + eta * nu)
        return torch.softmax(logs, 0)

    descend(problem, record, lr, weigh)


def descend(problem, record, lr, weigh):
    """Adam on the losses weighted by ``weigh(losses)``, full batch, single precision."""
    import torch

    scaled = Scaled(problem)
    Z = torch.tensor(scaled.Z, dtype=torch.float32)
    t = torch.tensor(scaled.t, dtype=torch.float32)
    groups = torch.repeat_interleave(torch.as_tensor(scaled.counts))
    counts = torch.tensor(scaled.counts, dtype=torch.float32)
    v = torch.tensor(scaled.start(), dtype=torch.float32, requires_grad=True)
    adam = torch.optim.Adam([v], lr=lr)
    total, since = torch.zeros_like(v), 0

    def row_losses(score):
        if problem.model == "logistic":
            return torch.nn.functional.softplus(score) - t * score
        return ((torch.relu(score) if problem.model == "relu" else score) - t) ** 2

    for step in count(1):
        losses = torch.zeros(problem.n_groups).index_add(0, groups, row_losses(Z @ v)) / counts
        with torch.no_grad():
            weights = weigh(losses)
        adam.zero_grad()
        (weights @ losses).backward()
        adam.step()
        if step & (step - 1) == 0:
            total, since = torch.zeros_like(v), 0
        total, since = total + v.detach(), since + 1
        record(
            lambda: scaled.back(v.detach().double().numpy()),
            lambda s=total, n=since: scaled.back((s / n).double().numpy()),
        )
