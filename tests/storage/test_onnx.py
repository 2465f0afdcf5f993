"""Exported models: checked by onnx, run by onnxruntime, and held against ``predict``."""

import json
import subprocess
import sys
from copy import copy
from functools import cache

import numpy as np
import onnx
import onnxruntime
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from problems import neuron_data
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LinearRegression

import counterpoise
from counterpoise import Activation, GroupDRONeuron, GroupDRONeuronCV
from counterpoise.activations import (
    elu,
    huber_relu,
    identity,
    leaky_relu,
    relu,
    softplus,
)
from counterpoise.baselines import AverageNeuron, TiltedNeuron
from counterpoise.storage.onnx import FORMAT, OPSET, to_onnx

ACTIVATIONS = {
    "identity": identity(),
    "relu": relu(),
    "leaky_relu": leaky_relu(0.3),
    "softplus": softplus(),
    "elu": elu(),
    "huber_relu": huber_relu(2.5),
    "rounded relu": relu().rounded(0.7),
    "rounded leaky_relu": leaky_relu(0.2).rounded(1e-3),
}
D = 5


@cache
def fitted(name):
    X, y, g = neuron_data(K=2, n=60, d=D, seed=1)
    return GroupDRONeuron(ACTIVATIONS[name], max_iter=50, tol=1e-2).fit(X, y, groups=g)


def with_numbers(name, coef, intercept):
    """A fitted neuron that has these coefficients."""
    model = copy(fitted(name))
    model.coef_, model.intercept_ = np.asarray(coef, dtype=float), float(intercept)
    return model


def served(proto, X, dtype="float64"):
    onnx.checker.check_model(proto, full_check=True)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(
        proto.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    (given,), (result,) = session.get_inputs(), session.get_outputs()
    assert (given.name, given.shape[1], result.name) == ("X", np.shape(X)[1], "prediction")
    (found,) = session.run(["prediction"], {"X": np.asarray(X, dtype=dtype)})
    assert found.dtype == dtype
    assert found.shape == (len(X),)
    return found


def rounding(model, X, dtype):
    """What sums of rounded terms may be off by."""
    terms = np.abs(X) @ np.abs(model.coef_) + abs(model.intercept_)
    return 4 * (D + 4) * np.finfo(dtype).eps * (1.0 + terms + model.activation_.parameters[1])


def assert_served_as_predicted(model, X, dtype):
    X = np.asarray(X, dtype=dtype)  # what a client sends
    found = served(to_onnx(model, dtype=dtype), X, dtype)
    error = np.abs(found - model.predict(X))
    assert (error <= rounding(model, X.astype(float), dtype)).all()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_fitted_models_are_served_as_they_predict(name, dtype):
    X, _, _ = neuron_data(K=2, n=300, d=D, seed=2)
    assert_served_as_predicted(fitted(name), X, dtype)
    assert_served_as_predicted(fitted(name), X[:1], dtype)
    assert served(to_onnx(fitted(name), dtype=dtype), X[:0], dtype).size == 0


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", ACTIVATIONS)
@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    rows=st.integers(1, 40),
    size=st.floats(-12, 12),
    coefficient=st.floats(-6, 6),
    intercept=st.floats(-1e6, 1e6),
)
def test_any_scores_are_served_as_predicted(name, dtype, seed, rows, size, coefficient, intercept):
    rng = np.random.default_rng(seed)
    model = with_numbers(name, rng.normal(size=D) * 10.0**coefficient, intercept)
    X = rng.standard_t(2, size=(rows, D)) * 10.0**size
    assert_served_as_predicted(model, X, dtype)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_far_scores_and_scores_at_kinks(name, dtype):
    """Nothing overflows on either side, and near zero digits are kept."""
    model = with_numbers(name, np.eye(D)[0], 0.0)
    width = model.activation_.parameters[1]
    near = [1e-30, 1e-12, 1e-6, 1e-3, 1.0, 20.0, 90.0, 800.0, 1e6, 1e30, width]
    t = np.array([0.0, *near, *(-np.array(near))])
    X = np.zeros((len(t), D))
    X[:, 0] = t
    assert_served_as_predicted(model, X, dtype)
    if name in ("elu", "relu", "identity", "leaky_relu"):  # where zero is reached without a shift
        small = X[np.abs(t) <= 1e-3].astype(dtype)
        found = served(to_onnx(model, dtype=dtype), small, dtype)
        np.testing.assert_allclose(found, model.predict(small), rtol=16 * np.finfo(dtype).eps)


def test_single_precision_loses_what_cancels_and_double_does_not():
    model = with_numbers("identity", [1.0, -1.0, 0, 0, 0], 0.0)
    X = np.zeros((1, D))
    X[0, :2] = 1e9 + 3.0, 1e9
    assert served(to_onnx(model), X).item() == 3.0
    assert served(to_onnx(model, dtype="float32"), X, "float32").item() != 3.0


def test_missing_values_are_predicted_as_missing():
    X = np.ones((9, D))
    X[4, 2] = np.nan
    for name in ACTIVATIONS:
        for dtype in ("float32", "float64"):
            found = served(to_onnx(fitted(name), dtype=dtype), X, dtype)
            assert np.flatnonzero(np.isnan(found)).tolist() == [4], name


