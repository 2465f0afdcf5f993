"""Measures: amounts of rows, weights within groups, and refusals."""

import numpy as np
import pytest

from counterpoise.activations import relu
from counterpoise.assessment.measures import Measure, classifier_measure
from counterpoise.losses import LogLoss, Multinomial, NeuronLoss, SquaredHinge


def test_the_mean_of_a_loss_is_its_own():
    z, y = np.array([-1.0, 2.0]), np.array([0.5, 1.0])
    measure = Measure(NeuronLoss(relu()), unit=4.0)
    np.testing.assert_allclose(measure.amounts(z, y), [0.25, 1.0])
    assert measure.words == "risk"
    assert measure.floor == 4e-14
    assert not measure.bounded


def test_errors_of_one_score_and_of_several():
    one = classifier_measure("error", LogLoss())
    np.testing.assert_array_equal(
        one.amounts(np.array([0.0, 1.0, -1.0]), np.array([0.0, 0, 1])), [0, 1, 1]
    )
    many = classifier_measure("error", Multinomial(3))
    scores = np.array([[0.0, 2.0, 1.0], [3.0, 0.0, 0.0]])
    np.testing.assert_array_equal(many.amounts(scores, np.array([1.0, 2.0])), [0, 1])
    assert many.bounded


def test_balanced_errors_weigh_classes_alike():
    measure = classifier_measure("balanced_error", LogLoss())
    y, codes = np.array([0.0, 0.0, 0.0, 1.0, 1.0]), np.array([0, 0, 0, 0, 1])
    np.testing.assert_allclose(measure.weights(y, codes, np.ones(5)), [2 / 3, 2 / 3, 2 / 3, 2, 1])
    assert measure.words == "balanced error"


def test_names():
    assert classifier_measure("loss", Multinomial(4)).words == "log loss"
    assert classifier_measure("log_loss", LogLoss()).words == "log loss"
    assert classifier_measure("loss", SquaredHinge()).words == "squared hinge loss"
    with pytest.raises(ValueError, match="needs probabilities"):
        classifier_measure("log_loss", SquaredHinge())
    with pytest.raises(ValueError, match="scoring must be one of"):
        classifier_measure("f1", LogLoss())
