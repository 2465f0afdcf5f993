"""Tables from files: what is read, what is kept as written, and what is refused."""

from __future__ import annotations

import gzip
import zipfile

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from table_files import COLUMNS, KINDS, csv, write

from counterpoise.tabular import DataError, as_table, open_table


def read(table, **options):
    """All columns of a table as lists."""
    return pa.Table.from_batches(list(table.batches(**options))).to_pydict()


# -- what is read ----------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_every_format_gives_the_same_columns(kind, tmp_path):
    path = write(kind, tmp_path)
    table = open_table(path)
    assert table.names == list(COLUMNS)
    assert (table.n_rows, table.path) == (5, path)
    expected = {"tsv": "csv", "csv.gz": "csv", "folder": "parquet", "stream.ipc": "arrow"}
    assert table.format == expected.get(kind, "arrow" if kind == "feather" else kind)
    files = sorted(path.glob("*")) if path.is_dir() else [path]
    assert table.nbytes == sum(file.stat().st_size for file in files)
    assert table.types["town"] == "string"
    assert table.types["size"] == "double"
    for _ in range(2):  # again and again
        assert read(table) == COLUMNS


@pytest.mark.parametrize("kind", KINDS)
def test_batches_are_of_the_columns_and_rows_asked_for(kind, tmp_path):
    table = open_table(write(kind, tmp_path))
    batches = list(table.batches(["price", "town"], rows=2))
    assert all(batch.schema.names == ["price", "town"] for batch in batches)
    assert all(0 < batch.num_rows <= 2 for batch in batches)
    assert read(table, columns=["price"], rows=2) == {"price": COLUMNS["price"]}
    with pytest.raises(DataError, match=r"no column 'prise'; did you mean 'price'\?"):
        table.batches(["prise"])


def test_parquet_is_never_held_whole(tmp_path):
    data = pa.table({name: np.random.default_rng(0).normal(size=200_000) for name in "xy"})
    path = tmp_path / "a.parquet"
    pq.write_table(data, path, row_group_size=10_000, use_dictionary=False)
    del data
    before = pa.total_allocated_bytes()
    batches = open_table(path).batches(rows=2000)
    most = max(pa.total_allocated_bytes() - before for _ in batches)
    assert most < path.stat().st_size / 4


def test_the_digest_tells_files_apart(tmp_path):
    first = open_table(csv(tmp_path, "a,b\n1,2\n", "one.csv"))
    again = open_table(csv(tmp_path, "a,b\n1,2\n", "two.csv"))
    other = open_table(csv(tmp_path, "a,b\n1,3\n", "three.csv"))
    assert first.digest == again.digest != other.digest


def test_a_format_can_be_said(tmp_path):
    path = write("parquet", tmp_path).rename(tmp_path / "data.bin")
    with pytest.raises(
        DataError, match=r"data.bin.*unknown suffix.*\.csv.*\.parquet.*give its format"
    ):
        open_table(path)
    assert read(open_table(path, format="parquet")) == COLUMNS
    with pytest.raises(ValueError, match=r"format must be one of 'csv'.*got 'xls'"):
        open_table(path, format="xls")


def test_suffixes_may_be_capitals(tmp_path):
    assert open_table(csv(tmp_path, "a,b\n1,2\n", "DATA.CSV")).names == ["a", "b"]


def test_files_of_a_folder_may_differ_as_integers_and_floats(tmp_path):
    pq.write_table(pa.table({"a": [1, 2], "b": ["x", "y"]}), tmp_path / "0.parquet")
    pq.write_table(pa.table({"b": ["z"], "a": [0.5]}), tmp_path / "1.parquet")
    assert read(open_table(tmp_path)) == {"a": [1.0, 2.0, 0.5], "b": ["x", "y", "z"]}


def test_files_of_a_folder_must_have_the_same_columns(tmp_path):
    pq.write_table(pa.table({"a": [1]}), tmp_path / "0.parquet")
    pq.write_table(pa.table({"b": [1]}), tmp_path / "1.parquet")
    with pytest.raises(DataError, match=r"1.parquet' and .*0.parquet' differ .*same columns"):
        open_table(tmp_path)
    pq.write_table(pa.table({"a": ["x"]}), tmp_path / "1.parquet")
    with pytest.raises(DataError, match=r"different types.*Field a.*write them with"):
        open_table(tmp_path)


