"""Dates as features: the year, the month and the weekday of a column."""

from __future__ import annotations

import datetime
import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sklearn.base import clone
from table_files import csv

from counterpoise import GroupDRONeuron, load
from counterpoise.cli.main import main
from counterpoise.storage.packing import Packer, unpack
from counterpoise.tabular import (
    DataError,
    Feature,
    TableEncoder,
    TableSource,
    fit_table,
    learn_layout,
    open_table,
    read_rows,
    sample_rows,
)  # fmt: skip
from counterpoise.tabular.dates import date_parts
from counterpoise.tabular.layout import DATE_PARTS

DAYS = [
    datetime.date(1969, 12, 31), datetime.date(1970, 1, 1), datetime.date(2000, 2, 29),
    datetime.date(2024, 2, 29), datetime.date(1900, 3, 1), datetime.date(2023, 11, 5), None,
]  # fmt: skip
KNOWN = DAYS[:-1]
TIMES = [
    None if day is None else datetime.datetime(day.year, day.month, day.day, 23) for day in DAYS
]
WEEKDAYS = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"]


def parts(column, name="when"):
    return {part: values.to_pylist() for part, values in date_parts(column, name).items()}


def expected(days):
    """By Python's own calendar."""
    return {
        "year": [day and day.year for day in days],
        "month": [day and str(day.month) for day in days],
        "weekday": [day and WEEKDAYS[day.weekday()] for day in days],
    }


def iso(days, form="%Y-%m-%d"):
    return [None if day is None else day.strftime(form) for day in days]


@pytest.mark.parametrize(
    "column",
    [
        pa.array(DAYS, pa.date32()),
        pa.array(DAYS, pa.date64()),
        *(pa.array(TIMES, pa.timestamp(unit)) for unit in ("s", "ms", "us", "ns")),
        pa.array(iso(DAYS)),
        pa.array(iso(DAYS), pa.large_string()),
        pa.array(iso(DAYS, " %Y-%m-%dT23:00:00.5 ")),
        pa.array(iso(DAYS, "%Y-%m-%d 23:59")),
        pa.array(iso(DAYS)).dictionary_encode(),
        pa.array(DAYS, pa.date32()).dictionary_encode(),
        pa.array([day and int(day.strftime("%Y%m%d")) for day in DAYS]),
        pa.array([day and float(day.strftime("%Y%m%d")) for day in DAYS]),
        pa.array(iso(DAYS, "%Y%m%d")),
    ],
    ids=lambda column: str(column.type),
)
def test_parts_agree_with_the_calendar(column):
    assert parts(column) == expected(DAYS)
    assert parts(column.slice(2)) == expected(DAYS[2:])


def test_every_day_of_four_centuries():
    first = datetime.date(1800, 1, 1)
    days = [first + datetime.timedelta(k) for k in range(146_097)]
    assert parts(pa.array(days)) == expected(days)


def test_times_with_a_zone_count_by_their_local_day():
    late = datetime.datetime(2020, 12, 31, 23, 30, tzinfo=datetime.UTC)
    for zone, local in (
        ("UTC", (2020, "12", "Thu")),
        ("Europe/Berlin", (2021, "1", "Fri")),
        ("America/New_York", (2020, "12", "Thu")),
        ("+00:30", (2021, "1", "Fri")),
        ("-00:30", (2020, "12", "Thu")),
    ):
        found = parts(pa.array([late, None], pa.timestamp("us", zone)))
        assert tuple(values[0] for values in found.values()) == local, zone
        assert [values[1] for values in found.values()] == [None] * 3
    written = pa.array(["2020-12-31T23:30:00-05:00", "2020-12-31T23:30:00Z"])
    assert parts(written)["year"] == [2020, 2020], "text counts by the day that is written"
    with pytest.raises(DataError, match=r"'when' has times in the zone 'No/Where'.*convert them"):
        parts(pa.array([late], pa.timestamp("us", "No/Where")))


@pytest.mark.parametrize(
    ("values", "told"),
    [
        (["2020-01-31", "31/12/2020"], r"'when' has values .*not ISO dates, such as '31/12/2020'"),
        (["2020-02-30"], r"such as '2020-02-30'; write them as 2020-12-31, and leave a cell empty"),
        (["soon", "", "2020-01", "x"], r"such as 'soon', '', '2020-01' and 1 more; write"),
        ([20200230], "such as '20200230'"),
        ([1.5], "such as '1.5'"),
        ([True], "'when' holds true and false where dates are needed; write dates, or text"),
        ([datetime.time(1)], "'when' holds times of day where dates are needed"),
    ],
)
def test_what_is_no_date_is_told(values, told):
    with pytest.raises(DataError, match=told):
        parts(pa.array(values))


