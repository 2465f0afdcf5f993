"""Weights in a file: what is written, who writes it, and what a reader refuses."""

from __future__ import annotations

import ast
import json
import os
import threading
import time
from dataclasses import replace

import numpy as np
import pytest
from lm_adapters import make_corpus
from lm_problems import numbered_corpus
from paths import SUPPORT, printed
from ranks import run_ranks

from counterpoise import Reweighter
from counterpoise.lm import MixtureDataset, PublishedWeights, Publisher, Steering
from counterpoise.lm.published import WeightsFile
from counterpoise.lm.sealed import DamagedFile
from counterpoise.reweight.tags import Tags

SIZES = {"a": 40, "b": 11, "c": 90}
HALVES = {"web": 0.5, "code": 0.5}


def old(path):
    """Let a file have been written a minute ago."""
    then = path.stat().st_mtime_ns - 60 * 10**9
    os.utime(path, ns=(then, then))


def published(update, step=None, **options):
    share = 1.0 / (update + 2)
    weights = {"web": share, "code": 1.0 - share}
    return PublishedWeights(weights, update, 10 * update if step is None else step, **options)


@pytest.fixture
def mixture(tmp_path):
    return MixtureDataset(numbered_corpus(tmp_path / "corpus", SIZES, 4), 4, batch_size=6)


def steer(mixture, path, **options):
    reweighter = Reweighter(mixture.domains, start=mixture.weights)
    return Steering(reweighter, mixture, publish=path, **options)


@pytest.mark.parametrize(
    "names", [["web", "code"], [0, 1, 2], ["b", 7], ["with spaces, and \N{GREEK SMALL LETTER MU}"]]
)
def test_what_was_written_is_read(names, tmp_path):
    """To the bit, with the domains' types and order."""
    weights = np.random.default_rng(0).dirichlet(np.ones(len(names)))
    table = dict(zip(names, weights.tolist(), strict=True))
    first = PublishedWeights(table, update=3, step=30, from_sample=7, corpus="x")
    first.write(tmp_path / "weights.json")
    again = PublishedWeights.read(tmp_path / "weights.json")
    assert again == first
    assert again.domains == tuple(names)
    np.testing.assert_allclose(again.array(names[::-1]), weights[::-1], rtol=1e-14)


def test_any_language_can_read_the_file(tmp_path):
    PublishedWeights({"web": 0.25, "code": 0.75}, 4, 400, from_step=401).write(tmp_path / "w.json")
    found = json.loads((tmp_path / "w.json").read_text())
    assert found.pop("crc32")
    assert found == {
        "format": "counterpoise weights",
        "version": 1,
        "update": 4,
        "step": 400,
        "from_step": 401,
        "from_sample": None,
        "corpus": None,
        "domains": ["web", "code"],
        "weights": {"web": 0.25, "code": 0.75},
    }


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ({"web": 0.5, "code": 0.6}, "must sum to 1"),
        ({"web": 1.5, "code": -0.5}, "must be >= 0"),
        ({"3": 0.5, 3: 0.5}, "must differ as text"),
        ({}, "at least one domain"),
    ],
)
def test_what_is_no_mixture_is_not_published(weights, message):
    with pytest.raises(ValueError, match=message):
        PublishedWeights(weights, update=0)


def test_a_damaged_file_is_refused(tmp_path):
    path = tmp_path / "weights.json"
    with pytest.raises(FileNotFoundError, match="start the run that publishes them first"):
        PublishedWeights.read(path)
    published(1).write(path)
    whole = path.read_text()
    for text, kind, message in (
        (whole.replace('"step": 10', '"step": 11'), DamagedFile, "do not match their checksum"),
        (whole[:-20], DamagedFile, "not JSON"),
        (whole.replace('"version": 1', '"version": 9'), ValueError, "has version 9"),
        (whole.replace('"weights": {', '"weights": ['), DamagedFile, "not JSON"),
        ("{}", ValueError, "is not a file of counterpoise weights; give another name"),
        ('{"step": 1}\n{"step": 2}\n', ValueError, "is not a file .* give another name"),
    ):
        path.write_text(text)
        with pytest.raises(kind, match=message):
            PublishedWeights.read(path)
        with pytest.raises(kind, match=message):
            Publisher(path).check(["web", "code"])


def test_new_weights_are_seen_when_the_file_changes(tmp_path, monkeypatch):
    path = tmp_path / "weights.json"
    published(0).write(path)
    old(path)
    file = WeightsFile(path, ["code", "web"])
    assert file.current == published(0)
    read, real = [], PublishedWeights.read.__func__
    monkeypatch.setattr(
        PublishedWeights, "read", classmethod(lambda cls, p: (read.append(p), real(cls, p))[1])
    )
    assert file.newer() is None
    assert not read, "a file that did not change is not read"
    published(1).write(path)
    old(path)
    assert file.newer() == published(1)
    published(1).write(path)  # the same again, by a run that was resumed
    old(path)
    assert file.newer() is None
    assert file.newer() is None
    assert len(read) == 2


