"""The commands ``counterpoise lm``: what they print, and how they end."""

import json
import shlex
from pathlib import Path

import pytest
from lm_problems import markov_corpus
from lm_tasks import TASK_ROWS, save_task_files

from counterpoise.cli.lm import lm
from counterpoise.cli.main import main
from counterpoise.common.toml import read_toml, to_toml
from counterpoise.lm.training.run_folder import RunFolder


@pytest.fixture
def config(tmp_path):
    folder = tmp_path / "corpus"
    sizes = {"x": 3000, "y": 3000}
    markov_corpus(folder, sizes, splits=("train", "validation", "test"))
    table = {
        "out": str(tmp_path / "out"),
        "corpus": {"folder": str(folder)},
        "model": {"hidden_size": 16, "layers": 1, "heads": 2},
        "train": {"tokens": 16 * 4 * 4, "length": 16, "batch": 4, "threads": 1},
        "evaluate": {"sequences": 4},
        "compare": {
            "seeds": [0],
            "run": [
                {"name": "static", "set": {"reweight.rule": "static"}},
                {"name": "pd-kl", "set": {"reweight.rule": "pd-kl"}},
            ],
        },
    }
    path = tmp_path / "config.toml"
    path.write_text(to_toml(table))
    return path


@pytest.mark.slow
def test_a_run_from_the_command_line(config, tmp_path, capsys):
    out = tmp_path / "run"
    command = ["-q", "lm", "train", str(config), "--out", str(out), "--set", "train.seed=3"]
    assert main(command) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed == RunFolder(out).result
    assert RunFolder(out).settings.train.seed == 3
    # measured afterwards: what training had measured, and written beside it
    assert main(["-q", "lm", "evaluate", str(out)]) == 0
    (record,) = json.loads(capsys.readouterr().out)
    assert record["losses"] == pytest.approx(printed["losses"], rel=1e-6)
    assert RunFolder(out).scores.read() == [record]
    # a model by itself
    model = str(out / printed["model"])
    assert main(["-q", "lm", "evaluate", model, "--config", str(config)]) == 0
    assert json.loads(capsys.readouterr().out)["losses"] == record["losses"]


@pytest.mark.slow
def test_a_comparison_from_the_command_line(config, tmp_path, capsys):
    assert main(["-q", "lm", "compare", str(config), "--jobs", "2"]) == 0
    shown = capsys.readouterr().out
    results = tmp_path / "out" / "results"
    assert "| pd-kl " in shown
    assert "One seed: no interval." in shown
    assert "95 %" not in shown
    assert f"numbers, tables and figures: {results}\n" in shown
    assert shown.splitlines()[-1] == f"report: {results / 'report.html'}"
    names = {p.name for p in results.iterdir()}
    assert {"losses.csv", "study.json", "tables.md", "weights.png", "report.html"} <= names
    # the figures again, from the kept files alone
    again = tmp_path / "again"
    again.mkdir()
    for name in ("losses.csv", "tasks.csv", "study.json"):
        (again / name).write_bytes((results / name).read_bytes())
    assert main(["-q", "lm", "figures", str(again)]) == 0
    assert (again / "tables.md").read_text() == (results / "tables.md").read_text()


def test_a_comparison_stores_the_command_that_was_typed(config, monkeypatch):
    """Every option that chooses what is compared, quoted for a shell."""
    stored = []

    def gather(settings, command):
        stored.append(command)
        raise ValueError("enough")

    monkeypatch.setattr("counterpoise.lm.compare.launch.run_all", lambda *args, **kwargs: None)
    monkeypatch.setattr("counterpoise.lm.compare.study.gather", gather)
    typed = [
        "lm", "compare", str(config), "--set", "evaluate.tasks=[]",
        "--set", 'compare.baseline="static"', "--only", "pd-kl", "--only", "static",
        "--seeds", "0,1", "--results", str(config.parent / "my results"),
    ]  # fmt: skip
    assert main(typed) == 1
    assert [shlex.split(command) for command in stored] == [["counterpoise", *typed]]


def test_the_help_cuts_nothing_off(capsys):
    assert main(["lm", "--help"]) == 0
    shown = capsys.readouterr().out
    commands = shown.split("Commands:")[1].strip().splitlines()
    assert len(commands) == len(lm.commands)
    assert all(line.endswith(".") and not line.endswith("...") for line in commands)


@pytest.mark.parametrize(
    ("args", "code", "message"),
    [
        (["lm", "train", "nowhere.toml"], 1, "there is no configuration file 'nowhere.toml'"),
        (["lm", "train", "{config}", "--set", "train.sed=1"], 1, "did you mean 'seed'?"),
        (["lm", "train", "{config}", "--set", "train.seed"], 1, "name.of.setting=value"),
        (["lm", "prepare", "{config}"], 1, "corpus.source is not set"),
        (["lm", "references", "{config}"], 1, "references.file must be set"),
        (["lm", "compare", "{config}", "--only", "odm"], 1, "there is no run 'odm'"),
        (["lm", "evaluate", "nowhere"], 2, "add --config for a model"),
        (["lm", "figures", "nowhere"], 1, "there is no study in 'nowhere'"),
        (["lm", "learn"], 2, "No such command 'learn'"),
        (["lm", "train"], 2, "Missing argument 'CONFIG'"),
    ],
)
def test_errors_are_a_line_and_a_code(config, capsys, args, code, message):
    assert main([a.format(config=config) for a in args]) == code
    shown = capsys.readouterr().err
    assert message in shown
    assert "Traceback" not in shown


