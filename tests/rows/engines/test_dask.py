"""Fits of Dask collections end where fits in memory do, on threads and on worker processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter

import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from dask.sizeof import sizeof
from distributed import Client, LocalCluster, wait
from problems import neuron_data

from counterpoise import GroupDRONeuron
from counterpoise.activations import Activation, identity, relu
from counterpoise.losses import NeuronLoss
from counterpoise.rows.engines.dask import FAN_IN, DaskEngine, _tree, load_block, predict
from counterpoise.rows.engines.dask_homes import choose, near, sums_sent
from counterpoise.rows.engines.memory import make_engine
from counterpoise.rows.engines.questions import Evaluate, Gram, Labels, Moments, Separation, Squares
from counterpoise.rows.engines.tally import Tally
from counterpoise.rows.groups import GroupedData
from counterpoise.solver.solve import solve

D = 4
NAMES = [f"x{j}" for j in range(D)]


@pytest.fixture(scope="module")
def cluster():
    with (
        LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=":0"
        ) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        yield client


@pytest.fixture
def client(cluster):
    """Two worker processes; tests that do not ask for them run on threads."""
    with cluster.as_current():
        yield cluster


@pytest.fixture(scope="module")
def rows():
    """Shuffled rows, and the last group only at the end: most blocks lack it."""
    X, y, groups = neuron_data(K=4, n=400, d=D, seed=3)
    rng = np.random.default_rng(0)
    order = np.append(rng.permutation(1200), np.arange(1200, 1600))
    weights = rng.uniform(0.5, 2.0, 1600)
    weights[::7] = 0.0
    return X[order], y[order], groups[order], weights


def arrays(*columns, chunk=230):
    return [da.from_array(c, chunks=(chunk, *c.shape[1:])) for c in columns]


@pytest.fixture
def frame(rows):
    X, y, groups, weights = rows
    table = pd.DataFrame(X, columns=NAMES).assign(y=y, w=weights, g=[f"group {i}" for i in groups])
    return dd.from_pandas(table, npartitions=6)


def same(found, expected, tol=1e-10):
    for name in ("coef", "intercept", "risk", "weights", "losses"):
        np.testing.assert_allclose(
            getattr(found, name), getattr(expected, name), rtol=0, atol=tol, err_msg=name
        )
    assert found.converged


def engine_of(columns, activation=None, **options):
    return DaskEngine(*columns, activation or relu(), intercept=True, centred=True, **options)


def questions(engine, seed=5):
    rng = np.random.default_rng(seed)
    K, d = engine.n_groups, engine.n_features
    w, shift = rng.normal(size=d + 1), rng.normal(size=d)
    share, basis = rng.uniform(size=K), rng.normal(size=(d + 1, 3))
    own = Activation(lambda t: np.maximum(t, 0.2 * t), None, 1.0, 1.0)
    return [
        Labels(0.3, 1.0),
        Evaluate(w, NeuronLoss(relu()), True, None),
        Evaluate(w, NeuronLoss(relu()), False, 0.5),
        Evaluate(w, NeuronLoss(own), False, None),
        Moments(rng.normal(size=(K, d + 1))),
        Separation(rng.normal(size=(3, d + 1)), w, relu()),
        Squares(shift),
        Gram(w, NeuronLoss(relu()), None, shift, None),
        Gram(None, NeuronLoss(relu()), share, shift, basis),
    ]


# -- sums ----------------------------------------------------------------------------------------


def test_answers_are_those_of_the_rows_in_memory(rows):
    engine = engine_of(arrays(*rows))
    memory = make_engine(GroupedData.build(*rows), relu())
    np.testing.assert_array_equal(engine.census.labels, memory.census.labels)
    np.testing.assert_allclose(engine.census.totals, memory.census.totals, rtol=1e-14)
    assert engine.census.n_rows == memory.census.n_rows
    for question in questions(engine):
        ours, theirs = engine.ask(question), memory.ask(question)
        assert ours.flags.writeable
        np.testing.assert_allclose(ours, theirs, rtol=1e-11, atol=1e-11, err_msg=repr(question))


def test_every_question_and_the_first_look_count_as_a_pass(rows):
    engine = engine_of(arrays(*rows))
    assert engine.passes == 1
    clipped = engine.variant(truncate=0.5)
    clipped.evaluate(np.zeros(D + 1), surrogate=True)
    engine.curvature(None, None)
    assert engine.passes == clipped.passes == 3


@pytest.mark.slow
def test_workers_and_threads_give_the_same_bits(rows, client):
    spread = engine_of(arrays(*rows))
    with dask.config.set(scheduler="synchronous"):
        alone = engine_of(arrays(*rows))
        expected = [alone.ask(question) for question in questions(alone)]
    for question, answer in zip(questions(spread), expected, strict=True):
        np.testing.assert_array_equal(spread.ask(question), answer)


@pytest.mark.slow
def test_parts_are_spread_evenly_over_workers(rows, client):
    crowded, idle = client.nthreads()
    X, y, groups, _ = (v.persist(workers=[crowded]) for v in arrays(*rows))  # seven blocks
    engine = engine_of([X, y, groups, None])
    held = client.who_has(wait(engine._parts).done)
    counts = Counter(worker for workers in held.values() for worker in workers)
    assert counts == {crowded: 4, idle: 3}


@pytest.mark.slow
def test_blocks_are_loaded_in_runs_of_neighbours(rows, client):
    columns = [*arrays(*rows, chunk=25)]  # 64 blocks
    engine = engine_of(columns)
    assert sums_sent(homes_of(engine, client)) == 2
    # A task of neighbours sends few sums to the root, too.
    assert sums_sent_by_tasks(engine) <= len(engine._bundles) + 2
    # Few rows that the workers hold elsewhere are moved, which does not change the bits.
    first, second = client.nthreads()
    X, y, groups, weights = columns
    parts = [X[i * 25 : i * 25 + 25].persist(workers=[(first, second)[i % 2]]) for i in range(64)]
    scattered = da.concatenate(parts)
    wait(scattered)
    moved = engine_of([scattered, y, groups, weights])
    assert sums_sent(homes_of(moved, client)) == 2
    for question in questions(engine):
        np.testing.assert_array_equal(moved.ask(question), engine.ask(question))


def homes_of(engine, client):
    held = client.who_has(wait(engine._parts).done)
    return [held[part.key][0] for part in engine._parts]


def sums_sent_by_tasks(engine):
    total = 0
    for bundle in engine._bundles:
        tally = Tally(len(engine._parts))
        for index in bundle:
            tally.add(0, index, None)
        total += len(tally.nodes)
    return total


def test_few_sums_of_256_blocks_reach_the_root():
    rng = np.random.default_rng(0)
    threads = dict.fromkeys("abcd", 1)
    held = [[worker] for worker in rng.permutation(list("abcd") * 64)]
    assert sums_sent(near(held, threads)) > 180
    # Large sums move rows into runs, and large rows stay.
    assert sums_sent(choose(held, threads, rows=100.0, sums=100.0)) == 4
    assert choose(held, threads, rows=1e9, sums=100.0) == near(held, threads)
    # Rows in runs stay without a move, in whatever order the workers have them.
    runs = [[worker] for worker in "cadb" for _ in range(64)]
    assert choose(runs, threads, rows=1.0, sums=1e9) == [worker for (worker,) in runs]


def test_shares_are_by_threads_and_even():
    homes = choose([()] * 12, {"a": 1, "b": 3}, rows=1.0, sums=1.0)
    assert Counter(homes) == {"a": 3, "b": 9}
    assert len(choose([()], {"a": 1, "b": 1}, rows=1.0, sums=1.0)) == 1


@pytest.mark.slow
def test_parts_of_a_worker_are_asked_together(rows, client):
    engine = engine_of(arrays(*rows, chunk=100))  # sixteen blocks, two workers of one thread
    held = client.who_has(engine._parts)
    assert sorted(index for bundle in engine._bundles for index in bundle) == list(range(16))
    assert len(engine._bundles) == 4
    for bundle in engine._bundles:
        assert len({held[engine._parts[index].key] for index in bundle}) == 1


@pytest.mark.parametrize("count", [1, 2, 3, 7, 8, 21])
def test_sums_do_not_depend_on_who_holds_which_parts(count):
    rng = np.random.default_rng(count)
    answers = [None if i % 5 == 4 else rng.normal(size=3) * 10.0 ** (i % 7) for i in range(count)]
    totals = []
    for order in [range(count), range(count)[::-1], *(rng.permutation(count) for _ in range(20))]:
        hands = rng.integers(1 + count // 2, size=count)
        tallies = [Tally(count) for _ in range(1 + count // 2)]
        for index in order:
            tallies[hands[index]].add(0, int(index), answers[index])
        totals.append(Tally.merge(*tallies, count=count).total)
    np.testing.assert_allclose(totals[0], sum(a for a in answers if a is not None), rtol=1e-12)
    for total in totals[1:]:
        np.testing.assert_array_equal(total, totals[0])


@pytest.mark.parametrize("count", [1, 2, FAN_IN, FAN_IN + 1, 3 * FAN_IN**2 + 5])
def test_tree_takes_every_item_once_and_in_order(count):
    def combine(*lists):
        assert 2 <= len(lists) <= FAN_IN
        return [item for items in lists for item in items]

    assert _tree([[i] for i in range(count)], combine) == list(range(count))


def test_blocks_without_rows_or_weight_add_nothing(rows):
    X, y, groups, weights = rows
    weights = np.where(np.arange(len(y)) < 300, 0.0, weights)
    blocks = (300, 0, 500, 0, 800)
    given = [da.from_array(v, chunks=(blocks, (D,))[: v.ndim]) for v in (X, y, groups, weights)]
    assert 0 in given[0].chunks[0]
    engine = engine_of(given)
    memory = make_engine(GroupedData.build(X, y, groups, weights), relu())
    for question in questions(engine):
        np.testing.assert_allclose(
            engine.ask(question), memory.ask(question), rtol=1e-11, atol=1e-11
        )


def test_blocks_are_made_once_and_only_once(rows):
    X, _, groups, _ = rows
    made = []

    def make(block):
        made.append(len(block))
        return block

    lazy = arrays(X)[0].map_blocks(make, meta=np.empty((0, 0)))
    engine = engine_of([lazy, lazy[:, 0] + 1.0, groups, None])
    for question in questions(engine):
        engine.ask(question)
    assert len(made) == lazy.numblocks[0]


def test_the_scheduler_knows_how_large_a_part_is(rows):
    X, y, groups, weights = rows
    part, _ = load_block(0, X, y, groups, weights, columns=None, intercept=True)
    assert sizeof(part) > X[weights > 0].nbytes


# -- fits ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("divergence", ["kl", "chi2"])
@pytest.mark.parametrize("activation", ["relu", "identity"])
def test_fit_of_arrays(rows, activation, divergence):
    options = dict(activation=activation, divergence=divergence)
    found = solve(*arrays(*rows), **options)
    expected = solve(*rows, **options)
    same(found, expected)
    np.testing.assert_array_equal(found.labels, expected.labels)
    # The first look, and the labels' moments, which memory does not count as a read.
    assert found.n_passes == expected.n_passes + 2


@pytest.mark.parametrize("kind", ["names", "series", "memory", "mixed", "columns cut"])
def test_fit_of_frames_and_of_blocks_that_do_not_match(rows, frame, kind):
    X, y, groups, weights = rows
    given = {
        "names": (frame, "y", "g", "w"),
        "series": (frame[NAMES], frame["y"], frame["g"], frame["w"]),
        "memory": (frame[NAMES], y, groups.tolist(), pd.Series(weights)),
        "mixed": (frame[NAMES], *arrays(y), frame["g"].repartition(npartitions=2), weights),
        "columns cut": (
            da.from_array(X, chunks=(300, 3)), frame["y"].to_dask_array(), frame["g"], weights
        ),
    }[kind]  # fmt: skip
    same(solve(*given), solve(*rows))


def test_fit_without_intercept_of_floats_in_single_precision(rows):
    X, y, groups, _ = rows
    X = X.astype(np.float32)
    table = dd.from_pandas(pd.DataFrame(X, columns=NAMES), npartitions=3)
    assert engine_of([table, y, groups, None]).census.precision == np.finfo(np.float32).eps
    same(
        solve(table, y, groups, fit_intercept=False), solve(X, y, groups, fit_intercept=False), 1e-9
    )


@pytest.mark.slow
def test_fit_on_workers(rows, frame, client):
    same(solve(*arrays(*rows)), solve(*rows))
    same(solve(frame, "y", "g", "w", activation="identity"), solve(*rows, activation="identity"))


@pytest.mark.slow
def test_large_arrays_in_memory_travel_without_a_warning(client):
    rng = np.random.default_rng(0)
    y = rng.normal(size=1_500_000)  # 12 MB
    X = da.ones((len(y), 1), chunks=500_000)
    engine = DaskEngine(X, y, None, None, identity(), intercept=False, centred=False)
    np.testing.assert_allclose(engine.label_means(), [y.mean()], atol=1e-12)


# -- prediction ----------------------------------------------------------------------------------


def test_predict_refuses_rows_of_another_width(rows):
    X, y, g, _ = rows
    model = GroupDRONeuron().fit(X, y, g)
    with pytest.raises(ValueError, match=r"X has 2 features, but the fit was to rows of"):
        model.predict(da.from_array(X[:, :2], chunks=(500, 2)))


def test_predict_is_lazy_and_block_by_block(rows, frame):
    X = rows[0]
    coef = np.arange(1.0, D + 1)
    seen = []

    def score(block):
        seen.append(type(block))
        return block @ coef

    lazy = [predict(da.from_array(X, chunks=(500, 3)), score), predict(frame, score, NAMES)]
    assert not seen
    for values in lazy:
        assert isinstance(values, da.Array)
        assert values.ndim == 1
        assert values.dtype == np.float64
        np.testing.assert_allclose(values.compute(), X @ coef, atol=1e-12)
    assert set(seen) == {np.ndarray}
    with pytest.raises(ValueError, match=r"no columns \['z'\]"):
        predict(frame, score, ["x0", "z"])


# -- what is refused -----------------------------------------------------------------------------


def refuse(message, *given):
    with pytest.raises(ValueError, match=message):
        engine_of(given)


def test_lengths_that_differ(rows, frame):
    X, y, groups, _ = rows
    refuse("X has 1600 rows but y has 1599", *arrays(X, y[:-1]), None, None)
    refuse("X has 1600 rows but groups has 10", *arrays(X, y), groups[:10], None)
    refuse("X has 1600 rows but y has 3", frame[NAMES], y[:3], None, None)
    short = frame["y"].map_partitions(lambda s: s.iloc[1:], meta=("y", float))
    refuse(r"block \d: X has 26\d rows but y has 26\d; split both", frame[NAMES], short, None, None)


def test_columns_that_are_not_there_or_not_numbers(rows, frame):
    X, y, _, _ = rows
    refuse(r"groups='h' is not a column of X, which has \['x0'", frame, "y", "h", None)
    refuse("y='y' is not a column of X, which is an array", *arrays(X), "y", None, None)
    refuse(r"columns \['g'\] of X do not hold numbers; encode", frame, "y", None, "w")
    refuse(
        r"columns \['g'\] of X do not hold numbers; encode", frame.drop(columns="y"), y, None, None
    )
    refuse("y must be one column of numbers", frame[NAMES], frame["g"], None, None)
    refuse("y must be one column of numbers", frame[NAMES], frame[["y"]], None, None)
    refuse("y must be one column of numbers, or its name; got array", frame, None, "g", "w")
    refuse("X must be a Dask array or dataframe of two dimensions", *arrays(y, y), None, None)
    refuse("X must be a Dask array or dataframe of two", frame["x0"], frame["y"], None, None)


def test_values_that_are_missing(rows, frame):
    def spoil(column, value):
        def change(part):
            return part.assign(**{column: part[column].where(part.index != 500, value)})

        return frame.map_partitions(change, meta=frame._meta)

    refuse("X has missing or infinite values", spoil("x1", np.nan), "y", "g", "w")
    refuse("y has missing or infinite values", spoil("y", np.inf), "y", "g", "w")
    refuse("groups is missing at 1 row", spoil("g", None), "y", "g", "w")
    refuse("sample_weight must be finite and not negative", spoil("w", -1.0), "y", "g", "w")
    nullable = frame.astype({"x0": "Float64", "y": "Float64"})
    same(solve(nullable, "y", "g", "w"), solve(*rows))
    holes = nullable.assign(y=nullable["y"].mask(nullable["y"] > 1.0))
    refuse("y has missing or infinite values", holes, "y", "g", "w")
    refuse("there are no rows", *arrays(rows[0], rows[1]), None, np.zeros(1600))


@pytest.mark.slow
def test_dask_is_imported_only_when_it_is_used():
    code = "import counterpoise, sys; sys.exit('dask' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


# -- a worker, or the process that fits, is lost -------------------------------------------------


def test_a_fit_that_is_interrupted_goes_on_to_the_same_bits(rows, tmp_path):
    def stop(progress):
        if progress.iteration == 3:
            raise KeyboardInterrupt

    path = tmp_path / "fit.journal"
    with pytest.raises(KeyboardInterrupt):
        solve(*arrays(*rows), checkpoint=path, callback=stop)
    assert path.exists()
    found, whole = solve(*arrays(*rows), checkpoint=path), solve(*arrays(*rows))
    assert found.coef.tobytes() == whole.coef.tobytes()
    assert (found.risk, found.n_passes) == (whole.risk, whole.n_passes)


@pytest.mark.slow
def test_a_lost_worker_costs_no_more_than_time(rows, client):
    """The last test: the cluster's nanny puts another worker in the place of the one killed."""
    processes = client.run(os.getpid)
    victim, pid = next(iter(processes.items()))
    held = []

    def kill(progress):
        if not held:
            held.extend(key for key in client.has_what()[victim] if "place_part" in str(key))
            os.kill(pid, signal.SIGKILL)

    found = solve(*arrays(*rows), callback=kill)
    assert held  # it had parts of the rows
    assert victim not in client.scheduler_info()["workers"]
    same(found, solve(*rows))