def test_new_weights_with_an_old_time_are_seen(tmp_path):
    """Some file systems count time in steps of two seconds, and use a place on disk again."""
    path, other = tmp_path / "weights.json", tmp_path / "other.json"
    published(10).write(path)
    now = time.time_ns() // 2_000_000_000 * 2_000_000_000
    os.utime(path, ns=(now, now))
    file, before = WeightsFile(path, ["web", "code"]), path.stat()
    replace(PublishedWeights.read(path), update=11).write(other)
    path.write_bytes(other.read_bytes())  # in place
    os.utime(path, ns=(now, now))
    after = path.stat()
    for what in ("st_ino", "st_size", "st_mtime_ns"):
        assert getattr(before, what) == getattr(after, what)
    assert file.newer().update == 11


@pytest.mark.parametrize(
    ("after", "message"),
    [
        (published(2), "went back from update 3 to 2"),
        (published(4, step=29), "went back from step 30 to 29"),
        (PublishedWeights(HALVES, 3, 30), "still of update 3: two runs publish there"),
        (PublishedWeights({"web": 1.0}, 4, 40), r"lack \['code'\]"),
        (PublishedWeights({**HALVES, "books": 0.0}, 4, 40), r"have \['books'\]"),
        (published(4, corpus="y"), "of the corpus 'y', not of 'x'"),
        (published(4), "no longer name their corpus, 'x'"),
    ],
)
def test_weights_that_cannot_follow_are_refused(after, message, tmp_path):
    path = tmp_path / "weights.json"
    known = after.corpus is not None or "corpus" in message
    published(3, corpus="x" if known else None).write(path)
    file = WeightsFile(path, ["web", "code"])
    before = file.current
    after.write(path)
    for _ in range(2):  # and stay refused
        with pytest.raises(ValueError, match=message):
            file.newer()
    assert file.current == before


def test_a_reader_knows_its_own_domains_and_corpus(tmp_path):
    path = tmp_path / "weights.json"
    published(3, corpus="x").write(path)
    with pytest.raises(ValueError, match=r"have \['code'\], unlike the domains \['web'\]"):
        WeightsFile(path, ["web"])
    with pytest.raises(ValueError, match="move the file, or use that corpus"):
        WeightsFile(path, ["web", "code"], corpus="y")
    assert WeightsFile(path, ["web", "code"], corpus="x").current.update == 3


def test_a_reader_sees_whole_files_only(tmp_path):
    """Another thread replaces the file as fast as it can."""
    path, last = tmp_path / "weights.json", 60
    published(0).write(path)
    file, seen = WeightsFile(path, ["web", "code"]), []
    writer = threading.Thread(target=lambda: [published(i).write(path) for i in range(last + 1)])
    writer.start()
    while not seen or seen[-1].update < last:
        if (found := file.newer()) is not None:
            seen.append(found)
    writer.join()
    assert seen == [published(found.update) for found in seen]


def test_steering_publishes_every_update(tmp_path):
    """At once, and after every update; without a mixture, from the next step on."""
    path = tmp_path / "weights.json"
    steering = Steering(Reweighter(["web", 7]), publish=Publisher(path, corpus="mine"))
    first = PublishedWeights.read(path)
    assert first == PublishedWeights({"web": 0.5, 7: 0.5}, 0, 0, from_step=1, corpus="mine")
    steering.observe({"web": 2.0, 7: 3.0}, step=100)
    found = PublishedWeights.read(path)
    assert found == steering.published()
    assert (found.update, found.step, found.from_step, found.from_sample) == (1, 100, 101, None)
    assert found.weights == steering.reweighter.as_dict()
    with pytest.raises(TypeError, match="publish must be a path or a Publisher; got 3"):
        Steering(Reweighter(["web", 7]), publish=3)


def test_without_steps_no_step_is_named(tmp_path):
    """Weights that no step is known for hold from no step that a reader could wait for."""
    path = tmp_path / "weights.json"
    steering, losses = (
        Steering(Reweighter(["web", "code"]), publish=path),
        {"web": 2.0, "code": 3.0},
    )
    found = [PublishedWeights.read(path)]
    for step in (None, None, 100, None):
        steering.observe(losses, step=step)
        found.append(PublishedWeights.read(path))
    assert [(one.step, one.from_step) for one in found] == [
        (0, 1), (0, None), (0, None), (100, 101), (100, None)
    ]  # fmt: skip
    fresh = Steering(Reweighter(["web", "code"]), publish=tmp_path / "fresh.json")
    fresh.observe(losses)
    state = fresh.state_dict()
    fresh.load_state_dict(state)
    assert PublishedWeights.read(tmp_path / "fresh.json").from_step is None


