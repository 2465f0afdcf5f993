"""Comparisons: planned, run in processes, stopped, resumed and gathered."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest
from lm_problems import markov_corpus
from lm_runs import SIZES, SPLITS
from ranks import start

from counterpoise.common.toml import build, to_toml
from counterpoise.lm.compare.drawing import draw_study
from counterpoise.lm.compare.findings import findings
from counterpoise.lm.compare.launch import RunsFailed, measure_all, run_all
from counterpoise.lm.compare.markdown import fixed
from counterpoise.lm.compare.plan import plan
from counterpoise.lm.compare.study import gather, load_study, save_study
from counterpoise.lm.compare.tables import headline, write_tables
from counterpoise.lm.training import checkpoints
from counterpoise.lm.training.inputs import known_references, reported_references
from counterpoise.lm.training.references import find_references
from counterpoise.lm.training.run_folder import RunFolder
from counterpoise.lm.training.scaling import fit_scaling_law
from counterpoise.lm.training.settings import Settings
from counterpoise.lm.training.train import train

pytestmark = pytest.mark.slow

PROXY = {
    "reweight.rule": "doremi", "reweight.losses": "batches", "reweight.weigh": "loss",
    "reweight.reference_model": "model-of:static",
}  # fmt: skip


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    folder = tmp_path_factory.mktemp("lm") / "corpus"
    return markov_corpus(folder, SIZES, splits=SPLITS)


def settings(corpus, out, runs, /, seeds=(0, 1), **changes):
    table = {
        "out": str(out),
        "corpus": {"folder": str(corpus.folder)},
        "model": {"hidden_size": 16, "layers": 1, "heads": 2},
        "train": {
            "tokens": 16 * 8 * 6, "length": 16, "batch": 8, "learning_rate": 0.01,
            "evaluate_every": 16 * 8 * 2, "threads": 1,
        },
        "evaluate": {"sequences": 4},
        "compare": {"seeds": list(seeds), "run": runs},
    }  # fmt: skip
    for name, inner in changes.items():
        table[name] = {**table.get(name, {}), **inner}
    return build(Settings, table)


STATIC = {"name": "static", "set": {"reweight.rule": "static"}, "group": "rules"}
MOVED = {"name": "pd-kl", "set": {"reweight.rule": "pd-kl"}, "group": "rules"}
RUNS = [
    STATIC,
    {"name": "proxy", "stage": True, "set": PROXY},
    {
        "name": "doremi", "group": "rules",
        "set": {"reweight.rule": "static", "reweight.start": "average-weights-of:proxy"},
    },
    MOVED,
    {
        "name": "pd-kl, no extrapolation", "group": "extrapolation", "against": "pd-kl",
        "set": {"reweight.rule": "pd-kl", "reweight.extrapolation": 0.0},
    },
]  # fmt: skip


@pytest.fixture(scope="module")
def compared(corpus, tmp_path_factory):
    """All runs of two seeds, trained here; `run_all` would start a process for each."""
    chosen = settings(corpus, tmp_path_factory.mktemp("study"), RUNS)
    items = plan(chosen)
    for item in items:
        train(item.settings(), item.folder.path, progress=False)
    return chosen, items


def test_runs_come_seed_after_seed_and_wait_for_each_other(corpus, tmp_path):
    items = plan(settings(corpus, tmp_path, RUNS))
    assert [(i.run.name, i.seed) for i in items][:6] == [
        *((run["name"], 0) for run in RUNS),
        ("static", 1),
    ]
    by_name = {i.run.name: i for i in items[:5]}
    assert by_name["doremi"].needs == ["proxy"]
    assert by_name["proxy"].needs == ["static"]
    assert [i.ready for i in items[:5]] == [True, False, False, True, True]
    only = plan(settings(corpus, tmp_path, RUNS), only=["doremi"], seeds=[1])
    assert [(i.run.name, i.seed) for i in only] == [("static", 1), ("proxy", 1), ("doremi", 1)]


@pytest.mark.parametrize(
    ("runs", "message"),
    [
        ([], "compares nothing"),
        ([{"name": "a", "set": {"train.sed": 1}}], r"'a': there is no setting 'train.sed'"),
        ([{"name": "a", "set": {"reweight.rule": "best"}}], "'a': reweight.rule must be one of"),
        ([{"name": "a", "set": {"reweight.start": "average-weights-of:b"}}], "'a' needs 'b'"),
    ],
)
def test_plans_that_cannot_be_run_are_refused_before_any_run(corpus, tmp_path, runs, message):
    with pytest.raises(ValueError, match=message):
        plan(settings(corpus, tmp_path, runs))


@pytest.mark.parametrize(
    ("compare", "message"),
    [
        ({"run": [STATIC, STATIC]}, "'static' occurs twice"),
        ({"run": [STATIC], "baseline": "b"}, r"compare.baseline='b' is not one of"),
        ({"run": [STATIC | {"against": "b"}]}, r"against='b' is not one of"),
    ],
)
def test_comparisons_that_make_no_sense(corpus, tmp_path, compare, message):
    with pytest.raises(ValueError, match=message):
        settings(corpus, tmp_path, [], compare=compare)


def test_all_runs_of_a_seed_share_the_first_model_and_the_streams(compared):
    _, items = compared
    assert len(items) == 10
    first = {}
    for item in items:
        record = item.folder.evaluations.read()[0]
        first.setdefault(item.seed, []).append(record["report"])
    for seed, records in first.items():
        assert all(r == records[0] for r in records), seed
    assert first[0][0] != first[1][0]


def test_doremi_trains_with_the_average_weights_of_its_proxy(compared):
    chosen, _ = compared
    for seed in (0, 1):
        runs = Path(chosen.out, "runs")
        proxy = RunFolder(runs / "proxy" / f"seed-{seed}").result
        final = RunFolder(runs / "doremi" / f"seed-{seed}").result
        assert final["weights"] == pytest.approx(proxy["average_weights"], abs=1e-12)
        assert final["weights"] != pytest.approx(dict.fromkeys(SIZES, 1 / 3), abs=1e-6)


def test_ended_runs_are_not_repeated_and_changed_ones_are_refused(compared):
    chosen, items = compared
    before = [(i.folder.path / "result.json").stat().st_mtime_ns for i in items]
    assert len(run_all(chosen, jobs=2, progress=False)) == 10
    assert [(i.folder.path / "result.json").stat().st_mtime_ns for i in items] == before
    with pytest.raises(ValueError, match=r"other settings \(train.learning_rate\)"):
        run_all(chosen.changed({"train.learning_rate": 0.5}), progress=False)


def test_what_was_found_is_kept_in_small_files(compared, tmp_path):
    chosen, _ = compared
    study = gather(chosen, "counterpoise lm compare x.toml")
    assert study.results.runs == ["static", "doremi", "pd-kl", "pd-kl, no extrapolation"]
    assert study.baseline == "static"
    save_study(study, tmp_path)
    again = load_study(tmp_path)
    assert again.groups == study.groups
    assert again.about["command"] == "counterpoise lm compare x.toml"
    one = again.differences("average", "extrapolation")
    assert [(d.run, d.baseline, d.n) for d in one] == [("pd-kl, no extrapolation", "pd-kl", 2)]
    last = [
        np.mean(
            list(RunFolder(Path(chosen.out, "runs", name, f"seed-{s}")).result["losses"].values())
        )
        for name in ("pd-kl, no extrapolation", "pd-kl")
        for s in (0, 1)
    ]
    assert one[0].mean == pytest.approx(np.mean(last[:2]) - np.mean(last[2:]), abs=1e-5)
    text = write_tables(again, tmp_path)
    assert "pd-kl, no extrapolation" in text
    assert "## Tokens to equal quality, worst" in text
    assert "proxy" not in text  # a stage is no result
    drawn = draw_study(again, tmp_path / "figures", made_by="counterpoise lm figures x")
    assert {p.name for p in drawn} == {p.name for p in (tmp_path / "figures").iterdir()}
    assert "ablations-average.png" in {p.name for p in drawn}
    with pytest.raises(FileNotFoundError, match="there is no study"):
        load_study(tmp_path / "nowhere")


def test_a_run_that_fails_does_not_stop_the_others(corpus, compared, tmp_path):
    """Except the one that needs its model. Processes find what this one does, to the bit."""
    wild = {"name": "wild", "set": {"train.learning_rate": 1e30, "train.clip": 1e30}}
    needy = {"name": "needy", "set": {"model.checkpoint": "model-of:wild"}}
    chosen = settings(corpus, tmp_path, [wild, MOVED, needy], seeds=(0,))
    with pytest.raises(RunsFailed, match=r"(?s)1 run failed: wild, seed 0.*lower train"):
        run_all(chosen, jobs=2, progress=False)
    same = Path("runs", "pd-kl", "seed-0")
    found, expected = (RunFolder(out / same).result for out in (tmp_path, Path(compared[0].out)))
    assert found["losses"] == expected["losses"]
    assert RunFolder(tmp_path / "runs" / "needy" / "seed-0").result is None


def test_no_run_begins_when_time_is_up(corpus, tmp_path):
    chosen = settings(corpus, tmp_path, [STATIC], seeds=(0, 1))
    assert run_all(chosen, minutes=0.0, progress=False) == []


def test_scaling_laws_are_found_again():
    sizes = np.array([1e5, 2e5, 4e5, 1e6])
    for floor, scale, exponent in ((2.0, 1.5, 0.3), (0.0, 4.0, 0.1), (3.0, 0.5, 1.0)):
        losses = floor + scale * (sizes / 1e5) ** -exponent
        law = fit_scaling_law(sizes, losses)
        assert law.exponent == pytest.approx(exponent, rel=1e-3)
        assert law(1e7) == pytest.approx(floor + scale * 100**-exponent, abs=1e-4)
        assert law.residual < 1e-6


def test_scaling_laws_of_noisy_losses_stay_sensible():
    rng = np.random.default_rng(0)
    sizes = np.array([1e5, 2e5, 4e5, 8e5])
    for _ in range(50):
        losses = 3 + (sizes / 1e5) ** -0.4 + 0.02 * rng.normal(size=4)
        foretold = float(fit_scaling_law(sizes, losses)(1.6e6))
        assert abs(foretold - (3 + 16**-0.4)) < 0.2
    rising = fit_scaling_law(sizes, [3.0, 3.1, 3.2, 3.3])  # no law has that: the mean
    assert float(rising(1e7)) == pytest.approx(3.15)


@pytest.mark.parametrize(
    ("sizes", "losses", "message"),
    [
        ([1.0, 2.0], [1.0, 2.0], "at least three sizes"),
        ([1.0, 1.0, 2.0], [1.0, 2.0, 3.0], "at least three sizes"),
        ([1.0, 2.0, 3.0], [1.0, 2.0], "must pair up"),
        ([0.0, 2.0, 3.0], [1.0, 2.0, 3.0], "must be positive"),
        ([1.0, 2.0, 3.0], [1.0, np.nan, 3.0], "losses finite"),
    ],
)
def test_scaling_laws_need_numbers(sizes, losses, message):
    with pytest.raises(ValueError, match=message):
        fit_scaling_law(sizes, losses)


def test_references_by_a_scaling_law(corpus, tmp_path):
    sizes = [{"hidden_size": n, "heads": 2} for n in (8, 16, 24)]
    asked = {"file": str(tmp_path / "references.json"), "sizes": sizes}
    chosen = settings(corpus, tmp_path, [], references=asked, model={"hidden_size": 32})
    with pytest.raises(FileNotFoundError, match="counterpoise lm references"):
        known_references(chosen, list(SIZES))
    found = find_references(chosen, progress=False)
    assert known_references(chosen, list(SIZES)) == found
    written = json.loads((tmp_path / "references.json").read_text())
    assert [r["parameters"] for r in written["runs"]] == sorted(
        r["parameters"] for r in written["runs"]
    )
    for name in SIZES:
        losses = [run["losses"][name] for run in written["runs"]]
        law = fit_scaling_law([run["parameters"] for run in written["runs"]], losses)
        assert found[name] == pytest.approx(float(law(written["parameters"])))


def test_references_by_a_model_are_its_losses(corpus, tmp_path, compared):
    study, _ = compared
    run = RunFolder(Path(study.out, "runs", "static", "seed-0"))
    asked = {"file": str(tmp_path / "r.json"), "model": str(run.path / run.result["model"])}
    chosen = settings(corpus, tmp_path, [], references=asked)
    assert find_references(chosen) == pytest.approx(run.result["driving_losses"], rel=1e-6)
    # what is shown above them is of the other split, and so are they
    shown, closer = reported_references(chosen, list(SIZES))
    assert shown == pytest.approx(run.result["losses"], rel=1e-6)
    assert closer is None
    more = chosen.changed({"evaluate.final": 16})
    with pytest.raises(ValueError, match="run `counterpoise lm references` again"):
        reported_references(more, list(SIZES))
    find_references(more)
    with pytest.raises(ValueError, match=r"'sequences': 4.* are wanted of .*'sequences': 5"):
        reported_references(more.changed({"evaluate.sequences": 5}), list(SIZES))
    shown, closer = reported_references(more, list(SIZES))
    assert shown == pytest.approx(run.result["losses"], rel=1e-6)
    assert closer != shown
    with pytest.raises(ValueError, match=r"references\.sizes trains models from scratch"):
        find_references(
            settings(
                corpus, tmp_path, [], model={"checkpoint": asked["model"]},
                references={"file": "r.json", "sizes": [{"layers": n} for n in (1, 2, 3)]},
            )
        )  # fmt: skip


def test_given_references(corpus, tmp_path):
    losses = {"x": 1.0, "y": 2.0, "z": 3.0}
    chosen = settings(corpus, tmp_path, [], references={"losses": losses})
    assert known_references(chosen, ["y", "x"]) == {"y": 2.0, "x": 1.0}
    with pytest.raises(ValueError, match="exclude each other"):
        settings(corpus, tmp_path, [], references={"losses": losses, "model": "m"})
    with pytest.raises(ValueError, match="three models or more"):
        settings(corpus, tmp_path, [], references={"sizes": [{"layers": 1}]})


def test_a_run_of_a_study_can_be_repeated_from_its_folder(compared, tmp_path):
    """Nothing but the folder's config.toml is needed."""
    from counterpoise.cli.main import main

    chosen, _ = compared
    run = RunFolder(Path(chosen.out, "runs", "pd-kl", "seed-1"))
    copy = tmp_path / "again.toml"
    copy.write_text(to_toml(run.settings.table))
    assert main(["-q", "lm", "train", str(copy), "--out", str(tmp_path / "again")]) == 0
    assert RunFolder(tmp_path / "again").result["losses"] == run.result["losses"]


