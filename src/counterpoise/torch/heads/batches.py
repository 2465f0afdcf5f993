"""Read what loaders yield: inputs of the model, labels and groups."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.utils.data import (
    DataLoader,
    DistributedSampler,
    RandomSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)

Array = np.ndarray

LABELS = ("labels", "label", "y", "target", "targets")
GROUPS = ("groups", "group", "g")
UNPACK = "pass unpack=, a function from a batch to (inputs, labels, groups or None)"


class Batch(NamedTuple):
    """A batch, taken apart."""

    inputs: Any
    labels: Any
    groups: Any = None


Unpack = Callable[[Any], tuple[Any, ...]]


def read_batches(loader: Iterable[Any], unpack: Unpack | None) -> Iterator[Batch]:
    """Yield the batches of a loader, taken apart."""
    for batch in loader:
        yield take_apart(batch) if unpack is None else Batch(*unpack(batch))


def take_apart(batch: Any) -> Batch:
    """Split ``(x, y)``, ``(x, y, groups)`` or a mapping into inputs, labels and groups."""
    if isinstance(batch, Mapping) or (hasattr(batch, "data") and hasattr(batch, "keys")):
        inputs = dict(batch)
        labels = [inputs.pop(name) for name in LABELS if name in inputs]
        groups = [inputs.pop(name) for name in GROUPS if name in inputs]
        if len(labels) != 1 or len(groups) > 1:
            raise ValueError(
                f"the loader yields a mapping with {sorted(map(str, batch))!r}; it needs the "
                f"labels under one of {LABELS!r} and may have groups under one of {GROUPS!r}; "
                f"{UNPACK}"
            )
        return Batch(inputs, labels[0], groups[0] if groups else None)
    if isinstance(batch, (tuple, list)) and len(batch) in (2, 3):
        return Batch(*batch)
    kind = f"{type(batch).__name__} of {len(batch)}" if hasattr(batch, "__len__") else type(batch)
    raise ValueError(
        f"the loader must yield (x, y), (x, y, groups) or a mapping; it yields {kind}; {UNPACK}"
    )


def check_order(loader: Any) -> None:
    """Raise if a loader draws rows in an order that groups in an array cannot follow."""
    if not isinstance(loader, DataLoader):
        return
    sampler = getattr(loader.batch_sampler, "sampler", loader.sampler)
    random = (RandomSampler, SubsetRandomSampler, WeightedRandomSampler)
    shuffled = isinstance(sampler, DistributedSampler) and sampler.shuffle
    if isinstance(sampler, random) or shuffled:
        raise ValueError(
            f"loader draws rows at random ({type(sampler).__name__}), so groups cannot be matched "
            "with them; use shuffle=False, or yield the groups in the batches: (x, y, groups)"
        )


def call(model: torch.nn.Module, inputs: Any, device: torch.device) -> Any:
    """Call a model with a batch's inputs: keywords of a mapping, or positions of a sequence."""
    inputs = _moved(inputs, device)
    if isinstance(inputs, Mapping):
        if len(inputs) == 1 and not _takes(model, inputs):
            return model(*inputs.values())
        return model(**inputs)
    return model(*inputs) if isinstance(inputs, (tuple, list)) else model(inputs)


def as_array(values: Any, name: str) -> Array:
    """Return a batch's labels or groups as an array, without gradients, on the CPU."""
    if isinstance(values, torch.Tensor):
        values = values.detach().cpu()
        if values.dtype == torch.bfloat16:
            values = values.float()
        return np.asarray(values.numpy())
    found = np.asarray(values)
    if found.ndim == 0:
        raise ValueError(f"{name} of a batch must be one per row; got {values!r}")
    return found


def _moved(values: Any, device: torch.device) -> Any:
    if isinstance(values, torch.Tensor) or hasattr(values, "to"):
        return values.to(device)
    if isinstance(values, Mapping):
        return {name: _moved(value, device) for name, value in values.items()}
    if isinstance(values, (tuple, list)):
        return type(values)(_moved(value, device) for value in values)
    return values


def _takes(model: torch.nn.Module, inputs: Mapping[str, Any]) -> bool:
    """Whether a model's forward can be called with these keywords."""
    try:
        inspect.signature(model.forward).bind(**inputs)
    except (TypeError, ValueError):
        return False
    return True
