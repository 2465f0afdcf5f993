"""Processes of a run: their ranks and devices, and how they meet and part."""

from __future__ import annotations

import contextlib
import faulthandler
import gc
import itertools
import logging
import os
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from counterpoise.common.stopping import STOPPED, Stopped
from counterpoise.lm.training.settings import TIMEOUT
from counterpoise.lm.training.watch import KEPT, Watch
from counterpoise.torch.distributed import FirstRankFailed, LostRank, first_line, is_lost_rank

# For one exchange between ranks that all show signs of life: the first may write a checkpoint to a
# slow disk meanwhile. Lost ranks are noticed sooner; see `watch`.
PATIENCE = timedelta(hours=2)
TEAR_DOWN = 60.0  # seconds
RECONNECT = 30.0  # seconds for one attempt

logger = logging.getLogger("counterpoise")

_joined = itertools.count()
_nothing_follows: list[bool] = []
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
                raise FirstRankFailed(f"the first rank failed: {told[0]}")
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
    end = Ending(0) if _nothing_follows else Ending(1, "run the same command again")
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
        end, lost = _ending(error, watch)
        if lost is not None:
            raise lost from error
        raise
    finally:
        torch.set_num_threads(before)
        if watch is not None:
            if end.failed:
                watch.linger()
            watch.stop()
            _watching.remove(watch)
        if mine and dist.is_initialized():
            with _bounded(TEAR_DOWN, end):
                gc.collect()
                dist.destroy_process_group()


def _meet(device: torch.device, seconds: float) -> Watch:
    """Make the process group, and watch its ranks from the moment they meet."""
    patience = timedelta(seconds=seconds)
    address, port = os.environ.get("MASTER_ADDR", "localhost"), os.environ.get("MASTER_PORT", "0")
    by_agent = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    host = f"{'the launcher' if by_agent else 'rank 0'} at {address}:{port}"
    attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    prefix = f"counterpoise/{attempt}/{next(_joined)}"

    def connect() -> Any:
        waiting = min(seconds, RECONNECT)
        with socket.create_connection((address, int(port)), waiting):
            pass  # a store would try for long, and say nothing of a host that refuses
        short = timedelta(seconds=waiting)
        own = _dist.TCPStore(address, int(port), None, False, short, wait_for_workers=False)
        return _dist.PrefixStore(prefix, own)

    began = time.monotonic()
    try:  # ValueError: a variable of the environment is missing
        store, rank, world = next(_dist.rendezvous("env://", timeout=patience))
        watch = Watch(connect, rank, world, seconds, host, rank == 0 and not by_agent)
    except (RuntimeError, OSError) as error:
        late = time.monotonic() - began >= seconds or "timed out" in str(error)
        raise LostRank(_apart(host, first_line(error), seconds if late else None)) from None
    watch.start()
    try:
        watch.gather()
        backend = "nccl" if device.type == "cuda" else "gloo"
        store.set_timeout(PATIENCE)
        dist.init_process_group(backend, store=store, rank=rank, world_size=world, timeout=PATIENCE)
    except BaseException as error:
        lost = isinstance(error, Exception) and is_lost_rank(error)
        said = watch.explain(error) if lost else None
        watch.stop()
        if said is not None:
            raise LostRank(said) from error
        raise
    return watch


def _apart(host: str, why: str, seconds: float | None) -> str:
    """Say that the ranks did not meet: in time, or at all."""
    if seconds is None:
        return (
            f"the ranks could not meet through {host}: {why}. Check MASTER_ADDR, or choose another "
            "MASTER_PORT"
        )
    return (
        f"the ranks did not meet within {seconds:g} s (train.timeout) through {host}: {why}. Start "
        "all ranks, or raise train.timeout"
    )


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
def nothing_follows() -> Iterator[None]:
    """Within this block, all is done when the ranks part without an error.

    If they do not part in time, the exit code is then 0.
    """
    _nothing_follows.append(True)
    try:
        yield
    finally:
        _nothing_follows.pop()


@dataclass(frozen=True)
class Ending:
    """How the ranks' work ended: the exit code, and what is still to be said about it.

    It does not hold the error, whose frames hold the model.
    """

    code: int
    words: str = ""
    failed: bool = False


def _ending(error: BaseException, watch: Watch | None) -> tuple[Ending, LostRank | None]:
    """Tell the other ranks of an error; return how this one ends, and what to raise instead."""
    if is_lost_rank(error) or (watch is not None and isinstance(error, LostRank)):
        cause = error if error.__cause__ is None else error.__cause__
        if watch is None:  # an outer call may know more
            said = f"another rank is gone, or too late. {KEPT} ({first_line(cause)})"
            return Ending(1), LostRank(said)
        lost = LostRank(watch.explain(cause))
        logger.critical("error: %s", lost)  # now, since to part from a lost rank may take long
        lost.logged = True
        return Ending(1, failed=True), lost
    if isinstance(error, Stopped):
        return Ending(STOPPED, str(error)), None
    if isinstance(error, GeneratorExit):  # the caller needs no more
        return Ending(1), None
    if watch is not None:
        watch.report(error)
    code = 130 if isinstance(error, KeyboardInterrupt) else 1
    return Ending(code, f"error: {type(error).__name__}: {error}", failed=True), None


@contextlib.contextmanager
def _bounded(seconds: float, end: Ending) -> Iterator[None]:
    """End the process if the block takes longer, even while no Python code can run.

    All that a run leaves behind has been written by then.
    """

    def give_up() -> None:
        said = end.words or ("" if end.code else "everything is written")
        logger.critical("the ranks did not part within %g s. %s", seconds, said)
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):
                stream.flush()
        os._exit(end.code)

    timer = threading.Timer(seconds, give_up)
    timer.daemon = True
    # While a thread keeps the others from running, only this ends the process.
    faulthandler.dump_traceback_later(2 * seconds, exit=True, file=sys.__stderr__ or sys.stderr)
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        faulthandler.cancel_dump_traceback_later()


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
