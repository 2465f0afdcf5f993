"""Find the last linear layer of a model, and check that it can be replaced."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch.nn.parallel import DataParallel, DistributedDataParallel
from torch.nn.utils import parametrize

Path = tuple[Any, ...]
# What models do to scores on their last line.
LINKS = (
    lambda z: z,
    lambda z: torch.softmax(z, -1),
    lambda z: torch.log_softmax(z, -1),
    torch.sigmoid,
    torch.nn.functional.logsigmoid,
)
SHOWN = 12  # layers that an error lists


@contextmanager
def frozen(model: torch.nn.Module) -> Iterator[None]:
    """Run a model in eval mode without gradients; afterwards, every module has its own mode."""
    modes = [(module, module.training) for module in model.modules()]
    try:
        model.eval()
        with torch.no_grad():
            yield
    finally:
        for module, training in modes:
            module.training = training


def unwrapped(model: Any) -> torch.nn.Module:
    """Return the module inside wrappers that compile a model or run it on several devices."""
    while True:
        if not isinstance(model, torch.nn.Module):
            raise TypeError(f"model must be a torch.nn.Module; got {type(model).__name__}")
        inner = getattr(model, "_orig_mod", None)  # torch.compile
        if isinstance(model, (DataParallel, DistributedDataParallel)):
            inner = model.module
        if inner is None:
            return model
        model = inner


def linear_layers(model: torch.nn.Module) -> dict[str, torch.nn.Linear]:
    """Return the linear layers of a model by name."""
    return {
        name: layer for name, layer in model.named_modules() if isinstance(layer, torch.nn.Linear)
    }


def named_layer(model: torch.nn.Module, name: str) -> torch.nn.Linear:
    """Return the linear layer of this name."""
    layers = linear_layers(model)
    if name not in layers:
        found = dict(model.named_modules()).get(name)
        what = "is not a module of the model" if found is None else f"is a {type(found).__name__}"
        which = listed(layers) or "there is none"
        raise ValueError(f"layer={name!r} {what}; it must name a linear layer: {which}")
    return layers[name]


def last_layer(calls: Mapping[str, Any], output: Any, model: torch.nn.Module) -> str:
    """Return the name of the one linear layer whose output is the model's."""
    leaves = tensors(output)
    found = [name for name, (_, z) in calls.items() if any(gives(z, t) for t in leaves.values())]
    if len(found) == 1:
        return found[0]
    layers = linear_layers(model)
    if found:
        among = {name: layers[name] for name in found}
        raise ValueError(
            f"the outputs of {len(found)} linear layers are outputs of the model; name the one to "
            f"fit with layer=: {listed(among)}"
        )
    raise ValueError(
        "no linear layer's output is the model's output, as it is, after softmax or sigmoid, or at "
        f"one position; name the last layer with layer=: {listed(layers) or 'there is none'}"
    )


def check_replaceable(model: torch.nn.Module, name: str, layer: torch.nn.Linear) -> None:
    """Raise if new weights of a layer would be lost, or would change another part of the model."""
    if parametrize.is_parametrized(layer) or "weight" not in dict(layer.named_parameters()):
        raise ValueError(
            f"layer {name!r} computes its weight from other parameters (weight norm, say); remove "
            "the parametrization first: torch.nn.utils.parametrize.remove_parametrizations"
        )
    if not layer.weight.dtype.is_floating_point:
        raise ValueError(
            f"layer {name!r} has weights of {layer.weight.dtype}; a fitted head needs floating "
            "point: keep the last layer out of the quantization"
        )
    own = {id(p) for p in layer.parameters()}
    inside = {f"{name}.{own_name}".lstrip(".") for own_name, _ in layer.named_parameters()}
    for other, parameter in model.named_parameters(remove_duplicate=False):
        if id(parameter) in own and other not in inside:
            raise ValueError(
                f"layer {name!r} shares its weights with {other!r}, which would change as well; "
                "untie them first"
            )


def tensors(output: Any, path: Path = ()) -> dict[Path, torch.Tensor]:
    """Return the floating-point tensors in a model's output, by where they are."""
    if isinstance(output, torch.Tensor):
        return {path: output} if output.dtype.is_floating_point else {}
    if isinstance(output, Mapping):
        inside: Sequence[tuple[Any, Any]] = list(output.items())
    elif isinstance(output, (tuple, list)):
        inside = list(enumerate(output))
    elif hasattr(output, "logits"):
        inside = [("logits", output.logits)]
    else:
        return {}
    found: dict[Path, torch.Tensor] = {}
    for key, value in inside:
        found.update(tensors(value, (*path, key)))
    return found


def gives(z: torch.Tensor, output: torch.Tensor) -> bool:
    """Whether a model's output is a layer's, perhaps after a link or at one position of many."""
    if z.numel() == output.numel():
        flat = output.reshape(z.shape)
        return any(close(link(z), flat) for link in LINKS)
    classes = z.shape[-1]
    if z.ndim < 3 or output.numel() != len(z) * classes:
        return False
    gap = (z.reshape(len(z), -1, classes) - output.reshape(len(z), 1, classes)).abs().amax(-1)
    return bool((gap.amin(1) <= 1e-3 * output.abs().max() + 1e-6).all())


def close(found: torch.Tensor, expected: torch.Tensor) -> bool:
    """Whether two tensors agree up to the rounding of their type."""
    tolerance = max(1e-4, 4 * float(torch.finfo(expected.dtype).eps))
    a, b = (values.detach().cpu().double() for values in (found, expected))
    scale = float(b.abs().max()) if b.numel() else 0.0
    return bool(((a - b).abs() <= tolerance * (scale + 1e-3)).all())


def listed(layers: Mapping[str, torch.nn.Linear]) -> str:
    """Return names and shapes of layers, the last ones first."""
    shown = [
        f"{name!r} ({layer.in_features} -> {layer.out_features})"
        for name, layer in reversed(list(layers.items()))
    ]
    more = f" and {len(shown) - SHOWN} before them" if len(shown) > SHOWN else ""
    return ", ".join(shown[:SHOWN]) + more
