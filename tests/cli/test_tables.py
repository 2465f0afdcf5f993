"""Commands over tables, as a user calls them: files in, files and text out, exit codes."""

import io
import json
import os
import pty
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from counterpoise import GroupDRONeuron, GroupDRONeuronCV, load
from counterpoise.cli.main import main
from counterpoise.rows.compilation import MESSAGE
from counterpoise.storage.models import load_fit


def table(n=600, seed=0):
    rng = np.random.default_rng(seed)
    region = rng.choice(["north", "south", "NA"], size=n, p=[0.7, 0.2, 0.1])
    kind = rng.choice(["a", "b", "c"], size=n)
    size = rng.normal(size=n)
    slope = {"north": 1.0, "south": 1.5, "NA": 3.0}
    y = size * np.vectorize(slope.get)(region) + (kind == "b") + 0.1 * rng.normal(size=n)
    return {"region": region, "kind": kind, "size": size, "weight": rng.uniform(1, 2, n), "y": y}


def write_csv(path, columns):
    names = list(columns)
    rows = zip(*columns.values(), strict=True)
    lines = [",".join(names)]
    lines += [",".join(v if isinstance(v, str) else repr(float(v)) for v in row) for row in rows]
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture
def data(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return write_csv(tmp_path / "data.csv", table())


def run(capsys, *args, code=0):
    ended = main([str(word) for word in args])
    printed = capsys.readouterr()
    assert ended == code, printed.err
    return printed


def fit_args(*more):
    return ["fit", "data.csv", "--target", "y", "--group", "region", "--drop", "weight", *more]


def encoded(columns):
    kinds = [k for k in ("a", "b", "c") if k != base(columns)]
    return np.column_stack(
        [*(np.asarray(columns["kind"]) == k for k in kinds), columns["size"]]
    ).astype(float)


def base(columns):
    values, counts = np.unique(columns["kind"], return_counts=True)
    return values[np.argmax(counts)]


def test_fit_stores_what_python_would_fit(data, capsys):
    shown = run(capsys, *fit_args("--out", "fit", "--nu", "0.05"))
    columns = table()
    expected = GroupDRONeuron("identity", nu=0.05).fit(
        encoded(columns), columns["y"], groups=columns["region"]
    )
    model, record = load_fit("fit")
    np.testing.assert_allclose(model[-1].coef_, expected.coef_, rtol=1e-9)
    assert model[-1].groups_.tolist() == ["NA", "north", "south"]  # a group called NA is a group
    assert model[0].layout_.group == ("region",)
    np.testing.assert_array_equal(model.predict(columns), model[-1].predict(encoded(columns)))
    assert record.command == (
        "counterpoise fit data.csv --target y --group region --drop weight --out fit --nu 0.05"
    )
    assert record.data.rows == 600
    assert record.comparison.held_out
    assert record.comparison.ours.worst.value < record.comparison.plain.worst.value
    assert record.residuals.ours.shape == (3, 5)
    assert record.diagnosis["south"].rows == int((columns["region"] == "south").sum())
    words = " ".join(shown.out.split())
    assert words.startswith(" ".join(str(record).split()))  # the answer first
    assert record.price in words
    before, after = record.comparison.plain.worst.value, record.comparison.ours.worst.value
    assert shown.out.startswith(f"Worst group's error: {before**0.5:.4g} -> {after**0.5:.4g} (")
    assert "Proved: no other coefficients lower the objective" in words
    whole = " ".join(run(capsys, "show", "fit", "--proof").out.split())
    assert "duality gap" in whole
    assert "duality gap" not in " ".join(run(capsys, "show", "fit").out.split())
    # nothing but results, where nobody watches; kernels are compiled once
    assert shown.err in ("", f"{MESSAGE}\n")


def test_json_says_the_same(data, capsys):
    found = json.loads(run(capsys, *fit_args("--json", "--out", "fit")).out)
    model = load("fit")[-1]
    assert [g["group"] for g in found["groups"]] == model.groups_.tolist()
    np.testing.assert_allclose([g["risk"] for g in found["groups"]], model.group_risks_, rtol=1e-12)
    assert found["held_out"]["ours"]["worst"]["value"] == max(
        g["ours"]["value"] for g in found["groups"]
    )
    assert found["converged"] is True
    shown = json.loads(run(capsys, "show", "fit", "--json").out)
    assert list(shown["coefficients"].values()) == model.coef_.tolist()
    assert shown["record"]["data"]["target"] == "y"


@pytest.mark.slow
def test_cross_validated(data, capsys):
    shown = run(capsys, *fit_args("--cv", "--folds", "3", "--out", "fit"))
    pipeline, record = load_fit("fit")
    model = pipeline[-1]
    assert isinstance(model, GroupDRONeuronCV)
    assert model.verdict_.split(". ")[0] in " ".join(shown.out.split())
    plain = json.loads(run(capsys, *fit_args("--folds", "3", "--json")).out)["held_out"]["plain"]
    assert plain["worst"]["value"] == pytest.approx(model.plain_intervals_.worst.value, rel=1e-6)
    assert record.comparison.ours.values.tolist() == model.intervals_.values.tolist()
    text = run(capsys, "show", "fit").out
    assert model.verdict_ in " ".join(text.split())
    assert "GroupDRONeuronCV" in text
    assert "kind=" in text


def test_every_format_gives_the_same_model(data, tmp_path, capsys):
    import pyarrow as pa
    import pyarrow.feather
    import pyarrow.parquet

    columns = table()
    frame = pa.table(columns)
    pa.parquet.write_table(frame, "data.parquet")
    pa.feather.write_feather(frame, "data.arrow", compression="uncompressed")
    np.savez("data.npz", **columns)
    coefs = []
    for name in ("data.csv", "data.parquet", "data.arrow", "data.npz"):
        args = fit_args("--bare", "--out", f"{name}.fit")
        args[1] = name
        run(capsys, *args)
        coefs.append(load(f"{name}.fit")[-1].coef_)
    for coef in coefs[1:]:
        np.testing.assert_allclose(coef, coefs[0], rtol=1e-12)


@pytest.mark.slow
def test_parquet_too_large_for_memory_is_read_in_chunks(data, capsys, monkeypatch):
    import pyarrow as pa
    import pyarrow.parquet

    pa.parquet.write_table(pa.table(table(3000)), "data.parquet")
    args = fit_args("--out", "whole", "--json")
    args[1] = "data.parquet"
    whole = json.loads(run(capsys, *args).out)
    monkeypatch.setattr("counterpoise.tabular.fit.fits_in_memory", lambda *_: False)
    args[args.index("whole")] = "parts"
    parts = json.loads(run(capsys, *args).out)
    assert (whole["engine"], parts["engine"]) == ("memory", "chunked")
    np.testing.assert_allclose(load("whole")[-1].coef_, load("parts")[-1].coef_, rtol=1e-6)
    # judged on the rows themselves, and so near what was held out
    assert parts["held_out"]["held_out"] is False
    assert parts["held_out"]["ours"]["worst"]["value"] == pytest.approx(
        max(g["risk"] for g in whole["groups"]), rel=1e-6
    )
    assert load_fit("parts")[1].residuals.ours.shape == (3, 5)
    # and one that chooses, on a sample
    args[args.index("parts")] = "chosen"
    chosen = json.loads(run(capsys, *args, "--cv").out)
    assert any("chosen on all rows" in note for note in chosen["notes"])
    whole_cv = json.loads(run(capsys, *args, "--cv", "--in-memory").out)
    assert chosen["nu"] == pytest.approx(whole_cv["nu"], rel=1e-6)
    np.testing.assert_allclose(
        [g["risk"] for g in chosen["groups"]], [g["risk"] for g in whole_cv["groups"]], rtol=1e-5
    )


def test_weights_and_crossed_groups(data, capsys):
    args = ["fit", "data.csv", "-y", "y", "-g", "region,kind", "--weight", "weight", "--bare"]
    run(capsys, *args, "--out", "fit")
    model, columns = load("fit")[-1], table()
    groups = [f"{r} | {k}" for r, k in zip(columns["region"], columns["kind"], strict=True)]
    expected = GroupDRONeuron("identity").fit(
        columns["size"][:, None], columns["y"], groups=groups, sample_weight=columns["weight"]
    )
    assert model.groups_.tolist() == sorted(set(groups))
    np.testing.assert_allclose(model.coef_, expected.coef_, rtol=1e-9)


def test_predict(data, tmp_path, capsys):
    import pandas as pd

    run(capsys, *fit_args("--bare", "--out", "fit"))
    fresh = table(50, seed=1)
    write_csv(Path("new.csv"), {k: fresh[k] for k in ("size", "kind", "region")})
    model = load("fit")
    shown = run(capsys, "predict", "fit", "new.csv")
    printed = pd.read_csv(io.StringIO(shown.out))
    expected = model.predict(fresh)
    np.testing.assert_allclose(printed["prediction"], expected, rtol=1e-12)
    # a frame with the columns themselves, in Python
    frame = pd.DataFrame({"kind": fresh["kind"], "size": fresh["size"]})
    np.testing.assert_array_equal(model.predict(frame), expected)
    for suffix, read in ((".csv", pd.read_csv), (".parquet", pd.read_parquet)):
        out = f"out{suffix}"
        run(capsys, "predict", "fit", "new.csv", "--out", out, "--with", "kind")
        found = read(out)
        assert list(found) == ["kind", "prediction"]
        np.testing.assert_allclose(found["prediction"], expected, rtol=1e-12)
    shown = run(capsys, "predict", "fit", "data.csv", "--score", "--json")
    scored = json.loads(shown.out)
    neuron = model[-1]
    risks = dict(zip(neuron.groups_.tolist(), neuron.group_risks_, strict=True))
    for name, risk in risks.items():
        assert scored["groups"][name]["value"] == pytest.approx(risk, rel=1e-9)
    assert "Worst group's" in run(capsys, "predict", "fit", "data.csv", "--score").out


def test_rows_that_miss_a_value(data, capsys):
    lines = Path("data.csv").read_text().splitlines()
    cells = lines[1].split(",")
    cells[2] = ""
    lines[1] = ",".join(cells)
    Path("data.csv").write_text("\n".join(lines))
    refused = run(capsys, *fit_args(), code=3)
    assert "'size'" in refused.err
    assert "--missing impute" in refused.err
    shown = run(capsys, *fit_args("--missing", "drop", "--out", "fit"))
    assert "1 of 600 rows have a missing value and were left out" in shown.out
    shown = run(capsys, "predict", "fit", "data.csv")
    assert shown.out.splitlines()[1] == ""
    assert len(shown.out.splitlines()) == 601
    assert "1 of 600 rows have a missing feature" in shown.err
    shown = run(capsys, *fit_args("--missing", "impute", "--out", "fit"))
    assert "1 missing value(s) of 'size' were filled in" in shown.out
    assert "nan" not in run(capsys, "predict", "fit", "data.csv").out


def test_categories_never_seen(data, capsys):
    run(capsys, *fit_args("--bare", "--out", "fit"))
    Path("new.csv").write_text("kind,size\nzebra,1.0\n")
    refused = run(capsys, "predict", "fit", "new.csv", code=3)
    assert "zebra" in refused.err
    assert "--unseen base" in refused.err
    run(capsys, "predict", "fit", "new.csv", "--unseen", "base")
    # no file is left behind by a prediction that fails on its way
    run(capsys, "predict", "fit", "new.csv", "--out", "p.csv", code=3)
    assert not Path("p.csv").exists()
    assert not list(Path().glob(".p*"))


@pytest.mark.slow
def test_diagnose_frontier_compare(data, capsys):
    base = ["data.csv", "-y", "y", "-g", "region", "--drop", "weight"]
    text = run(capsys, "diagnose", *base).out
    assert text.startswith("Yes, a worst-group fit pays here")
    assert "south" not in text
    assert "Advice:" in run(capsys, "diagnose", *base, "--details").out
    found = json.loads(run(capsys, "diagnose", *base, "--json").out)
    assert {g["label"] for g in found["groups"]} == {"NA", "north", "south"}
    assert found["worth"]["answer"] == "yes"

    text = run(capsys, "frontier", *base, "--folds", "3", "--plot", "f.png").out
    assert "* chosen" in text
    assert Path("f.png").read_bytes()[:4] == b"\x89PNG"
    found = json.loads(run(capsys, "frontier", *base, "--folds", "3", "--json").out)
    best = found["candidates"][found["chosen"]]
    assert best["worst"] <= found["candidates"][0]["worst"]

    text = run(capsys, "compare", *base, "--folds", "3", "--out", "all.json").out
    rows = json.loads(Path("all.json").read_text())
    assert [row["method"] for row in rows if row["method"] in text] == [r["method"] for r in rows]
    assert len(rows) == 15  # the average neuron is least squares here
    worst = [row["worst"]["value"] for row in rows]
    assert worst == sorted(worst)
    by_name = {row["method"]: row for row in rows}
    assert by_name["ours-cv"]["worst"]["value"] < by_name["least-squares"]["worst"]["value"]
    for row in rows:
        assert max(g["value"] for g in row["groups"].values()) == row["worst"]["value"]
        # what did not converge is marked
        assert (f"\n{row['method']}* " in text) == bool(row["not_converged"])
    assert by_name["mirror"]["status"] is None or by_name["mirror"]["not_converged"]
    only = json.loads(
        run(capsys, "compare", *base, "-a", "relu", "-m", "average", "-m", "ours", "--json").out
    )
    assert {row["method"] for row in only} == {"average", "ours"}


def test_rows_that_weigh_nothing_are_left_out(tmp_path, monkeypatch, capsys):
    """Also where a whole group does: every figure stays with its own group."""
    import pyarrow as pa
    import pyarrow.parquet

    monkeypatch.chdir(tmp_path)
    columns = table(900)
    for nothing in ("NA", "south"):  # the first and the last group
        columns["weight"] = np.where(columns["region"] == nothing, 0.0, 1.0)
        pa.parquet.write_table(pa.table(columns), "data.parquet")
        args = ["fit", "data.parquet", "-y", "y", "-g", "region", "--weight", "weight", "--json"]
        kept = columns["region"] != nothing
        pa.parquet.write_table(pa.table({k: v[kept] for k, v in columns.items()}), "kept.parquet")
        whole = json.loads(run(capsys, *args, "--out", "fit").out)
        few = json.loads(run(capsys, *(a.replace("data", "kept") for a in args)).out)
        assert [g["group"] for g in whole["groups"]] == [g["group"] for g in few["groups"]]
        for one, other in zip(whole["groups"], few["groups"], strict=True):
            assert one["ours"] == pytest.approx(other["ours"], rel=1e-6)
            assert one["effective_rows"] == other["effective_rows"]
        assert whole["rows"] == int(kept.sum())
        parts = json.loads(run(capsys, *args, "--chunked").out)
        assert [g["group"] for g in parts["groups"]] == [g["group"] for g in few["groups"]]
        run(capsys, "report", "fit")
        scored = json.loads(run(capsys, "predict", "fit", "data.parquet", "--score", "--json").out)
        assert scored["left_out"] == int((~kept).sum())


@pytest.mark.parametrize("engine", ["--in-memory", "--chunked"])
def test_risks_are_of_labels_as_they_are(data, capsys, engine):
    args = fit_args("--truncate", "0.5", "--json", "--out", "fit", engine)
    columns, found = table(), json.loads(run(capsys, *args, "--bare").out)
    model = load("fit")
    left = (columns["y"] - model.predict(columns)) ** 2
    for group in found["groups"]:
        mine = left[columns["region"] == group["group"]]
        assert group["risk"] == pytest.approx(mine.mean(), rel=1e-9)
    assert model[-1].group_risks_.max() < max(g["risk"] for g in found["groups"])  # clipped labels


def test_nothing_is_lost_where_a_model_cannot_be_stored(data, capsys, monkeypatch):
    Path("taken").mkdir()
    Path("taken/model.json").write_text("{}")
    refused = run(capsys, *fit_args("--out", "taken"), code=1)  # before any row is read
    assert "choose another folder" in refused.err
    assert refused.out == ""

    def full(*_):
        raise OSError("no space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("counterpoise.storage.models.replacing", full)
        told = run(capsys, *fit_args("--out", "new", "--bare"), code=1)
    assert "least squares" in told.out
    assert "no space left" in told.err
    run(capsys, *fit_args("--out", "none", "--missing", "drop", "--drop", "size,kind"), code=3)
    assert not Path("none").exists()
    run(capsys, "frontier", "data.csv", "-y", "y", "--plot", "f.xyz", code=2)
    run(capsys, "compare", "data.csv", "-y", "y", "--out", "no/where.json", code=2)


def test_folds_are_as_many_as_the_rows_allow(data, capsys):
    lines = Path("data.csv").read_text().splitlines()
    Path("data.csv").write_text("\n".join(lines[:20]))
    shown = run(capsys, *fit_args("--folds", "500"))
    largest = max(np.unique(table()["region"][:19], return_counts=True)[1])
    assert f"in {largest} folds" in shown.out


def test_scores_need_the_target_alone(data, capsys):
    run(capsys, *fit_args("--bare", "--out", "fit"))
    columns = table()
    write_csv(Path("new.csv"), {k: columns[k] for k in ("kind", "size", "y")})
    text = run(capsys, "predict", "fit", "new.csv", "--score").out
    left = (columns["y"] - load("fit").predict(columns)) ** 2
    assert f"all rows: {left.mean() ** 0.5:.4g}." in text
    write_csv(Path("new.csv"), {k: columns[k] for k in ("kind", "size")})
    assert "'y'" in run(capsys, "predict", "fit", "new.csv", "--score", code=3).err


@pytest.mark.slow
def test_whoever_reads_may_stop(data):
    main(fit_args("--bare", "--out", "fit"))
    command = f"{sys.executable} -m counterpoise predict fit data.csv | head -1"
    done = subprocess.run(command, shell=True, capture_output=True, text=True)
    assert done.stdout == '"prediction"\n'
    assert "Traceback" not in done.stderr


def test_caution_where_it_does_not_help(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    n = 60
    columns = {f"x{j}": rng.normal(size=n) for j in range(8)}
    columns |= {"g": np.repeat(["big", "tiny"], [50, 10]), "y": rng.standard_t(2, size=n)}
    write_csv(tmp_path / "data.csv", columns)
    shown = run(capsys, "fit", "data.csv", "-y", "y", "-g", "g", "--nu", "0")
    assert "this fit does not help the worst group" in " ".join(shown.out.split())


def test_exit_codes(data, capsys):
    assert "Missing option '--target'" in run(capsys, "fit", "data.csv", code=2).err
    run(capsys, "fit", "none.csv", "--target", "y", code=1)
    wrong = run(capsys, "fit", "data.csv", "--target", "sise", code=3)
    assert "did you mean 'size'" in wrong.err
    run(capsys, *fit_args("--nu", "-1"), code=2)
    run(capsys, *fit_args("--cv", "--nu", "1"), code=2)
    Path("file").write_text("")
    run(capsys, *fit_args("--out", "file"), code=2)
    run(capsys, "predict", "nowhere", "data.csv", code=4)
    run(capsys, "report", "nowhere", code=4)
    Path("empty").mkdir()
    assert "neither a fit" in run(capsys, "report", "empty", code=4).err
    run(capsys, *fit_args("--bare", "--out", "fit"))
    model = Path("fit/model.json")
    model.write_text(model.read_text()[:-50])
    refused = run(capsys, "predict", "fit", "data.csv", code=4)
    assert "damaged" in refused.err
    unsettled = run(
        capsys, *fit_args("--activation", "relu", "--max-iter", "1", "--no-polish", "--out",
                          "short"), code=5
    )  # fmt: skip
    advice = "Raise --max-iter or --tol, or leave out --no-polish."
    assert "Raise max_iter or tol, or use polish=True." in load("short")[-1].status_
    assert advice in unsettled.out.replace("\n", " ")
    assert advice in run(capsys, "show", "short").out
    assert run(capsys, "--help").out.count("Exit codes") == 1


@pytest.mark.parametrize(
    ("flag", "value"),
    [("--radius", -1), ("--truncate", 0), ("--tol", -1), ("--tol", "nan"), ("--max-iter", 0)],
)
def test_numbers_out_of_range_are_refused_by_their_flag(flag, value, data, capsys):
    refused = run(capsys, *fit_args(flag, value), code=2).err
    assert f"Invalid value for '{flag}'" in refused


def test_a_choice_that_did_not_converge_is_noted(data, capsys, monkeypatch):
    fitted = GroupDRONeuronCV.fit

    def fit(self, *args, **kwargs):
        warnings.warn("Raise max_iter.", ConvergenceWarning, stacklevel=2)
        return fitted(self, *args, **kwargs)

    monkeypatch.setattr(GroupDRONeuronCV, "fit", fit)
    shown = run(capsys, *fit_args("--cv", "--folds", "2", "--chunked", "--bare"))
    assert "Note: a fit to the sample did not converge: Raise --max-iter." in shown.out


def test_a_model_of_arrays_has_no_columns(data, capsys):
    columns = table()
    GroupDRONeuron("identity").fit(columns["size"][:, None], columns["y"]).save("plain")
    refused = run(capsys, "predict", "plain", "data.csv", code=2)
    assert "fitted to arrays" in refused.err
    assert "GroupDRONeuron" in run(capsys, "show", "plain").out


def test_export_answers_as_predict_does(data, capsys):
    import onnxruntime

    run(capsys, *fit_args("--bare", "--out", "fit"))
    run(capsys, "export", "fit", "model.onnx")
    model, fresh = load("fit"), table(20, seed=2)
    X = model[0].transform(fresh)
    session = onnxruntime.InferenceSession("model.onnx")
    (found,) = session.run(None, {"X": X})
    np.testing.assert_allclose(found, model.predict(fresh), rtol=1e-12)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts(shell, capsys):
    assert "_COUNTERPOISE_COMPLETE" in run(capsys, "completion", shell).out


@pytest.mark.slow
def test_completion_completes(monkeypatch):
    command = [sys.executable, "-m", "counterpoise"]
    env = {"_COUNTERPOISE_COMPLETE": "bash_complete", "COMP_WORDS": "counterpoise fr", "PATH": ""}
    done = subprocess.run(
        [*command], env={**env, "COMP_CWORD": "1"}, capture_output=True, text=True
    )
    assert "frontier" in done.stdout


@pytest.mark.slow
def test_a_line_on_a_terminal_tells_what_is_under_way(data):
    """A real terminal: the line is drawn and taken away again; results go elsewhere."""
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "counterpoise", *fit_args()]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=theirs) as process:
        printed = process.stdout.read().decode()
        assert process.wait() == 0
    with open(ours, "rb", buffering=0) as stream, open(theirs, "wb", buffering=0) as other:
        other.write(b"END")
        shown = b""
        while not shown.endswith(b"END"):
            shown += stream.read(1 << 16)
    assert b"reading data.csv" in shown
    *_, cleared, rest = shown.removesuffix(b"END").split(b"\r")
    assert not cleared.strip()  # overwritten with blanks
    assert not rest
    assert "least squares" in printed
    assert "\r" not in printed


def test_a_model_that_is_replaced_takes_its_report_along(data, capsys):
    first = run(capsys, *fit_args("--out", "m", "--bare"))
    assert "Stored in m. For a report" in first.out
    run(capsys, "report", "m")
    assert Path("m/report.html").exists()
    second = run(capsys, *fit_args("--out", "m", "--bare", "--nu", "3"))
    assert "Stored in m, in place of the model that was there. For a report" in second.out
    assert "report.html described the model that was replaced, and was removed" in second.err
    assert not Path("m/report.html").exists()


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes")
def test_special_files_in_a_model_are_one_line(data, capsys):
    run(capsys, *fit_args("--out", "m", "--bare"))
    Path("m/model.json").unlink()
    os.mkfifo("m/model.json")
    for command in (["show", "m"], ["predict", "m", "data.csv"]):
        told = run(capsys, *command, code=4)
        assert told.err.startswith("error: 'm/model.json' is a named pipe, not a file")
        assert told.err.count("\n") == 1
    told = run(capsys, *fit_args("--out", "m"), code=1)
    assert "choose another folder" in told.err


def test_regions_are_certified_unless_told_otherwise(data, capsys):
    shown = run(capsys, *fit_args("--activation", "relu", "--out", "fit")).out
    assert " ".join(shown.split()).count("This rests on the rows alone.") == 1
    assert load("fit").steps[-1][1].certificate_.regions
    told = json.loads(run(capsys, *fit_args("--activation", "relu", "--json")).out)
    assert told["regions"][0]["gap"] <= told["regions"][-1]["gap"]
    plain = run(capsys, *fit_args("--activation", "relu", "--certificate", "run")).out
    assert "Not proved: the activation makes the problem nonconvex" in " ".join(plain.split())
    bare = run(capsys, *fit_args("--activation", "relu", "--bare")).out
    assert "This rests on the rows alone" not in " ".join(bare.split())
    theorem = fit_args("--activation", "relu", "--certificate", "theorem", "--out", "long")
    run(capsys, *theorem)
    theorem = run(capsys, "show", "long", "--proof").out
    assert "It bounds no distance here, because the sharpness" in " ".join(theorem.split())
    refused = run(capsys, *fit_args("--loss", "huber", "--certificate", "region"), code=2).err
    assert "--certificate is for neurons" in refused


def slopes(n=900):
    """Three regions that differ in slope and level: the region is the better feature."""
    rng = np.random.default_rng(3)
    region = rng.choice(["a", "b", "c"], n, p=[0.7, 0.2, 0.1])
    size = rng.normal(size=n)
    slope, level = ({"a": 1.0, "b": 2.0, "c": -1.0}, {"a": 0.0, "b": 3.0, "c": -4.0})
    y = np.array([slope[r] * x + level[r] for r, x in zip(region, size, strict=True)])
    return {"size": size, "region": region, "y": y + 0.1 * rng.normal(size=n)}


def test_a_known_group_is_used(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    columns = slopes()
    write_csv(tmp_path / "data.csv", columns)
    base = ["fit", "data.csv", "-y", "y", "-g", "region"]
    plain = run(capsys, *base, "--cv").out
    words = " ".join(plain.split())
    assert "if region is known when you predict, use it: least squares with region" in words
    assert "Add --group-known." in words
    shown = run(capsys, *base, "--group-known", "--out", "fit").out
    assert "Use the group: one fit per group holds up best." in " ".join(shown.split())
    assert "Proved" not in shown  # nothing is proved about fits of single groups
    model = load("fit")
    groups = model[0].group_labels(columns)
    assert groups.tolist() == columns["region"].tolist()
    expected = model.predict(columns, groups=groups)
    assert np.mean((expected - columns["y"]) ** 2) < 0.02
    printed = run(capsys, "predict", "fit", "data.csv").out.split()[1:]
    np.testing.assert_allclose(np.array(printed, dtype=float), expected, rtol=1e-12)
    scored = json.loads(run(capsys, "predict", "fit", "data.csv", "--score", "--json").out)
    assert scored["rmse"]["average"] == pytest.approx(
        np.mean((expected - columns["y"]) ** 2) ** 0.5
    )
    run(capsys, "report", "fit")
    run(capsys, "show", "fit")
    write_csv(tmp_path / "less.csv", {"size": columns["size"]})
    assert "'region'" in run(capsys, "predict", "fit", "less.csv", code=3).err
    strange = {**columns, "region": np.where(columns["region"] == "c", "d", columns["region"])}
    write_csv(tmp_path / "other.csv", strange)
    refused = " ".join(run(capsys, "predict", "fit", "other.csv", code=3).err.split())
    assert "the group 'd' was not among the rows of the fit" in refused
    assert "--unseen base" in refused
    allowed = run(capsys, "predict", "fit", "other.csv", "--unseen", "base").out.split()[1:]
    same = strange["region"] != "d"
    np.testing.assert_allclose(np.array(allowed, dtype=float)[same], expected[same], rtol=1e-12)


def test_costs_can_be_limited(data, capsys):
    dear = json.loads(run(capsys, *fit_args("--cv", "--folds", "3", "--json")).out)["held_out"]
    limited = json.loads(
        run(capsys, *fit_args("--cv", "--folds", "3", "--max-cost", "0.05", "--json")).out
    )
    for name, most in ((dear, 2.0), (limited["held_out"], 1.05)):
        rise = name["ours"]["rmse"]["average"] / name["plain"]["rmse"]["average"]
        assert rise <= most + 0.05  # of other rows than those that chose
    assert dear["ours"]["rmse"]["average"] > 1.2 * dear["plain"]["rmse"]["average"]
    assert (
        "--max-cost is for cross-validation"
        in run(capsys, *fit_args("--max-cost", "0.05"), code=2).err
    )
