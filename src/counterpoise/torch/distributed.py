"""Sum and count losses per group over all ranks, in one all-reduce of a few doubles."""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist

from counterpoise.torch.checks import dims_of, is_overlapping

DIGEST_BITS = 18  # sums of squares of such numbers are exact in double for 2**17 ranks

# How gloo, NCCL and the store say that another rank is gone, or has not answered in time.
_LOST = re.compile(
    r"\b(gloo|nccl)\b|connection (was )?(closed|reset|refused|aborted)|broken pipe"
    r"|timed out waiting",
    re.IGNORECASE,
)
# How NCCL says that this rank was started wrongly, for instance on the card of another.
_MISUSED = re.compile(r"ncclInvalid(Usage|Argument)|duplicate gpu|out of memory", re.IGNORECASE)


class LostRank(RuntimeError):
    """Another rank was lost, so the ranks cannot go on together."""

    logged = False  # whether the log has it already


class FirstRankFailed(RuntimeError):
    """The first rank failed at something that it did for all; its error is quoted."""


def is_lost_rank(error: BaseException) -> bool:
    """Return whether an error of torch.distributed means that another rank is gone or too late."""
    if isinstance(error, LostRank):
        return False
    kinds = [getattr(dist, name, None) for name in ("DistNetworkError", "DistStoreError")]
    if isinstance(error, tuple(kind for kind in kinds if kind is not None)):
        return True
    plain = type(error) is RuntimeError or type(error).__name__ == "DistBackendError"
    text = str(error)
    return plain and _LOST.search(text) is not None and _MISUSED.search(text) is None


def first_line(error: BaseException) -> str:
    """Return the first line of an error, of at most 200 characters; its type if it has no text.

    >>> first_line(RuntimeError("Connection reset by peer\\nframe #0")), first_line(OSError())
    ('Connection reset by peer', 'OSError')
    """
    lines = str(error).strip().splitlines()
    return lines[0][:200] if lines else type(error).__name__


@contextmanager
def naming_lost_ranks(doing: str, group: Any = None) -> Iterator[None]:
    """Raise `LostRank` instead of the backend's error if another rank is gone or too late."""
    try:
        yield
    except Exception as error:
        if not is_lost_rank(error):
            raise
        raise LostRank(
            f"rank {rank_of(group)} of {world_size(group)} lost another rank while {doing}: it was "
            "killed, or did not answer within the timeout of init_process_group. Look at the logs "
            f"of the other ranks and resume from the last checkpoint ({first_line(error)})"
        ) from error


def world_size(group: Any = None) -> int:
    """Return the number of ranks in a process group; 1 if there is none."""
    if dist.is_available() and dist.is_initialized():
        return int(dist.get_world_size(group))
    return 1


def rank_of(group: Any = None) -> int:
    """Return this process's rank in a process group; 0 if there is none."""
    if dist.is_available() and dist.is_initialized():
        return int(dist.get_rank(group))
    return 0


def group_sums(
    losses: torch.Tensor, codes: torch.Tensor, K: int, mask: torch.Tensor | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Sum and count the losses of each group on this rank, in double, without gradients.

    Parameters
    ----------
    losses : tensor of shape (B,) or (B, T, ...)
        One per example, or one per token.
    codes : integer tensor of shape (B,)
        Groups from 0 to ``K - 1``; may have more of the losses' leading dimensions. For groups
        that overlap, a floating-point tensor of memberships, of shape (B, K): a loss then counts
        in each group by its share.
    K : int
    mask : bool tensor of the losses' shape, optional
        False where a loss does not count, whatever its value.

    Returns
    -------
    sums, counts : float64 tensors of shape (K,)
        On the losses' device; on the CPU if that device has no doubles (MPS).

    Examples
    --------
    >>> import torch
    >>> losses, codes = torch.tensor([1.0, 2.0, 4.0]), torch.tensor([0, 2, 2])
    >>> [t.tolist() for t in group_sums(losses, codes, 3)]
    [[1.0, 0.0, 6.0], [1.0, 0.0, 2.0]]
    """
    losses = losses.detach()
    counted = torch.ones_like(losses, dtype=torch.bool) if mask is None else mask
    if losses.device.type == "mps":
        losses, counted, codes = losses.cpu(), counted.cpu(), codes.cpu()
    inner = tuple(range(dims_of(codes), losses.ndim))
    losses = losses.masked_fill(~counted, 0.0)
    if inner:  # sum rows first, so that fewer numbers are scattered
        rows = losses.sum(inner, dtype=torch.float64), counted.sum(inner, dtype=torch.float64)
    else:
        rows = losses.double(), counted.double()
    if is_overlapping(codes):
        shares = codes.reshape(-1, K).double()
        return rows[0].flatten() @ shares, rows[1].flatten() @ shares
    table = torch.zeros(2, K, dtype=torch.float64, device=losses.device)
    table.index_add_(1, codes.flatten().long(), torch.stack([r.flatten() for r in rows]))
    return table[0], table[1]


def reduce_sums(values: torch.Tensor, group: Any = None) -> torch.Tensor:
    """Sum ``values`` over all ranks with one all-reduce; without other ranks, return them.

    They travel on a device that the backend serves (a card for NCCL, the CPU for gloo) and return
    to their own. Every rank must call.
    """
    if world_size(group) == 1:
        return values
    device = _device_for(values.device, group)
    total = values.detach().to(device, copy=True)
    with naming_lost_ranks("losses were summed over the ranks", group):
        dist.all_reduce(total, group=group)
    return total.to(values.device)


def first_of(values: torch.Tensor, group: Any = None) -> torch.Tensor:
    """Return the values of the first rank of a process group; every rank must call."""
    if world_size(group) == 1:
        return values
    found = values.detach().to(_device_for(values.device, group), copy=True)
    first = 0 if group is None else dist.get_global_rank(group, 0)
    with naming_lost_ranks("losses were shared", group):
        dist.broadcast(found, first, group=group)
    return found.to(values.device)


def reduce_checked(values: torch.Tensor, same: bytes, group: Any = None) -> torch.Tensor:
    """Sum double values over ranks, on the CPU, and check that all ranks hold ``same``.

    A digest ``d`` of it and ``d * d`` travel in the same all-reduce. All digests are equal if and
    only if ``world * sum(d * d) == sum(d) ** 2``. Every rank sees these sums, so all ranks raise
    the same error and none waits for another.
    """
    if values.dtype != torch.float64:
        raise TypeError(f"values must be float64; got {values.dtype}; use values.double()")
    world = world_size(group)
    if world == 1:
        return values.detach().cpu()
    d = zlib.crc32(same) % 2**DIGEST_BITS
    digests = torch.tensor([d, d * d], dtype=torch.float64).to(values.device, non_blocking=True)
    total = reduce_sums(torch.cat([values.detach().flatten(), digests]), group).cpu()
    first, second = (int(v) for v in total[-2:].tolist())
    if world * second != first * first:
        raise RuntimeError(
            f"group weights are not the same on all {world} ranks; build the Reweighter alike on "
            "every rank (domains, start and options), and load the same state on every rank"
        )
    return total[:-2].reshape(values.shape)


def _device_for(device: torch.device, group: Any) -> torch.device:
    """Choose a device that the backend serves: this one if possible."""
    served = [pair.split(":")[0] for pair in dist.get_backend_config(group).split(",")]
    if device.type in served:
        return device
    if "cpu" in served:
        return torch.device("cpu")
    kind = served[0]
    return torch.device(kind, getattr(torch, kind).current_device())