def test_a_mixture_says_from_which_sample_weights_hold(mixture, tmp_path):
    """New weights wait for the batches that workers may have drawn."""
    path = tmp_path / "weights.json"
    steering = steer(mixture, path)
    assert PublishedWeights.read(path).from_sample == 0
    for step, batch in enumerate(mixture.loader(lag=3), 1):
        del batch
        if step == 2:
            steering.observe([1.0, 2.0, 3.0], step=step)
            break
    found = PublishedWeights.read(path)
    assert found.from_sample == (2 + 3) * 6
    assert found.from_step is None
    np.testing.assert_array_equal(found.array(mixture.domains), steering.weights)


def test_the_file_of_a_resumed_run_is_that_of_its_step(mixture, tmp_path):
    path = tmp_path / "weights.json"
    steering, files, states = steer(mixture, path), {}, {}
    for step, _ in enumerate(mixture.loader(lag=2), 1):
        if step % 2 == 0:
            steering.observe([1.0, 2.0, 1.0 + step], step=step)
            files[step], states[step] = path.read_bytes(), steering.state_dict()
        if step == 8:
            break
    assert len(set(files.values())) == 4
    again = MixtureDataset(tmp_path / "corpus", 4, batch_size=6)
    resumed = steer(again, path)
    for step in (4, 8, 2):
        resumed.load_state_dict(json.loads(json.dumps(states[step])))
        assert path.read_bytes() == files[step]


def test_a_file_of_another_corpus_is_not_replaced(mixture, tmp_path):
    path = tmp_path / "weights.json"
    steer(mixture, path)
    before = path.read_bytes()
    other = numbered_corpus(tmp_path / "other", {**SIZES, "b": 12}, 4)
    with pytest.raises(ValueError, match=r"of the corpus .* move the file"):
        steer(MixtureDataset(other, 4), path)
    with pytest.raises(ValueError, match="belong to another run"):
        Steering(Reweighter(["a", "b"]), publish=path)
    assert path.read_bytes() == before
    same = numbered_corpus(tmp_path / "same", SIZES, 4)  # elsewhere, but the same tokens
    steer(MixtureDataset(same, 4), path)


@pytest.mark.distributed
def test_only_the_first_rank_writes(tmp_path):
    corpus = make_corpus(tmp_path / "corpus")
    out = tmp_path / "out"
    out.mkdir()
    run_ranks(SUPPORT / "publish_workers.py", corpus.folder, out)
    assert [path.name for path in out.iterdir()] == ["0.json"]
    assert PublishedWeights.read(out / "0.json").update == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    "module", ["published", "readers.plain", "readers.megatron", "watcher", "loss_lines"]
)
def test_a_reader_needs_numpy_alone(module):
    code = (
        f"import sys, counterpoise.lm.{module}; "
        "print([m for m in ('sklearn', 'scipy', 'torch', 'numba') if m in sys.modules])"
    )
    assert ast.literal_eval(printed(code)) == []


@pytest.mark.parametrize("drawn", [True, False])
def test_overlapping_tags_are_published_as_shares_of_their_patterns(mixture, tmp_path, drawn):
    path = tmp_path / "weights.json"
    tags = Tags({"a": ["en"], "b": ["code", "en"], "c": ["code"]}, sizes=SIZES)
    reweighter = Reweighter(tags.tags, start=[0.25, 0.75])
    steering = Steering(reweighter, mixture if drawn else None, tags=tags, publish=path)
    for losses in (None, {"a": 1.0, "b": 2.0, "c": 3.0}):
        if losses is not None:
            steering.observe(losses)
        expected = tags.weights(reweighter.weights)
        found = PublishedWeights.read(path).array(["a", "b", "c"])
        np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_shares_that_need_weighed_losses_are_not_published(mixture, tmp_path):
    with pytest.raises(ValueError, match=r"sampling='fixed' losses must be weighed as well"):
        steer(mixture, tmp_path / "weights.json", sampling="fixed")
    assert not (tmp_path / "weights.json").exists()


def test_readers_of_a_run_that_resumes_do_not_see_its_start(mixture, tmp_path):
    """A new Steering leaves later weights alone until it is restored."""
    path = tmp_path / "weights.json"
    first = steer(mixture, path)
    for step in (10, 20):
        first.observe({"a": 1.0, "b": 2.0, "c": 3.0}, step=step)
    state, reader = first.state_dict(), WeightsFile(path, mixture.domains)
    second = steer(mixture, path)
    assert reader.newer() is None
    second.load_state_dict(state)
    assert reader.newer() is None
    second.observe({"a": 1.0, "b": 2.0, "c": 3.0}, step=30)
    assert reader.newer().update == 3