def test_a_column_without_a_value_has_no_dates():
    assert parts(pa.nulls(2)) == {part: [None, None] for part in DATE_PARTS}


# -- layouts ---------------------------------------------------------------------------------


def frame(n=60, seed=0):
    rng = np.random.default_rng(seed)
    days = pd.Timestamp("2019-11-03") + pd.to_timedelta(rng.integers(0, 120, size=n), "D")
    return pd.DataFrame(
        {"when": days, "x": rng.normal(size=n), "g": rng.choice(["a", "b"], size=n),
         "y": days.month + 0.1 * rng.normal(size=n)}
    )  # fmt: skip


def learned(data, **options):
    return learn_layout(data, **{"target": "y", "group": "g", "dates": ["when"], **options})


def test_features_of_a_date_and_their_names():
    data = {"when": ["2020-02-03", "2020-02-04", "2021-01-04"], "y": [1, 2, 3]}
    layout = learn_layout(data, target="y", dates=["when"]).layout
    assert layout.names == ("when.year", "when.month=1", "when.weekday=Tue")
    assert layout.features == (
        Feature("when", "number", part="year"),
        Feature("when", "category", ("2", "1"), part="month"),
        Feature("when", "category", ("Mon", "Tue"), part="weekday"),
    )
    assert (layout.inputs, layout.dates, layout.words, layout.numbers) == (
        ("when",), ("when",), ("when",), ("y",),
    )  # fmt: skip
    assert read_rows(data, layout).X.tolist() == [[2020, 0, 0], [2020, 0, 1], [2021, 1, 0]]


def test_levels_follow_the_calendar():
    layout = learned(frame(300)).layout
    _, month, weekday = layout.features[:3]
    assert sorted(month.levels[1:], key=int) == list(month.levels[1:])
    order = [WEEKDAYS.index(level) for level in weekday.levels[1:]]
    assert order == sorted(order)
    assert len(order) == 6


def test_every_source_gives_the_same_features(tmp_path):
    data = frame()
    table = pa.Table.from_pandas(data, preserve_index=False)
    days = table.column("when").cast(pa.date32())
    pq.write_table(table, tmp_path / "times.parquet", row_group_size=7)
    pq.write_table(table.set_column(0, "when", days), tmp_path / "days.parquet")
    zoned = table.column("when").cast(pa.timestamp("us", "UTC"))
    pq.write_table(table.set_column(0, "when", zoned), tmp_path / "zoned.parquet")
    data.to_csv(tmp_path / "text.csv", index=False)
    first = learned(data)
    wanted = read_rows(data, first.layout).X
    sources = [
        *(open_table(tmp_path / name) for name in ("times.parquet", "days.parquet", "text.csv")),
        open_table(tmp_path / "zoned.parquet"),
        open_table(tmp_path / "text.csv", words=["when"]),
        data.assign(when=data["when"].dt.date),
        data.assign(when=data["when"].dt.strftime("%Y-%m-%d").astype("category")),
        data.assign(when=data["when"].dt.tz_localize("Europe/Berlin")),
    ]
    for source in sources:
        found = learned(source)
        assert found.layout == first.layout
        assert np.array_equal(read_rows(source, found.layout).X, wanted)
        chunks = [X for X, *_ in TableSource(source, found.layout, chunk_rows=13)]
        assert len(chunks) > 1
        assert np.array_equal(np.vstack(chunks), wanted)
        assert len(sample_rows(source, found.layout, 20)) == 20


def test_wide_layouts_are_sparse(monkeypatch):
    monkeypatch.setattr("counterpoise.tabular.layout.DENSE_BYTES", 0)
    monkeypatch.setattr("counterpoise.tabular.layout.SPARSE_SHARE", 1.0)
    data = frame()
    layout = learned(data).layout
    X = read_rows(data, layout).X
    monkeypatch.undo()
    assert np.array_equal(X.toarray(), read_rows(data, layout).X)


