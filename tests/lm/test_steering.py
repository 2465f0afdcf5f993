"""Steering, evaluation and logs: what every drop-in shares."""

import json
import math
import sys
import types

import numpy as np
import pytest
import torch
from lm_adapters import LENGTH, begin, make_corpus, parameters
from lm_problems import markov_corpus, numbered_corpus, small_llama

from counterpoise import Reweighter, ReweightWarning
from counterpoise.lm import (
    JsonlLog,
    Log,
    MixtureDataset,
    Steering,
    TensorBoardLog,
    WandbLog,
    domain_losses,
    held_out,
)

SIZES = {"a": 40, "b": 11, "c": 90}


@pytest.fixture
def mixture(tmp_path):
    return MixtureDataset(numbered_corpus(tmp_path / "corpus", SIZES, 4), 4, batch_size=6)


def steer(mixture, **options):
    return Steering(Reweighter(mixture.domains, start=mixture.weights), mixture, **options)


def test_losses_reach_the_mixture(mixture):
    steering = steer(mixture)
    weights = steering.observe({"a": 1.0, "b": 3.0, "c": 1.0}, step=10)
    np.testing.assert_array_equal(mixture.weights, weights)
    assert weights[1] > 0.3
    before = mixture.weights
    steering.observe({"a": 9.0, "b": 3.0, "c": 1.0}, step=10)  # once is enough
    np.testing.assert_array_equal(mixture.weights, before)


def test_the_reweighter_leads_from_the_first_sample(mixture):
    Steering(Reweighter(["c", "b", "a"], start=[0.7, 0.2, 0.1]), mixture)
    np.testing.assert_allclose(mixture.weights, [0.1, 0.2, 0.7])
    with pytest.raises(ValueError, match=r"use Reweighter\(mixture.domains"):
        Steering(Reweighter(["a", "b"]), mixture)


def test_records_hold_every_quantity(mixture, tmp_path):
    path = tmp_path / "logs" / "run.jsonl"
    reference = {"a": 0.5, "b": 0.5, "c": 0.5}
    steering = Steering(
        Reweighter(mixture.domains, start=mixture.weights, reference=reference), mixture, logs=path
    )
    for number, _ in enumerate(mixture.loader(), 1):
        if number % 5 == 0:
            with pytest.warns(ReweightWarning):
                steering.observe({"a": 1.0, "b": math.nan, "c": 0.75}, step=number)
        if number == 15:
            break
    records = JsonlLog(path).read()
    assert [r["step"] for r in records] == [5, 10, 15]
    row = records[1]["domains"]["a"]
    assert row["loss"] == 1.0
    assert row["excess"] == 0.5
    assert row["reference"] == 0.5
    assert set(row) == {
        "loss", "reference", "excess", "weight", "share", "target", "samples", "tokens", "epochs"
    }  # fmt: skip
    assert records[1]["domains"]["b"]["loss"] is None
    assert sum(d["samples"] for d in records[1]["domains"].values()) == 60
    assert sum(d["share"] for d in records[1]["domains"].values()) == pytest.approx(1.0)


def test_a_torn_line_and_later_steps_are_dropped(mixture, tmp_path):
    path = tmp_path / "run.jsonl"
    steering = steer(mixture, logs=path)
    states = {}
    for step in (10, 20, 30):
        steering.observe([1.0, 2.0, 3.0], step=step)
        states[step] = steering.state_dict()
    with path.open("a") as file:
        file.write('{"step": 40, "doma')  # a kill in the middle of a line
    again = steer(mixture, logs=path)
    again.load_state_dict(states[20])
    again.observe([1.0, 2.0, 3.0], step=25)
    assert [r["step"] for r in JsonlLog(path).read()] == [10, 20, 25]
    fresh = JsonlLog(path)
    with path.open("a") as file:
        file.write('{"step": 40, "doma')
    fresh.write({"update": 4, "step": 30, "domains": {}})
    assert [r["step"] for r in JsonlLog(path).read()] == [10, 20, 25, 30]


def test_logs_of_other_runs_are_kept(mixture, tmp_path):
    for _ in range(3):
        steering = steer(mixture, logs=tmp_path / "run.jsonl")
        steering.observe([1.0, 2.0, 3.0], step=5)
        steering.observe([1.0, 2.0, 3.0], step=6)
    assert {path.name for path in tmp_path.glob("*.jsonl")} == {
        "run.jsonl", "run.1.jsonl", "run.2.jsonl"
    }  # fmt: skip
    for path in tmp_path.glob("*.jsonl"):
        assert [r["step"] for r in JsonlLog(path).read()] == [5, 6]


