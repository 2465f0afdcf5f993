"""Grouped data: order, labels, weights, copies avoided, and every refusal."""

import dataclasses
import datetime as dt
import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from counterpoise.rows.groups import GroupedData, encode_groups


def rows(n=6, d=2, dtype=float):
    return np.arange(n * d, dtype=dtype).reshape(n, d)


# -- order ---------------------------------------------------------------------------------


def test_rows_are_sorted_by_group_and_keep_their_order_within():
    X, y = rows(6), np.arange(6.0)
    data = GroupedData.build(X, y, [2, 0, 2, 1, 0, 2])
    assert data.labels.tolist() == [0, 1, 2]
    assert data.offsets.tolist() == [0, 2, 3, 6]
    assert data.y.tolist() == [1.0, 4.0, 3.0, 0.0, 2.0, 5.0]
    np.testing.assert_array_equal(data.X, X[[1, 4, 3, 0, 2, 5]])
    assert data.totals.tolist() == [2.0, 1.0, 3.0]
    assert data.row_weights.size == 0
    assert (data.n_groups, data.n_features, data.is_sparse) == (3, 2, False)


def test_without_groups_there_is_one():
    data = GroupedData.build(rows(4), np.zeros(4))
    assert data.labels.tolist() == [0]
    assert data.offsets.tolist() == [0, 4]


@settings(deadline=None, derandomize=True, max_examples=80)
@given(st.lists(st.integers(-3, 300), min_size=1, max_size=60), st.booleans())
def test_any_grouping_is_a_stable_sort(labels, weighted):
    n = len(labels)
    X, y = rows(n), np.arange(float(n))
    weights = 1.0 + np.arange(n) % 3 if weighted else None
    data = GroupedData.build(X, y, labels, weights)
    order = sorted(range(n), key=lambda i: labels[i])
    assert data.y.tolist() == order
    np.testing.assert_array_equal(data.X, X[order])
    assert data.labels.tolist() == sorted(set(labels))
    for i, label in enumerate(data.labels.tolist()):
        mine = data.y[data.offsets[i] : data.offsets[i + 1]].astype(int)
        assert mine.tolist() == [j for j in range(n) if labels[j] == label]
        if weighted:
            assert data.totals[i] == weights[mine].sum()


def test_many_groups_of_one_row():
    n = 70_000  # more labels than 16 bits count
    labels = np.random.default_rng(0).permutation(n)
    data = GroupedData.build(np.zeros((n, 1)), labels.astype(float), labels)
    np.testing.assert_array_equal(data.y, np.arange(n))
    np.testing.assert_array_equal(data.offsets, np.arange(n + 1))


# -- labels --------------------------------------------------------------------------------

DAY = dt.date(2024, 1, 2)
LABELS = {
    "int": ([3, 1, 3], [1, 3]),
    "negative int": ([0, -5, 0], [-5, 0]),
    "float": ([2.5, 0.5, 2.5], [0.5, 2.5]),
    "str": (["b", "a", "b"], ["a", "b"]),
    "object str": (np.array(["b", "a", "b"], dtype=object), ["a", "b"]),
    "bool": ([True, False, True], [False, True]),
    "date": ([DAY, dt.date(2023, 5, 1), DAY], [dt.date(2023, 5, 1), DAY]),
    "datetime64": (
        np.array(["2024-01-02", "2023-05-01", "2024-01-02"], dtype="datetime64[D]"),
        [dt.date(2023, 5, 1), DAY],
    ),
    "zoned timestamps": (
        pd.Series(pd.to_datetime(["2024-01-02", "2023-05-01", "2024-01-02"])).dt.tz_localize("UTC"),
        [pd.Timestamp("2023-05-01", tz="UTC"), pd.Timestamp("2024-01-02", tz="UTC")],
    ),
    "categorical": (pd.Categorical(["b", "a", "b"], categories=["c", "b", "a"]), ["a", "b"]),
    "categorical series": (pd.Series(["b", "a", "b"], dtype="category"), ["a", "b"]),
    "series with odd index": (pd.Series(["b", "a", "b"], index=[7, 7, 1]), ["a", "b"]),
    "nullable int": (pd.Series([3, 1, 3], dtype="Int64"), [1, 3]),
    "nullable str": (pd.Series(["b", "a", "b"], dtype="string"), ["a", "b"]),
    "column": (np.array([[3], [1], [3]]), [1, 3]),
    "frame column": (pd.DataFrame({"g": ["b", "a", "b"]}), ["a", "b"]),
}


@pytest.mark.parametrize("kind", LABELS)
def test_labels_of_many_kinds(kind):
    given_labels, expected = LABELS[kind]
    data = GroupedData.build(rows(3), np.arange(3.0), given_labels)
    assert data.labels.tolist() == expected
    assert data.y.tolist() == [1.0, 0.0, 2.0]
    assert data.offsets.tolist() == [0, 1, 3]


def test_codes_point_back_to_the_labels():
    values = np.array(["x", "z", "y", "x"])
    labels, codes = encode_groups(values, 4)
    np.testing.assert_array_equal(labels[codes], values)


