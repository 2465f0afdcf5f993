"""Domains made of a field of the documents: names, rare and missing values, and stops."""

from __future__ import annotations

import gzip
import json

import datasets
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from lm_texts import contents, documents

from counterpoise.common.stopping import Stopped
from counterpoise.lm import GroupBy, prepare, read_documents
from counterpoise.lm.corpus import grouping
from counterpoise.lm.corpus.grouping import label_of, named_groups, split_documents
from counterpoise.lm.corpus.readers import value_at

LANGUAGES = ["en", "de", None, "en", "fr", "en", "de"]


def rows(n=70):
    texts = documents(n)
    return [
        {"text": text, "meta": {"lang": LANGUAGES[i % 7], "n": i}, "year": 2000 + i % 3}
        for i, text in enumerate(texts)
    ]


def lines(path, some):
    path.write_text("".join(json.dumps(row) + "\n" for row in some))
    return path


def texts_of(corpus, domain):
    tokens = corpus[domain]
    return [bytes(tokens.document(i)[:-1].tolist()).decode() for i in range(tokens.n_documents)]


def lasting(folder):
    """What a folder holds, but for notes on what was verified."""
    return {k: v for k, v in contents(folder).items() if not k.endswith(".verified.json")}


def expected(some, value, field="meta.lang"):
    return [row["text"] for row in some if value_at(row, field) == value]


@pytest.fixture(params=["jsonl", "jsonl.gz", "parquet", "dataset", "streamed", "saved"])
def source(request, tmp_path):
    """The same documents from every kind of source with fields."""
    some = rows()
    if request.param.startswith("jsonl"):
        data = "".join(json.dumps(row) + "\n" for row in some).encode()
        path = tmp_path / f"a.{request.param}"
        path.write_bytes(gzip.compress(data) if request.param.endswith("gz") else data)
        return path
    if request.param == "parquet":
        pq.write_table(pa.Table.from_pylist(some), tmp_path / "a.parquet", row_group_size=9)
        return tmp_path / "a.parquet"
    data = datasets.Dataset.from_list(some)
    if request.param == "streamed":
        return data.to_iterable_dataset()
    if request.param == "saved":
        data.save_to_disk(tmp_path / "saved")
        return tmp_path / "saved"
    return data


def test_every_source_is_split_by_a_field_inside_another(source, tmp_path):
    some = rows()
    by = GroupBy("meta.lang", missing="unknown", least=15)
    made = prepare({"web": source}, tmp_path / "out", tokenizer="bytes", by=by, progress=False)
    assert made.domains == ["web-de", "web-en", "web-other"]
    assert texts_of(made, "web-en") == expected(some, "en")
    assert texts_of(made, "web-de") == expected(some, "de")
    # ten documents in French, and ten without a language, are fewer than 15
    rare = [r["text"] for r in some if r["meta"]["lang"] in ("fr", None)]
    assert texts_of(made, "web-other") == rare
    assert list(read_documents(source)) == [r["text"] for r in some]


def test_whole_numbers_and_several_sources(tmp_path):
    some = rows()
    a, b = lines(tmp_path / "a.jsonl", some), lines(tmp_path / "b.jsonl", some[::2])
    made = prepare({"a": a, "b": b}, tmp_path / "out", tokenizer="bytes", by="year", progress=False)
    years = ["2000", "2001", "2002"]
    assert made.domains == [f"{name}-{year}" for name in "ab" for year in years]
    assert texts_of(made, "b-2001") == expected(some[::2], 2001, "year")


def test_a_second_call_leaves_everything_alone(tmp_path):
    """Also after the texts of the groups were deleted: they come again with the same times."""
    path = lines(tmp_path / "a.jsonl", rows())
    out, options = tmp_path / "out", {"tokenizer": "bytes", "by": "year", "progress": False}
    prepare({"a": path}, out, **options)
    before, stamp = lasting(out), (out / "a-2000/train.bin").stat().st_mtime_ns
    prepare({"a": path}, out, **options)
    assert lasting(out) == before
    for file in (out / ".documents").rglob("*.jsonl*"):
        file.unlink()
    (out / ".documents/a/groups.json").unlink()
    prepare({"a": path}, out, **options)
    assert lasting(out) == before
    assert (out / "a-2000/train.bin").stat().st_mtime_ns == stamp


