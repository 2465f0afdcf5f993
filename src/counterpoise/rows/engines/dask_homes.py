"""Which worker of a Dask cluster holds which part of the rows.

Sums of parts are added in a tree over the parts, in their order. A worker with a run of neighbours
adds up its sums to a few; with scattered parts, nearly all of its sums travel to others. So blocks
are loaded in runs, one for each worker. Rows that the workers hold already are moved into runs only
if that costs less than the sums that travel otherwise.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from dask.base import get_annotations, is_dask_collection
from dask.core import get_dependencies
from dask.delayed import Delayed
from dask.highlevelgraph import HighLevelGraph, MaterializedLayer

from counterpoise.rows.engines.tally import Tally

# Number of parts per task. A task costs milliseconds; but if a worker is lost, all parts of a task
# move to the same worker.
BUNDLE = 4
# Passes of a fit, in each of which sums travel; rows move only once.
PASSES = 32
# Packing and adding a sum takes as long as sending about so many more numbers.
OVERHEAD = 4096


class Homes(NamedTuple):
    """The workers of the parts, and the threads of all workers.

    Without a cluster, or with annotations of the user, there is no assignment.
    """

    workers: list[str]
    threads: dict[str, int]

    @classmethod
    def of(cls, parts: list[Any], rows: float, sums: float) -> Homes:
        """Find homes for parts that are loaded.

        A part has about so many numbers in its ``rows``, and its answer to a question has ``sums``.
        """
        if "distributed" not in sys.modules or get_annotations():
            return cls([], {})
        from distributed import futures_of, wait

        futures = futures_of(parts)
        if not futures:
            return cls([], {})
        wait(futures)
        client = futures[0].client
        threads, found = client.nthreads(), client.who_has(futures)
        held = [found[part.key] for part in parts]
        return cls(choose(held, threads, rows, sums), threads)

    def annotation(self, index: int) -> dict[str, Any]:
        return _on(self.workers[index]) if self.workers else {}

    def bundles(self, count: int) -> list[list[int]]:
        """Group the parts of each worker into tasks for its threads."""
        if not self.workers:
            return [[index] for index in range(count)]
        found = []
        for worker, threads in self.threads.items():
            mine = [index for index, home in enumerate(self.workers) if home == worker]
            # The same number of tasks for every thread, as even as possible.
            count = min(len(mine), threads * -(-len(mine) // (BUNDLE * threads)))
            found += [mine[len(mine) * i // count : len(mine) * (i + 1) // count]
                      for i in range(count)]  # fmt: skip
        return sorted(found)  # neighbours meet early on the way up


def choose(
    held: Sequence[Collection[str]], threads: Mapping[str, int], rows: float, sums: float
) -> list[str]:
    """Return the worker of every part: where it is, or in runs if that is cheaper.

    ``held`` are the workers that hold each part.
    """
    stay, run = near(held, threads), runs(len(held), _by_place(held, threads), threads)

    def cost(homes: list[str]) -> float:
        moved = sum(home not in found for home, found in zip(homes, held, strict=True))
        return moved * rows + PASSES * sums_sent(homes) * (sums + OVERHEAD)

    return min((stay, run), key=cost)


def near(held: Sequence[Collection[str]], threads: Mapping[str, int]) -> list[str]:
    """Return workers that hold the parts, up to an even share for every thread.

    Parts stay for the whole fit, and a pass takes as long as the worker with the most parts.
    """
    share = -(-len(held) // sum(threads.values()))
    room = {worker: share * count for worker, count in threads.items()}
    homes: dict[int, str] = {}
    for stay in (True, False):
        for index in [i for i in range(len(held)) if i not in homes]:
            places = [w for w in held[index] if room.get(w)] if stay else [*room]
            if places:
                homes[index] = max(places, key=lambda worker: room[worker])
                room[homes[index]] -= 1
    return [homes[index] for index in range(len(held))]


def runs(count: int, workers: Iterable[str], threads: Mapping[str, int]) -> list[str]:
    """Return workers with one run of parts each, in this order and with a share by threads.

    >>> runs(5, ["b", "a"], {"a": 1, "b": 1})
    ['b', 'b', 'a', 'a', 'a']
    """
    total, before, homes = sum(threads.values()), 0, list[str]()
    for worker in workers:
        before += threads[worker]
        homes += [worker] * (count * before // total - len(homes))
    return homes


def sums_sent(homes: Sequence[str]) -> int:
    """Return how many sums the workers send, after each adds up what it can.

    >>> sums_sent(["a", "a", "b", "b"]), sums_sent(["a", "b", "a", "b"])
    (2, 4)
    """
    tallies: dict[str, Tally] = {}
    for index, worker in enumerate(homes):
        tallies.setdefault(worker, Tally(len(homes))).add(0, index, None)
    return sum(len(tally.nodes) for tally in tallies.values())


def _by_place(held: Sequence[Collection[str]], threads: Mapping[str, int]) -> list[str]:
    """Return the workers by where most of what they hold is."""
    places: dict[str, list[int]] = {worker: [] for worker in threads}
    for index, found in enumerate(held):
        for worker in found:
            if worker in places:
                places[worker].append(index)
    middle = {worker: sum(own) / len(own) if own else 0.0 for worker, own in places.items()}
    return sorted(threads, key=lambda worker: (middle[worker], worker))


def load_in_runs(loaded: list[tuple[Any, Any]], inputs: Iterable[Any]) -> list[tuple[Any, Any]]:
    """Return pairs of lazy values whose graphs ask for workers, one run of pairs for each.

    This is free if the cluster holds none of the ``inputs`` yet. Otherwise nothing changes.
    """
    threads = _idle_threads(inputs)
    if not threads:
        return loaded
    merged = HighLevelGraph.merge(*[value.dask for pair in loaded for value in pair])
    if any(layer.annotations for layer in merged.layers.values()):
        return loaded  # those of the user
    tasks = merged.to_dict()
    homes = runs(len(loaded), sorted(threads), threads)
    owners: dict[Any, str | None] = {}
    for home, pair in zip(homes, loaded, strict=True):
        todo = [value.key for value in pair]
        while todo:
            key = todo.pop()
            if owners.get(key, home) != home:
                if owners[key] is None:
                    continue
                owners[key] = None  # of several runs: anybody may compute it
            elif key in owners:
                continue
            else:
                owners[key] = home
            todo += get_dependencies(tasks, key)
    layers = {
        _layer(home): MaterializedLayer(
            {key: tasks[key] for key, owner in owners.items() if owner == home},
            annotations=None if home is None else _on(home),
        )
        for home in (None, *dict.fromkeys(homes))
    }
    # Whatever a task of several runs needs is of several runs, too.
    shared = _layer(None)
    needs = {name: set() if name == shared else {shared} for name in layers}
    graph = HighLevelGraph(layers, needs)
    return [
        (Delayed(part.key, graph, layer=_layer(owners[part.key])),
         Delayed(scan.key, graph, layer=_layer(owners[scan.key])))
        for part, scan in loaded
    ]  # fmt: skip


def _layer(worker: str | None) -> str:
    return f"counterpoise-load-{worker}"


def _idle_threads(inputs: Iterable[Any]) -> dict[str, int]:
    """Return the threads of a cluster that holds none of the inputs; none in other cases."""
    if "distributed" not in sys.modules or get_annotations():
        return {}
    from distributed import futures_of
    from distributed.client import default_client

    if any(futures_of(item) for item in inputs if is_dask_collection(item)):
        return {}
    try:
        return dict(default_client().nthreads())
    except ValueError:
        return {}  # no cluster


def _on(worker: str) -> dict[str, Any]:
    return {"workers": [worker], "allow_other_workers": True}