def scored(value, more):
    return [
        {
            "task": task,
            "metric": "acc",
            "value": value + 0.01 * more,
            "stderr": None,
            "shots": 0,
            "n": 50,
            "source": "local",
        }
        for task in ("PIQA", "SciQ")
    ]


def test_a_study_against_another_run(compared, tmp_path):
    """The same pairs, with the other sign."""
    study = gather(compared[0])
    turned = study.against("pd-kl")
    (there,) = [d for d in study.differences("average", "rules") if d.run == "pd-kl"]
    (back,) = [d for d in turned.differences("average", "rules") if d.run == "static"]
    assert (back.mean, back.low) == pytest.approx((-there.mean, -there.high))
    (fast,) = [s for s in study.speedups("worst", "rules") if s.run == "pd-kl"]
    (slow,) = [s for s in turned.speedups("worst", "rules") if s.run == "static"]
    assert slow.ratio == pytest.approx(1 / fast.ratio)
    assert "minus pd-kl" in headline(turned)
    assert study.against("pd-kl", "rules").baseline == "pd-kl"
    with pytest.raises(ValueError, match="baseline 'adam' is not a finished run"):
        study.against("adam")


def test_a_closer_look_at_finished_models(compared, tmp_path):
    """On as many sequences as in training it finds the same losses; on more, others."""
    chosen, _ = compared
    shutil.copytree(Path(chosen.out) / "runs", tmp_path / "runs")
    same = chosen.changed({"out": str(tmp_path), "evaluate.final": chosen.evaluate.sequences})
    measure_all([item for item in plan(same) if not item.run.stage and item.done])
    study = gather(same)
    closer = study.closer
    for run in study.results.runs:
        for seed in study.results.seeds(run):
            _, losses = study.results.matrix(run, seed)
            tokens, again = closer.results.matrix(run, seed)
            assert len(tokens) == 1
            assert again[0] == pytest.approx(losses[-1], rel=1e-5)
    save_study(study, tmp_path / "kept")
    text = write_tables(load_study(tmp_path / "kept"), tmp_path / "kept")
    assert text.count("average loss") == 2
    assert text.count("times fewer tokens") == 2  # of average and worst, not of the closer look
    more = same.changed({"evaluate.final": 2 * chosen.evaluate.sequences})
    measure_all([item for item in plan(more, only=["pd-kl"]) if item.done])
    some = gather(more).results
    assert some.finals.runs == ["pd-kl"]
    assert some.select(["static"]).finals is None
    assert some.select(["static", "pd-kl"], [1]).finals.seeds("pd-kl") == [1]
    other = gather(more).closer.results
    assert (other.matrix("pd-kl", 0)[1] != closer.results.matrix("pd-kl", 0)[1]).any()
    save_study(gather(chosen), tmp_path / "kept")  # without: the file is not left behind
    assert load_study(tmp_path / "kept").closer is None


