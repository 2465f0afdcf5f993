"""A mixture takes numbers from a mesh, which its workers could not copy."""

import pytest
import torch.distributed as dist
from lm_problems import numbered_corpus, small_llama
from torch.distributed.device_mesh import init_device_mesh
from torch.testing._internal.distributed.fake_pg import FakeStore

from counterpoise.lm import MixtureDataset, domain_losses


@pytest.fixture
def mesh():
    """That of 2 x 2 ranks, of which this is the last and the others are not there."""
    dist.init_process_group("fake", store=FakeStore(), rank=3, world_size=4)
    yield init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    dist.destroy_process_group()


@pytest.fixture
def corpus(tmp_path):
    return numbered_corpus(tmp_path / "c", {"a": 40, "b": 11}, 4)


def test_rank_and_size_are_numbers(corpus, mesh):
    mixture = MixtureDataset(corpus, 4, mesh=mesh)
    assert (mixture.rank, mixture.world_size) == (1, 2)
    assert not any(value is mesh for value in vars(mixture).values())
    alike = MixtureDataset(corpus, 4, rank=1, world_size=2)
    ours, theirs = (
        [batch["input_ids"].tolist() for batch, _ in zip(m.loader(3), range(5), strict=False)]
        for m in (mixture, alike)
    )
    assert ours == theirs


def test_a_mesh_comes_alone(corpus, mesh):
    with pytest.raises(ValueError, match=r"give mesh, or rank and world_size; got rank=0 and"):
        MixtureDataset(corpus, 4, mesh=mesh, rank=0, world_size=2)
    with pytest.raises(ValueError, match="give mesh or group, not both"):
        domain_losses(small_llama(), {}, mesh=mesh, group=mesh.get_group("dp"))
