"""Tokenizers of one's own: equal shares, the same bytes, nothing lost."""

from __future__ import annotations

import json
import sys

import pytest
from lm_texts import documents, write

from counterpoise.lm import get_tokenizer, train_tokenizer

RUSSIAN = ["корабли стояли в бухте, и никто не знал, чьи они"]
ENGLISH = ["the ships lay in the bay, and nobody knew whose they were", "a quiet day at sea"]


@pytest.fixture
def sources(tmp_path):
    return {
        "large": write(tmp_path / "large.jsonl", [f"{t} {i}" for i in range(800) for t in ENGLISH]),
        "small": write(tmp_path / "small.jsonl", RUSSIAN),
    }


def test_texts_come_back_and_documents_end(sources, tmp_path):
    path = train_tokenizer(sources, tmp_path / "new" / "tokenizer.json", vocab_size=500)
    assert path == tmp_path / "new" / "tokenizer.json"
    tokenizer = get_tokenizer(path)
    assert tokenizer.vocab_size <= 500
    from tokenizers import Tokenizer

    made = Tokenizer.from_file(str(path))
    assert made.token_to_id("<|endoftext|>") == tokenizer.end
    texts = [*ENGLISH, *RUSSIAN, *documents(20), "\x00\x7f 🙂 你好\r\n\t <|endoftext|>"]
    for text, ids in zip(texts, tokenizer.encode_batch(texts), strict=True):
        assert tokenizer.end not in ids
        assert made.decode(ids.tolist(), skip_special_tokens=False) == text


def test_a_small_domain_is_not_starved(sources, tmp_path):
    both = get_tokenizer(train_tokenizer(sources, tmp_path / "both.json", vocab_size=400))
    alone = train_tokenizer({"large": sources["large"]}, tmp_path / "one.json", vocab_size=400)

    def length(tokenizer):
        return len(tokenizer.encode_batch(RUSSIAN)[0])

    assert length(both) < 0.3 * length(get_tokenizer(alone))


def test_shares_are_equal_and_cut(tmp_path):
    """Of two domains as long, only what is within the share is seen."""
    sources = {
        "a": write(tmp_path / "a.jsonl", ["qu" * 50, "zj" * 500]),
        "b": write(tmp_path / "b.jsonl", ["xv" * 50]),
    }
    path = train_tokenizer(sources, tmp_path / "t.json", vocab_size=259, max_bytes_per_domain=100)
    merges = json.loads(path.read_text(encoding="utf-8"))["model"]["merges"]
    assert sorted("".join(pair) for pair in merges) == ["qu", "xv"]


def test_the_same_texts_give_the_same_bytes(sources, tmp_path):
    first = train_tokenizer(sources, tmp_path / "1.json", vocab_size=400).read_bytes()
    again = train_tokenizer(sources, tmp_path / "1.json", vocab_size=400).read_bytes()
    assert first == again
    assert [path.name for path in tmp_path.glob("*1.json*")] == ["1.json"]


def test_bytes_alone(sources, tmp_path):
    tokenizer = get_tokenizer(train_tokenizer(sources, tmp_path / "t.json", vocab_size=257))
    assert tokenizer.vocab_size == 257
    assert [len(ids) for ids in tokenizer.encode_batch(RUSSIAN)] == [len(RUSSIAN[0].encode())]


def test_another_field_for_each_domain(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text(json.dumps({"body": "qu" * 50}) + "\n")
    sources = {"a": path, "b": write(tmp_path / "b.jsonl", ["ab"])}
    train_tokenizer(sources, tmp_path / "t.json", vocab_size=258, text={"a": "body", "b": "text"})
    with pytest.raises(ValueError, match=r"a.jsonl', line 1, has no field 'text'"):
        train_tokenizer(sources, tmp_path / "t.json", vocab_size=258)


def test_wide_characters_at_the_edge_of_a_share(tmp_path):
    sources = {
        "a": write(tmp_path / "a.jsonl", ["猫", "犬"]),
        "b": write(tmp_path / "b.jsonl", ["b" * 40]),
    }
    for most in (1, 2, 4, 40):
        train_tokenizer(sources, tmp_path / "t.json", vocab_size=258, max_bytes_per_domain=most)


@pytest.mark.parametrize(
    ("options", "match"),
    [
        (dict(vocab_size=256), "vocab_size must be at least 257, for 256 bytes"),
        (dict(vocab_size=300.0), "vocab_size must be a whole number"),
        (dict(vocab_size=300, max_bytes_per_domain=0), "max_bytes_per_domain must be"),
        (dict(vocab_size=300, text={"large": "text"}), "text must name a field for each of"),
    ],
)
def test_arguments_that_cannot_be(sources, tmp_path, options, match):
    with pytest.raises(ValueError, match=match):
        train_tokenizer(sources, tmp_path / "t.json", **options)
    assert not (tmp_path / "t.json").exists()


def test_sources_and_files_that_cannot_be(sources, tmp_path):
    with pytest.raises(ValueError, match="is a folder; give a file"):
        train_tokenizer(sources, tmp_path, vocab_size=300)
    empty = write(tmp_path / "empty.jsonl", ["", " "])
    with pytest.raises(ValueError, match="domain 'empty' has no document"):
        train_tokenizer({"empty": empty}, tmp_path / "t.json", vocab_size=300)
    with pytest.raises(FileNotFoundError, match="domain 'none': there is no file"):
        train_tokenizer({"none": tmp_path / "none"}, tmp_path / "t.json", vocab_size=300)


def test_without_the_package(sources, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(ImportError, match="pip install tokenizers"):
        train_tokenizer(sources, tmp_path / "t.json", vocab_size=300)
