"""What columns can be: features, targets, groups and weights, and what is refused."""

from __future__ import annotations

import datetime
from dataclasses import replace
from decimal import Decimal

import pandas as pd
import pyarrow as pa
import pytest
from table_files import csv

from counterpoise.tabular import (
    DataError,
    Feature,
    as_table,
    learn_layout,
    open_table,
    read_rows,
    table,
)  # fmt: skip
from counterpoise.tabular.roles import check_roles


def learn(data, target="y", **options):
    return learn_layout(data, target=target, **options)


# -- what cannot be a feature ----------------------------------------------------------------

DAY = datetime.datetime(2020, 1, 2, 3, 4)


@pytest.mark.parametrize(
    ("values", "told"),
    [
        (
            [DAY.date()] * 2,
            r"'c' holds dates: use its year, month and weekday with dates=\['c'\], derive columns",
        ),
        (
            [DAY] * 2,
            r"'c' holds dates with times: use .*dates=\['c'\].*hour.*days since.*drop=\['c'\]",
        ),
        ([DAY.time()] * 2, "'c' holds times of day: derive numbers from it, such as hours"),
        ([DAY - DAY] * 2, "'c' holds durations"),
        ([None] * 2, r"'c' holds no value: leave it out with drop=\['c'\]"),
        (pa.array([None] * 2, pa.float64()), r"'c' has no values: leave it out with drop=\['c'\]"),
        (pa.array([None] * 2, pa.string()), "'c' has no values"),
        (
            [[1], [2]],
            r"'c' holds list.*: split it into columns of numbers or text, or .*drop=\['c'\]",
        ),
        ([{"a": 1}] * 2, "'c' holds struct"),
        ([b"a", b"b"], "'c' holds binary"),
    ],
)
@pytest.mark.parametrize("missing", ["refuse", "drop", "impute"])
def test_columns_that_cannot_be_features_are_named(values, told, missing):
    with pytest.raises(DataError, match=told):
        learn({"c": values, "x": [1, 2], "y": [1, 2]}, missing=missing)
    assert learn({"c": values, "x": [1, 2], "y": [1, 2]}, drop=["c"]).layout.names == ("x",)


def test_all_columns_that_cannot_be_features_are_named_at_once():
    data = {"when": [DAY] * 2, "x": [1, 2], "what": [[1], [2]], "y": [1, 2]}
    with pytest.raises(DataError, match=r"(?s)'when'.*'what'"):
        learn(data)


def test_dates_in_csv_are_refused_with_the_hint(tmp_path):
    path = csv(tmp_path, "day,y\n2020-01-01,1\n2020-01-02,2\n")
    with pytest.raises(
        DataError, match=r"'day' holds dates: use .*dates=\['day'\], derive .* drop=\['day'\]"
    ):
        learn(open_table(path))


def test_names_in_hints_are_written_for_a_shell():
    with pytest.raises(DataError, match=r"drop=\['the day'\]"):
        learn({"the day": [DAY] * 2, "x": [1, 2], "y": [1, 2]})


