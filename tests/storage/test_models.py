"""Stored models: what comes back is what was stored, and anything else is refused."""

import dataclasses
import errno
import json
import os
import pickle
import shutil
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from paths import environment
from problems import neuron_data
from sklearn.base import is_classifier
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import KFold
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler

from counterpoise import (
    AdaptiveSteps,
    CVaR,
    GroupDRONeuron,
    GroupDRONeuronCV,
    assess,
    baselines,
    load,
)
from counterpoise.activations import Activation, huber_relu, leaky_relu
from counterpoise.report import write_report
from counterpoise.storage.models import (
    ModelFileError,
    _digest,
    load_fit,
    load_record,
    read_document,
    save,
)
from counterpoise.storage.packing import Packer, unpack
from counterpoise.tabular import TableEncoder


@pytest.fixture(scope="module")
def rows():
    X, y, g = neuron_data(K=3, n=80, d=3)
    return X, y, np.array(["a", "b & <c>", "ü"])[g]


@pytest.fixture(scope="module")
def model(rows):
    X, y, groups = rows
    return GroupDRONeuron(nu=0.1).fit(X, y, groups=groups)


def same(a, b):
    """Equal in type and value, NaN included."""
    if isinstance(a, np.generic):
        return same(a.item(), b)
    if isinstance(a, np.ndarray):
        return a.dtype == b.dtype and same(a.tolist(), b.tolist())
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[k], b[k]) for k in a)
    if isinstance(a, (list, tuple)):
        return type(a) is type(b) and len(a) == len(b) and all(map(same, a, b))
    if dataclasses.is_dataclass(a):
        return type(a) is type(b) and same(vars(a), vars(b))
    if isinstance(a, float) and np.isnan(a):
        return isinstance(b, float) and np.isnan(b)
    return type(a) is type(b) and a == b


FITS = [
    GroupDRONeuron("identity", nu=0.0),
    GroupDRONeuron(leaky_relu(0.2), divergence="chi2", nu=np.inf, prior="rows"),
    GroupDRONeuron(huber_relu(0.3), divergence=CVaR(0.5), schedule=AdaptiveSteps(nu0=0.5)),
    GroupDRONeuron("softplus", reference={"a": 0.1, "b & <c>": 0.0, "ü": 0.2}, truncate=2.0),
    GroupDRONeuronCV("identity", nus=[0.0, 1.0], cv=3),
    *(getattr(baselines, name)(max_iter=20) for name in baselines.__all__),
]


@pytest.mark.parametrize("fit", FITS, ids=lambda fit: repr(fit)[:60])
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_every_estimator_comes_back(fit, rows, tmp_path):
    X, y, groups = rows
    if is_classifier(fit):
        y = np.where(y > np.median(y), "high", "low")
    fit.fit(X, y, groups=groups)
    again = load(fit.save(tmp_path / "model"))
    assert type(again) is type(fit)
    np.testing.assert_array_equal(again.predict(X), fit.predict(X))
    fitted = {name for name in vars(fit) if name.endswith("_")}
    assert fitted == {name for name in vars(again) if name.endswith("_")}
    for name in fitted - {"activation_", "loss_", "best_estimator_"}:
        assert same(getattr(fit, name), getattr(again, name)), name
    assert str(again.get_params()) == str(fit.get_params())
    if "random_state" in fit.get_params():
        for model in (fit, again):
            model.set_params(random_state=0).fit(X, y, groups=groups)
    again.fit(X, y, groups=groups)  # and it can be fitted again, to the same
    np.testing.assert_array_equal(again.coef_, fit.coef_)


@pytest.mark.parametrize(
    "labels",
    [
        [3, 1, 2],
        [True, False, True],
        [0.5, 1.5, np.inf],
        np.array(["2020-01-01", "2020-01-02", "2020-01-03"], dtype="M8[D]"),
        np.array(["x", "yy", "zzz"], dtype=object),
    ],
)
def test_labels_of_any_kind(rows, labels, tmp_path):
    X, y, groups = rows
    chosen = np.asarray(labels)[np.unique(groups, return_inverse=True)[1]]
    model = GroupDRONeuron().fit(X, y, groups=chosen)
    again = load(model.save(tmp_path))
    assert again.groups_.dtype == model.groups_.dtype
    assert again.groups_.tolist() == model.groups_.tolist()


