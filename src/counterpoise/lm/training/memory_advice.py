"""Settings that make a run fit into a device's memory."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from counterpoise.lm.training.rank_memory import RankMemory, rank_memory
from counterpoise.lm.training.settings import TrainSettings
from counterpoise.lm.training.shape import Shape


@dataclass(frozen=True)
class Need:
    """What memory depends on, apart from ``[train]``.

    Attributes
    ----------
    shape : Shape
    evaluation_batch, ranks : int
    reference : int
        Parameters of a reference model.
    """

    shape: Shape
    evaluation_batch: int
    ranks: int = 1
    reference: int = 0

    def memory(self, train: TrainSettings) -> RankMemory:
        return rank_memory(self.shape, train, self.ranks, self.evaluation_batch, self.reference)

    def micro_batch(self, train: TrainSettings, room: float) -> int | None:
        """Find the largest micro-batch that fits; None if none does."""
        mine = train.batch // self.ranks
        for micro in (m for m in range(mine, 0, -1) if mine % m == 0):
            if self.memory(replace(train, micro_batch=micro)).training <= room:
                return micro
        return None


def advice_for(need: Need, train: TrainSettings, room: float | None) -> tuple[str, ...]:
    """Suggest settings that fit, if the given ones do not."""
    if room is None:
        return ()
    memory, found = need.memory(train), []
    if memory.training > room:
        found.append(_smaller_step(need, train, room))
    if memory.evaluating > room:
        base = memory.evaluating - memory.evaluation
        batch = int((room - base) // (memory.evaluation // need.evaluation_batch))
        if batch >= 1:
            found.append(f"evaluate.batch = {batch} fits")
    return tuple(found)


def _smaller_step(need: Need, train: TrainSettings, room: float) -> str:
    recompute = {} if train.activation_checkpointing else {"activation_checkpointing": True}
    shard = {"parallel": "fsdp"} if need.ranks > 1 and train.parallel != "fsdp" else {}
    changes: dict[str, Any]
    for changes in ({}, recompute, shard, recompute | shard):
        micro = need.micro_batch(replace(train, **changes), room)
        if micro is not None:
            shown = {"micro_batch": micro, **changes}
            return " and ".join(f"train.{k} = {_toml(v)}" for k, v in shown.items()) + " fits"
    return (
        "no micro-batch fits; use more ranks with train.parallel = 'fsdp', or devices with more "
        "memory"
    )


def _toml(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else repr(value)
