"""States in torch.distributed.checkpoint; other numbers of ranks are in test_meshes.py."""

import json

import pytest
import torch
import torch.distributed.checkpoint as dcp
from lm_problems import numbered_corpus
from torch.distributed.checkpoint.stateful import Stateful

from counterpoise import Reweighter
from counterpoise.lm import Checkpointable, MixtureDataset, Steering
from counterpoise.lm.sealed import DamagedFile, seal
from counterpoise.lm.sealed_tensor import room_for
from counterpoise.reweight import Tags
from counterpoise.torch import GroupDROLoss

# torch says so where there is one process.
pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is disabled")


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    sizes = {"a.b": 40, "a": 11, "ü": 90}
    return numbered_corpus(tmp_path_factory.mktemp("corpus") / "c", sizes, 4)


def steered(corpus, rule="adaptive"):
    mixture = MixtureDataset(corpus, 4, seed=1)
    return Steering(Reweighter(mixture.domains, rule, start=mixture.weights), mixture)


@pytest.mark.parametrize("rule", ["adaptive", "pd-kl", "doremi"])
def test_a_steering_with_weights_still_to_come(corpus, tmp_path, rule):
    old = steered(corpus, rule)
    loader = old.mixture.loader(4, lag=50)
    for step, _ in zip(range(1, 31), loader, strict=False):
        old.observe([1.0, 2.0 + step % 3, 3.0], [5.0, 5.0, 5.0], step, errors=[0.1, 0.1, 0.1])
    assert len(old.state_dict()["mixture"]["changes"]) == 31
    dcp.save({"steering": Checkpointable(old)}, checkpoint_id=tmp_path)
    new = steered(corpus, rule)
    dcp.load({"steering": Checkpointable(new)}, checkpoint_id=tmp_path)
    assert new.state_dict() == old.state_dict()


def test_each_kind_of_state(corpus, tmp_path):
    def kinds():
        steering = steered(corpus)
        loader = MixtureDataset(corpus, 4).loader(4)
        return {
            "reweighter": steering.reweighter,
            "mixture": steering.mixture,
            "loader": loader,
            "criterion": GroupDROLoss(Reweighter(["a", "b"])),
        }

    old, new = kinds(), kinds()
    old["reweighter"].update([1.0, 2.0, 3.0])
    old["mixture"].set_weights([0.2, 0.3, 0.5])
    next(iter(old["loader"]))
    old["criterion"](torch.tensor([1.0, 2.0]), torch.tensor([0, 1]))
    wrapped = {name: Checkpointable(target) for name, target in old.items()}
    assert all(isinstance(one, Stateful) for one in wrapped.values())
    dcp.save(wrapped, checkpoint_id=tmp_path)
    states = {name: target.state_dict() for name, target in old.items()}
    assert {name: target.state_dict() for name, target in new.items()} != states
    dcp.load({k: Checkpointable(v) for k, v in new.items()}, checkpoint_id=tmp_path)
    assert {name: target.state_dict() for name, target in new.items()} == states


def test_no_state_is_stored_as_a_pickle(corpus, tmp_path):
    dcp.save({"steering": Checkpointable(steered(corpus))}, checkpoint_id=tmp_path)
    metadata = dcp.FileSystemReader(tmp_path).read_metadata().state_dict_metadata
    assert {name: type(entry).__name__ for name, entry in metadata.items()} == {
        "steering.json": "TensorStorageMetadata"
    }


def test_a_thousand_domains_fill_a_quarter():
    names = [f"domain number {i} of a corpus" for i in range(1000)]
    reweighter = Reweighter(names, "adaptive")
    for step in range(1, 4):
        reweighter.update([1.0 / (i + step + 1) for i in range(1000)], None, step)
    data = Checkpointable(reweighter).state_dict()["json"]
    assert data.shape == (room_for(names),)
    assert 0 < int(torch.count_nonzero(data)) < len(data) / 4


def test_a_state_that_is_too_large_names_the_remedy():
    reweighter = Reweighter(["a", "b"])
    with pytest.raises(ValueError, match=r"more than 100; use .*capacity=\d+\), also for"):
        Checkpointable(reweighter, capacity=100).state_dict()
    with pytest.raises(ValueError, match="capacity"):
        Checkpointable(reweighter, capacity=0)
    with pytest.raises(TypeError, match="methods state_dict and load_state_dict; got dict"):
        Checkpointable({})


def test_damage_and_other_formats_are_refused():
    reweighter = Reweighter(["a", "b"], extrapolation=0.0)
    reweighter.update([1.0, 2.0])
    before = reweighter.state_dict()
    wrapped = Checkpointable(reweighter)
    whole = wrapped.state_dict()["json"]
    for at in (0, 40, int(torch.count_nonzero(whole)) - 1):
        data = whole.clone()
        data[at] ^= 1
        with pytest.raises(DamagedFile, match=r"the stored state is damaged: .*another checkpoint"):
            wrapped.load_state_dict({"json": data})
    text = json.dumps(seal({"format": "counterpoise state", "version": 9, "state": {}})).encode()
    with pytest.raises(ValueError, match="of version 9; this release reads"):
        wrapped.load_state_dict({"json": torch.frombuffer(bytearray(text), dtype=torch.uint8)})
    with pytest.raises(ValueError, match="no 'json'; load what Checkpointable"):
        wrapped.load_state_dict({"other": whole})
    assert reweighter.state_dict() == before


def test_tags_have_room_for_their_patterns():
    tags = Tags({f"pattern {i}": [f"tag {i % 7}", f"tag {i % 5}"] for i in range(300)}, [1] * 300)
    found = Checkpointable(Steering(Reweighter(tags.tags), tags=tags))
    assert found.capacity == room_for([*tags.tags, *tags.domains])
