"""What users add from outside the package: each is one class, and fits work with it."""

import zlib
from dataclasses import dataclass

import dask.array as da
import numpy as np
import pytest
import torch
from problems import neuron_data
from scipy import sparse
from scipy.optimize import minimize

from counterpoise import Activation, Chunks, Divergence, GroupDRONeuron, Reweighter, risk
from counterpoise.activations import get_activation
from counterpoise.dual import SimplexPoint
from counterpoise.reweight import Rule
from counterpoise.reweight.rules import ascend
from counterpoise.rows.backends import Backend, open_engine, register, unregister
from counterpoise.rows.compilation import kernel_address
from counterpoise.rows.engines.base import SumEngine
from counterpoise.rows.engines.memory import MemoryEngine
from counterpoise.rows.engines.questions import Question
from counterpoise.rows.engines.torch import TorchEngine
from counterpoise.rows.groups import GroupedData
from counterpoise.solver.schedules import AdaptiveSteps, Schedule


@pytest.fixture(scope="module")
def rows():
    X, y, groups = neuron_data(K=3, n=300, d=4, seed=1)
    return X, y, groups


# -- an activation ---------------------------------------------------------------------------


class Squareplus(Activation):
    """``(t + sqrt(t^2 + 4)) / 2 - 1``, with a kernel that numba compiles."""

    name, alpha, beta = "squareplus", 0.5, 1.0

    def value(self, t):
        return 0.5 * (t + t * t / (np.sqrt(t * t + 4.0) + 2.0))

    def slope(self, t):
        return 0.5 * (1.0 + t / np.sqrt(t * t + 4.0))

    @staticmethod
    def kernel(z, slope, count, a, b, c):
        for i in range(count):
            root = np.sqrt(z[i] * z[i] + 4.0)
            slope[i] = 0.5 * (1.0 + z[i] / root)
            z[i] = 0.5 * (z[i] + z[i] * z[i] / (root + 2.0))


def test_an_activation(rows):
    X, y, groups = rows
    compiled, plain = Squareplus(), Activation(Squareplus().value, None, 0.5, 1.0)
    assert kernel_address(compiled)
    assert kernel_address(plain) is None
    models = [GroupDRONeuron(s, nu=0.1).fit(X, y, groups=groups) for s in (compiled, plain)]
    np.testing.assert_allclose(models[0].coef_, models[1].coef_, rtol=1e-4)
    np.testing.assert_allclose(models[0].risk_, models[1].risk_, rtol=1e-8)
    expected = compiled.value(X @ models[0].coef_ + models[0].intercept_)
    np.testing.assert_allclose(models[0].predict(X), expected)
    # the loss is at least as low as descent by somebody else reaches
    found = minimize(
        lambda w: risk(
            [np.mean((compiled.value(X[groups == g] @ w[:-1] + w[-1]) - y[groups == g]) ** 2)
             for g in np.unique(groups)], 0.1),
        np.append(models[0].coef_, models[0].intercept_),
    )  # fmt: skip
    assert models[0].risk_ <= found.fun + 1e-6


def test_a_kernel_that_is_not_the_function_is_refused():
    class Wrong(Squareplus):
        @staticmethod
        def kernel(z, slope, count, a, b, c):
            for i in range(count):
                slope[i] = 1.0

    with pytest.raises(ValueError, match=r"'squareplus'.*values that kernel\(\) sets"):
        get_activation(Wrong())


def test_a_kernel_that_does_not_compile_is_explained(rows):
    class Stuck(Squareplus):
        @staticmethod
        def kernel(z, slope, count, a, b, c):
            for i in range(count):
                t = np.array([z[i]])  # plain Python runs this
                slope[i] = float(Squareplus().slope(t)[0])
                z[i] = float(Squareplus().value(t)[0])

    X, y, groups = rows
    with pytest.raises(TypeError, match=r"'squareplus': numba cannot compile its kernel\(\)"):
        GroupDRONeuron(Stuck()).fit(X, y, groups=groups)


