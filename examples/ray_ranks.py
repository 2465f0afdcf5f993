"""One model from rows that Ray actors hold: any all-reduce makes a collective.

Each actor makes its own rows, as it would read its own files, and all fit together. The sums travel
through one more actor, which is enough for a few dozen ranks. With PyTorch on the actors,
``Collective.torch()`` after ``init_process_group("gloo")`` is faster.

    python examples/ray_ranks.py

needs ``pip install ray`` beside Counterpoise.
"""

from __future__ import annotations

import asyncio
from itertools import count

import numpy as np
import ray

from counterpoise import Collective, GroupDRONeuron

RANKS, ROWS = 2, 3000
# How long a rank waits for the others; if one is lost, the others end with an error.
SECONDS = 300.0


@ray.remote
class Hub:
    """Sums the arrays of all ranks, round by round."""

    def __init__(self, size):
        self.size, self.rounds = size, {}

    async def allreduce(self, number, values):
        # A round: the arrays that arrived, their sum to come, and the ranks that left with it.
        arrived, total, left = self.rounds.setdefault(number, ([], asyncio.Future(), []))
        arrived.append(values)
        if len(arrived) == self.size:
            total.set_result(np.sum(arrived, axis=0))
        found = await asyncio.wait_for(asyncio.shield(total), SECONDS)
        left.append(True)
        if len(left) == self.size:
            del self.rounds[number]
        return found


@ray.remote
class Rank:
    """An actor with rows of its own."""

    def __init__(self, rank, size, hub):
        rounds = count()

        def allreduce(values):
            return ray.get(hub.allreduce.remote(next(rounds), values))

        self.rows = make_rows(rank)
        self.collective = Collective(allreduce, rank=rank, size=size)

    def fit(self, **options):
        model = GroupDRONeuron("relu", **options).fit(self.collective.rows(*self.rows))
        return model.coef_, model.groups_.tolist(), model.n_passes_


def make_rows(rank):
    """Rows of two groups, of which every rank has one to itself."""
    rng = np.random.default_rng(rank)
    groups = rng.choice([f"site {rank}", "everywhere"], ROWS)
    X = rng.normal(size=(ROWS, 3))
    y = np.maximum(0.0, X @ [1.0, 2.0, 0.5] * (1.0 + 0.3 * rank)) + 0.1 * rng.normal(size=ROWS)
    return X, y, groups


def main():
    ray.init(include_dashboard=False)
    hub = Hub.remote(RANKS)
    ranks = [Rank.remote(rank, RANKS, hub) for rank in range(RANKS)]
    found = ray.get([rank.fit.remote(nu=0.05) for rank in ranks])
    (coef, groups, passes), *others = found
    print(f"groups of all ranks: {groups}; coefficients {coef.round(3)} after {passes} passes")
    same = all(np.array_equal(coef, other[0]) for other in others)
    print(f"the same on all {RANKS} ranks, to the bit: {same}")
    X, y, groups = (
        np.concatenate(parts) for parts in zip(*map(make_rows, range(RANKS)), strict=True)
    )
    memory = GroupDRONeuron("relu", nu=0.05).fit(X, y, groups)
    print(f"largest difference from all rows in memory: {np.abs(memory.coef_ - coef).max():.1e}")
    ray.shutdown()


if __name__ == "__main__":
    main()
