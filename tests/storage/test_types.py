"""Values of stored classes are of the annotated types."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pytest

from counterpoise.assessment.record import DataFacts, Residuals
from counterpoise.storage.types import check_types, fits


@pytest.mark.parametrize(
    ("value", "hint"),
    [
        (1, int), (1, float), (1.5, float), (np.float64(1), float), (np.int64(1), int),
        (None, None), (None, float | None), (2, float | None), ("a", str), (True, bool),
        ((1, 2.5), tuple[float, ...]), ((1, "a"), tuple[int, str]), ([1], list[int]),
        ({"a": [1]}, Mapping[str, list[int]]), (np.zeros(2), np.ndarray), ("a", Any),
        ("b", Literal["a", "b"]), ([], list[int]), ({}, dict[str, float]),
        (np.zeros(2), np.ndarray[Any, Any]),
    ],
)  # fmt: skip
def test_what_fits(value, hint):
    assert fits(value, hint)


@pytest.mark.parametrize(
    ("value", "hint"),
    [
        (True, int), (True, float), (1.5, int), ("1", float), (None, float), (0, None),
        ([1], tuple[int, ...]), ((1, "a"), tuple[int, ...]), ((1,), tuple[int, int]),
        ({1: 2}, dict[str, int]), ({"a": "b"}, Mapping[str, float]), ([1], np.ndarray),
        ([None], list[str]), ("c", Literal["a", "b"]), (1, Literal[True]), (1, bool),
        (10**400, float), ("ab", list[str]), (None, np.ndarray | str), ([1], np.ndarray[Any, Any]),
    ],
)  # fmt: skip
def test_what_does_not(value, hint):
    assert not fits(value, hint)


@dataclass
class Outside:
    x: int


def test_classes_of_the_library_are_checked():
    check_types(DataFacts, {"rows": 3, "encoded": 2, "group": ["a"], "path": None}, lambda _: None)
    with pytest.raises(ValueError, match=r"DataFacts\.rows is 'x', of the wrong type"):
        check_types(DataFacts, {"rows": "x"}, lambda _: None)
    with pytest.raises(ValueError, match=r"Residuals\.plain is 5"):
        check_types(Residuals, {"plain": 5}, lambda _: None)
    check_types(Outside, {"x": "anything"}, lambda _: None)
