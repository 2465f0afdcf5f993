"""Sources: what they give, where they cut, and what they refuse, on real files."""

from __future__ import annotations

import gc
import os

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from scipy import sparse

from counterpoise import Chunks, GroupDRONeuron, Npy, Parquet, Source
from counterpoise.rows.sources import CHUNK_BYTES


def rows(n=50, d=3, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    return X, X @ np.arange(1.0, d + 1), rng.integers(0, 3, n), rng.uniform(0.5, 2.0, n)


def joined(source):
    """All columns of a source, one after the other; None where it gives none."""
    chunks = list(source)
    return [None if c[0] is None else np.concatenate(c) for c in zip(*chunks, strict=True)]


def sizes(source):
    return [len(chunk[0]) for chunk in source]


# -- any chunks ----------------------------------------------------------------------------


def test_a_source_must_say_how_it_is_iterated():
    class Mine(Source):
        pass

    with pytest.raises(NotImplementedError, match="Mine"):
        iter(Mine())
    assert Mine().n_rows is None
    assert Mine().feature_names is None


def test_lists_and_functions_give_the_same_chunks_every_time():
    X, y, g, _ = rows()
    chunks = [(X[:20], y[:20], g[:20]), (X[20:], y[20:], g[20:])]

    def make():
        yield from chunks

    for source in (Chunks(chunks), Chunks(tuple(chunks)), Chunks(make), Chunks(lambda: chunks)):
        for _ in range(2):
            for got, given in zip(source, chunks, strict=True):
                assert all(a is b for a, b in zip(got, given, strict=True))
    assert Chunks(chunks).n_rows is None


@pytest.mark.parametrize("make", [lambda c: (x for x in c), iter, lambda c: map(tuple, c)])
def test_what_can_be_read_only_once_is_refused(make):
    X, y, _, _ = rows()
    once = make([(X, y)])
    with pytest.raises(TypeError, match=r"read only once.*function that makes it") as caught:
        Chunks(once)
    assert type(once).__name__ in str(caught.value)
    assert list(once), "the refused iterator is left as it was"


def test_what_is_no_iterable_is_refused():
    with pytest.raises(TypeError):
        Chunks(3)


def test_a_function_that_gives_the_same_iterator_is_found_out():
    X, y, _, _ = rows()
    once = iter([(X, y)])
    with pytest.raises(ValueError, match=r"50 rows at first and 0 on a later pass.*same chunks"):
        GroupDRONeuron().fit(Chunks(lambda: once))


@pytest.mark.parametrize(
    ("chunk", "found"), [(np.ones((3, 2)), "ndarray"), ((np.ones((3, 2)),), "tuple"),
                         ((1, 2, 3, 4, 5), "tuple"), ("text", "str"), (None, "NoneType")],
)  # fmt: skip
def test_a_chunk_that_is_no_tuple_of_rows_is_named(chunk, found):
    X, y, _, _ = rows()
    with pytest.raises(ValueError, match=f"chunk 1 must be .*; got {found}"):
        GroupDRONeuron().fit(Chunks([(X, y), chunk]))


def test_no_chunks_and_no_rows_are_said():
    with pytest.raises(ValueError, match="gave no chunks"):
        GroupDRONeuron().fit(Chunks([]))
    X, y, _, _ = rows()
    with pytest.raises(ValueError, match="no rows"):
        GroupDRONeuron().fit(Chunks([(X[:0], y[:0])]))
    with pytest.raises(ValueError, match=r"no rows \(with positive weight\)"):
        GroupDRONeuron().fit(Chunks([(X, y, None, np.zeros(50))] * 2))


# -- .npy ----------------------------------------------------------------------------------


@pytest.fixture
def npy(tmp_path):
    """The same columns as files, and as arrays."""
    columns = dict(zip(("X", "y", "groups", "sample_weight"), rows(), strict=True))
    for name, values in columns.items():
        np.save(tmp_path / f"{name}.npy", values)
    return {name: tmp_path / f"{name}.npy" for name in columns}, columns


def test_files_arrays_and_maps_are_one_source(npy):
    paths, columns = npy
    kinds = {
        "paths": paths,
        "strings": {k: str(p) for k, p in paths.items()},
        "arrays": columns,
        "maps": {k: np.load(p, mmap_mode="r") for k, p in paths.items()},
        "mixed": {**columns, "X": paths["X"], "groups": str(paths["groups"])},
    }
    for name, given in kinds.items():
        source = Npy(**given, chunk_rows=16)
        assert source.n_rows == 50, name
        assert sizes(source) == [16, 16, 16, 2], name
        for _ in range(2):
            for got, expected in zip(joined(source), columns.values(), strict=True):
                assert got.dtype == expected.dtype
                np.testing.assert_array_equal(got, expected, err_msg=name)


@pytest.mark.parametrize(
    ("chunk_rows", "expected"),
    [(1, [1] * 50), (25, [25, 25]), (49, [49, 1]), (50, [50]), (51, [50]), (None, [50])],
)
def test_npy_is_cut_every_chunk_rows(npy, chunk_rows, expected):
    paths, _ = npy
    assert sizes(Npy(paths["X"], paths["y"], chunk_rows=chunk_rows)) == expected


def test_default_chunks_hold_so_many_bytes():
    wide = np.broadcast_to(np.float32(1.0), (10, 4096))
    assert Npy(wide, np.ones(10)).chunk_rows == CHUNK_BYTES // (4 * 4096) >= 1024
    huge = np.broadcast_to(1.0, (10, 1 << 20))
    assert Npy(huge, np.ones(10)).chunk_rows == 1024, "never less than a thousand rows"


def test_optional_columns_are_none(npy):
    paths, columns = npy
    for X, y, groups, weights in Npy(paths["X"], paths["y"], chunk_rows=30):
        assert X.shape[1] == 3
        assert len(y) == len(X)
        assert groups is None
        assert weights is None
    only_weights = Npy(paths["X"], paths["y"], sample_weight=paths["sample_weight"])
    assert [c[2] for c in only_weights] == [None]
    np.testing.assert_array_equal(joined(only_weights)[3], columns["sample_weight"])


@pytest.mark.parametrize("dtype", ["<f4", "<f8", ">f8", "<i4", "|b1"])
def test_numbers_keep_their_type(tmp_path, dtype):
    X = (rows()[0] > 0).astype(dtype)
    np.save(tmp_path / "X.npy", X)
    (got, _, _, _) = next(iter(Npy(tmp_path / "X.npy", np.ones(50), chunk_rows=7)))
    assert got.dtype == X.dtype
    np.testing.assert_array_equal(got, X[:7])


def test_text_groups_come_from_files(tmp_path):
    g = np.array(["north", "süd", "e"] * 20)
    np.save(tmp_path / "g.npy", g)
    source = Npy(np.ones((60, 1)), np.ones(60), tmp_path / "g.npy", chunk_rows=7)
    np.testing.assert_array_equal(joined(source)[2], g)


def test_fortran_order_is_read_by_rows(tmp_path):
    X, y, _, _ = rows()
    np.save(tmp_path / "X.npy", np.asfortranarray(X))
    stored = np.load(tmp_path / "X.npy", mmap_mode="r")
    assert not stored.flags.c_contiguous, "the file really holds columns one after the other"
    source = Npy(tmp_path / "X.npy", y, chunk_rows=16)
    for _ in range(2):
        assert sizes(source) == [16, 16, 16, 2]
        np.testing.assert_array_equal(joined(source)[0], X)


def test_what_a_chunk_is_changed_to_stays_out_of_the_source(npy):
    paths, columns = npy
    kept = {k: v.copy() for k, v in columns.items()}
    for given in (paths, columns):
        for chunk in Npy(**given, chunk_rows=16):
            for array in chunk:
                array[:] = 0
    for k, v in columns.items():
        np.testing.assert_array_equal(v, kept[k])
        np.testing.assert_array_equal(np.load(paths[k]), kept[k])


def test_a_file_changed_between_passes_is_read_anew(npy):
    paths, columns = npy
    source = Npy(paths["X"], paths["y"], chunk_rows=16)
    assert sizes(source) == [16, 16, 16, 2]
    np.save(paths["X"], 2 * columns["X"])
    np.testing.assert_array_equal(joined(source)[0], 2 * columns["X"])


def test_a_file_cut_while_it_is_read_is_found_out(npy):
    paths, _ = npy
    source = Npy(paths["X"], paths["y"], chunk_rows=16)
    chunks = iter(source)
    next(chunks)
    os.truncate(paths["X"], paths["X"].stat().st_size - 24)
    next(chunks)
    next(chunks)
    with pytest.raises(ValueError, match=r"X\.npy' ended early"):
        next(chunks)


def test_a_truncated_file_is_refused_at_once(npy):
    paths, _ = npy
    os.truncate(paths["X"], paths["X"].stat().st_size - 8)
    with pytest.raises(ValueError, match=r"^X: .*X\.npy' is not a \.npy file"):
        Npy(paths["X"], paths["y"])


@pytest.mark.parametrize("content", [b"", b"hello", b"\x93NUMPY\x01\x00v\x00{'descr'"])
def test_what_is_no_npy_file_is_refused(tmp_path, content):
    path = tmp_path / "groups.npy"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"^groups: .*groups\.npy' is not a \.npy file"):
        Npy(np.ones((3, 2)), np.ones(3), path)