@pytest.mark.parametrize(
    ("values", "told"),
    [
        (
            ["01/02/2020", "13/2/21"],
            "'c' holds dates, such as '01/02/2020': write them as 2020-12-31 and .*dates=",
        ),
        (["2020/1/2 10:30", "2020/1/3"], r"'c' holds dates.*drop=\['c'\], or use categorical="),
        (["2020-01-02T10:30:00Z", "2020-01-03"], r"'c' holds dates, .*Z': use .*dates=\['c'\]"),
        (["01 Jan 2020", "2-February-21"], "'c' holds dates, such as '01 Jan 2020'"),
        (["Jan 1, 2020", "Sept. 2nd, 2021"], "'c' holds dates, such as 'Jan 1, 2020'"),
        (["Wed, 01 Jan 2020 10:30", "Friday 3 Jan 2020"], "'c' holds dates"),
        (["Jan-20", "May '21"], "'c' holds dates, such as 'Jan-20'"),
        (["1-Jan", "2-Feb"], "'c' holds dates, such as '1-Jan'"),
        (["2020-Jan-01", "2020 Feb"], "'c' holds dates, such as '2020-Jan-01'"),
        (["2020-01", "2021-12"], "'c' holds dates, such as '2020-01'"),
        (["1/2020", "12/2021"], "'c' holds dates, such as '1/2020'"),
        (
            ["2020-01", "2021-12", "?"],
            r"'c' holds dates, such as '2020-01', and text, such as '\?'",
        ),
        (
            ["1,5", "2"],
            r"'c' holds numbers such as '1,5': write 1234.5.*decimal=','.*drop=\['c'\]",
        ),
        (["1,000", "12,345.5"], "'c' holds numbers such as '1,000'"),
        (["1.234,50", "2,5"], r"'c' holds numbers such as '1.234,50'.*decimal=','"),
        (["1.234.567", "1"], "'c' holds numbers such as '1.234.567'"),
        (["1 234", "1'234.5"], "'c' holds numbers such as '1 234'"),
        (["1\u202f234,5", "12,34,567"], "'c' holds numbers such as '1"),
        (["12 %", "3.5%"], "'c' holds numbers such as '12 %'.*categorical="),
        (["-$1,200", "€ 3", "4 £"], "'c' holds numbers such as '-[$]1,200'"),
        (["1,5", "2,5", "-"], "'c' holds numbers such as '1,5', and text, such as '-': .*empty"),
        (
            ["1", "2"],
            r"'c' holds numbers as text, such as '1': save .*drop=\['c'\], or .*categorical=",
        ),
        (["1", "2", "?"], r"'c' has numbers and text, such as '\?': leave these cells empty, "),
        (["-1", "2.5", "-", "n.a."], "'c' has numbers and text, such as '-', 'n.a.': leave"),
        (["1", "2", " "], "'c' has numbers and text, such as ' ': leave"),
        (["1", "2", "3", "4", "5kg"], ""),
        (["1", "2", "3", "4", "5", "6kg"], "'c' has numbers and text, such as '6kg': leave these"),
        ([*"12345678", "x", "y"], "'c' has numbers and text, such as 'x', 'y': leave"),
        ([*"12345678", "x", "y", "z"], ""),
        (
            [f"2020-01-0{i}" for i in range(1, 7)] + ["soon"],
            "'c' holds dates.*'soon': leave .*empty.*dates=",
        ),
    ],
)
def test_other_spellings_of_dates_and_numbers_are_found(values, told):
    n = len(values)
    data = {"c": values, "x": list(range(n)), "y": list(range(n))}
    if told:
        with pytest.raises(DataError, match=told):
            learn(data)
    else:
        assert learn(data).layout.width == n
    assert learn(data, categorical=["c"]).layout.width == n
    assert learn(data, group="c", features=["c", "x"]).layout.width == n, "groups are names"
    named = {**data, "c": pa.array(values).dictionary_encode()}
    assert learn(named).layout.width == n, "as the table says"


@pytest.mark.parametrize(
    "values",
    [
        ["4-6 years", "7-9 years", "10+ years"], ["A1", "B2", "C3"], ["1st", "2nd", "3rd"],
        ["5+", "10+", "20+"], ["0-9", "10-19", "20-29", "30-39"], ["Q1", "Q2", "Q3"],
        ["0", "1", "2", "3", "4", "5+"], ["0", "1", "2", "3", "4", "5 or more"],
        ["<10", "10", "20", "30", "40", "50", ">50"], ["1.2.3", "2020"], ["Jan", "Feb", "May"],
        ["2010-11", "2011-12", "2012-13", "2013-14"], ["<=50K", ">50K"], ["1,2,3", "1,2"],
        ["1:1", "2:1"], ["$", "$$", "$$$"], ["1", "a"], ["1", "?"], ["-", "+"], ["v1.0", "v1.1"],
        ["1_0", "2_0"], ["nan", "inf"], ["12-345", "23-456"], ["march", "may", "10 may flowers"],
        ["1990s", "2000s"], ["Mo-Fr", "Sat"], ["", " "],
    ],
)  # fmt: skip
def test_names_that_have_digits_are_categories(values):
    n = len(values)
    data = {"c": values, "x": list(range(n)), "y": list(range(n))}
    assert learn(data).layout.width == n


