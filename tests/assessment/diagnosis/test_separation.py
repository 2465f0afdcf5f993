"""Separation by a linear score: constructed cases, and a perceptron as a second opinion."""

import numpy as np
import pytest
from sklearn.linear_model import Perceptron

from counterpoise.assessment.diagnosis import separation
from counterpoise.assessment.diagnosis.separation import separates


def test_constructed():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 5))
    w = rng.normal(size=5)
    y = (X @ w + 0.3 > 0).astype(int)
    assert separates(X, y, 2, intercept=True)
    assert not separates(X, y, 2, intercept=False), "the threshold is not zero"
    y[0] = 1 - y[0]
    flipped = separates(X, y, 2, intercept=True)
    assert flipped == (Perceptron(max_iter=5000, tol=None).fit(X, y).score(X, y) == 1.0)


def test_three_classes():
    rng = np.random.default_rng(1)
    X = rng.normal(size=(200, 2))
    y = np.argmax(X @ rng.normal(size=(2, 3)) + [0.1, 0.0, -0.1], axis=1)
    assert separates(X, y, 3, intercept=True)
    y[np.argmin(np.abs(X).sum(axis=1))] = (y[np.argmin(np.abs(X).sum(axis=1))] + 1) % 3
    noisy = np.where(rng.random(200) < 0.2, rng.integers(0, 3, 200), y)
    assert not separates(X, noisy, 3, intercept=True)


def test_more_features_than_rows_always_separate():
    rng = np.random.default_rng(2)
    assert separates(rng.normal(size=(20, 30)), rng.integers(0, 2, 20), 2, intercept=True)


@pytest.mark.parametrize("classes", [2, 4])
def test_a_class_without_rows_does_not_matter(classes):
    X = np.arange(6.0)[:, None]
    assert separates(X, np.repeat([0, 1], 3), classes, intercept=True)
    assert separates(X, np.zeros(6, int), classes, intercept=True)


def test_too_many_rows_are_not_decided(monkeypatch):
    monkeypatch.setattr(separation, "MOST_NUMBERS", 10)
    assert separates(np.arange(8.0)[:, None], np.repeat([0, 1], 4), 2, intercept=True) is None
