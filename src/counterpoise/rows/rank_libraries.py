"""Libraries that connect ranks: functions of torch.distributed and of MPI for collectives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from counterpoise.common.packages import not_installed

Array = np.ndarray
Exchange = Callable[[Array], Array]
Ranks = tuple[int, int, Exchange, Exchange]


def torch_ranks(group: Any) -> Ranks:
    """Return rank, size, all-gather and all-to-all of a process group."""
    import torch
    import torch.distributed as dist

    if not (dist.is_available() and dist.is_initialized()):
        raise RuntimeError(
            "torch.distributed has no process group; call torch.distributed.init_process_group "
            "first, and start the script with torchrun"
        )
    size = dist.get_world_size(group)
    # NCCL takes tensors on the card of this rank, and gloo those on the CPU.
    served = [pair.split(":")[0] for pair in dist.get_backend_config(group).split(",")]
    kind = "cpu" if "cpu" in served else served[0]
    device = torch.device("cpu") if kind == "cpu" else torch.device(
        kind, getattr(torch, kind).current_device()
    )  # fmt: skip

    def allgather(values: Array) -> Array:
        mine = torch.from_numpy(np.array(values)).to(device)
        found = [torch.empty_like(mine) for _ in range(size)]
        dist.all_gather(found, mine, group=group)
        return torch.stack(found).cpu().numpy()

    def alltoall(values: Array) -> Array:
        mine = torch.from_numpy(np.array(values)).to(device)
        found = torch.empty_like(mine)
        dist.all_to_all_single(found, mine, group=group)
        return found.cpu().numpy()

    return dist.get_rank(group), size, allgather, alltoall


def mpi_ranks(comm: Any) -> Ranks:
    """Return rank, size, all-gather and all-to-all of a communicator."""
    if comm is None:
        try:
            from mpi4py import MPI
        except ImportError as error:  # also if there is no MPI library
            raise not_installed("Collective.mpi needs", "mpi4py", error=error) from None

        comm = MPI.COMM_WORLD

    def allgather(values: Array) -> Array:
        found = np.empty((comm.Get_size(), *values.shape))
        comm.Allgather(np.ascontiguousarray(values), found)
        return found

    def alltoall(values: Array) -> Array:
        found = np.empty_like(values)
        comm.Alltoall(np.ascontiguousarray(values), found)
        return found

    return comm.Get_rank(), comm.Get_size(), allgather, alltoall