# -- copies --------------------------------------------------------------------------------

SORTED = [0, 0, 1, 1, 1, 4]


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_grouped_rows_are_not_copied(dtype):
    X, y = rows(6, dtype=dtype), np.arange(6.0)
    data = GroupedData.build(X, y, SORTED)
    assert np.shares_memory(data.X, X)
    assert np.shares_memory(data.y, y)
    assert data.X.dtype == dtype


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_a_memory_map_is_not_read_into_memory(tmp_path, dtype):
    path = tmp_path / "rows.bin"
    rows(6, dtype=dtype).tofile(path)
    X = np.memmap(path, dtype=dtype, mode="r", shape=(6, 2))
    data = GroupedData.build(X, np.zeros(6), SORTED)
    assert np.shares_memory(data.X, X)
    assert data.X.dtype == dtype
    np.testing.assert_array_equal(data.X, rows(6))


def test_equal_weights_do_not_force_a_copy():
    X = rows(6)
    assert np.shares_memory(GroupedData.build(X, np.zeros(6), SORTED, np.full(6, 0.5)).X, X)


def test_grouped_sparse_rows_are_not_copied():
    X = sparse.csr_matrix(rows(6))
    data = GroupedData.build(X, np.zeros(6), SORTED)
    assert np.shares_memory(data.X.data, X.data)
    assert data.is_sparse


def test_other_layouts_and_types_become_c_ordered_floats():
    for X in (np.asfortranarray(rows(6)), rows(12)[::2], rows(6, dtype=np.int16)):
        data = GroupedData.build(X, np.zeros(6), SORTED)
        assert data.X.flags.c_contiguous
        assert data.X.dtype == np.float64
        np.testing.assert_array_equal(data.X, X)
    assert GroupedData.build(rows(6) > 3, np.zeros(6), SORTED).X.dtype == np.float64


@pytest.mark.parametrize("to", ["csr", "csc", "coo", "lil"])
def test_sparse_rows_are_sorted_like_dense_ones(to):
    rng = np.random.default_rng(1)
    dense = rng.normal(size=(20, 5)) * (rng.random((20, 5)) < 0.4)
    labels, weights = rng.integers(0, 4, 20), rng.integers(0, 3, 20).astype(float)
    a = GroupedData.build(dense, np.arange(20.0), labels, weights)
    b = GroupedData.build(sparse.coo_matrix(dense).asformat(to), np.arange(20.0), labels, weights)
    np.testing.assert_array_equal(b.X.toarray(), a.X)
    np.testing.assert_array_equal(a.y, b.y)
    np.testing.assert_array_equal(a.offsets, b.offsets)
    np.testing.assert_array_equal(a.row_weights, b.row_weights)


def test_sparse_integers_become_floats():
    data = GroupedData.build(sparse.csr_matrix(rows(6, dtype=np.int64)), np.zeros(6), SORTED)
    assert data.X.dtype == np.float64
    single = sparse.csr_matrix(rows(6, dtype=np.float32))
    assert GroupedData.build(single, np.zeros(6), SORTED).X.dtype == np.float32


@pytest.mark.parametrize("labels", [SORTED, [4, 1, 0, 1, 0, 1]])
def test_inputs_are_never_written(labels):
    X, y, g = rows(6), np.arange(6.0), np.array(labels)
    w = np.array([0.0, 1.0, 2.0, 1.0, 1.0, 3.0])
    kept = [a.copy() for a in (X, y, g, w)]
    for array in (X, y, g, w):
        array.flags.writeable = False
    data = GroupedData.build(X, y, g, w)
    data.centre()[0]
    for now, then in zip((X, y, g, w), kept, strict=True):
        np.testing.assert_array_equal(now, then)


def test_grouped_data_cannot_be_reassigned():
    data = GroupedData.build(rows(6), np.zeros(6), SORTED)
    with pytest.raises(dataclasses.FrozenInstanceError):
        data.y = np.ones(6)


# -- weights -------------------------------------------------------------------------------


@pytest.mark.parametrize("labels", [SORTED, [4, 1, 0, 1, 0, 1]])
def test_rows_of_zero_weight_are_as_if_not_given(labels):
    rng = np.random.default_rng(2)
    X, y, g = rng.normal(size=(6, 2)), rng.normal(size=6), np.array(labels)
    w = np.array([0.0, 1.5, 2.0, 0.0, 1.0, 3.0])
    kept = w > 0
    a = GroupedData.build(X, y, g, w)
    b = GroupedData.build(X[kept], y[kept], g[kept], w[kept])
    for name in ("X", "y", "labels", "offsets", "row_weights", "totals"):
        np.testing.assert_array_equal(getattr(a, name), getattr(b, name))


def test_a_group_without_weight_disappears():
    data = GroupedData.build(
        rows(5), np.arange(5.0), ["a", "b", "c", "b", "a"], [1.0, 0.0, 2.0, 0.0, 3.0]
    )
    assert data.labels.tolist() == ["a", "c"]
    assert data.offsets.tolist() == [0, 2, 3]
    assert data.y.tolist() == [0.0, 4.0, 2.0]
    assert data.row_weights.tolist() == [1.0, 3.0, 2.0]