def test_certificate_and_frames(rows, tmp_path):
    import pandas as pd

    X, y, groups = rows
    frame = pd.DataFrame(X, columns=["one", "two", "three"])
    model = GroupDRONeuron().fit(frame, y, groups=groups)
    again = load(model.save(tmp_path))
    assert again.certificate_ == model.certificate_
    assert str(again.certificate_.at_sharpness(0.1)) == str(model.certificate_.at_sharpness(0.1))
    np.testing.assert_array_equal(again.predict(frame), model.predict(frame))
    with pytest.raises(ValueError, match="feature names"):
        again.predict(frame.rename(columns={"one": "other"}))


def test_files_are_open_and_the_same_each_time(model, tmp_path):
    one, two = (model.save(tmp_path / name) for name in ("one", "two"))
    assert {p.name: p.read_bytes() for p in one.iterdir()} == {
        p.name: p.read_bytes() for p in two.iterdir()
    }
    whole = json.loads((one / "model.json").read_text())
    assert whole["format"] == "counterpoise model"
    assert whole["version"] == 4
    with np.load(one / whole["arrays"]["file"], allow_pickle=False) as arrays:
        member = whole["arrays"]["members"]["model.coef_"]
        np.testing.assert_array_equal(arrays[member], model.coef_)
    for path in one.iterdir():
        with pytest.raises((pickle.UnpicklingError, ValueError, KeyError, EOFError, IndexError)):
            pickle.loads(path.read_bytes())


def test_a_model_replaces_another_whole(model, rows, tmp_path):
    X, y, groups = rows
    model.save(tmp_path)
    other = GroupDRONeuron(nu=5.0).fit(X, y, groups=groups)
    other.save(tmp_path)
    assert len(list(tmp_path.iterdir())) == 2
    np.testing.assert_array_equal(load(tmp_path).coef_, other.coef_)


def test_a_crash_keeps_the_old_model(model, rows, tmp_path, monkeypatch):
    X, y, groups = rows
    model.save(tmp_path)

    def crash(*_):
        raise OSError("no space left")

    other = GroupDRONeuron(nu=5.0).fit(X, y, groups=groups)
    monkeypatch.setattr("counterpoise.storage.models.replacing", crash)
    with pytest.raises(OSError, match="no space"):
        other.save(tmp_path)
    assert len(list(tmp_path.iterdir())) == 2, "its arrays are gone"
    np.testing.assert_array_equal(load(tmp_path).coef_, model.coef_)


def changed(folder, edit):
    path = folder / "model.json"
    whole = json.loads(path.read_text())
    edit(whole)
    path.write_text(json.dumps(whole))


def resealed(edit):
    """An edit by somebody who knows how checksums are made."""

    def change(whole):
        edit(whole)
        whole["sha256"] = _digest(whole["content"], whole["arrays"])

    return change


def naming(file):
    return lambda whole: whole["arrays"].update(file=file)


