"""Rows read chunk by chunk give the answers, and the fits, of the same rows in memory."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
import time
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from problems import neuron_data
from scipy import sparse

from counterpoise import Chunks, GroupDRONeuron, Npy, PaperSteps, Parquet, Source, solve
from counterpoise.activations import Activation, identity, leaky_relu, relu, softplus
from counterpoise.rows.engines.chunked import ChunkedEngine, read_ahead
from counterpoise.rows.engines.memory import make_engine
from counterpoise.rows.groups import GroupedData

D = 4


def make_rows(n=700, weighted=False, seed=0):
    """Shuffled rows of five groups; the last only at the end, so most chunks lack it."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, D)) + 0.3
    y = rng.normal(size=n) + 0.5
    g = rng.integers(0, 4, n)
    g[-20:] = 4
    w = None
    if weighted:
        w = rng.uniform(0.1, 3.0, n)
        w[rng.random(n) < 0.3] = 0.0
        w[g == 1] = 0.0  # a group of no weight at all
        w[20:60] = 0.0  # and whole chunks of none
    return X, y, g, w


def cut(columns, edges):
    """The columns as a source of chunks between the edges."""
    bounds = [0, *edges, columns[0].shape[0]]
    return Chunks(
        [tuple(None if c is None else c[lo:hi] for c in columns) for lo, hi in pairwise(bounds)]
    )


