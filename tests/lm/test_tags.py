"""Steering by tags that overlap, over a mixture of patterns of tags."""

import json

import numpy as np
import pytest
from lm_problems import numbered_corpus

from counterpoise import Reweighter
from counterpoise.lm import GroupBy, JsonlLog, MixtureDataset, Steering, domain_tags, prepare
from counterpoise.reweight import Fixed, Tags

SIZES = {"en": 40, "code+en": 20, "code": 60}


@pytest.fixture
def mixture(tmp_path):
    return MixtureDataset(numbered_corpus(tmp_path / "corpus", SIZES, 4), 4, batch_size=6)


def tags_of(mixture):
    return Tags.of_names(mixture.domains, list(SIZES.values()))


def test_losses_of_patterns_move_tags_and_tags_move_patterns(mixture, tmp_path):
    tags = tags_of(mixture)
    steering = Steering(Reweighter(["en", "code"]), mixture, tags=tags, logs=tmp_path / "run.jsonl")
    np.testing.assert_allclose(mixture.weights, [0.5 * 2 / 3, 0.5 / 3 + 0.5 / 4, 0.5 * 3 / 4])
    losses = {"code": 2.0, "en": 1.0, "code+en": 4.0}
    weights = steering.observe(losses, dict.fromkeys(losses, 10), 1, total=30)
    alone = Reweighter(["en", "code"])
    expected = alone.update({"en": (40 + 80) / 60, "code": (120 + 80) / 80}, step=1)
    np.testing.assert_allclose(weights, expected)
    en, code = weights
    np.testing.assert_allclose(mixture.weights, [en * 2 / 3, en / 3 + code / 4, code * 3 / 4])
    (record,) = JsonlLog(tmp_path / "run.jsonl").read()
    assert record["domains"]["en"]["loss"] == pytest.approx(2.0)
    assert "samples" not in record["domains"]["en"]  # those are of patterns
    assert list(record["patterns"]) == list(SIZES)
    assert record["patterns"]["en"]["weight"] == pytest.approx(en * 2 / 3)


def test_tags_and_shares_of_their_own_resume(mixture, tmp_path):
    def begin(mixture):
        fixed = Fixed([0.25, 0.25, 0.5])
        return Steering(None, mixture, tags=tags_of(mixture), sampling=fixed)

    steering = begin(mixture)
    steering.observe([1.0, 4.0, 2.0], step=1)
    state = json.loads(json.dumps(steering.state_dict()))
    twin = MixtureDataset(numbered_corpus(tmp_path / "twin", SIZES, 4), 4, batch_size=6)
    again = begin(twin)
    again.load_state_dict(state)
    np.testing.assert_array_equal(twin.loss_weights, mixture.loss_weights)
    for one in (steering, again):
        one.observe([1.0, 2.0, 2.0], step=2)
    np.testing.assert_array_equal(twin.loss_weights, mixture.loss_weights)
    patterns = tags_of(mixture).weights(steering.weights)
    np.testing.assert_allclose(mixture.loss_weights, patterns / [0.25, 0.25, 0.5])


def test_a_corpus_that_was_grouped_by_tags(tmp_path):
    """From documents with lists of tags to tags with weights."""
    rows = [{"text": f"{i} " * 9, "tags": [["en"], ["en", "code"], ["code"]][i % 3]}
            for i in range(60)]  # fmt: skip
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    corpus = prepare(
        {"web": tmp_path / "a.jsonl"},
        tmp_path / "out",
        tokenizer="bytes",
        by="tags",
        progress=False,
    )
    tags = Tags(domain_tags(tmp_path / "out"), corpus.sizes())
    assert tags.tags == ("code", "en")
    named = Tags.of_names(corpus.domains, corpus.sizes(), prefix="web-")
    np.testing.assert_array_equal(tags.shares, named.shares)
    steering = Steering(None, MixtureDataset(corpus, 8), tags=tags)
    assert steering.reweighter.domains == tags.tags
    losses = {"web-en": 1.0, "web-code": 3.0, "web-code+en": 2.0}
    assert steering.observe(losses, step=1)[0] == pytest.approx(0.5)
    assert steering.observe(losses, step=2)[0] > 0.5


def test_tags_are_those_of_the_documents_where_names_had_to_be_changed(tmp_path):
    """In capitals only, too long for a file's name, and rare."""
    long = [f"a_rather_long_subject_{i}" for i in range(6)]
    several = [["EN"], ["en"], ["en", "c"], long, ["c"]]
    rows = [{"text": f"{i} words " * 9, "tags": several[i % 5]} for i in range(60)]
    rows += [{"text": "rare words " * 9, "tags": ["rare"]}]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    corpus = prepare({"web": tmp_path / "a.jsonl"}, tmp_path / "out", tokenizer="bytes",
                     by=GroupBy("tags", least=2), progress=False)  # fmt: skip
    found = domain_tags(tmp_path / "out")
    assert set(found) == set(corpus.domains)
    assert Tags(found, corpus.sizes()).tags == tuple(sorted(["EN", "c", "en", "other", *long]))
    with pytest.raises(FileNotFoundError, match=r"has no groups; prepare the corpus with by="):
        domain_tags(tmp_path)


def test_a_text_with_a_plus_is_one_tag(tmp_path):
    """Only lists stand for several tags, and one label cannot be both."""

    def grouped(name, values, **options):
        rows = [{"text": f"{i} words", "lang": values[i % len(values)]} for i in range(60)]
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        prepare({"web": tmp_path / f"{name}.jsonl"}, tmp_path / name, tokenizer="bytes",
                by=GroupBy("lang", **options), progress=False)  # fmt: skip
        return domain_tags(tmp_path / name)

    assert grouped("one", ["c++", "c"]) == {"web-c": ["c"], "web-c++": ["c++"]}
    found = grouped("two", [["c", "en"], ["en"], []], missing="a+b")
    assert found == {"web-a+b": ["a+b"], "web-c+en": ["c", "en"], "web-en": ["en"]}
    with pytest.raises(ValueError, match=r"is the text 'c\+en' in one document and a list"):
        grouped("three", [["c", "en"], "c+en"])


def test_what_does_not_fit_is_refused(mixture):
    tags = tags_of(mixture)
    with pytest.raises(ValueError, match=r"use Reweighter\(tags.tags"):
        Steering(Reweighter(mixture.domains), mixture, tags=tags)
    other = Tags({"en": ["en"], "code": ["code"]}, [1, 1])
    with pytest.raises(ValueError, match="use a pattern per domain"):
        Steering(Reweighter(other.tags), mixture, tags=other)
    steering = Steering(Reweighter(tags.tags), mixture, tags=tags)
    with pytest.raises(ValueError, match=r"counts add up to 30, but total=31"):
        steering.observe([1.0, 2.0, 3.0], [10, 10, 10], 1, total=31)
    with pytest.raises(ValueError, match="total=5 is the sum of counts; give counts, too"):
        steering.observe([1.0, 2.0, 3.0], step=1, total=5)