def test_task_scores_of_runs_are_part_of_the_study(compared, tmp_path):
    """Scores of two checkpoints, as `measure_run` leaves them."""
    chosen, _ = compared
    shutil.copytree(Path(chosen.out) / "runs", tmp_path / "copy" / "runs")
    chosen = chosen.changed({"out": str(tmp_path / "copy")})
    for k, name in enumerate(("static", "pd-kl")):
        for seed in (0, 1):
            scores = RunFolder(Path(chosen.out, "runs", name, f"seed-{seed}")).scores
            scores.write(
                {"step": step, "tokens": 1000 * step, "tasks": scored(0.25 + 0.1 * k, step + seed)}
                for step in (1, 2)
            )
    study = gather(chosen)
    tokens, values = study.results.curve("pd-kl", 1, "task average")
    assert tokens.tolist() == [1000, 2000]
    assert values == pytest.approx([0.37, 0.38])
    save_study(study, tmp_path)
    text = write_tables(load_study(tmp_path), tmp_path)
    assert "| pd-kl  | 37.50 ± 0.71 |" in text
    assert "PIQA: acc, 0 shots, 50 documents (local); SciQ: acc" in text
    assert "were not measured: ARC-E, ARC-C, HellaSwag, WinoGrande" in text
    drawn = draw_study(load_study(tmp_path), tmp_path)
    assert "curves-task-average.png" in {p.name for p in drawn}