def test_objects_are_refused_unread(tmp_path):
    np.save(tmp_path / "g.npy", np.array(["a", None], dtype=object), allow_pickle=True)
    with pytest.raises(ValueError, match=r"^groups: .*not a \.npy file of plain numbers or text"):
        Npy(np.ones((2, 2)), np.ones(2), tmp_path / "g.npy")


def test_npz_is_refused(tmp_path):
    X, y, _, _ = rows()
    np.savez(tmp_path / "rows.npz", X=X, y=y)
    with pytest.raises(ValueError, match=r"^X: .*rows\.npz' holds several arrays; save each"):
        Npy(tmp_path / "rows.npz", y)
    gc.collect()  # an archive left open would warn here


def test_a_missing_file_is_named(npy, tmp_path):
    paths, _ = npy
    with pytest.raises(FileNotFoundError, match=r"^y: there is no file .*nowhere\.npy"):
        Npy(paths["X"], tmp_path / "nowhere.npy")
    with pytest.raises(FileNotFoundError, match=r"^X: there is no file"):
        Npy(str(tmp_path), paths["y"])


@pytest.mark.parametrize("shape", [(50,), (50, 3, 1)])
def test_features_need_two_dimensions(shape):
    with pytest.raises(ValueError, match=r"X must have two dimensions; its shape is \(50,"):
        Npy(np.ones(shape), np.ones(50))


