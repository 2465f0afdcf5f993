"""Rows of tables: groups, all at once, in chunks, and samples of them."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from scipy import sparse
from table_files import KINDS, csv, write

from counterpoise import GroupDRONeuron
from counterpoise.tabular import (
    DataError,
    TableSource,
    as_table,
    encoded_rows,
    fits_in_memory,
    layout,
    learn_layout,
    open_table,
    read_rows,
    sample_rows,
    table,
)  # fmt: skip
from counterpoise.tabular.row_batches import RowBatches


def people(n=500, seed=0, holes=0.0):
    """Columns of all kinds, with missing values in some."""
    rng = np.random.default_rng(seed)
    age, town = rng.normal(40, 10, n), rng.choice(["A", "B", "C"], n, p=[0.6, 0.3, 0.1])
    group = rng.choice(["north", "south", "west"], n, p=[0.7, 0.25, 0.05])
    y = np.maximum(0.1 * age + (town == "B") - 2 * (group == "west"), 0) + rng.normal(0, 0.1, n)
    hole = rng.random((2, n)) < holes
    return {
        "age": pa.array(age, mask=hole[0]),
        "town": pa.array(town, mask=hole[1]),
        "rich": pa.array(rng.random(n) < 0.5),
        "group": pa.array(group),
        "w": pa.array(rng.uniform(0.5, 2.0, n)),
        "y": pa.array(y),
    }


def joined(source):
    """All chunks of a source as one."""
    parts = list(zip(*source, strict=True))
    out = [None if part[0] is None else part for part in parts]
    X = sparse.vstack(out[0]).tocsr() if sparse.issparse(out[0][0]) else np.concatenate(out[0])
    return [X, *(None if part is None else np.concatenate(part) for part in out[1:])]


def assert_same(found, expected):
    for one, other in zip(found, expected, strict=True):
        if sparse.issparse(one):
            one, other = one.toarray(), other.toarray()
        np.testing.assert_array_equal(one, other)


# -- groups ----------------------------------------------------------------------------------


def labels(data, group, **options):
    found = learn_layout(data, target="y", group=group, **options)
    got = read_rows(data, found.layout).groups
    values, counts = np.unique(got, return_counts=True)
    assert found.groups == dict(zip(values.tolist(), counts.tolist(), strict=True))
    return got


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (["b", "a", "b"], ["b", "a", "b"]),
        ([10, 9, 10], [10, 9, 10]),
        ([1.0, 2.0, 1.0], [1, 2, 1]),
        ([True, False, True], ["true", "false", "true"]),
        (pa.array(["b", "a", "b"]).dictionary_encode(), ["b", "a", "b"]),
        (pa.array([2**64 - 1, 1, 1], pa.uint64()), [str(2**64 - 1), "1", "1"]),
        (["NA", "null", ""], ["NA", "null", ""]),
    ],
)
def test_groups_are_called_by_text_or_integers(values, expected):
    found = labels({"g": values, "x": [1, 2, 3], "y": [1, 2, 3]}, "g")
    assert found.tolist() == expected
    assert found.dtype.kind == ("i" if isinstance(expected[0], int) else "U")


def test_groups_of_several_columns_are_crossed():
    data = {"g": ["a", "b", "a"], "h": [1, 2, 1], "k": [True, True, False], "x": [1, 2, 3],
            "y": [1, 2, 3]}  # fmt: skip
    assert labels(data, ["g", "h"]).tolist() == ["a | 1", "b | 2", "a | 1"]
    assert labels(data, ["k", "g", "h"]).tolist() == [
        "true | a | 1",
        "true | b | 2",
        "false | a | 1",
    ]
    data["g"] = ["a", None, "a"]
    found = labels(data, ["g", "h"], missing="impute")
    assert found.tolist() == ["a | 1", "(missing) | 2", "a | 1"]


def test_crossed_groups_stay_apart():
    data = {"g": ["a | b", "a"], "h": ["c", "b | c"], "x": [1, 2], "y": [1, 2]}
    with pytest.raises(DataError, match=r"'g' has the value 'a | b'.*replace it"):
        labels(data, ["g", "h"])
    assert labels(data, "g").tolist() == ["a | b", "a"]


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ([1.5, 2.0], r"'g' holds numbers that are not whole, such as 1.5.*bins.*'g_bin'"),
        ([[1], [2]], r"group column 'g' holds list.*text or whole numbers"),
        (np.array(["2020-01-01"] * 2, dtype="M8[D]"), r"group column 'g' holds dates; .*the month"),
        ([1e300, 2.0], r"'g' holds numbers that are not whole"),
    ],
)
def test_groups_that_cannot_be_are_told(values, told):
    with pytest.raises(DataError, match=told):
        labels({"g": values, "x": [1, 2], "y": [1, 2]}, "g")


def test_fractions_in_csv_are_labels_unless_they_are_many(tmp_path):
    few = csv(tmp_path, "g,x,y\n1.1,1,1\n1.10,2,2\n2.0,3,3\n")
    assert labels(open_table(few, text=["g"]), "g").tolist() == ["1.1", "1.10", "2.0"]
    many = csv(tmp_path, "g,x,y\n" + "".join(f"{i}.5,{i},{i}\n" for i in range(101)))
    with pytest.raises(DataError, match=r"'g' holds numbers that are not whole.*bins"):
        labels(open_table(many, text=["g"]), "g")


def test_whole_numbers_written_as_text_may_be_many_groups():
    data = {"g": [str(i) for i in range(150)], "x": list(range(150)), "y": list(range(150))}
    assert len(set(labels(data, "g"))) == 150


def test_a_missing_group_is_refused_left_out_or_its_own():
    data = {"g": ["a", None, "b"], "x": [1, 2, 3], "y": [1, 2, 3]}
    with pytest.raises(DataError, match=r"'g' \(1\);.*missing='drop'"):
        labels(data, "g")
    assert labels(data, "g", missing="drop").tolist() == ["a", "b"]
    assert labels(data, "g", missing="impute").tolist() == ["a", "(missing)", "b"]


def test_integers_are_text_in_every_batch_if_one_is_missing(monkeypatch):
    monkeypatch.setattr(table.HeldTable.batches, "__defaults__", (None, 2))
    data = {"g": [1, 2, 1, None, 2, 2], "x": [1.0] * 5 + [2.0], "y": [1.0] * 6}
    found = learn_layout(data, target="y", group="g", missing="impute")
    assert found.layout.labels == "text"
    assert found.groups == {"(missing)": 1, "1": 2, "2": 3}
    got = joined(TableSource(as_table(data), found.layout, chunk_rows=2))
    assert got[2].tolist() == ["1", "2", "1", "(missing)", "2", "2"]
    kept = learn_layout(data, target="y", group="g", missing="drop")
    assert kept.layout.labels == "integer"
    assert kept.groups == {1: 2, 2: 3}


def test_a_group_called_na_is_no_missing_one(tmp_path):
    path = csv(tmp_path, "country,x,town,y\nNA,1,NA,1\nDE,2,b,2\nNA,3,c,3\n")
    opened = open_table(path, text=["country"])
    with pytest.raises(DataError, match=r"values are missing in the column 'town' \(1\);"):
        learn_layout(opened, target="y", group="country")
    assert labels(opened, "country", drop=["town"]).tolist() == ["NA", "DE", "NA"]
    both = learn_layout(opened, target="y", group="country", features=["x", "country"])
    assert both.layout.names == ("x", "country=DE")


STRANGE = ["a\tb", "line\nline", "\x1b[31mred\x1b[0m", "a\x00b", "\r", "\x7f", "a", "\u202ea"]


@pytest.mark.parametrize("kind", ["memory", "csv", "parquet", "arrow"])
def test_control_characters_in_labels_and_levels_are_data(kind, tmp_path):
    n = len(STRANGE)
    data = {"g": STRANGE * 2, "t": STRANGE[::-1] * 2, "y": [float(i) for i in range(2 * n)]}
    opened = as_table(data)
    if kind != "memory":
        opened = open_table(write(kind, tmp_path, data), text=["g"])
    found = learn_layout(opened, target="y", group="g")
    assert found.groups == dict.fromkeys(sorted(STRANGE), 2)
    assert set(found.layout.features[0].levels) == set(STRANGE)
    got = read_rows(opened, found.layout)
    assert got.groups.tolist() == STRANGE * 2
    at = [found.layout.names.index(f"t={level}") for level in found.layout.features[0].levels[1:]]
    assert got.X[:, at].sum(axis=0).tolist() == [2.0] * (n - 1)
    assert set(labels(opened, ["g", "t"], features=["t"])) == {
        f"{g} | {t}" for g, t in zip(STRANGE, STRANGE[::-1], strict=True)
    }


def test_labels_that_would_be_cut_are_refused():
    data = {"g": ["a\0", "a", "a"], "x": [1, 2, 3], "y": [1, 2, 3]}
    with pytest.raises(DataError, match=r"'g' has the value 'a\\x00', which ends in a NUL"):
        labels(data, "g")


def test_a_group_called_missing_is_counted_with_the_missing_ones():
    data = {"g": ["(missing)", None, "a", None], "x": [1, 2, 3, 4], "y": [1, 2, 3, 4]}
    found = learn_layout(data, target="y", group="g", missing="impute")
    assert found.groups == {"(missing)": 3, "a": 1}


def test_zeros_at_the_front_stay(tmp_path):
    path = csv(tmp_path, "g,zip,y\n01,01234,1\n1,01234,2\n02,1234,3\n")
    opened = open_table(path, text=["g"], words=["zip"])
    assert labels(opened, "g", categorical=["zip"]).tolist() == ["01", "1", "02"]
    found = learn_layout(opened, target="y", group="g", categorical=["zip"])
    assert found.layout.names == ("zip=1234",)


def test_later_files_are_read_as_the_first(tmp_path):
    first = csv(tmp_path, "g,zip,code,y\nNA,01,1,1\nb,02,x,2\nb,02,1,3\n")
    opened = open_table(first, text=["g"], words=["zip"])
    found = learn_layout(opened, target="y", group="g", categorical=["zip"]).layout
    assert found.names == ("zip=01", "code=x")
    later = csv(tmp_path, "zip,code\n01,1\n02,1\n", "later.csv")
    opened = open_table(later, text=found.text, words=found.words)
    assert opened.types == {"zip": "string", "code": "string"}
    assert read_rows(opened, found, labelled=False).X.tolist() == [[1, 0], [0, 0]]


# -- all at once -----------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_rows_are_the_same_from_every_format(kind, tmp_path):
    data = people(50)
    plain = {name: column.to_numpy(zero_copy_only=False) for name, column in data.items()}
    plain = {n: v.astype(str) if v.dtype == object else v for n, v in plain.items()}
    opened = open_table(write(kind, tmp_path, plain if kind == "npz" else data), text=["group"])
    found = learn_layout(opened, target="y", group="group", weight="w")
    assert found.layout == learn_layout(data, target="y", group="group", weight="w").layout
    got = read_rows(opened, found.layout)
    assert got.X.shape == (50, 4)
    assert got.feature_names == ("age", "town=B", "town=C", "rich")
    np.testing.assert_array_equal(got.X[:, 0], plain["age"])
    np.testing.assert_array_equal(got.X[:, 1], plain["town"] == "B")
    np.testing.assert_array_equal(got.y, plain["y"])
    np.testing.assert_array_equal(got.groups, plain["group"])
    np.testing.assert_array_equal(got.sample_weight, plain["w"])
    np.testing.assert_array_equal(got.kept, np.arange(50))


def test_rows_without_labels():
    data = people(20)
    found = learn_layout(data, target="y", group="group", weight="w").layout
    bare = {name: data[name] for name in ("rich", "town", "age")}
    got = read_rows(bare, found, labelled=False)
    assert (got.y, got.groups, got.sample_weight) == (None, None, None)
    np.testing.assert_array_equal(got.X, read_rows(data, found).X)
    with pytest.raises(DataError, match=r"no columns 'y', 'group', 'w'"):
        read_rows(bare, found)
    some = read_rows({**bare, "y": [None] * 10 + [1.0] * 10, "group": ["new"] * 20}, found,
                     labelled=False)  # fmt: skip
    assert np.isnan(some.y[:10]).all()
    assert set(some.groups) == {"new"}
    text = read_rows({**bare, "y": ["?"] * 20}, found, labelled=False)
    assert text.y is None


def test_rows_that_are_left_out_are_told():
    data = people(100, holes=0.1)
    found = learn_layout(data, target="y", group="group", missing="drop")
    whole = np.asarray(data["age"].is_valid()) & np.asarray(data["town"].is_valid())
    assert 0 < found.dropped == (~whole).sum()
    for labelled in (True, False):
        got = read_rows(data, found.layout, labelled=labelled)
        np.testing.assert_array_equal(got.kept, np.flatnonzero(whole))
        assert len(got.X) == len(got.y) == len(got) == found.used
    unknown = read_rows({**data, "y": pa.nulls(100, pa.float64())}, found.layout, labelled=False)
    np.testing.assert_array_equal(unknown.kept, np.flatnonzero(whole))
    assert np.isnan(unknown.y).all()
    with pytest.raises(DataError, match="use other rows"):
        read_rows({**data, "y": pa.nulls(100, pa.float64())}, found.layout)


def test_labels_that_are_missing_later_are_refused():
    data = people(20)
    found = learn_layout(data, target="y", group="group").layout
    for name in ("y", "group"):
        holes = {**data, name: pa.concat_arrays([data[name][:19], pa.nulls(1, data[name].type)])}
        with pytest.raises(DataError, match=rf"'{name}' \(1\); leave these rows out"):
            read_rows(holes, found)


@pytest.mark.parametrize("missing", ["drop", "impute"])
def test_rows_of_weight_zero_are_left_out_everywhere_alike(missing, monkeypatch):
    data = people(300, holes=0.1)
    weights = np.array(data["w"])
    rng = np.random.default_rng(1)
    weights[rng.random(300) < 0.3] = 0.0
    weights[np.array(data["group"]) == "west"] = 0.0
    weights[64:128] = 0.0  # a batch of nothing else
    data["w"] = pa.array(weights)
    data["y"] = pa.array(np.array(data["y"]), mask=weights == 0)  # and where it does not matter
    found = learn_layout(data, target="y", group="group", weight="w", missing=missing)
    weighty = weights > 0
    if missing == "drop":
        weighty &= np.asarray(data["age"].is_valid()) & np.asarray(data["town"].is_valid())
    got = read_rows(data, found.layout)
    np.testing.assert_array_equal(got.kept, np.flatnonzero(weighty))
    np.testing.assert_array_equal(got.sample_weight, weights[weighty])
    assert found.used == len(got) == len(got.X) == len(got.y) == weighty.sum()
    assert found.weightless == (weights == 0).sum()
    assert "west" not in found.groups
    assert sum(found.groups.values()) == len(got)
    source = TableSource(as_table(data), found.layout, n_rows=found.used, chunk_rows=64)
    assert_same(joined(source), (got.X, got.y, got.groups, got.sample_weight))
    monkeypatch.setattr(RowBatches.batches, "__defaults__", (64,))
    everything = sample_rows(data, found.layout, 300)
    np.testing.assert_array_equal(everything.kept, got.kept)
    assert set(sample_rows(data, found.layout, 40).kept) <= set(got.kept)
    free = read_rows(data, found.layout, labelled=False)
    if missing == "impute":
        np.testing.assert_array_equal(free.kept, np.arange(300))
    assert set(np.flatnonzero(weights == 0)) & set(free.kept), "predictions are for all rows"


# -- in chunks -------------------------------------------------------------------------------


@pytest.mark.parametrize("missing", ["drop", "impute"])
@pytest.mark.parametrize("chunk_rows", [1, 7, 64, None])
def test_chunks_are_the_rows_to_the_bit(chunk_rows, missing, tmp_path):
    pq.write_table(pa.table(people(150, holes=0.1)), tmp_path / "a.parquet", row_group_size=40)
    pq.write_table(pa.table(people(60, 1, holes=0.1)), tmp_path / "b.parquet", row_group_size=25)
    opened = open_table(tmp_path)
    found = learn_layout(opened, target="y", group="group", weight="w", missing=missing)
    whole = read_rows(opened, found.layout)
    source = TableSource(opened, found.layout, chunk_rows=chunk_rows)
    expected = (whole.X, whole.y, whole.groups, whole.sample_weight)
    for _ in range(2):
        assert_same(joined(source), expected)
    assert all(len(chunk[1]) <= (chunk_rows or 210) for chunk in source)
    assert source.n_rows is None, "rows of weight 0, or that miss a value, may be left out"
    plain = learn_layout(opened, target="y", group="group", drop=["w"], missing=missing).layout
    assert TableSource(opened, plain).n_rows == (None if missing == "drop" else 210)
    assert TableSource(opened, found.layout, n_rows=found.used).n_rows == found.used == len(whole)


def test_wide_chunks_are_csr(monkeypatch):
    data = {"t": [f"{i % 50}" for i in range(200)], "y": [float(i % 7) for i in range(200)]}
    opened, found = as_table(data), learn_layout(data, target="y", categorical=["t"]).layout
    dense = read_rows(opened, found)
    monkeypatch.setattr(layout, "DENSE_BYTES", 1000)
    source = TableSource(opened, found, chunk_rows=64)
    assert all(sparse.issparse(chunk[0]) for chunk in source)
    np.testing.assert_array_equal(joined(source)[0].toarray(), dense.X)
    sample = sample_rows(opened, found, 100)
    assert sparse.issparse(sample.X)
    np.testing.assert_array_equal(sample.X.toarray(), dense.X[sample.kept])


def test_a_fit_to_chunks_is_the_fit_in_memory(tmp_path):
    pq.write_table(pa.table(people(900)), tmp_path / "a.parquet")
    opened = open_table(tmp_path / "a.parquet")
    found = learn_layout(opened, target="y", group="group", weight="w").layout
    whole = read_rows(opened, found)
    memory = GroupDRONeuron().fit(whole.X, whole.y, whole.groups, sample_weight=whole.sample_weight)
    chunked = GroupDRONeuron().fit(TableSource(opened, found, chunk_rows=200))
    np.testing.assert_allclose(chunked.coef_, memory.coef_, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(chunked.group_weights_, memory.group_weights_, rtol=1e-6, atol=1e-8)


def test_memory_is_measured_before_rows_are_read(monkeypatch):
    data = people(100)
    opened, found = as_table(data), learn_layout(data, target="y").layout
    need = 100 * (8 * found.width + 8)
    assert fits_in_memory(opened, found, budget=need)
    assert not fits_in_memory(opened, found, budget=need - 1)
    monkeypatch.setattr(encoded_rows, "memory", lambda: 4.0 * need)
    assert fits_in_memory(opened, found)
    monkeypatch.setattr(encoded_rows, "memory", lambda: 4.0 * need - 4)
    assert not fits_in_memory(opened, found)
    monkeypatch.setattr(encoded_rows, "memory", lambda: None)
    assert fits_in_memory(opened, found)
    grouped = learn_layout(data, target="y", group="group", weight="w").layout
    assert not fits_in_memory(opened, grouped, budget=need), "labels and weights count as well"


# -- samples ---------------------------------------------------------------------------------


def crowd(n, sizes):
    """Rows numbered by x, in groups of given sizes, the last of the rest."""
    g = np.repeat([*sizes, max(sizes) + 1], [*sizes.values(), n - sum(sizes.values())])
    return {"x": np.arange(float(n)), "g": g, "y": np.arange(float(n)) / 2}


def test_a_sample_holds_rows_of_the_table_in_order():
    data = crowd(3000, {1: 3, 2: 40})
    found = learn_layout(data, target="y", group="g").layout
    got = sample_rows(data, found, 200, seed=3)
    assert len(got) == 200
    assert (np.diff(got.kept) > 0).all()
    np.testing.assert_array_equal(got.X[:, 0], got.kept)
    np.testing.assert_array_equal(got.y, got.kept / 2)
    np.testing.assert_array_equal(got.groups, data["g"][got.kept])
    assert (got.groups == 1).sum() == 3, "all of a small group"
    assert (got.groups == 2).sum() >= 16
    again, other = (sample_rows(data, found, 200, seed=seed) for seed in (3, 4))
    np.testing.assert_array_equal(again.kept, got.kept)
    assert (other.kept != got.kept).any()


def test_a_sample_of_all_rows_is_all_of_them():
    data = crowd(100, {1: 3})
    found = learn_layout(data, target="y", group="g").layout
    for limit in (100, 101, 10**9):
        np.testing.assert_array_equal(sample_rows(data, found, limit).kept, np.arange(100))


@pytest.mark.parametrize("limit", [1, 5, 40, 300])
@pytest.mark.parametrize("grouped", [True, False])
def test_a_sample_does_not_depend_on_batches(limit, grouped, monkeypatch):
    rng = np.random.default_rng(0)
    data = {"x": np.arange(2000.0), "g": rng.zipf(1.5, 2000) % 30, "y": np.arange(2000.0)}
    found = learn_layout(data, target="y", group="g" if grouped else ()).layout
    whole = sample_rows(data, found, limit).kept
    assert len(whole) == limit
    for size in (7, 50, 333):
        monkeypatch.setattr(RowBatches.batches, "__defaults__", (size,))
        np.testing.assert_array_equal(sample_rows(data, found, limit).kept, whole)


def test_every_group_is_in_a_sample_that_has_room():
    data = crowd(5000, dict.fromkeys(range(60), 2))
    found = learn_layout(data, target="y", group="g").layout
    for limit, n_groups in ((61, 61), (100, 61), (1000, 61)):
        assert len(set(sample_rows(data, found, limit).groups)) == n_groups
    assert len(sample_rows(data, found, 60)) == 60


def test_samples_are_uniform():
    data = {"x": np.arange(100.0), "y": np.arange(100.0)}
    found = learn_layout(data, target="y").layout
    counts = np.zeros(100)
    for seed in range(400):
        counts[sample_rows(data, found, 25, seed).kept] += 1
    assert counts.sum() == 400 * 25
    # each is binomial of mean 100 and deviation 8.7
    assert abs(counts - 100).max() < 45
    assert abs((counts - 100).std() - 8.66) < 2.5


def test_samples_leave_out_what_rows_do():
    data = people(300, holes=0.2)
    found = learn_layout(data, target="y", group="group", missing="drop").layout
    got = sample_rows(data, found, 50)
    assert set(got.kept) <= set(read_rows(data, found).kept)
    with pytest.raises(ValueError, match="limit must be a whole number >= 1"):
        sample_rows(data, found, 0)
    told = []
    sample_rows(data, found, 50, progress=lambda done, total: told.append((done, total)))
    assert told == [(300, 300)]


# -- the package -----------------------------------------------------------------------------


def test_importing_the_package_imports_no_arrow():
    code = (
        "import sys, counterpoise, counterpoise.tabular as t; "
        "t.TableLayout, t.Feature, t.DataError; assert 'pyarrow' not in sys.modules; "
        "t.open_table; assert 'pyarrow' in sys.modules and 'pandas' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
