"""Run a frozen body and collect what the last layer makes its scores from."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import torch

from counterpoise.torch.heads.batches import Batch, as_array, call
from counterpoise.torch.heads.layers import (
    Path,
    check_replaceable,
    close,
    gives,
    last_layer,
    linear_layers,
    named_layer,
    tensors,
)

Array = np.ndarray


@dataclass(frozen=True)
class Body:
    """A model up to its last layer.

    Attributes
    ----------
    model : Module
    name : str
    layer : Linear
    path : tuple, optional
        Where the model's output has its scores, if the layer is applied at many positions, of
        which the model then takes one or an average. None if the layer sees one row per example.
    """

    model: torch.nn.Module
    name: str
    layer: torch.nn.Linear
    path: Path | None

    def rows(self, inputs: Any) -> torch.Tensor:
        """Return the embeddings of a batch, one row per example.

        With a path, the layer passes its input on instead of scores, and the model chooses or
        averages positions as it does with scores.
        """
        device = device_of(self.model)
        if self.path is None:
            with recorded({self.name: self.layer}) as calls:
                call(self.model, inputs, device)
            return once(calls, self.name)[0]
        hook = self.layer.register_forward_hook(lambda _, args, __: args[0])
        try:
            output = call(self.model, inputs, device)
        finally:
            hook.remove()
        found = tensors(output).get(self.path)
        if found is None or found.shape[-1:] != (self.layer.in_features,):
            raise ValueError(_unpooled(self.name))
        return found.reshape(-1, self.layer.in_features)


def open_body(model: torch.nn.Module, name: str | None, inputs: Any) -> Body:
    """Look at a model with one batch: which layer is the last, and what follows it.

    Called with the model `frozen`.
    """
    layers = linear_layers(model)
    if name is not None:
        layers = {name: named_layer(model, name)}
    with recorded(layers) as calls:
        output = call(model, inputs, device_of(model))
    made = {n: found[-1] for n, found in calls.items() if found}
    chosen = last_layer(made, output, model) if name is None else name
    embedded, z = once(calls, chosen)
    layer = layers[chosen]
    check_replaceable(model, chosen, layer)
    if embedded.ndim > 2:
        return _pooled(Body(model, chosen, layer, None), inputs, output)
    if not any(gives(z, leaf) for leaf in tensors(output).values()):
        warnings.warn(
            f"the model's output is not that of layer {chosen!r}, nor its softmax or sigmoid: the "
            "fit and its certificate are about the layer's output; check what the model does after "
            "it, and whether this is the last layer",
            stacklevel=4,
        )
    return Body(model, chosen, layer, None)


def _pooled(body: Body, inputs: Any, output: Any) -> Body:
    """Find where the output has its scores, and check that they come from one row per example."""
    classes = body.layer.out_features
    cause: Exception | None = None
    for path, leaf in tensors(output).items():
        if leaf.shape[-1:] != (classes,) and not (classes == 1 and leaf.ndim == 1):
            continue
        found = Body(body.model, body.name, body.layer, path)
        try:
            rows = found.rows(inputs)
        except (ValueError, RuntimeError, IndexError) as error:  # scores of another width
            cause = error
            continue
        z = torch.nn.functional.linear(rows, body.layer.weight, body.layer.bias)
        if z.numel() == leaf.numel() and close(z, leaf.reshape(z.shape)) and leaf.ndim < 3:
            return found
    raise ValueError(_unpooled(body.name)) from cause


def _unpooled(name: str) -> str:
    return (
        f"layer {name!r} is applied at many positions of each example, and the model's output is "
        "neither one position's scores nor an average of them; models with one label per example "
        "are supported"
    )


def embed(body: Body, batches: Iterable[Batch]) -> Iterator[tuple[Array, Array, Array | None]]:
    """Yield embeddings in single precision or double, labels and groups, batch by batch.

    Called with the model `frozen`.
    """
    for number, batch in enumerate(batches, 1):
        rows = body.rows(batch.inputs).detach().cpu()
        X = (rows if rows.dtype in (torch.float32, torch.float64) else rows.float()).numpy()
        if not np.isfinite(X).all():
            raise ValueError(
                f"the inputs of layer {body.name!r} are not finite in batch {number}; look for NaN "
                "in the batch, or run the model in float32 or bfloat16 if float16 overflows"
            )
        y = as_array(batch.labels, "labels")
        y = y[:, 0] if y.ndim == 2 and y.shape[1] == 1 else y
        if y.ndim != 1 or len(y) != len(X):
            raise ValueError(
                f"layer {body.name!r} sees {len(X)} rows in a batch with labels of shape "
                f"{y.shape}; it needs one row and one label per example"
            )
        groups = None if batch.groups is None else as_array(batch.groups, "groups")
        if groups is not None and len(groups) != len(y):
            raise ValueError(f"a batch has {len(y)} labels but groups of shape {groups.shape}")
        yield X, y, groups


def first_and_all(batches: Iterator[Batch]) -> tuple[Batch, Iterator[Batch]]:
    """Return the first batch, and all of them."""
    first = next(batches, None)
    if first is None:
        raise ValueError("loader yields no batch; it needs rows to fit the head to")
    return first, chain([first], batches)


@contextmanager
def recorded(layers: dict[str, torch.nn.Linear]) -> Iterator[dict[str, list[Any]]]:
    """Record the input and output of every call of these layers."""
    calls: dict[str, list[Any]] = {name: [] for name in layers}

    def recorder(name: str) -> Any:
        return lambda _, args, z: calls[name].append((args[0], z))

    hooks = [layer.register_forward_hook(recorder(name)) for name, layer in layers.items()]
    try:
        yield calls
    finally:
        for hook in hooks:
            hook.remove()


def once(calls: dict[str, list[Any]], name: str) -> Any:
    """Return the one call of a layer."""
    if len(calls[name]) != 1:
        raise ValueError(
            f"layer {name!r} was called {len(calls[name])} times for one batch; the last layer "
            "must be called exactly once"
        )
    return calls[name][0]


def device_of(model: torch.nn.Module) -> torch.device:
    """Return the device that a model's inputs go to: that of its first parameter."""
    first = next(model.parameters(), None)
    if first is None:
        raise ValueError(f"model has no parameters, so there is no layer to fit: {model!r}")
    return first.device
