"""The data-parallel part of a `DeviceMesh`: a rank in it, its process group, agreement beside it.

Ranks that differ only in a tensor-, pipeline- or context-parallel dimension work on the same
samples, so they share one data-parallel rank.
"""

from __future__ import annotations

import re
from typing import Any

import torch

from counterpoise.torch.distributed import first_of

# Words in the names of dimensions, whose ranks read other samples, or the same ones.
DATA = frozenset({"dp", "ddp", "fsdp", "hsdp", "data", "batch", "replicate", "shard"})
MODEL = frozenset(
    {"tp", "pp", "cp", "sp", "tensor", "pipeline", "pipe", "context", "sequence", "model"}
)
REMEDY = (
    "pass its data-parallel dimensions alone, for instance mesh['dp'] or "
    "mesh['dp_replicate', 'dp_shard']. If all ranks read the same samples, make a mesh with a "
    "dimension 'dp' of size 1"
)


def data_rank(mesh: Any) -> tuple[int, int]:
    """Return this process's rank among the data-parallel ranks of a mesh, and their number.

    Parameters
    ----------
    mesh : torch.distributed.device_mesh.DeviceMesh
        One dimension, or several with names. Of several, those are data-parallel that have a word
        such as ``dp``, ``fsdp``, ``data``, ``batch``, ``replicate`` or ``shard`` in their names
        (``dp_replicate`` and ``dp_shard`` count together), and those are not that have one such as
        ``tp``, ``pp``, ``cp`` or ``sp``. Any other name of a dimension above 1 is an error.
    """
    dims = data_dims(mesh)
    place = mesh.get_coordinate()
    if place is None:
        raise ValueError(
            f"mesh={_described(mesh)} does not contain this process; pass a mesh that does"
        )
    rank, size = 0, 1
    for dim in dims:
        rank = rank * int(mesh.shape[dim]) + int(place[dim])
        size *= int(mesh.shape[dim])
    return rank, size


def data_group(mesh: Any) -> Any:
    """Return the process group of a mesh's data-parallel ranks; see `data_rank`.

    Several data-parallel dimensions are flattened to one the first time, so every rank must call.
    """
    dims = data_dims(mesh)
    wide = [dim for dim in dims if mesh.shape[dim] > 1] or list(dims[:1])
    if len(wide) == 1:
        return mesh.get_group(wide[0])
    part = mesh if len(wide) == mesh.ndim else mesh[tuple(mesh.mesh_dim_names[d] for d in wide)]
    return part._flatten().get_group()  # noqa: SLF001  there is no public way


def agree(values: torch.Tensor, mesh: Any) -> torch.Tensor:
    """Return the values of the first of all ranks that share a data-parallel rank.

    Sums over different process groups may differ in their last digit. Every rank must call.
    """
    dims = data_dims(mesh)
    for dim in range(mesh.ndim):
        if dim not in dims and mesh.shape[dim] > 1:
            values = first_of(values, mesh.get_group(dim))
    return values


def data_dims(mesh: Any) -> tuple[int, ...]:
    """Return the positions of a mesh's data-parallel dimensions; see `data_rank`."""
    from torch.distributed.device_mesh import DeviceMesh

    if not isinstance(mesh, DeviceMesh):
        raise TypeError(
            "mesh must be a torch.distributed.device_mesh.DeviceMesh; got "
            f"{type(mesh).__name__}; make one with init_device_mesh"
        )
    names = mesh.mesh_dim_names
    if mesh.ndim == 1:
        if names and _words(names[0]) & MODEL:
            raise ValueError(
                f"mesh={_described(mesh)} has no dimension of data-parallel ranks alone; {REMEDY}"
            )
        return (0,)
    if not names:
        raise ValueError(
            f"mesh={_described(mesh)} has {mesh.ndim} dimensions without names, so its "
            "data-parallel ones are unknown; give mesh_dim_names to init_device_mesh, such as "
            "('dp', 'tp')"
        )
    found = tuple(dim for dim, name in enumerate(names) if is_data(name))
    sizes = dict(zip(names, mesh.shape, strict=True))
    unknown = [name for name, size in sizes.items() if size > 1 and is_data(name) is None]
    if unknown or not found:
        what = f"{unknown} may be data-parallel or not" if unknown else "none is data-parallel"
        raise ValueError(f"mesh={_described(mesh)}: by their names, {what}; {REMEDY}")
    return found


def is_data(name: str) -> bool | None:
    """Return whether a dimension of this name is data-parallel; None if the name does not say.

    >>> [is_data(name) for name in ("dp_shard", "tensor_parallel", "dp_cp", "ep")]
    [True, False, None, None]
    """
    words = _words(name)
    data, model = bool(words & DATA), bool(words & MODEL)
    return None if data == model else data


def _words(name: str) -> set[str]:
    return set(re.split(r"[^a-z0-9]+", name.lower()))


def _described(mesh: Any) -> str:
    """Show a mesh's dimensions and their sizes.

    >>> from types import SimpleNamespace
    >>> _described(SimpleNamespace(mesh_dim_names=("dp", "tp"), shape=(2, 4)))
    'DeviceMesh(dp=2, tp=4)'
    """
    names = mesh.mesh_dim_names or range(len(mesh.shape))
    sizes = ", ".join(f"{name}={size}" for name, size in zip(names, mesh.shape, strict=True))
    return f"DeviceMesh({sizes})"