@pytest.mark.parametrize("name", ["y", "groups", "sample_weight"])
def test_columns_of_other_lengths_are_named(npy, name):
    paths, columns = npy
    for short in (columns[name][:-1], np.append(columns[name], columns[name][:1])):
        with pytest.raises(ValueError, match=f"X has 50 rows but {name} has {len(short)}"):
            Npy(**{**paths, name: short})


def test_a_single_number_is_no_column():
    with pytest.raises(ValueError, match="y"):
        Npy(np.ones((50, 3)), np.float64(1.0))


def test_labels_of_two_columns_are_refused_in_a_fit(npy):
    paths, columns = npy
    with pytest.raises(ValueError, match=r"y has shape \(50, 2\)"):
        GroupDRONeuron().fit(Npy(paths["X"], np.column_stack([columns["y"]] * 2)))


BAD_ROWS = [(0, ValueError), (-3, ValueError), (2.5, TypeError), ("8", TypeError),
            (True, TypeError), (np.nan, TypeError)]  # fmt: skip


@pytest.mark.parametrize(("value", "error"), BAD_ROWS)
def test_bad_chunk_rows_are_refused(value, error, tmp_path):
    with pytest.raises(error, match=f"chunk_rows must be a positive integer; got {value!r}"):
        Npy(np.ones((3, 2)), np.ones(3), chunk_rows=value)
    pq.write_table(pa.table({"a": [1.0], "y": [1.0]}), tmp_path / "t.parquet")
    with pytest.raises(error, match=f"chunk_rows must be a positive integer; got {value!r}"):
        Parquet(tmp_path / "t.parquet", y="y", chunk_rows=value)


