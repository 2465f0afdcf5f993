"""Calibration by group: against scikit-learn, closed forms, chance, odd rows."""

import math

import numpy as np
import pytest
from scipy.special import expit, logit, softmax
from scipy.stats import norm
from sklearn.calibration import calibration_curve
from sklearn.linear_model import LogisticRegression

from counterpoise import calibration_by_group
from counterpoise.assessment.calibration import Calibration


def two(p):
    return np.column_stack([1 - p, p])


def drawn(seed=0, n=4000, slope=1.0, shift=0.0):
    """Probabilities, and labels whose logit is ``slope logit(p) + shift``."""
    rng = np.random.default_rng(seed)
    p = expit(rng.normal(size=n))
    return p, (rng.random(n) < expit(slope * logit(p) + shift)).astype(int)


@pytest.mark.parametrize(("slope", "shift"), [(1.0, 0.0), (0.5, 0.0), (1.7, -0.6)])
def test_the_slope_is_that_of_a_logistic_regression(slope, shift):
    p, y = drawn(slope=slope, shift=shift)
    found = Calibration.of(two(p), y).slope
    exact = LogisticRegression(C=np.inf, tol=1e-10).fit(logit(p)[:, None], y)
    assert found.value == pytest.approx(exact.coef_[0, 0], rel=1e-4)
    # The usual standard error, from the information matrix.
    design = np.column_stack([logit(p), np.ones(len(p))])
    q = exact.predict_proba(logit(p)[:, None])[:, 1]
    error = math.sqrt(np.linalg.inv((design.T * (q * (1 - q))) @ design)[0, 0])
    assert (found.high - found.low) / 2 == pytest.approx(norm.isf(0.025) * error, rel=1e-3)
    assert found.low < slope < found.high


def test_the_slope_of_three_classes_is_the_inverse_temperature():
    rng = np.random.default_rng(1)
    z = rng.normal(size=(6000, 3)) * 1.5
    y = np.array([rng.choice(3, p=row) for row in softmax(z, axis=1)])
    assert Calibration.of(softmax(z, axis=1), y).slope.value == pytest.approx(1.0, abs=0.08)
    sharp = Calibration.of(softmax(2 * z + [0.3, 0.0, -0.3], axis=1), y).slope
    assert sharp.value == pytest.approx(0.5, abs=0.04)
    assert sharp.high < 1


def test_in_the_large_by_hand():
    p, y = np.array([0.2, 0.4, 0.6]), np.array([0, 1, 1])
    found = Calibration.of(two(p), y).in_the_large[1]
    half = norm.isf(0.025) * math.sqrt((0.16 + 0.24 + 0.24) / 3 / 3)
    assert found == pytest.approx((2 / 3 - 0.4, 2 / 3 - 0.4 - half, 2 / 3 - 0.4 + half))
    other = Calibration.of(two(p), y).in_the_large[0]
    assert other.value == pytest.approx(-found.value)


def test_bins_are_those_of_scikit_learn():
    p, y = drawn(n=3000)
    found = Calibration.of(two(p), y)
    observed, predicted = calibration_curve(y, p, n_bins=15, strategy="quantile")
    np.testing.assert_allclose([b.observed for b in found.bins], observed, atol=0.01)
    np.testing.assert_allclose([b.predicted for b in found.bins], predicted, atol=0.005)
    shares = np.array([b.rows for b in found.bins]) / 3000
    gaps = [abs(b.observed - b.predicted) for b in found.bins]
    assert found.ece == pytest.approx(float(shares @ gaps))


def test_chance_is_told_from_miscalibration():
    """Small samples of perfect probabilities: the binned error is chance, and said to be."""
    perfect = [Calibration.of(two(p), y) for p, y in (drawn(seed, 300) for seed in range(30))]
    ece, chance = (np.mean([getattr(c, n) for c in perfect]) for n in ("ece", "ece_by_chance"))
    assert ece == pytest.approx(chance, rel=0.1)
    assert np.mean([c.rms**2 for c in perfect]) < 0.25 * np.mean([c.ece**2 for c in perfect])
    p, y = drawn(0, 10_000, slope=0.4)
    wrong = Calibration.of(two(p), y)
    exact = math.sqrt(np.mean((expit(0.4 * logit(p)) - p) ** 2))
    assert wrong.rms == pytest.approx(exact, rel=0.1)
    assert wrong.ece > 5 * wrong.ece_by_chance


def test_equal_probabilities_share_a_bin():
    p = np.repeat([0.25, 0.75], 100)
    y = np.r_[np.repeat([0, 1], [70, 30]), np.repeat([0, 1], [20, 80])]
    found = Calibration.of(two(p), y)
    assert [(b.rows, b.predicted, b.observed) for b in found.bins] == [
        (100, 0.25, pytest.approx(0.3)),
        (100, 0.75, pytest.approx(0.8)),
    ]
    assert found.ece == pytest.approx(0.05)


def test_whole_weights_are_repetitions():
    p, y = drawn(n=400)
    w = np.random.default_rng(0).integers(1, 4, 400)
    weighted = Calibration.of(two(p), y, w.astype(float))
    repeated = Calibration.of(two(np.repeat(p, w)), np.repeat(y, w))
    assert weighted.slope.value == pytest.approx(repeated.slope.value, rel=1e-6)
    assert weighted.in_the_large[1].value == pytest.approx(repeated.in_the_large[1].value)
    assert weighted.rows < w.sum()
    zero = Calibration.of(two(p), y, (np.arange(400) < 200).astype(float))
    assert zero.slope.value == pytest.approx(Calibration.of(two(p[:200]), y[:200]).slope.value)


@pytest.mark.parametrize(
    ("p", "y"),
    [
        (np.full(50, 0.5), np.repeat([0, 1], 25)),  # no probability varies
        (np.linspace(0.1, 0.9, 50), np.ones(50, int)),  # one class
        (np.linspace(0.1, 0.9, 50), np.repeat([0, 1], 25)),  # separable
        (np.array([0.5]), np.array([1])),  # one row
    ],
)
def test_a_slope_that_cannot_be_estimated_is_unknown(p, y):
    found = Calibration.of(two(p), y)
    assert math.isnan(found.slope.value)
    assert math.isfinite(found.ece)
    assert math.isfinite(found.rms)


def test_by_group_and_in_words():
    p, y = drawn(n=2000)
    q, z = drawn(1, n=2000, slope=0.5)
    g = np.repeat(["fine", "steep"], 2000)
    found = calibration_by_group(np.r_[y, z], np.r_[p, q], groups=g)
    assert found["fine"].slope.low < 1 < found["fine"].slope.high
    assert found["steep"].slope.high < 1
    assert "observed - predicted" in str(found)
    assert "steep" in str(found)
    with pytest.raises(KeyError):
        found["none"]
    text = np.array(["no", "yes"])
    named = calibration_by_group(text[np.r_[y, z]], np.r_[p, q], groups=g)
    assert named["steep"].slope == found["steep"].slope
    assert str(named).splitlines()[0].split("  ")[-1] == "by chance"
