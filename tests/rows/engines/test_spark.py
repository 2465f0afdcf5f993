"""Fits of Spark data frames end where fits in memory do, on threads and on executors."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from problems import neuron_data
from spark import QUIET, find_java, lacking, spark  # noqa: F401  (a fixture)

from counterpoise import (
    Chunks,
    GroupDROClassifier,
    GroupDROClassifierCV,
    GroupDRONeuron,
    GroupDRONeuronCV,
    solve,
)
from counterpoise.activations import relu
from counterpoise.losses import NeuronLoss
from counterpoise.rows.engines.memory import make_engine
from counterpoise.rows.engines.questions import Evaluate, Gram, Labels, Moments, Squares
from counterpoise.rows.engines.spark_parts import Reply
from counterpoise.rows.engines.tally import Tally
from counterpoise.rows.groups import GroupedData

pytestmark = [pytest.mark.distributed, pytest.mark.filterwarnings(QUIET)]

D = 4
NAMES = [f"x{j}" for j in range(D)]


@pytest.fixture(scope="module")
def rows():
    """Shuffled rows, and the last group only at the end: most partitions lack it."""
    X, y, groups = neuron_data(K=4, n=400, d=D, seed=3)
    rng = np.random.default_rng(0)
    order = np.append(rng.permutation(1200), np.arange(1200, 1600))
    weights = rng.uniform(0.5, 2.0, 1600)
    weights[::7] = 0.0
    return X[order], y[order], np.array([f"group {g}" for g in groups[order]]), weights


def to_frame(spark, rows, count=5):  # noqa: F811
    """A data frame of the rows, in order, in ``count`` partitions."""
    X, y, groups, weights = (array.tolist() for array in rows)
    table = [(*x, *rest) for x, *rest in zip(X, y, groups, weights, strict=True)]
    schema = ", ".join([f"{name} double" for name in NAMES] + ["y double, g string, w double"])
    return spark.createDataFrame(spark.sparkContext.parallelize(table, count), schema)


@pytest.fixture(scope="module")
def frame(spark, rows):  # noqa: F811
    return to_frame(spark, rows).persist()


def same(found, expected, tol=1e-10):
    for name in ("coef_", "intercept_", "risk_", "group_weights_", "group_risks_"):
        np.testing.assert_allclose(
            getattr(found, name), getattr(expected, name), rtol=0, atol=tol, err_msg=name
        )
    np.testing.assert_array_equal(found.groups_, expected.groups_)


def engine_of(frame, y="y", groups="g", weights="w"):
    from counterpoise.rows.engines.spark import SparkEngine

    return SparkEngine(frame, y, groups, weights, relu())


def questions(engine):
    rng = np.random.default_rng(5)
    K, w = engine.n_groups, rng.normal(size=D + 1)
    shift, share, basis = rng.normal(size=D), rng.uniform(size=K), rng.normal(size=(D + 1, 3))
    return [
        Labels(0.3, 1.0),
        Evaluate(w, NeuronLoss(relu()), False, 0.5),
        Moments(rng.normal(size=(K, D + 1))),
        Squares(shift),
        Gram(w, NeuronLoss(relu()), None, shift, None),
        Gram(None, NeuronLoss(relu()), share, shift, basis),
    ]


# -- sums ----------------------------------------------------------------------------------------


def test_answers_are_those_of_the_rows_in_memory_also_if_partitions_are_empty(spark, frame, rows):  # noqa: F811
    """Twenty-three partitions, more than one task merges; five of them without rows."""
    from pyspark.sql import functions as F

    empty = frame.filter(F.col("y") > 1e9)
    engine = engine_of(to_frame(spark, rows, 18).union(empty))
    memory = make_engine(GroupedData.build(*rows), relu())
    np.testing.assert_allclose(engine.census.totals, memory.census.totals, rtol=1e-14)
    assert engine.census.n_rows == memory.census.n_rows
    assert engine._rows.count == 23
    for question in questions(engine):
        found = engine.ask(question)
        assert found.flags.writeable
        np.testing.assert_allclose(found, memory.ask(question), rtol=1e-11, atol=1e-11)
    assert engine.passes == 7


def test_bits_do_not_depend_on_how_partitions_become_tasks(frame):
    engine = engine_of(frame)
    asked = questions(engine)
    expected = [engine.ask(question) for question in asked]
    for tasks in (1, 3, 5):
        engine._rows._tasks = engine._rows._placed.coalesce(tasks)
        for question, answer in zip(asked, expected, strict=True):
            np.testing.assert_array_equal(engine.ask(question), answer)


def files_of(spark):  # noqa: F811
    """The files with rows, which lie in the folder of the only executor."""
    folder = spark.sparkContext.getConf().get("spark.local.dir")
    return sorted(Path(folder).rglob("counterpoise-*/*.rows"))


def test_rows_are_read_once_and_again_if_their_files_are_lost(spark, frame):  # noqa: F811
    read = spark.sparkContext.accumulator(0)

    def count(batches):
        for batch in batches:
            read.add(batch.num_rows)
            yield batch

    expected = [(q, engine_of(frame).ask(q)) for q in questions(engine_of(frame))[:3]]
    engine = engine_of(frame.mapInArrow(count, frame.schema))
    assert read.value == 1600
    assert len(files_of(spark)) == 5  # those of fits before this one are gone
    for path in files_of(spark):
        path.unlink()
    for question, answer in expected:
        np.testing.assert_array_equal(engine.ask(question), answer)
    assert read.value == 3200  # by the first question, and by no other


def test_files_that_stay_missing_are_an_error(spark, frame):  # noqa: F811
    engine = engine_of(frame)
    tally = Tally(engine._rows.count)
    engine._rows._run = lambda ask: Reply(tally, (2,))
    with pytest.raises(OSError, match=r"partition 2 of X were stored again.*spark.local.dir"):
        engine.label_means()
    engine._rows._run = lambda ask: Reply(tally, (2,), "other rows")
    with pytest.raises(ValueError, match="other rows"):
        engine.label_means()


def test_rows_that_change_when_they_are_read_again_are_refused(spark, tmp_path):  # noqa: F811
    """Also if each group has as many rows as before; another order alone is fine."""

    def made(batches):
        import pyarrow as pa

        for _ in batches:
            x = np.arange(6.0)
            order = (tmp_path / "order").exists()
            x = x[::-1].copy() if order else x
            x[0] += (tmp_path / "change").exists()
            yield pa.RecordBatch.from_pydict({"x": x, "y": x % 3.0})

    frame = spark.range(1, numPartitions=1).mapInArrow(made, "x double, y double")
    engine = engine_of(frame, groups=None, weights=None)
    means = engine.label_means()

    def read_again():
        for path in files_of(spark):
            path.unlink()
        engine._rows._placed.unpersist(blocking=True)
        engine._rows._placed.persist()
        engine._labels = None
        return engine.label_means()

    (tmp_path / "order").touch()
    np.testing.assert_allclose(read_again(), means)
    (tmp_path / "change").touch()
    with pytest.raises(ValueError, match="partition 0 of X was computed again and has other rows"):
        read_again()


# -- fits ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("activation", ["relu", "identity"])
def test_fit(frame, rows, activation):
    found = GroupDRONeuron(activation).fit(frame, "y", "g", "w")
    same(found, GroupDRONeuron(activation).fit(*rows))
    assert found.feature_names_in_.tolist() == NAMES


def test_fit_of_classes_and_their_predictions(spark, rows):  # noqa: F811
    X, y, groups, _ = rows
    labels = np.where(y > np.median(y), "yes", np.where(X[:, 0] > 1.0, "maybe", "no"))
    table = to_frame(spark, (X, y, groups, np.ones(len(y))), 3).drop("w")
    from pyspark.sql import functions as F

    label = F.when(F.col("y") > float(np.median(y)), "yes")
    table = table.withColumn("y", label.when(F.col("x0") > 1.0, "maybe").otherwise("no"))
    model, expected = (GroupDROClassifier() for _ in range(2))
    model.fit(table, "y", "g")
    same(model, expected.fit(X, labels, groups))
    assert model.classes_.tolist() == ["maybe", "no", "yes"]
    found = model.predict_proba(model.predict(table)).select("prediction", "probability").collect()
    assert [row.prediction for row in found] == expected.predict(X).tolist()
    np.testing.assert_allclose([r.probability for r in found], expected.predict_proba(X), atol=1e-9)


@pytest.mark.parametrize("kind", ["vector", "array", "float"])
def test_fit_of_one_column_with_all_features(frame, rows, kind):
    from pyspark.ml.feature import VectorAssembler
    from pyspark.sql import functions as F

    X, y, groups, weights = rows
    if kind == "vector":
        table = VectorAssembler(inputCols=NAMES, outputCol="v").transform(frame).drop(*NAMES)
    else:
        cells = F.array(*NAMES).cast(f"array<{'float' if kind == 'float' else 'double'}>")
        table = frame.withColumn("v", cells).drop(*NAMES)
    if kind == "float":
        X = X.astype(np.float32)
        assert engine_of(table).census.precision == np.finfo(np.float32).eps
    model = GroupDRONeuron("identity").fit(table, "y", "g", "w")
    expected = GroupDRONeuron("identity").fit(X, y, groups, weights)
    same(model, expected, 1e-6 if kind == "float" else 1e-10)
    assert not hasattr(model, "feature_names_in_")
    found = [row.prediction for row in model.predict(table).select("prediction").collect()]
    np.testing.assert_allclose(found, expected.predict(X), atol=1e-5)


# -- prediction ----------------------------------------------------------------------------------


def test_predict_adds_a_column_lazily_and_takes_features_by_name(spark, frame, rows):  # noqa: F811
    model = GroupDRONeuron("identity").fit(*rows)
    model.feature_names_in_ = np.array(NAMES, dtype=object)
    turned = frame.select("g", *NAMES[::-1])
    found = model.predict(turned)
    assert found.columns == [*turned.columns, "prediction"]
    values = [row.prediction for row in found.collect()]
    np.testing.assert_allclose(values, rows[0] @ model.coef_ + model.intercept_, atol=1e-12)
    with pytest.raises(ValueError, match=r"X has no columns \['x3'\], which were features"):
        model.predict(frame.drop("x3"))
    del model.feature_names_in_
    with pytest.raises(ValueError, match="X must have one column of vectors"):
        model.predict(frame)


def test_rows_that_lack_a_feature_have_no_prediction(spark, rows):  # noqa: F811
    X, y, groups, _ = rows
    classes = np.where(y > np.median(y), "hi", "lo")
    some = [[None if k == i % 5 else float(X[i, k]) for k in range(len(NAMES))] for i in range(6)]
    frame = spark.createDataFrame(some, NAMES)
    whole = [i for i, row in enumerate(some) if None not in row]
    assert whole == [4]
    model = GroupDROClassifier().fit(X, classes, groups)
    row = np.array([some[4]])
    expected, probabilities = model.predict(row)[0], model.predict_proba(row)[0]
    model.feature_names_in_ = np.array(NAMES, dtype=object)
    found = model.predict_proba(model.predict(frame)).collect()
    assert [row.prediction for row in found] == [None] * 4 + [expected, None]
    assert [row.probability is None for row in found] == [True] * 4 + [False, True]
    np.testing.assert_allclose(found[4].probability, probabilities)
    neuron = GroupDRONeuron().fit(X, y, groups)
    neuron.feature_names_in_ = np.array(NAMES, dtype=object)
    values = [row.prediction for row in neuron.predict(frame).collect()]
    assert [value is None for value in values] == [i not in whole for i in range(6)]


def test_vectors_that_are_missing_have_no_prediction(spark, rows):  # noqa: F811
    from pyspark.sql import functions as F

    X, y, groups, _ = rows
    model = GroupDRONeuron("identity").fit(X, y, groups)
    cells = [(0, [float(x) for x in X[0]]), (1, None)]
    frame = spark.createDataFrame(cells, "i int, v array<double>").orderBy(F.col("i"))
    first, second = [row.prediction for row in model.predict(frame).collect()]
    assert first == pytest.approx(model.predict(X[:1])[0])
    assert second is None


# -- what is refused -----------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["date", "decimal(10,2)", "timestamp"])
def test_classes_of_types_that_predictions_cannot_have(frame, kind):
    from pyspark.sql import functions as F

    table = frame.withColumn("y", (F.lit(None) if kind[0] == "d" else F.lit(0)).cast(kind))
    with pytest.raises(ValueError, match=r"classes must be text, numbers or booleans, so cast it"):
        GroupDROClassifier().fit(table, "y", "g")


def test_a_column_object_is_no_name(frame):
    from pyspark.sql import functions as F

    with pytest.raises(ValueError, match="groups must be the name of a column of X"):
        GroupDRONeuron().fit(frame, "y", F.col("g"))


def test_columns_that_are_not_there_or_not_numbers(frame):
    from pyspark.sql import functions as F

    def refuse(message, *given):
        with pytest.raises(ValueError, match=message):
            engine_of(*given)

    refuse(r"groups must be the name of a column of X, which has \['x0'", frame, "y", "h")
    refuse("y must be the name of a column of X", frame, None)
    refuse("y must be the name of a column of X", frame, np.zeros(1600))
    refuse("y='g' is a column of string; it must hold numbers", frame, "g", None)
    refuse(r"columns \['g'\] of X do not hold numbers; encode", frame, "y", None)
    refuse("X has no columns left for features", frame.select("y", "g", "w"))
    mixed = frame.withColumn("v", F.array("x0", "x1"))
    refuse(r"columns \['v'\] of X do not hold numbers.*must be the only feature", mixed)
    ragged = frame.select(F.when(F.col("y") > 0.5, F.array("x0")).otherwise(F.array("x0", "x1"))
                          .alias("v"), "y", "g", "w")  # fmt: skip
    refuse(r"partition \d: the vectors or arrays of X differ in length", ragged)
    with pytest.raises(ValueError, match="does not take groups that overlap"):
        GroupDRONeuron().fit(frame, "y", np.eye(1600, 2))


@pytest.mark.parametrize(
    ("column", "value", "message"),
    [
        ("x1", None, "partition 2: X has missing or infinite values"),
        ("y", float("inf"), "partition 2: y has missing or infinite values"),
        ("g", None, "partition 2: groups is missing at 1 row"),
        ("w", -1.0, "partition 2: sample_weight must be finite and not negative"),
    ],
)
def test_values_that_are_missing(spark, rows, column, value, message):  # noqa: F811
    from pyspark.sql import functions as F

    frame = to_frame(spark, rows)
    bad = F.col("x0") == float(rows[0][700, 0])
    with pytest.raises(ValueError, match=message):
        engine_of(frame.withColumn(column, F.when(bad, F.lit(value)).otherwise(F.col(column))))


def test_other_frames_are_refused_with_the_way_out():
    class DataFrame:
        """Stands for a frame of pyspark.pandas, which has neither of the two."""

        __module__ = "pyspark.pandas.frame"

        def to_spark(self):
            raise AssertionError("not called")

    with pytest.raises(TypeError, match=r"got pyspark.pandas.frame.*; pass X.to_spark\(\)"):
        GroupDRONeuron().fit(DataFrame(), "y", "g")


def test_a_fit_removes_only_files_of_fits_that_ended_before_it_began(tmp_path, monkeypatch):
    from counterpoise.rows.engines.spark_parts import FOLDER, remove_ended

    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path))
    for number in range(5):
        (tmp_path / f"{FOLDER}ab-{number:08}").mkdir()
    others = ["", "-notes", "00000001", "abc-00000001", "aa-00000001"]
    for other in others:
        (tmp_path / f"{FOLDER}{other}").mkdir()
    remove_ended("ab-00000003", ["ab-00000001", "ab-00000003"])
    left = {path.name.removeprefix(FOLDER) for path in tmp_path.iterdir()}
    assert left == {"ab-00000001", "ab-00000003", "ab-00000004", *others}


def test_without_a_folder_of_spark_nothing_is_stored(monkeypatch):
    from counterpoise.rows.engines.spark_parts import local_folder

    monkeypatch.delenv("SPARK_LOCAL_DIRS", raising=False)
    with pytest.raises(ValueError, match=r"set spark\.local\.dir"):
        local_folder()


def test_digests_see_other_labels_and_no_other_order():
    from counterpoise.rows.engines.spark_parts import digest
    from counterpoise.rows.scan import check_chunk

    X, y, groups = np.arange(12.0).reshape(6, 2), np.arange(6.0), np.array([*"aabbcc"])
    expected = digest(check_chunk(X, y, groups, None, "rows"))
    turned = slice(None, None, -1)
    assert digest(check_chunk(X[turned], y[turned], groups[turned], None, "rows")) == expected
    assert digest(check_chunk(X, y, np.array([*"aabbdd"]), None, "rows")) != expected


def test_no_rows(frame):
    with pytest.raises(ValueError, match="there are no rows"):
        engine_of(frame.limit(0))


def test_pyspark_is_imported_only_when_it_is_used():
    code = "import counterpoise, sys; counterpoise.spark; sys.exit('pyspark' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


# -- an executor, or the process that fits, is lost ----------------------------------------------


def test_a_fit_that_is_interrupted_goes_on_to_the_same_bits(frame, tmp_path):
    def stop(progress):
        if progress.iteration == 3:
            raise KeyboardInterrupt

    path = tmp_path / "fit.journal"
    with pytest.raises(KeyboardInterrupt):
        solve(frame, "y", "g", "w", checkpoint=path, callback=stop)
    assert path.exists()
    found, whole = (solve(frame, "y", "g", "w", checkpoint=p) for p in (path, None))
    assert found.coef.tobytes() == whole.coef.tobytes()
    assert (found.risk, found.n_passes) == (whole.risk, whole.n_passes)


def test_a_lost_executor_costs_no_more_than_time(tmp_path):
    """In a process of its own, since a process has one Spark; see ``lost_executor.py``."""
    if not find_java():
        lacking("there is no Java: apt install openjdk-17-jre-headless, or set JAVA_HOME")
    script = Path(__file__).parents[2] / "support" / "lost_executor.py"
    paths = os.pathsep.join(path for path in sys.path if path)
    done = subprocess.run(
        [sys.executable, script, tmp_path], env={**os.environ, "PYTHONPATH": paths},
        capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.split() == ["killed", "same"]


def test_cross_validation_reads_partitions_together(frame, rows):
    options = dict(cv=3, nus=[0.3, 0.0], truncate=None, reference=False)
    found = GroupDRONeuronCV("relu", **options).fit(frame, y="y", groups="g", sample_weight="w")
    expected = GroupDRONeuronCV("relu", **options).fit(Chunks(lambda: iter([rows])))
    np.testing.assert_allclose(
        found.cv_results_["group_risks"], expected.cv_results_["group_risks"], rtol=1e-5
    )
    same(found, expected, tol=1e-7)
    assert found.verdict_ == expected.verdict_
    assert list(found.feature_names_in_) == NAMES


def test_cross_validation_of_classes(spark, rows):  # noqa: F811
    from pyspark.sql import functions as F

    X, y, groups, weights = rows
    middle = float(np.median(y))
    table = to_frame(spark, rows).withColumn(
        "y", F.when(F.col("y") > middle, "yes").otherwise("no")
    )
    labels = np.where(y > middle, "yes", "no")
    options = dict(cv=3, nus=[0.1], scoring="balanced_error", reference=False, alphas=[1e-3])
    found = GroupDROClassifierCV(**options).fit(table, "y", "g", "w")
    source = Chunks(lambda: iter([(X, labels, groups, weights)]))
    expected = GroupDROClassifierCV(**options).fit(source)
    np.testing.assert_allclose(
        found.cv_results_["group_risks"], expected.cv_results_["group_risks"], rtol=1e-5
    )
    same(found, expected, tol=1e-7)
    assert found.verdict_ == expected.verdict_
