"""assess(): the record of any fit, whatever holds its rows."""

import warnings

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.metrics import log_loss
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from counterpoise import Chunks, GroupDRONeuron, GroupDRONeuronCV, assess, baselines, load
from counterpoise.assessment.comparison import compare_by_folds
from counterpoise.storage.models import load_fit
from counterpoise.tabular import TableEncoder, fit_table, learn_layout, open_table


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    X, groups = rng.normal(size=(300, 3)), np.repeat(["a", "b", "c"], [200, 50, 50])
    slope = np.array([1.0, 1.2, 2.0])[np.unique(groups, return_inverse=True)[1]]
    return X, X[:, 0] * slope + 0.1 * rng.normal(size=300), groups


@pytest.fixture(scope="module")
def record(rows):
    X, y, groups = rows
    model = GroupDRONeuron("identity", nu=0.0).fit(X, y, groups=groups)
    return assess(model, X, y, groups)


def figures(record):
    """The risks of a record, whatever type its labels have."""
    found = record.comparison
    sides = [
        np.concatenate([side.values, side.low, side.worst]) for side in (found.plain, found.ours)
    ]
    return np.concatenate([*sides, [found.plain_average, found.ours_average]])


def test_a_record_of_arrays(rows, record):
    X, y, groups = rows
    model = record.model
    expected = compare_by_folds(model, X, y, groups, None)
    assert repr(record.comparison) == repr(expected)
    least_squares = LinearRegression().fit(X, y).predict(X)
    for k, label in enumerate(["a", "b", "c"]):
        mine = groups == label
        assert record.plain_risks[k] == pytest.approx(np.mean((y - least_squares)[mine] ** 2))
        assert record.risks[k] == pytest.approx(np.mean((y - model.predict(X))[mine] ** 2))
    assert str(record.diagnosis) == str(model.diagnose_)
    assert (record.data.rows, record.data.encoded, record.data.path) == (300, 3, None)
    assert record.options["nu"] == 0.0


def test_it_prints_the_answer_and_a_table_of_groups(record):
    lines = str(record).splitlines()
    before, after = record.comparison.plain, record.comparison.ours
    roots = [f"{np.sqrt(side.worst.value):.4g}" for side in (before, after)]
    assert lines[0].startswith(f"Worst group's error: {roots[0]} -> {roots[1]} (")
    assert lines[1] == record.price
    averages = (record.comparison.plain_average, record.comparison.ours_average)
    shown = " -> ".join(f"{np.sqrt(risk):.4g}" for risk in averages)
    assert lines[1].startswith(f"Price: error over all rows {shown} (")
    assert " of 3 groups get" in lines[1]
    assert "on rows held out in 5 folds" in lines[3]
    assert lines[5].split()[:2] == ["group", "rows"]
    assert [line.split()[0] for line in lines[6:]] == ["c", "a", "b"]  # the hardest first
    assert f"{np.sqrt(after['c'].value):.4g}" in lines[6]
    assert record.helps_worst_group


def test_its_page_and_its_folder(record, rows, tmp_path):
    page = record.report(tmp_path / "page.html")
    assert page == tmp_path / "page.html"
    assert "least squares" in page.read_text()
    model, again = load_fit(record.save(tmp_path / "fit"))
    assert str(again) == str(record)
    assert again.report(tmp_path).read_text() == page.read_text()
    np.testing.assert_array_equal(model.predict(rows[0]), record.model.predict(rows[0]))


@pytest.mark.parametrize("name", [name for name in baselines.__all__ if "Classifier" in name])
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_every_baseline_that_classifies(name, rows, tmp_path):
    X, y, groups = rows
    y = np.where(y + np.random.default_rng(0).normal(size=len(y)) > 0, "yes", "no")
    made = getattr(baselines, name)
    options = {"random_state": 0} if "random_state" in made().get_params() else {}
    model = made(max_iter=30, **options).fit(X, y, groups=groups)
    found = assess(model, X, y, groups, folds=2)
    plain = LogisticRegression(C=np.inf, tol=1e-10).fit(X, y)
    own = groups == "a"
    reference = log_loss(y[own], plain.predict_proba(X[own]))
    assert found.plain_risks[0] == pytest.approx(reference, rel=1e-4)
    assert found.classes.held_out
    assert not any("not those of the fit" in note for note in found.data.notes)
    assert found.diagnosis.groups
    assert "this fit" in found.report(tmp_path / "page.html").read_text()


