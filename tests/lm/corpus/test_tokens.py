"""Corpora opened again, and what is said while they are made."""

from __future__ import annotations

import io
import json
import logging
import os
import pickle
import subprocess
import sys

import pytest
from lm_texts import documents, write

from counterpoise.common.progress import CorpusBar
from counterpoise.lm import Corpus, prepare
from counterpoise.lm.corpus import prepare as preparing
from counterpoise.lm.sealed import seal


@pytest.fixture
def small(monkeypatch):
    """Many batches, each made safe at once."""
    monkeypatch.setattr(preparing, "BATCH_CHARACTERS", 500)
    monkeypatch.setattr(preparing, "COMMIT_SECONDS", 0.0)


@pytest.fixture
def done(tmp_path):
    path = write(tmp_path / "a.jsonl", documents(100))
    prepare({"a": path}, tmp_path / "out", tokenizer="bytes")
    return path, tmp_path / "out"


# -- opening -------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["train.bin", "train.docs.bin"])
def test_files_that_are_not_whole_are_named(done, name):
    path, out = done
    os.truncate(out / "a" / name, 16)
    for opening in (lambda: Corpus.open(out), lambda: prepare({"a": path}, out, tokenizer="bytes")):
        with pytest.raises(
            ValueError, match=rf"{name}' has 16 bytes instead of \d+; copy it again"
        ):
            opening()
    (out / "a" / name).unlink()
    with pytest.raises(ValueError, match=rf"{name}' is missing"):
        Corpus.open(out)


def test_other_folders_are_refused(done):
    _, out = done
    with pytest.raises(FileNotFoundError, match="has no corpus"):
        Corpus.open(out / "a")
    known = json.loads((out / "corpus.json").read_text())
    (out / "corpus.json").write_text(json.dumps(known | {"version": 3}))
    with pytest.raises(
        ValueError, match=r"has version 3 and this library reads version 1 and 2.*delete this file"
    ):
        Corpus.open(out)
    del known["crc32"]
    (out / "corpus.json").write_text(json.dumps(seal(known | {"tokenizer": "other"})))
    with pytest.raises(ValueError, match="prepared with another tokenizer"):
        Corpus.open(out)
    for text in ("{", "[" * 100_000):
        (out / "corpus.json").write_text(text)
        with pytest.raises(
            ValueError, match=r"corpus\.json' is damaged: not JSON.*; delete this file"
        ):
            Corpus.open(out)
    path, _ = done
    (out / "corpus.json").unlink()  # as the message says
    assert prepare({"a": path}, out, tokenizer="bytes").domains == ["a"]


def test_reading_outside_is_refused(done):
    made = Corpus.open(done[1])
    tokens, n = made["a"], made.sizes()["a"]
    for start, stop in ((-1, 2), (2, 1), (0, n + 1)):
        with pytest.raises(IndexError, match=f"start={start}, stop={stop}"):
            tokens.read(start, stop)
    for i in (-1, 100):
        with pytest.raises(IndexError, match=f"i={i} must be between 0 and 99"):
            tokens.document(i)
    with pytest.raises(KeyError, match=r"domain='b' is not in the corpus; it has \['a'\]"):
        made["b"]
    with pytest.raises(KeyError, match="split='test' is not in the corpus"):
        made.tokens("a", "test")


def test_pickled_tokens_are_small_and_open_again(done):
    tokens = Corpus.open(done[1])["a"]
    first = tokens.document(0)
    data = pickle.dumps(tokens)
    assert len(data) < 1500 < 2 * tokens.n_tokens
    assert pickle.loads(data).document(0).tolist() == first.tolist()
    tokens.read(0, 5)[:] = 0
    assert tokens.read(0, 5).tolist() == first[:5].tolist(), "what is read is a copy"


@pytest.mark.slow
def test_preparing_imports_no_torch(tmp_path):
    write(tmp_path / "a.jsonl", ["a"])
    code = (
        "import sys; from counterpoise.lm import prepare; prepare({'a': 'a.jsonl'}, 'out', "
        "tokenizer='bytes'); print([m for m in ('torch', 'transformers', 'datasets', "
        "'tokenizers', 'numba') if m in sys.modules])"
    )
    paths = os.pathsep.join(map(os.path.abspath, filter(None, sys.path)))
    shown = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=os.environ | {"PYTHONPATH": paths},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert shown.stdout.strip() == "[]"


# -- the bar -------------------------------------------------------------------------------


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_the_bar_tells_domain_documents_tokens_and_share(tmp_path, small, monkeypatch):
    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setattr(preparing, "CorpusBar", lambda: CorpusBar(every=0.0))
    made = prepare({"a": write(tmp_path / "a.jsonl", documents(50))}, tmp_path / "out",
                   tokenizer="bytes")  # fmt: skip
    *_, last, cleared = screen.getvalue().strip("\r").split("\r")
    assert last.startswith("a: 100%")
    assert "50 documents" in last
    assert not cleared.strip(), "the terminal is left clean"
    assert made.sizes()["a"] > 0


def test_elsewhere_the_end_of_a_domain_is_logged(tmp_path, caplog, capsys):
    path = write(tmp_path / "a.jsonl", ["abc"])
    with caplog.at_level(logging.INFO, logger="counterpoise"):
        prepare({"a": path}, tmp_path / "out", tokenizer="bytes")
        prepare({"a": path}, tmp_path / "silent", tokenizer="bytes", progress=False)
    assert [r.getMessage() for r in caplog.records] == ["domain a: 1 documents, 4 tokens"]
    assert capsys.readouterr() == ("", "")
