"""Sample tables that ship with the package: what they hold, and how they are written."""

from __future__ import annotations

import csv
import io
import os
import re
import shlex

import pytest
from paths import ROOT

from counterpoise.cli.main import main
from counterpoise.tabular.sample_tables import SAMPLES

MOST_BYTES = 150_000
FLAGS = ("--target", "--group")
DATA = ROOT / "src" / "counterpoise" / "tabular" / "sample_data"


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(capsys, *args, code=0):
    ended = main([str(word) for word in args])
    printed = capsys.readouterr()
    assert ended == code, printed.err
    return printed


def test_without_a_name_the_tables_are_listed(folder, capsys):
    printed = run(capsys, "sample").out
    for name, sample in SAMPLES.items():
        assert f"{name}: {sample.summary}" in printed
    assert "counterpoise sample NAME" in printed
    assert not list(folder.iterdir())


@pytest.mark.parametrize("name", list(SAMPLES))
def test_what_is_said_of_a_table_is_true(name):
    sample = SAMPLES[name]
    rows = list(csv.DictReader(io.StringIO(sample.csv().decode())))
    assert len(rows) == sample.rows
    target, group = (sample.options[sample.options.index(flag) + 1] for flag in FLAGS)
    columns = (group, target) if "--with-label" in sample.options else (group,)
    groups = {tuple(row[column] for column in columns) for row in rows}
    assert sample.groups.startswith(f"{len(groups)} groups by {' and '.join(columns)}")
    assert all(all(row.values()) for row in rows), "no cell is empty"


def test_the_files_are_small_and_state_their_origin():
    told = (DATA / "README.md").read_text()
    for name, sample in SAMPLES.items():
        file = DATA / f"{name}.csv.gz"
        assert file.stat().st_size <= MOST_BYTES
        (line,) = [line for line in told.splitlines() if line.startswith(f"| `{file.name}`")]
        assert sample.licence in line
        assert f"{sample.rows:,}" in told
    assert {file.name for file in DATA.iterdir()} == {
        "README.md",
        *(f"{name}.csv.gz" for name in SAMPLES),
    }


@pytest.mark.parametrize("name", list(SAMPLES))
def test_a_table_is_written_and_the_next_command_runs(name, folder, capsys):
    printed = run(capsys, "sample", name).out
    first, next_line = printed.splitlines()
    assert first == f"{name}.csv: {SAMPLES[name].summary}"
    assert (folder / f"{name}.csv").read_bytes() == SAMPLES[name].csv()
    program, *command = shlex.split(next_line.removeprefix("Next, run: "))
    assert program == "counterpoise"
    answer = run(capsys, *command, "--bare").out
    assert "Data: 12,000 rows" in answer
    assert f"counterpoise fit {name}.csv" in (ROOT / "README.md").read_text()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "pattern", "gains"),
    [
        ("diamonds", r"error: ([\d,]+) -> ([\d,]+) ", lambda before, after: after < 0.7 * before),
        ("adult", r"accuracy: ([\d.]+)% -> ([\d.]+)%", lambda before, after: after > before + 10),
    ],
)
def test_the_worst_group_gains(name, pattern, gains, capsys):
    run(capsys, "sample", name)
    answer = run(
        capsys, "fit", f"{name}.csv", *SAMPLES[name].options, "--missing", "impute"
    ).out.splitlines()[0]
    before, after = (float(text.replace(",", "")) for text in re.search(pattern, answer).groups())
    assert gains(before, after), answer


def test_a_file_is_not_replaced_unless_asked(folder, capsys):
    (folder / "adult.csv").write_text("mine")
    said = run(capsys, "sample", "adult", code=1).err
    assert said == (
        "error: 'adult.csv' exists; replace it with --force, or choose another file with --out\n"
    )
    assert (folder / "adult.csv").read_text() == "mine"
    run(capsys, "sample", "adult", "--force")
    assert (folder / "adult.csv").read_bytes() == SAMPLES["adult"].csv()
    os.symlink("nowhere", folder / "link.csv")
    assert "'link.csv' exists" in run(capsys, "sample", "adult", "--out", "link.csv", code=1).err
    assert sorted(path.name for path in folder.iterdir()) == ["adult.csv", "link.csv"]


def test_the_next_command_names_the_file_as_a_shell_reads_it(folder, capsys):
    (folder / "my tables").mkdir()
    printed = run(capsys, "sample", "adult", "-o", "my tables/a.csv").out
    assert "counterpoise fit 'my tables/a.csv' --target income" in printed
    assert (folder / "my tables" / "a.csv").is_file()


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("iris",), "'iris' is not one of 'diamonds', 'adult'"),
        (("adult", "--out", "a.parquet"), "--out: 'a.parquet' does not end in .csv"),
        (("adult", "--out", "no/a.csv"), "--out: there is no folder 'no'; make it first"),
        (("--out", "a.csv"), "--out needs the name of a table: diamonds or adult"),
        (("--force",), "--force needs the name of a table"),
    ],
)
def test_errors_name_the_option_and_write_nothing(args, said, folder, capsys):
    assert said in run(capsys, "sample", *args, code=2).err
    assert not list(folder.iterdir())
