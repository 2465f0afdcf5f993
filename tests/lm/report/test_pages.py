"""Reports of training runs and of comparisons, from runs that were really made."""

import json
import shutil
from itertools import pairwise
from pathlib import Path

import pytest
from browser import chromium, visit, visits  # noqa: F401
from lm_problems import markov_corpus
from report_fits import blocks_of, by_id, data_of

from counterpoise.cli.main import main
from counterpoise.common.toml import to_toml
from counterpoise.lm.compare.study import load_study
from counterpoise.lm.logs import JsonlLog
from counterpoise.lm.report import run_page, study_page, write_report
from counterpoise.lm.training.run_folder import RunFolder

STUDY = Path(__file__).parents[3] / "experiments" / "lm" / "registry"
DOMAINS = ["x", "y", "z"]

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run of a few steps, measured once more when it had ended."""
    place = tmp_path_factory.mktemp("lm")
    markov_corpus(
        place / "corpus", dict.fromkeys(DOMAINS, 3000), splits=("train", "validation", "test")
    )
    table = {
        "corpus": {"folder": str(place / "corpus")},
        "model": {"hidden_size": 16, "layers": 1, "heads": 2},
        "train": {"tokens": 16 * 4 * 30, "length": 16, "batch": 4, "threads": 1},
        "evaluate": {"sequences": 4},
        "reweight": {"rule": "pd-kl"},
    }
    config = place / "config.toml"
    config.write_text(to_toml(table))
    assert main(["-q", "lm", "train", str(config), "--out", str(place / "run")]) == 0
    assert main(["-q", "lm", "evaluate", str(place / "run")]) == 0
    return place / "run"


@pytest.fixture
def scored(run, tmp_path):
    """The same run with scores on two tasks, under a name that is none of ours."""
    copy = tmp_path / "<b>run"
    shutil.copytree(run, copy)
    (record,) = RunFolder(copy).scores.read()
    row = {"metric": "acc", "value": 0.25, "stderr": 0.01, "shots": 0, "n": 100,
           "source": "local", "split": "test", "shots_from": None}  # fmt: skip
    record["tasks"] = [row | {"task": name} for name in ("piqa", "<i>arc</i>")]
    RunFolder(copy).scores.write([record])
    return copy


def test_a_run_has_all_its_parts(run):
    data = data_of(run_page(run))
    result = RunFolder(run).result
    assert [part["id"] for part in data["sections"]] == [
        "losses", "mixture", "certificate", "training", "tasks", "settings", "repeat",
    ]  # fmt: skip
    (achieved,) = (part for part in data["sections"] if part["id"] == "certificate")
    told = JsonlLog(run / "weights.jsonl").read()[-1]["certificate"]
    assert all(json.dumps(sentence)[1:-1] in json.dumps(achieved) for sentence in told["says"])
    assert "plus the regret of the weights" in json.dumps(achieved)
    rows = {row[0]: row for row in by_id(data, "loss-table")["rows"]}
    assert sorted(rows) == DOMAINS
    last = RunFolder(run).evaluations.read()[-1]
    for name in DOMAINS:
        assert rows[name][2] == pytest.approx(result["losses"][name], rel=1e-4)
        assert rows[name][4] == pytest.approx(result["weights"][name], rel=1e-4)
        assert rows[name][5] == pytest.approx(last["shares"][name], rel=1e-4)
    assert f"{result['parameters']:,} parameters" in data["lead"][1]
    assert "not ended" not in " ".join(data["lead"])
    assert len(by_id(data, "training")["series"][0]["y"]) == 30
    assert by_id(data, "shares")["series"][0]["y"][0] is None  # nothing was read yet
    closer = dict(by_id(data, "closer-table")["rows"])
    assert closer == pytest.approx(RunFolder(run).scores.read()[0]["losses"], rel=1e-4)
    command = [b["text"] for b in blocks_of(data) if b["is"] == "code"]
    assert command == [f"counterpoise lm train {run / 'config.toml'} --out ELSEWHERE"]
    assert "No tasks were scored" in json.dumps(data)


def test_shares_follow_the_weights(run):
    """The gap that the page speaks of is that to the mean of the weights, by hand."""
    records = RunFolder(run).evaluations.read()
    words = data_of(run_page(RunFolder(run)))["sections"][1]["blocks"][0]["paragraphs"][0]
    gaps = []
    for name in DOMAINS:
        mean = sum(
            (after["tokens"] - before["tokens"]) * before["weights"][name]
            for before, after in pairwise(records)
        )
        gaps.append(abs(records[-1]["shares"][name] - mean / records[-1]["tokens"]))
    assert f"{max(gaps):.2%}" in words


def test_a_run_that_has_not_ended_says_so(run, tmp_path):
    for name in ("config.toml", "inputs.json", "environment.json"):
        (tmp_path / name).write_bytes((run / name).read_bytes())
    lines = (run / "evaluations.jsonl").read_text().splitlines()
    (tmp_path / "evaluations.jsonl").write_text(lines[0] + "\n" + lines[1] + "\n")
    data = data_of(run_page(tmp_path))
    assert "has not ended" in data["lead"][-1]
    assert "No training step yet" in json.dumps(data)


def test_a_folder_without_evaluations_is_an_error(tmp_path):
    with pytest.raises(FileNotFoundError, match="holds no evaluation"):
        run_page(tmp_path)


def test_tasks_are_shown_where_there_are_scores(scored):
    rows = by_id(data_of(run_page(scored)), "task-table")["rows"]
    assert [row[0] for row in rows] == ["piqa", "<i>arc</i>"]
    assert rows[0][3:7] == [0.25, 0.01, 0, 100]


def test_a_report_is_written_beside_the_run(run, tmp_path):
    assert write_report(run) == run / "report.html"
    assert (run / "report.html").read_text(encoding="utf-8") == run_page(run)
    assert write_report(run, tmp_path / "new" / "a.html") == tmp_path / "new" / "a.html"
    assert write_report(run, tmp_path) == tmp_path / "report.html"
    assert [p.name for p in (tmp_path / "new").iterdir()] == ["a.html"]


def test_a_comparison_has_the_numbers_of_its_results(tmp_path):
    data = data_of(study_page(STUDY))
    study = load_study(STUDY)
    rows = by_id(data, "difference-table")["rows"]
    found = {(row[0], row[1], row[2]): row[3] for row in rows}
    for metric in study.metrics:
        for d in study.differences(metric, "rules"):
            assert found[d.run, d.baseline, metric] == pytest.approx(
                [d.mean, d.low, d.high], rel=1e-4
            )
    assert by_id(data, "runs")["names"] == study.results.runs
    series = by_id(data, "curves-worst")["series"]
    assert len(series) == len(study.results.runs)
    ends = [study.results.curve(series[0]["name"], s, "worst")[1][-1] for s in range(5)]
    assert series[0]["y"][-1] == pytest.approx(sum(ends) / 5, rel=1e-4)
    assert {row[0] for row in by_id(data, "loss-table")["rows"]} == set(study.results.runs)
    assert study.about["command"] in json.dumps(data)
    # where `lm compare` puts them, too
    (tmp_path / "results").symlink_to(STUDY)
    file = write_report(tmp_path, tmp_path / "study.html")
    assert data_of(file.read_text(encoding="utf-8")) == data


@pytest.mark.browser
def test_a_run_in_a_browser(visit, scored):  # noqa: F811
    opened = visit(run_page(scored), width=375)
    assert opened.draw_all() == 6
    assert opened.evaluate("document.scrollingElement.scrollWidth") <= 375
    assert opened.locator(".subject").inner_text() == "Run <b>run"
    assert opened.locator("h1").inner_text().startswith("The worst domain's loss ")
    assert "<i>arc</i>" in opened.locator("#task-table").inner_text()
    opened.locator("#choice-domains input").first.uncheck()
    for chart in ("loss-curves", "weights", "shares"):
        assert opened.chart(chart, "gd.data.length") == 2


@pytest.mark.browser
def test_a_comparison_in_a_browser(visit):  # noqa: F811
    opened = visit(study_page(STUDY))
    assert opened.draw_all() == 3
    opened.locator("#choice-runs").get_by_role("button", name="None").click()
    opened.locator("#choice-runs input[type=checkbox]").first.check()
    assert opened.chart("curves-worst", "gd.data.map((t) => t.mode)") == ["lines", "lines+markers"]


def test_one_seed_is_called_one_seed(tmp_path):
    """Without intervals no run is called lower or higher."""
    shutil.copy(STUDY / "study.json", tmp_path)
    head, *rows = (STUDY / "losses.csv").read_text().splitlines()
    seed = head.split(",").index("seed")
    kept = [row for row in rows if row.split(",")[seed] == "0"]
    (tmp_path / "losses.csv").write_text("\n".join([head, *kept]) + "\n")
    (lead,) = data_of(study_page(tmp_path))["lead"]
    (difference, *_) = load_study(tmp_path).differences("worst", "rules")
    assert "one seed each" in lead
    assert "interval" not in lead.replace("no interval", "")
    assert f"{difference.run} {difference.mean:+.4f}" in lead
