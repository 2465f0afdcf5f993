"""Multiply losses by the factors of their groups: the one way to put weights on a loss."""

from __future__ import annotations

import numpy as np
import torch

from counterpoise.torch.checks import is_overlapping

Array = np.ndarray


def weigh_losses(losses: torch.Tensor, codes: torch.Tensor, factor_K: Array) -> torch.Tensor:
    """Multiply each loss by its group's factor, in single precision at least.

    With samples drawn by shares ``q`` and weights ``lam``, the factors ``lam / q`` turn a plain
    mean over samples into an unbiased estimate of the weighted sum of group means.

    Parameters
    ----------
    losses : tensor of shape (B,)
    codes : integer tensor of shape (B,)
        Groups from 0 to ``K - 1``; ``K`` for strays, whose factor is 0. For groups that overlap, a
        floating-point tensor of memberships, of shape (B, K): factors are added up by share.
    factor_K : array of shape (K,)

    Examples
    --------
    >>> import numpy as np, torch
    >>> losses, codes = torch.tensor([1.0, 2.0, 4.0]), torch.tensor([0, 1, 1])
    >>> weigh_losses(losses, codes, np.array([2.0, 0.5])).tolist()
    [2.0, 1.0, 2.0]
    """
    wide = wide_dtype(losses)
    factors = torch.tensor([*factor_K.tolist(), 0.0], dtype=wide)
    factors = factors.to(losses.device, non_blocking=True)
    if is_overlapping(codes):
        return losses.to(wide) * (codes.to(wide) @ factors[: codes.shape[-1]])
    return losses.to(wide) * factors[codes]


def wide_dtype(losses: torch.Tensor) -> torch.dtype:
    """The losses' type, or single precision if that is wider."""
    return torch.promote_types(losses.dtype, torch.float32)
