"""Memberships, their patterns, and what is said about how groups overlap."""

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

import counterpoise
from counterpoise import Memberships, side_by_side
from counterpoise.rows.groups import OverlappingGroups, encode_groups
from counterpoise.rows.memberships import Overlap, RowGroups, as_memberships, from_keys

matrices = (
    st.integers(1, 5)
    .flatmap(
        lambda K: st.lists(
            st.lists(st.sampled_from([0.0, 0.0, 0.25, 1.0, 1.0]), min_size=K, max_size=K),
            min_size=1,
            max_size=12,
        )
    )
    .map(np.array)
)


def test_columns_are_sorted_by_label():
    found = Memberships([[1, 0.5], [0, 1]], labels=["women", "north"])
    assert found.labels.tolist() == ["north", "women"]
    np.testing.assert_array_equal(found.matrix.toarray(), [[0.5, 1.0], [1.0, 0.0]])
    assert len(found) == 2
    assert found.shape == (2, 2)
    assert Memberships(np.eye(3)).labels.tolist() == [0, 1, 2]
    assert "in 2 groups: 'north', 'women'" in repr(found)


@pytest.mark.parametrize(
    "kind", [np.array, sparse.csc_matrix, sparse.coo_array, pd.DataFrame, lambda m: m.tolist()]
)
def test_kinds_of_matrices(kind):
    matrix = np.array([[1.0, 0.0, 0.5], [0.0, 0.0, 0.0], [1.0, 1.0, 0.0]])
    found = as_memberships(kind(matrix))
    np.testing.assert_array_equal(found.matrix.toarray(), matrix)
    assert found.labels.tolist() == [0, 1, 2]


@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame])
def test_frames_name_the_groups(frame):
    columns = {"women": [True, False, True], "north": [False, False, True]}
    found = as_memberships(frame(columns))
    assert found.labels.tolist() == ["north", "women"]
    np.testing.assert_array_equal(found.matrix.toarray(), [[0, 1], [0, 0], [1, 1]])


def test_labels_are_no_memberships():
    for labels in (["a", "b"], np.array([0, 1]), np.array([[0], [1]]), pd.Series([1, 2]), None):
        assert as_memberships(labels) is None


@pytest.mark.parametrize("kind", [dict, pd.DataFrame, pl.DataFrame, lambda c: pl.LazyFrame(c)])
def test_side_by_side(kind):
    columns = {"sex": ["f", "m", "f"], "age": [30, 40, 40]}
    found = side_by_side(kind(columns))
    assert found.labels.tolist() == ["age=30", "age=40", "sex=f", "sex=m"]
    np.testing.assert_array_equal(
        found.matrix.toarray(), [[1, 0, 1, 0], [0, 1, 0, 1], [0, 1, 1, 0]]
    )
    assert counterpoise.side_by_side is side_by_side


@pytest.mark.parametrize(
    ("make", "kind", "message"),
    [
        (lambda: Memberships([1, 0]), ValueError, r"got shape \(2,\)"),
        (lambda: Memberships([[1, -1]]), ValueError, "not negative; found -1.0"),
        (lambda: Memberships([[1, np.nan]]), ValueError, "finite"),
        (lambda: Memberships([["a", "b"]]), TypeError, "must be numbers"),
        (lambda: Memberships(np.ones((2, 2)), ["a"]), ValueError, "each of the 2 groups"),
        (lambda: Memberships(np.ones((2, 2)), ["a", "a"]), ValueError, "more than once: .'a'"),
        (lambda: Memberships(np.ones((2, 2)), ["a", 1]), TypeError, "all text or all whole"),
        (lambda: Memberships(np.ones((2, 0))), ValueError, "at least one column"),
        (lambda: as_memberships(np.array([[1, 2], [3, 1]])), ValueError, "got 3. Use side_by_side"),
        (
            lambda: as_memberships(pd.DataFrame({"a": ["x"], "b": ["y"]})),
            TypeError,
            "Use side_by_side",
        ),
        (lambda: side_by_side(np.ones((2, 2))), TypeError, "use Memberships"),
        (lambda: side_by_side({}), ValueError, "got none"),
        (lambda: side_by_side({"a": ["x", None]}), ValueError, "column 'a': groups is missing"),
        (lambda: side_by_side({"a": ["x", "y"], "b": [1]}), ValueError, "column 'b'"),
        (lambda: encode_groups(Memberships([[1, 1]]), 1), OverlappingGroups, "one label"),
        (lambda: encode_groups(np.ones((3, 2)), 3), OverlappingGroups, r"shape \(3, 2\)"),
        (lambda: RowGroups.of(Memberships(np.eye(3)), 2), ValueError, "of 3 rows, but X has 2"),
    ],
)
def test_errors(make, kind, message):
    with pytest.raises(kind, match=message):
        make()


def test_shares_above_one_must_be_meant():
    assert Memberships([[3.0, 1.0]]).matrix.max() == 3.0


@given(matrices)
def test_patterns_are_the_distinct_rows(matrix):
    codes, patterns = Memberships(matrix).patterns
    np.testing.assert_array_equal(patterns.toarray()[codes], matrix)
    assert patterns.shape[0] == len(np.unique(matrix, axis=0))


