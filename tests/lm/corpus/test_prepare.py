"""Corpora on disk: what is in the files, after whatever happened while they were written."""

from __future__ import annotations

import hashlib
import json
import os
import zlib

import datasets
import numpy as np
import pytest
from lm_texts import contents, crash, documents, write
from lm_tokenizer import slow_bytes
from tokenizers import Tokenizer as TokenizersTokenizer
from tokenizers.models import WordLevel

from counterpoise.lm import Tokens, prepare
from counterpoise.lm.corpus import prepare as preparing
from counterpoise.lm.corpus.encoding import DocumentEncoder
from counterpoise.storage.files import locked

SPLITS = {"train": 0.75, "validation": 0.25}


def expected(texts):
    """The files of a split by the rule: bytes and 256 after each document, and where they end."""
    ids = [[*text.encode(), 256] for text in texts]
    ends = np.cumsum([len(document) for document in ids])
    flat = [token for document in ids for token in document]
    return np.array(flat, "<u2").tobytes(), np.array(ends, "<u8").tobytes()


@pytest.fixture
def small(monkeypatch):
    """Many batches, each made safe at once."""
    monkeypatch.setattr(preparing, "BATCH_CHARACTERS", 500)
    monkeypatch.setattr(preparing, "COMMIT_SECONDS", 0.0)


# -- what is in the files ------------------------------------------------------------------


def test_the_files_hold_the_documents_and_where_they_end(tmp_path):
    texts = ["Hi", "", "ça", "  \n", "long " * 100]
    web, talk = write(tmp_path / "web.jsonl", texts), write(tmp_path / "talk.jsonl", ["z"])
    made = prepare({"web": web, "talk": talk}, tmp_path / "out", tokenizer="bytes")
    files = contents(tmp_path / "out")
    assert sorted(files) == [
        "corpus.json", "talk/index.json", "talk/train.bin", "talk/train.docs.bin",
        "web/index.json", "web/train.bin", "web/train.docs.bin",
    ]  # fmt: skip
    full = [texts[0], texts[2], texts[4]]
    assert (files["web/train.bin"], files["web/train.docs.bin"]) == expected(full)
    assert (files["talk/train.bin"], files["talk/train.docs.bin"]) == expected(["z"])
    index = json.loads(files["web/index.json"])
    crcs = [f"{zlib.crc32(files[f'web/train{end}']):08x}" for end in (".bin", ".docs.bin")]
    found = {"share": 1.0, "tokens": 508, "documents": 3, "checksums": crcs}
    assert index["splits"] == {"train": found}
    assert [index[k] for k in ("version", "domain", "dtype", "vocab_size", "end", "empty")] == [
        2, "web", "<u2", 257, 256, 2
    ]  # fmt: skip
    assert index["source"]["first"] == str(web)

    assert made.domains == list(made) == ["web", "talk"]
    assert (made.splits, made.vocab_size, made.end, len(made)) == (["train"], 257, 256, 2)
    assert made.sizes() == {"web": 508, "talk": 2}
    assert "web" in made
    assert "other" not in made
    tokens = made["web"]
    assert isinstance(tokens, Tokens)
    assert (tokens.name, tokens.n_tokens, tokens.n_documents) == ("web", 508, 3)
    assert [bytes(tokens.document(i)[:-1].tolist()).decode() for i in range(3)] == full
    assert tokens.document_bounds(1) == (3, 7)
    assert tokens.read(1, 5).tolist() == [*b"i", 256, *"ça".encode()[:2]]
    assert tokens.read(5, 5).dtype == np.int64
    assert repr(made).splitlines()[1:] == ["  web   train 508 tokens", "  talk  train 2 tokens"]


