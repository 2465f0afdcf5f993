"""Fits in lockstep: the answers are those of single fits, and one read serves all that ask."""

from __future__ import annotations

import signal
import threading

import dask.array as da
import numpy as np
import pytest
from engine_checks import make

from counterpoise.activations import identity, leaky_relu, relu
from counterpoise.losses import LogLoss, NeuronLoss
from counterpoise.rows.engines.cells import CellsEngine
from counterpoise.rows.engines.chunked import ChunkedEngine
from counterpoise.rows.engines.dask import DaskEngine
from counterpoise.rows.engines.lockstep import in_lockstep
from counterpoise.rows.engines.memory import make_engine
from counterpoise.rows.engines.questions import (
    Evaluate,
    EvaluateEach,
    Gram,
    GramEach,
    Labels,
    Moments,
    Question,
)
from counterpoise.rows.groups import GroupedData
from counterpoise.rows.sources import Npy

RELU = NeuronLoss(relu())


def questions(width, K, shift, seed=0):
    """Questions of every kind; several can be answered in one read."""
    rng = np.random.default_rng(seed)
    w = rng.normal(size=(6, width))
    rounded = RELU.rounded(0.2), RELU.rounded(0.7)
    return [
        Evaluate(w[0], RELU, True, None),
        Evaluate(w[1], RELU, True, None),
        Evaluate(w[2], RELU, False, None),
        Evaluate(w[3], rounded[0], False, None),
        Evaluate(w[4], rounded[1], False, None),
        Evaluate(w[5], RELU, True, 0.4),
        Evaluate(w[5], NeuronLoss(identity()), True, None),
        Evaluate(w[0], LogLoss(), True, None),
        Gram(None, RELU, None, shift, None),
        Gram(w[0], RELU, None, shift, None),
        Gram(w[0], RELU, rng.random(K), shift, None),
        Labels(0.3, None),
        Moments(rng.normal(size=(K, width))),
        EvaluateEach(rng.normal(size=(K, width)), RELU, False, 0.4),
        GramEach(rng.normal(size=(K, width)), RELU, shift),
    ]


@pytest.mark.parametrize("storage", ["float64", "float32", "csr"])
@pytest.mark.parametrize(("K", "d"), [(1, 5), (7, 5), (200, 5)])
@pytest.mark.parametrize("weighted", [False, True])
def test_answers_together_are_those_of_single_questions(tmp_path, storage, K, d, weighted):
    data, _ = make(tmp_path, storage, K=K, d=d, weighted=weighted)
    engine = make_engine(data, RELU)
    asked = questions(engine.width, K, engine.shift)
    for question, answer in zip(asked, engine.ask_all(asked), strict=True):
        expected = engine.ask(question)
        assert answer.shape == expected.shape
        np.testing.assert_allclose(answer, expected, rtol=1e-11, atol=1e-9)


@pytest.mark.parametrize("storage", ["float64", "float32"])
def test_rows_longer_than_the_cache_are_read_together_too(tmp_path, storage):
    data, _ = make(tmp_path, storage, K=1, d=1700)
    engine = make_engine(data, RELU)
    asked = questions(engine.width, 1, engine.shift)[:6]
    for question, answer in zip(asked, engine.ask_all(asked), strict=True):
        np.testing.assert_allclose(answer, engine.ask(question), rtol=1e-10, atol=1e-8)


def test_many_vectors_take_one_read(tmp_path):
    data, _ = make(tmp_path)
    engine = make_engine(data, RELU)
    w = np.random.default_rng(1).normal(size=(9, engine.width))
    before = engine.passes
    engine.ask_all([Evaluate(row, leaky_relu_loss, True, None) for row in w])
    assert engine.passes == before + 1
    engine.ask_all([Labels(0.0, None), Gram(None, RELU, None, engine.shift, None)])
    assert engine.passes == before + 2


leaky_relu_loss = NeuronLoss(leaky_relu(0.1))


def engines(data):
    """The same rows in memory, in chunks and on Dask."""
    labels = data.labels[data.codes]
    yield make_engine(data, RELU)
    yield ChunkedEngine(Npy(data.X, data.y, labels, chunk_rows=777), RELU)
    X, y = (da.from_array(a, chunks=(777, -1)[: a.ndim]) for a in (data.X, data.y))
    yield DaskEngine(X, y, da.from_array(labels, chunks=777), None, RELU)


@pytest.mark.parametrize("kind", range(3))
def test_fits_in_lockstep_share_reads_on_every_engine(tmp_path, kind):
    data, _ = make(tmp_path)
    engine = [*engines(data)][kind]
    w = np.random.default_rng(2).normal(size=(4, 3, engine.width))
    before = engine.passes

    def fit(place, seat):
        moments = seat.curvature(None, None)
        found = [seat.evaluate(v, surrogate=True) for v in w[place][: place % 3 + 1]]
        return moments, found

    results = in_lockstep(engine, [lambda seat, p=p: fit(p, seat) for p in range(4)])
    # One read for the moments that all ask for, and one for each round of evaluations.
    assert engine.passes == before + 1 + 3
    alone = make_engine(data, RELU)
    for place, (moments, found) in enumerate(results):
        np.testing.assert_allclose(moments, alone.curvature(None, None), rtol=1e-9, atol=1e-9)
        for v, (loss, grad) in zip(w[place], found, strict=False):
            expected = alone.evaluate(v, surrogate=True)
            np.testing.assert_allclose(loss, expected.loss_K, rtol=1e-10)
            np.testing.assert_allclose(grad, expected.grad_KD, rtol=1e-9, atol=1e-10)


