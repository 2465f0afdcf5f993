"""Tensors against naive sums over rows, and whole fits against those of arrays."""

import subprocess
import sys
from itertools import pairwise

import numpy as np
import pytest
import torch
from engine_checks import (
    NAMED,
    close,
    make,
    mean_by_group,
    naive_evaluate,
    point,
    questions,
    sizes_of,
)
from problems import neuron_data

from counterpoise import GroupDRONeuron, solve
from counterpoise.activations import Activation, leaky_relu, relu, softplus
from counterpoise.rows.backends import TorchBackend, backend_of, open_engine
from counterpoise.rows.engines import torch as tensors
from counterpoise.rows.engines.memory import MemoryEngine, make_engine
from counterpoise.rows.engines.questions import Labels
from counterpoise.rows.engines.torch import TorchEngine, activate, linear_scores


@pytest.fixture(autouse=True)
def _tensors_stay(monkeypatch):
    """Tensors on the CPU stand in for those on a card, which are read where they are."""
    monkeypatch.setattr(TorchBackend, "in_place", lambda self, X: True)


def test_tensors_on_the_cpu_are_read_as_arrays(monkeypatch):
    monkeypatch.undo()
    X, y, groups = neuron_data(K=3, n=200, d=4)
    X = torch.tensor(X)
    engine = open_engine(X, torch.tensor(y), groups, None, relu(), intercept=True, centred=True)
    assert isinstance(engine, MemoryEngine)
    assert engine.data.X.ctypes.data == X.data_ptr(), "no copy"
    found, expected = solve(X, y, groups), solve(X.numpy(), y, groups)
    np.testing.assert_array_equal(found.coef, expected.coef)


def engine_of(tmp_path, storage="float64", K=7, intercept=True, weighted=False, sigma=None, **more):
    """A tensor engine over the rows of ``test_engines.make``, given in another order."""
    data, rows = make(tmp_path, storage, K, intercept, weighted, **more)
    order = np.random.default_rng(8).permutation(len(rows.y))
    weights = torch.tensor(rows.w[order]) if weighted else None
    engine = TorchEngine(
        torch.tensor(data.X[order]), torch.tensor(rows.y[order]), rows.codes[order], weights,
        sigma or leaky_relu(0.2), intercept=intercept, centred=True,
    )  # fmt: skip
    return engine, rows


def every_question(engine, rows, sigma, tol=1e-12):
    """Compare every answer with the naive one."""
    K, w = rows.K, point(rows)
    for surrogate in (True, False):
        loss, grad = engine.evaluate(w, surrogate=surrogate)
        expected_loss, expected_grad = naive_evaluate(rows, sigma, w, surrogate)
        close(loss, expected_loss, tol)
        close(grad, expected_grad, tol)

    directions = np.random.default_rng(2).normal(size=(K, rows.X.shape[1]))
    projected = np.einsum("nj,nj->n", rows.X, directions[rows.codes])
    expected = mean_by_group(rows, projected[:, None] * rows.X)
    close(engine.apply_moments(directions), expected, tol)

    points = np.random.default_rng(3).normal(size=(4, rows.X.shape[1]))
    gaps = sigma.value(rows.X @ points.T) - sigma.value(rows.X @ w)[:, None]
    close(engine.separation(points, w), mean_by_group(rows, gaps**2).T, tol)

    close(engine.label_means(), mean_by_group(rows, rows.y), tol)
    close(engine.label_squares(0.7), mean_by_group(rows, (rows.y - 0.7) ** 2), tol)

    shifted = rows.X.copy()
    shifted[:, : rows.d] -= engine.shift
    mixture = np.random.default_rng(4).dirichlet(np.ones(K))
    close(engine.mean_squares(mixture), mixture @ mean_by_group(rows, shifted**2), tol)

    basis = np.random.default_rng(5).normal(size=(rows.X.shape[1], 3))
    slope2 = sigma.slope(rows.X @ w) ** 2
    for base in (None, basis):
        mapped = shifted if base is None else shifted @ base
        outer = np.einsum("ni,nj->nij", mapped, mapped)
        for at, scale in ((None, np.ones(len(slope2))), (w, slope2)):
            expected = mean_by_group(rows, 2.0 * scale[:, None, None] * outer)
            close(engine.curvature(at, None, base), expected, tol)
            pooled = np.tensordot(mixture, expected, axes=1)
            close(engine.curvature(at, mixture, base), pooled, tol)


