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

    Groups that overlap become memberships of shape (..., K + 1), a floating-point tensor. Its last
    column marks examples whose memberships are not finite numbers >= 0.

    Looking at a tensor's numbers would wait for its device. Strays are counted with the rest and
    found where the counts are read.
    """
    if isinstance(groups, (str, bytes)):
        raise ValueError(f"groups must be a sequence of names; got the single string {groups!r}")
    if hasattr(groups, "matrix"):  # counterpoise.Memberships
        return _marked(torch.from_numpy(reweighter.memberships(groups)))
    if hasattr(groups, "toarray"):
        groups = groups.toarray()
    if isinstance(groups, np.ndarray) and groups.ndim > 1:
        groups = torch.from_numpy(groups)
    if not isinstance(groups, torch.Tensor):
        groups = list(groups)
        if any(isinstance(names, (list, tuple, set, frozenset)) for names in groups):
            # Several names for an example, or none.
            return _marked(torch.from_numpy(reweighter.memberships(groups)))
        return torch.from_numpy(reweighter.codes(groups))
    K = len(reweighter.domains)
    if not _is_integer(groups):
        if groups.dtype.is_complex or groups.ndim < 2 or groups.shape[-1] != K:
            raise TypeError(
                "groups must be an integer tensor of positions in reweighter.domains, a sequence "
                f"of names, or memberships of shape (examples, {K}); got a tensor of "
                f"{groups.dtype} of shape {tuple(groups.shape)}"
            )
        return _marked(groups)
    codes = groups.long()
    return torch.where((codes >= 0) & (codes < K), codes, K)


def _marked(memberships: torch.Tensor) -> torch.Tensor:
    """Return memberships as numbers, with a column that marks bad ones; they count as zero."""
    if memberships.dtype == torch.bool:
        memberships = memberships.float()
    good = torch.isfinite(memberships) & (memberships >= 0)
    stray = (~good).any(-1, keepdim=True)
    return torch.cat([memberships.where(good & ~stray, 0.0), stray.to(memberships.dtype)], -1)


def is_overlapping(codes: torch.Tensor) -> bool:
    """Return whether encoded groups are memberships rather than positions."""
    return codes.dtype.is_floating_point


def dims_of(codes: torch.Tensor) -> int:
    """Return how many of the losses' leading dimensions encoded groups have."""
    return codes.ndim - int(is_overlapping(codes))


def check_losses(losses: Any, codes: torch.Tensor) -> None:
    """Check that there is one loss per example, or more, with a group each."""
    if not isinstance(losses, torch.Tensor) or not losses.dtype.is_floating_point:
        raise TypeError(f"losses must be a tensor of floating-point numbers; got {_kind(losses)}")
    if losses.ndim == 0:
        raise ValueError(
            "losses must be one per example; got a scalar, already summed or averaged; compute "
            'them with reduction="none"'
        )
    dims = dims_of(codes)
    if dims == 0 or codes.shape[:dims] != losses.shape[:dims]:
        what = "memberships" if is_overlapping(codes) else "one group"
        raise ValueError(
            f"groups must hold {what} for each example; got shape {tuple(codes.shape[:dims])} for "
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
            f"groups must be positions 0..{K - 1} in reweighter.domains, or finite memberships "
            f">= 0; {strays:.0f} losses of this batch had another group; check the encoding, or "
            "give names"
        )
    # Sums of shares may differ in their last digits.
    same = expected_K is None or np.allclose(found_K, expected_K, rtol=1e-12, atol=1e-9)
    if expected_K is not None and not same:
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
