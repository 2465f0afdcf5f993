"""One place has the words of a task: names of losses, their units, and the plain average."""

from __future__ import annotations

import math
from types import SimpleNamespace

import pytest

from counterpoise.activations import get_activation
from counterpoise.common.task_words import WORDS, words_of


def neuron(activation):
    return SimpleNamespace(activation_=get_activation(activation))


def test_squared_errors_are_shown_as_roots_in_units_of_the_target():
    found = words_of(neuron("identity"))
    assert found.plain == "least squares"
    assert found.figure(4.0) == "2"
    assert found.change(4.0, 1.0) == "50% lower"
    assert found.of_target("price") == ", in units of price"
    assert found.of_target(None) == ""
    assert (found.title, found.shown_title) == ("Mean squared error", "Root mean squared error")
    assert math.isnan(found.shown(-1.0))
    assert found.squared_unit("units of price") == " in squared units of price"
    assert words_of(neuron("relu")).plain == "plain average"


@pytest.mark.parametrize("loss", ["log", SimpleNamespace(name="log")])
def test_log_losses_are_shown_as_they_are(loss):
    found = words_of(SimpleNamespace(loss=loss))
    assert found == WORDS["log"]
    assert found.classifies
    assert found.plain == "logistic regression"
    assert found.figure(0.25) == "0.25"
    assert found.change(0.5, 0.25) == "50% lower"
    assert found.of_target("income") == found.squared_unit("units of income") == ""
    assert found.shown_title == "Log loss"


def test_a_loss_of_someone_else_has_plain_words():
    assert words_of(SimpleNamespace(loss=SimpleNamespace(name="mine"))).title == "Mean loss"