def test_a_run_that_trains_on_keeps_its_log(mixture, tmp_path):
    """Steps start over, updates do not: what is cut off is what came after."""
    steering = steer(mixture, logs=tmp_path / "run.jsonl")
    for step in (4, 8, 12):
        steering.observe([1.0, 2.0, 3.0], step=step)
    steering.reweighter.begin_run()
    state = steering.state_dict()
    steering.observe([1.0, 2.0, 3.0], step=4)
    again = steer(mixture, logs=tmp_path / "run.jsonl")
    again.load_state_dict(state)
    again.observe([1.0, 2.0, 3.0], step=5)
    records = JsonlLog(tmp_path / "run.jsonl").read()
    assert [(r["update"], r["step"]) for r in records] == [(1, 4), (2, 8), (3, 12), (4, 5)]


@pytest.mark.parametrize("text", ["not a log\n", '{"a": 1}\n', "[1]\n"])
def test_another_file_is_not_taken_for_a_log(mixture, tmp_path, text):
    (tmp_path / "run.jsonl").write_text(text)
    with pytest.raises(ValueError, match=r"run.jsonl' is not a log"):
        steer(mixture, logs=tmp_path / "run.jsonl")
    assert (tmp_path / "run.jsonl").read_text() == text


def test_tensorboard_shows_the_scalars(mixture, tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    steering = steer(mixture, logs=[tmp_path / "board"])
    assert isinstance(steering.logs[0], TensorBoardLog)
    for step in (1, 2):
        steering.observe([1.0, 2.0, 3.0], step=step)
    events = EventAccumulator(str(tmp_path / "board"))
    events.Reload()
    shown = events.Scalars("b/weight")
    assert [e.step for e in shown] == [1, 2]
    assert shown[1].value == pytest.approx(mixture.weights[1], rel=1e-6)
    state = steering.state_dict()
    for step in (3, 4):
        steering.observe([1.0, 2.0, 3.0], step=step)
    steering.load_state_dict(state)
    steering.observe([1.0, 2.0, 3.0], step=5)
    events = EventAccumulator(str(tmp_path / "board"))
    events.Reload()
    assert [e.step for e in events.Scalars("b/weight")] == [1, 2, 5]
    assert {"a/loss", "c/share", "c/tokens", "a/epochs"} <= set(events.Tags()["scalars"])


def test_wandb_gets_the_same(mixture, monkeypatch):
    """Against a stand-in for a run: what is logged is a flat dictionary of numbers."""
    seen = []
    run = types.SimpleNamespace(log=seen.append)
    steer(mixture, logs=[WandbLog(run)]).observe([1.0, 2.0, 3.0], step=7)
    assert seen[0]["b/loss"] == 2.0
    assert seen[0]["counterpoise/step"] == 7
    monkeypatch.setitem(sys.modules, "wandb", types.SimpleNamespace(run=run))
    steer(mixture, logs=WandbLog()).observe([1.0, 2.0, 3.0], step=7)
    assert len(seen) == 2
    monkeypatch.setitem(sys.modules, "wandb", types.SimpleNamespace(run=None))
    with pytest.raises(RuntimeError, match=r"wandb.init\(\)"):
        steer(mixture, logs=WandbLog()).observe([1.0, 2.0, 3.0], step=7)
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(ImportError, match="pip install wandb"):
        steer(mixture, logs=WandbLog()).observe([1.0, 2.0, 3.0], step=7)


def test_logs_of_one_s_own(mixture):
    class Kept(Log):
        def __init__(self):
            self.records = []

        def write(self, record):
            self.records.append(record)

    log = Kept()
    steer(mixture, logs=log).observe([1.0, 2.0, 3.0])
    assert log.records[0]["step"] == 1
    with pytest.raises(ValueError, match="logs must be paths"):
        steer(mixture, logs=3)


def test_save_and_load_are_whole_or_nothing(mixture, tmp_path):
    steering = steer(mixture)
    steering.observe([1.0, 2.0, 3.0], step=5)
    steering.save(tmp_path / "steering.json")
    before = steering.state_dict()
    steering.observe([3.0, 2.0, 1.0], step=6)
    steering.load(tmp_path / "steering.json")
    assert steering.state_dict() == before
    wrong = json.loads(json.dumps(before))
    wrong["mixture"]["seed"] = 99
    steering.observe([3.0, 2.0, 1.0], step=6)
    now = steering.state_dict()
    with pytest.raises(ValueError, match="seed=99"):
        steering.load_state_dict(wrong)
    assert steering.state_dict() == now
    with pytest.raises(ValueError, match="version 9"):
        steering.load_state_dict({**before, "version": 9})
    with pytest.raises(ValueError, match="holds no mixture"):
        steering.load_state_dict({**before, "mixture": None})


def test_domain_losses_are_means_over_tokens(tmp_path):
    """Uneven batches: the mean of batch means would differ."""
    corpus = markov_corpus(tmp_path / "corpus", {"x": 2000, "y": 3000})
    model = small_llama()
    samples = held_out(corpus, 16, limit=13)
    found = domain_losses(model, samples, batch_size=4)
    assert model.training
    layer = model.model.layers[0].eval()  # frozen on purpose
    domain_losses(model, samples, batch_size=4)
    assert model.training
    assert not layer.training
    model.eval()
    for name, data in samples.items():
        ids = torch.stack([data[i]["input_ids"] for i in range(len(data))])
        with torch.no_grad():
            logits = model(input_ids=ids).logits[:, :-1].double()
        expected = torch.nn.functional.cross_entropy(
            logits.reshape(-1, logits.shape[-1]), ids[:, 1:].reshape(-1)
        )
        assert found.losses[name] == pytest.approx(float(expected), rel=1e-5)
        assert found.counts[name] == len(data) * 15
        per_sequence = torch.nn.functional.cross_entropy(
            logits.transpose(1, 2), ids[:, 1:], reduction="none"
        ).mean(1)
        spread = float(per_sequence.std()) * 15**0.5
        assert found.spreads[name] == pytest.approx(spread, rel=1e-4)
        documents = data.document_numbers.tolist()
        sums = [
            [15 * float(of), 15]
            for of in per_sequence  # loss and tokens of each sequence
        ]
        whole = np.array(
            [
                np.sum([s for s, d in zip(sums, documents, strict=True) if d == own], axis=0)
                for own in sorted(set(documents))
            ]
        ).T
        left_out = [(whole[0].sum() - s) / (whole[1].sum() - n) for s, n in whole.T]
        n = len(left_out)
        error = math.sqrt((n - 1) / n * np.sum((np.array(left_out) - float(expected)) ** 2))
        assert found.pieces[name] == pytest.approx(whole[1].sum() ** 2 / np.sum(whole[1] ** 2))
        assert found.errors[name] == pytest.approx(error, rel=1e-4)
    assert list(samples) == ["x", "y"]
    assert len(samples["x"]) == 12
    assert list(held_out(corpus, 16, domains=["y"])) == ["y"]
    with pytest.raises(ValueError, match="batch_size must be a whole number"):
        domain_losses(model, samples, batch_size=0)
    with pytest.raises(ValueError, match="limit must be a whole number >= 1"):
        held_out(corpus, 16, limit=0)
    with pytest.raises(KeyError, match="'nope' is not in the corpus"):
        held_out(corpus, 16, split="nope")
    assert len(samples["y"]) == 13


class Listed:
    """Samples of given documents, whose losses the test chooses."""

    def __init__(self, values, documents=None):
        self.values = values
        if documents is not None:
            self.document_numbers = documents

    def __len__(self):
        return len(self.values)

    def __getitem__(self, index):
        return {"value": torch.tensor(self.values[index])}


def given_loss(model, batch):
    return batch["value"], torch.ones(len(batch["value"]))


def test_sequences_of_one_document_are_one_piece_of_text():
    """Standard errors in closed form; with many documents, neighbours are merged."""
    samples = {
        "alone": Listed([1.0, 3.0, 2.0, 6.0]),
        "pairs": Listed([1.0, 3.0, 2.0, 6.0], [4, 4, 7, 7]),
        "one": Listed([1.0, 3.0, 2.0, 6.0], [5, 5, 5, 5]),
        "many": Listed([1.0, 3.0] * 2048, np.arange(4096)),
    }
    found = domain_losses(None, samples, loss=given_loss, batch_size=3)
    alone = math.sqrt((4 + 0 + 1 + 9) / (3 * 4))
    assert found.pieces == {"alone": 4, "pairs": 2, "one": 4, "many": 1024}
    assert found.errors["alone"] == pytest.approx(alone)
    assert found.errors["one"] == pytest.approx(alone)  # nothing else is known
    assert found.errors["pairs"] == pytest.approx(math.sqrt(2 * (2 * 2 + 2 * 2)) / 4)
    assert found.spreads["pairs"] == pytest.approx(alone * 2)
    assert found.errors["many"] == pytest.approx(0.0, abs=1e-12)  # both kinds in every block


def test_standard_errors_hold_where_documents_have_a_style():
    """Eight documents of eight sequences, half of whose variance is the document's."""
    rng, z = np.random.default_rng(2), []
    documents = np.repeat(np.arange(8), 8)
    for _ in range(300):
        values = rng.normal(size=8)[documents] + rng.normal(size=64)
        found = domain_losses(None, {"x": Listed(values, documents)}, loss=given_loss)
        z.append(found.losses["x"] / found.errors["x"])
    assert 0.9 < np.std(z) / math.sqrt(7 / 5) < 1.1  # Student's t with 7 degrees of freedom


@pytest.mark.parametrize("effect", [0.0, 0.5])
@pytest.mark.parametrize("rare", [1, 10, 20])
def test_a_document_that_holds_most_of_the_text_leaves_much_in_doubt(rare, effect):
    """Beside rare short documents; the deviation of the long one from a mean it makes is small."""
    rng = np.random.default_rng(3)
    documents = np.repeat(np.arange(rare + 1), [100 - rare] + [1] * rare)
    ours, alarms = Reweighter(range(5), "static"), 0
    for _ in range(100):
        values = rng.normal(size=(5, 100)) + effect * rng.normal(size=(5, rare + 1))[:, documents]
        samples = {k: Listed(row, documents) for k, row in enumerate(values)}
        found = domain_losses(None, samples, loss=given_loss, batch_size=100)
        ours.reset()
        ours.update(found.losses, errors=found.errors, pieces=found.pieces)
        alarms += not ours.certificate().noise_only
    assert alarms <= 5
    assert found.pieces[0] == pytest.approx(100**2 / ((100 - rare) ** 2 + rare))


def test_documents_of_batches_are_not_told_apart():
    """A model that returns one loss for a batch: every batch is a piece of text."""
    data = Listed(np.arange(64.0), np.repeat([0, 1], [63, 1]))
    found = domain_losses(
        None, {"x": data}, loss=lambda model, batch: (batch["value"].sum(), torch.tensor(8.0))
    )
    of_batches = np.arange(64.0).reshape(8, 8).mean(axis=1)
    assert found.pieces["x"] == 8
    assert found.errors["x"] == pytest.approx(of_batches.std(ddof=1) / math.sqrt(8))


def test_numbers_of_documents_are_checked():
    for wrong in (np.zeros(3, dtype=int), np.zeros(4), ["a"] * 4, 7):
        with pytest.raises(ValueError, match="document_numbers of the samples of 'x' must be 4"):
            domain_losses(None, {"x": Listed([1.0] * 4, wrong)}, loss=given_loss)
    assert domain_losses(None, {}).losses == {}


def plain(corpus, steps, folder, resume=False, workers=0):
    mixture, reweighter = begin(corpus)
    steering = Steering(reweighter, mixture, logs=folder / "run.jsonl")
    model = small_llama()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    validation = held_out(corpus, LENGTH, limit=8)
    step = 0
    if resume:
        steering.load(folder / "steering.json")
        saved = torch.load(folder / "model.pt", weights_only=True)
        model.load_state_dict(saved["model"])
        step = saved["step"]
    for batch in mixture.loader(4, num_workers=workers, lag=4):
        batch.pop("domain")
        model(**batch).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        step += 1
        if step % 3 == 0:
            steering.observe(domain_losses(model, validation), step=step)
        if step == steps:
            break
    steering.save(folder / "steering.json")
    torch.save({"model": model.state_dict(), "step": step}, folder / "model.pt")
    return model, steering


def test_a_plain_loop_resumes_to_the_bit(tmp_path):
    """One process reads the whole run; two workers read the one that is stopped."""
    corpus = make_corpus(tmp_path / "corpus")
    (tmp_path / "whole").mkdir()
    (tmp_path / "parts").mkdir()
    model, steering = plain(corpus, 12, tmp_path / "whole")
    plain(corpus, 7, tmp_path / "parts", workers=2)
    again, resumed = plain(corpus, 12, tmp_path / "parts", resume=True, workers=2)
    assert torch.equal(parameters(model), parameters(again))
    assert resumed.state_dict() == steering.state_dict()
    assert (tmp_path / "whole/run.jsonl").read_text() == (tmp_path / "parts/run.jsonl").read_text()
    assert steering.reweighter.updates == 4


def test_steering_prints_its_weights_and_mixture(mixture):
    steering = steer(mixture)
    steering.observe({"a": 1.0, "b": 3.0, "c": 1.0}, step=10)
    shown = repr(steering)
    assert shown.startswith(f"Steering({steering.reweighter!r}, mixture=MixtureDataset(3 domains")
    assert f"'b': {steering.weights[1]:.3g}" in shown
    assert "global_step=10" in shown
