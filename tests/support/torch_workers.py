"""Tasks that two processes run for the tests of `GroupDROLoss`; see `ranks.run_ranks`.

    torch_workers.py FILE

Each rank writes what it found to FILE.RANK.
"""

from __future__ import annotations

import gc
import sys

import numpy as np
import torch
import torch.distributed as dist

from counterpoise import Reweighter
from counterpoise.torch import GroupDROLoss, group_sums, reduce_checked, reduce_sums

NAMES = ["a", "b", "c"]
STEPS, ROWS = 6, 24


def model():
    torch.manual_seed(0)
    return torch.nn.Sequential(
        torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1)
    ).double()


def batch(t):
    """The whole batch of step t: groups are sorted, so that halves hold different ones."""
    rng = np.random.default_rng(t)
    g = np.sort(rng.choice(3, ROWS, p=[0.6, 0.3, 0.1]))
    X = rng.normal(size=(ROWS, 4)) + g[:, None]
    y = X @ [1.0, -1.0, 0.5, 0.0] * (g + 1)
    return torch.tensor(X), torch.tensor(y), torch.tensor(g)


def per_row(net, X, y):
    return (net(X).squeeze(1) - y) ** 2


def part(tensors, rank, world):
    """A third of the rows to rank 0, the rest to rank 1; all where there is one process."""
    cut = ROWS if world == 1 else ROWS // 3
    rows = slice(0, cut) if rank == 0 else slice(cut, ROWS)
    return [t[rows] for t in tensors]


def criterion(**options):
    return GroupDROLoss(Reweighter(NAMES, step=0.05, smoothing=0.01), **options)


def train(net, loss, rank=0, world=1, micro=1):
    """Steps of SGD on this rank's part of every batch."""
    optimiser = torch.optim.SGD(net.parameters(), lr=0.02)
    for t in range(STEPS):
        X, y, g = part(batch(t), rank, world)
        counts = loss.count(g) if micro > 1 else None
        optimiser.zero_grad()
        for rows in torch.arange(len(y)).chunk(micro):
            loss(per_row(net, X[rows], y[rows]), g[rows], counts=counts).backward()
        optimiser.step()


def parameters(net):
    return {k: getattr(v, "full_tensor", lambda v=v: v)() for k, v in net.state_dict().items()}


def ddp(rank, world, micro=1):
    loss, net = criterion(accumulate=micro), model()
    wrapped = torch.nn.parallel.DistributedDataParallel(net)
    train(wrapped, loss, rank, world, micro)
    return {"model": parameters(net), "loss": loss.state_dict()}


def ddp_accumulated(rank, world):
    return ddp(rank, world, micro=2)


def fsdp(rank, world):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    loss, net = criterion(), model()
    fully_shard(net, mesh=init_device_mesh("cpu", (world,)))
    train(net, loss, rank, world)
    return {"model": parameters(net), "loss": loss.state_dict()}


def shares(rank, world):
    """The gradient that ranks share, of losses that are the parameter times known numbers."""
    loss, found = criterion(shares=[0.5, 0.3, 0.2]), torch.ones(1, requires_grad=True)
    numbers = torch.arange(1.0, 5.0) + 4 * rank
    value = loss(found * numbers, torch.tensor([0, 1, 2, 0]))
    value.backward()
    gradient = reduce_sums(found.grad) / world
    return {"gradient": gradient, "value": value.detach(), "loss": loss.state_dict()}


def shown(rank, world):
    """What the loss shows of groups that differ between ranks, in both modes."""
    loss, losses = criterion(), torch.arange(1.0, 4.0) + 10 * rank
    groups = torch.tensor([0, 1, 1 + rank])
    training = loss(losses, groups).item()
    return {"training": training, "eval": criterion().eval()(losses, groups).item()}


def faults(rank, world):
    """Errors that both ranks must raise, and what goes on after them."""
    said = []

    def attempt(call):
        try:
            call()
        except (RuntimeError, ValueError) as error:
            said.append(str(error))
        else:
            said.append("")

    unlike = GroupDROLoss(Reweighter(NAMES, start=[0.5, 0.3, 0.2] if rank else None))
    losses, groups = torch.ones(3), torch.tensor([0, 1, 2])
    attempt(lambda: unlike(losses, groups))
    order = GroupDROLoss(Reweighter(NAMES[::-1] if rank else NAMES))
    attempt(lambda: order(losses, groups))
    stray = criterion()
    attempt(lambda: stray(losses, groups + rank))  # a code 3 on rank 1 alone
    attempt(lambda: stray(losses, groups))
    attempt(lambda: reduce_checked(torch.ones(2, dtype=torch.float64), b"same"))
    sums, counts = group_sums(losses * (rank + 1), groups.clamp(max=1), 3)
    return {"said": said, "sums": reduce_sums(sums), "counts": reduce_sums(counts)}


def empty(rank, world):
    """One rank has no rows, and one all-reduce serves a batch."""
    calls, reduce = [], dist.all_reduce
    dist.all_reduce = lambda *a, **k: (calls.append(a[0].shape), reduce(*a, **k))
    loss = criterion()
    x = torch.ones(2 * rank, requires_grad=True)
    loss(2 * x, torch.zeros(2 * rank, dtype=torch.long)).backward()
    return {"calls": [list(s) for s in calls], "losses": loss.last.losses.tolist()}


TASKS = [ddp, ddp_accumulated, fsdp, shares, shown, faults, empty]


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    found = {task.__name__: task(rank, world) for task in TASKS}
    torch.save(found, f"{sys.argv[1]}.{rank}")
    gc.collect()  # no wrapped model may outlive the process group
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