def test_damage_is_refused(model, tmp_path):
    fresh = model.save(tmp_path / "fresh")
    arrays = next(fresh.glob("*.npz")).name

    def broken(damage, match):
        folder = tmp_path / "broken"
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(fresh, folder)
        damage(folder)
        with pytest.raises(ModelFileError, match=match):
            load(folder)

    def cut(name):
        return lambda folder: (folder / name).write_bytes((folder / name).read_bytes()[:-100])

    def flip(folder):
        data = bytearray((folder / arrays).read_bytes())
        data[len(data) // 2] ^= 1
        (folder / arrays).write_bytes(bytes(data))

    broken(cut("model.json"), "not JSON")
    broken(cut(arrays), "checksum")
    broken(flip, "checksum")
    broken(lambda folder: (folder / arrays).unlink(), "missing; a model is a whole folder")
    broken(lambda folder: (folder / "model.json").unlink(), "holds no model.json")
    broken(lambda folder: changed(folder, lambda w: w.update(version=5)), "version 5.*upgrade")
    broken(lambda folder: changed(folder, lambda w: w.update(version=0)), "version 0.*fit")
    broken(lambda folder: changed(folder, resealed(lambda w: w.update(arrays=None))), "name the")
    broken(lambda folder: changed(folder, resealed(naming(".."))), "name the file")
    broken(lambda folder: changed(folder, resealed(naming("x\0"))), "name the file")
    broken(lambda folder: changed(folder, resealed(naming("."))), "name the file|is missing")
    broken(
        lambda folder: changed(folder, resealed(lambda w: w["content"].pop("model"))),
        "its content is invalid, KeyError",
    )
    for name in ("activation_", "intercept_", "status_", "groups_", "n_features_in_"):
        edit = resealed(lambda w, name=name: w["content"]["model"]["fitted"].pop(name))
        broken(lambda folder, edit=edit: changed(folder, edit), f"incomplete.*{name} is missing")
    (fresh.parent / "deep").mkdir()
    (fresh.parent / "deep" / "model.json").write_text("[" * 100_000)
    with pytest.raises(ModelFileError, match="not JSON"):
        load(fresh.parent / "deep")
    broken(lambda folder: changed(folder, lambda w: w.update(format="other")), "not a counterpoise")
    broken(
        lambda folder: changed(
            folder, lambda w: w["content"]["model"]["fitted"].update(intercept_=7.0)
        ),
        "checksum",
    )
    broken(
        lambda folder: changed(folder, lambda w: w["arrays"].update(file="../x.npz")), "checksum"
    )
    (tmp_path / "file").write_text("")
    with pytest.raises(ModelFileError, match="is a file"):
        load(tmp_path / "file")
    with pytest.raises(NotADirectoryError, match="give a folder"):
        model.save(tmp_path / "file")
    with pytest.raises(ModelFileError, match="without a record"):
        load_fit(fresh)


def test_every_cut_and_flipped_byte_of_the_json_is_refused_or_harmless(model, rows, tmp_path):
    folder = model.save(tmp_path)
    data = (folder / "model.json").read_bytes()
    rng = np.random.default_rng(0)
    for at in rng.integers(0, len(data) - 2, size=60):
        changed_data = bytearray(data)
        changed_data[at] ^= 1 << int(rng.integers(0, 7))
        for version in (data[:at], bytes(changed_data)):
            (folder / "model.json").write_bytes(version)
            try:
                again = load(folder)
            except ModelFileError:
                continue
            np.testing.assert_array_equal(again.coef_, model.coef_)  # a blank, between values


def forged(tmp_path, tree):
    from counterpoise.storage.models import _write

    _write(tmp_path, {"model": tree, "record": None}, {})


def test_pipelines_of_a_table(rows, tmp_path):
    X, y, groups = rows
    frame = {"size": X[:, 0], "town": np.array(["A", "B"])[(X[:, 1] > 0).astype(int)]}
    steps = [("table", TableEncoder(missing="impute")), ("neuron", GroupDRONeuron("identity"))]
    model = Pipeline(steps).fit(frame, y, neuron__groups=groups)
    again = load(save(model, tmp_path))
    assert [name for name, _ in again.steps] == ["table", "neuron"]
    assert again[0].layout_ == model[0].layout_
    assert again[0].get_params() == model[0].get_params()
    np.testing.assert_array_equal(again.predict(frame), model.predict(frame))

    def narrower(w):
        encoder = w["content"]["model"]["steps"][0][1]["fitted"]
        encoder["layout_"]["fields"]["features"]["items"].pop()
        encoder["feature_names_in_"]["items"].pop()

    changed(tmp_path, resealed(narrower))
    with pytest.raises(ModelFileError, match="different numbers of features"):
        load(tmp_path)


@pytest.mark.parametrize(
    "tree",
    [
        {"!": "os.system"},
        {"!": "pipeline", "steps": []},
        {"!": "pipeline", "steps": [["a", {"!": "array", "name": "x"}]]},
        {
            "!": "pipeline",
            "steps": [
                ["a", {"!": "estimator", "class": "TableEncoder", "parameters": {}, "fitted": {}}]
            ],
        },
        {"!": "estimator", "class": "Pipeline", "parameters": {}, "fitted": {}},
        {"!": "estimator", "class": "GroupDRONeuron", "parameters": {}, "fitted": {"__class__": 1}},
        {"!": "estimator", "class": "GroupDRONeuron", "parameters": {"x": 1}, "fitted": {}},
        {"!": "estimator", "class": "GroupDRONeuron", "parameters": {}, "fitted": {}},
        {"!": "array", "name": "nothing"},
        {"!": ["array"]},
        [1, 2],
    ],
)
def test_forged_content_is_refused(tree, tmp_path):
    forged(tmp_path, tree)
    with pytest.raises(ModelFileError):
        load(tmp_path)


def test_what_cannot_be_stored_is_said(rows, tmp_path):
    X, y, _ = rows
    ramp = Activation(lambda t: np.maximum(t, 0.25 * t), None, 1.0, 1.0, name="ramp")
    with pytest.raises(TypeError, match=r"your own Activation \('ramp'\).*coef_"):
        GroupDRONeuron(ramp).fit(X, y).save(tmp_path / "own")
    with pytest.raises(TypeError, match=r"of type StandardScaler.*pipeline\[-1\]"):
        save(make_pipeline(StandardScaler(), GroupDRONeuron()).fit(X, y), tmp_path / "own")
    with pytest.raises(TypeError, match="cv is of type KFold"):
        GroupDRONeuronCV("identity", nus=[1.0], cv=KFold(3)).fit(X, y).save(tmp_path / "own")
    assert not (tmp_path / "own").exists()
    with pytest.raises(NotFittedError):
        GroupDRONeuron().save(tmp_path)


plain = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats()
    | st.text()
    | st.builds(np.array, st.lists(st.floats(width=32), max_size=4)),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(st.text() | st.integers() | st.just("!"), inner, max_size=3)
    ),
    max_leaves=10,
)