def test_patterns_survive_a_collision_of_hashes(monkeypatch):
    monkeypatch.setattr(
        "counterpoise.rows.memberships._row_hashes", lambda m: np.zeros(m.shape[0], np.uint64)
    )
    matrix = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0], [0.5, 0.0]])
    codes, patterns = Memberships(matrix).patterns
    np.testing.assert_array_equal(patterns.toarray()[codes], matrix)
    assert patterns.shape[0] == 3


@given(matrices)
def test_keys_stand_for_patterns(matrix):
    found = Memberships(matrix, [f"g{k}" for k in range(matrix.shape[1])])
    keys = found.keys()
    again = from_keys(keys.tolist())
    there = np.flatnonzero(matrix.any(axis=0))
    assert again.labels.tolist() == found.labels[there].tolist()
    np.testing.assert_array_equal(again.matrix.toarray(), matrix[:, there])
    assert len(set(keys)) == len(np.unique(matrix, axis=0))


def test_selections():
    found = Memberships(np.eye(4))
    for rows in (slice(1, 3), np.array([1, 2]), np.array([False, True, True, False])):
        np.testing.assert_array_equal(found[rows].matrix.toarray(), np.eye(4)[1:3])
        np.testing.assert_array_equal(found[rows, ...].matrix.toarray(), np.eye(4)[1:3])


# ---------------------------------------------------------------- what is said


@settings(max_examples=60)
@given(matrices, st.integers(1, 12))
def test_nested_groups_are_found_in_any_pieces(matrix, size):
    names = [f"g{k}" for k in range(matrix.shape[1])]
    overlap = Overlap()
    for lo in range(0, len(matrix), size):
        part = matrix[lo : lo + size]
        there = np.flatnonzero(part.any(axis=0))  # pieces know only their own groups
        own = Memberships(part[:, there], [names[k] for k in there]) if there.size else (
            Memberships.of(sparse.csr_matrix((len(part), 0)), np.array([], dtype=str))
        )  # fmt: skip
        overlap.add(own)
    for a, g in enumerate(overlap.labels):
        for b, h in enumerate(overlap.labels):
            inside = g != h and bool((matrix[:, int(g[1:])] <= matrix[:, int(h[1:])]).all())
            assert overlap.within[a, b] == inside, (g, h)
    sums = matrix.sum(axis=1)
    assert overlap.even == (sums[0] > 0 and bool(np.ptp(sums) < 1e-9))
    assert overlap.rows == len(matrix)
    assert overlap.outside == int((sums == 0).sum())
    assert overlap.several == int(((matrix > 0).sum(axis=1) > 1).sum())


def test_sentences():
    matrix = np.array([[1, 1, 1, 0], [1, 1, 0, 0], [0, 0, 0, 1], [0, 0, 0, 0]])
    found = Memberships(matrix, ["all", "all again", "few", "other"]).overlap()
    assert found.summary() == [
        "Groups overlap: 2 of 4 rows belong to several.",
        "1 row belongs to no group and counts in averages over rows only.",
        "Some groups are nested: 'all' and 'all again' have the same rows, 'few' lies within "
        "'all', 'few' lies within 'all again'.",
    ]
    many = Memberships(np.tril(np.ones((6, 6)))).overlap().notes()
    assert many[0].endswith("and so on for 12 more pairs.")
    assert RowGroups.of(["a", "b"], 2).notes() == []


# ---------------------------------------------------------------- rows and their groups


@given(matrices, st.randoms(use_true_random=False))
def test_sums_by_group(matrix, random):
    rng = np.random.default_rng(random.randrange(1000))
    n = len(matrix)
    values, weights = rng.normal(size=n), rng.uniform(size=n)
    groups = RowGroups.of(Memberships(matrix), n)
    there = matrix.any(axis=0)
    np.testing.assert_allclose(groups.sums(values), matrix[:, there].T @ values, atol=1e-12)
    np.testing.assert_allclose(
        groups.sums(values, weights), matrix[:, there].T @ (values * weights), atol=1e-12
    )
    rows = rng.permutation(n)[: max(1, n // 2)]
    part = groups.take(rows)
    np.testing.assert_allclose(
        part.sums(values[rows]), matrix[np.ix_(rows, there)].T @ values[rows], atol=1e-12
    )
    np.testing.assert_array_equal(part.sizes, (matrix[np.ix_(rows, there)] > 0).sum(axis=0))


def test_a_label_per_row_is_one_membership():
    groups = RowGroups.of(["b", "a", "b"], 3)
    assert groups.given.tolist() == ["b", "a", "b"]
    assert groups.sizes.tolist() == [1, 2]
    assert groups.take(np.array([0, 2])).given.tolist() == ["b", "b"]
    moved = groups.take(np.array([0])).among(np.array(["a", "b"]))
    assert moved.sums(np.ones(1)).tolist() == [0.0, 1.0]
    with pytest.raises(ValueError, match="'b', which is not a group of the fit"):
        groups.among(np.array(["a"]))
