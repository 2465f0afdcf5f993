"""``counterpoise lm steer``: what it prints, how it ends, and what it does to the options."""

import json

import pytest

from counterpoise import Reweighter
from counterpoise.cli.main import main
from counterpoise.lm import PublishedWeights


@pytest.fixture
def files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = [{"step": 100 * i, "losses": {"web": 2.0, "code": 2.0 + i}} for i in (1, 2)]
    (tmp_path / "losses.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return tmp_path


def steer(*more):
    return main(["lm", "steer", "--losses", "losses.jsonl", "--publish", "weights.json", *more])


def test_a_line_for_every_update(files, capsys):
    options = "--rule pd-kl --step 0.5 --nu 0.1 --extrapolation 0 --prior web=0.25,code=0.75"
    assert steer("--once", *options.split(), "--corpus", "mine") == 0
    reweighter = Reweighter(
        ["web", "code"], step=0.5, nu=0.1, extrapolation=0.0, prior=[0.25, 0.75]
    )
    for step in (100, 200):
        reweighter.update([2.0, 2.0 + step / 100], step=step)
    found = PublishedWeights.read("weights.json")
    assert found == PublishedWeights.of(reweighter, corpus="mine")
    shown = capsys.readouterr()
    web, code = reweighter.weights
    assert shown.out.splitlines()[1] == f"step 200, update 2: web {web:.4f}, code {code:.4f}"
    assert shown.err == ""
    assert steer("--once", *options.split(), "--corpus", "mine") == 0
    assert "update" not in capsys.readouterr().out


def test_references_and_a_configuration(files, capsys):
    (files / "steer.toml").write_text(
        '[reweight]\nrule = "pd-kl"\nstep = 0.1\nextrapolation = 0.0\n'
        "[references.losses]\nweb = 1.0\ncode = 2.0\n"
    )
    assert steer("--once", "--config", "steer.toml", "--step", "0.5") == 0
    reference = {"web": 1.0, "code": 2.0}
    for references in ((), ("--reference", "web=1", "--reference", "code=3")):
        path = f"{len(references)}.json"
        words = ["--once", "--config", "steer.toml", "--step", "0.5", "--publish", path]
        assert steer(*words, *references) == 0
        given = {**reference, "code": 3.0} if references else reference
        reweighter = Reweighter(["web", "code"], step=0.5, extrapolation=0.0, reference=given)
        reweighter.update([2.0, 3.0], step=100)
        reweighter.update([2.0, 4.0], step=200)
        assert PublishedWeights.read(path).weights == reweighter.as_dict()


def test_many_domains_are_not_all_shown(files, capsys):
    row = {"step": 1, "losses": {f"d{i}": 1.0 for i in range(50)}}
    (files / "losses.jsonl").write_text(json.dumps(row) + "\n")
    assert steer("--once") == 0
    (line,) = capsys.readouterr().out.splitlines()
    assert line.endswith("d7 0.0200, and 42 more")


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["--once", "--prior", "web=0.5,code=0.6"], 1, "reweight.prior must sum to 1"),
        (["--once", "--domains", "web"], 1, "line 1: losses names domains that are not known"),
        (["--once", "--rule", "nosuch"], 2, "'nosuch' is not one of 'adaptive'"),
        (["--once", "--step", "0.5"], 1, "--step 0.5 has no effect on the rule 'adaptive'"),
        (["--once", "--losses", "none.jsonl"], 1, "there is no file 'none.jsonl'"),
        (["--interval", "0"], 2, "Invalid value for '--interval'"),
    ],
)
def test_errors_are_a_line_and_a_code(files, capsys, words, code, message):
    assert steer(*words) == code
    shown = capsys.readouterr().err
    assert message in shown
    assert "Traceback" not in shown


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["--publish", "losses.jsonl"],
            "--publish losses.jsonl would write weights to 'losses.jsonl', which is the file of",
        ),
        (["--publish", "./linked.jsonl"], "which is the file of losses; give another name"),
        (
            ["--losses", "w.state.json", "--publish", "w.json"],
            "would write the watcher's state to 'w.state.json', which is the file of losses",
        ),
        (
            ["--publish", "table.csv", "--domains", "web,code"],
            "'table.csv' is not a file of counterpoise weights; give another name",
        ),
        (
            ["--publish", "taken.json"],
            "'taken.state.json', where the watcher keeps its state, is another file; give another",
        ),
    ],
)
def test_no_other_file_is_written_to(files, capsys, words, message):
    rows = (files / "losses.jsonl").read_bytes()
    (files / "linked.jsonl").symlink_to(files / "losses.jsonl")
    (files / "table.csv").write_text("a,b\n1,2\n")
    (files / "taken.state.json").write_text('{"mine": 1}')
    (files / "w.state.json").write_bytes(rows)
    before = {path.name: path.read_bytes() for path in files.iterdir()}
    assert steer("--once", *words) == 1
    shown = capsys.readouterr().err
    assert message in shown
    assert "remove" not in shown
    assert {path.name: path.read_bytes() for path in files.iterdir()} == before


def test_names_of_domains_bring_no_control_characters(files, capsys):
    row = {"step": 1, "losses": {"a\x9b31m": 1.0, "b": 1.0}}
    (files / "losses.jsonl").write_text(json.dumps(row) + "\n")
    assert steer("--once") == 0
    assert r"a\x9b31m" in capsys.readouterr().out
