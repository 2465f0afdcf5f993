"""``counterpoise compare``: what a sceptic would try stands in the same table."""

import json
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.linear_model import LinearRegression

from counterpoise.assessment.classes import compare_classifiers
from counterpoise.assessment.comparison import cross_predict
from counterpoise.assessment.metrics import group_risks
from counterpoise.baselines import Balanced, PerGroup, WithGroup
from counterpoise.cli.compare import FOR_CLASSES, FOR_NUMBERS
from counterpoise.cli.main import main


def table(n=600, seed=0):
    """Prices whose level and slope differ by region."""
    rng = np.random.default_rng(seed)
    codes = rng.choice(3, size=n, p=[0.6, 0.25, 0.15])
    size, age = rng.normal(size=n), rng.normal(size=n)
    price = 5000 + 1000 * np.array([1, 2, -2])[codes] * size + 3000 * codes - 300 * age
    return pd.DataFrame(
        {
            "region": np.array(["east", "north", "west"])[codes],
            "city": rng.choice(["large", "small"], size=n),
            "size": size,
            "age": age,
            "price": price + 200 * rng.normal(size=n),
        }
    )


def classes(n=600):
    columns = table(n)
    dear = columns["price"] > columns.groupby("region")["price"].transform("median")
    return columns.assign(dear=np.where(dear, "yes", "no")).drop(columns="price")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    table().to_csv("prices.csv", index=False)
    classes().to_csv("dear.csv", index=False)
    return tmp_path


PRICES = ("compare", "prices.csv", "-y", "price", "-g", "region", "--features", "size,age")
DEAR = ("compare", "dear.csv", "-y", "dear", "-g", "region", "--features", "size,age")


def run(capsys, *args, code=0):
    ended = main([str(word) for word in args])
    printed = capsys.readouterr()
    assert ended == code, printed.err
    return printed


def chosen(*names):
    return [word for name in names for word in ("-m", name)]


def lines_of(text):
    """The cells of the printed table, by method."""
    rows = text[text.index("\nmethod ") + 1 :].split("\n\n")[0].splitlines()
    return {row.split()[0].rstrip("*"): row.split() for row in rows[1:]}


def test_numbers_beside_those_of_scikit_learn(folder, capsys):
    """Every figure is that of the same estimators outside the command."""
    names = ("least-squares", "boosting", "least-squares+group", "per-group", "boosting+group")
    found = json.loads(run(capsys, *PRICES, *chosen(*names), "--folds", "3", "--json").out)
    columns = table()
    X, y, groups = columns[["size", "age"]].to_numpy(), columns["price"].to_numpy(), columns.region
    models = {
        "least-squares": LinearRegression(),
        "boosting": HistGradientBoostingRegressor(random_state=0),
        "least-squares+group": WithGroup(LinearRegression()),
        "per-group": PerGroup(LinearRegression()),
        "boosting+group": WithGroup(HistGradientBoostingRegressor(random_state=0)),
    }
    made = cross_predict(models, X, y, np.asarray(groups), folds=3)
    assert {row["method"] for row in found} == set(models)
    for row in found:
        risks = group_risks(y, made[row["method"]], groups=groups)
        for label, risk in risks.items():
            assert row["groups"][label]["value"] == pytest.approx(risk, rel=1e-5)
            rmse = row["rmse"]["groups"][label]
            assert rmse["value"] == pytest.approx(risk**0.5, rel=1e-5)
            assert rmse["low"] < rmse["value"] < rmse["high"]
        assert row["worst"]["value"] == pytest.approx(max(risks.values()), rel=1e-5)
        assert row["rmse"]["worst"]["value"] == pytest.approx(row["worst"]["value"] ** 0.5)
        assert row["rmse"]["average"] == pytest.approx(row["average"] ** 0.5)
        assert row["uses_group"] == (row["method"] not in ("least-squares", "boosting"))
    by_name = {row["method"]: row["rmse"]["worst"]["value"] for row in found}
    # The groups differ in their slopes, and 200 is the noise.
    assert by_name["per-group"] < 230 < by_name["least-squares+group"] < by_name["least-squares"]