def parted(folder, parts, **columns):
    """A file of each part, numbered, with the columns given or x alone."""
    for i, part in enumerate(parts):
        (folder / part).mkdir(parents=True)
        table = pa.table(columns or {"x": [i + 0.25, i + 0.5]})
        pq.write_table(table, folder / part / "0.parquet")
    return folder


def test_folders_may_tell_columns(tmp_path):
    table = open_table(parted(tmp_path, ["g=a/k=1", "g=b%20c/k=2", "g=b%20c/k=-30"]))
    assert table.names == ["x", "g", "k"]
    assert table.types == {"x": "double", "g": "string", "k": "int64"}
    assert (table.n_rows, table.format, table.path) == (6, "parquet", tmp_path)
    expected = {
        "x": [0.25, 0.5, 2.25, 2.5, 1.25, 1.5],
        "g": ["a", "a", "b c", "b c", "b c", "b c"],
        "k": [1, 1, -30, -30, 2, 2],
    }
    for rows in (1, 100):
        assert read(table, rows=rows) == expected
        assert read(table, columns=["k"], rows=rows) == {"k": expected["k"]}
        assert read(table, columns=["g", "x"], rows=rows) == {n: expected[n] for n in ("g", "x")}


def test_what_folders_tell_is_text_unless_it_is_integers(tmp_path):
    zeros = open_table(parted(tmp_path / "a", ["k=01", "k=1", "k=2"]))
    assert read(zeros, columns=["k"]) == {"k": ["01", "01", "1", "1", "2", "2"]}
    holes = open_table(parted(tmp_path / "b", ["k=5", "k=__HIVE_DEFAULT_PARTITION__"]))
    assert sorted(read(holes)["k"], key=str) == [5, 5, None, None]
    own = open_table(parted(tmp_path / "c", ["k=a"], k=["written"], x=[1]))
    assert read(own) == {"k": ["written"], "x": [1]}, "the files know better"


def test_folders_count_for_the_digest(tmp_path):
    one, two = (open_table(parted(tmp_path / name, [f"k={name}"])) for name in "ab")
    assert one.digest != two.digest
    assert one.nbytes == two.nbytes > 0


def test_folders_that_tell_columns_are_not_held_whole(tmp_path):
    data = pa.table({name: np.random.default_rng(0).normal(size=100_000) for name in "xy"})
    for part in ("g=a", "g=b"):
        (tmp_path / part).mkdir()
        pq.write_table(data, tmp_path / part / "0.parquet", row_group_size=5000,
                       use_dictionary=False)  # fmt: skip
    del data
    before = pa.total_allocated_bytes()
    table = open_table(tmp_path)
    most = max(pa.total_allocated_bytes() - before for _ in table.batches(rows=2000))
    assert most < table.nbytes / 8


def test_sub_folders_that_are_not_read_are_told(tmp_path):
    with pytest.raises(DataError, match=r"sub-folders are read only .*column=value; give .*deep'"):
        open_table(parted(tmp_path / "a", ["deep"]))
    with pytest.raises(DataError, match=r"differ in the column 'h'.*must have the same ones"):
        open_table(parted(tmp_path / "b", ["g=1/h=2", "g=2"]))
    mixed = parted(tmp_path / "c", ["g=1"])
    pq.write_table(pa.table({"x": [1.0]}), mixed / "0.parquet")
    with pytest.raises(DataError, match=r"itself and in sub-folders such as 'g=1'"):
        open_table(mixed)
    hidden = parted(tmp_path / "d", ["g=1", "_old=1", ".g=2"])
    assert open_table(hidden).n_rows == 2


def test_a_matrix_in_an_npz_file_is_a_column_for_every_feature(tmp_path):
    X = np.arange(6.0).reshape(3, 2)
    np.savez(tmp_path / "plain.npz", X=X, y=np.arange(3))
    table = open_table(tmp_path / "plain.npz")
    assert read(table) == {"X0": [0, 2, 4], "X1": [1, 3, 5], "y": [0, 1, 2]}
    names = np.array(["one", "two"])
    np.savez(tmp_path / "named.npz", X=X, y=np.arange(3), feature_names=names)
    assert open_table(tmp_path / "named.npz").names == ["one", "two", "y"]
    np.savez(tmp_path / "wrong.npz", X=X, y=np.arange(3), feature_names=names[:1])
    with pytest.raises(DataError, match=r"'feature_names' must hold the names of the 2 columns"):
        open_table(tmp_path / "wrong.npz")


