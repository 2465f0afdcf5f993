"""Sizes of parallelism, from transformers or from accelerate."""

from types import SimpleNamespace

import pytest

from counterpoise.lm.adapters.hf_ranks import parallel_size, ranks_per_sample


def trainer_of(config=None, **methods):
    return SimpleNamespace(accelerator=SimpleNamespace(parallelism_config=config), **methods)


def test_sizes_come_from_the_trainer_or_its_accelerator():
    config = SimpleNamespace(tp_size=2, cp_size=3)  # without sp_size, as before accelerate 1.12
    assert ranks_per_sample(trainer_of(config)) == 6
    assert ranks_per_sample(trainer_of()) == 1
    assert ranks_per_sample(SimpleNamespace(accelerator=SimpleNamespace())) == 1
    by_model = trainer_of(config, get_tp_size=lambda: 4)
    assert [parallel_size(by_model, kind) for kind in ("tp", "cp", "sp")] == [4, 3, 1]


def test_sequence_parallelism_is_refused():
    with pytest.raises(ValueError, match=r"sp_size=2.*use context or tensor parallelism"):
        ranks_per_sample(trainer_of(SimpleNamespace(sp_size=2)))