def test_lockstep_gives_the_same_bits_every_time(tmp_path):
    data, _ = make(tmp_path, K=7)
    engine = make_engine(data, RELU)

    def descend(seat, rate):
        w = np.ones(seat.width)
        for _ in range(20):
            loss, grad = seat.evaluate(w, surrogate=True)
            w = w - rate * grad.mean(axis=0)
            if loss.mean() < 1.0:
                break
        return w

    def run():
        return in_lockstep(engine, [lambda seat, r=r: descend(seat, r) for r in (0.01, 0.1, 0.3)])

    first = run()
    for _ in range(5):
        for a, b in zip(first, run(), strict=True):
            np.testing.assert_array_equal(a, b)


def test_an_error_in_one_fit_is_raised_after_the_others_end(tmp_path):
    engine, ended = make_engine(make(tmp_path)[0], RELU), []

    def good(seat):
        for _ in range(3):
            seat.evaluate(np.ones(seat.width), surrogate=True)
        ended.append(True)

    def bad(seat):
        seat.evaluate(np.ones(seat.width), surrogate=True)
        raise ValueError("a fit that fails")

    with pytest.raises(ValueError, match="a fit that fails"):
        in_lockstep(engine, [good, bad, good])
    assert ended == [True, True]


def test_an_error_of_the_engine_reaches_every_fit(tmp_path):
    engine = make_engine(make(tmp_path)[0], RELU)

    def fit(seat):
        return seat.ask(Question())

    with pytest.raises(TypeError, match="cannot answer Question"):
        in_lockstep(engine, [fit, fit])
    assert not [t for t in threading.enumerate() if t.name.startswith("counterpoise-fit")]


def test_answers_that_cannot_be_shared_end_all_fits(tmp_path, monkeypatch):
    """As if there were no memory for a copy; no fit may wait for ever."""

    class Precious(np.ndarray):
        def copy(self, *_):
            raise MemoryError("no room")

    engine = make_engine(make(tmp_path, "float64", K=2, d=3)[0], RELU)
    monkeypatch.setattr(
        engine, "ask_all", lambda asked: [engine.ask(one).view(Precious) for one in asked]
    )
    ended = []

    def work(seat):
        try:
            return seat.ask(Labels(0.3, None))
        finally:
            ended.append(1)

    def fit():
        with pytest.raises(MemoryError, match="no room"):
            in_lockstep(engine, [work] * 3)
        ended.append("all")

    thread = threading.Thread(target=fit, daemon=True)
    thread.start()
    thread.join(60)
    assert ended == [1, 1, 1, "all"]


@pytest.mark.parametrize("most", [1, 2, 5, None])
def test_at_most_so_many_fits_at_once(tmp_path, most, monkeypatch):
    engine = make_engine(make(tmp_path, "float64", K=2, d=3)[0], RELU)
    together, ask_all = [], engine.ask_all
    monkeypatch.setattr(
        engine, "ask_all", lambda asked: (together.append(len(asked)), ask_all(asked))[1]
    )
    tasks = [
        lambda seat, c=c: (seat.ask(Evaluate(np.full(4, float(c)), RELU, True, None)), c)
        for c in range(5)
    ]
    assert [c for _, c in in_lockstep(engine, tasks, most)] == [*range(5)]
    assert together == {1: [], 2: [2, 2], 5: [5], None: [5]}[most]


@pytest.mark.parametrize("restarted", [False, True])
def test_an_interrupt_ends_all_fits_at_their_next_question(tmp_path, restarted):
    """Also if system calls are restarted after signals, as some libraries leave it."""
    engine, asked = make_engine(make(tmp_path)[0], RELU), []

    def fit(seat):
        for _ in range(100_000):  # far more than it gets to ask
            asked.append(seat.evaluate(np.ones(seat.width), surrogate=True))
            if len(asked) == 5:
                signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

    try:
        signal.siginterrupt(signal.SIGINT, not restarted)
        with pytest.raises(KeyboardInterrupt):
            in_lockstep(engine, [fit, fit, fit])
    finally:
        signal.siginterrupt(signal.SIGINT, True)
    for thread in threading.enumerate():
        if thread.name.startswith("counterpoise-fit"):
            thread.join(timeout=30)
            assert not thread.is_alive()
    assert len(asked) < 100_000


def test_cells_add_up_to_the_rows_that_are_kept(tmp_path):
    data, rows = make(tmp_path, K=7, weighted=True)
    rng = np.random.default_rng(3)
    fold = rng.integers(3, size=len(rows.y))
    cut = GroupedData.build(data.X, data.y, data.codes * 3 + fold, data.row_weights, intercept=True)
    cells = make_engine(cut, RELU)
    codes, folds = cut.labels // 3, cut.labels % 3
    for out in range(3):
        view = CellsEngine(cells, codes, data.labels, folds != out)
        kept = fold != out
        alone = make_engine(
            GroupedData.build(
                data.X[kept], data.y[kept], data.labels[data.codes[kept]], data.row_weights[kept],
                intercept=True,
            ),
            RELU,
        )  # fmt: skip
        np.testing.assert_array_equal(view.census.labels, alone.census.labels)
        np.testing.assert_allclose(view.census.totals, alone.census.totals)
        np.testing.assert_allclose(view.effective_sizes(), alone.effective_sizes())
        K = view.n_groups
        for question in questions(view.width, K, view.shift):
            np.testing.assert_allclose(
                view.ask(question), alone.ask(question), rtol=1e-9, atol=1e-8
            )
        for k in range(K):
            mine, theirs = view.group_rows(k), alone.group_rows(k)
            np.testing.assert_allclose(np.sort(mine.y), np.sort(theirs.y))
            np.testing.assert_allclose(mine.row_weights.sum(), theirs.row_weights.sum())
