"""Columns that give the target away are named, whether numbers or categories."""

from __future__ import annotations

import numpy as np
import pytest

from counterpoise.tabular import learn_layout
from counterpoise.tabular.links import Link


def reference(x, y):
    return np.corrcoef(x, y)[0, 1] ** 2


@pytest.mark.parametrize("scale", [1.0, 1e90, 1e-90])
@pytest.mark.parametrize("shift", [0.0, 1e6])
def test_numbers_in_batches_agree_with_the_correlation(scale, shift):
    rng = np.random.default_rng(0)
    x = rng.normal(size=1000) + shift
    y = scale * (x + 0.5 * rng.normal(size=1000))
    link = Link()
    for part in np.array_split(np.arange(1000), 7):
        link.add_numbers(x[part], y[part])
    raw = reference(x, y / scale)
    assert link.explained == pytest.approx(1 - (1 - raw) * 999 / 998, rel=1e-9)


def test_levels_in_batches_agree_with_the_analysis_of_variance():
    rng = np.random.default_rng(0)
    levels = ["a", "b", "c", "unused"]
    codes = rng.integers(-1, 3, size=600)
    y = 100.0 + 3.0 * codes + rng.normal(size=600)
    y[::50] = np.nan
    link = Link()
    for part in np.array_split(np.arange(600), 5):
        link.add_levels(codes[part], levels, y[part])
    known = (codes >= 0) & ~np.isnan(y)
    c, v = codes[known], y[known]
    within = sum(((v[c == k] - v[c == k].mean()) ** 2).sum() for k in range(3))
    raw = 1 - within / ((v - v.mean()) ** 2).sum()
    n = len(v)
    assert link.explained == pytest.approx(1 - (1 - raw) * (n - 1) / (n - 3), rel=1e-9)


def notes(columns):
    learned = learn_layout(columns, target="y")
    return [note for note in learned.notes if "leak" in note]


def test_leaks_are_named_and_honest_columns_are_not():
    rng = np.random.default_rng(0)
    y = rng.normal(size=200)
    z = np.round(rng.uniform(size=200), 1)
    columns = {
        "copy": -3 * y + 1e-3 * rng.normal(size=200), "half": y + 0.3 * rng.normal(size=200),
        "noise": rng.normal(size=200), "y": y,
    }  # fmt: skip
    (found,) = notes(columns)
    assert found.startswith("column 'copy' alone explains 99.9% of the variance of 'y'")
    assert found.endswith("leave it out with drop=['copy']")
    (found,) = notes({"band": [f"b{v}" for v in z], "noise": columns["noise"], "y": 7 * z})
    assert "column 'band' alone explains 100%" in found


def test_few_rows_or_a_level_for_every_row_prove_nothing():
    y = list(np.random.default_rng(0).normal(size=40))
    assert not notes({"name": [f"n{k}" for k in range(40)], "y": y})
    assert not notes({"x": y[:10], "y": y[:10]})
    assert not notes({"x": [1.0] * 40, "z": list(range(40)), "y": y}), "a constant"
    assert not notes({"x": y, "y": [2.0] * 40}), "a constant target"
