"""Check the arguments of a loss; errors name the argument, the value and the remedy.

No check waits for a device: they look at shapes and types, and at numbers on the CPU.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from counterpoise.reweight.reweighter import Reweighter

Array = np.ndarray


def encode(groups: Any, reweighter: Reweighter) -> torch.Tensor:
    """Encode groups as positions 0..K-1, from a tensor of them or from names; ``K`` for strays.

    Looking at a tensor's numbers would wait for its device. Strays are counted with the rest and
    found where the counts are read.
    """
    if isinstance(groups, (str, bytes)):
        raise ValueError(f"groups must be a sequence of names; got the single string {groups!r}")
    if not isinstance(groups, torch.Tensor):
        return torch.from_numpy(reweighter.codes(groups))
    if not _is_integer(groups):
        raise TypeError(
            "groups must be an integer tensor of positions in reweighter.domains, or a sequence "
            f"of names; got a tensor of {groups.dtype}"
        )
    codes, K = groups.long(), len(reweighter.domains)
    return torch.where((codes >= 0) & (codes < K), codes, K)


def check_losses(losses: Any, codes: torch.Tensor) -> None:
    """Check that there is one loss per example, or more, with a group each."""
    if not isinstance(losses, torch.Tensor) or not losses.dtype.is_floating_point:
        raise TypeError(f"losses must be a tensor of floating-point numbers; got {_kind(losses)}")
    if losses.ndim == 0:
        raise ValueError(
            "losses must be one per example; got a scalar, already summed or averaged; compute "
            'them with reduction="none"'
        )
    if codes.ndim == 0 or codes.shape != losses.shape[: codes.ndim]:
        raise ValueError(
            f"groups must hold one group for each example; got shape {tuple(codes.shape)} for "
            f"losses of shape {tuple(losses.shape)}"
        )


def check_mask(mask: Any, shape: torch.Size, device: torch.device) -> torch.Tensor:
    """Return which losses count, as booleans."""
    fits = isinstance(mask, torch.Tensor) and (mask.dtype == torch.bool or _is_integer(mask))
    if not fits:
        raise TypeError(
            f"mask must be a tensor of booleans or of integers 0 and 1; got {_kind(mask)}; for "
            "weights 0.0 and 1.0 use mask > 0"
        )
    if mask.shape != shape:
        raise ValueError(
            f"mask must have the shape of the losses, {tuple(shape)}; got {tuple(mask.shape)}"
        )
    return mask.to(device, torch.bool)


def check_total(found_K: Array, strays: float, expected_K: Array | None) -> None:
    """Check counts summed over ranks, which every rank sees: all of them raise, or none."""
    K = len(found_K)
    if strays:
        raise ValueError(
            f"groups must be positions 0..{K - 1} in reweighter.domains; {strays:.0f} losses of "
            "this batch had another group; check the encoding, or give names"
        )
    if expected_K is not None and not np.array_equal(found_K, expected_K):
        raise ValueError(
            f"counts={expected_K.tolist()!r} differ from those of the batch, whose calls held "
            f"{found_K.tolist()!r}; use criterion.count(groups of the whole batch), with its mask "
            "if losses are per token, and make as many calls per batch as accumulate says"
        )


def _is_integer(values: torch.Tensor) -> bool:
    dtype = values.dtype
    return not (dtype.is_floating_point or dtype.is_complex or dtype == torch.bool)


def _kind(values: Any) -> str:
    return str(values.dtype) if isinstance(values, torch.Tensor) else type(values).__name__
