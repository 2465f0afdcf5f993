"""Metrics of classifiers by group: against scikit-learn, closed forms, weights, bad input."""

import numpy as np
import pytest
from sklearn import config_context
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import balanced_accuracy_score, log_loss, make_scorer, zero_one_loss
from sklearn.model_selection import cross_val_score

from counterpoise import (
    group_balanced_errors,
    group_errors,
    group_log_losses,
    worst_group_balanced_error,
    worst_group_error,
    worst_group_log_loss,
)
from counterpoise.assessment.metrics import balanced_weights


def rows(seed=0, n=300, classes=3):
    rng = np.random.default_rng(seed)
    y = np.array(["ape", "bat", "cat"])[rng.integers(0, classes, n)]
    proba = rng.dirichlet(np.ones(classes), n)
    said = np.array(["ape", "bat", "cat"])[proba.argmax(axis=1)]
    return y, said, proba, rng.integers(0, 4, n), rng.exponential(size=n)


@pytest.mark.parametrize("weighted", [False, True])
def test_every_group_is_as_scikit_learn_has_it(weighted):
    y, said, proba, g, w = rows()
    weights = w if weighted else None
    errors = group_errors(y, said, groups=g, sample_weight=weights)
    losses = group_log_losses(y, proba, groups=g, sample_weight=weights)
    balanced = group_balanced_errors(y, said, groups=g, sample_weight=weights)
    for k in range(4):
        own = g == k
        part = w[own] if weighted else None
        assert errors[k] == pytest.approx(zero_one_loss(y[own], said[own], sample_weight=part))
        assert losses[k] == pytest.approx(
            log_loss(y[own], proba[own], sample_weight=part, labels=["ape", "bat", "cat"])
        )
        assert balanced[k] == pytest.approx(
            1 - balanced_accuracy_score(y[own], said[own], sample_weight=part)
        )
    keywords = dict(groups=g, sample_weight=weights)
    assert worst_group_error(y, said, **keywords) == max(errors.values())
    assert worst_group_log_loss(y, proba, **keywords) == max(losses.values())
    assert worst_group_balanced_error(y, said, **keywords) == max(balanced.values())


def test_a_class_that_a_group_lacks_does_not_count_there():
    y = np.array([0, 0, 0, 1, 2, 2, 2, 2])
    said = np.array([0, 0, 1, 0, 2, 2, 2, 0])
    g = np.repeat(["a", "b"], 4)
    assert group_balanced_errors(y, said, groups=g) == {
        "a": pytest.approx((1 / 3 + 1) / 2),  # classes 0 and 1 alone
        "b": pytest.approx(1 / 4),  # class 2 alone: the plain error
    }


def test_balanced_weights_keep_the_total_of_every_group():
    y, _, _, g, w = rows(3)
    classes = np.unique(y, return_inverse=True)[1]
    found = balanced_weights(classes, g, w)
    np.testing.assert_allclose(np.bincount(g, found), np.bincount(g, w))
    for k in range(4):
        shares = np.bincount(classes[g == k], found[g == k])
        np.testing.assert_allclose(shares, shares[0])


def test_probabilities_of_two_classes_in_one_dimension():
    y, p, g = np.array([0, 1, 1, 0]), np.array([0.2, 0.9, 0.4, 0.0]), np.array([0, 0, 1, 1])
    both = np.column_stack([1 - p, p])
    assert group_log_losses(y, p, groups=g) == group_log_losses(y, both, groups=g)
    assert group_log_losses(y, p, groups=g)[0] == pytest.approx(-np.log(0.8 * 0.9) / 2)


def test_certain_and_wrong_is_finite():
    found = worst_group_log_loss([0, 1], [1.0, 0.0], groups=[0, 0])
    assert found == pytest.approx(log_loss([0, 1], [1.0, 0.0]))


def test_classes_missing_from_the_rows():
    proba = np.array([[0.2, 0.3, 0.5], [0.1, 0.1, 0.8]])
    found = worst_group_log_loss(["b", "c"], proba, groups=[0, 1], classes=["a", "b", "c"])
    assert found == pytest.approx(-np.log(0.3))
    with pytest.raises(ValueError, match=r"classes=model\.classes_"):
        worst_group_log_loss(["b", "c"], proba, groups=[0, 1])
    with pytest.raises(ValueError, match="label 'd'"):
        worst_group_log_loss(["b", "d"], proba, groups=[0, 1], classes=["a", "b", "c"])


def test_scores_are_not_taken_for_probabilities():
    with pytest.raises(ValueError, match=r"row 1 is .*not probabilities"):
        worst_group_log_loss([0, 1], [0.3, 1.7], groups=[0, 0])
    with pytest.raises(ValueError, match="sum to one"):
        worst_group_log_loss([0, 1], [[0.3, 0.3], [0.5, 0.5]], groups=[0, 0])
    with pytest.raises(ValueError, match="row 0"):
        worst_group_log_loss([0, 1], [np.nan, 0.5], groups=[0, 0])


def test_labels_of_other_types_are_refused():
    with pytest.raises(ValueError, match="same type"):
        worst_group_error(["0", "1"], [0, 1], groups=[0, 0])
    with pytest.raises(ValueError, match="inconsistent"):
        worst_group_error([0, 1], [0], groups=[0, 0])


def test_as_scorers():
    rng = np.random.default_rng(0)
    X, g = rng.normal(size=(120, 2)), rng.integers(0, 2, 120)
    y = (X[:, 0] + 0.5 * rng.normal(size=120) > 0).astype(int)
    with config_context(enable_metadata_routing=True):
        for metric, response in (
            (worst_group_log_loss, "predict_proba"),
            (worst_group_error, "predict"),
        ):
            scorer = make_scorer(metric, greater_is_better=False, response_method=response)
            scorer = scorer.set_score_request(groups=True)
            found = cross_val_score(
                LogisticRegression(), X, y, params={"groups": g}, scoring=scorer, cv=3
            )
            assert (found < 0).all()
