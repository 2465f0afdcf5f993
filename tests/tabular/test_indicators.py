"""Columns as numbers: learned in one pass, encoded alike from everywhere."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import asdict

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from table_files import COLUMNS, KINDS, write

from counterpoise.common.toml import build
from counterpoise.tabular import (
    DataError,
    Feature,
    TableLayout,
    layout,
    learn_layout,
    open_table,
    read_rows,
)  # fmt: skip
from counterpoise.tabular.indicators import encode

NAMES = ("size", "rooms", "new", "town=B, C", "town=Ü")
X = [
    [1.5, 1, 1, 0, 0],
    [-2.0, 2, 0, 1, 0],
    [3.25, 3, 1, 0, 1],
    [4.0, 2, 1, 0, 0],
    [0.0, 1, 0, 1, 0],
]


def learn(data, target="y", **options):
    return learn_layout(data, target=target, **options)


# -- encoding --------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_every_format_is_encoded_alike(kind, tmp_path):
    table = open_table(write(kind, tmp_path))
    found = learn_layout(table, target="price")
    expected = (
        Feature("size", "number"),
        Feature("rooms", "number"),
        Feature("new", "boolean"),
        Feature("town", "category", ("A", "B, C", "Ü")),
    )
    assert found.layout == TableLayout("price", (), None, expected)
    assert found.layout.names == NAMES
    assert found.layout.width == 5
    np.testing.assert_array_equal(encode(found.layout, table), X)
    assert (found.rows, found.dropped, found.filled, found.groups) == (5, 0, {}, {})


def test_frames_are_encoded_like_files():
    columns = learn_layout(COLUMNS, target="price").layout
    category = pd.DataFrame(COLUMNS).astype({"town": "category", "size": "float32"})
    small = pa.table(COLUMNS).cast(
        pa.schema(
            {"size": pa.float16(), "rooms": pa.uint8(), "new": pa.bool_(),
             "town": pa.string_view(), "price": pa.decimal128(9, 2)}
        )
    )  # fmt: skip
    lazy = pl.DataFrame(COLUMNS).with_columns(pl.col("town").cast(pl.Categorical))
    for data in (pd.DataFrame(COLUMNS), category, pl.DataFrame(COLUMNS), lazy, small):
        np.testing.assert_array_equal(encode(columns, data), X)
        assert learn_layout(data, target="price").layout == columns


cells = st.none() | st.text(alphabet="abé|= ,", max_size=2)
numerals = st.none() | st.floats(-1e6, 1e6) | st.just(float("nan"))


@st.composite
def frames(draw):
    n = draw(st.integers(1, 12))

    def column(values):
        return draw(st.lists(values, min_size=n, max_size=n))

    return {
        "a": pa.array(column(numerals), pa.float64()),
        "b": pa.array(column(cells), pa.string()),
        "c": pa.array(column(st.none() | st.integers(-9, 9)), pa.int32()),
        "d": pa.array(column(st.none() | st.booleans()), pa.bool_()),
        "y": pa.array(column(st.integers(0, 9)), pa.int64()),
    }


def naive(data, missing):
    """Rows as lists of numbers, one value at a time; None where nothing can be learned."""
    table = {
        name: [None if v != v else v for v in column.to_pylist()] for name, column in data.items()
    }
    rows = [dict(zip(table, row, strict=True)) for row in zip(*table.values(), strict=True)]
    if missing == "drop":
        rows = [row for row in rows if None not in row.values()]
    if not rows or any(all(row[name] is None for row in rows) for name in "abcd"):
        return None
    out = [[] for _ in rows]
    for name in "abcd":
        values = [row[name] for row in rows]
        if name in "bc":
            values = ["(missing)" if v is None else str(v) for v in values]
            counts = Counter(values)
            real = sorted(
                (v for v in counts if v != "(missing)"), key=int if name == "c" else lambda v: v
            )
            levels = real + ["(missing)"] * ("(missing)" in counts)
            base = max(levels, key=counts.__getitem__)
            for level in levels:
                if level != base:
                    for line, value in zip(out, values, strict=True):
                        line.append(float(value == level))
        else:
            there = [v for v in values if v is not None]
            for line, value in zip(out, values, strict=True):
                line.append(float(np.mean(there) if value is None else value))
    return np.array(out), [row["y"] for row in rows]


@settings(max_examples=150, deadline=None)
@given(frames(), st.sampled_from(["drop", "impute"]))
def test_encoding_is_the_naive_one(data, missing):
    expected = naive(data, missing)
    if expected is None:
        with pytest.raises(DataError, match=r"drop=\["):
            learn(data, missing=missing, categorical=["c"])
        return
    found = learn(data, missing=missing, categorical=["c"])
    rows = read_rows(data, found.layout)
    np.testing.assert_allclose(rows.X, expected[0], rtol=1e-12, atol=1e-300)
    np.testing.assert_array_equal(rows.y, expected[1])
    assert rows.X.shape[1] == found.layout.width == len(found.layout.names)
    assert found.used == len(rows) == len(rows.kept)


@settings(max_examples=50, deadline=None)
@given(frames())
def test_columns_go_through_json(data):
    try:
        found = learn(data, missing="impute", group=["b"], features=["a", "b", "d"]).layout
    except DataError:
        return
    again = build(TableLayout, json.loads(json.dumps(asdict(found))))
    assert again == found
    np.testing.assert_array_equal(encode(again, data), encode(found, data))


def test_the_base_is_the_most_frequent_level_and_the_first_of_equals():
    data = {"t": ["b", "c", "a", "c", "b"], "n": [10, 9, 10, 9, 2], "y": [0.0] * 5}
    found = learn(data, categorical=["n"]).layout
    assert [f.levels for f in found.features] == [("b", "a", "c"), ("9", "2", "10")]
    assert found.names == ("t=a", "t=c", "n=2", "n=10")


def test_numbers_that_are_categories_are_the_same_as_floats():
    found = learn({"n": [1, 2, 2], "y": [1, 2, 3]}, categorical=["n"]).layout
    np.testing.assert_array_equal(encode(found, {"n": [2.0, 1.0]}), [[0.0], [1.0]])
    np.testing.assert_array_equal(encode(found, {"n": ["2", "1"]}), [[0.0], [1.0]])
    half = pa.array(np.array([2.0, 1.0], dtype=np.float16))
    np.testing.assert_array_equal(encode(found, {"n": half}), [[0.0], [1.0]])


def test_dictionaries_may_hold_missing_and_repeated_values():
    words = pa.DictionaryArray.from_arrays(pa.array([0, 1, 2, None, 3]), ["a", "b", None, "b"])
    found = learn({"t": words, "y": [1, 2, 3, 4, 5]}, missing="impute")
    assert found.filled == {"t": 2}
    assert found.layout.features[0].levels == ("b", "a", "(missing)")
    numbers = pa.array([3, 1, 3]).dictionary_encode()
    assert learn({"t": numbers, "y": [1, 2, 3]}).layout.names == ("t=1",)


def test_wide_and_sparse_rows_are_csr(monkeypatch):
    rng = np.random.default_rng(0)
    data = {
        "t": [f"level {i:02}" for i in rng.integers(0, 40, 300)],
        "a": rng.integers(0, 2, 300).astype(float),
        "y": rng.normal(size=300),
    }
    found = learn(data).layout
    dense = encode(found, data)
    assert isinstance(dense, np.ndarray)
    monkeypatch.setattr(layout, "DENSE_BYTES", 8 * 300 * found.width)
    assert isinstance(encode(found, data), np.ndarray), "just fits"
    monkeypatch.setattr(layout, "DENSE_BYTES", 8 * 300 * found.width - 1)
    for wide in (encode(found, data), read_rows(data, found).X):
        assert sparse.issparse(wide)
        assert wide.format == "csr"
        assert wide.nnz == np.count_nonzero(dense)
        np.testing.assert_array_equal(wide.toarray(), dense)
    few = learn({"t": ["a", "b"] * 150, "y": data["y"]}).layout
    assert not few.is_sparse(10**9), "every second number is a one"


# -- unseen and missing ----------------------------------------------------------------------


def test_unseen_categories_are_refused_or_the_base():
    found = learn({"town": ["A", "A", "B"], "y": [1, 2, 3]}).layout
    data = {"town": ["B", "C", "D", "C", "A"]}
    with pytest.raises(DataError, match=r"'town'.*: 'C', 'D'; it knows 'A', 'B'.*unseen='base'"):
        encode(found, data)
    np.testing.assert_array_equal(encode(found, data, unseen="base"), [[1], [0], [0], [0], [0]])
    with pytest.raises(ValueError, match=r"unseen must be one of 'refuse', 'base'; got 'drop'"):
        encode(found, data, unseen="drop")


def test_columns_that_are_not_there_are_listed():
    found = learn({"town": ["A", "B"], "size": [1, 2], "y": [1, 2]}).layout
    with pytest.raises(DataError, match=r"no feature columns 'town', 'size'; did you mean 'Town'"):
        encode(found, {"Town": ["A"]})


def test_missing_values_are_refused_with_counts_and_remedies():
    data = {
        "a": [1.0, None, float("nan")], "b": ["x", "y", None], "c": [1, 2, 3], "y": [1, 2, 3],
    }  # fmt: skip
    with pytest.raises(DataError, match=r"'a' \(2\), 'b' \(1\);.*missing='drop'.*missing='impute'"):
        learn(data)
    found = learn({**data, "a": [1.0, 2.0, 3.0], "b": ["x", "y", "x"]}).layout
    with pytest.raises(DataError, match=r"'a' \(2\), 'b' \(1\); leave these rows out or fill"):
        encode(found, data)


def test_rows_with_missing_values_are_left_out():
    data = {
        "a": [1.0, None, 3.0, 4.0, 5.0], "b": ["x", "y", None, "z", "z"],
        "g": ["u", "u", "u", None, "v"], "y": [1.0, 2.0, 3.0, 4.0, 5.0],
        "unused": [None] * 4 + ["q"],
    }  # fmt: skip
    found = learn(data, group="g", missing="drop", drop=["unused"])
    assert (found.rows, found.dropped, found.used, found.filled) == (5, 3, 2, {})
    assert found.groups == {"u": 1, "v": 1}
    assert found.layout.features[1].levels == ("x", "z"), "levels of rows that are used"
    rows = read_rows(data, found.layout)
    assert rows.kept.tolist() == [0, 4]
    assert rows.X.tolist() == [[1.0, 0.0], [5.0, 1.0]]
    with pytest.raises(DataError, match=r"every row .*most often in 'a'.*missing='impute'"):
        learn({**data, "a": [None, 1.0, None, None, None], "b": ["x", None, "y", "z", "z"]},
              missing="drop", drop=["unused"])  # fmt: skip


def test_missing_values_are_filled_in():
    data = {
        "a": [1.0, None, 3.0], "b": ["x", None, "x"], "d": [True, None, False], "g": [1, None, 2],
        "y": [1, 2, 3],
    }  # fmt: skip
    found = learn(data, group="g", missing="impute")
    assert found.filled == {"a": 1, "b": 1, "d": 1, "g": 1}
    assert found.layout.names == ("a", "b=(missing)", "d")
    assert [f.fill for f in found.layout.features] == [2.0, None, 0.5]
    rows = read_rows(data, found.layout)
    assert rows.X.tolist() == [[1, 0, 1], [2, 1, 0.5], [3, 0, 0]]
    assert rows.groups.tolist() == ["1", "(missing)", "2"]
    assert found.groups == {"1": 1, "(missing)": 1, "2": 1}
    later = encode(found.layout, {"a": [None], "b": ["x"], "d": [None]})
    assert later.tolist() == [[2, 0, 0.5]]


def test_a_category_that_was_never_missing_is_the_base_where_it_is():
    data = {"a": [1.0, 2.0, 3.0], "b": ["x", "y", "y"], "y": [1, 2, 3]}
    found = learn(data, missing="impute").layout
    assert found.names == ("a", "b=x")
    later = {"a": [None, 5.0, 1.0], "b": ["x", None, "y"]}
    for unseen in ("refuse", "base"):
        assert encode(found, later, unseen).tolist() == [[2, 1], [5, 0], [1, 0]]
    with pytest.raises(DataError, match=r"'b' has values that the fit never saw: 'z'; it knows"):
        encode(found, {"a": [1.0, 1.0], "b": [None, "z"]})
    with pytest.raises(DataError, match=r"missing in the columns 'a' \(1\), 'b' \(1\)"):
        encode(learn(data).layout, later)


@pytest.mark.parametrize("role", ["target", "weight"])
def test_labels_and_weights_are_not_imputed(role):
    data = {"a": [1, 2, 3], "y": [1.0, 2.0, 3.0], "w": [1.0, 1.0, 2.0]}
    name = {"target": "y", "weight": "w"}[role]
    data[name] = [1.0, None, 2.0]
    with pytest.raises(DataError, match=rf"'{name}' \(1\);.*missing='drop'"):
        learn(data, weight="w", missing="impute")
    with pytest.raises(DataError, match=rf"'{name}' \(1\)"):
        learn(data, weight="w")
    assert learn(data, weight="w", missing="drop").dropped == 1


def test_infinity_is_refused():
    for name in ("a", "y", "w"):
        data = {"a": [1.0, 2.0], "y": [1.0, 2.0], "w": [1.0, 2.0], name: [1.0, float("-inf")]}
        with pytest.raises(DataError, match=rf"'{name}' has 1 infinite value"):
            learn(data, weight="w", missing="impute")


def test_booleans_stay_so():
    found = learn({"d": [True, False], "y": [1, 2]}).layout
    assert encode(found, {"d": [1, 0, 1]}).tolist() == [[1], [0], [1]]
    with pytest.raises(DataError, match=r"'d' was true or false .*has 2 now"):
        encode(found, {"d": [1, 2]})
    with pytest.raises(DataError, match=r"'d' holds text where numbers are needed, such as 'yes'"):
        encode(found, {"d": ["1", "yes"]})
