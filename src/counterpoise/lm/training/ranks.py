"""Where a run takes place: device and ranks, and the model spread over them."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from counterpoise.lm.training.model import blocks_of
from counterpoise.lm.training.settings import TrainSettings

PATIENCE = timedelta(hours=2)  # while the first rank writes a checkpoint to a slow disk


def is_first() -> bool:
    """Whether this process speaks for all, also before and after they are set up."""
    return int(os.environ.get("RANK", "0")) == 0


@dataclass(frozen=True)
class Place:
    """This process's device and number among all of a run."""

    device: torch.device
    rank: int = 0
    world: int = 1

    @property
    def first(self) -> bool:
        return self.rank == 0

    def any(self, flag: bool) -> bool:
        """Whether a flag is up on any rank; all must ask."""
        if self.world == 1:
            return flag
        found = torch.tensor(float(flag), device=self.device)
        dist.all_reduce(found, op=dist.ReduceOp.MAX)
        return bool(found.item())

    def first_does(self, act: Callable[[], Any]) -> None:
        """Let the first rank do something; an error of its is an error of all."""
        problem: Exception | None = None
        if self.first:
            try:
                act()
            except Exception as error:
                problem = error
        if self.world > 1:
            told = [None if problem is None else f"{type(problem).__name__}: {problem}"]
            dist.broadcast_object_list(told, 0)
            if told[0] is not None and problem is None:
                raise RuntimeError(f"the first rank failed: {told[0]}")
        if problem is not None:
            raise problem

    def wait(self) -> None:
        if self.world > 1:
            dist.barrier()

    def precise(self, precision: str) -> AbstractContextManager[Any]:
        """The context of a forward pass."""
        if precision == "bf16":
            return torch.autocast(self.device.type, torch.bfloat16)
        return contextlib.nullcontext()


@contextlib.contextmanager
def take_place(threads: int | None = None) -> Iterator[Place]:
    """The place of this process: ranks where torchrun started them, a card where there is one."""
    before = torch.get_num_threads()
    if threads is not None:
        torch.set_num_threads(threads)
    ranked = "RANK" in os.environ and "WORLD_SIZE" in os.environ
    mine = ranked and not dist.is_initialized()
    device = torch.device("cpu")
    if torch.cuda.is_available():
        device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
        torch.cuda.set_device(device)
    try:
        if mine:
            backend = "nccl" if device.type == "cuda" else "gloo"
            dist.init_process_group(backend, timeout=PATIENCE)
        if dist.is_initialized():
            yield Place(device, dist.get_rank(), dist.get_world_size())
        else:
            yield Place(device)
    finally:
        torch.set_num_threads(before)
        if mine and dist.is_initialized():
            dist.destroy_process_group()


def spread(model: Any, place: Place, train: TrainSettings) -> Any:
    """The model on its device, compiled if asked for, sharded or doubled over the ranks."""
    model.to(place.device)
    if place.world == 1 or train.parallel == "ddp":
        if train.compile:
            model.compile()
        if place.world == 1:
            return model
        devices = [place.device] if place.device.type == "cuda" else None
        return torch.nn.parallel.DistributedDataParallel(model, device_ids=devices)
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    mesh = init_device_mesh(place.device.type, (place.world,))
    half = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    policy = half if train.precision == "bf16" else MixedPrecisionPolicy()
    for block in blocks_of(model):
        if train.compile:
            block.compile()
        fully_shard(block, mesh=mesh, mp_policy=policy)
    return fully_shard(model, mesh=mesh, mp_policy=policy)


@contextlib.contextmanager
def accumulating(model: Any, last: bool) -> Iterator[None]:
    """Gradients travel between ranks with the last part of a batch only."""
    if hasattr(model, "set_requires_gradient_sync"):
        model.set_requires_gradient_sync(last)
        yield
    elif not last and hasattr(model, "no_sync"):
        with model.no_sync():
            yield
    else:
        yield
