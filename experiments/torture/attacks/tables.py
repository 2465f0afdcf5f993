"""Attacks on tables: damaged and hostile files, cells and names, full disks and killed commands."""

from __future__ import annotations

import csv
import gzip
import io
import json
import os
import pty
import signal
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.feather as feather
import pyarrow.parquet as pq

from experiments.torture.commands import CONTROL, Commands, Ended
from experiments.torture.harness import Trial, attack

MB = 1 << 20
# Peak memory of a command that refuses a file, with its imports.
MODEST = 700 * MB
FIT = ["-y", "y", "-g", "g", "--bare"]


@dataclass(frozen=True)
class Prepared:
    """Commands, and a folder with tables ``t.*`` and a model ``m`` of them."""

    commands: Commands
    folder: Path
    predictions: bytes = b""

    def model(self) -> Path:
        return self.folder / "m"


def _table(n: int, seed: int = 0) -> pa.Table:
    rng = np.random.default_rng(seed)
    g = rng.choice(["north", "south", "east"], n)
    x = rng.normal(size=n)
    y = x * np.where(g == "north", 1.0, 2.0) + 0.3 * rng.normal(size=n)
    kind = rng.choice(["a", "b", "c"], n)
    size = rng.integers(0, 1000, n)
    return pa.table({"g": g, "x": x, "kind": kind, "size": size, "y": y})


@cache
def _commands() -> Commands:
    return Commands()


def prepare(folder: Path) -> Prepared:
    table = _table(300)
    pacsv.write_csv(table, folder / "t.csv")
    pq.write_table(table, folder / "t.parquet")
    feather.write_feather(table, folder / "t.arrow", compression="uncompressed")
    arrays = {name: np.array(table[name].to_pylist()) for name in table.column_names}
    np.savez_compressed(folder / "t.npz", **arrays)  # type: ignore[arg-type]
    made = Prepared(_commands(), folder)
    ended = made.commands.run(["fit", "t.csv", *FIT, "--out", "m"], folder)
    assert ended.code == 0, ended.err
    return made


def _damaged(data: bytes, rng: np.random.Generator) -> bytes:
    """Bytes flipped, cut off, doubled or filled with others."""
    found, how = bytearray(data), rng.integers(5)
    at = int(rng.integers(len(found)))
    if how == 0:
        return bytes(found[:at])
    if how == 1:
        stop = min(len(found), at + int(rng.integers(1, 200)))
        found[at:stop] = rng.bytes(stop - at)
    elif how == 2:
        found[at:at] = rng.bytes(int(rng.integers(1, 50)))
    else:
        for place in rng.integers(len(found), size=int(rng.integers(1, 8))).tolist():
            found[place] ^= 1 << int(rng.integers(8))
    return bytes(found)


def _bounded(ended: Ended, *names: str, most: int = MODEST) -> str | None:
    fault = ended.fault(*names)
    if fault is None and ended.rss > most:
        fault = f"took {ended.rss / MB:.0f} MB"
    return fault


def _damage(trial: Trial, name: str) -> str | None:
    path = trial.folder / name
    path.write_bytes(_damaged((trial.prepared.folder / name).read_bytes(), trial.rng))
    if trial.number % 2:
        args = ["predict", trial.prepared.model(), name, "--out", "o.csv"]
    else:
        args = ["fit", name, *FIT]
    return _bounded(trial.prepared.commands.run(args, trial.folder), name, "column", "group")


@attack("damaged CSV files", tries=40, prepare=prepare)
def damaged_csv(trial: Trial) -> str | None:
    return _damage(trial, "t.csv")


@attack("damaged Parquet files", tries=40, prepare=prepare)
def damaged_parquet(trial: Trial) -> str | None:
    return _damage(trial, "t.parquet")


@attack("damaged Arrow files", tries=40, prepare=prepare)
def damaged_arrow(trial: Trial) -> str | None:
    return _damage(trial, "t.arrow")


@attack("damaged npz files", tries=40, prepare=prepare)
def damaged_npz(trial: Trial) -> str | None:
    return _damage(trial, "t.npz")


def _npy(shape: tuple[int, ...], dtype: str, data: bytes) -> bytes:
    head = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        head, {"descr": dtype, "fortran_order": False, "shape": shape}
    )
    return head.getvalue() + data


