"""Models stored by 0.1 load, and predict as they did there."""

import json
from pathlib import Path

import numpy as np
import pytest
from sklearn.pipeline import Pipeline

from counterpoise import load
from counterpoise.storage.models import load_fit, load_record
from counterpoise.tabular import TableEncoder, open_table, read_rows

STORED = Path(__file__).parents[1] / "data" / "models-0.1"
EXPECTED = json.loads((STORED / "expected.json").read_text())


def check_predictions(predicted, name):
    """As 0.1 predicted, up to what other processors round."""
    expected = [float.fromhex(value) for value in EXPECTED["predictions"][name]]
    np.testing.assert_allclose(predicted, expected, rtol=1e-13, atol=1e-15)


def stored_coefficients(name):
    """The numbers in the file."""
    whole = json.loads((STORED / name / "model.json").read_text())
    member = whole["arrays"]["members"][whole["content"]["model"]["fitted"]["coef_"]["name"]]
    with np.load(STORED / name / whole["arrays"]["file"]) as arrays:
        return arrays[member]


@pytest.mark.parametrize("name", ["array", "array-cv", "baseline"])
def test_models_of_arrays(name):
    model = load(STORED / name)
    check_predictions(model.predict(np.array(EXPECTED["X"])), name)
    np.testing.assert_array_equal(model.coef_, stored_coefficients(name))
    assert load_record(STORED / name) is None


@pytest.mark.parametrize("name", ["table", "table-cv"])
def test_models_of_tables_become_pipelines(name, tmp_path):
    model, record = load_fit(STORED / name)
    assert isinstance(model, Pipeline)
    encoder, neuron = (step for _, step in model.steps)
    assert isinstance(encoder, TableEncoder)
    assert not hasattr(neuron, "columns_")
    assert not hasattr(neuron, "feature_names_in_")
    assert encoder.layout_.target == "price"
    assert encoder.layout_.group == ("region",)
    layout = encoder.layout_
    table = open_table(STORED / "rows.csv", text=layout.text, words=layout.words)
    if layout.missing == "impute":
        check_predictions(model.predict(table), name)
    rows = read_rows(table, layout, labelled=False)
    check_predictions(neuron.predict(rows.X), name)
    np.testing.assert_array_equal(neuron.coef_, stored_coefficients(name))
    assert record.model is model
    assert (record.comparison is None) == (name == "table-cv")  # which was a bare fit
    again, same = load_fit(record.save(tmp_path))  # in the current format
    assert json.loads((tmp_path / "model.json").read_text())["version"] == 4
    np.testing.assert_array_equal(again[-1].predict(rows.X), neuron.predict(rows.X))
    assert str(same) == str(record)
