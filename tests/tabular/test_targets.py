"""What is fitted to a target with few values is said; missing targets get advice that works."""

from __future__ import annotations

import numpy as np
import pytest

from counterpoise.tabular import DataError, learn_layout

X = list(np.random.default_rng(0).normal(size=60))


def notes(y):
    return learn_layout({"x": X[: len(y)], "y": y}, target="y").notes


@pytest.mark.parametrize("y", [[0, 1] * 30, [True, False] * 30, [1.0, 0.0] * 30])
def test_two_values_are_said_to_be_fitted_as_numbers(y):
    (note,) = notes(y)
    assert note == (
        "the target 'y' has two values, 0 and 1: they are fitted as numbers, by squared error, "
        "and predictions are not probabilities"
    )


def test_a_few_classes_are_noted_and_amounts_are_not():
    (note,) = notes([3, 1, 2] * 20)
    assert "the target 'y' has only 3 values, 1, 2 and 3" in note
    assert notes(X[::-1]) == ()
    assert notes([1, 2, 3, 4]) == (), "too few rows to tell"
    assert notes(list(range(6)) * 10) == ()


@pytest.mark.parametrize(
    ("holes", "advised"),
    [
        ({"y": [1.0, None, 3.0]}, "'y' (1); leave these rows out with missing='drop'"),
        ({"w": [1.0, None, 3.0]}, "'w' (1); leave these rows out with missing='drop'"),
        (
            {"x": [1.0, None, 3.0]},
            "'x' (1); leave these rows out with missing='drop', or fill them in with "
            "missing='impute'",
        ),
        (
            {"x": [1.0, None, 3.0], "y": [None, 2.0, 3.0]},
            "leave these rows out with missing='drop'; targets and weights, such as 'y', are not "
            "filled in",
        ),
    ],
)
def test_advice_on_missing_values_works(holes, advised):
    data = {"x": [1.0, 2.0, 3.0], "w": [1.0, 2.0, 3.0], "y": [1.0, 2.0, 3.0], **holes}
    with pytest.raises(DataError) as refused:
        learn_layout(data, target="y", weight="w")
    assert str(refused.value).endswith(advised)
    for way in ("drop", "impute"):
        if f"missing='{way}'" in advised:
            assert learn_layout(data, target="y", weight="w", missing=way).used > 0
