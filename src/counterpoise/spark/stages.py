"""GroupDRO and GroupDROModel: an estimator of Counterpoise around columns of a data frame."""

from __future__ import annotations

import tempfile
from functools import partial
from pathlib import Path
from typing import Any

from pyspark.ml import Estimator, Model
from pyspark.ml.param import Param, Params, TypeConverters
from pyspark.ml.param.shared import HasFeaturesCol, HasLabelCol, HasPredictionCol, HasWeightCol
from pyspark.ml.util import (
    DefaultParamsReader,
    DefaultParamsWriter,
    MLReadable,
    MLReader,
    MLWritable,
    MLWriter,
)
from pyspark.sql import DataFrame
from sklearn.base import clone

from counterpoise.estimators.base import GroupEstimator
from counterpoise.estimators.neuron import GroupDRONeuron
from counterpoise.rows.engines.spark import predict
from counterpoise.rows.engines.spark_columns import by_name, whole_column
from counterpoise.storage.models import load


class _Columns(HasFeaturesCol, HasLabelCol, HasPredictionCol, HasWeightCol):
    """The names of columns that both stages share."""

    groupCol: Param[str] = Param(
        Params._dummy(),  # noqa: SLF001  (as every parameter of Spark ML)
        "groupCol",
        "name of the column with the group of every row",
        TypeConverters.toString,
    )

    def getGroupCol(self) -> str:
        """Return the name of the column with the groups."""
        return str(self.getOrDefault(self.groupCol))


class GroupDRO(Estimator["GroupDROModel"], _Columns):
    """Fit an estimator of Counterpoise to columns of a Spark data frame.

    Parameters
    ----------
    estimator : GroupDRONeuron, GroupDROClassifier or another that takes data frames of Spark
        Default: ``GroupDRONeuron()``. It is not changed; a copy is fitted.
    featuresCol : str
        A column of vectors, as VectorAssembler makes, or of arrays.
    labelCol, predictionCol : str
    groupCol, weightCol : str, optional

    Examples
    --------
    ::

        stages = [VectorAssembler(inputCols=["a", "b"], outputCol="features"),
                  GroupDRO(GroupDRONeuron("relu"), labelCol="y", groupCol="g")]
        fitted = Pipeline(stages=stages).fit(frame)
        fitted.transform(frame).select("prediction")
    """

    def __init__(
        self,
        estimator: GroupEstimator | None = None,
        *,
        featuresCol: str = "features",
        labelCol: str = "label",
        groupCol: str | None = None,
        weightCol: str | None = None,
        predictionCol: str = "prediction",
    ) -> None:
        super().__init__()
        self.estimator = GroupDRONeuron() if estimator is None else estimator
        columns = dict(featuresCol=featuresCol, labelCol=labelCol, groupCol=groupCol,
                       weightCol=weightCol, predictionCol=predictionCol)  # fmt: skip
        self._set(**{name: value for name, value in columns.items() if value is not None})

    def _fit(self, dataset: DataFrame) -> GroupDROModel:
        rows = self.getFeaturesCol()
        y, groups, weights = (
            self.getOrDefault(column) if self.isDefined(column) else None
            for column in (self.labelCol, self.groupCol, self.weightCol)
        )
        names = [rows, *[name for name in (y, groups, weights) if name is not None]]
        missing = [name for name in names if name not in dataset.columns]
        if missing:
            raise ValueError(
                f"the data frame has no columns {missing!r}, only {dataset.columns[:20]!r}; set "
                "featuresCol, labelCol, groupCol and weightCol"
            )
        frame = dataset.select(*[by_name(name) for name in dict.fromkeys(names)])
        model = clone(self.estimator).fit(frame, y, groups, weights)
        return self._copyValues(GroupDROModel(model))


class GroupDROModel(Model, _Columns, MLWritable, MLReadable["GroupDROModel"]):
    """A fitted model as a stage that adds its predictions; ``model`` is the estimator."""

    def __init__(self, model: GroupEstimator) -> None:
        super().__init__()
        self.model = model

    def _transform(self, dataset: DataFrame) -> DataFrame:
        return predict(
            dataset,
            partial(self.model.outputs, kind="predict"),
            whole_column(dataset, self.getFeaturesCol()),
            self.model.n_features_in_,
            self.model.empty_output("predict"),
            self.getPredictionCol(),
        )

    def write(self) -> MLWriter:
        return _Writer(self)

    @classmethod
    def read(cls) -> MLReader[GroupDROModel]:
        return _Reader()


class _Writer(MLWriter):
    """Writes the files of a stored model as rows of a table, wherever Spark can write."""

    def __init__(self, stage: GroupDROModel) -> None:
        super().__init__()
        self.stage = stage

    def saveImpl(self, path: str) -> None:
        session: Any = self.sparkSession
        DefaultParamsWriter.saveMetadata(self.stage, path, session)
        with tempfile.TemporaryDirectory() as folder:
            self.stage.model.save(folder)
            files = [(file.name, file.read_bytes()) for file in sorted(Path(folder).iterdir())]
        table = session.createDataFrame(files, "name string, content binary").coalesce(1)
        table.write.parquet(f"{path}/model")


class _Reader(MLReader[GroupDROModel]):
    def load(self, path: str) -> GroupDROModel:
        session: Any = self.sparkSession
        metadata = DefaultParamsReader.loadMetadata(path, session)
        with tempfile.TemporaryDirectory() as folder:
            for name, content in session.read.parquet(f"{path}/model").collect():
                (Path(folder) / Path(name).name).write_bytes(content)
            stage = GroupDROModel(load(folder))
        DefaultParamsReader.getAndSetParams(stage, metadata)
        return stage
