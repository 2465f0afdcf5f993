"""torchtitan: the same samples on any number of ranks, and a resume on another."""

import json
import re
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from lm_adapters import SIZES, make_corpus
from lm_titan import SEQ_LEN, StandIn
from paths import SUPPORT
from ranks import run_ranks
from titan_workers import EVERY, SAVED, STEPS

from counterpoise import Reweighter, ReweightWarning
from counterpoise.lm import JsonlLog, MixtureDataset, domain_losses, held_out
from counterpoise.lm.adapters.torchtitan import (
    STATE,
    MixtureDataLoader,
    build_dataloader_fn,
    document_positions,
    held_out_losses,
    reweight,
)
from counterpoise.lm.sealed import DamagedFile

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return make_corpus(tmp_path_factory.mktemp("lm") / "corpus")


def loader_of(corpus, rank=0, world=1, batch=4, **options):
    config = MixtureDataLoader.Config(corpus=str(corpus.folder), seed=1, **options)
    return config.build(
        dp_world_size=world, dp_rank=rank, seq_len=SEQ_LEN, local_batch_size=batch, tokenizer=None
    )


def batches(loader, count):
    return [batch for _, batch in zip(range(count), loader, strict=False)]


def test_batches_are_the_mixtures_split_into_inputs_and_labels(corpus):
    plain = iter(MixtureDataset(corpus, SEQ_LEN + 1, seed=1).loader(4))
    for inputs, labels in batches(loader_of(corpus, positions=True), 5):
        ids = next(plain)["input_ids"]
        assert torch.equal(inputs["input"], ids[:, :-1])
        assert torch.equal(labels, ids[:, 1:])
        starts = inputs["positions"] == 0
        assert starts[:, 0].all()
        assert torch.equal(starts[:, 1:], ids[:, :-2] == 0), "documents end in token 0"
    assert "positions" not in batches(loader_of(corpus, positions=False), 1)[0][0]


def test_positions_are_on_the_device_of_the_tokens():
    """Held-out batches are split after they were moved to a card."""
    positions = document_positions(torch.zeros(2, 6, dtype=torch.long, device="meta"), end=0)
    assert (positions.device.type, positions.shape) == ("meta", (2, 6))


def test_data_parallel_ranks_share_the_batches(corpus):
    one = [inputs["input"] for inputs, _ in batches(loader_of(corpus), 4)]
    parts = [batches(loader_of(corpus, rank, 2, batch=2, num_workers=1), 4) for rank in range(2)]
    for whole, *halves in zip(one, *parts, strict=True):
        assert torch.equal(whole, torch.cat([inputs["input"] for inputs, _ in halves]))


def test_state_has_one_size_and_resumes_with_other_ranks(corpus):
    one = loader_of(corpus)
    fresh = one.state_dict()[STATE]
    first = batches(one, 3)
    state = one.state_dict()
    assert state[STATE].dtype == torch.uint8
    assert state[STATE].shape == fresh.shape
    expected = [inputs["input"] for inputs, _ in batches(one, 3)]
    assert not torch.equal(first[0][0]["input"], expected[0])
    parts = [loader_of(corpus, rank, 4, batch=1) for rank in range(4)]
    for part in parts:
        part.load_state_dict(state)
    found = zip(*[batches(part, 3) for part in parts], strict=True)
    for whole, quarters in zip(expected, found, strict=True):
        assert torch.equal(whole, torch.cat([inputs["input"] for inputs, _ in quarters]))


def test_states_of_others_and_damaged_ones_are_refused(corpus):
    loader = loader_of(corpus)
    loader.load_state_dict({})
    with pytest.raises(ValueError, match="it belongs to another dataloader"):
        loader.load_state_dict({"dp_rank_0": b"", "world_size": 1})
    state = loader.state_dict()
    state[STATE][3] ^= 1
    with pytest.raises(DamagedFile, match="resume from another checkpoint"):
        loader.load_state_dict(state)
    with pytest.raises(ValueError, match="corpus='' is no folder"):
        MixtureDataLoader.Config().build(
            dp_world_size=1, dp_rank=0, seq_len=SEQ_LEN, local_batch_size=4
        )


def test_the_builder_for_train_specs_passes_what_the_job_says(corpus):
    training = SimpleNamespace(seq_len=SEQ_LEN, local_batch_size=3)
    build = build_dataloader_fn(MixtureDataLoader.Config(corpus=str(corpus.folder)))
    loader = build(
        dp_world_size=2, dp_rank=1, tokenizer=None, job_config=SimpleNamespace(training=training)
    )
    assert (loader.mixture.rank, loader.mixture.world_size) == (1, 2)
    assert batches(loader, 1)[0][1].shape == (3, SEQ_LEN)