def test_missing_marks_in_csv_are_told(tmp_path):
    path = csv(tmp_path, "x,z,y\n1,5,1\n2,?,2\n3,7,3\n-,8,4\n")
    with pytest.raises(DataError, match=r"(?s)'x' has .*such as '-': .*'z' has .*such as '\?'"):
        learn(open_table(path))


def test_days_written_as_integers_are_noted():
    days = [20200131, 20200229, 20191231, 20210101] * 10
    x = [k * 7 % 40 for k in range(40)]  # neither in order nor the target
    data = {"day": days, "code": [d + 40 for d in days], "x": x, "y": list(range(40))}
    notes = learn(data).notes
    assert len(notes) == 1
    assert "'day' has numbers such as 20200131, which look like dates" in notes[0]
    assert "with dates=['day'], or derive columns" in notes[0]
    some = {**data, "day": [*days[:-1], 0]}
    assert any("look like dates" in note for note in learn(some).notes), "nearly all"
    for wrong in (20200230, 20210229, 20200431, 20191301, 20190001, 20200100, 17991231):
        assert not learn({**data, "day": [*days[:30], *[wrong] * 10]}).notes
    half = {**data, "day": [*days[:20], *range(20)]}
    assert not learn(half).notes
    assert not learn({**data, "day": [d + 0.5 for d in days]}).notes


def test_decimal_commas_can_be_read(tmp_path):
    path = csv(tmp_path, "x;g;y\n1,5;a;2,5\n-2,25;b;3\n")
    with pytest.raises(DataError, match=r"'y' holds text, such as '2,5'.*decimal=','"):
        learn(open_table(path))
    table = open_table(path, decimal=",")
    got = read_rows(table, learn(table, group="g").layout)
    assert (got.X.tolist(), got.y.tolist()) == ([[1.5], [-2.25]], [2.5, 3.0])
    with pytest.raises(ValueError, match="decimal must be one character; got ''"):
        open_table(path, decimal="")


def test_too_many_levels_are_refused():
    data = {"id": [f"row {i}" for i in range(101)], "x": range(101), "y": range(101)}
    with pytest.raises(
        DataError, match=r"'id' has more than 100 .*drop=\['id'\], .*max_levels=1000"
    ):
        learn({k: list(v) for k, v in data.items()})
    found = learn({k: list(v) for k, v in data.items()}, max_levels=101)
    assert found.layout.width == 101
    mixed = {"n": [str(i) for i in range(99)] + ["?", "7.5"], "x": list(range(101)),
             "y": list(range(101))}  # fmt: skip
    with pytest.raises(DataError, match=r"'n' has numbers and text, such as '\?': leave these"):
        learn(mixed, max_levels=10)
    text = {**mixed, "n": [str(i / 4) for i in range(101)]}
    with pytest.raises(DataError, match=r"'n' holds numbers as text, such as '0.0': save"):
        learn(text)


def test_features_that_would_be_called_alike_are_refused():
    with pytest.raises(DataError, match=r"both be called 'a=v'.*rename"):
        learn({"a": ["u", "u", "v"], "a=v": [1, 2, 3], "y": [1, 2, 3]})


def test_at_least_one_feature_is_needed():
    with pytest.raises(DataError, match=r"no feature column left beside 'y'.*features"):
        learn({"y": [1, 2]})
    with pytest.raises(DataError, match=r"no feature differs between rows.*features"):
        learn({"t": ["a", "a"], "y": [1, 2]})


def test_what_a_reader_should_know_is_noted():
    data = {"one": [2.5, 2.5], "t": ["a", "a"], "x": [1, 2], "g": ["u", "v"], "y": [1, 2]}
    notes = learn(data, group="g").notes
    assert "column 'one' is 2.5 in every row and has no predictive value" in notes
    assert "column 't' is 'a' in every row and has no predictive value" in notes
    assert any("2 groups in 2 rows" in note for note in notes)
    assert not learn({"x": [1, 2, 3, 4], "g": list("uuvv"), "y": [1, 2, 3, 4]}, group="g").notes


