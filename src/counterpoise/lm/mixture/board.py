"""Changes of weights, published by the main process and read by its workers."""

from __future__ import annotations

from typing import Any

import torch

from counterpoise.lm.mixture.draws import Change

BOARD = 256  # changes of weights that workers may not have seen yet


class Board:
    """Changes of weights in shared memory: one process writes, its workers read."""

    def __init__(self, n_domains: int) -> None:
        self.n_domains = n_domains
        self._at = torch.zeros(BOARD, dtype=torch.int64).share_memory_()
        self._weights = torch.zeros((BOARD, n_domains), dtype=torch.float64).share_memory_()
        self._count = torch.zeros(1, dtype=torch.int64).share_memory_()

    def __deepcopy__(self, memo: Any) -> Board:
        """Make a new board: copied memory would be shared with nobody."""
        return Board(self.n_domains)

    @property
    def count(self) -> int:
        return int(self._count[0])

    def post(self, change: Change) -> None:
        slot = self.count % BOARD
        self._at[slot] = change.at
        self._weights[slot] = torch.tensor(change.weights, dtype=torch.float64)
        self._count[0] += 1  # last, so that whoever sees the count sees the entry

    def since(self, seen: int) -> list[Change]:
        """List the changes posted after the first ``seen`` ones."""
        count = self.count
        if count - seen > BOARD:
            raise RuntimeError(
                f"weights changed {count - seen} times before the next batch was drawn; at most "
                f"{BOARD} changes are kept. Change them less often than that."
            )
        slots = [i % BOARD for i in range(seen, count)]
        return [Change(int(self._at[s]), self._weights[s].numpy().copy()) for s in slots]
