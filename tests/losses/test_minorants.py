"""Parabolas below a neuron's loss: never above it, and as high as they can be."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from counterpoise.activations import Activation, get_activation
from counterpoise.activations.named import Piecewise
from counterpoise.losses import NeuronLoss

ACTIVATIONS = ("relu", "leaky_relu", "softplus", "elu", "huber_relu")


def rows(seed, n=2000, decades=4):
    """Scores, labels and intervals of very different sizes, zeros among them."""
    rng = np.random.default_rng(seed)

    def sizes():
        return 10.0 ** rng.uniform(-decades, 2, n)

    z = rng.normal(size=n) * sizes() * (rng.random(n) < 0.97)
    y = rng.normal(size=n) * sizes() * (rng.random(n) < 0.95)
    low = z - np.abs(rng.normal(size=n)) * sizes() * (rng.random(n) < 0.95)
    high = z + np.abs(rng.normal(size=n)) * sizes() * (rng.random(n) < 0.95)
    return z, y, low, high


def parabolas(loss, z, y, low, high, width):
    norm = np.maximum(np.maximum(high - z, z - low), 1e-300)
    found = loss.minorants(z, y, low, high, norm, np.array([width]))
    return found.value[0], found.slope[0], found.bend[0]


def excess(loss, z, y, low, high, width, points=101):
    """How far parabolas exceed the loss on their intervals, relative to their terms."""
    value, slope, bend = parabolas(loss, z, y, low, high, width)
    t = low[:, None] + (high - low)[:, None] * np.linspace(0.0, 1.0, points)
    t = np.column_stack([t, np.zeros_like(z), z, low, high])
    t = np.clip(t, low[:, None], high[:, None])
    gap = t - z[:, None]
    terms = value[:, None], slope[:, None] * gap, 0.5 * bend[:, None] * gap**2
    true = loss.value(t, y[:, None])
    # Outputs of activations with a scale of their own are rounded on that scale.
    own = 0.0 if loss.activation.has_kink else 1e-3
    size = true + y[:, None] ** 2 + sum(np.abs(term) for term in terms)
    size = size + own * np.sqrt(size)
    return (sum(terms) - true) / np.where(size > 0, size, 1.0)


@pytest.mark.parametrize("name", ACTIVATIONS)
@pytest.mark.parametrize("width", [0.01, 0.3, 1.0, 10.0, 1e8])
def test_no_parabola_exceeds_the_loss(name, width):
    loss = NeuronLoss(get_activation(name))
    assert excess(loss, *rows(1), width).max() <= 1e-12


def numbers(low, high):
    """Numbers whose squares are not lost, and zero."""
    return st.floats(low, high).map(lambda v: v if abs(v) > 1e-100 else 0.0)


@given(
    z=numbers(-3, 3), y=numbers(-3, 3), down=numbers(0, 4), up=numbers(0, 4),
    width=st.floats(1e-3, 1e3), left=st.floats(0.0, 0.99),
)  # fmt: skip
@settings(max_examples=300, deadline=None)
def test_no_parabola_exceeds_the_loss_of_two_pieces(z, y, down, up, width, left):
    loss = NeuronLoss(Piecewise("pieces", left, 0.0, 0.0))
    given_ = (np.array([v]) for v in (z, y, z - down, z + up))
    assert excess(loss, *given_, width, points=2001).max() <= 1e-12


@pytest.mark.parametrize("left", [0.0, 0.01, 0.5])
@pytest.mark.parametrize("width", [0.05, 0.4, 3.0])
def test_parabolas_below_two_pieces_touch_the_loss_elsewhere(left, width):
    """With its value and slope at z, no parabola below the loss has a larger bend."""
    loss = NeuronLoss(Piecewise("pieces", left, 0.0, 0.0))
    rng = np.random.default_rng(3)
    z, y = rng.normal(size=200), rng.normal(size=200)
    low, high = z - rng.uniform(0.1, 2, size=200), z + rng.uniform(0.1, 2, size=200)
    value, slope, bend = parabolas(loss, z, y, low, high, width)
    t = np.linspace(low, high, 200001, axis=1)
    gap = t - z[:, None]
    with np.errstate(divide="ignore", invalid="ignore"):
        room = (loss.value(t, y[:, None]) - value[:, None] - slope[:, None] * gap) / (0.5 * gap**2)
    largest = np.nanmin(np.where(np.abs(gap) > 1e-3, room, np.nan), axis=1)
    assert np.all(bend <= largest + 1e-6)
    assert np.median(largest - bend) < 1e-5


@pytest.mark.parametrize("low", [-2.0, -0.3])
def test_wide_parabolas_are_the_convex_envelope(low):
    """The line through (l, y^2), tangent to (z - y)^2 at l + sqrt(l^2 - 2 y l)."""
    loss, y, high = NeuronLoss(get_activation("relu")), 0.7, 2.0
    tangent = low + np.sqrt(low**2 - 2 * y * low)
    z = np.linspace(low, high, 50)[1:-1]
    line = y**2 + 2.0 * (tangent - y) * (z - low)
    envelope = np.where(z < tangent, line, (z - y) ** 2)
    full = [np.full_like(z, v) for v in (y, low, high)]
    value, slope, bend = parabolas(loss, z, *full, 1e9)
    assert np.allclose(value, envelope, atol=1e-7)
    assert np.allclose(slope[z < tangent], 2.0 * (tangent - y), atol=1e-7)
    assert np.all(bend >= -1e-7)


def test_narrow_parabolas_touch_the_loss_and_wide_ones_bend_less():
    loss = NeuronLoss(get_activation("relu"))
    z, y = np.array([0.2]), np.array([1.0])
    low, high = np.array([-1.0]), np.array([1.4])
    narrow = parabolas(loss, z, y, low, high, 1e-3)
    wide = parabolas(loss, z, y, low, high, 1.0)
    assert narrow[0] == pytest.approx(0.64)
    # Touching at z costs a bend of -2 (y - z)^2 / (z (2 y - z)).
    assert narrow[2] == pytest.approx(-2 * 0.8**2 / (0.2 * 1.8))
    assert wide[0] < narrow[0]
    assert wide[2] > narrow[2]


@pytest.mark.parametrize("name", ["softplus", "elu", "huber_relu"])
def test_most_bend_bounds_the_second_derivative(name):
    sigma = get_activation(name)
    rng = np.random.default_rng(0)
    low = rng.normal(size=300) * 3
    high = low + np.abs(rng.normal(size=300))
    t = np.linspace(low, high, 401, axis=1)
    steps = np.diff(sigma.slope(t), axis=1) / np.diff(t, axis=1)
    most = sigma.most_bend(low, high)
    assert np.all(steps.max(axis=1) <= most * (1 + 1e-6) + 1e-9)
    assert np.all(most <= 1.5 * steps.max(axis=1) + 1e-2)


def test_only_activations_that_bound_their_bend_have_parabolas():
    ramp = Activation(lambda t: np.maximum(t, 0.25 * t), None, 1.0, 1.0, name="ramp")
    assert not NeuronLoss(ramp).has_minorant
    assert all(NeuronLoss(get_activation(name)).has_minorant for name in ACTIVATIONS)
