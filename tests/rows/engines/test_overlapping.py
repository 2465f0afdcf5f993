"""Groups that overlap: every engine against copies of the rows, one for each membership."""

import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
import torch
from engine_checks import close as close_arrays
from engine_checks import questions
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import sparse

from counterpoise import Chunks, Memberships, Npy, solve
from counterpoise.activations import leaky_relu
from counterpoise.rows.backends import TorchBackend, open_engine
from counterpoise.rows.engines import overlapping
from counterpoise.rows.engines.journal import digest_rows
from counterpoise.rows.engines.overlapping import OverlappingEngine, TooManyPatterns
from counterpoise.rows.engines.questions import Question
from counterpoise.rows.memberships import Overlap

N, D = 600, 4
KINDS = ("dense", "csr", "chunks", "csr chunks", "npy", "dask array", "dask frame", "torch")
LABELS = ["all", "none", "north", "women"]


def close(got, expected, tol=1e-12):
    close_arrays(got, np.asarray(expected, dtype=float), tol)


def memberships(soft, seed=0):
    rng = np.random.default_rng(seed)
    matrix = (rng.random((N, 4)) < [0.9, 0.0, 0.3, 0.5]).astype(float)
    matrix[rng.random(N) < 0.1] = 0.0  # rows in no group
    if soft:
        matrix *= rng.random((N, 4))
    return matrix


def rows_of(soft=False, weighted=True, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(N, D)) * [1.0, 2.0, 0.5, 1.0] + [0.0, 1.0, 0.0, -2.0]
    X[rng.random((N, D)) < 0.3] = 0.0
    y = np.maximum(X[:, 0], 0) + rng.normal(size=N)
    weights = rng.integers(0, 4, N).astype(float) if weighted else None
    return X, y, memberships(soft, seed), weights


def copies(X, y, matrix, weights):
    """One copy of a row for each of its groups, with its share as weight."""
    index, codes = np.nonzero(matrix)
    share = matrix[index, codes] * (1.0 if weights is None else weights[index])
    return X[index], y[index], np.array(LABELS)[codes], share


