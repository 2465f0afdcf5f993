"""CSV: codes keep their zeros, and no file fills the memory."""

from __future__ import annotations

import gzip

import pytest
from table_files import csv

from counterpoise.tabular import DataError, bounded, learn_layout, open_table, read_rows


def types(path, **options):
    return open_table(path, **options).types


def values(path, name, **options):
    (batch,) = open_table(path, **options).batches([name])
    return batch.column(name).to_pylist()


def test_codes_with_leading_zeros_stay_as_written(tmp_path):
    path = csv(tmp_path, "zip,n,y\n00123,1,1\n45678,2,2\nNA,3,3\n")
    assert types(path) == {"zip": "string", "n": "int64", "y": "int64"}
    assert values(path, "zip") == ["00123", "45678", None]
    assert values(path, "zip", numbers=["zip"]) == [123, 45678, None]
    assert values(path, "zip", text=["zip"]) == ["00123", "45678", "NA"], "as a group"


def test_codes_too_long_for_integers_keep_every_digit(tmp_path):
    long = [f"{k:025d}" for k in (1, 10**24 + 1, 10**24 + 2)]
    path = csv(tmp_path, "code,big\n" + "".join(f"{one},{10**20}\n" for one in long))
    assert values(path, "code") == long
    assert types(path)["big"] == "double", "a number without leading zeros"


@pytest.mark.parametrize(
    "cells", ["0,1,2", "-05,3,4", "0.5,00.5,1", "0,10,100", "1e5,007,2", "0,,3", "00:30,01:30"]
)
def test_numbers_and_times_are_no_codes(tmp_path, cells):
    path = csv(tmp_path, "a,b\n" + "".join(f"{cell},1\n" for cell in cells.split(",")))
    assert types(path)["a"] != "string"


def test_a_code_far_down_counts_too(tmp_path):
    path = csv(tmp_path, "a,b\n" + "".join(f"{k},1\n" for k in range(1, 300_000)) + "007,1\n")
    assert types(path)["a"] == "string"


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "cp1252"])
def test_codes_in_other_encodings_and_dialects(tmp_path, encoding):
    path = tmp_path / "a.csv"
    path.write_bytes('sep=;\r\nä;b\r\n"007";1,5\r\n"008";2,5\r\n'.encode(encoding))
    found = open_table(path, encoding=encoding, decimal=",")
    assert found.types == {"ä": "string", "b": "double"}


def test_codes_become_categories_with_a_note(tmp_path):
    path = csv(tmp_path, "zip,x,y\n" + "".join(f"00{k % 3},{k * 7 % 5},{k}\n" for k in range(30)))
    learned = learn_layout(open_table(path), target="y")
    assert learned.layout.features[0].levels == ("000", "001", "002")
    assert any("'zip' has codes such as '000'" in note for note in learned.notes)
    again = open_table(csv(tmp_path, "zip,x\n001,1\n"), words=learned.layout.words)
    assert read_rows(again, learned.layout, labelled=False).X.tolist() == [[1.0, 0.0, 1.0]]
    many = csv(tmp_path, "zip,y\n" + "".join(f"0{k},{k}\n" for k in range(200)))
    with pytest.raises(DataError, match=r"100 codes such as '00'.*drop=.*numbers=\['zip'\]"):
        learn_layout(open_table(many), target="y")


def test_a_row_without_end_is_refused(tmp_path):
    path = tmp_path / "a.csv"
    path.write_bytes(b'a,b\n1,"' + b"x" * (20 << 20) + b"\n")
    with pytest.raises(DataError, match=r"a.csv' has a row of more than 8.4 MB; .*quote"):
        open_table(path)


@pytest.mark.parametrize("packed", [False, True])
def test_a_table_larger_than_the_memory_is_refused(tmp_path, monkeypatch, packed):
    monkeypatch.setattr(bounded, "memory", lambda: 30e6)
    text = b"a,b\n" + b"1,2\n" * 5_000_000
    path = tmp_path / ("a.csv.gz" if packed else "a.csv")
    path.write_bytes(gzip.compress(text, 1) if packed else text)
    with pytest.raises(DataError, match=r"does not fit in the memory.*save it as Parquet"):
        open_table(path)


def test_bytes_of_a_file_do_not_reach_the_terminal(tmp_path):
    path = csv(tmp_path, "a,b\n1,2\n\x1b[2J\x9b31m\x07\n")
    with pytest.raises(DataError, match=r"Expected 2 columns, got 1: .x1b\[2J") as refused:
        open_table(path)
    assert str(refused.value).isprintable()