def test_numpy_types_that_arrow_does_not_know_are_turned_into_those_it_does(tmp_path):
    np.savez(
        tmp_path / "a.npz",
        big=np.array([1.0, 2.0], dtype=">f8"),
        long=np.array([1.0, 2.0], dtype=np.longdouble),
        letters=np.array([b"a", "é".encode()]),
    )
    expected = {"big": [1, 2], "long": [1, 2], "letters": ["a", "é"]}
    assert read(open_table(tmp_path / "a.npz")) == expected


def test_frames_are_tables(tmp_path):
    import pandas as pd
    import polars as pl

    table = pa.table(COLUMNS)
    frame = pd.DataFrame(COLUMNS, index=list("vwxyz"))
    for data in (
        table,
        table.combine_chunks().to_batches()[0],
        frame,
        pl.DataFrame(COLUMNS),
        COLUMNS,
    ):
        assert read(as_table(data)) == COLUMNS
    assert as_table(as_table(table)).digest == ""
    with pytest.raises(TypeError, match="got list"):
        as_table([1, 2])
    with pytest.raises(DataError, match="values of one type"):
        as_table(pd.DataFrame({"a": [1, "x", None, object()]}))


# -- CSV -------------------------------------------------------------------------------------


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
def test_the_delimiter_is_found(delimiter, tmp_path):
    lines = [["a", '"b,;|"', "c"], ["1", '"x,y;z|w\n"', "2.5"]]
    path = csv(tmp_path, "\n".join(map(delimiter.join, lines)) + "\n")
    assert read(open_table(path)) == {"a": [1], "b,;|": ["x,y;z|w\n"], "c": [2.5]}
    assert open_table(path, delimiter="~").names != ["a", "b,;|", "c"]


def test_marks_line_ends_and_other_letters(tmp_path):
    path = csv(tmp_path, "\ufeffgröße,名\r\n1,東京\r\n2,Zürich\r\n")
    assert read(open_table(path)) == {"größe": [1, 2], "名": ["東京", "Zürich"]}


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "cp1252", "Latin-1", "utf-8-sig"])
@pytest.mark.parametrize("first", ["", "sep=;\r\n"])
def test_other_encodings_can_be_read(encoding, first, tmp_path):
    path = csv(tmp_path, f"{first}größe;b\r\n1;é\r\n2;ü\r\n", encoding=encoding)
    table = open_table(path, encoding=encoding, text=["b"])
    assert read(table) == {"größe": [1, 2], "b": ["é", "ü"]}
    zipped = csv(tmp_path, gzip.compress(path.read_bytes()), "data.csv.gz")
    assert read(open_table(zipped, encoding=encoding)) == read(table)


def test_a_wrong_encoding_is_told(tmp_path):
    path = csv(tmp_path, "a,b\n1,é\n", encoding="cp1252")
    with pytest.raises(DataError, match=r"data.csv' .*not UTF-8; .*encoding='cp1252'"):
        open_table(path, text=["b"])
    with pytest.raises(DataError, match=r"data.csv' .*not ascii; .*encoding="):
        open_table(path, encoding="ascii")
    for unknown in ("utf-99", "rot13", ""):
        with pytest.raises(ValueError, match=rf"encoding must be .*cp1252; got '{unknown}'"):
            open_table(path, encoding=unknown)


@pytest.mark.parametrize("line", ["sep=;\n", "SEP=;\r\n", '"sep=;"\n', "\ufeffsep=;\n"])
def test_the_line_that_tells_the_delimiter_is_passed_over(line, tmp_path):
    path = csv(tmp_path, f"{line}a,b;c,d\n1;2\n")
    assert read(open_table(path)) == {"a,b": [1], "c,d": [2]}
    both = csv(tmp_path, f"{line}a;b\n1;2\n")
    assert read(open_table(both, delimiter=",")) == {"a;b": ["1;2"]}, "as it was said"


def test_columns_may_be_called_like_that_line(tmp_path):
    path = csv(tmp_path, "sep=x,b\n1,2\n")
    assert read(open_table(path)) == {"sep=x": [1], "b": [2]}


