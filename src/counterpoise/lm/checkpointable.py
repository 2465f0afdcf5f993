"""`Checkpointable`: a state of plain JSON as one tensor, for torch.distributed.checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from counterpoise.common.arguments import check_whole
from counterpoise.lm.sealed_tensor import from_tensor, room_for, to_tensor

FORMAT, VERSION = "counterpoise state", 1
ENTRY = "json"


class Checkpointable:
    """The state of a `Steering`, a mixture, its loader or a `Reweighter` as one tensor of bytes.

    torch.distributed.checkpoint saves and loads it beside model and optimizer. It is the same on
    all ranks and written once. It may be loaded by other numbers of ranks, as any state here.

    Parameters
    ----------
    target : object
        Whose ``state_dict`` returns plain JSON and is taken back by ``load_state_dict``.
    capacity : int, optional
        Bytes of the tensor. By default 64 KiB, 4 KiB per domain and room for their names,
        which a state does not nearly fill. Must be the same for saving and loading.

    Notes
    -----
    The tensor holds JSON with a checksum, in ASCII, followed by zeros. Its size does not depend on
    the state, because torch.distributed.checkpoint loads into a tensor that exists already and
    refuses another size, while states grow and shrink with pending changes of weights. Given to
    torch.distributed.checkpoint as they are, states are stored as pickles, an entry that only one
    side has is an error or silently ignored, and domains whose names have dots may clash.

    Examples
    --------
    >>> from counterpoise import Reweighter
    >>> old, new = (Reweighter(["web", "code"], extrapolation=0.0) for _ in range(2))
    >>> _ = old.update([2.0, 3.0])
    >>> Checkpointable(new).load_state_dict(Checkpointable(old).state_dict())
    >>> new.updates
    1
    """

    def __init__(self, target: Any, *, capacity: int | None = None) -> None:
        for name in ("state_dict", "load_state_dict"):
            if not callable(getattr(target, name, None)):
                raise TypeError(
                    f"target must have the methods state_dict and load_state_dict; got "
                    f"{type(target).__name__}; pass a Steering, a mixture, a loader or a Reweighter"
                )
        self.target = target
        if capacity is None:
            capacity = room_for(_domains_of(target))
        self.capacity = check_whole("capacity", capacity, 1)

    def state_dict(self) -> dict[str, torch.Tensor]:
        """Return the state as a tensor of ``capacity`` bytes on the CPU."""
        value = {"format": FORMAT, "version": VERSION, "state": self.target.state_dict()}
        remedy = f"use Checkpointable(..., capacity={2 * self.capacity}), also for loading"
        return {ENTRY: to_tensor(value, self.capacity, remedy)}

    def load_state_dict(self, state_dict: Mapping[str, torch.Tensor]) -> None:
        """Restore a state; a damaged one is refused."""
        if ENTRY not in state_dict:
            raise ValueError(
                f"state_dict has the entries {sorted(state_dict)!r}, but no {ENTRY!r}; load what "
                "Checkpointable.state_dict returned"
            )
        value = from_tensor(state_dict[ENTRY])
        if (value.get("format"), value.get("version")) != (FORMAT, VERSION):
            raise ValueError(
                f"the stored state is {value.get('format')!r} of version {value.get('version')!r}; "
                f"this release reads {FORMAT!r} of version {VERSION}"
            )
        self.target.load_state_dict(value["state"])


def _domains_of(target: Any) -> list[Any]:
    """Return the names that a target's state has: domains, or tags and their patterns."""
    parts = (getattr(target, name, None) for name in ("reweighter", "mixture", "drawing"))
    names = [name for holder in (target, *parts) for name in getattr(holder, "domains", ())]
    return list(dict.fromkeys(names))