def _zeros(path: Path) -> None:
    """1.2 GB of zeros in 1.2 MB, with a column of another length."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        with file.open("x.npy", "w") as member:
            member.write(_npy((150 * MB,), "<f8", b""))
            for _ in range(150):
                member.write(bytes(8 * MB))
        file.writestr("y.npy", _npy((3,), "<f8", bytes(24)))


def _shared(path: Path) -> None:
    """One member of 80 MB under forty names."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("a.npy", _npy((10 * MB,), "<f8", bytes(80 * MB)))
        first = file.infolist()[0]
        for number in range(40):
            again = zipfile.ZipInfo(f"{number}.npy")
            for name in ("header_offset", "CRC", "compress_size", "file_size", "compress_type"):
                setattr(again, name, getattr(first, name))
            file.filelist.append(again)
            file.NameToInfo[again.filename] = again
        file._didModify = True  # type: ignore[attr-defined]


def _claims(path: Path) -> None:
    """A header that claims 8 TB."""
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("x.npy", _npy((10**12,), "<f8", bytes(64)))


def _gzip_bomb(path: Path) -> None:
    """A gigabyte of numbers in a few megabytes, twice that in memory."""
    with gzip.open(path, "wb", 1) as file:
        file.write(b"g,x,y\n")
        row = b"a,1,2\nb,2,1\n" * (MB // 12)
        for _ in range(1000):
            file.write(row)


def _arrow_bomb(path: Path) -> None:
    """Zeros of 1.3 GB in compressed batches."""
    batch = pa.RecordBatch.from_arrays([pa.array(np.zeros(8 * MB))], names=["y"])
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    with pa.ipc.new_file(str(path), batch.schema, options=options) as file:
        for _ in range(20):
            file.write_batch(batch)


def _many_rows(path: Path) -> None:
    """Two billion rows claimed in the footer of a file with three hundred."""
    pq.write_table(_table(300), path)
    data = bytearray(path.read_bytes())
    size = int.from_bytes(data[-8:-4], "little")
    footer = bytes(data[-8 - size : -8])
    few, many = b"\x16\xd8\x04", b"\x16\x80\xd0\xac\xf3\x0e"  # zigzag of 300 and of 2e9
    forged = footer.replace(few, many)
    assert forged != footer
    body = bytes(data[: -8 - size])
    path.write_bytes(body + forged + len(forged).to_bytes(4, "little") + b"PAR1")


def _dictionary(path: Path) -> None:
    """A category with 300,000 levels."""
    n = 300_000
    word = pa.DictionaryArray.from_arrays(pa.array(np.arange(n)), pa.array(map(str, range(n))))
    y = np.random.default_rng(0).normal(size=n)
    pq.write_table(pa.table({"g": ["a", "b"] * (n // 2), "word": word, "x": y, "y": y}), path)


def _nested(path: Path) -> None:
    """A column nested two hundred deep."""
    kind: Any = pa.float64()
    for _ in range(200):
        kind = pa.struct([("a", kind)])
    table = _table(300)
    pq.write_table(table.append_column("deep", pa.nulls(300, kind)), path)


BOMBS: dict[str, Callable[[Path], None]] = {
    "zeros.npz": _zeros,
    "shared.npz": _shared,
    "claims.npz": _claims,
    "bomb.csv.gz": _gzip_bomb,
    "bomb.arrow": _arrow_bomb,
    "rows.parquet": _many_rows,
    "levels.parquet": _dictionary,
    "nested.parquet": _nested,
}


@attack("small files that are huge in memory", tries=len(BOMBS), prepare=prepare)
def bombs(trial: Trial) -> str | None:
    name = list(BOMBS)[trial.number]
    BOMBS[name](trial.folder / name)
    memory = 1200 * MB if name.startswith("bomb.") else None
    ended = trial.prepared.commands.run(["fit", name, *FIT], trial.folder, memory=memory)
    most = {"bomb.csv.gz": 1700 * MB, "bomb.arrow": 1700 * MB, "levels.parquet": 1200 * MB}.get(
        name, MODEST
    )
    fault = _bounded(ended, name, "column", "'deep'", "'word'", most=most)
    return fault or (None if ended.code == 3 else f"{name}: exit code {ended.code}")


def _plain(n: int = 60) -> list[str]:
    rng = np.random.default_rng(1)
    x, e = rng.normal(size=n), 0.5 * rng.normal(size=n)
    return [f"{'ab'[i % 2]},{x[i]:.6f},{x[i] + e[i]:.6f}" for i in range(n)]


def _lines(path: Path, end: str = "\n", encoding: str = "utf-8", more: str = "") -> None:
    path.write_bytes((end.join(["g,x,y", *_plain(), ""]) + more).encode(encoding))


def _wide(path: Path) -> None:
    names = ",".join(f"c{j}" for j in range(20_000))
    rows = "\n".join(f"{'ab'[i % 2]},{i % 7}," + ",".join("01"[i % 2] * 20_000) for i in range(8))
    path.write_text(f"g,y,{names}\n{rows}\n")


def _one_line(path: Path) -> None:
    with path.open("wb") as file:
        file.write(b"g,x,y\n" + b"a,1,2\n" * 9 + b'b,1,"')
        for _ in range(300):
            file.write(b"x" * MB)


def _xlsx(path: Path) -> None:
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("[Content_Types].xml", "<Types/>")
        file.writestr("xl/workbook.xml", "\x1b[31m" * 50)


# Name, how to make it, options, and the exit codes that are right.
STRANGE: list[tuple[str, Callable[[Path], Any], list[str], tuple[int, ...]]] = [
    ("fifo.csv", os.mkfifo, [], (3,)),
    ("zero.csv", lambda path: path.symlink_to("/dev/zero"), [], (3,)),
    ("zero.parquet", lambda path: path.symlink_to("/dev/zero"), [], (3,)),
    ("zero.npz", lambda path: path.symlink_to("/dev/zero"), [], (3,)),
    ("folder.csv", lambda path: path.mkdir(), [], (3,)),
    ("book.xlsx", _xlsx, [], (3,)),
    ("book.xlsx", _xlsx, ["--format", "csv"], (3,)),
    ("book.csv", _xlsx, [], (3,)),
    ("crlf.csv", lambda path: _lines(path, "\r\n"), [], (0,)),
    ("cr.csv", lambda path: _lines(path, "\r"), [], (0, 3)),
    ("mixed.csv", lambda path: _lines(path, more="a,1,2\r\nb,2,1\r\n"), [], (0,)),
    ("bom.csv", lambda path: _lines(path, encoding="utf-8-sig"), [], (0,)),
    ("utf16.csv", lambda path: _lines(path, encoding="utf-16"), [], (3,)),
    ("utf16.csv", lambda path: _lines(path, encoding="utf-16"), ["--encoding", "utf-16"], (0,)),
    ("nul.csv", lambda path: _lines(path, more="a\0b,1,2\n\0\0,3,4\n"), [], (0, 3)),
    ("escape.csv", lambda path: _lines(path, more="a,\x1b[2J\x9b31m,2\n" * 9), [], (3,)),
    ("short.csv", lambda path: _lines(path, more="\x1b]0;owned\x07,2\n"), [], (3,)),
    ("twice.csv", lambda path: path.write_text("g,x,x,y\na,1,2,3\n"), [], (3,)),
    ("line.csv", _one_line, [], (3,)),
    ("wide.csv", _wide, [], (0, 3, 5)),
]  # fmt: skip


@attack("files that are not what their names say", tries=len(STRANGE), prepare=prepare)
def strange(trial: Trial) -> str | None:
    name, make, options, right = STRANGE[trial.number]
    make(trial.folder / name)
    args = ["fit", name, *FIT, *options]
    ended = trial.prepared.commands.run(args, trial.folder, memory=4000 * MB, timeout=40)
    fault = _bounded(ended, name, "column", most=2500 * MB if name == "wide.csv" else MODEST)
    if fault is not None or ended.code in right:
        return fault and f"{name}: {fault}"
    return f"{name}: exit code {ended.code}, {ended.err.strip()[-200:]}"


HOSTILE = (
    "=cmd|' /C calc'!A0", "+1+1", "-2+3", "@SUM(A1)", "\tx", "\x1b[31mred", "\x1b]0;owned\x07",
    "\x9b2J", "a\rb", "\u202egnp.exe", "\x00", "\x08\x08", "plain",
)  # fmt: skip


def _hostile(folder: Path, rng: np.random.Generator) -> str:
    """A table whose names and cells are hostile; returns the name of the column of text."""
    table = _table(200, int(rng.integers(100)))
    words = [str(word) for word in rng.choice(HOSTILE, 2, replace=False)]
    name = f"c{words[0]}"
    text = [f"{words[1]}{i % 5}" if i % 3 else words[1] for i in range(200)]
    group = [f"{word}\x1b[5m" if i % 2 else word for i, word in enumerate(table["g"].to_pylist())]
    table = table.set_column(0, "g", pa.array(group)).append_column(name, pa.array(text))
    pq.write_table(table, folder / "t.parquet")
    return name


def _on_a_terminal(args: list[Any], folder: Path) -> str:
    """What a command prints to a terminal, and to standard error."""
    ours, theirs = pty.openpty()
    with open(folder / "err", "wb") as err:
        process = subprocess.Popen(
            [sys.executable, "-m", "counterpoise", *map(str, args)],
            cwd=folder, stdin=subprocess.DEVNULL, stdout=theirs, stderr=err,
        )  # fmt: skip
        os.close(theirs)
        found = b""
        while True:
            try:
                part = os.read(ours, 1 << 16)
            except OSError:
                part = b""
            if not part:
                break
            found += part
        process.wait()
        os.close(ours)
    return (found + (folder / "err").read_bytes()).decode("utf-8", "surrogateescape")


@attack("control characters in names and cells, on a terminal", tries=6, prepare=prepare)
def terminal(trial: Trial) -> str | None:
    name = _hostile(trial.folder, trial.rng)
    fit = ["fit", "t.parquet", *FIT]
    escaped = name.replace(",", ",,")
    ended = trial.prepared.commands.run([*fit, "--out", "m"], trial.folder)
    fault = ended.fault("column")
    if fault is not None or ended.code:
        return fault
    kinds = [
        ["show", "m"],
        ["show", "m", "--json"],
        ["predict", "m", "t.parquet", "--with", escaped],
        [*fit, "--drop", "\x1b[31m"],
        ["predict", "m", "t.parquet", "--score"],
        ["diagnose", "t.parquet", *FIT[:-1]],
    ]
    printed = _on_a_terminal(kinds[trial.number % len(kinds)], trial.folder).replace("\r\n", "\n")
    printed = printed.replace("\x1b[0m", "")  # packages reset the colors of a terminal
    found = CONTROL.search(printed) or ("\r" in printed and "\r")
    if found:
        return f"{kinds[trial.number % len(kinds)][0]} prints a control character"
    return None if "Traceback" not in printed else "a traceback"


@attack("formulas in predictions for a spreadsheet", tries=12, prepare=prepare)
def formulas(trial: Trial) -> str | None:
    name = _hostile(trial.folder, trial.rng)
    run = trial.prepared.commands.run
    ended = run(["fit", "t.parquet", *FIT, "--out", "m"], trial.folder)
    if ended.code:
        return ended.fault("column")
    args = ["predict", "m", "t.parquet", "--with", f"{name.replace(',', ',,')},size"]
    ended = run([*args, "--spreadsheet-safe", "--out", "o.csv"], trial.folder)
    if ended.code:
        return f"exit code {ended.code}: {ended.err.strip()[-150:]}"
    with open(trial.folder / "o.csv", newline="", encoding="utf-8") as file:
        for row in csv.reader(file):
            if row[0].startswith(("=", "+", "-", "@", "\t", "\r")) or CONTROL.search("".join(row)):
                return f"the cell {row[0]!r}"
            if row[1] != "size" and not row[1].isdigit():
                return f"the number {row[1]!r}"
    return None


@attack("a full disk while predictions are written", tries=12, prepare=prepare)
def full_disk(trial: Trial) -> str | None:
    pq.write_table(_table(40_000), trial.folder / "big.parquet")
    name = ("o.csv", "o.parquet", "o.arrow")[trial.number % 3]
    old = trial.number % 2
    if old:
        (trial.folder / name).write_bytes(b"old")
    limit = int(trial.rng.integers(1, 300_000))
    ended = trial.prepared.commands.run(
        ["predict", trial.prepared.model(), "big.parquet", "--out", name, "--with", "x"],
        trial.folder, file_size=limit,
    )  # fmt: skip
    fault = ended.fault(name)
    if fault is not None or ended.code == 0:
        return fault or "it claims to have written more than fits"
    left = {path.name for path in trial.folder.iterdir()} - {"big.parquet"}
    if left != ({name} if old else set()):
        return f"left behind: {sorted(left)}"
    return None if not old or (trial.folder / name).read_bytes() == b"old" else "the old file"


def prepare_kills(folder: Path) -> Prepared:
    made = prepare(folder)
    pq.write_table(_table(1_500_000), folder / "big.parquet")
    ended = made.commands.run(["predict", "m", "big.parquet", "--out", "o.csv"], folder)
    assert ended.code == 0, ended.err
    return Prepared(made.commands, folder, (folder / "o.csv").read_bytes())


@attack("kill -9 while predictions are written", tries=6, prepare=prepare_kills)
def killed(trial: Trial) -> str | None:
    out, ready = trial.folder / "o.csv", trial.prepared
    args = ["predict", ready.model(), ready.folder / "big.parquet", "--out", out]
    process = subprocess.Popen(
        [sys.executable, "-m", "counterpoise", *map(str, args)],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    while process.poll() is None and not any(trial.folder.iterdir()):
        time.sleep(0.002)
    time.sleep(float(trial.rng.uniform(0, 0.5)))
    process.send_signal(signal.SIGKILL)
    process.wait()
    if out.exists() and out.read_bytes() != ready.predictions:
        return "a part of the predictions stands under the name of the whole"
    ended = ready.commands.run(args, trial.folder)
    if ended.code or out.read_bytes() != ready.predictions:
        return f"afterwards: exit code {ended.code}, {ended.err.strip()[-150:]}"
    return None


def prepare_scarce(folder: Path) -> Prepared:
    made = prepare(folder)
    pacsv.write_csv(_table(400_000), folder / "big.csv")
    pq.write_table(_table(1_000_000), folder / "big.parquet")
    return made


@attack("too little memory (ulimit -v)", tries=16, prepare=prepare_scarce)
def scarce(trial: Trial) -> str | None:
    name = ("big.csv", "big.parquet")[trial.number % 2]
    ended = trial.prepared.commands.run(
        ["fit", trial.prepared.folder / name, *FIT], trial.folder,
        memory=int(trial.rng.integers(1, 300)) * MB,
    )  # fmt: skip
    return ended.fault()


@attack("codes with leading zeros", tries=6, prepare=prepare)
def codes(trial: Trial) -> str | None:
    rng, run = trial.rng, trial.prepared.commands.run
    n, width = 300, int(rng.integers(2, 24))
    which, x = rng.integers(0, 9, n), rng.normal(size=n)
    y = x + (which == 3) * 5.0 + 0.1 * rng.normal(size=n)
    rows = [f"{which[i]:0{width}d},{x[i]:.6f},{y[i]:.6f},{'ab'[i % 2]}" for i in range(n)]
    (trial.folder / "t.csv").write_text("\n".join(["zip,x,y,g", *rows]) + "\n")
    ended = run(["fit", "t.csv", *FIT, "--out", "m"], trial.folder)
    shown = run(["show", "m", "--json"], trial.folder)
    if ended.code or shown.code:
        return ended.err or shown.err
    names = json.loads(shown.out)["coefficients"]
    if f"zip={3:0{width}d}" not in names:
        return f"the code became a number: {list(names)[:3]}"
    (trial.folder / "new.csv").write_text(f"zip,x\n{3:0{width}d},0\n{4:0{width}d},0\n")
    made = run(["predict", "m", "new.csv"], trial.folder)
    first, second = (float(line) for line in made.out.split()[1:])
    return None if 4 < first - second < 6 else f"predictions differ by {first - second:g}"


@attack("row numbers that give the target away", tries=6, prepare=prepare)
def row_numbers(trial: Trial) -> str | None:
    name = ("rownames", "id", "Unnamed: 0", "index", "row_id", "obs")[trial.number]
    table = _table(300, trial.number).sort_by("y")
    at = np.arange(300) if trial.number % 2 else np.arange(1, 301)
    table = table.add_column(0, name, pa.array(at)).append_column("copy", table["y"])
    pacsv.write_csv(table, trial.folder / "t.csv")
    run = trial.prepared.commands.run
    for command in (["fit", "t.csv", *FIT], ["diagnose", "t.csv", *FIT[:-1]]):
        said = run(command, trial.folder)
        printed = " ".join(said.out.split())
        if said.code not in (0, 5) or f"column '{name}' numbers the rows" not in printed:
            return f"{command[0]} says nothing of the row numbers {name!r}"
        if "column 'copy' alone explains" not in printed:
            return f"{command[0]} says nothing of a copy of the target"
    return None