def test_numpy_integers_are_chunk_rows():
    assert sizes(Npy(np.ones((5, 2)), np.ones(5), chunk_rows=np.int64(2))) == [2, 2, 1]


# -- Parquet -------------------------------------------------------------------------------


def table(n=50, seed=0, **types):
    X, y, g, w = rows(n, 3, seed)
    columns = {"a": X[:, 0], "b": X[:, 1], "g": g, "c": X[:, 2], "y": y, "w": w}
    return pa.table({k: pa.array(v, type=types.get(k)) for k, v in columns.items()})


def write(path, table, **options):
    pq.write_table(table, path, **options)
    return path


def features_of(table, names=("a", "b", "c")):
    return np.column_stack([table[k].to_numpy() for k in names])


def test_a_parquet_file(tmp_path):
    t = table()
    path = write(tmp_path / "t.parquet", t, row_group_size=20)
    for given in (path, str(path), [path]):
        source = Parquet(given, y="y", groups="g", sample_weight="w", chunk_rows=20)
        assert source.feature_names == ["a", "b", "c"]
        assert source.n_rows == 50
        for _ in range(2):
            assert sum(sizes(source)) == 50
            X, y, g, w = joined(source)
            np.testing.assert_array_equal(X, features_of(t))
            for got, name in ((y, "y"), (g, "g"), (w, "w")):
                np.testing.assert_array_equal(got, t[name].to_numpy())


def test_a_parquet_file_is_never_held_whole(tmp_path):
    t = pa.table({k: np.random.default_rng(0).normal(size=200_000) for k in "xy"})
    path = write(tmp_path / "t.parquet", t, row_group_size=10_000, use_dictionary=False)
    source = Parquet(path, y="y", chunk_rows=2000)
    before = pa.total_allocated_bytes()
    most = max(pa.total_allocated_bytes() - before for _ in source)
    assert most < path.stat().st_size / 4


def test_a_folder_is_its_files_in_order(tmp_path):
    parts = [table(20, seed) for seed in range(3)]
    for i in (2, 0, 1):
        write(tmp_path / f"part-{i}.parquet", parts[i])
    (tmp_path / "notes.txt").write_text("not a table")
    folder = Parquet(tmp_path, y="y", groups="g", chunk_rows=8)
    assert folder.n_rows == 60
    assert sizes(folder) == [8, 8, 4] * 3, "chunks end where files do"
    X = np.concatenate([features_of(t, "abcw") for t in parts])
    np.testing.assert_array_equal(joined(folder)[0], X)
    paths = [tmp_path / f"part-{i}.parquet" for i in (1, 0)]
    some = Parquet(paths, y="y", groups="g")
    np.testing.assert_array_equal(
        joined(some)[0], np.concatenate([features_of(parts[i], "abcw") for i in (1, 0)])
    )


def test_batches_may_cross_row_groups_and_lose_no_row(tmp_path):
    t = table(100)
    path = write(tmp_path / "t.parquet", t, row_group_size=7)
    for chunk_rows in (1, 10, 99, 100, 1000):
        source = Parquet(path, y="y", groups="g", features=["a"], chunk_rows=chunk_rows)
        assert max(sizes(source)) <= chunk_rows
        np.testing.assert_array_equal(joined(source)[0][:, 0], t["a"].to_numpy())


