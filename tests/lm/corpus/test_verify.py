"""Token files are checked against their checksums, once, until they change."""

from __future__ import annotations

import json
import os

import numpy as np
import pytest
from lm_texts import contents, documents, write

from counterpoise.lm import Corpus, MixtureDataset, prepare, write_tokens
from counterpoise.lm.evaluate import held_out
from counterpoise.storage import remembered

SPLITS = {"train": 0.5, "validation": 0.5}


@pytest.fixture(autouse=True)
def fresh(monkeypatch):
    """What other tests remembered does not count."""
    monkeypatch.setattr(remembered, "_known", {})


@pytest.fixture
def done(tmp_path):
    sources = {
        name: write(tmp_path / f"{name}.jsonl", documents(100, i)) for i, name in enumerate("ab")
    }
    prepare(sources, tmp_path / "out", tokenizer="bytes", splits=SPLITS)
    return sources, tmp_path / "out"


def again(done, **options):
    return prepare(done[0], done[1], tokenizer="bytes", splits=SPLITS, **options)


def flip(path, at=-1, bit=1):
    data = bytearray(path.read_bytes())
    data[at] ^= bit
    path.write_bytes(data)


def reads(monkeypatch):
    """Count the files that are read to be checked."""
    seen, real = [], remembered.checksum
    monkeypatch.setattr(
        remembered, "checksum", lambda path: (seen.append(path.name), real(path))[1]
    )
    return seen


@pytest.mark.parametrize("name", ["train.bin", "train.docs.bin", "validation.bin"])
def test_a_flipped_bit_is_found_wherever_tokens_are_used(done, name):
    out = done[1]
    before = contents(out)
    rng = np.random.default_rng(0)
    size = (out / "a" / name).stat().st_size
    flip(out / "a" / name, int(rng.integers(size)), 1 << int(rng.integers(8)))
    corpus = Corpus.open(out)
    uses = [corpus.verify, lambda: again(done)]
    if name.startswith("train"):
        uses += [lambda: MixtureDataset(out, 16), lambda: MixtureDataset(corpus, 16)]
    else:
        uses += [lambda: held_out(out, 16)]
    for use in uses:
        with pytest.raises(ValueError, match=rf"a.{name}' is damaged: its checksum is .*overwrite"):
            use()
    corpus.verify(["b"])
    stamp = (out / "b/train.bin").stat().st_mtime_ns
    again(done, overwrite=True)
    assert contents(out) == before
    assert (out / "b/train.bin").stat().st_mtime_ns == stamp, "only one domain is made anew"


@pytest.mark.parametrize("name", ["index.json", "progress.jsonl", "train.bin"])
def test_what_is_damaged_is_made_anew_if_it_may_be_overwritten(done, name):
    before = contents(done[1])
    path = done[1] / "a" / name
    path.write_bytes(b"\xff{")
    with pytest.raises(ValueError, match=f"a.{name}'"):
        again(done)
    again(done, overwrite=True)
    assert contents(done[1]) == before


def test_every_flip_of_the_metadata_is_refused(done):
    _, out = done
    rng = np.random.default_rng(1)
    for path in (out / "corpus.json", out / "a/index.json"):
        whole = path.read_bytes()
        for at in rng.choice(len(whole), 120, replace=False).tolist():
            flip(path, at, 1 << int(rng.integers(8)))
            try:
                changed = json.loads(path.read_text()) != json.loads(whole)
            except ValueError:
                changed = True
            if changed:  # a blank may become another
                with pytest.raises(ValueError, match=path.name.replace(".", r"\.")) as caught:
                    Corpus.open(out)
                assert "\n" not in str(caught.value)
            path.write_bytes(whole)
    Corpus.open(out).verify()


def test_files_are_read_once_until_they_change(done, monkeypatch):
    _, out = done
    monkeypatch.setattr(remembered, "SETTLED", -1)
    seen = reads(monkeypatch)
    Corpus.open(out).verify()
    assert len(seen) == 8
    Corpus.open(out).verify()
    assert len(seen) == 8
    remembered._known.clear()  # another process
    Corpus.open(out).verify()
    again(done)
    assert len(seen) == 8
    os.utime(out / "a/train.bin")
    Corpus.open(out).verify()
    assert seen[8:] == ["train.bin"]
    flip(out / "b/train.docs.bin")
    with pytest.raises(ValueError, match="is damaged"):
        Corpus.open(out).verify()


def test_times_that_are_set_back_hide_nothing(done, monkeypatch):
    path = done[1] / "a/train.bin"
    monkeypatch.setattr(remembered, "SETTLED", -1)
    Corpus.open(done[1]).verify()
    then = path.stat()
    with open(path, "r+b") as file:
        file.write(b"\x07")
    os.utime(path, ns=(then.st_atime_ns, then.st_mtime_ns))
    with pytest.raises(ValueError, match="is damaged"):
        Corpus.open(done[1]).verify()


def test_young_files_are_not_remembered(done, monkeypatch):
    """They could change again without their times changing."""
    seen = reads(monkeypatch)
    for _ in range(2):
        Corpus.open(done[1]).verify()
    assert len(seen) == 16
    assert not list(done[1].rglob(".verified.json"))


@pytest.mark.parametrize("text", ["", "{", "[]", '{"format": 3}', "[" * 100_000])
def test_a_damaged_memory_is_no_memory(done, monkeypatch, text):
    monkeypatch.setattr(remembered, "SETTLED", -1)
    (done[1] / "a/.verified.json").write_text(text)
    Corpus.open(done[1]).verify()
    assert json.loads((done[1] / "a/.verified.json").read_text())["files"]


def test_given_tokens_are_checked_too(tmp_path):
    corpus = write_tokens({"a": [[1, 2], [3]]}, tmp_path / "out", vocab_size=9, end=0)
    corpus.verify()
    flip(tmp_path / "out/a/train.bin", 0)
    with pytest.raises(ValueError, match=r"train\.bin' is damaged"):
        Corpus.open(tmp_path / "out").verify()
    for bad in ({"end": 9}, {"end": -1}, {"vocab_size": 0}, {"vocab_size": 2**32}):
        options = {"vocab_size": 9, "end": 0} | bad
        with pytest.raises(ValueError, match=r"(end|vocab_size)"):
            write_tokens({"a": [[1]]}, tmp_path / "no", **options)
    assert not (tmp_path / "no").exists()


def test_ids_outside_of_the_vocabulary_are_never_returned(done):
    """Even if the damage came after the check."""
    tokens = Corpus.open(done[1])["a"]
    path = done[1] / "a/train.bin"
    data = bytearray(path.read_bytes())
    data[2:4] = b"\xff\xff"
    path.write_bytes(data)
    with pytest.raises(ValueError, match=r"token 1 is 65535, outside of the vocabulary of 257"):
        tokens.read(0, 3)