@pytest.mark.parametrize(
    "model",
    [
        GroupDRONeuronCV("identity", nus=[0.0], truncate=None, reference=False, cv=2),
        AverageNeuron("softplus", tol=1e-3),
        TiltedNeuron("elu", tol=1e-2, fit_intercept=False),
    ],
    ids=lambda model: type(model).__name__,
)
def test_all_kinds_of_neurons(model):
    X, y, g = neuron_data(K=2, n=60, d=D, activation="softplus")
    assert_served_as_predicted(model.fit(X, y, groups=g), X, "float64")


def test_a_stored_model_is_exported_as_it_was(tmp_path):
    X, y, g = neuron_data(K=2, n=60, d=D)
    model = GroupDRONeuron(leaky_relu(0.25), tol=1e-2).fit(X, y, groups=g)
    model.save(tmp_path / "model")
    assert to_onnx(counterpoise.load(tmp_path / "model")) == to_onnx(model)


def test_the_file_tells_what_it_is(tmp_path):
    X, y, _ = neuron_data(K=1, n=50, d=2)
    names = ["größe", 'a "quoted" <b>']
    model = GroupDRONeuron("huber_relu", tol=1e-2).fit(pd.DataFrame(X, columns=names), y)
    path = tmp_path / "model.onnx"
    proto = to_onnx(model, path)
    kept = onnx.load(path)
    assert kept == proto
    assert [p.name for p in tmp_path.iterdir()] == ["model.onnx"]
    facts = {prop.key: prop.value for prop in kept.metadata_props}
    assert json.loads(facts["feature_names"]) == names
    assert (facts["format"], facts["format_version"]) == (FORMAT, "1")
    assert facts["activation"] == "huber_relu"
    assert json.loads(facts["activation_parameters"]) == [0.0, 1.0, 0.25]
    assert facts["counterpoise_version"] == kept.producer_version == counterpoise.__version__
    assert [(opset.domain, opset.version) for opset in kept.opset_import] == [("", OPSET)]
    assert {node.domain for node in kept.graph.node} == {""}
    plain = {prop.key for prop in to_onnx(fitted("relu"), str(path)).metadata_props}
    assert plain == facts.keys() - {"feature_names"}
    assert onnx.load(path).graph.node[-1].op_type == "Relu"  # in place of the first


def test_what_cannot_be_exported_is_refused(tmp_path):
    ramp = Activation(lambda t: np.maximum(t, 0.25 * t), None, 1.0, 1.0, name="ramp")
    X, y, _ = neuron_data(K=1, n=50, d=2)
    model = GroupDRONeuron(ramp, tol=1e-2).fit(X, y)
    with pytest.raises(ValueError, match=r"'ramp' is a Python function.*only models with a named"):
        to_onnx(model, tmp_path / "model.onnx")
    with pytest.raises(TypeError, match=r"fitted neuron.*got LinearRegression"):
        to_onnx(LinearRegression().fit(X, y))
    with pytest.raises(NotFittedError):
        to_onnx(GroupDRONeuron())
    with pytest.raises(ValueError, match="dtype must be one of 'float64', 'float32'; got 'half'"):
        to_onnx(fitted("relu"), dtype="half")
    with pytest.raises(ValueError, match="coef holds numbers that are not finite"):
        to_onnx(with_numbers("relu", [1, 2, np.nan, 3, 4], 0))
    large = with_numbers("relu", [1, 1, 1e39, 1, 1], 0)
    with pytest.raises(ValueError, match=r"coef holds.*too large for float32; use dtype='float64'"):
        to_onnx(large, dtype="float32")
    assert served(to_onnx(large), np.ones((1, D))).item() == 1e39
    with pytest.raises(ValueError, match="is a folder"):
        to_onnx(fitted("relu"), tmp_path)
    with pytest.raises(FileNotFoundError, match="there is no folder"):
        to_onnx(fitted("relu"), tmp_path / "nowhere" / "model.onnx")
    assert list(tmp_path.iterdir()) == []


def test_a_model_that_uses_the_group_is_refused(tmp_path):
    X, y, groups = neuron_data(K=2, n=60, d=2, seed=1)
    y = y + 10.0 * (groups == groups[0])
    options = dict(nus=[1.0], reference=False, truncate=None, cv=3)
    model = GroupDRONeuronCV("identity", **options, group_known=True).fit(X, y, groups=groups)
    assert model.uses_group_
    told = r"uses the group of every row \(.*no input for it; fit with group_known=False"
    with pytest.raises(ValueError, match=told):
        to_onnx(model, tmp_path / "model.onnx")
    assert list(tmp_path.iterdir()) == []
    without = GroupDRONeuronCV("identity", **options).fit(X, y, groups=groups)
    np.testing.assert_allclose(served(to_onnx(without), X), without.predict(X))


def test_the_missing_package_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(ImportError, match=r"ONNX export needs onnx: pip install onnx$"):
        to_onnx(fitted("relu"))


@pytest.mark.slow
def test_importing_the_module_imports_no_onnx():
    code = (
        "import sys, counterpoise.storage.onnx as ours; print('onnx' in sys.modules, ours.to_onnx)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("False <function to_onnx")
