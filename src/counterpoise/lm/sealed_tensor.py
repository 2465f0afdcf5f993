"""A state as one tensor of bytes, for checkpoints that hold tensors.

`torch.distributed.checkpoint` pickles what is no tensor, and loads a tensor only into one of the
same size. The bytes are JSON in ASCII with its checksum, filled up with zeros to a length that
depends on the domains alone.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

import torch

from counterpoise.lm.sealed import open_sealed, seal

# Bytes; a state takes about 500 for each domain, and more for each pending change of weights.
BASE, PER_DOMAIN = 1 << 16, 1 << 12


def room_for(domains: Iterable[Any]) -> int:
    """Return the bytes that a state over these domains gets, several times what it needs.

    >>> room_for(["web", "code"])
    73818
    """
    names = [str(name) for name in domains]
    return BASE + PER_DOMAIN * len(names) + 6 * len(json.dumps(names))


def to_tensor(state: Mapping[str, Any], room: int, remedy: str) -> torch.Tensor:
    """Write a state of plain JSON into a tensor of ``room`` bytes on the CPU."""
    data = json.dumps(seal(state), allow_nan=False).encode()
    if len(data) > room:
        raise ValueError(f"the state takes {len(data)} bytes, more than {room}; {remedy}")
    found = torch.zeros(room, dtype=torch.uint8)
    found[: len(data)] = torch.frombuffer(bytearray(data), dtype=torch.uint8)
    return found


def from_tensor(tensor: torch.Tensor) -> dict[str, Any]:
    """Read a state that `to_tensor` wrote; raise `DamagedFile` if it is not whole.

    >>> from_tensor(to_tensor({"step": 1}, 64, "take more"))
    {'step': 1}
    """
    data = bytes(tensor.cpu().numpy()).rstrip(b"\0")
    return open_sealed(data, "the stored state", "resume from another checkpoint")