@pytest.mark.parametrize(("size", "dtype"), [(1 << 16, "<u2"), ((1 << 16) + 1, "<u4")])
def test_ids_take_as_many_bytes_as_they_need(tmp_path, size, dtype):
    made = prepare(
        {"a": write(tmp_path / "a.jsonl", ["xy"])}, tmp_path / "out",
        tokenizer=lambda text: [size - 1] * len(text), end=size - 2, vocab_size=size,
    )  # fmt: skip
    ids = [size - 1, size - 1, size - 2]
    assert (tmp_path / "out/a/train.bin").read_bytes() == np.array(ids, dtype).tobytes()
    assert made["a"].read(0, 3).tolist() == ids


def test_any_source_and_its_own_column(tmp_path):
    data = datasets.Dataset.from_dict({"body": ["one", "two"]})
    (tmp_path / "b").mkdir()
    (tmp_path / "b/x.txt").write_text("three")
    made = prepare(
        {"a": data, "b": tmp_path / "b"}, tmp_path / "out", tokenizer="bytes",
        text={"a": "body", "b": "text"},
    )  # fmt: skip
    assert made.sizes() == {"a": 8, "b": 6}
    before = os.stat(tmp_path / "out/a/train.bin").st_mtime_ns
    again = prepare({"a": data}, tmp_path / "out", tokenizer="bytes", text="body")
    assert again.domains == ["b", "a"], "what was there before stays"
    assert os.stat(tmp_path / "out/a/train.bin").st_mtime_ns == before


@pytest.mark.parametrize("splits", [None, SPLITS])
def test_halves_of_characters_are_replaced(tmp_path, splits):
    path = write(tmp_path / "a.jsonl", [*documents(30), "a\ud83db 🙂"])
    made = prepare({"a": path}, tmp_path / "out", tokenizer="bytes", splits=splits)
    last = [made.tokens("a", s).document(made.tokens("a", s).n_documents - 1) for s in made.splits]
    assert [*"a\ufffdb 🙂".encode(), 256] in [document.tolist() for document in last]


def test_documents_of_which_no_token_is_left_are_empty(tmp_path):
    path = write(tmp_path / "a.jsonl", ["?", "x", "", "?"])
    made = prepare({"a": path}, tmp_path / "out", tokenizer=lambda t: [0] * (t == "x"), end=1,
                   vocab_size=2)  # fmt: skip
    assert made["a"].read(0, 2).tolist() == [0, 1]
    assert json.loads((tmp_path / "out/a/index.json").read_text())["empty"] == 3


# -- splits --------------------------------------------------------------------------------


def test_a_text_is_in_one_split_wherever_it_stands(tmp_path):
    texts = documents(400)
    one = write(tmp_path / "one.jsonl", texts)
    two = write(tmp_path / "two.jsonl", [*texts[::-3], *texts[:50], *texts[:50]])
    made = prepare({"one": one, "two": two}, tmp_path / "out", tokenizer="bytes", splits=SPLITS)

    def found(domain, split):
        tokens = made.tokens(domain, split)
        return [bytes(tokens.document(i)[:-1].tolist()).decode() for i in range(tokens.n_documents)]

    bound = int(0.75 * 2**64)
    place = {t: int(hashlib.blake2b(t.encode(), digest_size=8).hexdigest(), 16) for t in texts}
    train = [t for t in texts if place[t] < bound]
    assert found("one", "train") == train
    assert found("one", "validation") == [t for t in texts if place[t] >= bound]
    assert not {*found("two", "train")} & {*found("two", "validation")}
    assert {*found("two", "train")} <= {*train}
    assert 250 < len(train) < 350


def test_a_split_without_documents_is_warned_of(tmp_path):
    path = write(tmp_path / "a.jsonl", ["a"])
    with pytest.warns(UserWarning, match=r"domain 'a' has no document in the split '\w+'; give"):
        made = prepare({"a": path}, tmp_path / "out", tokenizer="bytes", splits=SPLITS)
    assert sorted(made.sizes(split)["a"] for split in SPLITS) == [0, 2]
    empty = min((made.tokens("a", split) for split in SPLITS), key=len)
    assert (empty.n_documents, empty.read(0, 0).tolist()) == (0, [])