def test_a_column_without_a_name_is_left_out(tmp_path):
    frame = pd.DataFrame({"x": [1.0, 2.0], "y": [1, 2]})
    frame.to_csv(tmp_path / "a.csv")
    found = learn(open_table(tmp_path / "a.csv"))
    assert found.layout.names == ("x",)
    assert "without a name" in found.notes[0]
    named = learn(open_table(tmp_path / "a.csv"), features=["", "x"])
    assert named.layout.names == ("", "x")


# -- roles -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [{"target": "prise"}, {"group": "prise"}, {"weight": "prise"}, {"features": ["prise"]},
     {"drop": ["prise"]}, {"categorical": ["prise"]}, {"dates": ["prise"]}],
)  # fmt: skip
def test_names_that_do_not_exist_have_close_ones(options):
    data = {"Price": [1, 2], "town": ["a", "b"], "y": [1, 2]}
    with pytest.raises(DataError, match=r"column.? 'prise'; did you mean 'Price'\? It has 'Price'"):
        learn_layout(data, **{"target": "y", **options})


def test_at_most_twenty_names_are_listed():
    data = {f"c{i}": [1, 2] for i in range(30)}
    with pytest.raises(DataError, match=r"'c19' and 10 more$"):
        learn(data, target="price")


@pytest.mark.parametrize(
    ("values", "told"),
    [
        (["yes", "yes"], "every row has 'yes' in the target column 'y'"),
        (
            ["1", "?", "2.5"],
            "target column 'y' holds text, such as '[?]'; leave a cell empty .*drop",
        ),
        (["1,5", "2", "3"], "target column 'y' holds text, such as '1,5'; .*decimal=','"),
        (["1", "2"], "target column 'y' holds text, such as '1'; save them as numbers"),
        (["1", "2", "a"], "target column 'y' holds text, such as 'a'; leave a cell empty"),
        (["1,5", "2", "?"], r"holds text, such as '\?'; leave .* in place of '1,5', write 1234.5"),
        (["12 %", "3 %"], "such as '12 %'; write 1234.5"),
        (["Jan-20", "Feb-20"], "such as 'Jan-20'; .*days since the first"),
        ([DAY, DAY], "target column 'y' holds dates with times; .*days since"),
        ([[1], [2]], "target column 'y' holds list.*; give a column of numbers"),
        ([None, None], "target column 'y' holds no value"),
    ],
)
def test_targets_are_numbers_or_classes(values, told):
    with pytest.raises(DataError, match=told):
        learn({"x": [1, 2, 3][: len(values)], "y": values})


def test_targets_may_be_booleans_and_decimals():
    for values in ([True, False], [Decimal("1.0"), Decimal("0.0")], [1, 0]):
        data = {"x": [1, 2], "y": values}
        assert read_rows(data, learn(data).layout).y.tolist() == [1.0, 0.0]


def test_weights_are_numbers_that_are_not_negative():
    data = {"x": [1, 2], "y": [1, 2], "w": [1.0, -0.5]}
    with pytest.raises(DataError, match=r"weight column 'w' has 1 negative .*such as -0.5.*>= 0"):
        learn(data, weight="w")
    with pytest.raises(DataError, match=r"weight column 'w' holds text; give a column of numbers"):
        learn({**data, "w": ["a", "b"]}, weight="w")
    rows = read_rows({**data, "w": [3, 2]}, learn({**data, "w": [3, 2]}, weight="w").layout)
    assert rows.sample_weight.tolist() == [3.0, 2.0]