def test_a_kernel_must_be_static():
    class Bound(Squareplus):
        def kernel(self, z, slope, count, a, b, c):
            raise AssertionError("never called")

    with pytest.raises(TypeError, match=r"'squareplus': make kernel\(\) a @staticmethod"):
        get_activation(Bound())


# -- a divergence ----------------------------------------------------------------------------


class Euclidean(Divergence):
    """``sum_i (lam_i - prior_i)^2``, whatever the prior."""

    name = "euclidean"

    def value(self, weights, prior):
        return float(np.sum((weights - prior) ** 2))

    def bregman(self, point, centre, prior):
        return float(np.sum((point.weights - centre.weights) ** 2))

    def corner_distances(self, centre, prior):
        return float(centre @ centre) + 1.0 - 2.0 * centre

    def respond(self, losses, prior, *, nu, kappa=0.0, centre=None):
        pull = nu * prior + (kappa * centre.weights if kappa and centre is not None else 0.0)
        scores = (0.5 * losses + pull) / (nu + kappa)
        order = np.sort(scores)[::-1]
        levels = (np.cumsum(order) - 1.0) / np.arange(1, len(order) + 1)
        return SimplexPoint.of(np.maximum(scores - levels[np.sum(order > levels) - 1], 0.0))

    def sensitivity(self, point, prior):
        return np.where(point.weights > 0, 1.0, 0.0), 0.5


def test_a_divergence(rows):
    X, y, groups = rows
    losses, prior = np.array([1.0, 2.0, 4.0]), np.array([0.2, 0.5, 0.3])
    exact = minimize(
        lambda lam: -(lam @ losses - 1.5 * np.sum((lam - prior) ** 2)), prior, method="SLSQP",
        bounds=[(0, 1)] * 3, constraints={"type": "eq", "fun": lambda lam: lam.sum() - 1},
    )  # fmt: skip
    assert risk(losses, 1.5, Euclidean(), prior) == pytest.approx(-exact.fun, abs=1e-6)
    model = GroupDRONeuron("identity", divergence=Euclidean(), nu=0.3).fit(X, y, groups=groups)
    assert model.certificate_.duality_gap < 1e-5 * model.risk_
    assert model.risk_ == pytest.approx(risk(model.group_risks_, 0.3, Euclidean()))


# -- a rule ----------------------------------------------------------------------------------


class Halfway(Rule):
    """Half of the way to the weights that exponential ascent would give."""

    name = "halfway"

    def advance(self, state, losses, present, setting):
        return state.moved(ascend(state.dual, losses, present, setting))

    def propose(self, state, setting):
        return 0.5 * (state.dual.weights + state.dual.previous)


def test_a_rule():
    reweighter = Reweighter(["a", "b"], rule=Halfway(), step=1.0)
    weights = reweighter.update([0.0, np.log(3.0)])
    np.testing.assert_allclose(list(weights), [0.375, 0.625], rtol=1e-12)
    again = Reweighter(["a", "b"], rule=Halfway(), step=1.0)
    again.load_state_dict(reweighter.state_dict())
    np.testing.assert_array_equal(again.update([1.0, 0.0]), reweighter.update([1.0, 0.0]))


# -- a schedule ------------------------------------------------------------------------------


class Cautious(Schedule):
    """Steps half as long as the adaptive ones."""

    usual = AdaptiveSteps()

    def sharpness(self, scale):
        return self.usual.sharpness(scale)

    def starting_weight(self, scale):
        return self.usual.starting_weight(scale)

    def step(self, scale, c1, nu0, now):
        return max(now.previous, 0.5 * self.usual.step(scale, c1, nu0, now))