@pytest.mark.parametrize(
    ("splits", "message"),
    [
        ({"train": 0.5}, r"add up to 1; they add up to 0\.5"),
        ({"train": 1.5, "b": -0.5}, "'train' must have a share between 0 and 1; got 1.5"),
        ({"train": True}, "share between"),
        ({"a.docs": 1.0}, r"'a\.docs' cannot name a split"),
    ],
)
def test_splits_are_checked(tmp_path, splits, message):
    path = write(tmp_path / "a.jsonl", ["a"])
    with pytest.raises(ValueError, match=message):
        prepare({"a": path}, tmp_path / "out", tokenizer="bytes", splits=splits)


# -- processes -----------------------------------------------------------------------------


@pytest.mark.slow
def test_the_number_of_processes_does_not_matter(tmp_path, small):
    sources = {
        name: write(tmp_path / f"{name}.jsonl", documents(300, seed))
        for seed, name in enumerate("ab")
    }
    for workers in (0, 2):
        prepare(sources, tmp_path / str(workers), tokenizer="bytes", splits=SPLITS, workers=workers)
    assert contents(tmp_path / "0") == contents(tmp_path / "2")


def test_the_length_of_batches_does_not_matter(tmp_path, monkeypatch):
    sources = {"a": write(tmp_path / "a.jsonl", documents(50))}
    for size in (1, 999, 1 << 20):
        monkeypatch.setattr(preparing, "BATCH_CHARACTERS", size)
        prepare(sources, tmp_path / str(size), tokenizer="bytes", splits=SPLITS)
    assert (
        contents(tmp_path / "1") == contents(tmp_path / "999") == contents(tmp_path / str(1 << 20))
    )


def test_a_tokenizer_that_cannot_travel_is_refused(tmp_path):
    path = write(tmp_path / "a.jsonl", ["a"])
    with pytest.raises(TypeError, match=r"lambda.*cannot be sent to other processes.*workers=0"):
        prepare(
            {"a": path}, tmp_path / "out", tokenizer=lambda t: [1], end=0, vocab_size=2, workers=1
        )


# -- other options, other sources ----------------------------------------------------------


@pytest.fixture
def done(tmp_path):
    path = write(tmp_path / "a.jsonl", documents(100))
    prepare({"a": path}, tmp_path / "out", tokenizer="bytes")
    return path, tmp_path / "out"


CHANGES = [
    (dict(end=0), r"another vocab_size \(257, now 256\); another end \(256, now 0\)"),
    (dict(splits={"train": 0.5, "b": 0.5}), r"another splits \(\{'train': 1\.0\}, now"),
    (dict(text="text2"), r"another text \(text, now text2\)"),
    (
        dict(tokenizer=slow_bytes, end=256, vocab_size=257),
        r"another tokenizer \(bytes, now \w{12}\)",
    ),
]


@pytest.mark.parametrize(("changed", "message"), CHANGES)
@pytest.mark.parametrize("finished", [True, False])
def test_other_options_are_refused_or_prepared_anew(tmp_path, small, changed, message, finished):
    path = tmp_path / "a.jsonl"
    path.write_text(
        "".join(json.dumps({"text": t, "text2": t + "!"}) + "\n" for t in documents(60))
    )
    new = {"tokenizer": "bytes", **changed}
    prepare({"a": path}, tmp_path / "fresh", **new)
    if finished:
        prepare({"a": path}, tmp_path / "out", tokenizer="bytes")
    else:
        crash(3, {"a": path}, tmp_path / "out", tokenizer="bytes")
    before = contents(tmp_path / "out")
    with pytest.raises(ValueError, match=r"domain 'a'.*" + message + ".*pass overwrite=True"):
        prepare({"a": path}, tmp_path / "out", **new)
    assert contents(tmp_path / "out") == before
    for stop in (0, 2):  # stopped while it overwrites, it is neither the old nor the new
        crash(stop, {"a": path}, tmp_path / "out", overwrite=True, **new)
        with pytest.raises(ValueError, match="was prepared with another"):
            prepare({"a": path}, tmp_path / "out", tokenizer="bytes")
    prepare({"a": path}, tmp_path / "out", overwrite=True, **new)
    assert contents(tmp_path / "out") == contents(tmp_path / "fresh")


