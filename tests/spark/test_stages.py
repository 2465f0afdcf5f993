"""Stages of a Spark ML pipeline: fitted, used, stored and read again."""

from __future__ import annotations

import numpy as np
import pytest
from problems import neuron_data
from spark import QUIET, spark  # noqa: F401  (a fixture)

from counterpoise import GroupDRONeuron

pytestmark = [pytest.mark.distributed, pytest.mark.filterwarnings(QUIET)]

NAMES = ["a", "b", "c"]


@pytest.fixture(scope="module")
def rows():
    return neuron_data(K=3, n=100, d=3, seed=1)


@pytest.fixture(scope="module")
def frame(spark, rows):  # noqa: F811
    X, y, groups = rows
    table = np.column_stack([X, y, groups]).tolist()
    return spark.createDataFrame(table, "a double, b double, c double, y double, g double")


def test_a_pipeline_fits_predicts_and_is_stored(rows, frame, tmp_path):
    from pyspark.ml import Pipeline, PipelineModel
    from pyspark.ml.feature import VectorAssembler

    from counterpoise.spark import GroupDRO

    X, y, groups = rows
    own = GroupDRONeuron("identity")
    stages = [
        VectorAssembler(inputCols=NAMES, outputCol="v"),
        VectorAssembler(inputCols=["a"], outputCol="another vector"),
        GroupDRO(own, featuresCol="v", labelCol="y", groupCol="g", predictionCol="p"),
    ]
    fitted = Pipeline(stages=stages).fit(frame)
    assert not hasattr(own, "coef_")
    expected = GroupDRONeuron("identity").fit(X, y, groups)
    np.testing.assert_allclose(fitted.stages[-1].model.coef_, expected.coef_, atol=1e-10)
    fitted.write().overwrite().save(str(tmp_path / "stored"))
    for model in (fitted, PipelineModel.load(str(tmp_path / "stored"))):
        found = model.transform(frame)
        assert found.columns[-1] == "p"
        values = [row.p for row in found.select("p").collect()]
        np.testing.assert_allclose(values, expected.predict(X), atol=1e-9)


def test_columns_that_are_missing_are_named(frame):
    from counterpoise.spark import GroupDRO

    with pytest.raises(ValueError, match=r"no columns \['features', 'label'\], only \['a', 'b'"):
        GroupDRO(groupCol="g").fit(frame)
