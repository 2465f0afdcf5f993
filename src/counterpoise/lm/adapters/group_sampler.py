"""`GroupSampler`: the order in which a trainer reads the rows of a dataset that is in groups."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import repeat
from math import gcd
from typing import Any

import numpy as np
from torch.utils.data import Sampler

from counterpoise.common.arguments import check_weights, check_whole
from counterpoise.lm.mixture.row_draws import RowDraws

Array = np.ndarray


class GroupSampler(Sampler[int]):
    """Rows drawn by group, with weights that may change while a DataLoader reads.

    Every rank makes the same one and lets the trainer hand out its share. `Steering` takes it as a
    mixture.

    Parameters
    ----------
    groups : sequence
        Each row's group, by name.
    names : sequence, optional
        All groups, also those without rows for now; those that occur, in order, if None.
    weights : sequence or mapping, optional
        First weights; shares of the rows if None.
    seed : int, default 0
    rows : int, default 1
        Rows of a batch of all ranks together.
    repeats : int, default 1
        How often in a row each one comes: the generations of a prompt.
    copies : int, default 1
        How often each batch comes: the steps that reuse its generations.
    ahead : int, default 0
        Batches, copies counted, that the trainer's loader may have read but not trained on. New
        weights hold from the batch after them.
    together : int, default 1
        Batches of one optimiser step. An epoch is a whole number of such steps: as many as fit in
        one pass over the rows, and at least one. The order continues in the next epoch.

    Attributes
    ----------
    batches : int
        Batches of an epoch, copies counted.

    Examples
    --------
    >>> sampler = GroupSampler(["sums"] * 3 + ["proofs"] * 3, rows=2, repeats=2, copies=2)
    >>> indices = list(sampler)
    >>> len(indices), indices[0] == indices[1], indices[:4] == indices[4:8]
    (24, True, True)
    """

    def __init__(
        self,
        groups: Sequence[Any],
        *,
        names: Sequence[Any] | None = None,
        weights: Any = None,
        seed: int = 0,
        rows: int = 1,
        repeats: int = 1,
        copies: int = 1,
        ahead: int = 0,
        together: int = 1,
    ) -> None:
        self.domains = list(dict.fromkeys(groups)) if names is None else list(names)
        self.rows, self.repeats = check_whole("rows", rows, 1), check_whole("repeats", repeats, 1)
        self.copies, self.ahead = check_whole("copies", copies, 1), check_whole("ahead", ahead)
        if len(groups) < rows:
            raise ValueError(
                f"a batch takes {rows} rows, but there are {len(groups)}; use a smaller batch, or "
                "more generations of each prompt"
            )
        codes = self._codes(groups)
        first = np.bincount(codes, minlength=len(self.domains)) / len(codes)
        if weights is not None:
            first = check_weights(weights, self.domains, zeros=True)
        self._size = len(codes)
        unit = check_whole("together", together, 1) // gcd(together, self.copies)
        self.batches = max(self._size // self.rows // unit, 1) * unit * self.copies
        self._skipped = 0  # batches of the next epoch that were trained on before a resume
        self._used = RowDraws(self.domains, codes, first, seed=seed)  # where training stands,
        self._read = self._used  # and where the loader reads
        self._batch: Array | None = None
        self.done = 0  # copies of the batch there that were trained on

    @property
    def weights(self) -> Array:
        """Weights in force at the batch that is trained on."""
        return self._used.weights

    @property
    def batch(self) -> Array:
        """Rows of the batch that is trained on, each once."""
        if self._batch is None:
            self._batch = self._used.copy().take(self.rows)
        return self._batch

    @property
    def codes(self) -> Array:
        """Each row's group when that batch was drawn, as a position in ``domains``."""
        return self._used.codes

    def __len__(self) -> int:
        return self.batches * self.rows * self.repeats

    def __iter__(self) -> Iterator[int]:
        """Yield an epoch of rows, from where training stands.

        Batches that the trainer will skip come first, as row 0 again and again.
        """
        read = self._read = self._used.copy()
        left, self._skipped = self.batches - self._skipped, 0
        yield from repeat(0, len(self) - left * self.rows * self.repeats)
        copies = self.copies - self.done
        while left > 0:
            batch = np.repeat(read.take(self.rows), self.repeats).tolist()
            for _ in range(min(copies, left)):
                yield from batch
            left, copies = left - copies, self.copies

    def resume_after(self, batches: int) -> None:
        """Let the next iteration be the rest of an epoch of which so many batches came before.

        The trainer skips as many, so that its steps, logs and evaluations stay where they were.
        """
        self._skipped = check_whole("batches", batches) % self.batches

    def count_batch(self) -> None:
        """Note that a batch, or a copy of one, was trained on."""
        self.done += 1
        if self.done == self.copies:
            self._used.take(self.rows)
            self._batch, self.done = None, 0

    def set_weights(self, weights: Any) -> int:
        """Let weights hold from the first batch that cannot have been read; return its draw."""
        found = check_weights(weights, self.domains, zeros=True)
        at = self._first_unread()
        for draws in self._both():
            draws.change(at, found)
        return at

    def regroup(self, codes: Array) -> int:
        """Let rows be in other groups, given as positions in ``domains``, from that batch on."""
        if len(codes) != self._size:
            raise ValueError(f"codes must be one for each of {self._size} rows; got {len(codes)}")
        at = self._first_unread()
        if not np.array_equal(codes, self._read.latest_codes):
            for draws in self._both():
                draws.regroup(at, codes)
        return at

    def report(self) -> dict[Any, dict[str, float]]:
        """Report what each group has contributed so far, as `MixtureDataset.report` does."""
        used = self._used
        columns = {
            "samples": used.counts,
            "weight": used.weights,
            "share": used.counts / max(used.number, 1),
            "target": used.expected / max(used.number, 1),
        }
        return {
            name: {key: float(values[k]) for key, values in columns.items()}
            for k, name in enumerate(self.domains)
        }

    def state_dict(self) -> dict[str, Any]:
        """Return where training stands as plain JSON; what was read ahead is not part of it."""
        return {**self._used.state_dict(), "done": self.done, "batch": self._shape()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume: the next iteration begins with the batch that would have come."""
        saved = state["batch"]
        for what, value in self._shape().items():
            if state["done"] and saved[what] != value:
                raise ValueError(
                    f"state lies within a batch with {what}={saved[what]!r}, but this sampler has "
                    f"{value!r}; resume with the same batch size, num_generations, num_iterations "
                    "and steps_per_generation, or from a checkpoint at the end of a batch"
                )
        self._used.load_state_dict(state)
        self._read, self._batch, self.done = self._used, None, int(state["done"])

    def _shape(self) -> dict[str, int]:
        """Return what must not change within a batch."""
        return {"rows": self.rows, "repeats": self.repeats, "copies": self.copies}

    def _first_unread(self) -> int:
        """Return the first draw of the first batch that no loader can have read."""
        ahead = self.ahead if self._read is not self._used else 0
        return self._used.number + -(-(self.done + ahead) // self.copies) * self.rows

    def _both(self) -> list[RowDraws]:
        return [self._used] if self._read is self._used else [self._used, self._read]

    def _codes(self, groups: Sequence[Any]) -> Array:
        places = {name: k for k, name in enumerate(self.domains)}
        unknown = next((name for name in groups if name not in places), None)
        if unknown is not None:
            raise ValueError(f"group {unknown!r} is none of {self.domains[:10]!r}")
        return np.array([places[name] for name in groups], dtype=np.int64)