@pytest.mark.parametrize("name", ["p/q", "..", "/x", "", "a\\b", "x.", " x", 'x"', "con\n"])
def test_names_that_cannot_be_folders_are_refused(corpus, tmp_path, name):
    with pytest.raises(ValueError, match="cannot be a run's name"):
        settings(corpus, tmp_path, [STATIC | {"name": name}])


@pytest.mark.parametrize(
    ("runs", "seeds", "message"),
    [
        ([STATIC, STATIC | {"name": "Static"}], [0], "'Static' occurs twice|'static' occurs twice"),
        ([STATIC], [0, 0], "names a seed twice"),
        ([STATIC | {"seeds": [5]}], [0], "the seed 5 is not one of compare.seeds"),
        ([STATIC, MOVED | {"against": "static"}], [0], "its group 'rules' is compared with"),
    ],
)
def test_runs_that_contradict_each_other(corpus, tmp_path, runs, seeds, message):
    with pytest.raises(ValueError, match=message):
        settings(corpus, tmp_path, runs, seeds=seeds)


def test_a_provider_must_have_the_seed(corpus, tmp_path):
    needy = {"name": "needy", "set": {"model.checkpoint": "model-of:static"}}
    chosen = settings(corpus, tmp_path, [STATIC | {"seeds": [0]}, needy])
    with pytest.raises(ValueError, match="'needy' needs 'static' with the seed 1"):
        plan(chosen)


