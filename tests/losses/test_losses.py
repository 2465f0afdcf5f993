"""Losses: values against independent formulas, derivatives, kernels, tensors, bounds."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit, gammaln
from sklearn.metrics import log_loss, mean_poisson_deviance

from counterpoise.activations import leaky_relu
from counterpoise.losses import (
    Huber,
    LogLoss,
    Loss,
    Multinomial,
    NeuronLoss,
    Poisson,
    SquaredHinge,
    as_loss,
    from_config,
    get_loss,
)
from counterpoise.rows.compilation import evaluation_kernel, stretch_kernel
from counterpoise.rows.engines.torch import stretches, terms
from counterpoise.rows.kernels import call_loss

SCALAR = [LogLoss(), SquaredHinge(), Huber(), Huber(0.3), Poisson()]
IDS = [repr(loss) for loss in SCALAR]


def rows(loss, seed=0, n=400):
    """Scores, and labels that the loss is defined for."""
    rng = np.random.default_rng(seed)
    z = np.concatenate([rng.normal(size=n - 3), [0.0, 12.0, -12.0]])
    if isinstance(loss, Poisson):
        return z, rng.poisson(2.0, n).astype(float)
    if isinstance(loss, Huber):
        return z, rng.standard_cauchy(n)
    return z, rng.integers(0, 2, n).astype(float)


@pytest.mark.parametrize("loss", SCALAR, ids=IDS)
def test_a_loss_passes_its_own_check(loss):
    loss.check()


def test_the_check_finds_wrong_methods():
    class Wrong(LogLoss):
        def slope(self, z, y):
            return 1.1 * super().slope(z, y)

    class Loose(LogLoss):
        def least_bend(self, z, y, reach):
            return self.bend(z, y)

    class Concave(LogLoss):
        def value(self, z, y):
            return np.sqrt(1 + np.abs(z))

        def slope(self, z, y):
            return 0.5 * np.sign(z) / np.sqrt(1 + np.abs(z))

    for wrong, what in ((Wrong(), "slopes"), (Loose(), "least_bend"), (Concave(), "not have")):
        with pytest.raises(ValueError, match=what):
            wrong.check()


def test_values_are_those_of_scikit_learn_and_of_closed_forms():
    z, y = rows(LogLoss())
    p = expit(z)
    expected = log_loss(y, np.column_stack([1 - p, p]))
    assert LogLoss().value(z, y).mean() == pytest.approx(expected, rel=1e-10)
    z, y = rows(Poisson())
    half_deviance = 0.5 * mean_poisson_deviance(y, np.exp(z))
    assert Poisson().value(z, y).mean() == pytest.approx(half_deviance, rel=1e-10)
    z, y = rows(Huber())
    expected = torch.nn.functional.huber_loss(torch.tensor(z), torch.tensor(y), delta=0.3)
    assert Huber(0.3).value(z, y).mean() == pytest.approx(float(expected), rel=1e-12)
    assert SquaredHinge().value(np.array([0.0, 2.0, -1.0]), np.array([1, 1, 1])).tolist() == [
        1,
        0,
        4,
    ]


def test_multinomial_values_slopes_and_bends_are_those_of_torch():
    rng = np.random.default_rng(1)
    z, y = rng.normal(size=(50, 4)) * 3, rng.integers(0, 4, 50)
    loss, scores = Multinomial(4), torch.tensor(z, requires_grad=True)
    values = torch.nn.functional.cross_entropy(scores, torch.tensor(y), reduction="none")
    np.testing.assert_allclose(loss.value(z, y), values.detach().numpy(), rtol=1e-12)
    values.sum().backward()
    np.testing.assert_allclose(loss.slope(z, y), scores.grad.numpy(), atol=1e-14)

    def one(s):
        return torch.nn.functional.cross_entropy(s[None], torch.tensor(y[:1]))

    hessian = torch.autograd.functional.hessian(one, torch.tensor(z[0])).numpy()
    p = loss.bend(z, y)[0]
    np.testing.assert_allclose(np.diag(p) - np.outer(p, p), hessian, atol=1e-14)
    assert np.linalg.eigvalsh(hessian).max() <= loss.bend_bound


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.floats(-6, 6), min_size=2, max_size=5),
    st.floats(0, 1.5),
    st.integers(0, 2**32 - 1),
)
def test_multinomial_bends_stay_above_their_bound_within_reach(scores, reach, seed):
    z = np.array(scores)
    loss, y = Multinomial(len(z)), np.zeros(1)
    factor = loss.least_bend(z[None], y, np.array([reach]))[0]
    moved = z + np.random.default_rng(seed).uniform(-reach, reach, len(z))
    p, q = loss.bend(z, y), loss.bend(moved, y)
    least = np.diag(q) - np.outer(q, q) - factor * (np.diag(p) - np.outer(p, p))
    assert np.linalg.eigvalsh(least).min() >= -1e-12


@pytest.mark.parametrize("loss", SCALAR, ids=IDS)
def test_kernels_equal_the_methods(loss):
    z, y = rows(loss)
    values, slopes, labels = y.copy(), z.copy(), np.empty_like(y)
    call_loss(evaluation_kernel(loss, surrogate=False), slopes, values, 0, len(z), labels)
    np.testing.assert_allclose(labels, loss.value(z, y), rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(slopes, loss.slope(z, y), rtol=1e-12, atol=1e-14)
    call_loss(stretch_kernel(loss), z.copy(), y, 0, len(z), labels)
    np.testing.assert_allclose(labels, loss.stretch(z, y), rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("loss", [*SCALAR, NeuronLoss(leaky_relu(0.1))])
def test_tensors_give_the_same(loss):
    z, y = rows(loss)
    a, b = torch.tensor(z), torch.tensor(y)
    value, pull = terms(loss, a, b, False)
    np.testing.assert_allclose(value.numpy(), loss.value(z, y), rtol=1e-12, atol=1e-14)
    expected = loss.pull(z, y, surrogate=False)
    np.testing.assert_allclose(pull.numpy(), expected, rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(
        stretches(loss, a, b).numpy(), loss.stretch(z, y), rtol=1e-12, atol=1e-14
    )


def test_extreme_scores_neither_overflow_nor_lose_the_loss():
    z = np.array([800.0, -800.0, 800.0, -800.0])
    y = np.array([1.0, 0.0, 0.0, 1.0])
    with np.errstate(all="raise", under="ignore"):
        assert LogLoss().value(z, y).tolist() == [0.0, 0.0, 800.0, 800.0]
        assert LogLoss().bend(z, y).tolist() == [0.0] * 4
    wide = np.array([[1e4, 0.0], [0.0, 1e4]])
    assert Multinomial(2).value(wide, np.zeros(2)).tolist() == [0.0, 1e4]


def test_the_poisson_loss_is_the_log_likelihood_up_to_a_constant_of_the_label():
    z, y = rows(Poisson())
    likelihood = y * z - np.exp(z) - gammaln(y + 1)
    best = np.where(y > 0, y * np.log(np.maximum(y, 1)) - y, 0.0) - gammaln(y + 1)
    np.testing.assert_allclose(Poisson().value(z, y), best - likelihood, atol=1e-9)


@pytest.mark.parametrize(
    "loss", [*SCALAR, Multinomial(5), NeuronLoss(), NeuronLoss(leaky_relu(0.3))]
)
def test_configurations_round_trip(loss):
    again = from_config(loss.config())
    assert type(again) is type(loss)
    assert (again.n_scores, again.parameters) == (loss.n_scores, loss.parameters)


def test_losses_by_name_and_by_object():
    assert isinstance(get_loss("log"), LogLoss)
    own = Huber(2.0)
    assert get_loss(own) is own
    with pytest.raises(ValueError, match="loss='logg' is not known"):
        get_loss("logg")
    assert as_loss(own) is own
    assert as_loss(leaky_relu(0.1)).value(np.array([-1.0]), 0.0) == pytest.approx(0.01)


def test_labels_are_checked():
    for loss, bad in (
        (LogLoss(), -0.1),
        (SquaredHinge(), 0.5),
        (Poisson(), -1),
        (Multinomial(3), 3),
    ):
        with pytest.raises(ValueError, match="needs labels"):
            loss.check_labels(np.array([1.0, bad]))
    with pytest.raises(ValueError, match="delta"):
        Huber(0.0)
    with pytest.raises(ValueError, match="n_classes"):
        Multinomial(1)
    assert math.isinf(Poisson().bend_bound)


def test_an_own_loss_needs_its_methods():
    with pytest.raises(NotImplementedError, match="value"):
        Loss().value(np.zeros(1), np.zeros(1))


def test_the_poisson_loss_of_huge_counts_keeps_its_digits():
    y = np.array([1e3, 1e9, 1e15])
    t = 1.0 / np.sqrt(y)  # means that are off by a standard deviation
    z = np.log(y) + t
    t = z - np.log(y)  # as rounded
    expected = y * (t**2 / 2 + t**3 / 6 + t**4 / 24)
    np.testing.assert_allclose(Poisson().value(z, y), expected, rtol=1e-6)
    assert Poisson().value(np.array([20.0]), np.array([1e-300])) == pytest.approx(np.exp(20.0))


def test_a_delta_whose_square_vanishes_is_refused():
    with pytest.raises(ValueError, match="multiply y and delta"):
        Huber(1e-200)