def test_equal_weights_are_no_weights():
    data = GroupedData.build(rows(4), np.arange(4.0), [1, 0, 1, 0], np.full(4, 7.0))
    assert data.row_weights.size == 0
    assert data.totals.tolist() == [2.0, 2.0]
    zero_one = GroupedData.build(rows(4), np.arange(4.0), [1, 0, 1, 0], [0.0, 2.0, 2.0, 2.0])
    assert zero_one.row_weights.size == 0
    assert zero_one.y.tolist() == [1.0, 3.0, 2.0]


def test_weights_of_a_range():
    data = GroupedData.build(rows(3), np.zeros(3), None, [1.0, 2.0, 3.0])
    assert data.weights_of(1, 3).tolist() == [2.0, 3.0]
    assert GroupedData.build(rows(3), np.zeros(3)).weights_of(1, 3).tolist() == [1.0, 1.0]


def test_the_shift_centres_the_features_only_where_an_intercept_absorbs_it():
    rng = np.random.default_rng(3)
    X = rng.normal(size=(500, 3)) + [1e6, 0.0, -5.0]
    np.testing.assert_allclose(GroupedData.build(X, np.zeros(500)).centre()[0], X.mean(axis=0))
    assert not GroupedData.build(X, np.zeros(500), intercept=False).centre()[0].any()
    assert not GroupedData.build(sparse.csr_matrix(X), np.zeros(500)).centre()[0].any()
    many = np.repeat(X, 100, axis=0)
    far = GroupedData.build(many, np.zeros(50_000)).centre()[0] - X.mean(axis=0)
    assert np.abs(far).max() < 0.5


# -- refusals ------------------------------------------------------------------------------


def test_lengths_must_match():
    with pytest.raises(ValueError, match="X has 3 rows but y has 4"):
        GroupedData.build(rows(3), np.zeros(4))
    with pytest.raises(ValueError, match=r"each of the 3 rows; got shape \(2,\)"):
        GroupedData.build(rows(3), np.zeros(3), [0, 1])
    with pytest.raises(ValueError, match=r"each of the 4 rows; got shape \(2, 2\)"):
        GroupedData.build(rows(4), np.zeros(4), [[0, 1], [1, 0]])
    with pytest.raises(ValueError, match=r"sample_weight must have shape \(3,\); got \(2,\)"):
        GroupedData.build(rows(3), np.zeros(3), None, [1.0, 1.0])


MISSING = {
    "float nan": np.array([1.0, 0.0, math.nan, math.nan]),
    "None": np.array(["a", "b", None, None], dtype=object),
    "None in a list": ["a", "b", None, None],
    "nan among strings": np.array(["a", "b", math.nan, math.nan], dtype=object),
    "nan among strings in a list": ["a", "b", math.nan, math.nan],
    "NaT": np.array(["2024-01-01", "2024-01-02", "NaT", "NaT"], dtype="datetime64[D]"),
    "pandas NaT": np.array([pd.Timestamp("2024-01-01"), pd.Timestamp(0), pd.NaT, pd.NaT]),
    "pandas dates": pd.Series(pd.to_datetime(["2024-01-01", "2024-01-02", None, None])),
    "pandas NA": pd.Series([1, 2, pd.NA, pd.NA], dtype="Int64"),
    "pandas NA string": pd.Series(["a", "b", pd.NA, pd.NA], dtype="string"),
    "pandas default string": pd.Series(["a", "b", None, None]),
    "categorical": pd.Categorical(["a", "b", None, None]),
    "nullable float": pd.Series([0.5, 1.5, None, None], dtype="Float64"),
}


@pytest.mark.parametrize("kind", MISSING)
def test_a_missing_label_is_refused_and_its_row_named(kind):
    with pytest.raises(ValueError, match=r"missing at 2 row\(s\), first at row 2"):
        GroupedData.build(rows(4), np.zeros(4), MISSING[kind])


@pytest.mark.parametrize(
    "labels", [np.array([1, "a", 2], dtype=object), [1, "a", 2], [dt.date(2024, 1, 1), 3, 4]]
)
def test_labels_that_cannot_be_sorted_together_are_refused(labels):
    with pytest.raises(TypeError, match="cannot be sorted together") as caught:
        GroupedData.build(rows(3), np.zeros(3), labels)
    assert "int" in str(caught.value)


@pytest.mark.parametrize("bad", [-1.0, math.nan, math.inf, -1e-300])
def test_bad_weights_are_refused(bad):
    with pytest.raises(ValueError, match="sample_weight must be finite and not negative"):
        GroupedData.build(rows(3), np.zeros(3), None, [1.0, bad, 1.0])


def test_no_weight_at_all_is_refused():
    with pytest.raises(ValueError, match="zero for every row"):
        GroupedData.build(rows(3), np.zeros(3), None, np.zeros(3))
