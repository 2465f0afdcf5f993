"""Folds that follow from the rows themselves."""

import numpy as np
import pytest
from scipy import sparse

from counterpoise.rows.fold_cut import FoldCut, row_hashes


def table(n=4000, d=5, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, d)), rng.normal(size=n)


def test_folds_do_not_depend_on_the_order_of_rows():
    X, y = table()
    cut, order = FoldCut(np.array([0]), 5), np.random.default_rng(1).permutation(len(y))
    np.testing.assert_array_equal(cut.folds(X[order], y[order]), cut.folds(X, y)[order])


def test_folds_do_not_depend_on_how_rows_are_stored():
    X, y = table()
    X = np.where(X > 0, X, 0.0).astype(np.float32)
    expected = row_hashes(X, y)
    np.testing.assert_array_equal(row_hashes(X.astype(float), y), expected)
    np.testing.assert_array_equal(row_hashes(sparse.csr_matrix(X), y), expected)
    np.testing.assert_array_equal(row_hashes(np.asfortranarray(X), y), expected)
    found = sparse.csr_matrix(X, dtype=float)
    halves = sparse.csr_matrix(
        (np.repeat(found.data / 2, 2), np.repeat(found.indices, 2), 2 * found.indptr), X.shape
    )
    np.testing.assert_array_equal(row_hashes(halves, y), expected)
    assert halves.nnz == 2 * found.nnz  # which stays as it is
    negative_zero = np.where(X == 0, -0.0, X)
    np.testing.assert_array_equal(row_hashes(negative_zero, y), expected)


def test_every_number_of_a_row_matters():
    X, y = table(n=50)
    before = row_hashes(X, y)
    for j in range(X.shape[1]):
        other = X.copy()
        other[:, j] = np.nextafter(other[:, j], np.inf)
        assert (row_hashes(other, y) != before).all()
    assert (row_hashes(X, np.nextafter(y, np.inf)) != before).all()
    swapped = X[:, ::-1]
    assert (row_hashes(swapped, y) != before).all()


@pytest.mark.parametrize("n_folds", [2, 5, 7])
def test_folds_have_about_the_same_size(n_folds):
    X, y = table(n=20_000)
    sizes = np.bincount(FoldCut(np.array([0]), n_folds).folds(X, y), minlength=n_folds)
    expected = len(y) / n_folds
    assert np.abs(sizes - expected).max() < 5 * np.sqrt(expected)


def test_seeds_give_independent_folds():
    X, y = table(n=20_000)
    first, second = (FoldCut(np.array([0]), 5, seed).folds(X, y) for seed in (0, 1))
    assert abs((first == second).mean() - 0.2) < 0.02


def test_rows_that_differ_in_group_or_weight_keep_their_folds_in_any_order():
    """Also if their features and labels are equal: another order is no other partition."""
    X, y, rng = np.ones((400, 3)), np.zeros(400), np.random.default_rng(0)
    groups, weights = rng.integers(4, size=400), rng.uniform(size=400)
    cut, order = FoldCut(np.arange(4), 5), rng.permutation(400)
    cells = cut.cells(X, y, groups, weights)
    found = cut.cells(X, y, groups[order], weights[order])
    np.testing.assert_array_equal(found, cells[order])
    assert np.bincount(cut.origin(cells)[1]).min() > 50
    # Of equal rows, so many are in each fold, whichever they are.
    few = cut.cells(X, y, groups, None)
    np.testing.assert_array_equal(np.sort(cut.cells(X, y, groups[order], None)), np.sort(few))


def test_weights_of_one_are_as_none():
    X, y = table()
    np.testing.assert_array_equal(row_hashes(X, y, 0, np.ones(len(y))), row_hashes(X, y))
    assert (row_hashes(X, y, 0, np.full(len(y), 2.0)) != row_hashes(X, y)).all()


def test_equal_rows_are_dealt_out_evenly():
    X, y = np.ones((101, 3)), np.zeros(101)
    sizes = np.bincount(FoldCut(np.array([0]), 5).folds(X, y), minlength=5)
    assert sorted(sizes) == [20, 20, 20, 20, 21]


def test_cells_name_group_and_fold():
    X, y = table(n=30)
    cut = FoldCut(np.array(["a", "b", "c"]), 4)
    numbers = cut.numbers(np.array(["a", "c"]), "chunk 0")[np.arange(30) % 2]
    groups, folds = cut.origin(cut.cells(X, y, numbers, None))
    np.testing.assert_array_equal(groups, 2 * (np.arange(30) % 2))
    np.testing.assert_array_equal(folds, cut.folds(X, y, numbers))


def test_a_new_group_is_an_error():
    with pytest.raises(ValueError, match=r"chunk 2: group 'd' was not there on the first pass"):
        FoldCut(np.array(["a", "b"]), 2).numbers(np.array(["d"]), "chunk 2")