class Adapted(torch.nn.Module):
    """A model as `domain_losses` calls them."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, input_ids, labels):
        return SimpleNamespace(logits=self.model(input_ids))


def test_weights_follow_held_out_losses_of_the_trainers_model(corpus):
    config = MixtureDataLoader.Config(corpus=str(corpus.folder), positions=False)
    trainer = StandIn(config, steps=4)
    reweighter = Reweighter(list(SIZES), start=[0.5, 0.3, 0.2])
    seen = []

    def evaluate(trainer):
        samples = held_out(corpus, SEQ_LEN + 1, limit=8)
        found = held_out_losses(trainer, samples, batch_size=3, group=None)
        seen.append((found, domain_losses(Adapted(trainer.model_parts[0]), samples)))
        return found

    steering = reweight(trainer, reweighter, every=2, evaluate=evaluate)
    trainer.train()
    assert len(seen) == steering.reweighter.updates == 2
    assert trainer.ntokens_seen == 4 * 8 * SEQ_LEN, "evaluations are not trained on"
    assert trainer.model_parts[0].training
    expected = Reweighter(list(SIZES), start=[0.5, 0.3, 0.2])
    for found, direct in seen:
        for column in ("losses", "counts", "errors"):
            ours, theirs = getattr(found, column), getattr(direct, column)
            assert ours == pytest.approx(theirs, rel=1e-5)
        expected.update(found.losses, errors=found.errors)
    np.testing.assert_allclose(steering.weights, expected.weights)
    logged = trainer.metrics_processor.logged
    assert sorted(logged) == [2, 4]
    assert logged[4]["domains/x/weight"] == pytest.approx(steering.weights[0])


def test_the_adaptive_rule_also_updates_before_the_first_step(corpus, tmp_path):
    trainer = StandIn(MixtureDataLoader.Config(corpus=str(corpus.folder)), steps=2)
    reweight(trainer, every=2, limit=8, logs=tmp_path / "run.jsonl")
    trainer.train()
    assert [r["step"] for r in JsonlLog(tmp_path / "run.jsonl").read()] == [0, 2]


def test_set_up_is_checked(corpus):
    config = MixtureDataLoader.Config(corpus=str(corpus.folder))
    with pytest.raises(ValueError, match="must be a MixtureDataLoader; got list"):
        reweight(SimpleNamespace(dataloader=[]), every=1)
    with pytest.raises(ValueError, match="every must be"):
        reweight(StandIn(config), every=0)
    with pytest.raises(ValueError, match="with pipeline parallelism"):
        reweight(StandIn(config, pp=2), every=1)
    with pytest.raises(ValueError, match="with context parallelism"):
        reweight(StandIn(config, cp=2), every=1)
    trainer = StandIn(config)
    reweight(trainer, every=1, evaluate=lambda trainer: {"x": 1.0})
    with pytest.raises(ValueError, match="reweighted already"):
        reweight(trainer, every=1)
    with pytest.raises(ValueError, match=r"no loss for \['y', 'z'\]"):
        trainer.train()


def test_checkpoints_without_reweighting_can_be_continued(corpus):
    config = MixtureDataLoader.Config(corpus=str(corpus.folder))
    before = StandIn(config, steps=2)
    before.train()
    after = StandIn(config, steps=2)
    steering = reweight(after, Reweighter(list(SIZES), start=[0.2, 0.2, 0.6]), every=1, limit=8)
    with pytest.warns(ReweightWarning, match="made without reweighting"):
        after.dataloader.load_state_dict(before.dataloader.state_dict())
    assert steering.mixture.number == 16
    np.testing.assert_allclose(steering.mixture.weights, [0.2, 0.2, 0.6])
    # And the other way: without a steering, the mixture alone is restored.
    before.dataloader.load_state_dict(after.dataloader.state_dict())
    assert before.dataloader.mixture.number == 16


def run(job, corpus, folder, out, ranks):
    run_ranks(SUPPORT / "titan_workers.py", job, corpus.folder, folder, out, ranks=ranks)
    return [json.loads((out / f"{rank}.json").read_text()) for rank in range(ranks)]


@pytest.fixture(scope="module")
def two(corpus, tmp_path_factory):
    """Eight steps on two ranks, with a checkpoint after four: what each found, and its folder."""
    folder = tmp_path_factory.mktemp("two")
    return run("saved", corpus, folder, folder / "out", 2), folder


def whole_batches(found):
    """The batches of all data-parallel ranks together; ranks of one place read the same."""
    by_place = {}
    for rank in found:
        assert by_place.setdefault(rank["place"], rank["read"]) == rank["read"]
    parts = zip(*(by_place[place] for place in sorted(by_place)), strict=True)
    return [[row for rows in part for row in rows] for part in parts]


@pytest.mark.distributed
@pytest.mark.parametrize("ranks", [1, 4])
def test_a_run_on_two_ranks_resumes_on_others_sample_for_sample(corpus, two, tmp_path, ranks):
    found = run("resumed", corpus, two[1], tmp_path / "out", ranks)
    assert whole_batches(found) == whole_batches(two[0])[SAVED:]
    state, expected = found[0]["state"], two[0][0]["state"]
    assert state["mixture"]["cursors"] == expected["mixture"]["cursors"]
    assert state["reweighter"]["updates"] == expected["reweighter"]["updates"] == 1 + STEPS // EVERY
    for name in ("weights", "missed"):
        np.testing.assert_allclose(
            state["reweighter"][name], expected["reweighter"][name], rtol=1e-5
        )
    np.testing.assert_allclose(found[0]["parameters"], two[0][0]["parameters"], atol=2e-6)
    steps = [r["step"] for r in JsonlLog(tmp_path / "out" / "run.jsonl").read()]
    assert steps == [6, 8], "the evaluation of the checkpoint's step is in it"


@pytest.mark.distributed
def test_a_run_on_two_ranks_resumes_on_two_to_the_bit(corpus, two, tmp_path):
    found = run("resumed", corpus, two[1], tmp_path / "out", 2)
    for again, before in zip(found, two[0], strict=True):
        assert again["state"] == before["state"]
        assert again["parameters"] == before["parameters"]
        assert again["seen"] == before["seen"]


@pytest.mark.distributed
def test_tensor_parallel_ranks_read_the_same_samples(corpus, two, tmp_path):
    found = run("sharded", corpus, two[1], tmp_path / "out", 4)
    assert [rank["place"] for rank in found] == [0, 0, 1, 1]
    assert whole_batches(found) == whole_batches(two[0])
    assert all(rank["state"] == found[0]["state"] for rank in found)
    np.testing.assert_allclose(
        found[0]["state"]["reweighter"]["weights"], two[0][0]["state"]["reweighter"]["weights"]
    )


@pytest.mark.distributed
@pytest.mark.parametrize(("job", "loss"), [("differing", 1.0), ("staged", 3.0)])
def test_what_the_first_rank_with_all_domains_measures_counts_everywhere(
    corpus, tmp_path, job, loss
):
    found = run(job, corpus, tmp_path, tmp_path / "out", 2)
    assert found[0]["state"] == found[1]["state"]
    assert found[1]["logged"]["2"]["domains/x/loss"] == loss


@pytest.mark.distributed
def test_all_ranks_name_the_domains_that_no_rank_measures(corpus, tmp_path):
    first, second = run("lacking", corpus, tmp_path, tmp_path / "out", 2)
    assert first == second
    assert "no loss for ['z'] on rank 1" in first["error"]


def test_releases_that_do_not_fit_are_refused(monkeypatch):
    from counterpoise.lm.adapters import torchtitan

    for release, says in (
        ("0.2.1", "0.2.1 returns mean losses"),
        ("0.2.2", None),
        ("0.2.2+cpu", None),
        ("0.3.0.dev1", None),
        ("0.4.0", "0.4.0 is newer than this adapter"),
    ):
        monkeypatch.setattr(torchtitan, "version", lambda _, release=release: release)
        if says is None:
            torchtitan._check_version()
        else:
            with pytest.raises(RuntimeError, match=re.escape(says)):
                torchtitan._check_version()


def test_what_newer_releases_ask_of_a_dataloader_is_refused(corpus, monkeypatch):
    from counterpoise.lm.adapters import torchtitan

    config = MixtureDataLoader.Config(corpus=str(corpus.folder))
    asked = {"max_context_length": 16, "num_tokens_per_batch": 64, "tokenizer": None}
    with pytest.raises(TypeError, match=r"num_tokens_per_batch.*works with torchtitan 0\.2\.2 and"):
        config.build(dp_world_size=1, dp_rank=0, **asked)
    monkeypatch.setattr(torchtitan, "version", lambda _: "0.3.0.dev1")
    with pytest.raises(ImportError, match=r"has no torchtitan.*: it is newer than this"):
        torchtitan._bases()
