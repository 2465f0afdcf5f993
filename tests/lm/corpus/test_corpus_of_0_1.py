"""Corpora that version 0.1 wrote: they open, are left alone, and are continued.

`tests/data/corpus-0.1` holds the texts, a finished corpus, and one that was stopped in its first
domain, as 0.1 left them.
"""

from __future__ import annotations

import os
import shutil

import pytest
from lm_texts import contents
from paths import ROOT

from counterpoise.lm import Corpus, prepare, read_documents

STAMP = 1_700_000_000_000_000_000  # of the texts when 0.1 read them, which Git does not keep
SPLITS = {"train": 0.75, "validation": 0.25}


@pytest.fixture
def stored(tmp_path, monkeypatch):
    """A copy as it was, with paths as they were."""
    folder = tmp_path / "corpus-0.1"
    shutil.copytree(ROOT / "tests/data/corpus-0.1", folder)
    for path in (folder / "texts").iterdir():
        os.utime(path, ns=(STAMP, STAMP))
    monkeypatch.chdir(folder)
    return folder


def prepare_again(out):
    sources = {name: f"texts/{name}.jsonl" for name in ("web", "code")}
    return prepare(sources, out, tokenizer="bytes", splits=SPLITS, progress=False)


def test_it_opens(stored):
    corpus = Corpus.open("done")
    assert (corpus.domains, corpus.splits) == (["web", "code"], ["train", "validation"])
    for name in corpus:
        parts = [corpus.tokens(name, split) for split in corpus.splits]
        found = [t.document(i)[:-1].tolist() for t in parts for i in range(t.n_documents)]
        texts = [list(text.encode()) for text in read_documents(f"texts/{name}.jsonl")]
        assert sorted(found) == sorted(texts)


def test_a_finished_one_is_left_alone(stored):
    stamps = {path: path.stat().st_mtime_ns for path in stored.glob("done/*/*")}
    before = contents(stored / "done")
    prepare_again("done")
    assert {path: path.stat().st_mtime_ns for path in stored.glob("done/*/*")} == stamps
    assert contents(stored / "done") == before


def test_a_stopped_one_is_continued_to_the_same_bytes(stored, caplog):
    with caplog.at_level("INFO", "counterpoise"):
        prepare_again("stopped")
    assert "domain web: continues after 20 rows" in caplog.text
    assert contents(stored / "stopped") == contents(stored / "done")