def test_nothing_is_learned_from_rows_of_weight_zero():
    data = {
        "a": [1.0, 100.0, 3.0, None, None], "b": ["x", "z", "y", "z", "x"],
        "g": ["u", "gone", "u", "v", "v"], "w": [1, 0, 0.5, 0, 2], "y": [1.0, 2.0, 3.0, None, 5.0],
    }  # fmt: skip
    found = learn(data, group="g", weight="w", missing="impute")
    assert (found.rows, found.weightless, found.dropped, found.used) == (5, 2, 0, 3)
    assert found.groups == {"u": 2, "v": 1}
    assert found.filled == {"a": 1}, "neither the y nor the a of another row"
    assert found.layout.features == (
        Feature("a", "number", fill=2.0), Feature("b", "category", ("x", "y")),
    )  # fmt: skip
    assert found.notes[0] == "2 rows of weight 0 were left out"
    assert "2 groups in 3 rows" in found.notes[1]
    whole = {**data, "a": [1.0, None, 3.0, None, 5.0]}
    assert learn(whole, group="g", weight="w").used == 3, "missing where it does not matter"
    some = learn(data, group="g", weight="w", missing="drop")
    assert (some.weightless, some.dropped, some.used) == (2, 1, 2)
    one = learn({**whole, "w": [1, 1, 0.5, 0, 2]}, weight="w", missing="drop")
    assert one.notes[0] == "1 row of weight 0 was left out"
    every = learn(whole, missing="drop")
    assert (every.weightless, every.notes) == (0, ()), "w is a feature"


def test_weights_that_are_all_zero_are_refused():
    data = {"x": [1, 2], "t": pa.nulls(2, pa.string()), "y": [1, 2], "w": [0.0, 0.0]}
    for missing in ("refuse", "drop", "impute"):
        with pytest.raises(DataError) as error:
            learn(data, weight="w", missing=missing)
        assert str(error.value) == (
            "every row of the table has weight 0 in the column 'w'; use another weight column, or "
            "none"
        )
    found = learn({**data, "w": [0, 1]}, weight="w", drop=["t"]).layout
    with pytest.raises(DataError, match=r"every row .*missing value or weight 0 in 'w'"):
        read_rows(data, found)


def test_numbers_whose_squares_are_none_are_refused():
    good = {"a": [1e100, 1.0], "y": [-1e100, 2.0], "w": [1e100, 1.0]}
    learn(good, weight="w")
    for name in "ayw":
        data = {**good, name: [-1.0 if name != "w" else 1.0, 1.5e200]}
        with pytest.raises(
            DataError, match=rf"'{name}' has numbers as large as 1.5e\+200.*divide the column"
        ):
            learn(data, weight="w", missing="impute")
    with pytest.raises(DataError, match=r"'a' has numbers as large as 2e\+100"):
        learn({**good, "a": [-2e100, 1.0]})


def test_all_that_is_wrong_is_told_at_once():
    n = 150
    data = {
        "when": [DAY] * n, "what": [[1]] * n, "id": [f"row {i}" for i in range(n)],
        "none": pa.nulls(n, pa.float64()), "rate": ["5 %", "7 %", "9 %"] * 50,
        "big": [1e200] * n, "far": [float("inf")] * n, "x": [None, *range(n - 1)],
        "day": [DAY.date()] * n, "w": [-1.0] * n, "y": ["5 %", "7 %"] * 75,
    }  # fmt: skip
    with pytest.raises(DataError) as error:
        learn(data, group="day", weight="w")
    lines = str(error.value).splitlines()
    starts = [
        "target column 'y' holds text", "group column 'day' holds dates",
        "weight column 'w' has 150 negative", "column 'big' has numbers as large as 1e+200",
        "column 'far' has 150 infinite", "values are missing in the column 'x' (1);",
        "columns cannot be features:", "  'when' holds dates with times", "  'what' holds list",
        "  'none' has no values", "  'id' has more than 100", "  'rate' holds numbers",
    ]  # fmt: skip
    assert len(lines) == len(starts)
    for line, start in zip(lines, starts, strict=True):
        assert line.startswith(start)
    wrong = ["when", "what", "id", "none", "rate", "big", "far"]
    fine = {**data, "x": list(range(n)), "y": [1.0, 2.0] * 75}
    assert learn(fine, drop=[*wrong, "w", "day"]).layout.names == ("x",)


