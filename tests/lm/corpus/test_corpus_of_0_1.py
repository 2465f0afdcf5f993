"""Corpora that version 0.1 wrote: they open, are left alone, and are continued.

`tests/data/corpus-0.1` holds the texts, a finished corpus, and one that was stopped in its first
domain, as 0.1 left them.
"""

from __future__ import annotations

import json
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
    now, then = contents(stored / "stopped"), contents(stored / "done")
    assert now.keys() == then.keys()
    for name in now:
        if name.endswith(".bin"):
            assert now[name] == then[name]
    for index in ("web/index.json", "code/index.json"):  # as 0.1 wrote it, and checksums
        before, after = json.loads(then[index]), json.loads(now[index])
        assert after.pop("crc32")
        assert (before.pop("version"), after.pop("version")) == (1, 2)
        for split in after["splits"].values():
            assert len(split.pop("checksums")) == 2
        assert after == before
    Corpus.open("stopped").verify()


def test_damage_that_needs_no_checksum_is_found(stored):
    """0.1 wrote no checksums, but ids have a range and documents an end."""
    corpus = Corpus.open("done")
    corpus.verify()
    path = stored / "done/web/train.bin"
    whole = path.read_bytes()
    path.write_bytes(whole[:20] + b"\x01\x01" + whole[22:])  # 257
    with pytest.raises(ValueError, match=r"train\.bin' is damaged: token 10 is 257, outside of"):
        Corpus.open("done").verify()
    with pytest.raises(ValueError, match="outside of the vocabulary of 257"):
        Corpus.open("done")["web"].read(5, 15)
    path.write_bytes(whole)
    ends = stored / "done/web/train.docs.bin"
    sound = ends.read_bytes()
    for at in (0, len(sound) - 8):
        ends.write_bytes(sound[:at] + bytes([sound[at] ^ 1]) + sound[at + 1 :])
        with pytest.raises(ValueError, match=r"train\.docs\.bin'.* is damaged"):
            Corpus.open("done").verify()


@pytest.mark.parametrize(
    ("entry", "value"),
    [("vocab_size", 258), ("end", 255), ("end", 3.5), ("splits", []), ("dtype", "<u4"),
     ("tokenizer", None), ("source", 3), ("domain", "../web")],
)  # fmt: skip
def test_an_index_that_cannot_be_right_is_refused(stored, entry, value):
    path = stored / "done/web/index.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {entry: value}))
    with pytest.raises(ValueError, match=r"web.* (is damaged|was prepared with|belongs to)"):
        Corpus.open("done")
