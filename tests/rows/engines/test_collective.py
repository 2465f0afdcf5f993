"""Ranks answer together as one engine with all rows does."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from problems import neuron_data
from scipy import sparse
from thread_ranks import on_ranks

from counterpoise import Chunks, GroupDRONeuronCV, Memberships
from counterpoise.activations import Activation, relu
from counterpoise.losses import NeuronLoss
from counterpoise.rows.backends import TorchBackend, backend_of, open_engine
from counterpoise.rows.collective import CollectiveError
from counterpoise.rows.engines.collective import signature
from counterpoise.rows.engines.questions import (
    Evaluate,
    Gram,
    Labels,
    Moments,
    Question,
    Separation,
    Squares,
)

D, CUTS = 4, [0, 300, 300, 1000, 1600]  # the second of four ranks has no rows


@pytest.fixture(scope="module")
def rows():
    """Sorted by group, so that no rank has them all; labels are text, and some weights are 0."""
    X, y, groups = neuron_data(K=5, n=320, d=D, seed=3)
    X = X.astype(np.float32).astype(float)
    weights = np.random.default_rng(0).uniform(0.5, 2.0, 1600)
    weights[::7] = 0.0
    return X, y, np.array(["a", "bb", "ccc", "d", "e"])[groups], weights


def part(rows, rank):
    return [column[CUTS[rank] : CUTS[rank + 1]] for column in rows]


def opened(rows, **options):
    return open_engine(*rows, NeuronLoss(relu()), **{"intercept": True, "centred": True, **options})


def shared(c, columns, **options):
    return opened([c.rows(*columns), None, None, None], **options)


@dataclass(frozen=True, eq=False)
class GroupNumbers(Question):
    """A question of a user, whose answer depends on the number of the group."""

    def of_rows(self, X, y, weights, group):
        return np.array([group * weights.sum(), weights.sum()])


def questions(K, d=D, seed=5, centre=1.0):
    rng = np.random.default_rng(seed)
    w, shift = rng.normal(size=d + 1), centre * rng.normal(size=d)
    share, basis = rng.uniform(size=K), rng.normal(size=(d + 1, 3))
    own = Activation(lambda t: np.maximum(t, 0.2 * t), None, 1.0, 1.0)
    return [
        Labels(0.3, 1.0),
        Evaluate(w, NeuronLoss(relu()), True, None),
        Evaluate(w, NeuronLoss(own), False, 0.5),
        Moments(rng.normal(size=(K, d + 1))),
        Separation(rng.normal(size=(3, d + 1)), w, relu()),
        Squares(shift),
        Gram(w, NeuronLoss(relu()), None, shift, None),
        Gram(None, NeuronLoss(relu()), share, shift, basis),
        GroupNumbers(),
    ]


def stored(columns, rank, storage):
    """The rows of a rank in some storage; ranks may differ in it."""
    X, y, groups, weights = columns
    if not len(X):
        return (None,) if storage == "mixed" else columns
    if storage == "source" or (storage == "mixed" and rank == 3):
        return (Chunks([tuple(c[i : i + 150] for c in columns) for i in range(0, len(X), 150)]),)
    if storage == "mixed" and rank == 0:
        return X.astype(np.float32), y, groups, weights
    return X, y, groups.tolist(), weights


@pytest.mark.parametrize("storage", ["memory", "source", "mixed"])
def test_answers_are_those_of_all_rows_in_memory(rows, storage):
    def work(c):
        engine = shared(c, stored(part(rows, c.rank), c.rank, storage))
        answers = [engine.ask(question) for question in questions(5)]
        return engine.census, answers, engine.sample(), engine.fingerprint(), engine.passes

    memory, found = opened(rows), on_ranks(4, work)
    for error in found:
        assert not isinstance(error, Exception), error
    for census, answers, sample, fingerprint, passes in found:
        np.testing.assert_array_equal(census.labels, memory.census.labels)
        np.testing.assert_allclose(census.totals, memory.census.totals, rtol=1e-14)
        assert census.n_rows == memory.census.n_rows == sample.n_rows
        assert fingerprint == found[0][3]
        assert passes == 1 + len(questions(5))
        eps = np.finfo(np.float32 if storage == "mixed" else float).eps
        assert census.precision == eps
        for question, answer, first in zip(questions(5), answers, found[0][1], strict=True):
            assert answer.tobytes() == first.tobytes()
            np.testing.assert_allclose(
                answer, memory.ask(question), rtol=1e-11, atol=1e-11, err_msg=repr(question)
            )
        np.testing.assert_array_equal(sample.X, found[0][2].X)


def test_the_sample_has_rows_of_the_data_with_their_own_labels(rows, monkeypatch):
    from counterpoise.rows import sample as sampling

    monkeypatch.setattr(sampling.RowSample.draw.__func__, "__kwdefaults__",
                        {"seed": 0, "budget": 40 * D})  # fmt: skip
    found = on_ranks(4, lambda c: shared(c, part(rows, c.rank)).sample())
    X, y, groups, weights = rows
    sample = found[0]
    assert len(sample.y) == 5 * 16  # the fewest rows of every group
    for x, label, weight, code in zip(
        sample.X, sample.y, sample.weights, sample.codes, strict=True
    ):
        (row,) = np.flatnonzero(y == label)
        np.testing.assert_array_equal(X[row], x)
        assert (weights[row], groups[row]) == (weight, sample.labels[code])
    assert sample.counts.sum() == (weights > 0).sum()
    for other in found[1:]:
        np.testing.assert_array_equal(other.keys, sample.keys)


def test_sparse_rows_on_one_rank(rows):
    asked = questions(5, centre=0.0)  # as for sparse rows

    def work(c):
        X, *others = part(rows, c.rank)
        engine = shared(c, [sparse.csr_matrix(X) if c.rank == 0 else X, *others])
        return engine.shift, [engine.ask(question) for question in asked], engine.sample()

    memory = opened(rows)
    for shift, answers, sample in on_ranks(4, work):
        assert not shift.any()
        assert sparse.issparse(sample.X)
        for question, answer in zip(asked, answers, strict=True):
            np.testing.assert_allclose(answer, memory.ask(question), rtol=1e-11, atol=1e-11)


def test_equal_weights_on_a_rank_count_against_other_ranks(rows):
    X, y, groups, _ = rows
    weights = np.where(np.arange(1600) < 300, 3.0, 1.0)
    memory = opened([X, y, groups, weights])
    for census in on_ranks(4, lambda c: shared(c, part([X, y, groups, weights], c.rank)).census):
        np.testing.assert_allclose(census.totals, memory.census.totals, rtol=1e-14)


@pytest.mark.parametrize("weighted", [False, True])
def test_tensors_that_stay_on_their_device(rows, weighted, monkeypatch):
    import torch

    monkeypatch.setattr(TorchBackend, "in_place", lambda self, X: True)
    X, y, groups, _ = rows
    weights = np.where(np.arange(1600) < 300, 3.0, 1.0) if weighted else None
    columns = [X, y, groups, weights]

    def work(c):
        X, y, groups = part(columns[:3], c.rank)
        w = None if weights is None else torch.from_numpy(part([weights], c.rank)[0])
        given = [torch.from_numpy(X), torch.from_numpy(y), groups, w] if len(X) else [None]
        engine = shared(c, given)
        return engine.census, [engine.ask(question) for question in questions(5)]

    memory = opened(columns)
    for census, answers in on_ranks(4, work):
        np.testing.assert_allclose(census.totals, memory.census.totals, rtol=1e-14)
        for question, answer in zip(questions(5), answers, strict=True):
            np.testing.assert_allclose(answer, memory.ask(question), rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("chunked", [False, True])
def test_overlapping_groups(rows, chunked):
    X, y, groups, weights = rows
    matrix = np.stack([groups == "a", groups != "e", X[:, 0] > 0, y * 0 + 1], axis=1).astype(float)
    columns = [X, y, matrix, weights]

    def work(c):
        X, y, own, w = part(columns, c.rank)
        given = [X, y, own, w]
        if chunked:
            given = [Chunks([(X, y, own, w)])] if len(X) else [None]
        engine = shared(c, given)
        return engine.census, [engine.ask(question) for question in questions(4)], engine.even

    memory = opened([X, y, Memberships(matrix), weights])
    for census, answers, even in on_ranks(4, work):
        np.testing.assert_array_equal(census.labels, memory.census.labels)
        np.testing.assert_allclose(census.totals, memory.census.totals, rtol=1e-13)
        assert even == memory.even
        for question, answer in zip(questions(4), answers, strict=True):
            np.testing.assert_allclose(answer, memory.ask(question), rtol=1e-11, atol=1e-11)


def test_classes_are_those_of_all_ranks(rows):
    X, y, groups, weights = rows
    names = np.where(y > 1.0, "high", "low").astype("U7")
    names[1500] = "odd one"

    def work(c):
        own_X, own, g, w = part([X, names, groups, weights], c.rank)
        given = [Chunks([(own_X, own, g, w)])] if c.rank == 2 else [own_X, own, g, w]
        wrapped = c.rows(*given) if len(own_X) else c.rows(None)
        numbered, beside, classes = backend_of(wrapped).number_classes(wrapped, None)
        assert beside is None
        codes = [] if numbered.X is None else numbered.y
        if c.rank == 2:
            ((_, codes, *_),) = list(numbered.X)
        return classes.tolist(), np.asarray(codes)

    found = on_ranks(4, work)
    assert [classes for classes, _ in found] == [["high", "low", "odd one"]] * 4
    codes = np.concatenate([codes for _, codes in found]).astype(int)
    np.testing.assert_array_equal(np.array(found[0][0])[codes], names)


def nan(columns):
    return [np.where(np.arange(D) == 1, np.nan, columns[0]), *columns[1:]]


def broken(columns):
    def chunks():
        yield columns[0][:10], columns[1][:10], columns[2][:10]
        raise OSError("the disk is gone")

    return [Chunks(chunks)]


@pytest.mark.parametrize(
    ("spoil", "error", "message"),
    [
        (nan, ValueError, "rank 2 of 4: its rows: X has missing or infinite values"),
        (lambda c: [c[0], c[1][:-1], *c[2:]], ValueError, "rank 2 of 4: its rows: X has 700 rows"),
        (lambda c: [c[0], c[1]], ValueError, "groups are given in some ranks and not in others"),
        (lambda c: [c[0], c[1], np.arange(700)], TypeError, "groups of different ranks cannot"),
        (lambda c: [c[0][:, :2], *c[1:]], ValueError, "ranks differ in their number of features"),
        (lambda c: [c[0], c[1], np.eye(2)[[0, 1] * 350]], ValueError,
         "rank 0 of 4: groups has one label per row here, but memberships on another rank"),
        (broken, OSError, "rank 2 of 4: the disk is gone"),
    ],
)  # fmt: skip
def test_bad_rows_on_one_rank_are_an_error_on_all(rows, spoil, error, message):
    def work(c):
        columns = part(rows, c.rank)
        return shared(c, spoil(columns) if c.rank == 2 else columns)

    for found in on_ranks(4, work):
        assert type(found) is error
        assert message in str(found)


def test_an_error_in_a_later_pass_is_raised_on_all(rows):
    passes = []

    def chunks():
        passes.append(1)
        if len(passes) > 2:
            raise OSError("the disk is gone")
        yield tuple(part(rows, 2))

    def work(c):
        engine = shared(c, [Chunks(chunks)] if c.rank == 2 else part(rows, c.rank))
        engine.ask(Squares(np.zeros(D)))
        return engine.ask(Squares(np.zeros(D)))

    for found in on_ranks(4, work):
        assert type(found) is OSError
        assert "rank 2 of 4: the disk is gone" in str(found)


def test_ranks_that_ask_differently_raise(rows):
    def work(c):
        engine = shared(c, part(rows, c.rank))
        return engine.ask(Squares(np.zeros(D) + c.rank))

    for found in on_ranks(4, work):
        assert isinstance(found, CollectiveError)
        assert "not in step" in str(found)


def test_no_rows_at_all():
    for found in on_ranks(2, lambda c: shared(c, [None])):
        assert isinstance(found, ValueError)
        assert "no rank has any rows" in str(found)


def test_columns_that_differ(rows):
    import pandas as pd

    def work(c):
        X, *others = part(rows, c.rank)
        frame = pd.DataFrame(X, columns=list("wxyz" if c.rank != 2 else "wxzy"))
        return shared(c, [frame, *others])

    for found in on_ranks(4, work):
        assert isinstance(found, ValueError)
        assert "give all ranks the same columns" in str(found)


def test_columns_beside_the_rows_of_a_rank(rows):
    (found,) = on_ranks(1, lambda c: opened([c.rows(rows[0]), rows[1], None, None]))
    assert "y was given beside rows of a rank" in str(found)


def test_signatures_see_nested_questions():
    from counterpoise.rows.engines.questions import Renumbered

    first, second = (Moments(np.full((2, 3), value)) for value in (1.0, 2.0))
    codes = np.arange(2)
    assert signature(Renumbered(first, codes)) != signature(Renumbered(second, codes))
    assert signature(Renumbered(first, codes)) == signature(Renumbered(first, codes))


def test_ranks_cross_validate_together(rows):
    options = dict(cv=3, nus=[0.3, 0.0], truncate=None, reference=False)
    source = Chunks(lambda: iter([rows]))
    expected = GroupDRONeuronCV("relu", **options).fit(source)

    def work(c):
        model = GroupDRONeuronCV("relu", random_state=None if c.rank else 0, **options)
        return model.fit(c.rows(*part(rows, c.rank)))

    for found in on_ranks(4, work):
        np.testing.assert_allclose(
            found.cv_results_["group_risks"], expected.cv_results_["group_risks"], rtol=1e-5
        )
        np.testing.assert_allclose(found.coef_, expected.coef_, rtol=1e-5)
        assert found.verdict_ == expected.verdict_