def test_what_is_wrong_in_later_rows_is_told_once(monkeypatch):
    monkeypatch.setattr(table.HeldTable.batches, "__defaults__", (None, 2))
    inf = float("inf")
    data = {"x": [1.0, 2.0, inf, inf, inf, 3.0], "g": [1.0, 2.0, 1.5, 1.5, 2.5, 1.0],
            "y": [1.0, 2.0, 3.0, 4.0, 5.0, inf]}  # fmt: skip
    with pytest.raises(DataError) as error:
        learn(data, group="g")
    x, g, y = str(error.value).splitlines()
    assert x.startswith("column 'x' has 2 infinite value(s)")
    assert g.startswith("group column 'g' holds numbers that are not whole, such as 1.5")
    assert y.startswith("column 'y' has 1 infinite value(s)")


def test_a_column_has_one_role():
    data = {"x": [1, 2], "y": [1, 2], "w": [1, 2], "g": [1, 2]}
    for name in ("y", "w"):
        with pytest.raises(DataError, match=rf"'{name}' is named as a feature and as the target"):
            learn(data, weight="w", features=["x", name])
    with pytest.raises(DataError, match="'y' cannot be target and weight"):
        learn(data, weight="y")
    for group in ("y", ["g", "y"]):
        with pytest.raises(DataError, match="'y' cannot be target and group at once; give another"):
            learn(data, group=group)
    with pytest.raises(DataError, match="'w' cannot be weight and group at once"):
        learn(data, group="w", weight="w")
    with pytest.raises(DataError, match="'z' cannot be target and group"):
        check_roles("z", ["z"], None)
    check_roles("y", ["g"], "w")
    assert learn(data, group="g", weight="w").layout.names == ("x",)
    assert learn(data, group="g", features=["g", "x"]).layout.names == ("g", "x")
    assert learn(data, features=["w", "x"], drop=["w"]).layout.names == ("x",)
    with pytest.raises(TypeError, match="features must be a list of column names; got 'x'"):
        learn(data, features="x")


def test_options_are_checked():
    data = {"x": [1, 2], "y": [1, 2]}
    with pytest.raises(ValueError, match=r"missing must be one of 'refuse', 'drop', 'impute'"):
        learn(data, missing="ignore")
    with pytest.raises(ValueError, match="max_levels must be a whole number >= 1"):
        learn(data, max_levels=0)
    with pytest.raises(ValueError, match="missing must be one of"):
        replace(learn(data).layout, missing="?")


def test_the_rows_read_are_told():
    told = []
    table = as_table({"x": list(range(70_000)), "y": [1.0] * 70_000})
    learn(table, progress=lambda done, total: told.append((done, total)))
    assert told == [(65_536, 70_000), (70_000, 70_000)]


def test_one_code_does_not_hide_numbers_stored_as_text():
    """A cell with a leading zero among decimal commas: still numbers, and still refused."""
    table = pa.table({"x": ["12,5", "7,25", "05"] * 8, "y": [float(i) for i in range(24)]})
    with pytest.raises(DataError, match=r"'x'.*decimal=','"):
        learn(table)


def test_counts_have_thousands_separators():
    n = 1500
    data = {"x": [-1.0] * n, "y": list(range(n))}
    with pytest.raises(DataError, match="'w' has 1,500 negative"):
        learn({**data, "w": [-1.0] * n}, weight="w")
    with pytest.raises(DataError, match="'x' has 1,500 infinite"):
        learn({**data, "x": [float("inf")] * n})
    names = [f"name {k}" for k in range(n)]
    with pytest.raises(DataError, match=r"more than 1,000 different values.*max_levels=10000"):
        learn({**data, "c": names}, max_levels=1000)
    with pytest.raises(DataError, match="more than 1,000 classes"):
        learn({**data, "y": names}, max_levels=1000)
    with pytest.raises(DataError, match=r"missing in the column 'x' \(1,499\)"):
        learn({**data, "x": [1.0] + [None] * (n - 1)})
    with pytest.raises(DataError, match="'c19' and 1,480 more"):
        learn(data, features=[f"c{k}" for k in range(n)])
