"""Which dimensions of a mesh are data-parallel, for every rank of meshes of any shape."""

from types import SimpleNamespace

import pytest
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.testing._internal.distributed.fake_pg import FakeStore

from counterpoise.torch import data_group, data_rank
from counterpoise.torch.mesh import is_data


@pytest.fixture
def joined():
    """Be one of many ranks, of which the others are not there."""

    def join(rank, size):
        if dist.is_initialized():
            dist.destroy_process_group()
        dist.init_process_group("fake", store=FakeStore(), rank=rank, world_size=size)

    yield join
    if dist.is_initialized():
        dist.destroy_process_group()


def ranks_of(joined, size, make):
    found = []
    for rank in range(size):
        joined(rank, size)
        found.append(data_rank(make()))
    return found


@pytest.mark.parametrize(
    ("shape", "names", "places", "size"),
    [
        ((4,), None, [0, 1, 2, 3], 4),
        ((4,), ("whatever",), [0, 1, 2, 3], 4),
        ((2, 2), ("dp", "tp"), [0, 0, 1, 1], 2),
        ((2, 2), ("pp", "dp"), [0, 1, 0, 1], 2),
        ((2, 2), ("data_parallel", "tensor_parallel"), [0, 0, 1, 1], 2),
        ((1, 4), ("dp", "cp"), [0] * 4, 1),
        ((2, 2), ("replicate", "shard"), [0, 1, 2, 3], 4),
        ((2, 2, 2), ("dp_replicate", "tp", "dp_shard"), [0, 1, 0, 1, 2, 3, 2, 3], 4),
        ((2, 2, 2), ("dp_shard_mod_ep", "dp_shard_in_ep", "cp"), [0, 0, 1, 1, 2, 2, 3, 3], 4),
        ((2, 1), ("FSDP", "ep"), [0, 1], 2),
    ],
)
def test_ranks_by_the_names_of_dimensions(joined, shape, names, places, size):
    def make():
        return init_device_mesh("cpu", shape, mesh_dim_names=names)

    assert ranks_of(joined, len(places), make) == [(place, size) for place in places]


def test_part_of_a_mesh_is_taken_as_it_is(joined):
    def make(*names):
        return init_device_mesh("cpu", (2, 2, 2), mesh_dim_names=("x", "dp", "tp"))[names]

    assert ranks_of(joined, 8, lambda: make("x")) == [(r // 4, 2) for r in range(8)]
    assert ranks_of(joined, 8, lambda: make("dp", "tp")) == [(r // 2 % 2, 2) for r in range(8)]


def test_ranks_in_another_order(joined):
    def make():
        return DeviceMesh("cpu", [[3, 2], [1, 0]], mesh_dim_names=("dp", "tp"))

    assert ranks_of(joined, 4, make) == [(1, 2), (1, 2), (0, 2), (0, 2)]


@pytest.mark.parametrize(
    ("shape", "names", "message"),
    [
        ((2, 2), None, r"DeviceMesh\(0=2, 1=2\) has 2 dimensions without names.*mesh_dim_names"),
        ((2, 2), ("a", "b"), r"DeviceMesh\(a=2, b=2\): by their names, \['a', 'b'\] may be data"),
        ((2, 2), ("dp", "ep"), r"\['ep'\] may be data-parallel or not; pass .* mesh\['dp'\]"),
        ((2, 2), ("dp", "dp_cp"), r"\['dp_cp'\] may be"),
        ((2, 2), ("pp", "tp"), r"none is data-parallel; .* a dimension 'dp' of size 1"),
        ((4,), ("tp",), r"DeviceMesh\(tp=4\) has no dimension of data-parallel ranks alone"),
        ((4,), ("dp_cp",), "no dimension of data-parallel ranks alone"),
    ],
)
def test_a_mesh_that_does_not_say_is_an_error(joined, shape, names, message):
    joined(0, 4)
    mesh = init_device_mesh("cpu", shape, mesh_dim_names=names)
    for find in (data_rank, data_group):
        with pytest.raises(ValueError, match=message):
            find(mesh)


def test_what_is_no_mesh_or_lacks_this_rank_is_an_error(joined):
    with pytest.raises(TypeError, match=r"device_mesh\.DeviceMesh; got SimpleNamespace"):
        data_rank(SimpleNamespace(ndim=1))
    joined(3, 4)
    with pytest.raises(ValueError, match="does not contain this process"):
        data_rank(DeviceMesh("cpu", [0, 1], mesh_dim_names=("dp",)))


def test_groups_of_one_and_of_several_dimensions(joined):
    joined(5, 8)
    mesh = init_device_mesh("cpu", (2, 2, 2), mesh_dim_names=("dp_replicate", "dp_shard", "tp"))
    group = data_group(mesh)
    assert dist.get_process_group_ranks(group) == [1, 3, 5, 7]
    assert data_group(mesh) is group, "made once"
    assert dist.get_process_group_ranks(data_group(mesh["dp_shard"])) == [5, 7]
    assert dist.get_process_group_ranks(data_group(mesh["dp_shard", "tp"])) == [5, 7]


def test_names():
    assert [is_data(name) for name in ("dp", "ddp", "fsdp", "HSDP", "data-parallel", "batch")] == [
        True
    ] * 6
    assert not any(is_data(name) for name in ("tp", "pp", "cp", "sp", "sequence_parallel", "model"))
    assert is_data("sp") is False
    assert [is_data(name) for name in ("ep", "expert", "dp_cp", "loss", "update")] == [None] * 5
