"""Put the model of a run on its devices: whole, replicated or sharded.

A sharded model is never whole on any device. The first rank makes it on its CPU. All ranks make its
skeleton on the meta device, which has shapes and no numbers, and shard that. The numbers then
arrive one parameter at a time, and each rank keeps its part.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.checkpoint.state_dict import StateDictOptions, set_model_state_dict

from counterpoise.lm.corpus.tokens import Corpus
from counterpoise.lm.training.model import blocks_of, make_model, make_skeleton
from counterpoise.lm.training.ranks import Process
from counterpoise.lm.training.settings import Settings, TrainSettings

FROM_FIRST_RANK = StateDictOptions(full_state_dict=True, broadcast_from_rank0=True)


def place_model(settings: Settings, corpus: Corpus, process: Process) -> Any:
    """Make a run's model and put it on its devices; the numbers do not depend on how."""
    train = settings.train
    if process.world > 1 and train.parallel == "fsdp":
        return _sharded_model(settings, corpus, process)
    model = make_model(settings, corpus).to(process.device)
    if train.compile:
        model.compile()
    if process.world == 1:
        return model
    devices = [process.device] if process.device.type == "cuda" else None
    return torch.nn.parallel.DistributedDataParallel(model, device_ids=devices)


def is_sharded(model: Any) -> bool:
    """Return whether each rank holds only a part of every parameter."""
    return hasattr(model, "set_requires_gradient_sync")


def _sharded_model(settings: Settings, corpus: Corpus, process: Process) -> Any:
    made: list[Any] = []
    process.on_first_rank(lambda: made.append(make_model(settings, corpus)))
    whole = made.pop() if made else None
    sent = [None if whole is None else copy.deepcopy(whole.config)]
    dist.broadcast_object_list(sent, 0)
    skeleton = make_skeleton(settings, sent[0])
    model = shard(skeleton, process, settings.train)
    fill(model, whole, process)
    return model


def shard(model: Any, process: Process, train: TrainSettings) -> Any:
    """Shard every block and what is outside of them, and compile the blocks if asked to."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    mesh = init_device_mesh(process.device.type, (process.world,))
    half = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    policy = half if train.precision == "bf16" else MixedPrecisionPolicy()
    for block in blocks_of(model):
        if train.compile:
            block.compile()
        fully_shard(block, mesh=mesh, mp_policy=policy)
    return fully_shard(model, mesh=mesh, mp_policy=policy)


def fill(model: Any, whole: Any, process: Process) -> None:
    """Give a sharded skeleton the numbers of a whole model, which only the first rank has."""
    model.to_empty(device=process.device)
    numbers = {} if whole is None else whole.state_dict()
    set_model_state_dict(model, numbers, options=FROM_FIRST_RANK)
    for path, name, empty in list(_beside_state(model)):
        if whole is None:
            value = torch.empty_like(empty, device=process.device)
        else:
            value = getattr(whole.get_submodule(path), name).to(process.device).contiguous()
        dist.broadcast(value, 0)
        setattr(model.get_submodule(path), name, value)


def _beside_state(model: Any) -> Iterator[tuple[str, str, torch.Tensor]]:
    """Yield tensors that are no parameters, such as frequencies of rotary embeddings.

    Those that no state dict has are buffers, or plain attributes in older transformers.
    """
    for path, module in model.named_modules():
        plain = {k: v for k, v in vars(module).items() if isinstance(v, torch.Tensor)}
        for name, value in {**dict(module.named_buffers(recurse=False)), **plain}.items():
            yield path, name, value