LAYOUTS = [
    pytest.param(storage, K, intercept, weighted, id=f"{storage}-K{K}-{int(intercept)}{weighted:d}")
    for storage in ("float64", "float32")
    for K in (1, 7, 200)
    for intercept, weighted in ((True, True), (False, False), (True, False), (False, True))
    if K < 200 or intercept == weighted
]


@pytest.mark.parametrize("numbers", [1 << 18, 700], ids=["one block", "many blocks"])
@pytest.mark.parametrize(("storage", "K", "intercept", "weighted"), LAYOUTS)
def test_every_question_against_naive_sums(
    monkeypatch, tmp_path, storage, K, intercept, weighted, numbers
):
    monkeypatch.setattr(tensors, "CPU_NUMBERS", numbers)
    engine, rows = engine_of(tmp_path, storage, K, intercept, weighted)
    assert (engine.n_groups, engine.n_coef) == (K, rows.X.shape[1])
    assert engine.X.dtype == getattr(torch, storage), "rows are stored as they came"
    assert engine.census.precision == np.finfo(storage).eps
    assert engine.census.n_rows == len(rows.y)
    np.testing.assert_allclose(engine.census.totals, np.bincount(rows.codes, rows.w), rtol=1e-13)
    every_question(engine, rows, leaky_relu(0.2))


@pytest.mark.parametrize("K", [7, 200])
def test_sums_of_rows_are_made_in_two_levels(monkeypatch, tmp_path, K):
    """Groups of more rows than one run, of exactly one, and of fewer."""
    monkeypatch.setattr(tensors, "RUN", 5)
    engine, rows = engine_of(tmp_path, K=K, weighted=True)
    assert any(len(block.levels) == 2 for block in engine.blocks)
    every_question(engine, rows, leaky_relu(0.2))


@pytest.mark.parametrize(("K", "numbers"), [(1, 700), (7, 1 << 18), (7, 700), (200, 700)])
def test_blocks_cover_all_rows_once_and_hold_whole_short_groups(monkeypatch, tmp_path, K, numbers):
    monkeypatch.setattr(tensors, "CPU_NUMBERS", numbers)
    engine, _ = engine_of(tmp_path, K=K)
    sizes, size = np.array(sizes_of(K)), max(64, numbers // 5)
    edges = np.concatenate([[0], np.cumsum(sizes)])
    assert (engine.blocks[0].lo, engine.blocks[-1].hi) == (0, edges[-1])
    for a, b in pairwise(engine.blocks):
        assert a.hi == b.lo
    for b in engine.blocks:
        last = b.first + len(b.sizes)
        assert 0 < b.hi - b.lo <= size
        assert sum(b.sizes) == b.hi - b.lo
        assert edges[b.first] <= b.lo < b.hi <= edges[last]
        if last > b.first + 1:
            assert b.sizes == sizes[b.first : last].tolist()
            assert max(b.sizes) < size / tensors.LONG_SHARE
        np.testing.assert_array_equal(b.codes, np.repeat(np.arange(b.first, last), b.sizes))


def test_a_device_without_double_sums_blocks_in_single_precision(monkeypatch, tmp_path):
    """As on MPS: float32 on the device, blocks added in double on the host."""
    monkeypatch.setattr(tensors, "working_dtype", lambda device: torch.float32)
    monkeypatch.setattr(tensors, "CPU_NUMBERS", 2000)
    engine, rows = engine_of(tmp_path, weighted=True)
    assert engine.y.dtype == engine.weights.dtype == torch.float32
    assert engine.census.precision == np.finfo(np.float32).eps
    assert engine.ask(Labels(0.0, None)).dtype == np.float64
    every_question(engine, rows, leaky_relu(0.2), tol=3e-6)


def test_a_device_without_segments_adds_by_index(monkeypatch, tmp_path):
    engine, rows = engine_of(tmp_path, K=200, weighted=True)
    engine.blocks = [block._replace(levels=[]) for block in engine.blocks]
    every_question(engine, rows, leaky_relu(0.2))


def test_double_is_used_where_the_device_has_it():
    def refuse(*args, **kwargs):
        raise TypeError("Cannot convert a MPS Tensor to float64")

    assert tensors.working_dtype(torch.device("cpu")) is torch.float64
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch, "ones", refuse)
        assert tensors.working_dtype.__wrapped__(torch.device("cpu")) is torch.float32


