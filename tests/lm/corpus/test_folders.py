"""Folders of domains, and the names that RedPajama's come by."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from counterpoise.lm import folder_sources, prepare, redpajama_sources

LINE = json.dumps({"text": "a text"}) + "\n"


def fill(folder, *names):
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        data = LINE.encode()
        path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    return folder


def test_files_and_folders_are_domains(tmp_path):
    fill(tmp_path, "b.jsonl.gz", "a/1.jsonl", "a/2.jsonl", "c.d.parquet", "README.md", ".git/x.txt",
         ".hidden.jsonl", "e.txt", "F.JSONL.ZST")  # fmt: skip
    assert folder_sources(tmp_path) == {
        "F": tmp_path / "F.JSONL.ZST",
        "a": tmp_path / "a",
        "b": tmp_path / "b.jsonl.gz",
        "c.d": tmp_path / "c.d.parquet",
        "e": tmp_path / "e.txt",
    }
    assert list(folder_sources(str(tmp_path), ["e", "b"])) == ["e", "b"]
    with pytest.raises(ValueError, match=r"lacks \['x'\]; it has \['F', 'a'"):
        folder_sources(tmp_path, ["x"])
    with pytest.raises(TypeError, match="domains must be a list of names; got 'a'"):
        folder_sources(tmp_path, "a")


def test_files_that_cannot_be_read_are_told(tmp_path, caplog):
    fill(tmp_path, "a.jsonl", "README.md", "sums.sha256")
    with caplog.at_level("INFO", "counterpoise"):
        folder_sources(tmp_path)
    assert "README.md, sums.sha256" in caplog.text


def test_a_domain_that_is_there_twice(tmp_path):
    fill(tmp_path, "a.jsonl", "a/1.jsonl", "b.jsonl")
    with pytest.raises(ValueError, match=r"'a' has several sources, \['a', 'a.jsonl'\]; keep one"):
        folder_sources(tmp_path)
    assert folder_sources(tmp_path, ["b"]) == {"b": tmp_path / "b.jsonl"}


def test_folders_without_domains(tmp_path):
    with pytest.raises(FileNotFoundError, match="there is no folder"):
        folder_sources(tmp_path / "none")
    fill(tmp_path, "README.md")
    with pytest.raises(FileNotFoundError, match="nothing to read"):
        folder_sources(tmp_path)
    with pytest.raises(FileNotFoundError, match="nothing to read"):
        redpajama_sources(tmp_path)


SAMPLE = (
    "arxiv_sample.jsonl", "book_sample.jsonl", "c4_sample.jsonl", "cc_2019-30_sample.jsonl",
    "cc_2023-06_sample.jsonl", "github_sample.jsonl", "stackexchange_sample.jsonl",
    "wikipedia_sample.jsonl",
)  # fmt: skip
WHOLE = (
    "arxiv/arxiv_0.jsonl", "book/book.jsonl", "c4/c4-train.00000-of-01024.jsonl",
    "common_crawl/2019-30/en_head_0000.json.gz.dedup.classifier.jsonl",
    "common_crawl/2023-06/en_middle_0001.json.gz.dedup.classifier.jsonl",
    "github/filtered_08cdf.sampled.jsonl", "stackexchange/stackexchange.jsonl",
    "wikipedia/wiki.jsonl",
)  # fmt: skip
SHORT = ("arxiv.jsonl.gz", "c4-rp.jsonl.gz", "cc.jsonl.gz", "github.jsonl.gz",
         "stackexchange.jsonl.gz", "wiki.jsonl.gz")  # fmt: skip


@pytest.mark.parametrize(
    ("files", "names"),
    [
        (SAMPLE, ["cc", "github", "book", "stackexchange", "wiki", "arxiv", "c4"]),
        (WHOLE, ["cc", "github", "book", "stackexchange", "wiki", "arxiv", "c4"]),
        (SHORT, ["cc", "github", "stackexchange", "wiki", "arxiv", "c4"]),
    ],
)
def test_layouts_of_redpajama(tmp_path, files, names):
    folder = fill(tmp_path / "data", *files, "README.md", "RedPajama-Data-1T.py")
    sources = redpajama_sources(folder)
    assert list(sources) == names
    corpus = prepare(sources, tmp_path / "corpus", tokenizer="bytes", progress=False)
    counts = {name: corpus[name].n_documents for name in names}
    twice = files is not SHORT  # two crawls
    assert counts == dict.fromkeys(names, 1) | {"cc": 1 + twice}


def test_crawls_apart_are_one_domain(tmp_path):
    sources = redpajama_sources(fill(tmp_path, *SAMPLE))
    assert [Path(path).name for path in sources["cc"]] == list(SAMPLE[3:5])
    assert sources["wiki"] == tmp_path / "wikipedia_sample.jsonl"


def test_names_that_are_none_of_redpajama(tmp_path):
    fill(tmp_path, "arxiv.jsonl", "poems.jsonl", "urls/arxiv.txt", "wiki.jsonl")
    with pytest.raises(
        ValueError, match=r"has \['poems', 'urls'\].*choose among \['wiki', 'arxiv'\]"
    ):
        redpajama_sources(tmp_path)
    assert redpajama_sources(tmp_path, ["arxiv"]) == {"arxiv": tmp_path / "arxiv.jsonl"}
    with pytest.raises(ValueError, match=r"lacks \['book'\]; it has \['wiki'"):
        redpajama_sources(tmp_path, ["arxiv", "book"])


@pytest.mark.parametrize(
    "twice", [("wiki.jsonl", "wikipedia/a.jsonl"), ("cc.jsonl", "cc_2019-30.jsonl")]
)
def test_two_sources_for_a_domain_of_redpajama(tmp_path, twice):
    fill(tmp_path, *twice)
    with pytest.raises(ValueError, match="has several sources"):
        redpajama_sources(tmp_path)
