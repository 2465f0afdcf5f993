"""`DifficultyBins`: groups of prompts by how often their completions pass."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from counterpoise.common.arguments import check_version

Array = np.ndarray

STATE_VERSION = 1


class DifficultyBins:
    """Groups of prompts by their observed pass rates.

    Parameters
    ----------
    rows : int
        Number of prompts.
    edges : sequence of float, default (0.25, 0.5, 0.75)
        Where one bin ends and the next begins, between 0 and 1.
    rates : float or sequence, default 0.5
        What to expect of prompts that were not tried: one number, or one per prompt (from an
        earlier run, or a weaker model).
    trust : float, default 2.0
        How many tries that expectation counts as.
    memory : float, default 0.9
        What an old try counts beside one that is a round newer: models learn, so pass rates drift.

    Notes
    -----
    A prompt's rate is ``(trust * rate + passes) / (trust + tries)``, with passes and tries
    discounted by ``memory`` at each round in which the prompt was tried: the posterior mean of a
    beta prior, for ``memory=1``. Rewards between 0 and 1 count as parts of a pass.

    Examples
    --------
    >>> bins = DifficultyBins(3, edges=(0.5,), trust=2.0)
    >>> bins.names
    ['0%-50%', '50%-100%']
    >>> bins.observe([0, 1], [0.0, 1.0], tries=[2, 6])
    >>> bins.rates.tolist(), bins.codes.tolist()
    ([0.25, 0.875, 0.5], [0, 1, 1])
    """

    def __init__(
        self,
        rows: int,
        *,
        edges: Sequence[float] = (0.25, 0.5, 0.75),
        rates: Any = 0.5,
        trust: float = 2.0,
        memory: float = 0.9,
    ) -> None:
        self.edges = np.array(edges, dtype=float)
        ends = np.concatenate([[0.0], self.edges, [1.0]])
        if self.edges.size == 0 or (np.diff(ends) <= 0).any():
            raise ValueError(
                f"edges must rise between 0 and 1; got {list(edges)!r}, for instance (0.25, 0.75)"
            )
        if not 0 < memory <= 1:
            raise ValueError(f"memory must be above 0 and at most 1; got {memory!r}")
        if not 0 < trust < np.inf:
            raise ValueError(f"trust must be above 0; got {trust!r}")
        self.expected = np.broadcast_to(np.asarray(rates, dtype=float), (rows,)).copy()
        if not ((self.expected >= 0) & (self.expected <= 1)).all():
            raise ValueError(f"rates must be between 0 and 1; got {rates!r}")
        self.trust, self.memory = float(trust), float(memory)
        self.names = [f"{low:.4g}%-{high:.4g}%" for low, high in _pairs(100.0 * ends)]
        self.passes, self.tries = np.zeros(rows), np.zeros(rows)

    def __len__(self) -> int:
        return len(self.expected)

    @property
    def rates(self) -> Array:
        """Each prompt's pass rate."""
        return (self.trust * self.expected + self.passes) / (self.trust + self.tries)

    @property
    def codes(self) -> Array:
        """Each prompt's bin, from 0 for the hardest."""
        return np.searchsorted(self.edges, self.rates, side="right")

    def observe(self, rows: Any, rewards: Any, tries: Any = 1) -> None:
        """Count a round: prompts, the mean rewards of their completions, and how many these were.

        A prompt that comes twice is one with all those completions.
        """
        rows, rewards = np.asarray(rows, dtype=np.int64), np.asarray(rewards, dtype=float)
        if not ((rewards >= 0) & (rewards <= 1)).all():
            raise ValueError(
                "rewards must be between 0 and 1 to count as parts of a pass; got "
                f"{rewards.min():.4g} to {rewards.max():.4g}"
            )
        tries = np.broadcast_to(np.asarray(tries, dtype=float), rows.shape)
        tried, places = np.unique(rows, return_inverse=True)
        for totals, new in ((self.passes, rewards * tries), (self.tries, tries)):
            totals[tried] = self.memory * totals[tried] + np.bincount(places, new)

    def state_dict(self) -> dict[str, Any]:
        """Return what was observed, of the prompts that were tried, as plain JSON."""
        tried = np.flatnonzero(self.tries)
        return {
            "version": STATE_VERSION,
            "of": len(self),
            "rows": tried.tolist(),
            "passes": self.passes[tried].tolist(),
            "tries": self.tries[tried].tolist(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume from a state over as many prompts."""
        check_version(state, STATE_VERSION)
        if state["of"] != len(self):
            raise ValueError(f"state is of {state['of']} prompts; these are {len(self)}")
        self.passes, self.tries = np.zeros(len(self)), np.zeros(len(self))
        self.passes[state["rows"]], self.tries[state["rows"]] = state["passes"], state["tries"]


def _pairs(ends: Array) -> list[tuple[float, float]]:
    return list(zip(ends[:-1].tolist(), ends[1:].tolist(), strict=True))