CUTS = {
    "whole": lambda n: [],
    "halves": lambda n: [n // 2],
    "every 97": lambda n: range(97, n, 97),
    "every 20": lambda n: range(20, n, 20),
    "uneven": lambda n: [1, 2, 5, 300, 301, n - 20],
    "some empty": lambda n: [0, 0, 50, 50, 50, n],
    "one row each": lambda n: range(1, n),
}


def close(got, expected, tol=1e-12):
    assert np.shape(got) == np.shape(expected)
    np.testing.assert_allclose(got, expected, rtol=tol, atol=tol * np.abs(expected).max())


def questions(engine, seed=5):
    """Every question an engine can be asked: name -> answer."""
    rng = np.random.default_rng(seed)
    K, p = engine.n_groups, engine.n_coef
    w, mixture = rng.normal(size=p), rng.dirichlet(np.ones(K))
    directions, points = rng.normal(size=(K, p)), rng.normal(size=(3, p))
    basis = rng.normal(size=(p, 3))
    return {
        "loss": lambda e: e.evaluate(w, surrogate=True).loss_K,
        "surrogate gradient": lambda e: e.evaluate(w, surrogate=True).grad_KD,
        "true gradient": lambda e: e.evaluate(w, surrogate=False).grad_KD,
        "second moments": lambda e: e.curvature(None, None),
        "pooled second moment": lambda e: e.curvature(None, mixture),
        "curvatures": lambda e: e.curvature(w, None),
        "pooled curvature": lambda e: e.curvature(w, mixture),
        "curvatures in a basis": lambda e: e.curvature(w, None, basis),
        "pooled curvature in a basis": lambda e: e.curvature(None, mixture, basis),
        "separation": lambda e: e.separation(points, w),
        "moments": lambda e: e.apply_moments(directions),
        "squares": lambda e: e.mean_squares(mixture),
        "label means": lambda e: e.label_means(),
        "label squares": lambda e: e.label_squares(),
        "label squares about a centre": lambda e: e.label_squares(0.7),
    }


def check_same_answers(columns, edges, sigma, intercept=True, tol=1e-12):
    memory = make_engine(GroupedData.build(*columns, intercept=intercept), sigma)
    chunked = ChunkedEngine(cut(columns, edges), sigma, intercept=intercept)
    assert (chunked.n_groups, chunked.n_coef) == (memory.n_groups, memory.n_coef)
    np.testing.assert_array_equal(chunked.census.labels, memory.census.labels)
    close(chunked.census.totals, memory.census.totals)
    assert chunked.census.n_rows == memory.census.n_rows
    assert chunked.census.precision == memory.census.precision
    np.testing.assert_allclose(chunked.shift, memory.shift, rtol=0, atol=1e-14)
    for name, ask in questions(memory).items():
        expected = ask(memory)
        before = chunked.passes
        close(ask(chunked), expected, tol)
        label_question_again = name.startswith("label squares")
        assert chunked.passes == before + (0 if label_question_again else 1), name
    for t in (0.4, 1.0):
        a, b = chunked.variant(truncate=t), memory.variant(truncate=t)
        for name in ("loss", "true gradient", "label means", "label squares"):
            close(questions(memory)[name](a), questions(memory)[name](b), tol)
    smooth = softplus()
    a, b = chunked.variant(loss=smooth), memory.variant(loss=smooth)
    close(a.curvature(np.ones(memory.n_coef), None), b.curvature(np.ones(memory.n_coef), None), tol)
    close(chunked.label_means(), memory.label_means(), tol)


# -- every question ------------------------------------------------------------------------


@pytest.mark.parametrize("edges", CUTS)
@pytest.mark.parametrize("weighted", [False, True])
def test_answers_are_those_of_memory_wherever_the_rows_are_cut(edges, weighted):
    n = 80 if edges == "one row each" else 700
    check_same_answers(make_rows(n, weighted), CUTS[edges](n), leaky_relu(0.2))


@pytest.mark.parametrize("edges", ["whole", "every 97", "uneven"])
@pytest.mark.parametrize("storage", ["csr", "csr32", "float32", "fortran"])
@pytest.mark.parametrize(("intercept", "weighted"), [(True, False), (False, True)])
def test_every_storage(edges, storage, intercept, weighted):
    X, y, g, w = make_rows(400, weighted)
    if storage.startswith("csr"):
        X *= np.random.default_rng(1).random(X.shape) < 0.5
    if storage.endswith("32"):
        X = X.astype(np.float32)
    if storage == "fortran":
        X = np.asfortranarray(X)
    elif storage.startswith("csr"):
        X = sparse.csr_matrix(X)
    check_same_answers((X, y, g, w), CUTS[edges](400), relu(), intercept)


@pytest.mark.parametrize("own", [False, True])
def test_other_activations(own):
    sigma = identity()
    if own:
        sigma = Activation(np.tanh, lambda t: 1 / np.cosh(t) ** 2, 0.01, 1.0)
    check_same_answers(make_rows(), CUTS["every 97"](700), sigma)


def test_text_groups_of_unequal_length():
    X, y, g, _ = make_rows()
    names = np.array(["b", "a much longer name", "c", "ab", "z"])[g]
    columns = (X, y, names, None)
    memory = make_engine(GroupedData.build(*columns), relu())
    # Chunks of one group: their labels are arrays of different widths.
    order = np.argsort(g, kind="stable")
    sizes = np.cumsum(np.bincount(g))[:-1]
    chunked = ChunkedEngine(cut([c[order] for c in columns[:3]], sizes), relu())
    assert chunked.census.labels.tolist() == memory.census.labels.tolist()
    w = np.ones(D + 1)
    close(chunked.evaluate(w, surrogate=False).grad_KD, memory.evaluate(w, surrogate=False).grad_KD)


def test_integer_and_float_group_labels_are_one_kind():
    X, y, g, _ = make_rows()
    source = Chunks([(X[:350], y[:350], g[:350]), (X[350:], y[350:], g[350:].astype(float))])
    assert ChunkedEngine(source, relu()).census.labels.tolist() == [0, 1, 2, 3, 4]


def test_a_chunk_without_weights_weighs_one_each():
    X, y, g, w = make_rows(weighted=True)
    source = Chunks([(X[:350], y[:350], g[:350], w[:350]), (X[350:], y[350:], g[350:])])
    whole = np.append(w[:350], np.ones(350))
    close(
        ChunkedEngine(source, relu()).curvature(None, None),
        make_engine(GroupedData.build(X, y, g, whole), relu()).curvature(None, None),
    )


def test_uncentred_engines_do_not_shift():
    X, y, g, _ = make_rows()
    memory = make_engine(GroupedData.build(X, y, g), relu(), centred=False)
    chunked = ChunkedEngine(cut((X, y, g), [300]), relu(), centred=False)
    assert not chunked.shift.any()
    close(chunked.curvature(None, None), memory.curvature(None, None))


def test_moments_keep_digits_far_from_zero():
    """Sums about the centre: a common mean of 1e6 costs the spread none of its digits."""
    X, y, g, _ = make_rows()
    X = np.round(X * 2**20) / 2**20  # so that adding a power of two is exact
    near = ChunkedEngine(cut((X, y, g), [100, 400]), relu())
    far = ChunkedEngine(cut((X + 2.0**20, y, g), [100, 400]), relu())
    np.testing.assert_allclose(far.shift - 2.0**20, near.shift, atol=1e-8)
    close(far.curvature(None, None)[:, :D, :D], near.curvature(None, None)[:, :D, :D], 1e-7)


def test_pass_counts_are_iterations_of_the_source():
    class Counting(Source):
        passes = 0

        def __iter__(self):
            self.passes += 1
            return iter(cut(make_rows()[:3], [200, 400]))

    source = Counting()
    engine = ChunkedEngine(source, relu())
    assert engine.passes == source.passes == 1, "the first look is a pass"
    for ask in questions(engine).values():
        ask(engine)
        assert engine.passes == source.passes
    other = engine.variant(truncate=0.5)
    other.label_means()
    assert engine.passes == other.passes == source.passes
    source.passes = 0
    assert GroupDRONeuron().fit(source).n_passes_ == source.passes


def test_chunks_are_never_written():
    X, y, g, w = make_rows(weighted=True)
    for column in (X, y, g, w):
        column.setflags(write=False)
    engine = ChunkedEngine(cut((X, y, g, w), [100, 400]), relu())
    for ask in questions(engine).values():
        ask(engine)


# -- fits ----------------------------------------------------------------------------------

FITS = {
    "relu auto": {},
    "relu worst group": {"nu": 0.0},
    "relu chi2": {"nu": 0.3, "divergence": "chi2"},
    "identity auto": {"activation": "identity"},
    "identity worst group": {"activation": "identity", "nu": 0.0},
    "identity chi2": {"activation": "identity", "nu": 0.3, "divergence": "chi2"},
    "softplus, no intercept": {"activation": "softplus", "nu": 0.1, "fit_intercept": False},
    "scaled": {"activation": "identity", "nu": 0.1, "precondition": "scale"},
    "truncated": {"nu": 0.1, "truncate": 1.0},
    "ball": {"nu": 0.1, "radius": 0.5},
    "paper": {"nu": 0.1, "schedule": PaperSteps(), "max_iter": 5, "polish": False},
}


def check_same_fit(a, b, tol=1e-10):
    np.testing.assert_array_equal(a.groups_, b.groups_)
    for name in ("coef_", "intercept_", "risk_", "nu_", "group_weights_", "group_risks_"):
        np.testing.assert_allclose(
            getattr(a, name), getattr(b, name), rtol=tol, atol=tol, err_msg=name
        )
    assert a.n_iter_ == b.n_iter_
    assert a.status_ == b.status_


@pytest.mark.parametrize("case", FITS)
def test_fits_are_those_of_memory(case):
    edges = "uneven" if "auto" in case else "every 97"
    options = FITS[case]
    X, y, g = neuron_data(K=4, n=250, d=D, activation=options.get("activation", "relu"), seed=3)
    order = np.random.default_rng(0).permutation(1000)
    X, y, g = X[order], y[order], g[order]
    model = GroupDRONeuron(**options).fit(cut((X, y, g), CUTS[edges](1000)))
    check_same_fit(model, GroupDRONeuron(**options).fit(X, y, g))
    assert model.n_features_in_ == D


@pytest.mark.parametrize("activation", ["relu", "identity"])
@pytest.mark.parametrize("nu", ["auto", 0.0])
def test_fits_with_sample_weights_and_text_groups(activation, nu):
    X, y, g = neuron_data(K=3, n=250, d=D, activation=activation, seed=4)
    rng = np.random.default_rng(0)
    order = rng.permutation(750)
    X, y, names = X[order], y[order], np.array(["north", "s", "east"])[g[order]]
    w = rng.uniform(0.2, 2.0, 750)
    w[::5] = 0.0
    options = {"activation": activation, "nu": nu}
    prior = {"north": 0.5, "s": 0.3, "east": 0.2}
    model = GroupDRONeuron(**options, prior=prior).fit(cut((X, y, names, w), range(90, 750, 90)))
    check_same_fit(model, GroupDRONeuron(**options, prior=prior).fit(X, y, names, w))
    assert model.groups_.tolist() == ["east", "north", "s"]


def test_sparse_fits_are_those_of_memory():
    X, y, g = neuron_data(K=3, n=250, d=6, seed=2)
    X = sparse.csr_matrix(np.where(np.abs(X) > 0.8, X, 0.0))
    for activation in ("relu", "identity"):
        model = GroupDRONeuron(activation, nu=0.1).fit(cut((X, y, g), [100, 300, 301]))
        check_same_fit(model, GroupDRONeuron(activation, nu=0.1).fit(X, y, g))


def test_wide_fits_are_those_of_memory():
    """More coefficients than matrices are kept for: power iteration, first-order polish."""
    X, y, g = neuron_data(K=2, n=500, d=10, activation="identity", seed=2)
    wide = np.hstack([X, np.random.default_rng(0).normal(size=(1000, 510))])
    options = {"activation": "identity", "nu": 0.5, "tol": 1e-8}
    model = GroupDRONeuron(**options).fit(cut((wide, y, g), [350, 700]))
    same = GroupDRONeuron(**options).fit(wide, y, g)
    assert model.risk_ == pytest.approx(same.risk_, rel=1e-6)


def test_ill_conditioned_fits_are_those_of_memory():
    X, y, g = neuron_data(K=3, n=200, d=5, activation="identity", cond=1e10, seed=1)
    X = X + 100.0
    model = GroupDRONeuron("identity", nu=0.0).fit(cut((X, y, g), range(97, 600, 97)))
    same = GroupDRONeuron("identity", nu=0.0).fit(X, y, g)
    assert model.risk_ == pytest.approx(same.risk_, rel=1e-8)
    np.testing.assert_allclose(model.predict(X), same.predict(X), atol=1e-5)


def test_weights_too_large_to_sum_are_refused():
    X, y, g = neuron_data(K=3, n=60, d=3)
    with pytest.raises(ValueError, match=r"chunk 1: sample_weight has 1e\+307.*divide all"):
        GroupDRONeuron(nu=0.1).fit(cut((X, y, g, np.where(np.arange(180) < 70, 1, 1e307)), [70]))


@pytest.mark.parametrize("largest", [1e90, 1e-307])
def test_sample_weights_of_any_size(largest):
    X, y, g = neuron_data(K=3, n=60, d=3)
    w = np.random.default_rng(0).uniform(0.5, 1.0, size=180)
    a = GroupDRONeuron(nu=0.1).fit(cut((X, y, g, w), [70]))
    b = GroupDRONeuron(nu=0.1).fit(cut((X, y, g, largest * w), [70]))
    np.testing.assert_allclose(a.coef_, b.coef_, rtol=1e-6)


def test_the_same_source_gives_the_same_bits():
    X, y, g = neuron_data(K=3, n=250, d=D)
    found = [solve(cut((X, y, g), [100, 300]), nu=0.0) for _ in range(2)]
    assert found[0].coef.tobytes() == found[1].coef.tobytes()
    assert found[0].weights.tobytes() == found[1].weights.tobytes()


# -- predictions and names -----------------------------------------------------------------


def test_predictions_of_narrower_chunks_are_refused():
    X, y, g = neuron_data(K=2, n=100, d=4)
    model = GroupDRONeuron().fit(X, y, g)
    with pytest.raises(ValueError, match=r"X has 3 features, but the fit was to rows of 4"):
        model.predict(cut((X[:, :3], y), [80]))


def test_predictions_of_a_source_are_in_its_order():
    X, y, g = neuron_data(K=3, n=100, d=D)
    model = GroupDRONeuron(nu=0.1).fit(X, y, g)
    expected = model.predict(X)
    np.testing.assert_allclose(
        model.predict(cut((X, y, g), [1, 50, 199])), expected, rtol=1e-12, atol=1e-14
    )
    np.testing.assert_allclose(
        model.predict(Npy(X, y, chunk_rows=7)), expected, rtol=1e-12, atol=1e-14
    )
    rows = sparse.csr_matrix(X)
    np.testing.assert_allclose(model.predict(cut((rows, y), [80])), expected, rtol=1e-12)


def test_parquet_gives_the_features_their_names(tmp_path):
    X, y, g = neuron_data(K=3, n=100, d=3)
    t = pa.table({"width": X[:, 0], "y": y, "depth": X[:, 1], "g": g, "height": X[:, 2]})
    pq.write_table(t, tmp_path / "t.parquet")
    source = Parquet(tmp_path / "t.parquet", y="y", groups="g", chunk_rows=64)
    model = GroupDRONeuron(nu=0.1).fit(source)
    assert model.feature_names_in_.tolist() == ["width", "depth", "height"]
    assert model.n_features_in_ == 3
    frame = t.to_pandas()
    expected = model.predict(frame[["width", "depth", "height"]])
    np.testing.assert_allclose(model.predict(source), expected, rtol=1e-12, atol=1e-14)
    with pytest.raises(ValueError, match="feature names"):
        model.predict(frame[["depth", "width", "height"]])
    check_same_fit(model, GroupDRONeuron(nu=0.1).fit(X, y, g))
    # A source without names takes the old ones away.
    model.fit(cut((X, y, g), [150]))
    assert not hasattr(model, "feature_names_in_")


# -- errors --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["y", "groups", "sample_weight"])
def test_columns_beside_a_source_are_refused(name):
    X, y, g = neuron_data(K=3, n=50, d=3)
    with pytest.raises(ValueError, match=f"{name} was given beside a Chunks.*leave {name} out"):
        GroupDRONeuron().fit(cut((X, y, g), [70]), **{name: y})


class Later(Source):
    """One set of chunks on the first pass, another on later ones."""

    def __init__(self, first, later):
        self.first, self.later, self.passes = first, later, 0

    def __iter__(self):
        self.passes += 1
        return iter(self.first if self.passes == 1 else self.later)


def test_rows_that_change_between_passes_are_found_out():
    X, y, g, _ = make_rows()
    first = [(X[:400], y[:400], g[:400]), (X[400:], y[400:], g[400:])]
    for later, seen in ((first[:1], 400), (first + first[:1], 1100), ([], 0)):
        with pytest.raises(ValueError, match=f"700 rows at first and {seen} on a later pass"):
            GroupDRONeuron().fit(Later(first, later))


def test_a_group_that_comes_later_is_named():
    X, y, g, _ = make_rows()
    first = [(X[:400], y[:400], g[:400]), (X[400:], y[400:], g[400:])]
    later = [first[0], (X[400:], y[400:], np.full(300, 17))]
    with pytest.raises(ValueError, match=r"chunk 1: group .*17.* was not there on the first pass"):
        GroupDRONeuron().fit(Later(first, later))
    text = [(X, y, np.array(["a", "c"])[(g > 1) * 1])]
    for new in ("b", "d"):  # between the known ones, and after them
        later = [(X, y, np.array(["a", new])[(g > 1) * 1])]
        with pytest.raises(ValueError, match=f"group .*'{new}'.* was not there"):
            GroupDRONeuron().fit(Later(text, later))


@pytest.mark.parametrize("width", [1, 3, 5])
def test_chunks_of_another_width_are_refused(width):
    X, y, g, _ = make_rows()
    with pytest.raises(ValueError, match=f"number of features: 4 and {width}"):
        GroupDRONeuron().fit(Chunks([(X, y, g), (np.ones((700, width)), y, g)]))


@pytest.mark.parametrize("width", [3, 5])
def test_another_width_on_a_later_pass_is_refused(width):
    """Kernels trust the shapes they are told: a narrower chunk must never reach them."""
    X, y, g, _ = make_rows()
    engine = ChunkedEngine(Later([(X, y, g)], [(np.ones((700, width)), y, g)]), relu())
    for name, ask in questions(engine).items():
        if not name.startswith("label"):
            with pytest.raises(
                ValueError, match=rf"chunk 0.*(features.*{width}|{width}.*features)"
            ):
                ask(engine)


def test_group_labels_of_different_kinds_are_refused():
    X, y, g, _ = make_rows()
    names = np.array(list("abcde"))[g]
    objects = np.array([1, 2, 3, 4, 5], dtype=object)[g]
    for one, other in ((names, g), (g, names), (names.astype(object), objects)):
        chunks = [(X[:350], y[:350], one[:350]), (X[350:], y[350:], other[350:])]
        with pytest.raises(TypeError, match=r"different chunks cannot be sorted together.*str\(\)"):
            GroupDRONeuron().fit(Chunks(chunks))


def test_groups_must_be_in_all_chunks_or_none():
    """Rows without a label must not join the group that happens to be called 0."""
    X, y, g, _ = make_rows()
    with pytest.raises((TypeError, ValueError), match="groups"):
        GroupDRONeuron().fit(Chunks([(X[:350], y[:350], g[:350]), (X[350:], y[350:])]))


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_bad_numbers_name_their_chunk(value):
    X, y, g, _ = make_rows()
    bad = X.copy()
    bad[450, 2] = value
    with pytest.raises(ValueError, match=r"chunk 2: X has missing or infinite values; impute"):
        GroupDRONeuron().fit(cut((bad, y, g), [200, 400]))
    with pytest.raises(ValueError, match=r"chunk 2: X has missing"):
        GroupDRONeuron().fit(cut((sparse.csr_matrix(bad), y, g), [200, 400]))
    bad = y.copy()
    bad[3] = value
    with pytest.raises(ValueError, match=r"chunk 0: y has missing or infinite values"):
        GroupDRONeuron().fit(cut((X, bad, g), [200, 400]))


def test_bad_shapes_and_text_name_their_chunk():
    X, y, g, w = make_rows(weighted=True)
    good = (X, y, g)
    for bad, message in (
        ((X[:, 0], y, g), r"chunk 1: X must have two dimensions; got shape \(700,\)"),
        ((X, y[:-1], g), r"chunk 1: X has 700 rows but y has shape \(699,\)"),
        ((X.astype(str).astype(object) + "?", y, g), r"chunk 1: X must hold numbers"),
    ):
        with pytest.raises(ValueError, match=message):
            GroupDRONeuron().fit(Chunks([good, bad]))
    for bad, message in (
        ((X, y, g[:-1]), r"groups must hold one label for each of the 700 rows"),
        ((X, y, g, -w), r"sample_weight must be finite and not negative"),
        ((X, y, g, w[:-1]), r"sample_weight must have shape \(700,\)"),
    ):
        with pytest.raises(ValueError, match=message):
            GroupDRONeuron().fit(Chunks([good, bad]))


# -- reading ahead -------------------------------------------------------------------------


def readers():
    gc.collect()
    for _ in range(40):
        alive = [t for t in threading.enumerate() if t.name == "counterpoise-reader"]
        if not alive:
            return []
        time.sleep(0.05)
    return alive


def test_items_come_in_order_and_the_next_is_fetched_meanwhile():
    fetched = []

    def items():
        for i in range(6):
            fetched.append(i)
            yield i

    got = []
    for item in read_ahead(items()):
        if item == 2:
            for _ in range(100):  # the reader gets on without us
                if 3 in fetched:
                    break
                time.sleep(0.02)
            assert 3 in fetched
            time.sleep(0.1)
            assert 5 not in fetched, "but no further than it may"
        got.append(item)
    assert got == list(range(6))
    assert not readers()


def test_an_error_of_the_source_is_the_fits_error():
    X, y, g, _ = make_rows()

    class Broken(OSError):
        pass

    def chunks():
        yield X, y, g
        raise Broken("the disk is gone")

    with pytest.raises(Broken, match="the disk is gone"):
        GroupDRONeuron().fit(Chunks(chunks))
    assert not readers()


def test_a_reader_that_is_no_longer_wanted_ends():
    closed = []

    def endless():
        try:
            while True:
                yield 1
        finally:
            closed.append(True)

    for _ in read_ahead(endless()):
        break
    assert not readers()
    assert closed


def test_rows_that_fail_midway_leave_no_reader_behind():
    X, y, g, _ = make_rows()

    def value(t):
        raise ArithmeticError("no value here")

    engine = ChunkedEngine(cut((X, y, g), range(10, 700, 10)), Activation(value, None, 1.0, 1.0))
    with pytest.raises(ArithmeticError, match="no value here"):
        engine.evaluate(np.ones(D + 1), surrogate=False)
    assert not readers()


# -- memory --------------------------------------------------------------------------------

MEMORY = """
import resource, sys
import numpy as np
from counterpoise import Chunks, GroupDRONeuron

ROWS, WIDTH = 10_000, 64
base = np.random.default_rng(0).normal(size=(ROWS, WIDTH))
noise = np.random.default_rng(1).normal(size=ROWS)
slope = np.linspace(-1, 1, WIDTH)
read = 0

def source(count):
    def chunks():
        global read
        for seed in range(count):
            X = base * (1.0 + 0.02 * seed)  # five megabytes, made anew every time
            read += X.nbytes
            yield X, np.maximum(X @ slope, 0) + noise, np.arange(ROWS) % 5
    return Chunks(chunks)

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024

options = dict(activation=sys.argv[1], nu=0.1)
GroupDRONeuron(**options).fit(source(2))
before, read = peak(), 0
model = GroupDRONeuron(**options).fit(source(30))
print(peak() - before, read / 2**20 / model.n_passes_)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="no getrusage")
def test_memory_is_that_of_a_few_chunks():
    done = subprocess.run(
        [sys.executable, "-c", MEMORY, "identity"], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    growth, megabytes = map(float, done.stdout.split())
    assert megabytes > 145
    assert growth < 40