@pytest.mark.parametrize("name", [name for name in baselines.__all__ if "Neuron" in name])
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_every_baseline(name, rows, tmp_path):
    X, y, groups = rows
    made = getattr(baselines, name)
    options = {"random_state": 0} if "random_state" in made().get_params() else {}
    model = made("identity", max_iter=30, **options).fit(X, y, groups=groups)
    found = assess(model, X, y, groups, folds=2)
    least_squares = LinearRegression().fit(X, y)
    left = (y - least_squares.predict(X)) ** 2
    assert found.plain_risks[0] == pytest.approx(left[groups == "a"].mean())
    assert found.comparison.held_out
    assert not any("not those of the fit" in note for note in found.data.notes)
    assert found.diagnosis.groups
    assert "this fit" in found.report(tmp_path / "page.html").read_text()


def test_frames_and_tensors_are_the_arrays(rows, record):
    X, y, groups = rows
    names = ["one", "two", "three"]
    pandas = pd.DataFrame(X, columns=names)
    target, kind = pd.Series(y, name="price"), pd.Series(groups, name="town")
    given = [
        (pandas, target, kind),
        (pl.DataFrame(pandas.to_dict("list")), y, groups),
        (torch.tensor(X), torch.tensor(y), groups),
    ]
    for frame, labels, g in given:
        model = GroupDRONeuron("identity", nu=0.0).fit(frame, labels, groups=g)
        found = assess(model, frame, labels, g, diagnosis=False)
        np.testing.assert_allclose(figures(found), figures(record), rtol=1e-9)
    model = GroupDRONeuron("identity", nu=0.0).fit(pandas, target, groups=kind)
    found = assess(model, pandas, target, kind, folds=None)
    assert found.data.features == names
    assert (found.data.target, found.data.group) == ("price", ["town"])
    assert found.comparison is None
    assert "by group, in units of price, on the rows of the fit" in str(found)


def test_sources_are_compared_on_the_rows_of_the_fit(rows, tmp_path):
    X, y, groups = rows
    source = Chunks([(X[i : i + 70], y[i : i + 70], groups[i : i + 70]) for i in range(0, 300, 70)])
    for model in (GroupDRONeuron("identity", nu=0.0), baselines.TiltedNeuron("identity")):
        model.fit(source)
        again = load(model.save(tmp_path))  # which keeps no sample of its rows
        for fitted in (model, again):
            found = assess(fitted, source)
            assert not found.comparison.held_out
            np.testing.assert_allclose(found.comparison.ours.values, model.group_risks_, rtol=1e-6)
            left = (y - model.predict(X))[groups == "b"]
            np.testing.assert_allclose(found.residuals.ours[1][2], np.median(left))
            assert found.data.rows == 300
            assert found.diagnosis["b"].rows == 50


def test_a_cross_validated_model_brings_its_own_risks(rows):
    X, y, groups = rows
    model = GroupDRONeuronCV("identity", nus=[0.0, 1.0], cv=3).fit(X, y, groups=groups)
    found = assess(model, X, y, groups)
    assert found.comparison.ours is model.intervals_
    assert found.comparison.plain is model.plain_intervals_
    clipped = GroupDRONeuron("identity", truncate=0.5).fit(X, y, groups=groups)
    assert assess(clipped, X, y, groups, folds=None).risks.max() > clipped.group_risks_.max()


def test_intervals_of_a_cross_validated_model_keep_its_level(rows):
    X, y, groups = rows
    model = GroupDRONeuronCV("identity", nus=[0.0, 1.0], cv=3, level=0.9).fit(X, y, groups=groups)
    found = assess(model, X, y, groups, diagnosis=False)
    assert found.comparison.ours.level == 0.9
    assert not found.data.notes
    with pytest.raises(ValueError, match=r"level must be 0\.9.*got 0\.5.*CV\(level=0\.5\)"):
        assess(model, X, y, groups, level=0.5, diagnosis=False)
    (note,) = assess(model, X, y, groups, folds=7, diagnosis=False).data.notes
    assert "folds=7 was not used" in note
    plain = GroupDRONeuron("identity").fit(X, y, groups=groups)
    assert assess(plain, X, y, groups, level=0.5, diagnosis=False).comparison.ours.level == 0.5