@pytest.mark.parametrize("sigma", [*NAMED, relu().rounded(0.4)], ids=lambda s: s.name)
def test_every_named_activation_against_naive_sums(tmp_path, sigma):
    engine, rows = engine_of(tmp_path, weighted=True, sigma=sigma)
    every_question(engine, rows, sigma)


@pytest.mark.parametrize("sigma", [*NAMED, relu().rounded(0.4)], ids=lambda s: s.name)
def test_activations_far_out_and_at_their_kinks(sigma):
    far = np.geomspace(1e-12, 700.0, 200)
    t = np.concatenate([-far, [0.0, -0.3, 0.3, -0.4, 0.4, 19.5, 20.5], far])
    z = torch.tensor(t)
    value, slope = tensors.activate(sigma, z)
    np.testing.assert_allclose(value, sigma.value(t), rtol=1e-14, atol=1e-15)
    np.testing.assert_allclose(slope, sigma.slope(t), rtol=1e-13, atol=1e-15)
    np.testing.assert_array_equal(z, t)


@pytest.mark.parametrize("sigma", NAMED, ids=lambda s: s.name)
@pytest.mark.parametrize("storage", ["float64", "float32"])
def test_a_custom_activation_gives_the_sums_of_the_named_one(tmp_path, storage, sigma):
    own = Activation(sigma.value, sigma.slope, sigma.alpha, sigma.beta)
    engine, rows = engine_of(tmp_path, storage, weighted=True, sigma=own)
    every_question(engine, rows, sigma)


def test_a_custom_activation_without_slope_is_differentiated(tmp_path):
    sigma = softplus()
    own = Activation(sigma.value, None, sigma.alpha, sigma.beta)
    engine, rows = engine_of(tmp_path, sigma=own)
    w = point(rows)
    close(
        engine.evaluate(w, surrogate=False).grad_KD, naive_evaluate(rows, sigma, w, False)[1], 1e-8
    )


def test_a_custom_activation_may_write_to_its_scores(tmp_path):
    def in_place(t):
        t[:] = softplus().value(t)
        return t

    own = Activation(in_place, softplus().slope, 0.5, 1.0)
    engine, rows = engine_of(tmp_path, sigma=own)
    w = point(rows)
    grad = engine.evaluate(w, surrogate=False).grad_KD
    close(grad, naive_evaluate(rows, softplus(), w, False)[1])


# -- passes, variants, inputs --------------------------------------------------------------


@pytest.mark.parametrize("custom", [False, True])
def test_every_question_is_one_pass(tmp_path, custom):
    sigma = Activation(relu().value, relu().slope, 1.0, 1.0) if custom else relu()
    engine, _ = engine_of(tmp_path, sigma=sigma)
    assert engine.passes == 0
    for count, (name, ask) in enumerate(questions(engine).items(), start=1):
        ask()
        assert engine.passes == count, name
    engine.label_means()
    assert engine.passes == count


def test_variants_share_the_counter_and_the_rows(tmp_path):
    engine, rows = engine_of(tmp_path, sigma=relu())
    smooth, clipped = engine.variant(loss=softplus()), engine.variant(truncate=0.1)
    w = point(rows)
    engine.evaluate(w, surrogate=True)
    got, cut = smooth.evaluate(w, surrogate=False), clipped.evaluate(w, surrogate=False)
    assert engine.passes == smooth.passes == clipped.passes == 3
    assert smooth.X is clipped.X is engine.X
    close(got.loss_K, naive_evaluate(rows, softplus(), w, False)[0])
    close(engine.label_means(), mean_by_group(rows, rows.y))
    rows.y = np.clip(rows.y, -0.1, 0.1)
    close(clipped.label_means(), mean_by_group(rows, rows.y))
    close(cut.loss_K, naive_evaluate(rows, relu(), w, False)[0])