def test_a_changed_source_is_refused_or_prepared_anew(done):
    path, out = done
    before = contents(out)
    prepare({"a": path}, out, tokenizer="bytes")
    os.utime(path, (1, 1))
    with pytest.raises(ValueError, match=r"another source \(1 files, \d+ bytes.*overwrite=True"):
        prepare({"a": path}, out, tokenizer="bytes")
    assert contents(out) == before
    write(path, ["new"])
    made = prepare({"a": path}, out, tokenizer="bytes", overwrite=True)
    assert made.sizes() == {"a": 4}
    path.rename(path.with_name("b.jsonl"))
    with pytest.raises(ValueError, match="another source"):
        prepare({"a": path.with_name("b.jsonl")}, out, tokenizer="bytes")


def test_a_source_that_changes_while_it_is_read_is_not_finished(tmp_path, small, monkeypatch):
    path = write(tmp_path / "a.jsonl", documents(50))
    real = DocumentEncoder.encode
    monkeypatch.setattr(
        DocumentEncoder, "encode", lambda s, t: (os.utime(path, (1, 1)), real(s, t))[1]
    )
    with pytest.raises(ValueError, match="changed while it was read"):
        prepare({"a": path}, tmp_path / "out", tokenizer="bytes")
    assert not (tmp_path / "out/a/index.json").exists()


def test_one_corpus_has_one_tokenizer(done):
    path, out = done
    with pytest.raises(ValueError, match=r"domain 'a', prepared with another .*end .*add it"):
        prepare({"b": path}, out, tokenizer="bytes", end=0)
    assert prepare({"b": path}, out, tokenizer="bytes").domains == ["a", "b"]
    assert prepare({"b": path, "a": path}, out, tokenizer="bytes").domains == ["b", "a"]


def test_what_is_not_ours_is_left_alone(tmp_path):
    path = write(tmp_path / "a.jsonl", ["a"])
    (tmp_path / "out/a").mkdir(parents=True)
    (tmp_path / "out/a/model.bin").write_text("precious")
    for overwrite in (False, True):
        with pytest.raises(ValueError, match="holds something other"):
            prepare({"a": path}, tmp_path / "out", tokenizer="bytes", overwrite=overwrite)
    assert contents(tmp_path / "out") == {"a/model.bin": b"precious"}
    (tmp_path / "out/a/progress.jsonl").write_text("mine\n")
    with pytest.raises(ValueError, match="was not written by this version"):
        prepare({"a": path}, tmp_path / "out", tokenizer="bytes", overwrite=True)


def test_a_folder_is_written_by_one_at_a_time(tmp_path):
    path = write(tmp_path / "a.jsonl", ["a"])
    out = tmp_path / "out"
    out.mkdir()
    with locked(out), pytest.raises(RuntimeError, match=rf"\({os.getpid()}\) is writing to.*wait"):
        prepare({"a": path}, out, tokenizer="bytes")
    (out / ".lock").write_text("1")  # left by a process that is gone, whoever has its number now
    prepare({"a": path}, out, tokenizer="bytes")
    assert not (out / ".lock").exists()


# -- bad input -----------------------------------------------------------------------------


def test_an_empty_domain_is_named_and_leaves_nothing(tmp_path):
    path = write(tmp_path / "a.jsonl", ["", " "])
    with pytest.raises(ValueError, match=r"'none' has no document with text \(and 2 without\)"):
        prepare({"none": path}, tmp_path / "out", tokenizer="bytes")
    assert contents(tmp_path / "out") == {}
    write(path, ["a"])
    prepare({"none": path}, tmp_path / "out", tokenizer="bytes")


