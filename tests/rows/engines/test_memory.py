"""Engines against naive sums over rows: every storage, weighting and group layout."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from engine_checks import (
    NAMED,
    close,
    make,
    mean_by_group,
    naive_evaluate,
    point,
    questions,
)

from counterpoise.activations import (
    Activation,
    identity,
    leaky_relu,
    relu,
    softplus,
)
from counterpoise.losses import Multinomial
from counterpoise.rows import threads
from counterpoise.rows.engines import row_part
from counterpoise.rows.engines.dense import DensePart
from counterpoise.rows.engines.memory import make_engine
from counterpoise.rows.engines.row_part import N_CHUNKS, Segments
from counterpoise.rows.engines.sparse import SparsePart
from counterpoise.rows.threads import n_threads, over_ranges, single_threaded_blas
from counterpoise.solver.quadratics import QuadraticEngine

STORAGES = ["float64", "float32", "fortran", "memmap", "csr", "csr32"]


@pytest.fixture(autouse=True)
def small_chunks(small_chunks):
    """All of these tests cut their few rows into chunks and share them among threads."""


LAYOUTS = [
    pytest.param(storage, K, intercept, weighted, id=f"{storage}-K{K}-{int(intercept)}{weighted:d}")
    for storage in STORAGES
    for K in (1, 7, 200)
    for intercept, weighted in ((True, True), (False, False), (True, False), (False, True))
    if intercept == weighted or (storage in ("float64", "csr") and K < 200)
]


@pytest.mark.parametrize("storage", ["float64", "csr"])
def test_moments_of_rows_do_not_depend_on_the_number_of_scores(tmp_path, storage):
    data, rows = make(tmp_path, storage, 7, True, False)
    directions = np.random.default_rng(2).normal(size=(7, rows.X.shape[1]))
    found = make_engine(data, Multinomial(3)).apply_moments(directions)
    np.testing.assert_array_equal(found, make_engine(data, identity()).apply_moments(directions))


@pytest.mark.parametrize(("storage", "K", "intercept", "weighted"), LAYOUTS)
def test_every_question_against_naive_sums(tmp_path, storage, K, intercept, weighted):
    data, rows = make(tmp_path, storage, K, intercept, weighted)
    sigma = leaky_relu(0.2)
    engine = make_engine(data, sigma)
    assert isinstance(engine.part, SparsePart if storage.startswith("csr") else DensePart)
    assert (engine.n_groups, engine.n_coef) == (K, rows.X.shape[1])
    w = point(rows)

    for surrogate in (True, False):
        loss, grad = engine.evaluate(w, surrogate=surrogate)
        expected_loss, expected_grad = naive_evaluate(rows, sigma, w, surrogate)
        close(loss, expected_loss)
        close(grad, expected_grad)

    directions = np.random.default_rng(2).normal(size=(K, rows.X.shape[1]))
    projected = np.einsum("nj,nj->n", rows.X, directions[rows.codes])
    close(engine.apply_moments(directions), mean_by_group(rows, projected[:, None] * rows.X))

    points = np.random.default_rng(3).normal(size=(4, rows.X.shape[1]))
    gaps = sigma.value(rows.X @ points.T) - sigma.value(rows.X @ w)[:, None]
    close(engine.separation(points, w), mean_by_group(rows, gaps**2).T)

    shifted = rows.X.copy()
    shifted[:, : rows.d] -= engine.shift
    mixture = np.random.default_rng(4).dirichlet(np.ones(K))
    close(engine.mean_squares(mixture), mixture @ mean_by_group(rows, shifted**2))

    outer = np.einsum("ni,nj->nij", shifted, shifted)
    slope2 = sigma.slope(rows.X @ w) ** 2
    for at, scale in ((None, np.ones(len(slope2))), (w, slope2)):
        expected = mean_by_group(rows, 2.0 * scale[:, None, None] * outer)
        close(engine.curvature(at, None), expected)
        close(engine.curvature(at, mixture), np.tensordot(mixture, expected, axes=1))


def test_the_shift_is_a_centre_for_dense_rows_and_zero_for_sparse(tmp_path):
    data, rows = make(tmp_path)
    np.testing.assert_allclose(make_engine(data, relu()).shift, rows.X[:, :5].mean(0), atol=0.1)
    data, _ = make(tmp_path, "csr")
    assert not make_engine(data, relu()).shift.any()


@pytest.mark.parametrize("sigma", [*NAMED, relu().rounded(0.4)], ids=lambda s: s.name)
@pytest.mark.parametrize("storage", ["float64", "csr"])
def test_every_named_activation_against_naive_sums(tmp_path, storage, sigma):
    data, rows = make(tmp_path, storage, weighted=True)
    w = point(rows)
    for surrogate in (True, False):
        loss, grad = make_engine(data, sigma).evaluate(w, surrogate=surrogate)
        expected_loss, expected_grad = naive_evaluate(rows, sigma, w, surrogate)
        close(loss, expected_loss)
        close(grad, expected_grad)


@pytest.mark.parametrize("sigma", NAMED, ids=lambda s: s.name)
@pytest.mark.parametrize("storage", ["float64", "csr32"])
def test_a_custom_activation_gives_the_sums_of_the_named_one(tmp_path, storage, sigma):
    data, rows = make(tmp_path, storage, weighted=True)
    own = Activation(sigma.value, sigma.slope, sigma.alpha, sigma.beta)
    w = point(rows)
    for surrogate in (True, False):
        a = make_engine(data, sigma).evaluate(w, surrogate=surrogate)
        b = make_engine(data, own).evaluate(w, surrogate=surrogate)
        close(b.loss_K, a.loss_K)
        close(b.grad_KD, a.grad_KD)


def test_a_steep_custom_activation_scales_the_surrogate_by_beta(tmp_path):
    data, rows = make(tmp_path, K=1)
    steep = Activation(
        lambda t: 3.0 * np.maximum(t, 0.0), lambda t: 3.0 * (t >= 0), 3.0, 3.0, name="steep"
    )
    w = point(rows)
    loss, grad = make_engine(data, steep).evaluate(w, surrogate=True)
    residual = 3.0 * np.maximum(rows.X @ w, 0.0) - rows.y
    close(loss, np.array([np.mean(residual**2)]))
    close(grad, np.mean(2 * 3.0 * residual[:, None] * rows.X, axis=0)[None])


def test_a_custom_activation_without_slope_is_differentiated(tmp_path):
    data, rows = make(tmp_path, K=1)
    sigma = softplus()
    own = Activation(sigma.value, None, sigma.alpha, sigma.beta)
    w = point(rows)
    a = make_engine(data, sigma).evaluate(w, surrogate=False).grad_KD
    close(make_engine(data, own).evaluate(w, surrogate=False).grad_KD, a, 1e-8)


@pytest.mark.parametrize("storage", ["float64", "csr"])
def test_the_true_gradient_is_the_derivative_of_the_loss(tmp_path, storage):
    data, rows = make(tmp_path, storage, K=7, weighted=True)
    engine = make_engine(data, softplus())
    w, h = point(rows), 1e-6
    numeric = np.column_stack(
        [
            (engine.evaluate(w + h * e, surrogate=False).loss_K
             - engine.evaluate(w - h * e, surrogate=False).loss_K) / (2 * h)
            for e in np.eye(len(w))
        ]
    )  # fmt: skip
    np.testing.assert_allclose(
        engine.evaluate(w, surrogate=False).grad_KD, numeric, rtol=1e-6, atol=1e-8
    )


def test_wide_rows_are_cut_into_several_blocks(tmp_path):
    """More features than a block of four rows holds, and more rows than one block."""
    data, rows = make(tmp_path, K=1, d=300)
    sigma = relu()
    w = point(rows) / 20
    loss, grad = make_engine(data, sigma).evaluate(w, surrogate=False)
    expected_loss, expected_grad = naive_evaluate(rows, sigma, w, False)
    close(loss, expected_loss)
    close(grad, expected_grad)


def test_integer_coefficients_are_understood(tmp_path):
    data, _ = make(tmp_path, K=7)
    w = np.array([1, -1, 2, 0, 1, 3])
    a = make_engine(data, relu()).evaluate(w, surrogate=True)
    b = make_engine(data, relu()).evaluate(w.astype(float), surrogate=True)
    np.testing.assert_array_equal(a.loss_K, b.loss_K)
    np.testing.assert_array_equal(a.grad_KD, b.grad_KD)


# -- passes and variants -------------------------------------------------------------------


@pytest.mark.parametrize("storage", ["float64", "csr"])
@pytest.mark.parametrize("custom", [False, True])
def test_every_question_is_one_pass(tmp_path, storage, custom):
    data, _ = make(tmp_path, storage, K=7)
    sigma = relu()
    if custom:
        sigma = Activation(sigma.value, sigma.slope, 1.0, 1.0)
    engine = make_engine(data, sigma)
    assert engine.passes == 0
    for count, (name, ask) in enumerate(questions(engine).items(), start=1):
        ask()
        assert engine.passes == count, name


def test_variants_share_the_counter_and_the_shift(tmp_path):
    data, rows = make(tmp_path, K=7)
    engine = make_engine(data, relu(), centred=False)
    assert not engine.shift.any()
    smooth = engine.variant(loss=softplus())
    clipped = engine.variant(truncate=0.1)
    w = point(rows)
    engine.evaluate(w, surrogate=True)
    got = smooth.evaluate(w, surrogate=False)
    cut = clipped.evaluate(w, surrogate=False)
    assert engine.passes == smooth.passes == clipped.passes == 3
    assert make_engine(data, relu()).passes == 0
    np.testing.assert_array_equal(smooth.shift, engine.shift)
    np.testing.assert_array_equal(clipped.shift, engine.shift)
    close(got.loss_K, naive_evaluate(rows, softplus(), w, False)[0])
    rows.y = np.clip(rows.y, -0.1, 0.1)
    close(cut.loss_K, naive_evaluate(rows, relu(), w, False)[0])
    assert engine.data.y.max() > 0.1, "the labels of the first engine are its own"


def test_rows_are_never_written(tmp_path):
    for storage in ("float64", "csr"):
        data, _ = make(tmp_path, storage, K=7, weighted=True)
        values = data.X.data if storage == "csr" else data.X
        kept = [a.copy() for a in (values, data.y, data.row_weights)]
        for ask in questions(make_engine(data, relu())).values():
            ask()
        for now, then in zip((values, data.y, data.row_weights), kept, strict=True):
            np.testing.assert_array_equal(now, then)


# -- segments and threads ------------------------------------------------------------------


@pytest.mark.parametrize(
    "sizes", [[1], [3, 1, 2], [5000], [1, 20_000, 1, 7, 90_000], [1] * 3000, [256, 256]]
)
def test_segments_cover_all_rows_once_and_respect_groups_and_chunks(sizes):
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    cut = Segments.cut(offsets, 5 * int(offsets[-1]))
    assert cut.starts[0] == 0
    assert cut.stops[-1] == offsets[-1]
    np.testing.assert_array_equal(cut.starts[1:], cut.stops[:-1])
    assert (cut.stops > cut.starts).all()
    for s, (lo, hi) in enumerate(zip(cut.starts, cut.stops, strict=True)):
        assert offsets[cut.groups[s]] <= lo < hi <= offsets[cut.groups[s] + 1]
    assert cut.chunks[0] == 0
    assert cut.chunks[-1] == len(cut.starts)
    assert len(cut.chunks) - 1 == max(1, min(N_CHUNKS, 5 * offsets[-1] // row_part.CHUNK_NUMBERS))
    assert (np.diff(cut.chunks) > 0).all()


def test_these_tests_do_cut_rows_into_several_chunks(tmp_path):
    data, _ = make(tmp_path, K=7)
    engine = make_engine(data, relu())
    assert data.X.shape[0] == 5000
    assert len(engine.part.segments.chunks) - 1 == 19
    assert len(engine.part.segments.starts) > 19


@pytest.mark.parametrize("count", [1, 2, 3, 5, 8])
@pytest.mark.parametrize("items", [1, 2, 3, 7, 64, 101])
def test_ranges_cover_every_item_once(monkeypatch, count, items):
    monkeypatch.setattr(threads, "n_threads", lambda: count)
    seen = over_ranges(lambda lo, hi: list(range(lo, hi)), items)
    assert [i for part in seen for i in part] == list(range(items))
    assert len(seen) == min(count, items)


def test_an_error_in_a_worker_reaches_the_caller(monkeypatch):
    monkeypatch.setattr(threads, "n_threads", lambda: 3)

    def fail(lo, hi):
        if lo > 0:
            raise KeyError("from a worker")

    with pytest.raises(KeyError, match="from a worker"):
        over_ranges(fail, 9)


@pytest.mark.parametrize(
    ("setting", "expected"), [("1", 1), ("1,4", 1), ("1000", None), ("0", None), ("many", None)]
)
def test_thread_count_follows_the_environment(monkeypatch, setting, expected):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    cores = n_threads()
    assert cores >= 1
    monkeypatch.setenv("OMP_NUM_THREADS", setting)
    assert n_threads() == (cores if expected is None else expected)


def answers(engine):
    flat = []
    with single_threaded_blas():
        for ask in questions(engine).values():
            answer = ask()
            flat.extend(answer if isinstance(answer, tuple) else [answer])
    return flat


@pytest.mark.parametrize("storage", ["float64", "float32", "csr"])
@pytest.mark.parametrize("K", [7, 40])
def test_results_do_not_depend_on_the_number_of_threads(monkeypatch, tmp_path, storage, K):
    data, _ = make(tmp_path, storage, K, weighted=True)
    runs = []
    for setting in ("1", "2", "64"):
        monkeypatch.setenv("OMP_NUM_THREADS", setting)
        runs.append(answers(make_engine(data, leaky_relu(0.2))))
    for count in (1, 2, 5):
        monkeypatch.setattr(threads, "n_threads", lambda count=count: count)
        runs.append(answers(make_engine(data, leaky_relu(0.2))))
    for run in runs[1:]:
        for got, first in zip(run, runs[0], strict=True):
            np.testing.assert_array_equal(got, first)


def test_custom_activations_do_not_depend_on_the_number_of_threads(monkeypatch, tmp_path):
    data, _ = make(tmp_path, K=40)
    own = Activation(relu().value, relu().slope, 1.0, 1.0)
    runs = []
    for count in (1, 2, 5):
        monkeypatch.setattr(threads, "n_threads", lambda count=count: count)
        runs.append(answers(make_engine(data, own)))
    for run in runs[1:]:
        for got, first in zip(run, runs[0], strict=True):
            np.testing.assert_array_equal(got, first)


@pytest.mark.parametrize("storage", ["float64", "csr"])
def test_concurrent_callers_get_the_same_answers(monkeypatch, tmp_path, storage):
    monkeypatch.setattr(threads, "n_threads", lambda: 3)
    data, rows = make(tmp_path, storage, K=7)
    engine = make_engine(data, relu())
    points = [point(rows, seed) for seed in range(4)]
    alone = [engine.evaluate(w, surrogate=False) for w in points]
    with ThreadPoolExecutor(4) as pool:
        jobs = [
            (i, pool.submit(engine.evaluate, points[i], surrogate=False))
            for _ in range(10)
            for i in range(4)
        ]
        for i, job in jobs:
            loss, grad = job.result(timeout=60)
            np.testing.assert_array_equal(loss, alone[i].loss_K)
            np.testing.assert_array_equal(grad, alone[i].grad_KD)


# -- quadratics ----------------------------------------------------------------------------


def quadratic(K=4, D=3, shared=False, seed=0):
    rng = np.random.default_rng(seed)
    A = rng.normal(size=(1 if shared else K, D + 2, D))
    hess = np.einsum("kij,kil->kjl", A, A)
    return QuadraticEngine(rng.exponential(size=K), rng.normal(size=(K, D)), hess)


@pytest.mark.parametrize("shared", [False, True])
def test_quadratic_engine_is_its_definition(shared):
    engine = quadratic(shared=shared)
    hess = np.broadcast_to(engine.hess, (4, 3, 3))
    u = np.array([0.3, -1.0, 2.0])
    loss, grad = engine.evaluate(u, surrogate=True)
    for i in range(4):
        expected = engine.loss_K[i] + engine.grad_KD[i] @ u + 0.5 * u @ hess[i] @ u
        assert loss[i] == pytest.approx(expected, rel=1e-13)
        np.testing.assert_allclose(grad[i], engine.grad_KD[i] + hess[i] @ u, rtol=1e-13)
    lam = np.array([0.1, 0.2, 0.3, 0.4])
    mixture = sum(lam[i] * hess[i] for i in range(4))
    np.testing.assert_allclose(engine.mixture(lam), mixture, rtol=1e-13)
    np.testing.assert_allclose(engine.curvature(u, lam), mixture, rtol=1e-13)
    np.testing.assert_array_equal(engine.curvature(None, None), engine.hess)
    assert engine.passes == 0


@pytest.mark.parametrize("shared", [False, True])
def test_quadratic_separation_is_half_the_curved_distance(shared):
    engine = quadratic(shared=shared)
    hess = np.broadcast_to(engine.hess, (4, 3, 3))
    rng = np.random.default_rng(6)
    points, u = rng.normal(size=(5, 3)), rng.normal(size=3)
    expected = [[0.5 * (p - u) @ hess[i] @ (p - u) for i in range(4)] for p in points]
    got = engine.separation(points, u)
    assert got.shape == (5, 4)
    np.testing.assert_allclose(got, expected, rtol=1e-12)


def test_the_quadratic_engine_reproduces_the_rows_under_the_identity(tmp_path):
    data, rows = make(tmp_path, K=7, intercept=False, weighted=True)
    engine = make_engine(data, identity())
    origin = engine.evaluate(np.zeros(5), surrogate=False)
    model = QuadraticEngine(*origin, engine.curvature(None, None))
    w, points = point(rows), np.random.default_rng(7).normal(size=(3, 5))
    a, b = engine.evaluate(w, surrogate=False), model.evaluate(w)
    close(b.loss_K, a.loss_K)
    close(b.grad_KD, a.grad_KD)
    close(model.separation(points, w), engine.separation(points, w))


def test_overlapping_fits_leave_blas_as_it_was():
    """One context entered while another is open, left in the other order."""
    from threadpoolctl import threadpool_info

    def blas_threads():
        return [lib["num_threads"] for lib in threadpool_info() if lib["user_api"] == "blas"]

    before = blas_threads()
    first, second = single_threaded_blas(), single_threaded_blas()
    first.__enter__()
    second.__enter__()
    assert set(blas_threads()) == {1}
    first.__exit__(None, None, None)
    assert set(blas_threads()) == {1}
    second.__exit__(None, None, None)
    assert blas_threads() == before