@pytest.mark.parametrize("as_text", [False, True])
def test_missing_dates(as_text):
    data = frame()
    data.loc[[3, 5, 8], "when"] = pd.NaT
    if as_text:
        data["when"] = data["when"].dt.strftime("%Y-%m-%d")
    with pytest.raises(DataError, match=r"^values are missing in the column 'when' \(3\); leave"):
        learned(data)
    found = learned(data, missing="drop")
    assert (found.dropped, len(read_rows(data, found.layout))) == (3, 57)
    filled = learned(data, missing="impute")
    assert filled.filled == {"when": 3}
    assert filled.remarks[0] == "3 missing value(s) of 'when' were filled in"
    year, month, weekday = filled.layout.features[:3]
    years = pd.to_datetime(data["when"]).dt.year
    assert year.fill == pytest.approx(years.mean())
    assert month.levels[-1] == weekday.levels[-1] == "(missing)"
    X = pd.DataFrame(read_rows(data, filled.layout).X, columns=filled.layout.names)
    for name in ("when.month=(missing)", "when.weekday=(missing)"):
        assert X.index[X[name] == 1].tolist() == [3, 5, 8]
    assert X.loc[3, "when.year"] == year.fill


def test_missing_dates_that_the_fit_never_saw_count_as_base():
    layout = learned(frame(), missing="impute").layout
    row = {"when": pa.nulls(1, pa.date32()), "x": [0.0]}
    X = TableEncoder.from_layout(layout).transform(row)
    assert X[0].tolist() == [layout.features[0].fill] + [0.0] * (layout.width - 1)
    refusing = learned(frame()).layout
    with pytest.raises(DataError, match=r"missing in the column 'when' \(1\)"):
        TableEncoder.from_layout(refusing).transform(row)


def test_months_that_the_fit_never_saw():
    encoder = TableEncoder(dates=["when"], features=["when", "x"]).fit(frame())
    new = {"when": ["2020-07-06"], "x": [0.0]}
    with pytest.raises(
        DataError,
        match=r"column 'when.month' has values .*never saw: '7'; it knows .*unseen='base'",
    ):
        encoder.transform(new)
    encoder.set_params(unseen="base")
    row = dict(zip(encoder.get_feature_names_out(), encoder.transform(new)[0], strict=True))
    assert row["when.year"] == 2020
    assert not any(value for name, value in row.items() if name.startswith("when.month="))
    refitted = clone(TableEncoder.from_layout(encoder.layout_)).fit(frame())
    assert refitted.layout_ == encoder.layout_, "an encoder of a layout can be fitted again"


def test_parts_that_are_constant_are_noted():
    data = {"when": ["2020-02-03", "2020-02-04"] * 5, "y": list(range(10))}
    notes = learn_layout(data, target="y", dates=["when"]).notes
    assert "column 'when.year' is 2020 in every row and has no predictive value" in notes
    assert "column 'when.month' is '2' in every row and has no predictive value" in notes


def test_leaks_through_dates_name_the_column():
    days = pd.date_range("2000-01-01", periods=40, freq="YS")
    notes = learn_layout({"when": days, "y": days.year}, target="y", dates=["when"]).notes
    assert any("'when' alone explains 100%" in n and "drop=['when']" in n for n in notes)


def test_parts_and_columns_that_would_be_called_alike_are_refused():
    data = {"when": ["2020-02-03", "2021-02-04"], "when.year": [1, 2], "y": [1, 2]}
    with pytest.raises(DataError, match=r"both be called 'when.year'.*level or part.*rename"):
        learn_layout(data, target="y", dates=["when"])


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"dates": ["when"], "categorical": ["when"]}, "'when' is named among the dates and the c"),
        ({"dates": ["y"]}, "'y' is named among the dates and is not a feature"),
        ({"dates": ["g"]}, "'g' is named among the dates and is not a feature"),
        ({"drop": ["when"]}, "'when' is named among the dates and is not a feature"),
        ({"features": ["x"]}, "'when' is named among the dates and is not a feature"),
        ({"dates": ["whem"]}, r"no column 'whem'; did you mean 'when'\?"),
        ({"dates": ["x"]}, r"'x' has values that are not ISO dates, such as "),
    ],
)
def test_dates_that_cannot_be_dates_are_told(options, told):
    with pytest.raises(DataError, match=told):
        learned(frame(), **options)