def test_what_is_missing_for_all_is_found_before_any_is_begun(corpus, tmp_path):
    asked = {"file": str(tmp_path / "none.json"), "model": "train"}
    chosen = settings(corpus, tmp_path, [STATIC], references=asked)
    with pytest.raises(FileNotFoundError, match="counterpoise lm references"):
        run_all(chosen, progress=False)
    assert not (tmp_path / "logs").exists()


def test_runs_of_other_settings_are_not_gathered(corpus, compared, tmp_path):
    """Whatever lies in the folder, only runs of these very settings are compared."""
    chosen, _ = compared
    copy = tmp_path / "copy"
    shutil.copytree(Path(chosen.out) / "runs", copy / "runs")
    mine = chosen.changed({"out": str(copy)})
    only = mine.changed({"compare.seeds": [1], "compare.run": [STATIC, MOVED]})
    study = gather(only)
    assert study.results.runs == ["static", "pd-kl"]
    assert study.results.seeds("static") == [1]
    with pytest.raises(ValueError, match=r"other settings \(train.clip\)"):
        gather(only.changed({"train.clip": 0.5}))
    with pytest.raises(ValueError, match="has finished yet"):
        gather(only.changed({"compare.seeds": [7]}))


def test_a_stopped_comparison_saves_what_is_under_way(corpus, tmp_path):
    """Ctrl-C signals the whole process group; each run is still asked once, by the comparison."""
    long = {"tokens": 16 * 8 * 5000}
    chosen = settings(corpus, tmp_path / "out", [STATIC, MOVED], seeds=(0,), train=long)
    file = tmp_path / "c.toml"
    file.write_text(to_toml(chosen.table))
    command = [sys.executable, "-m", "counterpoise", "lm", "compare", str(file), "--jobs", "2"]
    folders = [RunFolder(tmp_path / "out" / "runs" / n / "seed-0") for n in ("static", "pd-kl")]
    with ExitStack() as stack:
        process = start(stack, command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        deadline = time.monotonic() + 100
        while not all(len(folder.steps.read()) >= 3 for folder in folders):
            assert process.poll() is None, process.stderr.read().decode()[-2000:]
            assert time.monotonic() < deadline
            time.sleep(0.05)
        os.killpg(process.pid, signal.SIGINT)
        _, said = process.communicate(timeout=100)
    assert process.returncode == 75, said.decode()[-2000:]
    for folder in folders:
        (saved,) = checkpoints.found(folder.checkpoints)
        assert checkpoints.read_state(saved)["step"] >= 3


def test_tables_and_figures_of_a_comparison_that_is_half_done(corpus, compared, tmp_path):
    chosen, _ = compared
    copy = tmp_path / "copy"
    for name in ("pd-kl", "pd-kl, no extrapolation"):
        shutil.copytree(Path(chosen.out) / "runs" / name, copy / "runs" / name)
    study = gather(chosen.changed({"out": str(copy)}))
    save_study(study, tmp_path / "results")
    text = write_tables(load_study(tmp_path / "results"), tmp_path / "new")
    assert "Not finished, so nothing is compared with them: static." in text
    drawn = draw_study(study, tmp_path / "new")
    assert {"curves-average.png", "ablations-worst.png"} <= {p.name for p in drawn}


def test_one_seed_is_called_one_seed(compared, tmp_path):
    """No interval, no test, and no dash where one would be."""
    study = gather(compared[0].changed({"compare.seeds": [0]}))
    said = findings(study)
    assert said[0] == "One seed: no interval."
    assert said[1].startswith("Average loss: ")
    text = write_tables(study, tmp_path)
    assert "One seed: no interval." in text
    for word in ("95 %", "Holm", "s.e.", "[", "±", " nan"):
        assert word not in text, word
    (ends,) = [d for d in study.differences("average", "rules") if d.run == "pd-kl"]
    cells = [cell.strip() for cell in headline(study).split("\n")[4].split("|")]
    assert cells[1] == "pd-kl"
    assert cells[3] == fixed(ends.mean, 3)


def test_findings_name_the_runs_that_differ(compared):
    """Two seeds: a run counts if its interval excludes zero."""
    study = gather(compared[0])
    said = findings(study)
    assert said[0] == "Paired differences over 2 seeds, by their 95 % intervals:"
    for metric, sentence in zip(study.metrics, said[1:], strict=True):
        clear = {d.run for d in study.differences(metric, "rules") if d.low > 0 or d.high < 0}
        named = {run for run in study.shown if f" {run}" in sentence.split(":")[1]} - {"static"}
        assert named == clear