def test_a_schedule(rows):
    X, y, groups = rows
    usual, cautious = (
        GroupDRONeuron("relu", nu=0.1, schedule=s).fit(X, y, groups=groups)
        for s in ("adaptive", Cautious())
    )
    assert cautious.history_["step"][0] == pytest.approx(0.5 * usual.history_["step"][0])
    assert cautious.risk_ == pytest.approx(usual.risk_, rel=1e-3)
    assert cautious.certificate_.running_slack <= 0


# -- a question to the engines ---------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Active(Question):
    """The weight of rows with a positive score, and their labels' sum: (K, 2)."""

    w: np.ndarray

    def of_rows(self, X, y, weights, group):
        on = (X @ self.w > 0) * weights
        return np.array([on.sum(), on @ y])


@pytest.mark.parametrize("kind", ["dense", "csr", "chunks", "torch", "dask"])
def test_a_question(rows, kind):
    X, y, groups = rows
    weights = np.random.default_rng(2).exponential(size=len(y))
    order = np.argsort(groups, kind="stable")  # chunks and blocks that hold several groups
    cut = [order[i::3] for i in range(3)]
    given = {
        "dense": lambda: (X, y, groups, weights),
        "csr": lambda: (sparse.csr_matrix(X), y, groups, weights),
        "chunks": lambda: (
            Chunks([(X[i], y[i], groups[i], weights[i]) for i in cut]), None, None, None
        ),
        "torch": lambda: (torch.tensor(X), y, groups, weights),
        "dask": lambda: tuple(da.from_array(v, chunks=(250, *v.shape[1:]))
                              for v in (X, y, groups, weights)),
    }[kind]()  # fmt: skip
    opened = TorchEngine if kind == "torch" else open_engine
    engine = opened(*given, get_activation("relu"), intercept=True, centred=True)
    w = np.array([1.0, -0.5, 0.2, 0.0])
    on = (X @ w > 0) * weights
    expected = [[on[groups == g].sum(), (on * y)[groups == g].sum()] for g in np.unique(groups)]
    np.testing.assert_allclose(engine.ask(Active(w)), expected, rtol=1e-12)


# -- an engine -------------------------------------------------------------------------------


class Box:
    """Rows that are kept compressed."""

    def __init__(self, X):
        self.shape, self.data = X.shape, zlib.compress(np.ascontiguousarray(X, float).tobytes())

    def open(self):
        return np.frombuffer(zlib.decompress(self.data)).reshape(self.shape)


class BoxEngine(SumEngine):
    """Opens the box for every question."""

    def __init__(self, box, y, groups, weights, loss, *, intercept, centred):
        self.given = box, y, groups, weights, intercept, centred
        super().__init__(self._inside(loss).census, loss)

    def _inside(self, loss):
        box, y, groups, weights, intercept, centred = self.given
        data = GroupedData.build(box.open(), y, groups, weights, intercept=intercept)
        return MemoryEngine(data, loss, centred=centred)

    def ask(self, question):
        self.counter.count += 1
        return self._inside(self.loss).ask(question)

    def sample(self):
        return self._inside(self.loss).sample()


class BoxBackend(Backend):
    """Its registration."""

    name = "box"

    def matches(self, X):
        return isinstance(X, Box)

    def open(self, X, y, groups, weights, loss, *, intercept, centred, progress=None):
        return BoxEngine(X, y, groups, weights, loss, intercept=intercept, centred=centred)

    def predict(self, X, model, kind="predict"):
        return model.outputs(model.check_width(X.open()), kind)


def test_an_engine(rows):
    X, y, groups = rows
    backend = register(BoxBackend())
    try:
        boxed = GroupDRONeuron("relu", nu=0.1).fit(Box(X), y, groups=groups)
        predicted = boxed.predict(Box(X))
    finally:
        unregister(backend)
    plain = GroupDRONeuron("relu", nu=0.1).fit(X, y, groups=groups)
    np.testing.assert_array_equal(boxed.coef_, plain.coef_)
    np.testing.assert_array_equal(predicted, plain.predict(X))
    assert boxed.n_passes_ >= plain.n_passes_