def test_the_best_with_and_without_the_group_and_errors_in_units(folder, capsys):
    names = ("least-squares", "equal-weights", "per-group", "least-squares+group")
    args = (*PRICES, *chosen(*names), "--folds", "3", "--out", "all.json")
    text = run(capsys, *args).out
    rows = json.loads(Path("all.json").read_text())
    first, second, *_ = text.splitlines()
    by_name = {row["method"]: row["rmse"] for row in rows}
    plain = min(names[:2], key=lambda name: by_name[name]["worst"]["value"])
    assert first.startswith(f"Best on the worst group: {plain}, error ")
    assert second.startswith("With the group as input: per-group, error ")
    assert f"; all rows: {by_name[plain]['average']:,.0f}." in first
    assert "Root mean squared error in units of price, on rows held out in 3 folds" in text
    head = next(line for line in text.splitlines() if line.startswith("method "))
    assert re.split(r" {2,}", head) == [
        "method", "uses group", "worst group's error", "95% interval", "worst group", "all rows",
        "time",
    ]  # fmt: skip
    shown = lines_of(text)
    assert [shown[name][1] for name in names] == ["no", "no", "yes", "yes"]
    worst = by_name["least-squares"]["worst"]
    assert worst["value"] > 1000
    assert shown["least-squares"][2] == f"{worst['value']:,.0f}"  # thousands are separated
    assert shown["least-squares"][3:6] == [f"{worst['low']:,.0f}", "..", f"{worst['high']:,.0f}"]
    assert list(shown) == [row["method"] for row in rows]
    only = run(capsys, *PRICES, *chosen("per-group"), "--folds", "3").out
    assert only.startswith("With the group as input: per-group, error ")


def test_equal_weights_weigh_groups_alike(folder, capsys):
    found = json.loads(run(capsys, *PRICES, *chosen("equal-weights"), "--json").out)[0]
    columns = table()
    X, y, groups = columns[["size", "age"]].to_numpy(), columns["price"].to_numpy(), columns.region
    made = cross_predict({"m": Balanced(LinearRegression())}, X, y, np.asarray(groups))["m"]
    for label, risk in group_risks(y, made, groups=groups).items():
        assert found["groups"][label]["value"] == pytest.approx(risk, rel=1e-5)


def test_classes_beside_those_of_scikit_learn(folder, capsys):
    names = ("boosting", "boosting-balanced", "boosting+group", "logistic", "logistic+group",
             "per-group")  # fmt: skip
    args = (*DEAR, *chosen(*names), "--folds", "3")
    found = {row["method"]: row for row in json.loads(run(capsys, *args, "--json").out)}
    columns = classes()
    boosting = HistGradientBoostingClassifier(random_state=0)
    models = {
        "boosting": boosting,
        "boosting-balanced": Balanced(boosting),
        "boosting+group": WithGroup(boosting),
    }
    X, groups = columns[["size", "age"]].to_numpy(), np.asarray(columns.region)
    made = compare_classifiers(models, X, np.asarray(columns.dear), groups, folds=3)
    for name, scores in made.scores.items():
        own = found[name]
        assert own["accuracy"]["worst"]["value"] == pytest.approx(1 - scores.errors.worst.value)
        assert own["log_loss"]["average"] == pytest.approx(scores.average_log_loss)
    assert {row["method"]: row["uses_group"] for row in found.values()} == {
        name: "group" in name for name in names
    }
    # In the west, a larger size is cheaper.
    right = {name: row["accuracy"]["worst"]["value"] for name, row in found.items()}
    assert right["per-group"] > 0.85 > 0.5 > right["logistic"]
    text = run(capsys, *args).out
    first, second, *_ = text.splitlines()
    for line, lead, some in (
        (first, "Best on the worst group", ("boosting", "boosting-balanced", "logistic")),
        (second, "With the group as input", ("boosting+group", "logistic+group", "per-group")),
    ):
        best = max(some, key=right.__getitem__)
        assert line.startswith(f"{lead}: {best}, accuracy {100 * right[best]:.1f}%; all rows: ")
    assert [lines_of(text)[name][1] for name in names] == ["no", "no", "yes", "no", "yes", "yes"]


@pytest.mark.slow
def test_ours_with_the_group_known(folder, capsys):
    names = ("ours-cv", "ours-cv+group")
    for args, better in ((PRICES, 0.5), (DEAR, None)):
        found = json.loads(run(capsys, *args, *chosen(*names), "--folds", "3", "--json").out)
        first, second = (next(row for row in found if row["method"] == name) for name in names)
        assert [first["uses_group"], second["uses_group"]] == [False, True]
        if better:
            assert second["worst"]["value"] < better * first["worst"]["value"]
        else:
            sides = [row["accuracy"]["worst"]["value"] for row in (first, second)]
            assert sides[1] > sides[0] + 0.2