def test_inputs_are_never_written_and_need_no_gradient(tmp_path):
    data, rows = make(tmp_path, weighted=True)
    given = [torch.tensor(a, requires_grad=True) for a in (data.X, rows.y, rows.w)]
    X, y, weights = given
    kept = [a.detach().clone() for a in given]
    engine = TorchEngine(X, y, torch.tensor(rows.codes), weights, relu())
    assert engine.X.data_ptr() == X.data_ptr(), "rows in group order are not copied"
    for ask in questions(engine).values():
        ask()
    assert linear_scores(X, point(rows)[:5], 0.5).requires_grad is False
    for now, then in zip(given, kept, strict=True):
        assert torch.equal(now, then)
        assert now.grad is None


def test_the_same_input_gives_the_same_bits(monkeypatch, tmp_path):
    monkeypatch.setattr(tensors, "CPU_NUMBERS", 2000)
    runs = []
    for _ in range(3):
        engine, _ = engine_of(tmp_path, K=200, weighted=True)
        answers = [ask() for ask in questions(engine).values()]
        runs.append([a for x in answers for a in (x if isinstance(x, tuple) else [x])])
    for run in runs[1:]:
        for got, first in zip(run, runs[0], strict=True):
            np.testing.assert_array_equal(got, first)


def test_no_pass_copies_the_rows_to_the_host(monkeypatch, tmp_path):
    moved = []

    def record(name):
        original = getattr(torch.Tensor, name)

        def method(self, *args, **kwargs):
            moved.append(self.numel())
            return original(self, *args, **kwargs)

        monkeypatch.setattr(torch.Tensor, name, method)

    for name in ("cpu", "numpy", "tolist", "item", "__array__"):
        record(name)
    monkeypatch.setattr(tensors, "CPU_NUMBERS", 2000)
    engine, rows = engine_of(tmp_path, K=7, d=20, weighted=True)
    n, d = rows.X.shape
    assert max(moved) <= n, "at first: labels and weights"
    moved.clear()
    for name, ask in questions(engine).items():
        ask()
        allowed = 7 * (d * d if "curvature" in name or "second" in name else d + 2)
        assert moved, "the answer itself was seen"
        assert max(moved) <= allowed, name
        moved.clear()
    assert 7 * d * d < n * d / 30, "so matrices were no copies either"
    monkeypatch.setattr(tensors, "BUDGET", 2_000)
    solve(engine.X, engine.y, rows.codes)
    assert max(moved) <= n, "besides labels and weights, a small sample for a diagnosis"


@pytest.mark.parametrize(
    "dtype", ["float16", "bfloat16", "int64", "int8", "bool", "float32", "float64"]
)
def test_other_types_are_read_as_the_numbers_they_are(dtype):
    rng = np.random.default_rng(0)
    X = torch.tensor(rng.integers(0, 2, size=(200, 3)).astype(float)).to(getattr(torch, dtype))
    y, codes = rng.normal(size=200), rng.integers(0, 3, size=200)
    got = TorchEngine(X, y, codes, None, relu(), intercept=True, centred=True)
    like = open_engine(
        X.double().numpy(), y, codes, None, relu(), intercept=True, centred=True
    )  # fmt: skip
    w = np.array([1.0, -0.5, 0.25, 0.1])
    for a, b in zip(got.evaluate(w, surrogate=False), like.evaluate(w, surrogate=False),
                    strict=True):  # fmt: skip
        close(a, b)
    assert got.X.dtype == getattr(torch, dtype)


def test_the_census_is_that_of_arrays(tmp_path):
    data, rows = make(tmp_path, weighted=True)
    expected = make_engine(data, relu()).census
    for centred in (True, False):
        got = TorchEngine(
            torch.tensor(data.X), list(rows.y), list(rows.codes), torch.tensor(rows.w), relu(),
            intercept=True, centred=centred,
        ).census  # fmt: skip
        for name in ("labels", "totals", "n_rows", "n_features", "intercept", "pivot", "precision"):
            np.testing.assert_array_equal(getattr(got, name), getattr(expected, name))
        close(got.shift, expected.shift if centred else np.zeros(5))
    no_intercept = TorchEngine(torch.tensor(data.X), rows.y, None, None, relu(), intercept=False)
    assert not no_intercept.shift.any()


