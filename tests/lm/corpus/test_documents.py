"""Readers: every kind of file and dataset, from any row on, and what they refuse."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import sys
import tracemalloc

import datasets
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from counterpoise.lm import read_documents
from counterpoise.lm.corpus import readers
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


# -- hostile input -------------------------------------------------------------------------


def refusal(source):
    """What is said about a source, if it cannot be read."""
    try:
        list(read_documents(source))
    except ValueError as error:
        return str(error)
    return None


def is_one_line_about(name, said):
    return said is None or (name in said and "\n" not in said)


def replace(path, data):
    (path.parent / "draft").write_bytes(data)
    (path.parent / "draft").replace(path)


def letters(suffix, size):
    """A small file that unpacks to one line of many bytes."""
    line = b'{"text": "' + b"A" * size + b'"}\n'
    pack = {**PACKERS, ".zst": zstandard.compress}[suffix]
    return pack(lines(["a"]) + line)


@pytest.mark.parametrize("suffix", [*PACKERS, ".zst"])
@pytest.mark.parametrize("kind", [".jsonl", ".txt"])
def test_a_document_that_is_too_long_is_refused_before_it_is_read(tmp_path, kind, suffix):
    path = tmp_path / f"a{kind}{suffix}"
    path.write_bytes(letters(suffix, 30_000_000))
    reader = read_documents(path, max_document_bytes=1000)
    if kind == ".jsonl":
        assert next(reader) == "a"
    where = r"', line 2, is" if kind == ".jsonl" else "' is"
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match=rf"a\{kind}\{suffix}{where} longer than 1,000 bytes"):
            next(reader)
        assert tracemalloc.get_traced_memory()[1] < 10_000_000
    finally:
        tracemalloc.stop()


def test_the_longest_document_is_read(tmp_path):
    row = b'{"text": "abc"}'
    (tmp_path / "a.jsonl").write_bytes(row + b"\r\n" + row)
    found = list(read_documents(tmp_path / "a.jsonl", max_document_bytes=len(row)))
    assert found == ["abc"] * 2
    remedy = r"raise max_document_bytes=\.\.\. \(corpus\.max_document_bytes in a configuration\)"
    with pytest.raises(ValueError, match=rf"line 1, is longer than 14 bytes.*{remedy}"):
        list(read_documents(tmp_path / "a.jsonl", max_document_bytes=14))
    (tmp_path / "a.txt").write_bytes(b"abc")
    assert list(read_documents(tmp_path / "a.txt", max_document_bytes=3)) == ["abc"]
    with pytest.raises(ValueError, match="max_document_bytes must be a whole number"):
        read_documents(tmp_path / "a.txt", max_document_bytes=0)


def test_by_default_plain_text_files_may_be_long(tmp_path, monkeypatch):
    """They are as large as they seem; a compressed one, and a line, may be a bomb."""
    monkeypatch.setattr(readers, "MAX_DOCUMENT_BYTES", 1000)
    (tmp_path / "a.txt").write_text("x" * 5000)
    assert list(read_documents(tmp_path / "a.txt")) == ["x" * 5000]
    with pytest.raises(ValueError, match=r"a\.txt' is longer than 1,000 bytes"):
        list(read_documents(tmp_path / "a.txt", max_document_bytes=1000))
    (tmp_path / "a.txt.gz").write_bytes(gzip.compress(b"x" * 5000))
    with pytest.raises(ValueError, match=r"a\.txt\.gz' is longer than 1,000 bytes"):
        list(read_documents(tmp_path / "a.txt.gz"))
    (tmp_path / "a.jsonl").write_text(json.dumps({"text": "x" * 5000}))
    with pytest.raises(ValueError, match=r"a\.jsonl', line 1, is longer than 1,000 bytes"):
        list(read_documents(tmp_path / "a.jsonl"))


@pytest.mark.parametrize("dictionary", [True, False])
@pytest.mark.parametrize("group", [1, 8])
def test_long_values_of_tables_are_refused(tmp_path, dictionary, group):
    table = pa.table({"text": ["a", "b", "x" * 5000, "c"]})
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=group, use_dictionary=dictionary)
    with pytest.raises(ValueError, match=r"a\.parquet', a row from \d to .* longer than 1,000"):
        list(read_documents(tmp_path / "a.parquet", max_document_bytes=1000))
    data = datasets.Dataset(table)
    with pytest.raises(ValueError, match=r"row 3, is longer than 1,000 bytes"):
        list(read_documents(data, max_document_bytes=1000))


def test_a_dictionary_is_not_unpacked(tmp_path):
    """A thousand times the same long text is a small file, and stays small."""
    text = "long " * 20_000
    table = pa.table({"text": pa.array([text] * 1000).dictionary_encode()})
    pq.write_table(table, tmp_path / "a.parquet")
    assert (tmp_path / "a.parquet").stat().st_size < 200_000
    before = pa.total_allocated_bytes()
    found = read_documents(tmp_path / "a.parquet")
    assert next(found) == text
    assert pa.total_allocated_bytes() - before < 5_000_000
    assert sum(document == text for document in found) == 999


@pytest.mark.parametrize("depth", [1, 30])
def test_nested_columns_are_refused(tmp_path, depth):
    value, kind = "a", pa.string()
    for _ in range(depth):
        value, kind = [value], pa.list_(kind)
    pq.write_table(pa.table({"text": pa.array([value], kind)}), tmp_path / "a.parquet")
    with pytest.raises(ValueError, match=r"a\.parquet' has a column 'text' of type list<.*text="):
        list(read_documents(tmp_path / "a.parquet"))


def test_deep_json_is_named(tmp_path):
    deep = b'{"text": "a", "x": ' + b"[" * 200_000 + b"]" * 200_000 + b"}\n"
    (tmp_path / "a.jsonl").write_bytes(lines(["a"]) + deep)
    with pytest.raises(ValueError, match=r"a\.jsonl', line 2, is not JSON \(.*recursion"):
        list(read_documents(tmp_path / "a.jsonl"))


@pytest.mark.parametrize(
    "name", ["a.parquet", "a.jsonl", "a.jsonl.gz", "a.jsonl.xz", "a.jsonl.zst", "a.jsonl.bz2"]
)
def test_damaged_files_are_named(tmp_path, name):
    """Whatever is flipped or cut: the texts, or one line that names the file."""
    path = tmp_path / name
    texts = [f"text number {i}" for i in range(300)]
    if name == "a.parquet":
        parquet(path, texts, group=100)
    else:
        pack = {**PACKERS, ".zst": zstandard.ZstdCompressor(write_checksum=True).compress}
        path.write_bytes(pack["" if path.suffix == ".jsonl" else path.suffix](lines(texts)))
    whole = path.read_bytes()
    rng = np.random.default_rng(0)
    for number in range(60):
        data = bytearray(whole)
        at = int(rng.integers(len(data)))
        if number % 3:
            data[at] ^= 1 << int(rng.integers(8))
        else:
            del data[at:]
        path.write_bytes(data)
        assert is_one_line_about(name, refusal(path))


def test_a_saved_dataset_that_is_damaged_is_named(tmp_path):
    datasets.Dataset.from_dict({"text": TEXTS}).save_to_disk(tmp_path / "saved")
    rng = np.random.default_rng(0)
    files = sorted(path for path in (tmp_path / "saved").iterdir() if path.is_file())
    for path in files:
        whole = path.read_bytes()
        for _ in range(10):
            data = bytearray(whole)
            data[int(rng.integers(len(data)))] ^= 1 << int(rng.integers(8))
            replace(path, data)  # the old one may still be mapped
            assert is_one_line_about("saved", refusal(tmp_path / "saved"))
        replace(path, whole)
    assert list(read_documents(tmp_path / "saved")) == FULL


# -- a part of a source --------------------------------------------------------------------


def test_bytes_are_taken_from_all_files_in_proportion(tmp_path):
    for i, n in enumerate((100, 300)):
        texts = [f"{i} {'é' * 10}"] * n
        (tmp_path / f"{i}.jsonl").write_text("".join(json.dumps({"text": t}) + "\n" for t in texts))
    parts = find_readers(tmp_path)
    size = len(f"0 {'é' * 10}".encode())
    documents = Documents(parts, most=40 * size)
    found = list(documents)
    assert [sum(text.startswith(f"{i} ") for text in found) for i in range(2)] == [10, 30]
    assert documents.taken == 40 * size
    assert len(list(Documents(parts, most=10**9))) == 400
    assert len(list(Documents(parts, most=1))) == 1, "the first is taken in any case"
    stream = datasets.Dataset.from_dict({"text": ["abcd"] * 9}).to_iterable_dataset()
    assert len(list(Documents(find_readers(stream), most=13))) == 3


def test_a_part_can_be_continued_anywhere(tmp_path):
    for i in range(3):
        (tmp_path / f"{i}.jsonl").write_bytes(lines([f"{i} {'x' * k}" for k in range(20)]))
    parts = find_readers(tmp_path)
    whole = Documents(parts, most=200)
    texts, places = [], [(0, 0, 0)]
    for text in whole:
        texts.append(text)
        places.append((whole.part, whole.row, whole.taken))
    assert {text[0] for text in texts} == {"0", "1", "2"}
    for read, (part, row, taken) in enumerate(places):
        rest = Documents(parts, part=part, row=row, most=200, taken=taken)
        assert list(rest) == texts[read:]