@given(plain)
def test_any_plain_value_comes_back(value):
    packer = Packer()
    tree = json.loads(json.dumps(packer.pack(value, "value"), allow_nan=False))
    assert same(value, unpack(tree, packer.arrays))


def tables_of(folder):
    return sorted(path.name for path in folder.iterdir())


def test_files_of_others_are_left_alone(model, rows, tmp_path):
    X, y, groups = rows
    for name in ("model-old.npz", "record-2024.npz", "model-0123456789ab.npz", "report.html"):
        (tmp_path / name).write_text("mine")
    model.save(tmp_path)
    other = GroupDRONeuron(nu=5.0).fit(X, y, groups=groups)
    other.save(tmp_path)
    assert len(tables_of(tmp_path)) == 6  # the first model's arrays alone are gone
    assert (tmp_path / "model-old.npz").read_text() == "mine"
    (tmp_path / "model.json").write_text('{"layers": 3}')
    with pytest.raises(FileExistsError, match="not a counterpoise model; choose another folder"):
        model.save(tmp_path)
    assert (tmp_path / "model.json").read_text() == '{"layers": 3}'
    (tmp_path / "model.json").write_text('{"format": "counterpoise mo')  # cut short: ours
    model.save(tmp_path)
    np.testing.assert_array_equal(load(tmp_path).coef_, model.coef_)