def test_labels_of_groups_may_be_text_or_tensors(tmp_path):
    data, rows = make(tmp_path)
    names = np.array(["north", "east", "south", "west", "up", "down", "in"])[rows.codes]
    by_name = TorchEngine(torch.tensor(data.X), rows.y, names, None, relu())
    assert by_name.census.labels.tolist() == sorted(set(names))
    by_number = TorchEngine(
        torch.tensor(data.X), rows.y, torch.tensor(rows.codes) + 3, None, relu()
    )
    assert by_number.census.labels.tolist() == [3, 4, 5, 6, 7, 8, 9]


def test_rows_of_zero_weight_are_left_out(tmp_path):
    data, rows = make(tmp_path, K=7)
    weights = np.where(np.arange(len(rows.y)) % 3 == 0, 0.0, 2.0)
    keep = weights > 0
    engine = TorchEngine(torch.tensor(data.X), rows.y, rows.codes, torch.tensor(weights), relu())
    other = TorchEngine(torch.tensor(data.X[keep]), rows.y[keep], rows.codes[keep], None, relu())
    assert engine.census.n_rows == keep.sum()
    assert engine.n_groups == 6, "the first group has one row, of weight zero"
    assert torch.equal(engine.X, other.X)
    w = point(rows)
    np.testing.assert_array_equal(
        engine.evaluate(w, surrogate=True).loss_K, other.evaluate(w, surrogate=True).loss_K
    )


def test_strided_rows_are_read_in_place(tmp_path):
    data, rows = make(tmp_path)
    wide = torch.tensor(np.column_stack([data.X, data.X]))
    for X in (wide[:, :5], torch.tensor(data.X.T.copy()).T):
        engine = TorchEngine(X, rows.y, rows.codes, None, leaky_relu(0.2))
        assert engine.X.data_ptr() == X.data_ptr()
        every_question(engine, rows, leaky_relu(0.2))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (dict(X=torch.full((4, 2), torch.nan)), "X has missing or infinite"),
        (dict(X=torch.tensor([[1.0, torch.inf]] * 4)), "X has missing or infinite"),
        (dict(X=torch.zeros(4)), r"X must have rows and columns; got a tensor of shape \(4,\)"),
        (dict(X=torch.zeros(4, 0)), "X must have rows and columns"),
        (dict(X=torch.zeros(0, 2), y=[]), "X must have rows and columns"),
        (dict(X=torch.zeros(4, 2, dtype=torch.complex64)), "dense tensor of real numbers"),
        (dict(X=torch.eye(4).to_sparse()), "dense tensor of real numbers.*to_dense"),
        (dict(y=None), r"y has shape \(\)"),
        (dict(y=torch.zeros(3)), r"X has 4 rows but y has shape \(3,\)"),
        (dict(y=torch.zeros(4, 2)), r"y has shape \(4, 2\)"),
        (dict(y=["a", "b", "c", "d"]), "y must hold a number"),
        (dict(y=torch.tensor([0.0, 1.0, torch.nan, 2.0])), "y has missing or infinite"),
        (dict(groups=torch.zeros(3)), "groups must hold one label for each of the 4 rows"),
        (dict(groups=torch.tensor([0.0, torch.nan, 1.0, 1.0])), "groups is missing at 1 row"),
        (dict(sample_weight=torch.ones(3)), "sample_weight must have shape"),
        (dict(sample_weight=torch.tensor([1.0, -1.0, 1.0, 1.0])), "sample_weight must be finite"),
        (dict(sample_weight=torch.zeros(4)), "sample_weight is zero for every row"),
    ],
)
def test_errors_name_the_argument(change, message):
    given = dict(X=torch.ones(4, 2), y=torch.ones(4), groups=None, sample_weight=None) | change
    with pytest.raises(ValueError, match=message):
        solve(**given)


def test_importing_the_package_does_not_import_torch():
    code = "import sys, counterpoise; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