@pytest.mark.parametrize(
    "name", ["", " ", "a/b", "a\\b", "..", ".a", "a ", "a:b", "x\n", "corpus.json", 3]
)
def test_names_that_are_no_folders_are_refused(tmp_path, name):
    with pytest.raises(ValueError, match="cannot name a domain"):
        prepare({name: tmp_path}, tmp_path / "out", tokenizer="bytes")
    assert not (tmp_path / "out").exists()


def test_bad_arguments_are_named(tmp_path):
    path = write(tmp_path / "in/a.jsonl", ["a"])
    out = tmp_path / "out"
    with pytest.raises(TypeError, match="sources must be a mapping"):
        prepare([path], out, tokenizer="bytes")
    with pytest.raises(TypeError, match="sources must be a mapping"):
        prepare({}, out, tokenizer="bytes")
    with pytest.raises(ValueError, match="differ in capitals only"):
        prepare({"a": path, "A": path}, out, tokenizer="bytes")
    with pytest.raises(ValueError, match=r"workers must be None or an integer >= 0; got -1"):
        prepare({"a": path}, out, tokenizer="bytes", workers=-1)
    with pytest.raises(FileNotFoundError, match=r"domain 'b': there is no file or folder"):
        prepare({"a": path, "b": tmp_path / "no"}, out, tokenizer="bytes")
    with pytest.raises(ValueError, match=r"text must name a field for each of \['a'\]"):
        prepare({"a": path}, out, tokenizer="bytes", text={"b": "text"})
    with pytest.raises(ValueError, match=r"is inside the source .* of domain 'a'; choose"):
        prepare({"a": path.parent}, path.parent / "out", tokenizer="bytes")
    assert not out.exists(), "everything is checked before anything is written"


def test_a_token_may_begin_every_document(tmp_path):
    source = tmp_path / "a.jsonl"
    source.write_text('{"text": "Hi"}\n{"text": "you"}\n')
    own = TokenizersTokenizer(WordLevel({"Hi": 0, "you": 1, "<s>": 2, "</s>": 3}, unk_token="</s>"))
    for given, ids in (("<s>", [[2, 0, 3], [2, 1, 3]]), (2, [[2, 0, 3], [2, 1, 3]])):
        corpus = prepare({"a": source}, tmp_path / str(given)[0], tokenizer=own, begin=given)
        assert [corpus["a"].document(i).tolist() for i in (0, 1)] == ids
    with pytest.raises(ValueError, match=r"begin \(2, now None\)"):
        prepare({"a": source}, tmp_path / "2", tokenizer=own)
    for bad in ("<t>", 4, True):
        with pytest.raises(ValueError, match=f"begin={bad!r} is not a token of the tokenizer"):
            prepare({"a": source}, tmp_path / "bad", tokenizer=own, begin=bad)
    with pytest.raises(ValueError, match="begin='<s>' is not a token of the tokenizer bytes"):
        prepare({"a": source}, tmp_path / "bad", tokenizer="bytes", begin="<s>")


def test_long_documents_can_be_cut_before_they_are_split(tmp_path):
    """A domain of one long document has something in every split, and nothing twice."""
    source = tmp_path / "long.txt"
    source.write_text("".join(f"sentence number {i}.\n" for i in range(400)))
    splits = {"train": 0.6, "validation": 0.2, "test": 0.2}
    options = {"tokenizer": "bytes", "splits": splits, "progress": False}
    corpus = prepare({"a": source}, tmp_path / "c", pieces=200, **options)
    lines = []
    for split in splits:
        tokens = corpus.tokens("a", split)
        assert tokens.n_documents > 1
        for i in range(tokens.n_documents):
            document = bytes(tokens.document(i)[:-1].astype("uint8")).decode()
            assert len(document) <= 200
            lines += document.splitlines()
    assert sorted(lines) == sorted(source.read_text().splitlines())
    with pytest.raises(ValueError, match=r"pieces \(200, now 300\)"):
        prepare({"a": source}, tmp_path / "c", pieces=300, **options)
    with pytest.raises(ValueError, match="pieces must be a whole number"):
        prepare({"a": source}, tmp_path / "d", pieces=0, **options)
