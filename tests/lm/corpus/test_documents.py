"""Readers: every kind of file and dataset, from any row on, and what they refuse."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import sys

import datasets
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from counterpoise.lm import read_documents
from counterpoise.lm.corpus.documents import Documents, beginning, cut, find_readers, identify

TEXTS = ["one", "zwei\nLinien", "", "三", " \n\t", "fünf 🙂", "six"]
FULL = [text for text in TEXTS if text.strip()]


def lines(texts, key="text"):
    return "".join(json.dumps({"id": i, key: t}) + "\n" for i, t in enumerate(texts)).encode()


def parquet(path, texts=TEXTS, key="text", group=3):
    pq.write_table(pa.table({"n": list(range(len(texts))), key: texts}), path, row_group_size=group)
    return path


PACKERS = {"": bytes, ".gz": gzip.compress, ".bz2": bz2.compress, ".xz": lzma.compress}


@pytest.fixture(params=["jsonl", "jsonl.gz", "parquet", "dataset", "streamed", "saved"])
def source(request, tmp_path):
    """The same documents from every kind of source."""
    if request.param == "parquet":
        return parquet(tmp_path / "a.parquet")
    if request.param.startswith("jsonl"):
        pack = PACKERS[request.param.removeprefix("jsonl")]
        (tmp_path / f"a.{request.param}").write_bytes(pack(lines(TEXTS)))
        return tmp_path / f"a.{request.param}"
    data = datasets.Dataset.from_dict({"n": list(range(len(TEXTS))), "text": TEXTS})
    if request.param == "streamed":
        return data.to_iterable_dataset()
    if request.param == "saved":
        data.save_to_disk(tmp_path / "saved")
        return tmp_path / "saved"
    return data


def test_every_source_gives_the_documents_and_counts_the_empty_ones(source):
    documents = read_documents(source)
    assert list(documents) == FULL
    assert (documents.rows, documents.empty) == (7, 2)
    assert list(documents) == [], "it is read once"


def test_every_source_can_be_read_from_any_row_on(source):
    parts = [*find_readers(source), *find_readers(source)]
    whole = Documents(parts)
    places = [(whole.part, whole.row)]
    texts = []
    for text in whole:
        texts.append(text)
        places.append((whole.part, whole.row))
    assert texts == FULL * 2
    for read, (part, row) in enumerate(places):
        assert list(Documents(parts, part=part, row=row)) == texts[read:]


def test_the_identity_of_a_source_stays(source):
    assert identify(find_readers(source)) == identify(find_readers(source))
    json.dumps(identify(find_readers(source)))


@pytest.mark.parametrize("suffix", PACKERS)
@pytest.mark.parametrize("kind", [".jsonl", ".json", ".txt"])
def test_compressed_files(tmp_path, kind, suffix):
    data = "\ufeffÄ whole\nfile".encode() if kind == ".txt" else lines(TEXTS)
    path = tmp_path / f"a{kind}{suffix}"
    path.write_bytes(PACKERS[suffix](data))
    assert list(read_documents(path)) == (["Ä whole\nfile"] if kind == ".txt" else FULL)
    path.write_bytes(path.read_bytes()[:-9])
    if suffix and suffix != ".bz2":  # which may end early without saying so
        with pytest.raises(ValueError, match=rf"a\{kind}\{suffix}.*truncated or damaged"):
            list(read_documents(path))


def test_zstandard(tmp_path, monkeypatch):
    path = tmp_path / "a.jsonl.zst"
    path.write_bytes(zstandard.compress(lines(TEXTS)))
    assert list(read_documents(path)) == FULL
    monkeypatch.setitem(sys.modules, "zstandard", None)
    with pytest.raises(ImportError, match=r"pip install zstandard"):
        list(read_documents(path))


def test_folders_are_read_sorted_with_all_below(tmp_path):
    for name in (
        "b/2.txt",
        "b/10.txt",
        "a.txt",
        "c.txt.gz",
        ".hidden.txt",
        ".git/x.txt",
        "README.md",
    ):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(gzip.compress(name.encode()) if name.endswith("gz") else name.encode())
    parquet(tmp_path / "d.parquet", ["in parquet"])
    order = ["a.txt", "b/10.txt", "b/2.txt", "c.txt.gz", "in parquet"]
    assert list(read_documents(tmp_path)) == order
    assert list(read_documents([tmp_path / "b", tmp_path / "a.txt"])) == [*order[1:3], order[0]]


def test_other_columns_and_fields(tmp_path):
    (tmp_path / "a.jsonl").write_bytes(
        lines(["a"], "content") + b"\n  \n" + lines(["b"], "content")
    )
    assert list(read_documents(tmp_path / "a.jsonl", text="content")) == ["a", "b"]
    assert list(read_documents(parquet(tmp_path / "a.parquet", key="q"), text="q")) == FULL


def test_files_are_not_held_whole(tmp_path):
    """The file grows after its first document was read, and the rest is read as well."""
    path = tmp_path / "a.jsonl"
    path.write_bytes(lines(["x" * 1000] * 1000))
    documents = read_documents(path)
    next(documents)
    assert 0 < documents.share < 0.5
    with path.open("ab") as file:
        file.write(lines(["new"]))
    assert list(documents)[-1] == "new"
    assert documents.share == 1.0


def test_the_share_of_a_parquet_file_goes_with_its_rows(tmp_path):
    documents = read_documents([parquet(tmp_path / f"{i}.parquet") for i in range(2)])
    shares = [documents.share for _ in documents]
    assert shares == sorted(shares)
    assert shares[0] == 0.0
    assert documents.share == 1.0
    assert read_documents(datasets.Dataset.from_dict({"text": ["a"]})).share is None


# -- the hub -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "asked"),
    [
        ("hf://me/data", ("me/data", None, "train")),
        ("hf://me/data:en", ("me/data", "en", "train")),
        ("hf://me/data@test", ("me/data", None, "test")),
        ("hf://data:20220301.en@train[:5%]", ("data", "20220301.en", "train[:5%]")),
    ],
)
def test_names_on_the_hub_are_streamed(monkeypatch, name, asked):
    seen = []

    def load_dataset(path, config, *, split, streaming):
        seen.append((path, config, split))
        assert streaming
        return datasets.Dataset.from_dict({"text": TEXTS}).to_iterable_dataset()

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    assert list(read_documents(name)) == FULL
    assert seen == [asked]


@pytest.mark.parametrize("name", ["hf://", "hf://a:b:c", "hf://a@", "hf://a@b@c"])
def test_other_names_are_refused(name):
    with pytest.raises(ValueError, match=r"does not name a dataset; write 'hf://owner/name'"):
        read_documents(name)


# -- bad input -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (b'{"txt": "a"}', r"line 4, has no field 'text', only \['txt'\]; name.*text="),
        (b'{"text": 3}', r"line 4, has 3 in 'text', which is not a text"),
        (b'{"text": null}', r"line 4, has None in 'text'"),
        (b'{"text": "a"', r"line 4, is not JSON.*every line must hold one object"),
        (b'{"text": "\xff"}', r"line 4, is not JSON"),
        (b'["a"]', r"line 4, holds a list; every line must hold one object"),
    ],
)
def test_bad_lines_are_named(tmp_path, bad, message):
    (tmp_path / "a.jsonl").write_bytes(lines(["a", "b"]) + b"\n" + bad + b"\n")
    documents = read_documents(tmp_path / "a.jsonl")
    assert [next(documents), next(documents)] == ["a", "b"]
    with pytest.raises(ValueError, match=r"a\.jsonl', " + message):
        next(documents)


def test_bad_tables_are_named(tmp_path):
    with pytest.raises(ValueError, match=r"a\.parquet' has no field 'text', only \['n', 'q'\]"):
        list(read_documents(parquet(tmp_path / "a.parquet", key="q")))
    with pytest.raises(ValueError, match=r"b\.parquet', row 5, has None in 'text'"):
        list(read_documents(parquet(tmp_path / "b.parquet", ["a", "b", "c", "d", None])))
    (tmp_path / "c.parquet").write_bytes(b"no")
    with pytest.raises(ValueError, match=r"c\.parquet' is not a Parquet file"):
        list(read_documents(tmp_path / "c.parquet"))
    with pytest.raises(ValueError, match=r"Dataset has no field 'text', only \['q'\]"):
        read_documents(datasets.Dataset.from_dict({"q": ["a"]}))
    with pytest.raises(ValueError, match=r"row 2, has None in 'text'"):
        list(read_documents(datasets.Dataset.from_dict({"text": ["a", None]})))
    (tmp_path / "d.txt").write_bytes(b"\xff\xfe")
    with pytest.raises(ValueError, match=r"d\.txt' is not UTF-8"):
        list(read_documents(tmp_path / "d.txt"))


def test_bad_sources_are_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no file or folder .*nowhere"):
        read_documents(tmp_path / "nowhere")
    with pytest.raises(FileNotFoundError, match=r"the folder .* has nothing to read"):
        read_documents(tmp_path)
    (tmp_path / "a.csv").write_text("a")
    with pytest.raises(ValueError, match=r"the type of .*a\.csv' cannot be read; give"):
        read_documents(tmp_path / "a.csv")
    with pytest.raises(ValueError, match="list of sources is empty"):
        read_documents([])
    with pytest.raises(TypeError, match="int is not a source"):
        read_documents(3)
    both = datasets.DatasetDict({"train": datasets.Dataset.from_dict({"text": ["a"]})})
    with pytest.raises(TypeError, match=r"DatasetDict with \['train'\]; choose one"):
        read_documents(both)
    both.save_to_disk(tmp_path / "both")
    with pytest.raises(
        ValueError, match=r"several datasets; give the folder of one of \['train'\]"
    ):
        read_documents(tmp_path / "both")
    assert list(read_documents(tmp_path / "both" / "train")) == ["a"]
    with pytest.raises(ValueError, match="text must be the name"):
        read_documents(tmp_path, text="")


@pytest.mark.parametrize(
    ("package", "name"), [("pyarrow.parquet", "a.parquet"), ("datasets", "hf://a/b")]
)
def test_what_is_not_installed_is_named(monkeypatch, tmp_path, package, name):
    parquet(tmp_path / "a.parquet")
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ImportError, match="pip install"):
        list(read_documents(name if name.startswith("hf") else tmp_path / name))


def test_files_of_other_kinds_are_left_out_aloud(tmp_path, caplog):
    (tmp_path / "in").mkdir()
    (tmp_path / "in/a.txt").write_text("x")
    (tmp_path / "in/table.csv").write_text("1")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "in/linked").symlink_to(tmp_path / "elsewhere")
    assert list(read_documents(tmp_path / "in")) == ["x"]
    assert "2 linked folders or files of another type, such as linked, table.csv" in caplog.text


@given(st.text(alphabet="ab \n", max_size=120), st.integers(1, 30))
def test_pieces_are_short_and_lose_nothing_visible(document, most):
    pieces = cut(document, most)
    assert all(len(p) <= most and not p.isspace() for p in pieces)
    assert "".join("".join(pieces).split()) == "".join(document.split())
    assert "".join(cut("x" * 50, 7)) == "x" * 50


def test_pieces_end_between_paragraphs_lines_or_words():
    assert cut("one two three\nfour\n\nfive six", 24) == ["one two three\nfour\n\n", "five six"]
    assert cut("one two three\nfour five six", 20) == ["one two three\n", "four five six"]
    assert cut("one two three four", 12) == ["one two ", "three four"]
    # a border in the first half would leave a crumb
    assert cut("a\n\nbcdefghijklmnop", 10) == ["a\n\nbcdefgh", "ijklmnop"]


def test_the_beginning_of_a_text_in_bytes():
    assert beginning("a猫b", 5) == "a猫b"
    assert beginning("a猫b", 4) == "a猫"
    assert beginning("a猫b", 3) == "a", "no half of a character"
    assert beginning("猫b", 1) == "猫", "one at least"