def test_debug_shows_where(config):
    with pytest.raises(ValueError, match="did you mean 'seed'"):
        main(["--debug", "lm", "train", str(config), "--set", "train.sed=1"])


@pytest.mark.slow
def test_a_corpus_from_the_command_line(tmp_path, capsys):
    source = tmp_path / "source"
    source.mkdir()
    for name in ("web", "code"):
        lines = [json.dumps({"text": f"{name} {i} " * 40}) for i in range(60)]
        (source / f"{name}.jsonl").write_text("\n".join(lines))
    table = {
        "corpus": {"folder": str(tmp_path / "c"), "source": str(source), "vocab_size": 300},
        "train": {"tokens": 64, "length": 8, "batch": 2, "threads": 1},
    }
    path = tmp_path / "config.toml"
    path.write_text(to_toml(table))
    assert main(["-q", "lm", "prepare", str(path)]) == 0
    assert "web" in capsys.readouterr().out
    assert (tmp_path / "c" / "tokenizer.json").is_file()
    before = {p: p.stat().st_mtime_ns for p in (tmp_path / "c").rglob("*.bin")}
    assert main(["-q", "lm", "prepare", str(path)]) == 0
    assert {p: p.stat().st_mtime_ns for p in (tmp_path / "c").rglob("*.bin")} == before
    # what it made can be trained on, and the model speaks the tokenizer
    out = str(tmp_path / "run")
    small = ["--set", "model.hidden_size=16", "--set", "model.layers=1", "--out", out]
    assert main(["-q", "lm", "train", str(path), *small]) == 0
    from transformers import AutoTokenizer

    result = RunFolder(Path(out)).result
    tokenizer = AutoTokenizer.from_pretrained(Path(out) / result["model"])
    assert tokenizer.decode(tokenizer("web 1 code")["input_ids"]) == "web 1 code"


def test_names_of_files_bring_no_control_characters(tmp_path, capsys):
    """Neither a printed corpus nor what is logged on the way obeys a name."""
    evil = "a\x9b31m\u202eb"
    source = tmp_path / "source"
    source.mkdir()
    lines = [json.dumps({"text": f"{i} words"}) for i in range(200)]
    (source / f"{evil}.jsonl").write_text("\n".join(lines))
    (source / f"{evil}.png").write_text("skipped")
    path = tmp_path / "config.toml"
    asked = {"folder": str(tmp_path / "c"), "source": str(source), "tokenizer": "bytes"}
    path.write_text(to_toml({"corpus": asked, "train": {"tokens": 4096}}))
    assert main(["lm", "prepare", str(path)]) == 0
    told = capsys.readouterr()
    assert r"a\x9b31m\u202eb" in told.out
    assert not {"\x9b", "\u202e"} & set(told.out + told.err)


@pytest.mark.parametrize(
    "path", sorted((Path(__file__).parents[2] / "configs").glob("*.toml")), ids=lambda p: p.stem
)
def test_every_configuration_is_one(path):
    from counterpoise.lm.compare.plan import plan
    from counterpoise.lm.training.settings import load_settings

    settings = load_settings(path)
    assert read_toml(path)["out"] == settings.out
    if settings.compare.run:
        assert plan(settings)


def test_the_list_of_tasks(tmp_path, capsys):
    assert main(["lm", "tasks"]) == 0
    every = capsys.readouterr().out.splitlines()
    assert "ARC-C: arc_challenge, 25 examples, acc_norm" in every
    assert main(["lm", "tasks", str(save_task_files(tmp_path / "tasks"))]) == 0
    assert capsys.readouterr().out.splitlines() == [
        line for line in every if line.split(":")[0] in TASK_ROWS
    ]
    assert main(["lm", "tasks", str(tmp_path)]) == 1
    assert "has no tasks.json; give a folder of task files" in capsys.readouterr().err


def test_clusters_from_the_command_line(tmp_path, capsys):
    rows = [{"body": f"{'wheat rye' if i % 3 else 'def return'} {i}"} for i in range(30)]
    path, out = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    command = ["-q", "lm", "cluster", str(path), str(out), "--k", "2", "--text", "body"]
    assert main([*command, "--size", "4"]) == 0
    assert "30 documents in 2 clusters" in capsys.readouterr().out
    labels = [json.loads(line)["cluster"] for line in out.read_text().splitlines()]
    assert set(labels) == {0, 1}
    assert main([*command, "--sample", "1"]) == 1
    assert "sample=1 documents" in capsys.readouterr().err