def opened(kind, X, y, matrix, weights, tmp_path=None, intercept=True):
    """The engine for memberships in rows of a kind."""
    groups = Memberships(matrix, LABELS)
    parts = [np.arange(N)[lo : lo + 250] for lo in range(0, N, 250)]
    rows: tuple = (X, y, groups, weights)
    if kind == "csr":
        rows = (sparse.csr_matrix(X), y, groups, weights)
    elif kind.endswith("chunks"):
        own = sparse.csr_matrix(X) if kind == "csr chunks" else X
        source = [(own[p], y[p], groups[p], None if weights is None else weights[p]) for p in parts]
        rows = (Chunks(source), None, None, None)
    elif kind == "npy":
        for name, values in (("X", X), ("y", y), ("groups", matrix), ("w", weights)):
            np.save(tmp_path / f"{name}.npy", values)
        paths = [tmp_path / f"{name}.npy" for name in ("X", "y", "groups", "w")]
        rows = (Npy(*paths, chunk_rows=1024), None, None, None)
    elif kind == "dask array":
        rows = (da.from_array(X, (200, 2)), y, da.from_array(matrix, (300, 3)), weights)
    elif kind == "dask frame":
        frame = pd.DataFrame(X, columns=list("abcd")).assign(y=y, w=weights)
        named = dd.from_pandas(pd.DataFrame(matrix, columns=LABELS), npartitions=3)
        rows = (dd.from_pandas(frame, npartitions=3), "y", named, "w")
    elif kind == "torch":
        rows = (torch.tensor(X), torch.tensor(y), torch.tensor(matrix), torch.tensor(weights))
    return open_engine(*rows, leaky_relu(0.2), intercept=intercept, centred=True)


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("soft", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_every_question_as_with_copies(kind, soft, intercept, tmp_path, monkeypatch):
    monkeypatch.setattr(TorchBackend, "in_place", lambda self, X: True)
    X, y, matrix, weights = rows_of(soft)
    engine = opened(kind, X, y, matrix, weights, tmp_path, intercept)
    expected = open_engine(
        *copies(X, y, matrix, weights), leaky_relu(0.2), intercept=intercept, centred=True
    )
    named = kind in ("npy", "dask array", "torch")  # a bare matrix has no names
    assert engine.census.labels.tolist() == ([0, 2, 3] if named else ["all", "north", "women"])
    close(engine.census.totals, expected.census.totals)
    expected.shift = engine.shift  # the copies have another centre
    for name, ask in questions(engine).items():
        before, answer, right = engine.passes, ask(), questions(expected)[name]()
        assert engine.passes == before + 1, name
        both = zip(answer, right, strict=True) if isinstance(answer, tuple) else [(answer, right)]
        for got, wanted in both:
            close(got, wanted, 1e-11)
    close(engine.label_means(), expected.label_means())
    close(engine.label_squares(0.7), expected.label_squares(0.7))
    clipped, right = engine.variant(truncate=0.5), expected.variant(truncate=0.5)
    close(clipped.label_means(), right.label_means())
    assert engine.additions >= engine.inner.additions
    assert engine.rounding == expected.rounding


@pytest.mark.parametrize("copied", [False, True])
@pytest.mark.parametrize("kind", ["dense", "csr", "chunks", "npy"])
def test_all_rows_as_one_group(kind, copied, tmp_path, monkeypatch):
    if copied:
        monkeypatch.setattr(overlapping, "MOST_PATTERNS", 1)
    X, y, matrix, weights = rows_of()
    engine = opened(kind, X, y, matrix, weights, tmp_path)
    assert not engine.even
    whole = engine.variant(truncate=1.0).pooled()
    keep = weights > 0
    expected = np.average(np.clip(y[keep], -1, 1), weights=weights[keep])
    close(whole.label_means(), [expected])
    assert whole.n_groups == 1
    assert whole.counter is engine.counter
    assert whole.even


@given(
    arrays(float, (25, 3), elements=st.sampled_from([0.0, 0.0, 0.3, 1.0])),
    st.integers(0, 1000),
)
@settings(max_examples=40, deadline=None)
def test_sums_of_patterns_add_up_to_groups(matrix, seed):
    matrix[0] = 1.0  # no group is empty
    rng = np.random.default_rng(seed)
    X, y = rng.normal(size=(25, 2)), rng.normal(size=25)
    w = rng.normal(size=3)
    engine = open_engine(X, y, matrix, None, leaky_relu(0.2), intercept=True, centred=False)
    loss, grad = engine.evaluate(w, surrogate=True)
    scores = X @ w[:2] + w[2]
    residual = np.maximum(scores, 0.2 * scores) - y
    shares = matrix / matrix.sum(axis=0)
    close(loss, shares.T @ residual**2, 1e-11)
    rows = np.column_stack([X, np.ones(25)])
    close(grad, 2.0 * shares.T @ (residual[:, None] * rows), 1e-11)
    close(engine.curvature(None, None),
          2.0 * np.einsum("nk,ni,nj->kij", shares, rows, rows), 1e-11)  # fmt: skip


class Largest(Question):
    """A question of one's own, with an answer that depends on the group."""

    def of_rows(self, X, y, weights, group):
        return np.array([weights.sum(), (group + 1.0) * (weights @ y)])


@pytest.mark.parametrize("kind", ["dense", "chunks", "dask array", "torch"])
def test_questions_of_ones_own(kind, monkeypatch):
    monkeypatch.setattr(TorchBackend, "in_place", lambda self, X: True)
    X, y, matrix, weights = rows_of()
    engine = opened(kind, X, y, matrix, weights)
    own = matrix[:, [0, 2, 3]] * weights[:, None]
    close(engine.ask(Largest()), np.column_stack([own.sum(axis=0), [1, 2, 3] * (own.T @ y)]), 1e-11)


def test_many_patterns_are_copied_in_blocks(monkeypatch):
    X, y, matrix, weights = rows_of(soft=True)
    assert not overlapping.few_in_memory(Memberships(matrix), D)
    few = opened("dense", X, y, memberships(False), weights)
    many = opened("dense", X, y, matrix, weights)
    assert few.inner.n_groups > few.n_groups
    assert many.inner.n_groups == many.n_groups
    monkeypatch.setattr(overlapping, "BLOCK_NUMBERS", 64 * D)
    blocks = list(overlapping.CopiesSource(Chunks([(X, y, Memberships(matrix), weights)])))
    assert len(blocks) > 5
    assert sum(len(block[1]) for block in blocks) == (matrix > 0).sum()


@pytest.mark.parametrize("kind", ["dask array", "torch"])
def test_too_many_patterns_are_refused(kind, monkeypatch):
    monkeypatch.setattr(TorchBackend, "in_place", lambda self, X: True)
    monkeypatch.setattr(overlapping, "MOST_PATTERNS", 100)
    with pytest.raises(TooManyPatterns, match=r"distinct patterns .* round the shares"):
        opened(kind, *rows_of(soft=True))


def test_chunks_that_differ():
    X, y, matrix, _ = rows_of()
    chunks = [(X, y, matrix), (X, y, np.zeros(N))]
    with pytest.raises(ValueError, match="chunk 1: groups has one label per row, but memberships"):
        open_engine(Chunks(chunks), None, None, None, leaky_relu(), intercept=True, centred=True)
    with pytest.raises(ValueError, match="memberships of 3 rows, but X has 600"):
        open_engine(X, y, matrix[:3], None, leaky_relu(), intercept=True, centred=True)
    with pytest.raises(ValueError, match=r"no row .* belongs to any group"):
        open_engine(X, y, 0 * matrix, None, leaky_relu(), intercept=True, centred=True)


@pytest.mark.parametrize("kind", ["dense", "chunks"])
@pytest.mark.parametrize("copied", [False, True])
def test_the_fingerprint_sees_memberships(kind, copied, monkeypatch):
    if copied:
        monkeypatch.setattr(overlapping, "MOST_PATTERNS", 1)
    X, y, matrix, weights = rows_of(weighted=False)
    digests = set()
    outside = int(np.flatnonzero(~matrix.any(axis=1))[0])
    inside = int(np.flatnonzero(matrix[:, 0])[0])
    for row, column, share in ((0, 0, matrix[0, 0]), (inside, 0, 0.5), (outside, 2, 1.0)):
        other = matrix.copy()
        other[row, column] = share
        digests.add(digest_rows(opened(kind, X, y, other, weights)))
    X = X.copy()
    X[outside] += 1.0  # counts in the average over rows alone
    digests.add(digest_rows(opened(kind, X, y, matrix, weights)))
    assert len(digests) == 4


@pytest.mark.parametrize("soft", [False, True])
def test_a_sample_has_the_groups_and_their_means(soft, monkeypatch):
    monkeypatch.setattr("counterpoise.rows.sample._cap", lambda *args: 40)
    X, y, matrix, weights = rows_of(soft)
    sample = opened("dense", X, y, matrix, weights).sample()
    keep = weights > 0
    assert sample.labels.tolist() == ["all", "north", "women"]
    close(sample.counts, (matrix[keep] > 0).sum(axis=0)[[0, 2, 3]])
    drawn = np.bincount(sample.codes)
    own = np.ones(len(sample.y)) if sample.weights is None else sample.weights
    scaled = np.bincount(sample.codes, own) * sample.counts / drawn
    # Weights make up for patterns that are sampled at different rates.
    totals = (matrix * weights[:, None]).sum(axis=0)[[0, 2, 3]]
    np.testing.assert_allclose(scaled, totals, rtol=0.25)
    assert len(sample.notes) >= 2
    if not soft:
        assert sample.n_drawn < sample.n_rows == keep.sum()


def test_effective_sizes_and_rows_of_groups():
    X, y, matrix, weights = rows_of()
    engine = opened("dense", X, y, matrix, weights)
    share = (matrix * weights[:, None])[:, [0, 2, 3]]
    close(engine.effective_sizes(), share.sum(axis=0) ** 2 / (share**2).sum(axis=0), 1e-11)
    rows = engine.group_rows(1)
    close(rows.totals, [share[:, 1].sum()])
    close(rows.row_weights @ rows.y, share[:, 1] @ y, 1e-11)
    assert opened("chunks", X, y, matrix, weights).group_rows(1) is None


def test_a_resumed_fit_ends_with_the_same_bits(tmp_path):
    X, y, matrix, _ = rows_of()
    path = tmp_path / "fit.journal"
    options = dict(activation="relu", nu=0.1, prior="rows")
    for nu in (0.1, np.inf):
        options["nu"] = nu
        expected = solve(X, y, matrix, **options)
        with pytest.raises(KeyboardInterrupt):
            solve(X, y, matrix, callback=_stop, checkpoint=path, **options)
        assert path.exists()
        with pytest.raises(ValueError, match="other rows"):
            solve(X, y, np.minimum(matrix + 0.5, 1.0), checkpoint=path, **options)
        found = solve(X, y, matrix, checkpoint=path, **options)
        assert found.coef.tobytes() == expected.coef.tobytes()
        assert found.losses.tobytes() == expected.losses.tobytes()
        assert found.n_passes == expected.n_passes
        assert not path.exists()


def _stop(progress):
    if progress.iteration >= 2:
        raise KeyboardInterrupt


def test_patterns_of_a_wrapped_engine_are_its_groups():
    X, y, _matrix, _ = rows_of()
    inner = open_engine(X, y, np.arange(N) % 2, None, leaky_relu(), intercept=True, centred=True)
    patterns = Memberships([[1.0, 0.5], [0.0, 0.5]])
    engine = OverlappingEngine(inner, patterns, Overlap().add(patterns))
    close(engine.census.totals, [300.0, 300.0])
    close(engine.label_means(), [y[::2].mean(), y.mean()], 1e-11)