def test_labels_stay_as_they_are_written(tmp_path):
    path = csv(tmp_path, "g,h,x\nNA,01,1\nnull,02,2\n,10,3\nnan,11,NA\n")
    table = open_table(path, text=["g", "h", "not there"])
    expected = {
        "g": ["NA", "null", None, "nan"],
        "h": ["01", "02", "10", "11"],
        "x": [1, 2, 3, None],
    }
    assert read(table) == expected
    plain = read(open_table(path))
    assert plain["g"] == [None] * 4
    assert plain["h"] == ["01", "02", "10", "11"]


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        (["1", "-2", "10", "0"], [1, -2, 10, 0]),
        (["1", "", "3"], [1, None, 3]),
        (["1", "01"], ["1", "01"]),
        (["-0", "1"], ["-0", "1"]),
        (["1.0", "2"], ["1.0", "2"]),
        (["9" * 18, "1"], [int("9" * 18), 1]),
        (["9" * 30, "1"], ["9" * 30, "1"]),
        (["true", "false"], ["true", "false"]),
        (["2020-01-01", "2021-01-01"], ["2020-01-01", "2021-01-01"]),
        (["NA", "NA"], ["NA", "NA"]),
        ([" a", "a"], [" a", "a"]),
    ],
)
def test_labels_are_integers_only_if_they_are_written_so(cells, expected, tmp_path):
    path = csv(tmp_path, "g,x\n" + "".join(f"{cell},0\n" for cell in cells))
    assert read(open_table(path, text=["g"]))["g"] == expected


def test_words_are_text_with_missing_values(tmp_path):
    path = csv(tmp_path, "zip,flag,x\n01234,True,1\nNA,False,2\n,True,3\n")
    table = open_table(path, words=["zip", "flag"])
    assert read(table) == {
        "zip": ["01234", None, None], "flag": ["True", "False", "True"], "x": [1, 2, 3],
    }  # fmt: skip


def test_types_are_those_of_the_whole_file(tmp_path):
    lines = [f"{i},{i}" for i in range(200_000)] + ["1,x"]
    table = open_table(csv(tmp_path, "a,b\n" + "\n".join(lines) + "\n"))
    assert table.types == {"a": "int64", "b": "string"}
    assert table.n_rows == 200_001


# -- what is refused -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("a.csv", b"", r"a.csv' is empty; write it again"),
        ("a.csv", b"\n\n", r"a.csv' cannot be read as a CSV file"),
        ("a.csv", b"a,b\n", r"a.csv' has no rows"),
        ("a.csv", b"a,b\n1,2\n3\n", r"a.csv' cannot.*Expected 2 columns, got 1.*repair it"),
        ("a.csv", b"a,b,a\n1,2,3\n", r"a.csv' has several columns called 'a'; give each its own"),
        ("a.csv", "a,b\n1,é\n".encode("latin-1"), r"a.csv' .*not UTF-8 .*'b'; .*encoding='cp1252'"),
        ("a.csv", "a,é\n1,2\n".encode("latin-1"), r"a.csv' .*not UTF-8; .*encoding='cp1252'"),
        ("a.csv", "a,b\n1,2\n".encode("utf-16"), r"a.csv' .*UTF-16; .*encoding='utf-16'"),
        ("a.csv.gz", b"a,b\n1,2\n", r"a.csv.gz' cannot be read"),
        ("a.csv.gz", gzip.compress(b"a,b\n1,2\n" * 99, mtime=0)[:-20], r"a.csv.gz' cannot be read"),
        ("a.parquet", b"", r"a.parquet' is empty"),
        ("a.parquet", b"PAR1 junk", r"a.parquet' is not a Parquet file.*give another"),
        ("a.arrow", b"", r"a.arrow' is empty"),
        ("a.arrow", b"junk junk junk", r"a.arrow' cannot be read as an Arrow file"),
        ("a.npz", b"", r"a.npz' is empty"),
        ("a.npz", b"junk", r"a.npz' cannot be read as an .npz"),
        ("a.npz", b"PK\x03\x04junk", r"a.npz' is truncated or damaged"),
        ("a.xlsx", b"PK", r"a.xlsx' is an Excel workbook and cannot.*as CSV or Parquet"),
        ("a.csv", b"PK\x03\x04\x14", r"a.csv' is a zip archive.*save the table"),
        ("a.csv", b"\x1f\x8b\x08", r"a.csv' is compressed with gzip.*add .gz"),
        ("a.csv", b"PAR1\x15\x04", r"a.csv' is a Parquet file.*format='parquet'"),
        ("a.sav", b"$FL2", r"a.sav' is an SPSS file"),
        ("noname", b"a", r"noname' has an unknown suffix"),
        ("a.gz", b"a", r"a.gz' has an unknown suffix"),
    ],
)  # fmt: skip
def test_files_that_cannot_be_read_are_named(name, content, told, tmp_path):
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(DataError, match=told):
        open_table(path)


