"""Ranks answer together as one engine with all rows does."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from problems import neuron_data
from scipy import sparse
from thread_ranks import on_ranks

from counterpoise import (
    Chunks,
    GroupDROClassifier,
    GroupDRONeuron,
    GroupDRONeuronCV,
    Memberships,
    load,
)
from counterpoise.activations import Activation, leaky_relu, relu
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
from counterpoise.rows.sample import BUDGET

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


@pytest.mark.parametrize("storage", ["memory", "source"])
def test_questions_asked_together_take_one_read(rows, storage):
    several = questions(5)

    def work(c):
        engine = shared(c, stored(part(rows, c.rank), c.rank, storage))
        one_by_one, before = [engine.ask(question) for question in several], engine.passes
        together = engine.ask_all(several)
        assert engine.ask_all([]) == []
        return one_by_one, together, engine.passes - before

    reads = opened(rows if storage == "memory" else [Chunks([tuple(rows)]), None, None, None])
    before = reads.passes
    reads.ask_all(several)
    for found in on_ranks(4, work):
        assert not isinstance(found, Exception), found
        one_by_one, together, passes = found
        assert passes == reads.passes - before
        for first, second in zip(one_by_one, together, strict=True):
            np.testing.assert_array_equal(first, second)


def test_signatures_see_losses_and_levels():
    w, loss = np.zeros(5), NeuronLoss(relu())
    found = {
        signature(Evaluate(w, loss, True, None)), signature(Evaluate(w, loss, True, 2.0)),
        signature(Evaluate(w, loss, True, 3.0)), signature(Evaluate(w, loss, False, 2.0)),
        signature(Evaluate(w, NeuronLoss(leaky_relu(0.1)), True, None)),
        signature(Labels(0.1, 2.0)),
        signature(Labels(0.2, 2.0)),
    }  # fmt: skip
    assert len(found) == 7


@pytest.mark.parametrize(
    "options", [dict(truncate=2.0), dict(nu=0.3), dict(tol=1e-3), dict(checkpoint="path")]
)
def test_options_that_differ(rows, options, tmp_path):
    if "checkpoint" in options:
        options = dict(checkpoint=tmp_path / "fit.journal")

    def work(c):
        model = GroupDRONeuron("relu", **(options if c.rank == 2 else {}))
        return model.fit(c.rows(*part(rows, c.rank)))

    for found in on_ranks(4, work):
        assert isinstance(found, CollectiveError)
        assert "with the same options" in str(found)
    assert not list(tmp_path.iterdir())


PRIOR = dict.fromkeys(["a", "bb", "ccc", "d", "e"], 0.2)


@pytest.mark.parametrize(
    ("options", "wrong"), [({}, dict(nu=-1.0)), (dict(prior=PRIOR), dict(prior={"z": 1.0}))]
)
def test_wrong_options_of_one_rank_end_all(rows, options, wrong):
    def work(c):
        model = GroupDRONeuron("relu", **(wrong if c.rank == 3 else options))
        return model.fit(c.rows(*part(rows, c.rank)))

    for found in on_ranks(4, work):
        assert isinstance(found, ValueError)
        assert str(found).startswith("rank 3 of 4")


def test_predictions_of_a_rank_are_checked_as_those_in_memory(rows):
    import pandas as pd

    frame = pd.DataFrame(rows[0], columns=list("wxyz"))
    (model,) = on_ranks(1, lambda c: GroupDRONeuron().fit(c.rows(frame, *rows[1:])))
    (found,) = on_ranks(1, lambda c: model.predict(c.rows(frame)))
    np.testing.assert_array_equal(found, model.predict(frame))
    missing = frame.copy()
    missing.iloc[3, 1] = np.nan
    for wrong in (frame[list("zyxw")], missing):
        (found,) = on_ranks(1, lambda c, wrong=wrong: model.predict(c.rows(wrong)))
        assert isinstance(found, ValueError)


def test_features_of_a_dask_frame_leave_out_the_other_columns(rows, tmp_path):
    pytest.importorskip("dask")
    import dask.dataframe as dd
    import pandas as pd

    X, y, groups, _ = rows
    frame = pd.DataFrame(X, columns=list("wxyz")).assign(label=y, g=groups)
    parts = dd.from_pandas(frame, npartitions=2)
    (model,) = on_ranks(1, lambda c: GroupDRONeuron().fit(c.rows(parts, "label", "g")))
    assert model.feature_names_in_.tolist() == list("wxyz")
    model.save(tmp_path / "fit")
    frame = frame[list("wxyz")]
    np.testing.assert_array_equal(load(tmp_path / "fit").predict(frame), model.predict(frame))


def test_lazy_frames_columns_of_labels_and_ranks_without_rows(rows):
    import polars as pl

    def work(c):
        X, y, groups, weights = part(rows, c.rank)
        if c.rank == 1:
            return GroupDRONeuron().fit(c.rows(np.empty((0, D))))
        lazy = pl.DataFrame(X, schema=list("wxyz")).lazy()
        return GroupDRONeuron().fit(c.rows(lazy, y[:, None], groups, weights))

    found = on_ranks(4, work)
    expected = GroupDRONeuron().fit(*rows)
    for model in found:
        assert not isinstance(model, Exception), model
        assert model.feature_names_in_.tolist() == list("wxyz")
        np.testing.assert_allclose(model.coef_, expected.coef_, rtol=1e-6)


def test_classes_of_ranks_with_empty_sources_or_no_labels(rows):
    X, y, groups, weights = rows
    classes = np.where(y > np.median(y), "hi", "lo")
    none = (X[:0], classes[:0], groups[:0], weights[:0])

    def work(c, columns=(X, classes, groups, weights)):
        given = c.rows(Chunks([none])) if c.rank else c.rows(*columns)
        return GroupDROClassifier().fit(given)

    for found in on_ranks(2, work):
        assert found.classes_.tolist() == ["hi", "lo"]
        assert found.predict(Chunks([none])).tolist() == []
        assert found.predict(Chunks(lambda: iter([]))).tolist() == []
    for found in on_ranks(2, lambda c: work(c, (X, None, groups, weights))):
        assert "y is None; give the classes of these rows" in str(found)


def test_whole_numbers_that_no_common_type_holds(rows):
    X, y, _, _ = rows
    many = 2**60 + np.arange(len(X)) % 2

    def work(c):
        kind = np.int64 if c.rank else np.uint64
        return shared(c, [X, y, many.astype(kind)])

    for found in on_ranks(2, work):
        assert isinstance(found, ValueError)
        assert "convert them to one type" in str(found)


def test_the_first_look_sends_little_more_of_a_sample_than_is_kept():
    n, rng = 640_000, np.random.default_rng(0)
    X, y, groups = rng.normal(size=(n, 1)), rng.normal(size=n), np.arange(n) % 3

    def work(c):
        rows = slice(n // 8 * c.rank, n // 8 * (c.rank + 1))
        engine = shared(c, [X[rows], y[rows], groups[rows]])
        return len(engine._own.scan.sample.y), engine.sample()

    found = on_ranks(8, work)
    for sent, kept in found:
        assert len(kept.y) == BUDGET // 3 * 3
        assert sent < 1.05 * BUDGET / 8 < n / 8  # and not all of its own sample
        np.testing.assert_array_equal(kept.X, found[0][1].X)


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