def test_another_way_of_grouping_needs_to_be_asked_for(tmp_path):
    path = lines(tmp_path / "a.jsonl", rows())
    options = {"tokenizer": "bytes", "progress": False}
    prepare({"a": path}, tmp_path / "out", by="year", **options)
    by = GroupBy("meta.lang", missing="none")
    with pytest.raises(ValueError, match=r"grouped with another by .*pass overwrite=True"):
        prepare({"a": path}, tmp_path / "out", by=by, **options)
    made = prepare({"a": path}, tmp_path / "out", by=by, overwrite=True, **options)
    assert {"a-de", "a-en", "a-fr", "a-none"} <= set(made.domains)
    lines(path, rows(71))
    with pytest.raises(ValueError, match="grouped with another source; pass overwrite=True"):
        prepare({"a": path}, tmp_path / "out", by=by, **options)


@pytest.mark.parametrize("after", [0, 1, 25, 69, 75, 139])
def test_a_stopped_split_continues_to_the_same_bytes(tmp_path, monkeypatch, after):
    """A signal, or a crash, at any document of either pass."""
    path = lines(tmp_path / "a.jsonl", rows())
    by = GroupBy("meta.lang", missing="none", least=15)
    readers = grouping.readers_of("a", path, "text")
    whole = split_documents("a", readers, tmp_path / "one", by)
    monkeypatch.setattr(grouping, "BUFFER_BYTES", 100)
    monkeypatch.setattr(grouping, "COMMIT_BYTES", 700)

    class Crash(Exception):
        pass

    real, left = grouping.label_of, [after]

    def label(*args):
        left[0] -= 1
        if left[0] < 0:
            raise Crash
        return real(*args)

    with monkeypatch.context() as patch:
        patch.setattr(grouping, "label_of", label)
        with pytest.raises(Crash):
            split_documents("a", readers, tmp_path / "two", by)
    with pytest.raises(Stopped):  # and then a signal at once
        split_documents("a", readers, tmp_path / "two", by, stopped=[15])
    again = split_documents("a", readers, tmp_path / "two", by)
    assert [p.read_bytes() for p in again.values()] == [p.read_bytes() for p in whole.values()]
    assert list(again) == list(whole)


def test_what_was_written_safely_is_not_read_again(tmp_path, monkeypatch):
    path = lines(tmp_path / "a.jsonl", rows())
    readers = grouping.readers_of("a", path, "text")
    monkeypatch.setattr(grouping, "BUFFER_BYTES", 100)
    monkeypatch.setattr(grouping, "COMMIT_BYTES", 500)
    seen = []
    real = grouping.label_of

    def label(value, by, where):
        seen.append(where)
        if len(seen) == 70 + 50:
            raise KeyboardInterrupt
        return real(value, by, where)

    monkeypatch.setattr(grouping, "label_of", label)
    with pytest.raises(KeyboardInterrupt):
        split_documents("a", readers, tmp_path / "two", GroupBy("year"))
    state = json.loads((tmp_path / "two/groups.json").read_text())
    assert 30 < state["row"] < 50
    split_documents("a", readers, tmp_path / "two", GroupBy("year"))
    assert len(seen) == 70 + 50 + 70 - state["row"]


def test_damage_to_the_texts_of_groups_is_noticed(tmp_path, monkeypatch):
    """In finished files it is an error; what was written before a stop is written again."""
    path = lines(tmp_path / "a.jsonl", rows())
    readers, by = grouping.readers_of("a", path, "text"), GroupBy("year")

    def flip(file):
        data = bytearray(file.read_bytes())
        data[20] ^= 1
        file.write_bytes(data)

    whole = split_documents("a", readers, tmp_path / "one", by)
    expected = {name: file.read_bytes() for name, file in whole.items()}
    flip(whole["a-2001"])
    with pytest.raises(ValueError, match=r"2001.jsonl' is not as it was written; .*overwrite"):
        split_documents("a", readers, tmp_path / "one", by)
    again = split_documents("a", readers, tmp_path / "one", by, overwrite=True)
    assert {name: file.read_bytes() for name, file in again.items()} == expected

    monkeypatch.setattr(grouping, "BUFFER_BYTES", 100)
    monkeypatch.setattr(grouping, "COMMIT_BYTES", 500)
    real, left = grouping.label_of, [70 + 50]

    def label(*args):
        left[0] -= 1
        if left[0] == 0:
            raise KeyboardInterrupt
        return real(*args)

    monkeypatch.setattr(grouping, "label_of", label)
    with pytest.raises(KeyboardInterrupt):
        split_documents("a", readers, tmp_path / "two", by)
    flip(tmp_path / "two/2000.jsonl")
    again = split_documents("a", readers, tmp_path / "two", by)
    assert {name: file.read_bytes() for name, file in again.items()} == expected