def test_columns_of_other_types_are_no_dates():
    hours = {"when": [datetime.time(1)] * 2, "x": [1, 2], "y": [1, 2]}
    with pytest.raises(DataError, match=r"'when' holds times of day, not dates: leave .*drop="):
        learn_layout(hours, target="y", dates=["when"])
    with pytest.raises(DataError, match=r"'when' holds no value: leave it out with drop="):
        learn_layout({**hours, "when": [None] * 2}, target="y", dates=["when"])
    with pytest.raises(TypeError, match="dates must be a list of column names; got 'when'"):
        learn_layout(hours, target="y", dates="when")


def test_one_message_names_all_problems():
    data = {"when": ["2020-01-01", "soon"], "day": ["2020-01-01", None], "y": [1, 2]}
    with pytest.raises(DataError, match=r"(?s)'when' has values .*'soon'.*missing .*'day' \(1\)"):
        learn_layout(data, target="y", dates=["when", "day"])


# -- fits and stored models ------------------------------------------------------------------


def test_a_model_with_dates_is_stored_and_predicts(tmp_path):
    data = frame(200)
    record = fit_table(GroupDRONeuron("identity"), data, learned(data), bare=True)
    record.save(tmp_path / "m")
    again = load(tmp_path / "m")
    assert again[0].layout_ == record.model[0].layout_
    assert list(again[0].dates) == ["when"]
    wanted = record.model.predict(data)
    assert np.array_equal(again.predict(data), wanted)
    text = data.assign(when=data["when"].dt.strftime("%Y-%m-%d 12:00"))
    assert np.array_equal(again.predict(text), wanted)
    assert np.abs(wanted - data["y"]).mean() < 0.2, "months explain the target"


def test_encoders_that_know_nothing_of_dates_load():
    data = frame().drop(columns="when")
    record = fit_table(
        GroupDRONeuron("identity"), data, learn_layout(data, target="y", group="g"), bare=True
    )
    packer = Packer()
    packed = packer.pack(record.model[0], "encoder")
    assert '"part"' in json.dumps(packed)
    del packed["parameters"]["dates"]
    for feature in packed["fitted"]["layout_"]["fields"]["features"]["items"]:
        del feature["fields"]["part"]
    found = unpack(packed, packer.arrays)
    assert found.layout_ == record.model[0].layout_
    assert np.array_equal(found.transform(data), record.model[0].transform(data))


@pytest.mark.parametrize("part", ["hour", "", "month"])
def test_stored_parts_are_checked(part):
    layout = learned(frame()).layout
    with pytest.raises(ValueError, match="part"):
        replace(layout.features[0], part=part)


# -- the command line ------------------------------------------------------------------------


def run(capsys, *args, code=0):
    ended = main([str(word) for word in args])
    printed = capsys.readouterr()
    assert ended == code, printed.err
    return printed


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_dates_on_the_command_line(kind, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    data = frame(120).assign(end=frame(120, seed=1)["when"])
    if kind == "csv":
        data.to_csv("t.csv", index=False)
    else:
        data.to_parquet("t.parquet")
    fit = ("fit", f"t.{kind}", "-y", "y", "-g", "g", "--bare", "--out", "m")
    said = run(capsys, *fit, code=3).err
    assert "use its year, month and weekday with --dates when" in said
    assert "use its year, month and weekday with --dates end" in said
    run(capsys, *fit, "--dates", "when,end")
    shown = json.loads(run(capsys, "show", "m", "--json").out)["coefficients"]
    assert {"when.year", "end.year", "when.month=12"} <= shown.keys()
    run(capsys, *fit, "--dates", "when", "--dates", "end")
    new = csv(tmp_path, "when,end,x\n2020-01-05,2020-01-06T10:00,0.5\n2020-07-05,2020-01-06,0\n")
    said = run(capsys, "predict", "m", new, code=3).err
    assert "'when.month' has values that the fit never saw: '7'" in said
    assert "--unseen base" in said
    told = run(capsys, "predict", "m", new, "--unseen", "base").out.split()
    assert len(told) == 3
    wrong = csv(tmp_path, "when,end,x\n05/01/2020,2020-01-06,0.5\n", "wrong.csv")
    said = run(capsys, "predict", "m", wrong, code=3).err
    assert "column 'when' has values that are not ISO dates, such as '05/01/2020'" in said
    said = run(capsys, *fit, "--dates", "when,end", "--categorical", "end", code=3).err
    assert "'end' is named among the dates and the categorical columns" in said
