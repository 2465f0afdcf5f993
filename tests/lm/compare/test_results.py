"""A study's table: to files and back, gathered from runs, and the metrics it is read by."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lm_studies import curves, scores, study

from counterpoise.lm.compare.results import LOSS_KINDS, Results, read_results, write_results
from counterpoise.lm.compare.scores import TASK_KINDS
from counterpoise.storage import files as disk

TWO = curves({"x": [[[1.0, 3.0], [2.0, 0.5]]], "y": [[[5.0, 4.0], [1.0, 1.0]]]}, domains=("a", "b"))


def assert_same(found, wanted, rtol=0.0):
    for kinds, have, want in (
        (LOSS_KINDS, found, wanted),
        (TASK_KINDS, found.tasks, wanted.tasks),
    ):
        for name in kinds:
            a, b = getattr(have, name), getattr(want, name)
            if a.dtype.kind == "f":
                np.testing.assert_allclose(a, b, rtol=rtol, err_msg=name)
            else:
                assert a.tolist() == b.tolist(), name


def test_results_come_back_to_six_digits_and_then_exactly(tmp_path):
    tasks = scores([("dro", 0, 400, "quiz, hard", "acc", 1 / 3), ("dro", 1, 400, "qa", "f1", 0.5)])
    results = study({"static": 0.0, "dro": -0.03}, seeds=2, evaluations=3).with_tasks(tasks)
    results.share[::2] = math.nan
    write_results(tmp_path / "a", results)
    found = read_results(tmp_path / "a")
    assert_same(found, results, rtol=5e-6)
    assert np.abs(found.loss - results.loss).max() > 0, "six digits are not all"
    write_results(tmp_path / "b", found)
    for name in ("losses.csv", "tasks.csv"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()
    assert sorted(path.name for path in (tmp_path / "a").iterdir()) == ["losses.csv", "tasks.csv"]
    assert b"\r" not in (tmp_path / "a" / "losses.csv").read_bytes()


names = st.text(alphabet="ab ,;\"'\n|é三", min_size=1, max_size=6)
floats = st.floats(width=32, allow_infinity=False)


@given(
    run=names,
    domains=st.lists(names, min_size=1, max_size=3, unique=True),
    losses=st.lists(floats, min_size=3, max_size=3),
    seed=st.integers(0, 2**62),
)
@settings(max_examples=40, deadline=None)
def test_any_names_and_numbers_come_back(tmp_path_factory, run, domains, losses, seed):
    n = len(domains)
    missing = [math.nan] * n
    results = Results(
        run=[run] * n, seed=[seed] * n, step=[7] * n, tokens=[2**60] * n, domain=domains,
        loss=losses[:n], driving_loss=missing, weight=missing, share=missing, epochs=missing,
    )  # fmt: skip
    folder = tmp_path_factory.mktemp("results")
    write_results(folder, results)
    assert_same(read_results(folder), results, rtol=5e-6)


def test_tasks_of_earlier_results_do_not_stay_behind(tmp_path):
    write_results(tmp_path, TWO.with_tasks(scores([("x", 0, 200, "qa", "acc", 0.5)])))
    assert len(read_results(tmp_path).tasks) == 1
    write_results(tmp_path, TWO)
    assert len(read_results(tmp_path).tasks) == 0
    (tmp_path / "tasks.csv").unlink()
    assert len(read_results(tmp_path).tasks) == 0


def test_a_crash_leaves_the_old_results(tmp_path, monkeypatch):
    write_results(tmp_path, TWO)
    before = (tmp_path / "losses.csv").read_bytes()

    def full(_):
        raise OSError("no space left")

    monkeypatch.setattr(disk.os, "fsync", full)
    with pytest.raises(OSError, match="no space"):
        write_results(tmp_path, study({"z": 0.0}, seeds=1, evaluations=1))
    assert (tmp_path / "losses.csv").read_bytes() == before


@pytest.mark.parametrize(
    ("line", "old", "new", "message"),
    [
        (3, ",3,", ",three,", r"losses\.csv', line 3: loss must be a number or nothing.*'three'"),
        (2, "x,0,", "x,0.5,", r"line 2: seed must be a whole number; got '0\.5'"),
        (2, "x,0,", ",0,", r"line 2: run must be a name"),
        (4, "x,0,", "x,", r"line 4: 10 cells are needed; got 9"),
        (4, "x,0,", '"x"y,0,', r"line 4: .*expected after"),
        (1, "driving_loss", "driving", r"line 1: the columns must be .*driving_loss"),
        (2, "x,0,", "x,1,", r"losses\.csv': run 'x', seed 0, step 1 .*got \['b'\]"),
    ],
)
def test_a_bad_row_is_named(tmp_path, line, old, new, message):
    write_results(tmp_path, TWO)
    path = tmp_path / "losses.csv"
    lines = path.read_text().splitlines(keepends=True)
    assert old in lines[line - 1]
    lines[line - 1] = lines[line - 1].replace(old, new, 1)
    path.write_text("".join(lines))
    with pytest.raises(ValueError, match=message):
        read_results(tmp_path)


def test_columns_may_stand_in_another_order_and_a_missing_file_is_named(tmp_path):
    write_results(tmp_path, TWO)
    path = tmp_path / "losses.csv"
    rows = [line.split(",")[::-1] for line in path.read_text().splitlines()]
    path.write_text("".join(",".join(row) + "\n" for row in rows))
    assert_same(read_results(tmp_path), TWO)
    path.unlink()
    with pytest.raises(FileNotFoundError, match=r"losses\.csv"):
        read_results(tmp_path)


def columns(**changes):
    """Two evaluations of two domains."""
    plain = {
        "run": ["x"] * 4, "seed": [0] * 4, "step": [1, 1, 2, 2], "tokens": [10, 10, 20, 20],
        "domain": ["a", "b"] * 2,
    }  # fmt: skip
    plain |= {name: [1.0] * 4 for name, kind in LOSS_KINDS.items() if kind is float}
    return plain | changes


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"domain": ["a", "b", "a", "a"]}, ValueError, r"step 2 must have .*got \['a', 'a'\]"),
        ({"step": [1, 1, 1, 1]}, ValueError, r"step 1 must have each"),
        ({"tokens": [10, 11, 20, 20]}, ValueError, "one number for all domains"),
        ({"tokens": [10, 10, 10, 10]}, ValueError, "grow from step to step"),
        ({"loss": [1.0] * 3}, ValueError, "one length"),
        ({"seed": [0.0] * 4}, TypeError, "'seed' must hold int"),
        ({"run": [1] * 4}, TypeError, "'run' must hold str"),
        ({name: [] for name in LOSS_KINDS}, ValueError, "at least one row"),
    ],
)
def test_a_table_with_holes_is_refused(changes, error, message):
    assert Results(**columns()).curve("x", 0, "average")[0].tolist() == [10, 20]
    with pytest.raises(error, match=message):
        Results(**columns(**changes))


def test_rows_may_come_in_any_order():
    mixed = np.array([3, 0, 2, 1])
    results = Results(**{k: np.array(v)[mixed] for k, v in columns(loss=[1.0, 2, 3, 4]).items()})
    assert results.domains == ["b", "a"]
    assert results.matrix("x", 0)[1].tolist() == [[2.0, 1.0], [4.0, 3.0]]
    assert results.curve("x", 0, "a")[1].tolist() == [1.0, 3.0]


def test_metrics():
    def values(metric, **options):
        tokens, found = TWO.curve("x", 0, metric, **options)
        assert tokens.tolist() == [100, 200]
        return found.tolist()

    assert values("average") == [2.0, 1.25]
    assert values("worst") == [3.0, 2.0]
    assert values("b") == [3.0, 0.5]
    reference = {"b": 0.25, "a": 1.5}
    assert values("average excess", reference=reference) == [1.125, 0.375]
    assert values("worst excess", reference=reference) == [2.75, 0.5]
    for metric, options, message in (
        ("worst excess", {}, "needs reference="),
        ("worst excess", {"reference": {"a": 1.0}}, r"no value for domain\(s\) \['b'\]"),
        ("median", {}, r"'median' is not known.*\['a', 'b'\]"),
    ):
        with pytest.raises(ValueError, match=message):
            TWO.curve("x", 0, metric, **options)
    with pytest.raises(ValueError, match="run 'z' is not known"):
        TWO.curve("z", 0, "average")
    with pytest.raises(ValueError, match=r"'x' has no seed 3; it has \[0\]"):
        TWO.curve("x", 3, "average")


def test_a_loss_that_is_not_known_is_not_left_out_of_a_mean():
    results = curves({"x": [[[1.0, math.nan]]]}, domains=("a", "b"))
    assert all(math.isnan(results.curve("x", 0, m)[1][0]) for m in ("average", "worst", "b"))


def test_select_keeps_the_order_that_is_asked_for():
    tasks = scores([(r, s, 400, "qa", "acc", 0.5) for r in ("static", "dro") for s in range(3)])
    results = study({"static": 0.0, "uniform": 0.1, "dro": -0.1}, seeds=3, evaluations=2)
    results = results.with_tasks(tasks)
    some = results.select(runs=["dro", "static"], seeds=[2, 0])
    assert some.runs == ["dro", "static"]
    assert some.seeds("dro") == [0, 2]
    assert some.tasks.run.tolist() == ["dro", "dro", "static", "static"]
    for run in some.runs:
        for seed in some.seeds(run):
            wanted = results.curve(run, seed, "worst")[1]
            assert some.curve(run, seed, "worst")[1].tolist() == wanted.tolist()
    with pytest.raises(ValueError, match="'other' is not known"):
        results.select(runs=["other"])
    with pytest.raises(ValueError, match=r"seeds \[9\]"):
        results.select(seeds=[9])


def test_task_average_needs_one_score_for_each_task():
    rows = [("x", 0, at, task, "acc", score) for at, task, score in (
        (200, "qa", 0.5), (100, "quiz", 0.25), (100, "qa", 0.35), (200, "quiz", 0.75),
    )]  # fmt: skip
    results = TWO.with_tasks(scores(rows))
    tokens, values = results.curve("x", 0, "task average")
    assert tokens.tolist() == [100, 200]
    np.testing.assert_allclose(values, [0.3, 0.625])
    assert results.curve("x", 0, "task quiz")[1].tolist() == [0.25, 0.75]
    assert (results.seeds("x", "task average"), results.seeds("y", "task average")) == ([0], [])
    with pytest.raises(ValueError, match="'y' has no scores"):
        results.curve("y", 0, "task average")
    with pytest.raises(ValueError, match="task 'maths' is not known"):
        results.curve("x", 0, "task maths")
    two = TWO.with_tasks(scores([*rows, ("x", 0, 100, "qa", "f1", 0.9)]))
    with pytest.raises(ValueError, match="one score for each"):
        two.curve("x", 0, "task average")
    np.testing.assert_allclose(
        two.select(metrics=["acc"]).curve("x", 0, "task average")[1], [0.3, 0.625]
    )
    assert two.select(tasks=["quiz"]).curve("x", 0, "task average")[1].tolist() == [0.25, 0.75]


LINE = {
    "step": 5, "tokens": 640, "report": {"a": 2.5, "b": 3.0}, "driving": {"a": 2.6, "b": 3.1},
    "weights": {"a": 0.25, "b": 0.75}, "shares": {"a": 0.5, "b": 0.5},
    "epochs": {"a": 1.5, "b": 0.1},
}  # fmt: skip


def write_run(folder, lines, finished=True):
    folder.mkdir(parents=True)
    text = "".join((x if isinstance(x, str) else json.dumps(x)) + "\n" for x in lines)
    (folder / "evaluations.jsonl").write_text(text)
    if finished:
        (folder / "result.json").write_text("{}")


def test_runs_are_gathered_and_unfinished_ones_named(tmp_path, caplog):
    later = LINE | {"step": 10, "tokens": 1280, "report": {"a": 1.0, "b": None}}
    for run, seed in (("dro", 10), ("dro", 2), ("base", 2)):
        write_run(tmp_path / run / f"seed-{seed}", [LINE, later])
    bare = {key: LINE[key] for key in ("step", "tokens", "report", "weights")}
    write_run(tmp_path / "base" / "seed-10", [bare])
    write_run(tmp_path / "base" / "seed-3", [LINE], finished=False)
    (tmp_path / "dro" / "seed-4").mkdir()
    write_run(tmp_path / "dro" / "seed-2.old", [LINE])
    (tmp_path / "notes.txt").write_text("")
    results = Results.from_runs(tmp_path)
    assert (results.runs, results.domains) == (["base", "dro"], ["a", "b"])
    assert results.seeds("dro") == results.seeds("base") == [2, 10]
    assert list(dict.fromkeys(results.seed.tolist())) == [2, 10], "by number, not by name"
    assert [r.getMessage() for r in caplog.records] == [
        "leaving out unfinished runs: base/seed-3, dro/seed-4"
    ]
    tokens, losses = results.matrix("dro", 10)
    assert tokens.tolist() == [640, 1280]
    np.testing.assert_array_equal(losses, [[2.5, 3.0], [1.0, math.nan]])
    for column, key in (("driving_loss", "driving"), ("weight", "weights"), ("share", "shares"),
                        ("epochs", "epochs")):  # fmt: skip
        assert results.matrix("dro", 10, column)[1][0].tolist() == list(LINE[key].values())
        known = ~np.isnan(results.matrix("base", 10, column)[1])
        assert known.all() if column == "weight" else not known.any()


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"step": 5, "tok', r"line 2: "),
        ("[1]", "line 2: an evaluation must be an object"),
        (LINE | {"tokens": 1.5}, "line 2: tokens must be a whole number"),
        (LINE | {"report": {"a": "low"}}, "line 2: report of domain 'a' must be a number"),
        (LINE | {"weights": None}, "line 2: weights must map domains to numbers"),
        (LINE | {"shares": {"c": 1.0}}, r"line 2: shares names domains .*\['c'\]"),
        (LINE | {"report": {"a": 1.0, "b": 2.0}}, "step 5 must have each of the domains"),
    ],
)
def test_a_bad_evaluation_is_named(tmp_path, line, message):
    write_run(tmp_path / "dro" / "seed-0", [LINE, line])
    with pytest.raises(ValueError, match=message):
        Results.from_runs(tmp_path)


def test_a_folder_without_finished_runs_is_an_error(tmp_path):
    with pytest.raises(FileNotFoundError, match="is not a folder"):
        Results.from_runs(tmp_path / "nothing")
    write_run(tmp_path / "dro" / "seed-0", [LINE], finished=False)
    with pytest.raises(ValueError, match="holds no finished run"):
        Results.from_runs(tmp_path)