def test_chosen_features_come_in_their_order(tmp_path):
    t = table()
    path = write(tmp_path / "t.parquet", t)
    source = Parquet(path, y="y", features=["c", "a"])
    assert source.feature_names == ["c", "a"]
    np.testing.assert_array_equal(joined(source)[0], features_of(t, "ca"))
    assert joined(source)[2:] == [None, None]
    # A column may serve twice: as a feature and as the group.
    both = Parquet(path, y="y", groups="g", features=["g", "a"])
    np.testing.assert_array_equal(joined(both)[0], features_of(t, "ga"))
    np.testing.assert_array_equal(joined(both)[2], t["g"].to_numpy())


NAMES = np.array(["low", "mid", "très haut"])


@pytest.mark.parametrize("kind", ["dictionary", "string", "large_string", "int8", "bool"])
def test_groups_of_every_kind(tmp_path, kind):
    t = table()
    codes = t["g"].to_numpy()
    text = pa.array(NAMES[codes])
    column, expected = {
        "dictionary": lambda: (text.dictionary_encode(), NAMES[codes]),
        "string": lambda: (text, NAMES[codes]),
        "large_string": lambda: (text.cast(pa.large_string()), NAMES[codes]),
        "int8": lambda: (pa.array(codes, pa.int8()), codes),
        "bool": lambda: (pa.array(codes > 0), codes > 0),
    }[kind]()
    path = write(tmp_path / "t.parquet", t.set_column(2, "g", column), row_group_size=9)
    source = Parquet(path, y="y", groups="g", chunk_rows=7)
    got = joined(source)[2]
    assert got.dtype.kind == expected.dtype.kind
    np.testing.assert_array_equal(got, expected)
    model = GroupDRONeuron("identity", nu=0.1).fit(Parquet(path, y="y", groups="g", features=["a"]))
    np.testing.assert_array_equal(model.groups_, np.unique(expected))


def test_pandas_categories_are_groups(tmp_path):
    frame = table().to_pandas()
    frame["g"] = pd.Categorical(NAMES[frame["g"]], categories=[*NAMES, "never seen"])
    frame.to_parquet(tmp_path / "t.parquet")
    source = Parquet(tmp_path / "t.parquet", y="y", groups="g", sample_weight="w")
    assert source.feature_names == ["a", "b", "c"]
    np.testing.assert_array_equal(joined(source)[2], frame["g"].astype(str).to_numpy(dtype=str))
    assert GroupDRONeuron().fit(source).groups_.tolist() == sorted(NAMES)


@pytest.mark.parametrize("name", ["a", "y", "w"])
def test_missing_numbers_are_refused_by_name(tmp_path, name):
    t = table()
    values = t[name].to_pylist()
    values[33] = None
    t = t.set_column(t.schema.get_field_index(name), name, pa.array(values))
    path = write(tmp_path / "t.parquet", t)
    source = Parquet(path, y="y", groups="g", sample_weight="w", chunk_rows=20)
    chunks = iter(source)
    next(chunks)
    with pytest.raises(ValueError, match=f"column '{name}' has missing values; impute"):
        next(chunks)


@pytest.mark.parametrize("values", [["a", None], [1, None]])
def test_missing_groups_are_refused_in_a_fit(tmp_path, values):
    path = write(tmp_path / "t.parquet", table().set_column(2, "g", pa.array(values * 25)))
    with pytest.raises(ValueError, match=r"groups is missing at 25 row\(s\), first at row 1"):
        GroupDRONeuron().fit(Parquet(path, y="y", groups="g"))


def test_not_a_number_in_a_feature_is_refused_in_a_fit(tmp_path):
    X = rows()[0][:, 0].copy()
    X[40] = np.nan
    path = write(tmp_path / "t.parquet", table().set_column(0, "a", pa.array(X)))
    with pytest.raises(ValueError, match=r"chunk 2: X has missing or infinite values"):
        GroupDRONeuron().fit(Parquet(path, y="y", groups="g", chunk_rows=20))


