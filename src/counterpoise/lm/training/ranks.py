"""Processes of a run: their ranks and devices, and the model spread over them."""

from __future__ import annotations

import contextlib
import gc
import os
import traceback
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
    """Whether this process reports for all ranks; also before they have met."""
    return int(os.environ.get("RANK", "0")) == 0


@dataclass(frozen=True)
class Process:
    """One process of a run: its device, its rank and the number of ranks."""

    device: torch.device
    rank: int = 0
    world: int = 1

    @property
    def first(self) -> bool:
        return self.rank == 0

    def any(self, flag: bool) -> bool:
        """Return whether the flag is up on any rank; every rank must call."""
        if self.world == 1:
            return flag
        found = torch.tensor(float(flag), device=self.device)
        dist.all_reduce(found, op=dist.ReduceOp.MAX)
        return bool(found.item())

    def on_first_rank(self, act: Callable[[], Any]) -> None:
        """Let the first rank do something; its error is raised on every rank."""
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
        """Wait until every rank has arrived here."""
        if self.world > 1:
            dist.barrier()

    def autocast(self, precision: str) -> AbstractContextManager[Any]:
        """Context of a forward pass in this precision."""
        if precision == "bf16":
            return torch.autocast(self.device.type, torch.bfloat16)
        return contextlib.nullcontext()


@contextlib.contextmanager
def join_ranks(threads: int | None = None) -> Iterator[Process]:
    """Join the ranks that torchrun started, if it did; use a card if there is one.

    Before the process group is destroyed, everything that holds on to it must be gone. A model
    wrapped for data parallelism that outlives the group waits for the group's threads while it
    keeps them from running, and the process hangs at exit.
    """
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
            yield Process(device, dist.get_rank(), dist.get_world_size())
        else:
            yield Process(device)
        if mine:  # not after an error, when other ranks may never arrive
            gc.collect()
            dist.barrier()
    except BaseException as error:
        if mine:
            traceback.clear_frames(error.__traceback__)  # their variables hold the model
        raise
    finally:
        torch.set_num_threads(before)
        if mine and dist.is_initialized():
            gc.collect()
            dist.destroy_process_group()


def parallelize(model: Any, process: Process, train: TrainSettings) -> Any:
    """Move the model to its device, compile it if asked to, and replicate or shard it."""
    model.to(process.device)
    if process.world == 1 or train.parallel == "ddp":
        if train.compile:
            model.compile()
        if process.world == 1:
            return model
        devices = [process.device] if process.device.type == "cuda" else None
        return torch.nn.parallel.DistributedDataParallel(model, device_ids=devices)
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    mesh = init_device_mesh(process.device.type, (process.world,))
    half = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    policy = half if train.precision == "bf16" else MixedPrecisionPolicy()
    for block in blocks_of(model):
        if train.compile:
            block.compile()
        fully_shard(block, mesh=mesh, mp_policy=policy)
    return fully_shard(model, mesh=mesh, mp_policy=policy)


@contextlib.contextmanager
def gradient_sync(model: Any, last: bool) -> Iterator[None]:
    """Exchange gradients between ranks only with the last micro-batch of a step."""
    if hasattr(model, "set_requires_gradient_sync"):
        model.set_requires_gradient_sync(last)
        yield
    elif not last and hasattr(model, "no_sync"):
        with model.no_sync():
            yield
    else:
        yield