# -- whole fits ----------------------------------------------------------------------------


@pytest.mark.parametrize("activation", ["relu", "identity"])
@pytest.mark.parametrize("divergence", ["kl", "chi2"])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("nu", [0.3, "auto"])
def test_fits_are_those_of_arrays(activation, divergence, weighted, nu):
    X, y, groups = neuron_data(K=4, n=300, d=5, activation=activation, seed=3)
    rng = np.random.default_rng(0)
    order = rng.permutation(len(y))
    X, y, groups = X[order], y[order], groups[order]
    weights = rng.exponential(size=len(y)) if weighted else None
    options = dict(activation=activation, divergence=divergence, nu=nu)
    expected = solve(X, y, groups, weights, **options)
    got = solve(
        torch.tensor(X), torch.tensor(y)[:, None], torch.tensor(groups),
        None if weights is None else torch.tensor(weights), **options,
    )  # fmt: skip
    assert got.converged
    assert (got.n_iter, got.n_passes) == (expected.n_iter, expected.n_passes)
    # Where the last digit of the risk decides whether another step is made, as here for a linear
    # fit with nu="auto" (rows in another order do that to arrays too), the rest has half as many.
    rest = 1e-6 if (activation, nu) == ("identity", "auto") else 1e-10
    for name in ("risk", "nu", "coef", "intercept", "losses", "weights"):
        tol = 1e-10 if name in ("risk", "nu") else rest
        np.testing.assert_allclose(getattr(got, name), getattr(expected, name), rtol=tol, atol=tol)
    np.testing.assert_array_equal(got.labels, expected.labels)


def test_a_tensor_is_known_without_importing_torch():
    assert backend_of(torch.zeros(2, 2)).name == "torch"
    assert backend_of(torch.nn.Parameter(torch.zeros(2, 2))).name == "torch"


def test_the_estimator_takes_tensors_and_predicts_tensors():
    X, y, groups = neuron_data(K=3, n=200, d=4)
    model = GroupDRONeuron().fit(torch.tensor(X), torch.tensor(y), groups=groups)
    like = GroupDRONeuron().fit(X, y, groups=groups)
    np.testing.assert_allclose(model.coef_, like.coef_, rtol=1e-10, atol=1e-10)
    got = model.predict(torch.tensor(X))
    assert isinstance(got, torch.Tensor)
    np.testing.assert_allclose(got, model.predict(X), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("sigma", [*NAMED, Activation(np.sinh, np.cosh, 1.0, 9.0)],
                         ids=lambda s: s.name)  # fmt: skip
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_predictions_are_those_of_arrays(monkeypatch, sigma, dtype):
    monkeypatch.setattr(tensors, "CPU_NUMBERS", 300)
    rng = np.random.default_rng(0)
    X, coef = rng.normal(size=(500, 3)).astype(dtype), rng.normal(size=3)
    got = activate(sigma, linear_scores(torch.tensor(X), coef, 0.3))[0]
    assert got.dtype == torch.float64
    close(got.numpy(), sigma.value(X @ coef + 0.3), 1e-13)


def test_predictions_need_the_features_of_the_fit():
    with pytest.raises(ValueError, match="X has 2 features, but the fit was to 3"):
        linear_scores(torch.zeros(4, 2), np.zeros(3), 0.0)
    with pytest.raises(ValueError, match="X has missing"):
        linear_scores(torch.full((4, 3), torch.nan), np.zeros(3), 0.0)


def test_a_fit_that_is_interrupted_goes_on_to_the_same_bits(tmp_path):
    X, y, groups = neuron_data(K=3, n=200, d=4)
    given = torch.tensor(X), torch.tensor(y), groups

    def stop(progress):
        if progress.iteration == 3:
            raise KeyboardInterrupt

    path = tmp_path / "fit.journal"
    with pytest.raises(KeyboardInterrupt):
        solve(*given, checkpoint=path, callback=stop)
    assert path.exists()
    found, whole = solve(*given, checkpoint=path), solve(*given)
    assert found.coef.tobytes() == whole.coef.tobytes()
    assert (found.risk, found.n_passes) == (whole.risk, whole.n_passes)