@pytest.mark.parametrize("name", ["least-squares+group", "per-group", "boosting+group"])
@pytest.mark.parametrize(
    ("options", "told"),
    [
        (
            ("-g", "region,city", "--overlapping"),
            "needs one group per row; leave out --overlapping",
        ),
        ([], "needs several groups; name a column with --group"),
    ],
)
def test_methods_that_need_one_group_per_row_are_refused(name, options, told, folder, capsys):
    args = ("compare", "prices.csv", "-y", "price", "--features", "size,age", *options)
    refused = " ".join(run(capsys, *args, "-m", name, code=2).err.split())
    assert f"--method {name} cannot be compared here: predicting with the group {told}" in refused


def test_methods_that_would_be_told_the_class_are_refused(folder, capsys):
    for name in ("logistic+group", "per-group", "boosting+group", "ours-cv+group"):
        refused = " ".join(run(capsys, *DEAR, "--with-label", "-m", name, code=2).err.split())
        assert "--with-label makes the class part of the group; leave it out" in refused
    classes().assign(region=lambda own: own["dear"] + "!").to_csv("dear.csv", index=False)
    refused = " ".join(run(capsys, *DEAR, "-m", "per-group", code=2).err.split())
    assert "every group has rows of one class only" in refused


def test_overlapping_groups_leave_out_what_needs_one(folder, capsys, monkeypatch):
    """By default; balanced boosting has a meaning for groups that overlap, and stays."""
    from counterpoise.cli import compare as module

    quick = ("logistic", "boosting", "boosting-balanced", "logistic+group", "per-group")
    made = module._for_classes
    monkeypatch.setattr(
        module, "_for_classes", lambda *args: {name: made(*args)[name] for name in quick}
    )
    args = ("compare", "dear.csv", "-y", "dear", "-g", "region,city", "--features", "size,age")
    text = run(capsys, *args, "--overlapping", "--folds", "3").out
    assert set(lines_of(text)) == set(quick[:3])
    told = "Left out: logistic+group, per-group, because predicting with the group needs one group"
    assert told in " ".join(text.split())
    assert "uses group" not in text


def test_sparse_rows_leave_out_boosting(folder, capsys, monkeypatch):
    from counterpoise.cli import compare as module

    monkeypatch.setattr("counterpoise.tabular.layout.DENSE_BYTES", 0)
    monkeypatch.setattr("counterpoise.tabular.layout.SPARSE_SHARE", 2.0)
    quick = ("least-squares", "boosting", "least-squares+group", "per-group", "boosting+group")
    made = module._for_numbers
    monkeypatch.setattr(
        module, "_for_numbers", lambda *args: {name: made(*args)[name] for name in quick}
    )
    text = run(capsys, *PRICES, "--folds", "3").out
    assert set(lines_of(text)) == {"least-squares", "least-squares+group", "per-group"}
    assert "Left out: boosting, boosting+group, because boosting needs dense features" in " ".join(
        text.split()
    )
    refused = " ".join(run(capsys, *PRICES, "-m", "boosting", code=2).err.split())
    assert "boosting needs dense features" in refused
    assert "--drop" in refused


def test_a_rare_class_does_not_stop_boosting(folder, capsys):
    """Beyond 10,000 rows, boosting sets rows of every class aside, and of one row it cannot."""
    columns = classes(13_000)
    columns.loc[[5, 9], "dear"] = "perhaps"
    columns.to_csv("dear.csv", index=False)
    found = json.loads(run(capsys, *DEAR, "-m", "boosting", "--folds", "2", "--json").out)
    assert found[0]["accuracy"]["average"] > 0.5
    assert found[0]["classes"] == ["no", "perhaps", "yes"]


def test_help_lists_every_method_in_one_column(capsys):
    text = run(capsys, "compare", "--help").out
    body = text[: text.index("Options:")]
    for name in {*FOR_NUMBERS, *FOR_CLASSES}:
        own = [line for line in body.splitlines() if line.split()[:1] == [name]]
        assert len(own) == (name in FOR_NUMBERS) + (name in FOR_CLASSES), name
        for line in own:
            assert line.startswith(f"  {name:<21}"), line
            assert line[23] != " "
            assert len(line) <= 80
    assert "--method METHOD" in text
    refused = run(capsys, "compare", "t.csv", "-y", "y", "-m", "nothing", code=2).err
    assert "'boosting+group'" in refused


def test_other_losses_have_their_own_headings(folder, capsys):
    args = (*PRICES, "--loss", "huber", "--folds", "3")
    text = run(capsys, *args).out
    assert "worst group's Huber loss" in text
    assert text.startswith("Best on the worst group: ")
    assert "Huber loss, on rows held out in 3 folds" in text
    assert all("rmse" not in row for row in json.loads(run(capsys, *args, "--json").out))
    refused = " ".join(run(capsys, *args, "-m", "boosting", code=2).err.split())
    assert "--method boosting does not fit numbers with this loss; use average, ours" in refused
