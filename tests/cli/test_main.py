"""How commands end: what is printed is harmless, and no error shows a traceback unasked."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from counterpoise.cli import predict as predict_module
from counterpoise.cli.main import described, main
from counterpoise.tabular import requests

EVIL = "\x1b]0;owned\x07\x9b2J\u202e"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A table with hostile names and cells, and a model of it."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    n = 90
    x = rng.normal(size=n)
    columns = {
        "g": [f"{'ab'[k % 2]}{EVIL}" for k in range(n)], "x": x, f"c{EVIL}": rng.normal(size=n),
        "t": [("=1+1", f"-{EVIL}", "plain")[k % 3] for k in range(n)],
        "y": x + 0.3 * rng.normal(size=n),
    }  # fmt: skip
    pq.write_table(pa.table(columns), "t.parquet")
    return tmp_path


def run(capsys, *args, code=0):
    ended = main([str(word) for word in args])
    printed = capsys.readouterr()
    assert ended == code, printed.err
    return printed


FIT = ("fit", "t.parquet", "-y", "y", "-g", "g", "--bare")


def test_what_is_printed_has_no_control_characters(folder, capsys):
    shown = [
        run(capsys, *FIT, "--out", "m"),
        run(capsys, *FIT, "--json"),
        run(capsys, *FIT, "--drop", EVIL, code=3),
        run(capsys, "fit", f"{EVIL}.csv", "-y", "y", code=1),
        run(capsys, *FIT, "--activation", EVIL, code=2),
        run(capsys, "show", "m"),
        run(capsys, "show", "m", "--json"),
        run(capsys, "diagnose", "t.parquet", "-y", "y", "-g", "g"),
        run(capsys, "predict", "m", "t.parquet", "--score"),
    ]
    for printed in shown:
        text = (printed.out + printed.err).replace("\n", "")
        assert text.isprintable(), text
    names = json.loads(shown[6].out)["coefficients"]
    assert f"c{EVIL}" in names, "JSON escapes lose nothing"


def test_predictions_are_data_in_files_and_harmless_for_spreadsheets(folder, capsys):
    run(capsys, *FIT, "--out", "m")
    args = ("predict", "m", "t.parquet", "--with", "t")
    run(capsys, *args, "--out", "raw.csv")
    assert f'"-{EVIL}"' in (folder / "raw.csv").read_text(encoding="utf-8")
    run(capsys, *args, "--out", "safe.csv", "--spreadsheet-safe")
    lines = (folder / "safe.csv").read_text(encoding="utf-8").splitlines()
    assert lines[1].startswith('"\'=1+1",')
    assert lines[2].startswith("\"'-\\x1b]0;owned")
    raw = (folder / "raw.csv").read_text(encoding="utf-8").splitlines()
    numbers = [[float(line.rpartition(",")[2]) for line in text[1:]] for text in (raw, lines)]
    assert numbers[0] == numbers[1]
    said = run(capsys, *args, "--out", "o.parquet", "--spreadsheet-safe", code=2).err
    assert "--spreadsheet-safe is for CSV" in said


@pytest.mark.slow
def test_predictions_on_a_terminal_are_harmless(folder, capsys):
    run(capsys, *FIT, "--out", "m")
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "counterpoise", "predict", "m", "t.parquet", "--with", "t"]
    with subprocess.Popen(command, stdout=theirs, stderr=subprocess.DEVNULL) as process:
        os.close(theirs)
        shown = b""
        while True:
            try:
                shown += os.read(ours, 1 << 16)
            except OSError:  # the other side is closed
                break
        assert process.wait() == 0
    os.close(ours)
    assert b"-\\x1b]0;owned" in shown
    assert b"\x1b]" not in shown
    assert b"\x07" not in shown


@pytest.mark.parametrize("error", [KeyError("x"), ZeroDivisionError("d"), RecursionError("deep")])
def test_an_error_nobody_foresaw_is_one_line(folder, capsys, monkeypatch, error):
    def fail(*args, **options):
        raise error

    run(capsys, *FIT, "--out", "m")
    monkeypatch.setattr(predict_module, "_layout", fail)
    said = run(capsys, "predict", "m", "t.parquet", code=1).err
    assert said.startswith(f"error: unexpected {type(error).__name__}, test_main.py line ")
    assert "This is a bug in counterpoise" in said
    assert "`counterpoise --debug ...`" in said
    assert said.count("\n") == 1
    with pytest.raises(type(error)):
        main(["--debug", "predict", "m", "t.parquet"])


def test_errors_of_the_system_are_told_without_numbers():
    assert described(OSError(28, "No space left on device", "a.csv")) == (
        "No space left on device: 'a.csv'"
    )
    assert "not enough memory" in described(MemoryError())
    assert len(described(ValueError("x" * 10**6))) < 5000


@pytest.mark.parametrize("name", ["o.csv", "o.parquet", "o.arrow"])
def test_a_full_disk_is_named_and_leaves_nothing(folder, capsys, name):
    resource = pytest.importorskip("resource")
    run(capsys, *FIT, "--out", "m")
    x = np.random.default_rng(1).normal(size=20_000)
    with open("big.csv", "w", encoding="utf-8") as file:
        file.write(f"g,x,c{EVIL},t\n" + "".join(f"a,{v},{v},plain\n" for v in x))
    (folder / name).write_text("old")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, before[1]))
    try:
        said = run(capsys, "predict", "m", "big.csv", "--out", name, code=1).err
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert f"'{name}' cannot be written (File too large)" in said
    assert (folder / name).read_text() == "old"
    assert {path.name for path in folder.iterdir()} == {"m", "t.parquet", "big.csv", name}


def test_columns_that_csv_cannot_hold_are_told(folder, capsys):
    run(capsys, *FIT, "--out", "m")
    table = pq.read_table("t.parquet").append_column("deep", pa.array([[1, 2]] * 90))
    pq.write_table(table, "deep.parquet")
    for out in ((), ("--out", "o.csv")):
        said = run(capsys, "predict", "m", "deep.parquet", "--with", "deep", *out, code=3).err
        assert "cannot be written (Unsupported Type:list" in said
    assert not (folder / "o.csv").exists()
    assert requests.WRITTEN == (".csv", ".parquet", ".arrow")


def test_notes_on_the_data_are_part_of_every_command(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    x = rng.normal(size=80)
    rows = [f"{k},{x[k]:.5f},{k % 2},{'ab'[k % 3 == 0]}" for k in range(80)]
    (tmp_path / "t.csv").write_text("\n".join(["rownames,x,y,g", *rows]) + "\n")
    args = ("t.csv", "-y", "y", "-g", "g")
    told = ("column 'rownames' numbers the rows and is left out", "are taken for classes")
    for command in (
        ("fit", *args, "--bare"),
        ("diagnose", *args),
        ("compare", *args, "-m", "ours"),
    ):
        printed = " ".join(run(capsys, *command).out.split())
        assert all(note in printed for note in told), command
    for command in (("fit", *args, "--bare"), ("diagnose", *args)):
        notes = " ".join(json.loads(run(capsys, *command, "--json").out)["notes"])
        assert all(note in notes for note in told), command
    printed = run(capsys, "compare", *args, "-m", "ours", "--json")
    json.loads(printed.out)
    assert told[0] in " ".join(printed.err.split())
