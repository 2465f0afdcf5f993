"""`GroupDROLoss`: from per-example losses and their groups to one scalar."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, cast

import numpy as np
import torch

from counterpoise.common.arguments import check_counts, check_version, check_weights
from counterpoise.reweight.reweighter import Reweighter, Update
from counterpoise.torch.checks import (
    check_losses,
    check_mask,
    check_total,
    dims_of,
    encode,
    is_overlapping,
)
from counterpoise.torch.distributed import group_sums, rank_of, reduce_checked, world_size
from counterpoise.torch.weighing import weigh_losses, wide_dtype

Array = np.ndarray

STATE_VERSION = 1


class GroupDROLoss(torch.nn.Module):
    """The weighted sum of the groups' mean losses, with weights that follow those losses.

    A call returns ``sum_g weights_g * mean_g(losses)`` with the Reweighter's weights from before
    this batch, then updates the Reweighter with the means: primal first, then dual, as in Algorithm
    1. Means are over the whole optimizer batch, that is all ranks and all micro-batches. A batch
    costs one all-reduce of two numbers per group. Nothing is updated in eval mode.

    Parameters
    ----------
    reweighter : Reweighter
        Its domains are the groups.
    accumulate : int, default 1
        Micro-batches (calls) per optimizer step; the weights move once per so many calls. Above 1,
        the counts of the whole batch must be known at its first call: pass ``counts`` to each call,
        or ``shares`` here.
    shares : sequence or mapping, optional
        Each group's share of the data. Group means are then estimated with the expected number of a
        group's examples instead of the actual number. This is unbiased even if a group is often
        absent, but noisier. All calls and ranks count alike, so they should have equally many
        examples.
    group : process group, optional
        The ranks that share a batch; the default group if None. `data_group` gives that of a
        DeviceMesh.

    Notes
    -----
    Data-parallel wrappers (DDP, FSDP) average gradients over ranks, so each rank's scalar is its
    part of the loss times the number of ranks: the mean over ranks is the loss, and the averaged
    gradient is exactly the loss's. The value that a call shows is the loss of all ranks, unless it
    is one of several micro-batches. Every rank must make the same calls, also in eval mode.

    A group that is absent from the whole batch contributes nothing, and the other weights are not
    scaled up to sum to one. Otherwise the same example would pull harder in batches that lack
    another group, and the objective would change from batch to batch. A group that is often absent
    therefore counts for less than its weight says; use ``shares`` in that case.

    Groups may overlap (see `forward`). An example in no group adds nothing to the scalar.

    Half-precision losses are summed in single precision for the scalar and in double for the
    weights. A loss that is not finite makes the scalar so, too (a ``GradScaler`` then skips the
    step), and leaves the weight of its group unchanged, with a `ReweightWarning`.

    Examples
    --------
    >>> import torch
    >>> from counterpoise import Reweighter
    >>> criterion = GroupDROLoss(Reweighter(["land", "water"]))
    >>> criterion(torch.tensor([1.0, 3.0, 4.0]), ["land", "land", "water"]).item()
    3.0
    >>> bool(criterion.weights[1] > 0.5)
    True
    """

    _pending: torch.Tensor | None  # sums and counts of an unfinished accumulation, (2, K + 1)

    def __init__(
        self,
        reweighter: Reweighter,
        *,
        accumulate: int = 1,
        shares: Any = None,
        group: Any = None,
    ) -> None:
        super().__init__()
        if not isinstance(reweighter, Reweighter):
            raise TypeError(
                f"reweighter must be a counterpoise.Reweighter; got {type(reweighter).__name__}; "
                "make one with Reweighter(names_of_the_groups)"
            )
        if not isinstance(accumulate, int) or isinstance(accumulate, bool) or accumulate < 1:
            raise ValueError(f"accumulate must be a number of calls >= 1; got {accumulate!r}")
        self.reweighter = reweighter
        self.accumulate = accumulate
        self.group = group
        self.shares: Array | None = None
        if shares is not None:
            self.shares = check_weights(shares, reweighter.domains, "shares")
        self._forget()

    @property
    def weights(self) -> Array:
        """Weights that the next call uses; a copy."""
        return self.reweighter.weights.copy()

    @property
    def last(self) -> Update | None:
        """Record of the last update of the weights."""
        return self.reweighter.last

    def forward(
        self, losses: torch.Tensor, groups: Any, *, mask: Any = None, counts: Any = None
    ) -> torch.Tensor:
        """Compute the scalar to differentiate, and update the weights.

        Parameters
        ----------
        losses : tensor of shape (B,) or (B, T, ...)
            One per example or per token, not averaged (``reduction="none"``).
        groups : integer tensor of shape (B,), sequence of names, or memberships
            An integer tensor holds positions in ``reweighter.domains``; any other sequence holds
            names. A tensor may have more of the losses' leading dimensions (a group per token).
            For groups that overlap, give memberships: a tensor of booleans or of floating-point
            shares >= 0, of shape (B, K), or a list of names for each example. The mean of a group
            is then weighted by the shares of its examples.
        mask : bool or integer tensor of the losses' shape, optional
            False or 0 where a loss does not count, as at padding or an ``ignore_index``.
        counts : sequence or mapping, optional
            Examples (tokens) of each group in the whole optimizer batch, from `count`.
        """
        codes = encode(groups, self.reweighter)
        check_losses(losses, codes)
        codes = codes.to(losses.device)
        if mask is not None:
            mask = check_mask(mask, losses.shape, losses.device)
        expected_K = None if counts is None else check_counts(counts, self.reweighter.domains)
        if self.shares is not None and counts is not None:
            raise ValueError("counts were given to a loss with shares; give only one of them")
        if self.shares is not None and is_overlapping(codes):
            raise ValueError(
                "a loss with shares takes one group per example; for memberships make it without "
                "shares, and give counts if accumulate is above 1"
            )
        known = expected_K is not None or self.shares is not None
        if self.training and self.accumulate > 1 and not known:
            raise ValueError(
                f"with accumulate={self.accumulate} the mean of a group over the whole batch needs "
                "its counts beforehand: give counts=criterion.count(groups of the whole batch) to "
                "each call, or GroupDROLoss(..., shares=each group's share of the data)"
            )
        K = len(self.reweighter.domains)
        found = torch.stack(group_sums(losses, codes, K + 1, mask))  # column K: strays
        total = self._collect(found, expected_K) if self.training else self._reduce(found)
        if self.shares is not None:
            calls = self.accumulate if self.training else 1
            n = found[1].sum().to(losses.device, wide_dtype(losses)).clamp(min=1.0)
            value = _weighted(losses, codes, mask, self.weights / self.shares) / (n * calls)
        else:
            count_K = cast(Array, total)[1] if expected_K is None else expected_K
            scale_K = np.divide(self.weights, count_K, out=np.zeros(K), where=count_K > 0)
            value = _weighted(losses, codes, mask, scale_K * world_size(self.group))
        alone = self.accumulate == 1 or not self.training
        if total is not None and expected_K is None and alone:
            value = self._shown(value, total)
        if self.training and total is not None:
            self._update(total)
        return value

    def _shown(self, value: torch.Tensor, total: Array) -> torch.Tensor:
        """Show this rank's part as the loss of all ranks; the gradient remains the part's."""
        if world_size(self.group) == 1:
            return value
        sum_K, count_K = total
        scale_K = self.weights.copy()
        if self.shares is not None:
            scale_K /= self.shares * max(count_K.sum(), 1.0)
        else:
            scale_K = np.divide(scale_K, count_K, out=np.zeros_like(scale_K), where=count_K > 0)
        return value + (float(scale_K @ sum_K) - value.detach())

    def count(self, groups: Any, mask: Any = None) -> torch.Tensor:
        """Count the examples of each group in a whole batch over all ranks, with one all-reduce.

        Memberships are added up.

        Parameters
        ----------
        groups : integer tensor of shape (B,), sequence of names, or memberships
            Groups of all micro-batches of this rank together.
        mask : tensor of shape (B, T, ...), optional
            Needed for per-token losses: which of them count (all, without padding).
        """
        codes = encode(groups, self.reweighter)
        shape = codes.shape[: dims_of(codes)] if mask is None else mask.shape
        losses = torch.zeros(shape, device=codes.device)
        check_losses(losses, codes)
        if mask is not None:
            mask = check_mask(mask, losses.shape, losses.device)
        found = torch.stack(group_sums(losses, codes, len(self.reweighter.domains) + 1, mask))
        return torch.from_numpy(self._reduce(found)[1])

    def flush(self) -> Array:
        """Update the weights from an accumulation that ended early; every rank must call."""
        if self._pending is not None:
            pending = self._pending
            self._forget()
            self._update(self._reduce(pending))
        return self.weights

    def get_extra_state(self) -> dict[str, Any]:
        """Return the Reweighter's state and unfinished sums as plain numbers."""
        pending = None if self._pending is None else self._pending.tolist()
        if pending is not None:
            pending = [[v if math.isfinite(v) else None for v in row] for row in pending]
        return {
            "version": STATE_VERSION,
            "reweighter": self.reweighter.state_dict(),
            "calls": self._calls,
            "pending": pending,
            "rank": rank_of(self.group),
        }

    def set_extra_state(self, state: Mapping[str, Any]) -> None:
        """Resume from a state; unfinished sums of another rank are dropped."""
        check_version(state, STATE_VERSION)
        self.reweighter.load_state_dict(state["reweighter"])
        self._calls, self._pending = int(state["calls"]), None
        self._resumed = self._calls > 0
        names = list(state["reweighter"]["domains"])
        if self._resumed:
            rows = [[math.nan if v is None else v for v in row] for row in state["pending"]]
            order = [names.index(name) for name in self.reweighter.domains] + [len(names)]
            table = torch.tensor(rows, dtype=torch.float64)[:, order]
            # Sums belong to one rank; several ranks that took them over would count them twice.
            self._pending = (
                table if state["rank"] == rank_of(self.group) else torch.zeros_like(table)
            )

    def extra_repr(self) -> str:
        return f"{self.reweighter!r}, accumulate={self.accumulate}"

    def _collect(self, found: torch.Tensor, expected_K: Array | None) -> Array | None:
        """Add a micro-batch; return sums and counts if the batch is complete."""
        if self._pending is not None:
            found = found + self._pending.to(found.device)
        self._pending, self._calls = found, self._calls + 1
        if self._calls < self.accumulate:
            return None
        if self._resumed:  # other ranks may have held a part of the batch
            expected_K = None
        self._forget()
        return self._reduce(found, expected_K)

    def _reduce(self, found: torch.Tensor, expected_K: Array | None = None) -> Array:
        """Sum over all ranks, check, and return sums and counts of shape (2, K)."""
        same = repr(self.reweighter.domains).encode() + self.weights.tobytes()
        total: Array = reduce_checked(found, same, self.group).numpy()
        check_total(total[1, :-1], total[1, -1], expected_K)
        return total[:, :-1]

    def _update(self, total: Array) -> None:
        sum_K, count_K = total
        with np.errstate(invalid="ignore", divide="ignore"):
            mean_K = sum_K / count_K
        self.reweighter.update(mean_K, count_K, absent_ok=True)

    def _forget(self) -> None:
        self._pending = None
        self._calls = 0
        self._resumed = False


def _weighted(
    losses: torch.Tensor, codes: torch.Tensor, mask: torch.Tensor | None, scale_K: Array
) -> torch.Tensor:
    """Compute ``sum_i scale[group_i] * loss_i``, in single precision at least."""
    kept = losses.to(wide_dtype(losses))
    if mask is not None:
        kept = kept.masked_fill(~mask, 0.0)
    if losses.ndim > dims_of(codes):
        kept = kept.sum(tuple(range(dims_of(codes), losses.ndim)))
    return weigh_losses(kept, codes, scale_K).sum()