def test_what_is_not_there_is_said(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no file or folder '.*none.csv'"):
        open_table(tmp_path / "none.csv")
    with pytest.raises(DataError, match=r"no \*.parquet files in .*; give a folder that has some"):
        open_table(tmp_path)
    with pytest.raises(DataError, match="is a folder, and only Parquet"):
        open_table(tmp_path, format="csv")


@pytest.mark.parametrize("kind", ["parquet", "arrow", "npz"])
def test_tables_without_rows_are_refused(kind, tmp_path):
    path = write(kind, tmp_path, {"a": np.zeros(0), "b": np.zeros(0)})
    with pytest.raises(DataError, match=f"data.{kind}' has no rows"):
        open_table(path)


def test_columns_called_alike_are_refused(tmp_path):
    table = pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["a", "a"])
    pq.write_table(table, tmp_path / "a.parquet")
    with pytest.raises(DataError, match="several columns called 'a'"):
        open_table(tmp_path / "a.parquet")
    with pytest.raises(DataError, match="several columns called 'a'"):
        as_table(table)


@pytest.mark.parametrize("kind", ["parquet", "arrow", "feather", "npz"])
def test_files_that_are_cut_off_are_refused(kind, tmp_path):
    path = write(kind, tmp_path)
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(DataError, match=f"data.{kind}'"):
        open_table(path)


def test_damage_within_a_parquet_file_is_told_when_it_is_read(tmp_path):
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"a": np.random.default_rng(0).normal(size=10_000)}), path)
    data = bytearray(path.read_bytes())
    data[4:4000] = bytes(3996)
    path.write_bytes(data)
    table = open_table(path)
    with pytest.raises(DataError, match=r"a.parquet' is truncated or damaged.*write it again"):
        list(table.batches())


class Trap:
    """Pickled, it would make a file when it is loaded."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return open, (str(self.path), "w")


def test_objects_in_an_npz_file_are_refused_and_not_run(tmp_path):
    path, mark = tmp_path / "a.npz", tmp_path / "mark"
    np.savez(path, x=np.ones(1), o=np.array([Trap(mark)], dtype=object))
    with pytest.raises(DataError, match=r"a.npz': the array 'o' holds Python objects.*astype\(str"):
        open_table(path)
    assert not mark.exists()


@pytest.mark.parametrize(
    ("arrays", "told"),
    [
        ({"a": np.ones(2), "b": np.ones(3)}, "different lengths: 'a' 2, 'b' 3;"),
        ({"a": np.ones(2), "b": np.ones((2, 2))}, r"'b' has shape \(2, 2\).*only 'X' may have two"),
        ({"a": np.ones(2), "b": np.float64(1)}, r"'b' has shape \(\)"),
        ({"a": np.ones(2, dtype=complex)}, "'a' is of dtype complex128; save it as numbers"),
    ],
)
def test_arrays_that_are_no_columns_are_named(arrays, told, tmp_path):
    np.savez(tmp_path / "a.npz", **arrays)
    with pytest.raises(DataError, match=told):
        open_table(tmp_path / "a.npz")


def test_one_array_alone_is_no_table(tmp_path):
    np.save(tmp_path / "a.npy", np.ones(3))
    (tmp_path / "a.npy").rename(tmp_path / "a.npz")
    with pytest.raises(DataError, match=r"holds one array; save columns with numpy.savez"):
        open_table(tmp_path / "a.npz")


def test_a_zip_file_of_something_else_is_refused(tmp_path):
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as file:
        file.writestr("text.txt", "hello")
    with pytest.raises(DataError, match=r"a.npz'"):
        open_table(tmp_path / "a.npz")
