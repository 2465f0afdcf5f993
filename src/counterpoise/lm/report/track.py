"""Evaluations of a run, as arrays of evaluations x domains."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from counterpoise.lm.training.run_folder import RunFolder

Array = np.ndarray


@dataclass(frozen=True, kw_only=True, eq=False)
class Track:
    """Evaluations of a run.

    Attributes
    ----------
    domains : list of str
    tokens : array of shape (T,)
    losses, driving : arrays of shape (T, K)
        Held-out losses of the reported split, and of the split that steers the weights.
    weights : array of shape (T, K)
        Weights after each evaluation.
    shares, epochs : arrays of shape (T, K)
        Each domain's share of the tokens so far, and passes over the domain.
    """

    domains: list[str]
    tokens: Array
    losses: Array
    driving: Array
    weights: Array
    shares: Array
    epochs: Array

    @classmethod
    def of(cls, folder: RunFolder) -> Track:
        records = folder.measured()
        if not records:
            raise FileNotFoundError(
                f"{str(folder.path)!r} holds no evaluation (evaluations.jsonl); pass the folder of "
                "a run that has started"
            )
        domains = list(records[0]["report"])

        def table(key: str) -> Array:
            return np.array([[_number(r[key].get(d)) for d in domains] for r in records])

        tokens = np.array([r["tokens"] for r in records])
        return cls(
            domains=domains,
            tokens=tokens,
            losses=table("report"),
            driving=table("driving"),
            weights=table("weights"),
            shares=np.where(tokens[:, None] > 0, table("shares"), np.nan),  # nothing read at first
            epochs=table("epochs"),
        )

    @cached_property
    def worst(self) -> list[float]:
        return np.max(self.losses, axis=1).tolist()

    @cached_property
    def average(self) -> list[float]:
        return np.mean(self.losses, axis=1).tolist()

    @property
    def hardest(self) -> int:
        """The domain with the largest final loss."""
        return int(np.argmax(self.losses[-1]))

    @cached_property
    def targets(self) -> Array:
        """Mean of the weights so far, weighted by tokens read: (T, K)."""
        read = np.diff(self.tokens, prepend=self.tokens[:1])[:, None]
        before = np.vstack([self.weights[:1], self.weights[:-1]])
        total = np.cumsum(read, axis=0)
        mean = np.cumsum(read * before, axis=0) / np.maximum(total, 1)
        return np.where(total > 0, mean, self.weights)


def _number(value: Any) -> float:
    return float("nan") if value is None else float(value)
