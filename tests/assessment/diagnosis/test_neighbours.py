"""Floors from rows that are alike: closed forms, and a law whose Bayes error is known."""

import math

import numpy as np
import pytest
from scipy.stats import norm

from counterpoise.assessment.diagnosis.neighbours import alike_rows, bayes_bound


def test_tied_rows_by_hand():
    X = np.array([[0.0], [0.0], [0.0], [1.0], [1.0], [2.0]])
    y = np.array([0, 0, 1, 1, 0, 1])
    assert alike_rows(X, y, 2).tied == pytest.approx(2 / 6)
    weighted = alike_rows(X, y, 2, np.array([1.0, 1, 1, 1, 1, 5]))
    assert weighted.tied == pytest.approx(2 / 10)


def test_no_function_of_the_features_is_better_than_the_tied_share():
    from sklearn.tree import DecisionTreeClassifier

    rng = np.random.default_rng(0)
    X, y = rng.integers(0, 3, size=(300, 2)).astype(float), rng.integers(0, 3, 300)
    best = 1 - DecisionTreeClassifier().fit(X, y).score(X, y)
    assert alike_rows(X, y, 3).tied == pytest.approx(best)


def test_bound_inverts_cover_and_hart():
    for classes in (2, 3, 10):
        for e in (0.0, 0.05, 0.2, 0.4):
            most = e * (2 - classes * e / (classes - 1))
            assert bayes_bound(most, classes) == pytest.approx(e, abs=1e-12)
    assert bayes_bound(0.9, 2) == 0.5


def test_the_bayes_error_of_two_normals_lies_between():
    rng = np.random.default_rng(1)
    y = rng.integers(0, 2, 4000)
    X = rng.normal(size=(4000, 2)) + y[:, None] * [1.5, 0.0]
    exact = norm.cdf(-0.75)
    found = alike_rows(X, y, 2)
    assert found.bayes < exact < found.neighbours < 2 * exact
    assert found.bayes > 0.7 * exact
    assert found.tied == 0.0


def test_flipped_labels_are_found():
    rng = np.random.default_rng(2)
    X = rng.normal(size=(3000, 2))
    y = (X[:, 0] > 0).astype(int) ^ (rng.random(3000) < 0.2)
    assert 0.15 < alike_rows(X, y, 2).bayes < 0.21


def test_few_rows_and_many_features_are_not_measured():
    rng = np.random.default_rng(0)
    for n, d in ((20, 2), (100, 60)):
        found = alike_rows(rng.normal(size=(n, d)), rng.integers(0, 2, n), 2)
        assert math.isnan(found.neighbours)
        assert math.isnan(found.bayes)
        assert found.tied == 0.0