def test_text_features_are_refused_by_name(tmp_path):
    path = write(tmp_path / "t.parquet", table().set_column(1, "b", pa.array(["x", "y"] * 25)))
    with pytest.raises(ValueError, match=r"feature column 'b' holds string, not numbers; encode"):
        Parquet(path, y="y", groups="g")
    assert Parquet(path, y="y", groups="g", features=["a", "c"]).feature_names == ["a", "c"]


def test_text_labels_are_refused_by_name(tmp_path):
    path = write(tmp_path / "t.parquet", table().set_column(4, "y", pa.array(["x", "y"] * 25)))
    with pytest.raises(ValueError, match=r"column 'y' holds .*, not numbers"):
        GroupDRONeuron().fit(Parquet(path, y="y", groups="g", features=["a"]))


FEATURE_TYPES = [
    ((pa.float32(), pa.float32()), np.float32),
    ((pa.float32(), pa.float64()), np.float64),
    ((pa.float32(), pa.int32()), np.float64),
    ((pa.bool_(), pa.int64()), np.float64),
    ((pa.uint8(), pa.float64()), np.float64),
]


@pytest.mark.parametrize(("kinds", "dtype"), FEATURE_TYPES)
def test_features_are_single_only_if_all_are(tmp_path, kinds, dtype):
    raw = [np.arange(50) % 2, np.arange(50)]
    columns = [pa.array(v.astype(k.to_pandas_dtype()), k) for v, k in zip(raw, kinds, strict=True)]
    path = write(tmp_path / "t.parquet", pa.table({"a": columns[0], "b": columns[1], "y": raw[1]}))
    X, y, _, _ = joined(Parquet(path, y="y", chunk_rows=9))
    assert X.dtype == dtype
    np.testing.assert_array_equal(X, np.column_stack(raw))
    np.testing.assert_array_equal(y, raw[1])


@pytest.mark.parametrize("single_first", [True, False])
def test_no_file_is_rounded_to_the_precision_of_another(tmp_path, single_first):
    """A folder may hold float32 in one file and float64 in the next."""
    single = table(a=pa.float32(), b=pa.float32(), c=pa.float32(), w=pa.float32())
    parts = [single, table(seed=1)] if single_first else [table(seed=1), single]
    for i, part in enumerate(parts):
        write(tmp_path / f"{i}.parquet", part)
    X = joined(Parquet(tmp_path, y="y", groups="g"))[0]
    np.testing.assert_array_equal(X, np.concatenate([features_of(p, "abcw") for p in parts]))


def test_a_later_file_without_a_column_is_named(tmp_path):
    write(tmp_path / "0.parquet", table())
    write(tmp_path / "1.parquet", table().drop_columns(["b"]))
    with pytest.raises(ValueError, match=r"1\.parquet' has no column 'b'"):
        list(Parquet(tmp_path, y="y", groups="g"))


def test_sample_weights_count_rows(tmp_path):
    t = table(300)
    count = np.random.default_rng(1).integers(0, 3, 300)
    weighted = write(tmp_path / "w.parquet", t.set_column(5, "w", pa.array(count)))
    repeated = write(tmp_path / "r.parquet", t.take(np.repeat(np.arange(300), count)))
    a = GroupDRONeuron("identity", nu=0.1).fit(
        Parquet(weighted, y="y", groups="g", sample_weight="w", features=["a", "b"], chunk_rows=64)
    )
    b = GroupDRONeuron("identity", nu=0.1).fit(
        Parquet(repeated, y="y", groups="g", features=["a", "b"], chunk_rows=64)
    )
    np.testing.assert_allclose(a.coef_, b.coef_, rtol=1e-9)
    assert a.risk_ == pytest.approx(b.risk_, rel=1e-10)