def test_risks_are_those_of_the_rows_given(rows):
    X, y, groups = rows
    weights = np.random.default_rng(1).uniform(0.2, 3.0, len(y))
    model = GroupDRONeuron("identity", nu=0.0).fit(X, y, groups=groups, sample_weight=weights)
    bare = {"folds": None, "diagnosis": False}
    same = assess(model, X, y, groups, weights, **bare)
    np.testing.assert_allclose(same.risks, model.group_risks_, rtol=1e-9)
    assert not same.data.notes

    def in_chunks(X, *rest):
        return [Chunks([(X, y, groups, *rest)])]

    for given in ([X + 5, y, groups, weights], in_chunks(X + 5, weights)):
        found = assess(model, *given, **bare)
        left = (y - model.predict(X + 5)) ** 2
        for k, label in enumerate("abc"):
            mine = groups == label
            assert found.risks[k] == pytest.approx(np.average(left[mine], weights=weights[mine]))
        assert "these rows are not those of the fit" in found.data.notes[0]
    for given in ([X, y, groups], in_chunks(X)):  # without the weights
        found = assess(model, *given, **bare)
        left = (y - model.predict(X)) ** 2
        assert found.risks[2] == pytest.approx(left[groups == "c"].mean())
        assert "or sample_weight differs" in found.data.notes[0]
    for labels in (X[:, 0], X[:, 0] + 1e6):  # the risks are rounding errors
        exact = GroupDRONeuron("identity").fit(X, labels, groups=groups)
        assert not assess(exact, X, labels, groups, **bare).data.notes


def test_pipelines_and_tables(rows, tmp_path):
    X, y, groups = rows
    scaled = make_pipeline(StandardScaler(), GroupDRONeuron("identity", nu=0.0))
    scaled.fit(X, y, groupdroneuron__groups=groups)
    found = assess(scaled, X, y, groups, folds=3)
    assert found.data.features == ["x0", "x1", "x2"]
    assert found.neuron is scaled[-1]
    town = np.array(["A", "B"])[(X[:, 1] > 0).astype(int)]
    frame = pd.DataFrame({"size": X[:, 0], "town": town, "price": y, "region": groups})
    frame.to_csv(tmp_path / "data.csv", index=False)
    table = open_table(tmp_path / "data.csv")
    learned = learn_layout(table, target="price", group="region")
    made = fit_table(GroupDRONeuron("identity", nu=0.0), table, learned)
    assert isinstance(made.model[0], TableEncoder)
    for given in (table, frame):  # the pipeline knows the roles of its columns
        again = assess(made.model, given)
        np.testing.assert_allclose(figures(again), figures(made), rtol=1e-9)
        assert again.data.target == "price"
    assert again.data.path is None
    apart = assess(made.model, frame, frame["price"], frame["region"])
    np.testing.assert_allclose(figures(apart), figures(made), rtol=1e-9)


def test_what_cannot_be_assessed(rows):
    X, y, groups = rows
    model = GroupDRONeuron("identity").fit(X, y, groups=groups)
    with pytest.raises(ValueError, match=r"those of the rows that the model.*absent: \['b', 'c'\]"):
        assess(model, X[:100], y[:100], groups[:100])
    with pytest.raises(TypeError, match=r"neuron of counterpoise.*LinearRegression"):
        assess(LinearRegression().fit(X, y), X, y)
    with pytest.raises(ValueError, match="y must hold the labels"):
        assess(model, X)
    with pytest.raises(ValueError, match="folds must be a whole number >= 2"):
        assess(model, X, y, groups, folds=1)
    source = Chunks([(X, y, groups)])
    for name, values in (("y", y), ("groups", groups), ("sample_weight", np.ones(300))):
        with pytest.raises(ValueError, match=f"{name} was given beside a Chunks"):
            assess(model, source, **{name: values})
    with pytest.raises(ValueError, match=r"those of the rows.*new: \['d'\], absent: \['c'\]"):
        assess(model, Chunks([(X, y, np.where(groups == "c", "d", groups))]))
    alone = GroupDRONeuron("identity").fit(X[:4], y[:4], groups=[1, 2, 3, 4])
    found = assess(alone, X[:4], y[:4], [1, 2, 3, 4], diagnosis=False)
    assert found.comparison is None
    assert "no group has two rows" in found.data.notes[0]


def test_fits_that_did_not_converge_are_noted(rows):
    X, y, groups = rows
    model = GroupDRONeuron("relu", max_iter=1, polish=False)
    with pytest.warns(match="."):
        model.fit(X, y, groups=groups)
    assert not model.converged_
    notes = assess(model, X, y, groups, diagnosis=False).data.notes
    assert any("fits to folds did not converge" in note for note in notes)


def test_fits_of_the_diagnosis_that_did_not_converge_are_noted(rows, monkeypatch):
    X, y, groups = rows
    model = GroupDRONeuron("identity").fit(X, y, groups=groups)
    known = model.diagnose_

    def short(names):
        warnings.warn("stopped early", ConvergenceWarning, stacklevel=2)
        return known

    monkeypatch.setattr(model, "diagnosis", short)
    notes = assess(model, X, y, groups, folds=None).data.notes
    assert notes == ["a fit of the diagnosis did not converge: stopped early"]
