"""States as tensors of one size."""

import pytest
import torch

from counterpoise import Reweighter
from counterpoise.lm import Steering
from counterpoise.lm.sealed import DamagedFile
from counterpoise.lm.sealed_tensor import from_tensor, room_for, to_tensor


@pytest.mark.parametrize("K", [1, 7, 300])
@pytest.mark.parametrize("rule", ["adaptive", "pd-kl", "odm", "doremi"])
def test_states_of_reweighters_have_room_and_one_size(rule, K):
    names = [f"domain with a longer name, {k} ±" for k in range(K)]
    steering = Steering(Reweighter(names, rule))
    sizes = set()
    for step in range(1, 4):
        tensor = to_tensor(steering.state_dict(), room_for(names), "use more")
        sizes.add(tensor.shape)
        assert from_tensor(tensor) == steering.state_dict()
        steering.observe([1.0 / (k + 3) + step for k in range(K)], step=step)
    assert sizes == {(room_for(names),)}


def test_damage_is_noticed():
    tensor = to_tensor({"step": 3}, room_for(["a"]), "use more")
    flipped = tensor.clone()
    flipped[9] ^= 1
    for damaged in (flipped, torch.zeros_like(tensor), tensor[:5]):
        with pytest.raises(DamagedFile, match="resume from another checkpoint"):
            from_tensor(damaged)


def test_a_state_that_is_too_large_is_refused():
    with pytest.raises(ValueError, match=r"takes 1000\d\d bytes, more than \d+; use more"):
        to_tensor({"text": "x" * 100_000}, room_for(["a"]), "use more")