@pytest.mark.parametrize("option", ["y", "groups", "sample_weight"])
def test_unknown_columns_are_named(tmp_path, option):
    path = write(tmp_path / "t.parquet", table())
    with pytest.raises(ValueError, match=r"t\.parquet' has no column 'nope'; it has \['a', 'b'"):
        Parquet(path, **{"y": "y", option: "nope"})
    with pytest.raises(ValueError, match="no column 'nope'"):
        Parquet(path, y="y", features=["a", "nope"])


def test_no_features_are_refused(tmp_path):
    path = write(tmp_path / "t.parquet", table().select(["y", "g"]))
    with pytest.raises(ValueError, match="no feature column"):
        Parquet(path, y="y", groups="g")


def test_missing_paths_and_empty_folders_are_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no file or folder .*nowhere"):
        Parquet(tmp_path / "nowhere", y="y")
    path = write(tmp_path / "t.parquet", table())
    with pytest.raises(FileNotFoundError, match=r"no file or folder .*nowhere"):
        Parquet([path, tmp_path / "nowhere"], y="y")
    (tmp_path / "empty").mkdir()
    with pytest.raises(FileNotFoundError, match=r"no \*\.parquet files in .*empty"):
        Parquet(tmp_path / "empty", y="y")
    with pytest.raises(FileNotFoundError, match=r"no \*\.parquet files"):
        Parquet([], y="y")


# -- sources agree -------------------------------------------------------------------------


def test_the_same_rows_from_every_source_give_the_same_bits(tmp_path):
    t = table(400)
    X, y, g = features_of(t), t["y"].to_numpy(), t["g"].to_numpy()
    np.save(tmp_path / "X.npy", X)
    path = write(tmp_path / "t.parquet", t)
    cuts = [slice(lo, lo + 64) for lo in range(0, 400, 64)]
    found = [
        GroupDRONeuron(nu=0.1).fit(source)
        for source in (
            Npy(tmp_path / "X.npy", y, g, chunk_rows=64),
            Parquet(path, y="y", groups="g", features=["a", "b", "c"], chunk_rows=64),
            Chunks([(X[s], y[s], g[s]) for s in cuts]),
            Chunks(lambda: ([X[s].tolist(), y[s].tolist(), g[s].tolist()] for s in cuts)),
        )
    ]
    for model in found[1:]:
        assert model.coef_.tobytes() == found[0].coef_.tobytes()
        assert model.n_passes_ == found[0].n_passes_
        assert model.certificate_ == found[0].certificate_


def test_the_order_of_storage_changes_no_bit():
    X, y, g, _ = rows(400)
    found = [
        GroupDRONeuron(nu=0.1).fit(Npy(given, y, g, chunk_rows=64))
        for given in (X, np.asfortranarray(X))
    ]
    assert found[0].coef_.tobytes() == found[1].coef_.tobytes()


def test_sparse_chunks_of_any_format_are_read():
    X, y, g, _ = rows(120)
    X = np.where(X > 0.3, X, 0.0)
    base = GroupDRONeuron("identity", nu=0.1).fit(X, y, g)
    for make in (sparse.csr_matrix, sparse.csc_array, sparse.coo_array):
        chunks = [(make(X[lo : lo + 50]), y[lo : lo + 50], g[lo : lo + 50]) for lo in (0, 50, 100)]
        model = GroupDRONeuron("identity", nu=0.1).fit(Chunks(chunks))
        np.testing.assert_allclose(model.coef_, base.coef_, rtol=1e-7, atol=1e-9)


def test_a_flipped_byte_of_a_page_with_a_checksum_is_refused(tmp_path):
    rng = np.random.default_rng(0)
    path = tmp_path / "rows.parquet"
    table = pa.table({"x": rng.normal(size=5000), "y": rng.normal(size=5000)})
    pq.write_table(table, path, write_page_checksum=True, compression="none")
    list(Parquet(path, y="y"))
    data = bytearray(path.read_bytes())
    data[20_000] ^= 1
    path.write_bytes(data)
    with pytest.raises(
        ValueError, match=r"rows\.parquet' is truncated or damaged .*write it again"
    ):
        list(Parquet(path, y="y"))
