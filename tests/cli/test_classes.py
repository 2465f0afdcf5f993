"""Commands over tables whose target names classes, as a user calls them."""

import io
import json
from pathlib import Path

import numpy as np
import onnxruntime
import pandas as pd
import pyarrow as pa
import pyarrow.parquet
import pytest
from sklearn.linear_model import LogisticRegression

from counterpoise import GroupDROClassifier, GroupDROClassifierCV, GroupDRORegressor, load
from counterpoise.cli.main import main
from counterpoise.rows.memberships import side_by_side
from counterpoise.storage.models import load_fit


def table(n=900, seed=0, classes=("no", "yes")):
    """A spurious feature: it tells the class in most rows, and misleads in the others."""
    rng = np.random.default_rng(seed)
    y = rng.integers(len(classes), size=n)
    hair = np.where(rng.random(n) < 0.85, y % 2, 1 - y % 2)
    size = y + rng.normal(size=n)
    return {
        "hair": np.array(["dark", "fair"])[hair],
        "region": rng.choice(["north", "south"], size=n, p=[0.8, 0.2]),
        "shade": hair + 0.5 * rng.normal(size=n),
        "size": size,
        "y": np.array(classes)[y],
    }


@pytest.fixture
def data(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    pd.DataFrame(table()).to_csv("data.csv", index=False)
    return tmp_path / "data.csv"


def run(capsys, *args, code=0):
    ended = main([str(word) for word in args])
    printed = capsys.readouterr()
    assert ended == code, printed.err
    return printed


def fit_args(*more):
    return ["fit", "data.csv", "-y", "y", "-g", "hair", "--features", "shade,size", *more]


def encoded(columns):
    return np.column_stack([columns["shade"], columns["size"]])


def crossed(columns):
    pairs = zip(columns["hair"], columns["y"], strict=True)
    return np.array([f"{hair} | {label}" for hair, label in pairs])


def test_fit_stores_what_python_would_fit(data, capsys):
    shown = run(capsys, *fit_args("--with-label", "--out", "fit", "--nu", "0.05"))
    columns = table()
    X, groups = encoded(columns), crossed(columns)
    expected = GroupDROClassifier(nu=0.05).fit(X, columns["y"], groups=groups)
    model, record = load_fit("fit")
    np.testing.assert_allclose(model[-1].coef_, expected.coef_, rtol=1e-6)
    assert model[-1].classes_.tolist() == ["no", "yes"]
    assert model[-1].groups_.tolist() == ["dark | no", "dark | yes", "fair | no", "fair | yes"]
    assert model[0].layout_.with_label
    assert record.data.group == ["hair", "y"]
    plain, ours = record.classes.scores.values()
    assert ours.accuracies.worst.value > plain.accuracies.worst.value + 0.1
    lines = shown.out.splitlines()
    before, after = (f"{100 * s.accuracies.worst.value:.1f}%" for s in (plain, ours))
    assert lines[0] == f"Worst group's accuracy: {before} -> {after}."
    assert lines[1].startswith("Price: accuracy over all rows ")
    words = " ".join(lines)
    assert "logistic regression -> this fit:" in words
    assert "hair=dark, y=no" in words
    assert "Proved: no other coefficients lower the objective of this fit by more than" in words
    assert len(lines) <= 24  # one screen
    # beside scikit-learn, whose accuracies the plain average should have
    reference = LogisticRegression(C=np.inf).fit(X, columns["y"])
    right = np.mean(reference.predict(X) == columns["y"])
    assert 1 - plain.average_error == pytest.approx(right, abs=0.01)


def test_json_and_show_say_the_same(data, capsys):
    found = json.loads(run(capsys, *fit_args("--out", "fit", "--json")).out)
    model, record = load_fit("fit")
    classifier = model[-1]
    ours = record.classes.scores["ours"]
    assert found["classes"]["ours"]["accuracy"]["average"] == pytest.approx(1 - ours.average_error)
    group = found["classes"]["ours"]["groups"]["dark"]
    assert group["accuracy"]["value"] == pytest.approx(ours.accuracies["dark"].value)
    assert np.sum(group["confusion"]) == group["rows"]
    assert found["answer"] == record.answer
    shown = json.loads(run(capsys, "show", "fit", "--json").out)
    assert shown["classes"] == ["no", "yes"]
    assert shown["loss"] == "log"
    assert list(shown["coefficients"].values()) == classifier.coef_[0].tolist()
    text = run(capsys, "show", "fit").out
    assert "GroupDROClassifier, loss log, classes ['no', 'yes']" in text
    assert "for yes" in text


@pytest.mark.parametrize(
    ("classes", "kind"),
    [(("no", "yes"), "str"), ((0, 1), "int64"), ((False, True), "bool"), (("a", "b", "c"), "str")],
)
def test_predictions_are_classes_with_probabilities(classes, kind, data, capsys):
    pd.DataFrame(table(classes=classes)).to_csv("data.csv", index=False)
    run(capsys, *fit_args("--bare", "--out", "fit"))
    fresh = table(60, seed=1, classes=classes)
    frame = pd.DataFrame(fresh).drop(columns="y")
    frame.to_csv("new.csv", index=False)
    model = load("fit")
    shown = run(capsys, "predict", "fit", "new.csv", "--proba", "--with", "hair").out
    printed = pd.read_csv(io.StringIO(shown))
    names = [f"P({label})" for label in classes]
    assert list(printed) == ["hair", "prediction", *names]
    assert printed["prediction"].tolist() == model.predict(frame).tolist()
    assert printed["prediction"].dtype == kind
    np.testing.assert_allclose(printed[names], model.predict_proba(frame), rtol=1e-12)
    run(capsys, "predict", "fit", "new.csv", "--out", "out.parquet")
    assert pd.read_parquet("out.parquet")["prediction"].tolist() == model.predict(frame).tolist()
    # the same from the exported graph
    run(capsys, "export", "fit", "model.onnx")
    session = onnxruntime.InferenceSession("model.onnx")
    label, proba = session.run(["label", "probabilities"], {"X": model[0].transform(frame)})
    assert label.tolist() == model.predict(frame).tolist()
    np.testing.assert_allclose(proba, model.predict_proba(frame), rtol=1e-10)


def test_rows_that_miss_a_feature_have_no_class(data, capsys):
    frame = pd.DataFrame(table())
    frame.loc[3, "size"] = np.nan
    frame.loc[5, "y"] = None
    frame.to_csv("data.csv", index=False)
    refused = run(capsys, *fit_args(), code=3).err
    assert "'size' (1), 'y' (1); leave these rows out with --missing drop" in refused
    run(capsys, *fit_args("--missing", "drop", "--bare", "--out", "fit"))
    shown = run(capsys, "predict", "fit", "data.csv", "--proba")
    assert shown.out.splitlines()[4] == ",,"
    assert "1 of 900 rows have a missing feature" in shown.err
    scored = json.loads(run(capsys, "predict", "fit", "data.csv", "--score", "--json").out)
    assert (scored["rows"], scored["left_out"]) == (898, 2)


def test_spreadsheets_do_not_run_classes(data, capsys):
    pd.DataFrame(table(classes=("=1+1", "@yes"))).to_csv("data.csv", index=False)
    run(capsys, *fit_args("--bare", "--out", "fit"))
    shown = run(capsys, "predict", "fit", "data.csv", "--proba", "--spreadsheet-safe").out
    printed = pd.read_csv(io.StringIO(shown))
    assert set(printed["prediction"]) == {"'=1+1", "'@yes"}
    assert list(printed)[1:] == ["P(=1+1)", "P(@yes)"]


def test_scores_are_those_of_the_rows(data, capsys):
    run(capsys, *fit_args("--bare", "--out", "fit"))
    columns, model = table(300, seed=4), load("fit")
    pd.DataFrame(columns).to_csv("other.csv", index=False)
    found = json.loads(run(capsys, "predict", "fit", "other.csv", "--score", "--json").out)
    right = model.predict(columns) == columns["y"]
    assert found["accuracy"]["average"] == pytest.approx(right.mean())
    for hair in ("dark", "fair"):
        own = right[columns["hair"] == hair]
        assert found["groups"][hair]["accuracy"]["value"] == pytest.approx(own.mean())
        assert found["groups"][hair]["rows"] == len(own)
    text = run(capsys, "predict", "fit", "other.csv", "--score").out
    worst = min(right[columns["hair"] == hair].mean() for hair in ("dark", "fair"))
    assert text.startswith(f"Worst group's accuracy: {100 * worst:.1f}%")
    columns["y"] = np.where(columns["y"] == "yes", "maybe", columns["y"])
    pd.DataFrame(columns).to_csv("other.csv", index=False)
    refused = run(capsys, "predict", "fit", "other.csv", "--score", code=3).err
    assert "never saw: 'maybe'" in refused


@pytest.mark.slow
def test_parquet_too_large_for_memory_is_read_in_chunks(data, capsys, monkeypatch):
    pa.parquet.write_table(pa.table(table(3000)), "data.parquet", row_group_size=700)
    args = fit_args("--with-label", "--json", "--out", "whole")
    args[1] = "data.parquet"
    run(capsys, *args)
    monkeypatch.setattr("counterpoise.tabular.fit.fits_in_memory", lambda *_: False)
    args[-1] = "parts"
    parts = json.loads(run(capsys, *args).out)
    assert parts["engine"] == "chunked"
    whole, chunked = load("whole")[-1], load("parts")[-1]
    np.testing.assert_allclose(chunked.coef_, whole.coef_, rtol=1e-4, atol=1e-6)
    assert chunked.classes_.tolist() == ["no", "yes"]
    columns = table(3000)
    right = load("parts").predict(columns) == columns["y"]
    assert parts["classes"]["ours"]["accuracy"]["average"] == pytest.approx(right.mean())
    run(capsys, "report", "parts")
    args[-1] = "chosen"
    chosen = json.loads(run(capsys, *args, "--cv", "--folds", "2").out)
    assert any("chosen on all rows" in note for note in chosen["notes"])


@pytest.mark.slow
def test_cross_validated(data, capsys):
    shown = run(capsys, *fit_args("--with-label", "--cv", "--folds", "3", "--out", "fit"))
    model, record = load_fit("fit")
    assert isinstance(model[-1], GroupDROClassifierCV)
    assert model[-1].verdict_.split(". ")[0] in " ".join(shown.out.split())
    assert record.classes is not None
    assert "each by the fit that the other folds chose" in record.classes.how
    # one number: the log loss of the verdict is that of the record
    worst = record.classes.scores["ours"].log_losses.worst.value
    assert worst == pytest.approx(model[-1].intervals_.worst.value, rel=1e-9)
    assert f"{worst:.4g}" in model[-1].verdict_
    run(capsys, "report", "fit")
    page = Path("fit/report.html").read_text()
    assert "Accuracy by group" in page
    base = ["data.csv", "-y", "y", "-g", "hair", "--features", "shade,size", "--with-label"]
    found = json.loads(run(capsys, "frontier", *base, "--folds", "3", "--json").out)
    best = found["candidates"][found["chosen"]]
    assert best["worst"] <= found["candidates"][0]["worst"]
    asked = run(capsys, "frontier", *base, "--folds", "3", "--scoring", "error").out
    assert "the error of the worst group is" in " ".join(asked.split())


@pytest.mark.slow
def test_compare_and_diagnose(data, capsys):
    base = ["data.csv", "-y", "y", "-g", "hair", "--features", "shade,size", "--with-label"]
    text = run(capsys, "compare", *base, "--folds", "3", "--out", "all.json").out
    rows = json.loads(Path("all.json").read_text())
    worst = [row["accuracy"]["worst"]["value"] for row in rows]
    assert worst == sorted(worst, reverse=True)
    by_name = {row["method"]: row for row in rows}
    assert set(by_name) == {
        "logistic", "balanced", "subsampled", "boosting", "boosting-balanced", "ours", "ours-cv",
        "group-dro-eg", "tilted", "row-cvar", "row-chi2",
    }  # fmt: skip
    assert (
        by_name["ours"]["log_loss"]["worst"]["value"]
        < by_name["logistic"]["log_loss"]["worst"]["value"]
    )
    assert text.startswith(f"Best on the worst group: {rows[0]['method']}, accuracy ")
    assert "With the group as input" not in text
    assert "uses group" not in text
    left_out = "Left out: logistic+group, per-group, boosting+group, ours-cv+group, because "
    assert left_out + "--with-label makes the class part" in " ".join(text.split())
    refused = run(capsys, "compare", *base, "-m", "least-squares", code=2).err
    assert "--method least-squares does not fit classes" in refused
    text = run(capsys, "diagnose", *base).out
    assert text.startswith("Yes, a worst-group fit pays here")
    assert "group is known" not in text  # the group contains the class
    assert "Advice:" in run(capsys, "diagnose", *base, "--details").out
    found = json.loads(run(capsys, "diagnose", *base, "--json").out)
    assert found["classes"] == ["no", "yes"]


def test_the_task_can_be_said(data, capsys):
    frame = pd.DataFrame(table(classes=(1, 2, 3)))
    frame.to_csv("data.csv", index=False)
    noted = run(capsys, *fit_args("--bare", "--out", "numbers")).out
    assert "if they name classes, use --task classify" in " ".join(noted.split())
    assert not hasattr(load("numbers")[-1], "classes_")
    run(capsys, *fit_args("--bare", "--task", "classify", "--out", "classes"))
    assert load("classes")[-1].classes_.tolist() == [1, 2, 3]
    assert load("classes")[-1].coef_.shape == (3, 2)
    assert "for 3" in run(capsys, "show", "classes").out
    frame = pd.DataFrame(table(classes=(0, 1)))
    frame.to_csv("data.csv", index=False)
    for asked in (("--task", "regress"), ("--loss", "squared"), ("--activation", "relu")):
        run(capsys, *fit_args("--bare", *asked, "--out", "numbers"))
        assert not hasattr(load("numbers")[-1], "classes_")
    noted = run(capsys, *fit_args("--bare")).out
    assert "taken for classes; if they are amounts, use --task regress" in " ".join(noted.split())


def test_losses_and_the_ridge(data, capsys):
    run(capsys, *fit_args("--bare", "--loss", "squared_hinge", "--alpha", "0.1", "--out", "fit"))
    model = load("fit")[-1]
    assert (model.loss, model.alpha) == ("squared_hinge", 0.1)
    refused = run(capsys, "predict", "fit", "data.csv", "--proba", code=1).err
    assert "predicts no probabilities; leave out --proba" in refused
    run(capsys, *fit_args("--loss", "squared_hinge", "--out", "fit"))
    assert load_fit("fit")[1].classes.scores["ours"].log_losses is None
    run(capsys, "report", "fit")
    counts = pd.DataFrame(table()).assign(y=np.random.default_rng(0).poisson(3.0, 900))
    counts.to_csv("data.csv", index=False)
    text = run(capsys, *fit_args("--loss", "poisson", "--out", "fit")).out
    assert text.startswith("Worst group's Poisson loss: ")
    assert "Poisson regression" in text
    assert isinstance(load("fit")[-1], GroupDRORegressor)
    run(capsys, "report", "fit")
    assert "Poisson loss" in run(capsys, "show", "fit").out
    run(capsys, *fit_args("--alpha", "1", "--bare", "--out", "fit"))
    assert isinstance(load("fit")[-1], GroupDRORegressor)
    scored = run(capsys, "predict", "fit", "data.csv", "--score").out
    assert scored.startswith("Worst group's error: ")
    only = run(capsys, "compare", *fit_args()[1:], "--loss", "huber", "--json").out
    assert {row["method"] for row in json.loads(only)} == {"average", "ours"}


@pytest.mark.parametrize(
    ("options", "told", "code"),
    [
        (["--task", "regress", "--loss", "log"], "--loss log is for classes", 2),
        (["--task", "classify", "--loss", "huber"], "--loss huber is for numbers", 2),
        (["--task", "classify", "-a", "relu"], "--activation relu is for numbers", 2),
        (["-a", "relu", "--loss", "huber"], "leave out --loss huber or --activation", 2),
        (["-a", "relu", "--alpha", "1"], "leave out --alpha or --activation", 2),
        (["--truncate", "1"], "--truncate is for squared errors, and classes", 2),
        (["--task", "regress"], "use --task classify", 3),
        (["--scoring", "error"], "--scoring is for cross-validation; use --cv", 2),
        (["--alpha", "-1"], "Invalid value for '--alpha'", 2),
    ],
)
def test_options_that_contradict_each_other(options, told, code, data, capsys):
    refused = run(capsys, *fit_args(*options), code=code).err
    assert told in " ".join(refused.split())


def test_a_hinge_wants_two_classes_and_labels_want_classes(data, capsys):
    pd.DataFrame(table(classes=("a", "b", "c"))).to_csv("data.csv", index=False)
    refused = run(capsys, *fit_args("--loss", "squared_hinge"), code=2).err
    assert "is for two classes, and 'y' has 3" in refused
    pd.DataFrame(table()).to_csv("data.csv", index=False)
    told = run(capsys, "fit", "data.csv", "-y", "size", "-g", "hair", "--with-label", code=3).err
    assert "groups can be crossed with classes alone" in told
    assert "--task classify" in told


@pytest.mark.parametrize("engine", ["--in-memory", "--chunked"])
def test_groups_side_by_side(engine, data, capsys):
    columns = table()
    args = ["fit", "data.csv", "-y", "y", "-g", "hair,region", "--features", "shade,size"]
    shown = run(capsys, *args, "--overlapping", engine, "--out", "fit").out
    groups = side_by_side({name: columns[name] for name in ("hair", "region")})
    expected = GroupDROClassifier().fit(encoded(columns), columns["y"], groups=groups)
    model, record = load_fit("fit")
    assert model[-1].groups_.tolist() == groups.labels.tolist()
    np.testing.assert_allclose(model[-1].coef_, expected.coef_, rtol=1e-4, atol=1e-5)
    assert "Groups overlap: 900 of 900 rows belong to several" in " ".join(shown.split())
    assert record.data.overlapping
    assert "side by side" in run(capsys, "show", "fit").out
    run(capsys, "report", "fit")
    scored = json.loads(run(capsys, "predict", "fit", "data.csv", "--score", "--json").out)
    right = model.predict(columns) == columns["y"]
    own = right[columns["region"] == "south"].mean()
    assert scored["groups"]["region=south"]["accuracy"]["value"] == pytest.approx(own)
    refused = run(capsys, "fit", "data.csv", "-y", "y", "--overlapping", code=1).err
    assert (
        "--overlapping makes groups of several columns; name them, as in --group sex,region"
        in refused
    )


@pytest.mark.slow
def test_numbers_of_groups_side_by_side(data, capsys):
    args = ["data.csv", "-y", "size", "-g", "hair", "-g", "region", "--drop", "y", "--overlapping"]
    found = json.loads(run(capsys, "fit", *args, "--out", "fit", "--json").out)
    names = [group["group"] for group in found["groups"]]
    assert names == ["hair=dark", "hair=fair", "region=north", "region=south"]
    run(capsys, "report", "fit")
    run(capsys, "compare", *args, "-m", "least-squares", "-m", "ours")
    run(capsys, "diagnose", *args)
    assert "Worst group's" in run(capsys, "predict", "fit", "data.csv", "--score").out
