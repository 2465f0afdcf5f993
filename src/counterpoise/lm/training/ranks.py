"""Processes of a run: their ranks and devices, and the model spread over them."""

from __future__ import annotations

import contextlib
import faulthandler
import gc
import itertools
import os
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from counterpoise.common.stopping import Stopped
from counterpoise.lm.training.model import blocks_of
from counterpoise.lm.training.settings import TIMEOUT, TrainSettings
from counterpoise.lm.training.watch import KEPT, Watch
from counterpoise.torch.distributed import LostRank, is_lost_rank

# For one exchange between ranks that all show signs of life: the first may write a checkpoint to a
# slow disk meanwhile. Lost ranks are noticed sooner; see `watch`.
PATIENCE = timedelta(hours=2)
TEAR_DOWN = 60.0  # seconds

_joined = itertools.count()
_watching: list[Watch] = []  # calls of `join_ranks` can be nested; the outermost one watches
_dist: Any = dist  # its types lack what it exports


def is_first() -> bool:
    """Whether this process reports for all ranks; also before they have met."""
    return int(os.environ.get("RANK", "0")) == 0


@dataclass(frozen=True)
class Process:
    """One process of a run: its device, its rank and the number of ranks."""

    device: torch.device
    rank: int = 0
    world: int = 1
    watch: Watch | None = None

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
            writing = contextlib.nullcontext() if self.watch is None else self.watch.writing
            try:
                with writing:
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
def join_ranks(threads: int | None = None, seconds: float = TIMEOUT) -> Iterator[Process]:
    """Join the ranks that torchrun started, if it did; use a card if there is one.

    A rank that shows no sign of life for ``seconds`` ends the others: with `LostRank`, or, if their
    main thread waits for it in vain, with a message and exit code 1.

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
    watch: Watch | None = None
    try:
        if mine:
            watch = _meet(device, seconds)
            _watching.append(watch)
        if dist.is_initialized():
            outer = _watching[-1] if _watching else None
            yield Process(device, dist.get_rank(), dist.get_world_size(), outer)
        else:
            yield Process(device)
        if mine:  # not after an error, when other ranks may never arrive
            gc.collect()
            dist.barrier()
    except BaseException as error:
        if mine:
            _clear_frames(error)  # their variables hold the model
        if is_lost_rank(error) or (watch is not None and isinstance(error, LostRank)):
            said = f"another rank is gone, or too late. {KEPT}"  # an outer call may know more
            raise LostRank(said if watch is None else watch.explain()) from error
        if watch is not None and not isinstance(error, Stopped):
            watch.report(f"{type(error).__name__}: {error}")
        raise
    finally:
        torch.set_num_threads(before)
        if watch is not None:
            watch.stop()
            _watching.remove(watch)
        if mine and dist.is_initialized():
            with _bounded(TEAR_DOWN):
                gc.collect()
                dist.destroy_process_group()


def _meet(device: torch.device, seconds: float) -> Watch:
    """Make the process group, and watch its ranks from the moment they meet."""
    patience = timedelta(seconds=seconds)
    address, port = os.environ.get("MASTER_ADDR", "localhost"), os.environ.get("MASTER_PORT", "0")
    by_agent = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    host = f"{'the launcher' if by_agent else 'rank 0'} at {address}:{port}"
    try:
        store, rank, world = next(_dist.rendezvous("env://", timeout=patience))
        own = _dist.TCPStore(address, int(port), None, False, patience, wait_for_workers=False)
    except (RuntimeError, ValueError) as error:
        if isinstance(error, ValueError):  # a variable of the environment is missing
            raise
        raise LostRank(
            f"the ranks did not meet within {seconds:g} s (train.timeout) through {host}: "
            f"{str(error).splitlines()[0][:200]}. Start all ranks, or raise train.timeout"
        ) from None
    attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    apart = _dist.PrefixStore(f"counterpoise/{attempt}/{next(_joined)}", own)
    watch = Watch(apart, rank, world, seconds, host)
    watch.start()
    try:
        watch.gather()
        backend = "nccl" if device.type == "cuda" else "gloo"
        store.set_timeout(PATIENCE)
        dist.init_process_group(backend, store=store, rank=rank, world_size=world, timeout=PATIENCE)
    except BaseException as error:
        lost = isinstance(error, Exception) and is_lost_rank(error)
        said = watch.explain() if lost else None
        watch.stop()
        if said is not None:
            raise LostRank(said) from error
        raise
    return watch


def _clear_frames(error: BaseException) -> None:
    """Clear the variables of all frames that an error and its causes passed."""
    seen: set[int] = set()
    waiting: list[BaseException | None] = [error]
    while waiting:
        one = waiting.pop()
        if one is not None and id(one) not in seen:
            seen.add(id(one))
            traceback.clear_frames(one.__traceback__)
            waiting += [one.__cause__, one.__context__]


@contextlib.contextmanager
def _bounded(seconds: float) -> Iterator[None]:
    """End the process if the block takes longer, even while no Python code can run.

    All that a run leaves behind has been written by then.
    """
    faulthandler.dump_traceback_later(seconds, exit=True, file=sys.__stderr__ or sys.stderr)
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()


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