def test_a_folder_that_cannot_be_made(model, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(NotADirectoryError, match="cannot be created"):
        model.save(tmp_path / "file" / "below")


WRITER = """
import sys
from counterpoise import load
model = load(sys.argv[1])
for _ in range(10):
    model.save(sys.argv[2])
    load(sys.argv[2])
"""


@pytest.mark.slow
def test_processes_that_share_a_folder(model, rows, tmp_path):
    """Each model is whole whenever it is read, whoever writes."""
    X, y, groups = rows
    other = GroupDRONeuron(nu=5.0).fit(X, y, groups=groups)
    model.save(tmp_path / "one")
    other.save(tmp_path / "two")
    command = [sys.executable, "-c", WRITER]
    writers = [
        subprocess.Popen([*command, tmp_path / name, tmp_path / "shared"], stderr=subprocess.PIPE)
        for name in ("one", "two")
    ]
    for writer in writers:
        _, told = writer.communicate()
        assert writer.returncode == 0, told.decode()
    assert len(tables_of(tmp_path / "shared")) == 2
    coef = load(tmp_path / "shared").coef_.tolist()
    assert coef in (model.coef_.tolist(), other.coef_.tolist())


def test_a_model_keeps_its_own_record(model, tmp_path):
    assert load_record(model.save(tmp_path)) is None
    save(model, tmp_path, {"made": "here"})
    assert read_document(tmp_path)["record"] == {"made": "here"}
    model.save(tmp_path)
    assert load_record(tmp_path) is None
    assert len(tables_of(tmp_path)) == 2


# -- what saving leaves --------------------------------------------------------------------


def test_the_report_of_a_replaced_model_goes(model, rows, tmp_path, caplog):
    X, y, groups = rows
    assess(model, X, y, groups).save(tmp_path)
    report = write_report(tmp_path)
    model_again, record = load_fit(tmp_path)
    save(model_again, tmp_path, record)
    assert report.exists(), "the same model"
    other = GroupDRONeuron(nu=5.0).fit(X, y, groups=groups)
    with caplog.at_level("WARNING", logger="counterpoise"):
        other.save(tmp_path)
    assert not report.exists()
    assert "report.html described the model that was replaced" in caplog.text
    assert load_record(tmp_path) is None


def test_a_model_json_of_another_removes_no_file(model, tmp_path):
    folder = model.save(tmp_path)
    (folder / "thesis.txt").write_text("all of it")
    changed(folder, resealed(naming("thesis.txt")))
    model.save(folder)
    assert (folder / "thesis.txt").read_text() == "all of it"


def test_arrays_of_a_killed_process_are_swept(model, rows, tmp_path):
    X, y, groups = rows
    other = GroupDRONeuron(nu=5.0).fit(X, y, groups=groups)
    other.save(tmp_path)
    (left,) = tmp_path.glob("*.npz")
    (tmp_path / "model.json").unlink()
    draft = tmp_path / f".{left.name}.0123abcd.new"
    draft.write_bytes(b"half")
    model.save(tmp_path)
    assert len(list(tmp_path.iterdir())) == 2
    assert not left.exists()


KILLED = """
import os, signal, sys
from counterpoise import load
one, two, folder = load(sys.argv[1]), load(sys.argv[2]), sys.argv[3]
calls, last = 0, None

def count():
    global calls
    calls += 1
    if calls == last:
        os.kill(os.getpid(), signal.SIGKILL)

def counted(call):
    def wrapped(*args):
        count()
        found = call(*args)
        count()
        return found
    return wrapped

for last in range(1, 20):
    one.save(folder)
    assert len(os.listdir(folder)) == 2, os.listdir(folder)  # the next save sweeps
    child = os.fork()
    if not child:
        os.replace, os.fsync, os.unlink = map(counted, (os.replace, os.fsync, os.unlink))
        two.save(folder)
        os._exit(0)
    killed = os.waitpid(child, 0)[1] == signal.SIGKILL
    found = load(folder).coef_.tolist()
    assert found in (one.coef_.tolist(), two.coef_.tolist())
    print(killed, found == two.coef_.tolist())
    if not killed:
        break
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="no SIGKILL")
def test_a_kill_at_any_point_of_a_save_leaves_a_model(model, rows, tmp_path):
    X, y, groups = rows
    other = GroupDRONeuron(nu=5.0).fit(X, y, groups=groups).save(tmp_path / "other")
    folders = [str(model.save(tmp_path / "model")), str(other), str(tmp_path / "shared")]
    done = subprocess.run(
        [sys.executable, "-c", KILLED, *folders],
        capture_output=True, text=True, env=environment(), timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert set(done.stdout.splitlines()) == {"True False", "True True", "False True"}


def test_a_full_disk_is_named_and_keeps_the_old_model(model, rows, tmp_path, monkeypatch):
    X, y, groups = rows
    folder = model.save(tmp_path)
    before = {p.name: p.read_bytes() for p in folder.iterdir()}
    other = GroupDRONeuron(nu=5.0).fit(X, y, groups=groups)
    for n in (1, 2, 3, 4):
        calls = []

        def fail(handle, real=os.fsync, n=n, calls=calls):
            calls.append(handle)
            if len(calls) == n:
                raise OSError(errno.ENOSPC, "No space left on device")
            return real(handle)

        monkeypatch.setattr(os, "fsync", fail)
        lost = "is written, but a crash may lose it" if n in (2, 4) else "cannot be written"
        with pytest.raises(OSError, match=rf"' {lost} \(No space left on device\).*; (free|check)"):
            other.save(folder)
        monkeypatch.undo()
        if n < 4:
            assert {p.name: p.read_bytes() for p in folder.iterdir()} == before
        else:
            np.testing.assert_array_equal(load(folder).coef_, other.coef_)
