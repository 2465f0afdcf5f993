"""torchdata: `PublishedSampler`, a `MultiNodeWeightedSampler` by published weights.

torchdata's own sampler fixes its weights when it is made.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any

from counterpoise.common.packages import not_installed

try:
    from torchdata.nodes import BaseNode
except ImportError as error:
    raise not_installed("the reader for torchdata needs", "torchdata", error=error) from error

from counterpoise.lm.readers.plain import EVERY, MixedStream

Name = str | int


class PublishedSampler(BaseNode[Any]):  # type: ignore[misc]
    """A node that samples from several nodes by published weights.

    It stands where a ``torchdata.nodes.MultiNodeWeightedSampler`` would, under a ``Loader`` or
    other nodes. A reset starts all sources and the draws again.

    Parameters
    ----------
    source_nodes : mapping of domains to nodes
    weights, every, corpus
        See `counterpoise.lm.readers.plain.mixed`.
    seed : int, default 0
        Give each rank one of its own.
    exhaustion : {"repeat", "stop", "drop"}, default "repeat"
        torchdata's ``CYCLE_FOREVER``, ``FIRST_DATASET_EXHAUSTED`` and ``ALL_DATASETS_EXHAUSTED``.

    Notes
    -----
    New weights hold from a known draw on and neither repeat nor lose a sample. A resume from the
    state of a ``Loader`` continues the same stream as exactly as the source nodes resume, if nodes
    after this one, such as ``Prefetcher`` and ``ParallelMapper``, have ``snapshot_frequency=1``,
    the default. From an older snapshot, they draw the samples since then again, by the weights that
    are in the file by then.
    """

    def __init__(
        self,
        source_nodes: Mapping[Name, BaseNode[Any]],
        weights: str | os.PathLike[str] = "weights.json",
        *,
        seed: int = 0,
        every: int = EVERY,
        exhaustion: str = "repeat",
        corpus: str | None = None,
    ) -> None:
        super().__init__()
        wrong = [name for name, node in source_nodes.items() if not isinstance(node, BaseNode)]
        if wrong:
            raise TypeError(
                f"source_nodes must be nodes of torchdata; domain {wrong[0]!r} has "
                f"{type(source_nodes[wrong[0]]).__name__}. Wrap it in torchdata.nodes."
                "IterableWrapper"
            )
        self.source_nodes, self.weights = dict(source_nodes), weights
        self._options: dict[str, Any] = {
            "seed": seed, "every": every, "exhaustion": exhaustion, "corpus": corpus
        }  # fmt: skip
        self.stream = self._opened()

    def reset(self, initial_state: dict[str, Any] | None = None) -> None:
        super().reset(initial_state)
        self.stream = self._opened()
        if initial_state is not None:
            self.stream.load_state_dict(initial_state)

    def next(self) -> Any:
        return next(self.stream)[1]

    def get_state(self) -> dict[str, Any]:
        return self.stream.state_dict()

    def _opened(self) -> MixedStream:
        nodes = {name: ResettingNode(node) for name, node in self.source_nodes.items()}
        return MixedStream(nodes, self.weights, **self._options)


class ResettingNode:
    """A node each of whose iterations starts anew, or where a state was taken."""

    def __init__(self, node: BaseNode[Any]) -> None:
        self.node = node
        self._start: Any = None

    def __iter__(self) -> Iterator[Any]:
        start, self._start = self._start, None
        self.node.reset(start)
        return self.node

    def state_dict(self) -> dict[str, Any]:
        return self.node.state_dict()

    def load_state_dict(self, state: Any) -> None:
        self._start = state
