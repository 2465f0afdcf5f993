"""Classifiers on disk and as ONNX: labels of any type, the same answers, no pickle."""

import json

import numpy as np
import onnx
import onnxruntime
import pytest

from counterpoise import Chunks, GroupDROClassifier, GroupDRORegressor, load
from counterpoise.losses import Huber
from counterpoise.storage.models import VERSION
from counterpoise.storage.onnx import CLASSIFIER_FORMAT, FORMAT, to_onnx

LABELS = {
    "text": ["no", "yes", "ünsure"],
    "integers": [3, 7, 11],
    "booleans": [False, True],
    "floats": [1.0, 2.0],
}


def rows(n=240, d=4, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    return X, rng.logistic(size=n), rng.choice(["a", "b"], size=n, p=[0.8, 0.2])


def fitted(labels, **options):
    X, noise, groups = rows()
    cuts = np.digitize(X[:, 0] + noise, np.linspace(-1, 1, len(labels) - 1))
    y = np.array(labels)[cuts]
    return GroupDROClassifier(nu=0.1, tol=1e-4, **options).fit(X, y, groups=groups), X


@pytest.mark.parametrize("kind", LABELS)
def test_classifiers_come_back_with_their_labels(kind, tmp_path):
    model, X = fitted(LABELS[kind])
    again = load(model.save(tmp_path))
    assert type(again) is GroupDROClassifier
    assert again.classes_.tolist() == LABELS[kind]
    assert again.classes_.dtype == model.classes_.dtype
    np.testing.assert_array_equal(again.predict(X), model.predict(X))
    np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))
    assert str(again.certificate_) == str(model.certificate_)
    assert again.get_params() == model.get_params()
    assert json.loads((tmp_path / "model.json").read_text())["version"] == VERSION


def test_labels_from_a_source_may_be_dates(tmp_path):
    X, noise, groups = rows()
    y = np.where(X[:, 0] > noise, np.datetime64("2021-05-01"), np.datetime64("2020-01-01"))
    model = GroupDROClassifier(tol=1e-4).fit(Chunks([(X, y, groups)]))
    again = load(model.save(tmp_path))
    assert again.classes_.tolist() == model.classes_.tolist()
    np.testing.assert_array_equal(again.predict(X), model.predict(X))
    label = session(to_onnx(model)).run(["label"], {"X": X})[0]
    assert label.tolist() == [str(value) for value in model.predict(X).tolist()]


@pytest.mark.parametrize("loss", ["squared", "huber", "poisson", Huber(0.7)])
def test_regressors_come_back(loss, tmp_path):
    X, _, groups = rows()
    y = np.random.default_rng(1).poisson(np.exp(0.3 * X[:, 0])) + 0.0
    model = GroupDRORegressor(loss, tol=1e-4).fit(X, y, groups=groups)
    again = load(model.save(tmp_path))
    np.testing.assert_array_equal(again.predict(X), model.predict(X))
    assert again.loss_.config() == model.loss_.config()
    (found,) = session(to_onnx(model)).run(["prediction"], {"X": X})
    np.testing.assert_allclose(found, model.predict(X), rtol=1e-12)
    assert facts(to_onnx(model))["format"] == FORMAT


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda fitted: fitted.pop("classes_"), "classes_"),
        (lambda fitted: fitted.pop("loss_"), "loss_"),
        (lambda fitted: fitted.update(classes_=["only"]), "classes_"),
        (lambda fitted: fitted.update(intercept_=[0.0]), "intercept_"),
    ],
)
def test_classifiers_that_contradict_themselves_are_refused(change, told, tmp_path):
    from counterpoise.storage.models import ModelFileError, _digest

    model, _ = fitted(LABELS["text"])
    path = model.save(tmp_path) / "model.json"
    whole = json.loads(path.read_text())
    change(whole["content"]["model"]["fitted"])
    whole["sha256"] = _digest(whole["content"], whole["arrays"])
    path.write_text(json.dumps(whole))
    with pytest.raises(ModelFileError, match=told):
        load(tmp_path)


def session(proto):
    onnx.checker.check_model(proto, full_check=True)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    return onnxruntime.InferenceSession(
        proto.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )


def facts(proto):
    return {prop.key: prop.value for prop in proto.metadata_props}


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("kind", LABELS)
def test_onnx_gives_labels_and_probabilities(kind, dtype):
    model, _ = fitted(LABELS[kind])
    X = rows(500, seed=3)[0]  # rows that the fit has not seen
    proto = to_onnx(model, dtype=dtype)
    served = session(proto)
    assert [one.name for one in served.get_outputs()] == ["label", "probabilities"]
    label, proba = served.run(None, {"X": X.astype(dtype)})
    assert proba.dtype == dtype
    tight = {"rtol": 1e-12, "atol": 1e-14} if dtype == "float64" else {"rtol": 1e-4, "atol": 1e-6}
    np.testing.assert_allclose(proba, model.predict_proba(X), **tight)
    expected = model.predict(X)
    sure = np.ptp(np.sort(proba, axis=1)[:, -2:], axis=1) > 1e-5
    if kind == "floats":
        expected = np.array([str(value) for value in expected.tolist()])
    assert label[sure].tolist() == expected[sure].tolist()
    about = facts(proto)
    assert about["format"] == CLASSIFIER_FORMAT
    assert json.loads(about["classes"]) == [
        value if isinstance(value, str | int) else str(value) for value in LABELS[kind]
    ]
    empty = served.run(None, {"X": X[:0].astype(dtype)})
    assert [len(part) for part in empty] == [0, 0]


def test_onnx_of_a_hinge_has_scores():
    model, _ = fitted(["no", "yes"], loss="squared_hinge")
    X = rows(500, seed=3)[0]
    label, score = session(to_onnx(model)).run(["label", "score"], {"X": X})
    np.testing.assert_allclose(score, model.decision_function(X), rtol=1e-12, atol=1e-14)
    assert label.tolist() == model.predict(X).tolist()


def test_missing_values_have_no_probabilities():
    model, X = fitted(LABELS["text"])
    X = X[:3].copy()
    X[1, 2] = np.nan
    proba = session(to_onnx(model)).run(["probabilities"], {"X": X})[0]
    assert np.isnan(proba).all(axis=1).tolist() == [False, True, False]
