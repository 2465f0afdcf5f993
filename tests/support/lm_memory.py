"""What a forward and a backward pass of a small LLaMA really keep, byte by byte."""

from __future__ import annotations

import contextlib
import weakref

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from counterpoise.lm.training.losses import token_losses


class Peak(TorchDispatchMode):
    """The most bytes that tensors made inside hold at one time; parameters and gradients of the
    model that were there before are not counted."""

    def __init__(self, model):
        super().__init__()
        self.live, self.now, self.most = {}, 0, 0
        there = [t for p in model.parameters() for t in (p, p.grad) if t is not None]
        self.before = {t.untyped_storage()._cdata for t in there}

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(out):
            if isinstance(tensor, torch.Tensor):
                self.note(tensor.untyped_storage())
        return out

    def note(self, storage):
        key = storage._cdata
        if key not in self.live and key not in self.before:
            self.live[key] = storage.nbytes()
            self.now += storage.nbytes()
            self.most = max(self.most, self.now)
            weakref.finalize(storage, self.gone, key)

    def gone(self, key):
        self.now -= self.live.pop(key)


def precise(half):
    return torch.autocast("cpu", torch.bfloat16) if half else contextlib.nullcontext()


def saved_bytes(model, ids, half):
    """Of all tensors that the forward pass leaves for the backward pass, but parameters."""
    own = {p.untyped_storage().data_ptr() for p in model.parameters()}
    found, kept = {}, []

    def pack(tensor):
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            found[storage.data_ptr()] = storage.nbytes()
            kept.append(tensor)  # so that its place is not given to another
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor), precise(half):
        token_losses(model, ids).mean()
    return sum(found.values())


def peak_bytes(model, ids, half):
    """Of the second part of a step: gradients of the first are there, and not counted."""
    for _ in range(2):
        with Peak(model) as peak:
            with precise(half):
                loss = token_losses(model, ids).mean()
            loss.backward()
    return peak.most


def peak_of_evaluation(model, ids, half):
    with torch.no_grad(), Peak(model) as peak, precise(half):
        token_losses(model, ids).double().sum()
    return peak.most
