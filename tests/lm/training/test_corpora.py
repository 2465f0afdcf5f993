"""The corpus of a configuration: where its documents are, and which tokenizer it gets."""

from __future__ import annotations

import json

import pytest
from lm_texts import documents, write

from counterpoise.common.toml import build
from counterpoise.lm.training.corpora import prepare_corpus
from counterpoise.lm.training.run_folder import RunFolder
from counterpoise.lm.training.settings import Settings, load_settings


def settings(tmp_path, **corpus):
    table = {"folder": str(tmp_path / "corpus"), "source": str(tmp_path / "in")} | corpus
    return build(Settings, {"corpus": table, "train": {"tokens": 100_000}})


@pytest.fixture
def source(tmp_path):
    for seed, name in enumerate(("wikipedia", "arxiv")):
        write(tmp_path / "in" / f"{name}.jsonl", documents(60, seed))
    return tmp_path / "in"


def test_folders_and_redpajama_name_the_same_documents(tmp_path, source):
    plain = prepare_corpus(settings(tmp_path, tokenizer="bytes"), progress=False)
    assert plain.domains == ["arxiv", "wikipedia"]
    assert plain.splits == ["train", "validation", "test"]
    chosen = settings(
        tmp_path, folder=str(tmp_path / "two"), recipe="redpajama", domains=["wiki"],
        tokenizer="bytes",
    )  # fmt: skip
    named = prepare_corpus(chosen, progress=False)
    assert named.domains == ["wiki"]
    assert named.sizes() == {"wiki": plain.sizes()["wikipedia"]}


def test_a_tokenizer_is_trained_once(tmp_path, source):
    corpus = prepare_corpus(settings(tmp_path, vocab_size=300), progress=False)
    path = tmp_path / "corpus" / "tokenizer.json"
    stamp = path.stat().st_mtime_ns
    prepare_corpus(settings(tmp_path, vocab_size=300), progress=False)
    assert path.stat().st_mtime_ns == stamp
    assert corpus.vocab_size == 300
    with pytest.raises(ValueError, match=r"trained with another vocab_size \(300, now 310\); prep"):
        prepare_corpus(settings(tmp_path, vocab_size=310), progress=False)
    again = prepare_corpus(settings(tmp_path, vocab_size=310), overwrite=True, progress=False)
    assert again.vocab_size == 310


def test_a_given_tokenizer_is_kept_beside_the_tokens(tmp_path, source):
    prepare_corpus(settings(tmp_path, vocab_size=300), progress=False)
    given = tmp_path / "corpus" / "tokenizer.json"
    other = settings(tmp_path, folder=str(tmp_path / "two"), tokenizer=str(given))
    prepare_corpus(other, progress=False)
    kept = json.loads((tmp_path / "two" / "tokenizer.json").read_text())
    assert kept["model"] == json.loads(given.read_text())["model"]


def test_what_is_not_set_is_named(tmp_path, source):
    with pytest.raises(ValueError, match=r"corpus\.source is not set"):
        prepare_corpus(settings(tmp_path, source=None))
    with pytest.raises(ValueError, match=r"needs corpus\.vocab_size"):
        prepare_corpus(settings(tmp_path))


def test_the_recipe_that_left_the_package(tmp_path):
    """A configuration is told what to do; a run of 0.1 is read as it was."""
    corpus = '[corpus]\nfolder = "c"\nsource = "s"\nrecipe = "registry"\nmax_bytes = 9\n'
    (tmp_path / "config.toml").write_text(f"{corpus}[train]\ntokens = 100_000\n")
    with pytest.raises(ValueError, match=r"recipe='registry'.*python -m experiments\.corpora"):
        load_settings(tmp_path / "config.toml")
    found = RunFolder(tmp_path).settings.corpus
    assert (found.recipe, found.source, found.folder) == ("folders", "s", "c")


def test_the_text_of_a_domain_can_be_limited_in_redpajama_too(tmp_path, source):
    chosen = settings(
        tmp_path, recipe="redpajama", tokenizer="bytes", max_bytes=1000, splits={"train": 1.0}
    )
    corpus = prepare_corpus(chosen, progress=False)
    for name in corpus:
        parts = [corpus.tokens(name, split) for split in corpus.splits]
        taken = sum(part.n_tokens - part.n_documents for part in parts)
        assert 800 < taken <= 1000
    with pytest.raises(ValueError, match=r"another max_bytes \(1000, now 2000\)"):
        prepare_corpus(chosen.changed({"corpus.max_bytes": 2000}), progress=False)


def test_a_document_may_be_too_long_for_the_tokenizer_and_the_tokens(tmp_path, source):
    for made in ({"vocab_size": 300}, {"tokenizer": "bytes"}):
        with pytest.raises(ValueError, match=r"arxiv\.jsonl', line \d+, is longer than 20 bytes"):
            prepare_corpus(settings(tmp_path, max_document_bytes=20, **made), progress=False)


@pytest.mark.parametrize("name", ["tokenizer.json", "tokenizer.made-of.json"])
def test_a_trained_tokenizer_that_is_damaged_is_named(tmp_path, source, name):
    prepare_corpus(settings(tmp_path, vocab_size=300), progress=False)
    path = tmp_path / "corpus" / name
    whole = path.read_bytes()
    for at in range(0, len(whole), len(whole) // 40):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        with pytest.raises(ValueError, match=rf"{name}' is damaged.*overwrite=True"):
            prepare_corpus(settings(tmp_path, vocab_size=300), progress=False)
    path.write_text("[" * 100_000)
    with pytest.raises(ValueError, match=rf"{name}' is damaged"):
        prepare_corpus(settings(tmp_path, vocab_size=300), progress=False)


@pytest.mark.parametrize("text", ["corpus = 3", "corpus = []", "train = 1", "[[corpus]]\nx = 1"])
def test_settings_of_another_kind_are_named(tmp_path, text):
    (tmp_path / "config.toml").write_text(text + "\n")
    with pytest.raises(ValueError, match=r"config\.toml: "):
        load_settings(tmp_path / "config.toml")


def test_a_field_splits_the_files_of_a_folder(tmp_path):
    rows = [{"text": text, "meta": {"year": i % 3}} for i, text in enumerate(documents(60, 0))]
    rows[0]["meta"] = {}
    (tmp_path / "in").mkdir()
    (tmp_path / "in/news.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    made = prepare_corpus(
        settings(tmp_path, tokenizer="bytes", by="meta.year", by_missing="none", by_least=2,
                 splits={"train": 1.0}, domains=["news-1", "news-2"]),
        progress=False,
    )  # fmt: skip
    assert made.domains == ["news-0", "news-1", "news-2", "news-other"]
    assert made["news-other"].n_documents == 1