def test_names_can_be_files_on_any_disk():
    long = "x" * 300
    counts = dict.fromkeys(["a/b", "a:b", "En", "en", "..", "fr", long, "ok", "Other"], 5)
    names = named_groups(counts | {"rare": 1}, least=2)
    assert names["ok"] == "ok"
    assert names["rare"] == names["Other"] == "other"
    assert names["a/b"].startswith("a_b-")
    assert names["en"].startswith("en-")
    assert names["En"].startswith("En-")
    assert names[".."] == "_"
    assert len(names[long]) < 100
    folded = [name.casefold() for name in names.values()]
    assert len(set(folded)) == len(counts)
    assert list(names) == sorted(names)
    assert named_groups(counts, 1) == named_groups(dict(reversed(counts.items())), 1)


def test_a_value_that_looks_like_a_changed_name_keeps_its_own_group():
    changed = named_groups({"a/b": 5, "a:b": 5}, 1)["a/b"]
    names = named_groups({"a/b": 5, "a:b": 5, changed: 5}, 1)
    assert len(set(names.values())) == 3
    assert names["a/b"] == changed


def test_several_tags_make_a_pattern():
    by = GroupBy("tags", missing="none")
    assert label_of(["math", "en", "math"], by, "") == "en+math"
    assert label_of([], by, "") == label_of([None, " "], by, "") == "none"
    assert label_of("c++", by, "") == "c++"
    for tags in (["c++", "en"], ["c++"]):  # alone, it would read as the tags 'c' and ''
        with pytest.raises(ValueError, match="stands between tags, so none may contain it"):
            label_of(tags, by, "row 1")


@pytest.mark.parametrize(
    ("row", "by", "message"),
    [
        ({"text": "x"}, "lang", "row 1, has no value in 'lang'; name a group"),
        ({"text": "x", "lang": 0.5}, "lang", "row 1, has 0.5 in 'lang'; a group must be"),
        ({"text": "x", "lang": {"a": 1}}, "lang", r"has {'a': 1} in 'lang'"),
        ({"text": " ", "lang": "en"}, "lang", "has no document with text"),
        ({"text": "x", "lang": "en"}, 3, "by must be the name of a field, or a GroupBy; got 3"),
        ({"text": "x", "lang": "en"}, " ", "by: field must be a name; got ' '"),
    ],
)
def test_what_cannot_be_grouped_is_refused(tmp_path, row, by, message):
    path = lines(tmp_path / "a.jsonl", [row])
    with pytest.raises((ValueError, TypeError), match=message):
        prepare({"a": path}, tmp_path / "out", tokenizer="bytes", by=by, progress=False)


def test_columns_and_texts_that_have_no_field_are_refused(tmp_path, monkeypatch):
    (tmp_path / "a.txt").write_text("one")
    options = {"tokenizer": "bytes", "progress": False}
    with pytest.raises(ValueError, match="'lang'; give JSON lines, Parquet or a dataset"):
        prepare({"a": tmp_path / "a.txt"}, tmp_path / "out", by="lang", **options)
    pq.write_table(pa.table({"text": ["x"]}), tmp_path / "b.parquet")
    with pytest.raises(ValueError, match=r"has no field 'meta.lang', only \['text'\]"):
        prepare({"b": tmp_path / "b.parquet"}, tmp_path / "two", by="meta.lang", **options)
    monkeypatch.setattr(grouping, "MOST_VALUES", 5)
    many = lines(tmp_path / "c.jsonl", [{"text": "x", "id": i} for i in range(9)])
    with pytest.raises(ValueError, match="more than 5 values in 'id'; group by a coarser field"):
        prepare({"c": many}, tmp_path / "three", by="id", **options)
    monkeypatch.setattr(grouping, "MOST_DOMAINS", 3)
    few = lines(tmp_path / "d.jsonl", [{"text": "x", "id": i} for i in range(4)])
    with pytest.raises(ValueError, match="4 groups have 1 documents or more"):
        prepare({"d": few}, tmp_path / "four", by="id", **options)


def test_domains_of_two_sources_must_not_meet(tmp_path):
    one = lines(tmp_path / "a.jsonl", [{"text": "x", "k": "b-c"}])
    two = lines(tmp_path / "b.jsonl", [{"text": "y", "k": "c"}])
    with pytest.raises(ValueError, match="two sources have the group 'a-b-c'"):
        prepare({"a": one, "a-b": two}, tmp_path / "out", tokenizer="bytes", by="k", progress=False)
