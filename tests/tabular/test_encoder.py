"""TableEncoder: a scikit-learn transformer of data frames."""

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import Ridge
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline

from counterpoise import GroupDRONeuron
from counterpoise.tabular import DataError, TableEncoder

ROWS = {
    "size": [1.5, -2.0, None, 4.0],
    "new": [True, False, True, True],
    "town": ["A", "B", "B", None],
    "zip": [10, 20, 10, 10],
}
ENCODED = [[1.5, 1, 1, 0, 0], [-2.0, 0, 0, 0, 1], [3.5 / 3, 1, 0, 0, 0], [4.0, 1, 0, 1, 0]]


def encoder(**options):
    return TableEncoder(**{"missing": "impute", "categorical": ["zip"], **options})


def test_every_kind_of_frame_is_encoded_alike():
    indexed = pd.DataFrame(ROWS, index=["w", "x", "y", "z"])
    frames = [
        indexed,
        pl.DataFrame(ROWS),
        pl.LazyFrame(ROWS),
        pa.table(ROWS),
        pa.table(ROWS).to_batches()[0],
        ROWS,
    ]
    for frame in frames:
        fitted = encoder().fit(frame)
        names = ["size", "new", "town=A", "town=(missing)", "zip=20"]
        assert fitted.get_feature_names_out().tolist() == names
        assert fitted.feature_names_in_.tolist() == list(ROWS)
        np.testing.assert_allclose(fitted.transform(frame), ENCODED)
    later = fitted.transform({**ROWS, "other": [0] * 4})  # other columns do not matter
    np.testing.assert_allclose(later, ENCODED)
    with pytest.raises(TypeError, match=r"rows must be a data frame.*ndarray"):
        fitted.transform(np.zeros((2, 4)))


def test_its_options():
    only = encoder(features=["town", "size"], drop=["size"]).fit(ROWS)
    assert only.get_feature_names_out().tolist() == ["town=A", "town=(missing)"]
    with pytest.raises(DataError, match="missing='drop'") as error:
        TableEncoder().fit(ROWS)
    assert error.value.argument is None  # one message about all columns
    with pytest.raises(DataError, match="more than 1 different values"):
        encoder(max_levels=1).fit(ROWS)
    with pytest.raises(ValueError, match="unseen must be one of 'refuse', 'base'; got 'drop'"):
        encoder(unseen="drop").fit(ROWS)
    new = {"size": [0.0], "new": [False], "town": ["C"], "zip": [10]}
    with pytest.raises(DataError, match=r"'C'.*unseen='base'") as error:
        encoder().fit(ROWS).transform(new)
    assert error.value.argument == "unseen"
    assert encoder(unseen="base").fit(ROWS).transform(new).tolist() == [[0, 0, 0, 0, 0]]
    kept = TableEncoder(missing="drop").fit(ROWS)
    assert kept.get_feature_names_out().tolist() == ["size", "new", "town=B", "zip"]
    with pytest.raises(DataError, match=r"'size' \(1\), 'town' \(1\).*missing='impute'"):
        kept.transform(ROWS)


def test_it_is_a_transformer():
    frame, y = pd.DataFrame(ROWS), [1.0, 2.0, 3.0, 5.0]
    with pytest.raises(NotFittedError):
        encoder().transform(frame)
    again = clone(encoder(drop=["new"]))
    assert again.drop == ["new"]
    shown = encoder().set_output(transform="pandas").fit_transform(frame)
    assert list(shown.columns) == ["size", "new", "town=A", "town=(missing)", "zip=20"]
    pipeline = make_pipeline(encoder(), Ridge())
    search = GridSearchCV(
        pipeline, {"tableencoder__drop": [[], ["zip"]]}, cv=2, error_score="raise"
    )
    search.set_params(estimator__tableencoder__unseen="base").fit(frame, y)
    assert search.predict(frame).shape == (4,)


def test_a_pipeline_with_a_neuron_predicts_frames():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"size": rng.normal(size=90), "town": np.repeat(["A", "B", "C"], 30)})
    y = frame["size"] + (frame["town"] == "B")
    model = make_pipeline(TableEncoder(), GroupDRONeuron("identity"))
    model.fit(frame, y, groupdroneuron__groups=frame["town"])
    np.testing.assert_allclose(model.predict(frame), y, atol=1e-6)
    np.testing.assert_allclose(model.predict(pl.from_pandas(frame).head(3)), y[:3], atol=1e-6)
