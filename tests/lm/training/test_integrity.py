"""Damage to a run's files: repaired, or refused with the file's name, never trained on."""

import json
import shutil
from dataclasses import replace

import numpy as np
import pytest
from click.testing import CliRunner
from lm_problems import markov_corpus
from lm_runs import SIZES, SPLITS, STEP, assert_same_model, interrupt_at
from lm_runs import run_settings as settings

from counterpoise.cli.main import cli
from counterpoise.common.stopping import Stopped
from counterpoise.lm.report import write_report
from counterpoise.lm.sealed import DamagedFile, write_sealed
from counterpoise.lm.training import checkpoints
from counterpoise.lm.training.integrity import verify, verify_model
from counterpoise.lm.training.measure import measure_run
from counterpoise.lm.training.run_folder import LOGS, MODEL, OPTIMIZER, STATE, RunFolder
from counterpoise.lm.training.settings import load_settings
from counterpoise.lm.training.train import train

fcntl = pytest.importorskip("fcntl", reason="locks files")

LAST, BEFORE = "step-00000011", "step-00000008"


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return markov_corpus(tmp_path_factory.mktemp("lm") / "corpus", SIZES, splits=SPLITS)


@pytest.fixture(scope="module")
def chosen(corpus):
    return settings(corpus, train={"checkpoint_every": STEP * 8, "keep": 2})


@pytest.fixture(scope="module")
def whole(chosen, tmp_path_factory):
    out = tmp_path_factory.mktemp("whole")
    train(chosen, out, progress=False)
    return out


@pytest.fixture(scope="module")
def stopped(chosen, tmp_path_factory):
    """A run with checkpoints of its steps 8 and 11."""
    out = tmp_path_factory.mktemp("stopped")
    with pytest.MonkeyPatch.context() as patch:
        interrupt_at(patch, 11)
        with pytest.raises(Stopped):
            train(chosen, out, progress=False)
    return out


@pytest.fixture
def run(stopped, tmp_path):
    shutil.copytree(stopped, tmp_path, dirs_exist_ok=True)
    return tmp_path


def flip(path, seed=0):
    """Change one bit of a file."""
    rng = np.random.default_rng(seed)
    data = bytearray(path.read_bytes())
    data[rng.integers(len(data))] ^= 1 << int(rng.integers(8))
    path.write_bytes(bytes(data))


def with_another_digit(line):
    """Change the first digit of a line."""
    at = next(i for i, byte in enumerate(line) if chr(byte).isdigit())
    return line[:at] + (b"7" if line[at : at + 1] != b"7" else b"8") + line[at + 1 :]


@pytest.mark.parametrize("name", [MODEL, OPTIMIZER, STATE, "config.json", *LOGS])
@pytest.mark.parametrize("how", ["flipped", "cut"])
def test_a_damaged_checkpoint_is_refused_and_the_one_before_offered(chosen, run, whole, name, how):
    file = run / "checkpoints" / LAST / name
    for seed in range(3):
        good = file.read_bytes()
        if how == "flipped":
            flip(file, seed)
        else:
            file.write_bytes(good[: len(good) // (seed + 2)])
        with pytest.raises(DamagedFile, match=f"{name}' is damaged.*to resume from {BEFORE}"):
            train(chosen, run, progress=False)
        if seed < 2:
            file.write_bytes(good)
    shutil.rmtree(run / "checkpoints" / LAST)  # as the message says
    train(chosen, run, progress=False)
    assert_same_model(run, whole)


def test_without_another_checkpoint_the_message_says_so(chosen, run):
    flip(run / "checkpoints" / LAST / MODEL)
    flip(run / "checkpoints" / BEFORE / OPTIMIZER)
    with pytest.raises(DamagedFile, match="no other checkpoint can be resumed from"):
        train(chosen, run, progress=False)


def test_a_missing_file_is_named(chosen, run, caplog):
    (run / "checkpoints" / LAST / "config.json").unlink()
    with pytest.raises(DamagedFile, match=r"config\.json' is missing"):
        train(chosen, run, progress=False)
    (run / "checkpoints" / LAST / MODEL).unlink()
    train(chosen, run, progress=False)
    assert f"{LAST} is not a whole checkpoint and is left out" in caplog.text


def test_digits_of_a_state_do_not_change_silently(run):
    """Any other digit in any place, and any other version.

    Some last digits of a float make no difference: 0.30000000000000004 is ...05, too.
    """
    folder = run / "checkpoints" / LAST
    good = (folder / STATE).read_bytes()
    rng = np.random.default_rng(0)
    digits = [i for i, byte in enumerate(good) if chr(byte).isdigit()]
    places = [good.index(b'"version": 3') + 11, *rng.choice(digits, 60, replace=False)]
    for place in places:
        for other in b"1279":
            changed = good[:place] + bytes([other]) + good[place + 1 :]
            if json.loads(changed) != json.loads(good):
                (folder / STATE).write_bytes(changed)
                with pytest.raises(DamagedFile, match=STATE):
                    verify(folder)


@pytest.mark.parametrize("name", LOGS)
@pytest.mark.parametrize("how", ["flipped", "cut", "garbage", "gone"])
def test_damaged_logs_are_restored_from_the_checkpoint(chosen, run, whole, name, how, caplog):
    file = run / name
    lines = file.read_bytes().split(b"\n")
    if how == "flipped":
        lines[1] = with_another_digit(lines[1])
    elif how == "cut":
        lines[1] = lines[1][:20]
    elif how == "garbage":
        lines[0] = b"\xff\x00{"
    file.write_bytes(b"\n".join(lines))
    if how == "gone":
        file.unlink()
    train(chosen, run, progress=False)
    assert f"{name} was damaged or changed; it is restored from" in caplog.text
    a, b = ([*map(_plain, (f / name).read_text().splitlines())] for f in (run, whole))
    assert a == b
    assert_same_model(run, whole)


def _plain(line):
    """A line without the time it took, nor what depends on it."""
    record = json.loads(line)
    if record.pop("seconds", None) is not None:
        record.pop("crc32")
    return record


@pytest.mark.parametrize("name", ["evaluations.jsonl", "steps.jsonl", "weights.jsonl"])
def test_a_damaged_log_of_a_finished_run_is_not_reported(whole, tmp_path, name):
    shutil.copytree(whole, tmp_path, dirs_exist_ok=True)
    file = tmp_path / name
    lines = file.read_bytes().split(b"\n")
    lines[2] = with_another_digit(lines[2])
    file.write_bytes(b"\n".join(lines))
    with pytest.raises(DamagedFile, match=f"{name}', line 3, is damaged"):
        write_report(tmp_path)


def test_a_shortened_log_of_a_finished_run_is_not_reported(whole, tmp_path):
    shutil.copytree(whole, tmp_path, dirs_exist_ok=True)
    file = tmp_path / "evaluations.jsonl"
    file.write_bytes(b"".join(file.read_bytes().splitlines(keepends=True)[:-1]))
    with pytest.raises(DamagedFile, match=r"does not reach the run's last step, 24; copy it from"):
        write_report(tmp_path)
    shutil.copy(tmp_path / RunFolder(whole).result["model"] / file.name, file)  # as it says
    write_report(tmp_path)


def test_a_reference_model_that_changed_by_one_bit_is_another(corpus, whole, tmp_path, monkeypatch):
    """Wherever the bit is, and also if the model is not a checkpoint of ours."""
    model = tmp_path / "model"
    shutil.copytree(whole / RunFolder(whole).result["model"], model)
    (model / STATE).unlink()
    asked = {"rule": "doremi", "losses": "batches", "reference_model": str(model)}
    proxy = settings(corpus, reweight=asked)
    with monkeypatch.context() as patch:
        interrupt_at(patch, 5)
        with pytest.raises(Stopped):
            train(proxy, tmp_path / "run", progress=False)
    data = bytearray((model / MODEL).read_bytes())
    data[-100] ^= 1
    (model / MODEL).write_bytes(bytes(data))
    with pytest.raises(ValueError, match="used other files: reference model changed"):
        train(proxy, tmp_path / "run", progress=False)
    data[-100] ^= 1
    (model / MODEL).write_bytes(bytes(data))
    known = json.loads((tmp_path / "run" / "inputs.json").read_text())
    known["reference model"] = known["reference model"].partition("-")[0]  # as 0.1 wrote it
    del known["crc32"]
    (tmp_path / "run" / "inputs.json").write_text(json.dumps(known))
    train(proxy, tmp_path / "run", progress=False)


def test_a_damaged_result_or_configuration_is_refused(whole, chosen, tmp_path):
    shutil.copytree(whole, tmp_path, dirs_exist_ok=True)
    good = (tmp_path / "result.json").read_text()
    result = json.loads(good)
    result["worst_loss"] += 1.0
    (tmp_path / "result.json").write_text(json.dumps(result))
    with pytest.raises(DamagedFile, match=r"result\.json' is damaged.*remove it and run the same"):
        train(chosen, tmp_path, progress=False)
    (tmp_path / "result.json").unlink()
    train(chosen, tmp_path, progress=False)
    assert json.loads((tmp_path / "result.json").read_text())["losses"] == result["losses"]
    config = tmp_path / "config.toml"
    config.write_text(config.read_text().replace("sequences = 8", "sequences = 9"))
    with pytest.raises(DamagedFile, match=r"config\.toml' was damaged or changed"):
        measure_run(RunFolder(tmp_path), RunFolder(tmp_path).settings)
    with pytest.raises(DamagedFile, match=r"config\.toml' was damaged or changed"):
        train(chosen, tmp_path, progress=False)


def test_what_decides_no_numbers_may_be_changed(run, whole):
    """As a message of ours advises: raise train.timeout and run the same command."""
    config = run / "config.toml"
    text = config.read_text()
    for before, after in {
        "timeout = 600.0": "timeout = 1200.0  # a slow disk",
        "keep = 2": "keep = 5",
        "task_batch = 8": "task_batch = 4",
    }.items():
        assert before in text
        text = text.replace(before, after)
    config.write_text("# mine\n" + text)
    train(load_settings(config), run, progress=False)
    assert len(checkpoints.found(run / "checkpoints")) == 3
    assert_same_model(run, whole)
    assert RunFolder(run).settings.train.timeout == 1200.0


def test_settings_that_decide_are_checked_without_a_configuration(run, chosen, whole):
    """The digest beside the other inputs, or else a checkpoint, says which settings they were."""
    config, inputs = run / "config.toml", run / "inputs.json"
    config.unlink()
    other = replace(chosen, train=replace(chosen.train, seed=5))
    kept = inputs.read_bytes()
    for lost in (False, True):
        if lost:
            inputs.unlink()
        with pytest.raises(ValueError, match=r"other settings, and its config\.toml is missing"):
            train(other, run, progress=False)
        assert not config.exists()
    changed = json.loads(kept)
    del changed["crc32"], changed["settings"]
    inputs.write_text(json.dumps({**changed, "corpus": "another"}))
    with pytest.raises(ValueError, match="used other files: corpus"):
        train(chosen, run, progress=False)
    inputs.write_bytes(kept)
    train(chosen, run, progress=False)
    assert_same_model(run, whole)
    assert RunFolder(run).settings.identity == chosen.identity


@pytest.mark.parametrize("fault", ["flipped", "unreadable"])
def test_damaged_checkpoints_are_not_thinned_out(run, chosen, whole, fault):
    """Whoever finds one may want to know what damaged it."""
    damaged = run / "checkpoints" / BEFORE
    state = damaged / STATE
    if fault == "flipped":
        state.write_bytes(state.read_bytes().replace(b'"regular": true', b'"regular": tru3'))
    else:
        (damaged / STATE).write_bytes(b"\xff")
    train(replace(chosen, train=replace(chosen.train, keep=1, keep_optimizers=1)), run,
          progress=False)  # fmt: skip
    assert [p.name for p in checkpoints.found(run / "checkpoints")] == [BEFORE, "step-00000024"]
    assert (damaged / OPTIMIZER).is_file()
    assert_same_model(run, whole)


def test_a_checkpoint_that_does_not_fit_comes_with_a_remedy(chosen, run):
    file = run / "checkpoints" / LAST / STATE
    state = json.loads(file.read_text())
    state["mixture"] = {}
    write_sealed(file, {key: entry for key, entry in state.items() if key != "crc32"})
    with pytest.raises(DamagedFile, match=f"does not fit this run: .*; to resume from {BEFORE}"):
        train(chosen, run, progress=False)


@pytest.mark.parametrize("state", ["[]", "{}", "no JSON", '{"format": "theirs", "version": 3}'])
def test_models_with_files_of_others_are_no_checkpoints(tmp_path, state):
    (tmp_path / MODEL).write_bytes(b"theirs")
    (tmp_path / STATE).write_text(state)
    verify_model(tmp_path)


def test_a_checkpoint_as_a_model_may_be_changed_where_the_model_is_not(whole, tmp_path):
    model = tmp_path / "model"
    shutil.copytree(whole / RunFolder(whole).result["model"], model)
    for name in (OPTIMIZER, *LOGS):
        (model / name).unlink()
    for path in model.glob("tokenizer*"):
        path.write_text("{}")
    verify_model(model)
    with pytest.raises(DamagedFile, match="is missing"):
        verify(model)
    for name in (STATE, "config.json", MODEL):
        good = (model / name).read_bytes()
        for seed in range(20):
            flip(model / name, seed)
            with pytest.raises(DamagedFile, match=name):
                verify_model(model)
            (model / name).write_bytes(good)


def test_damaged_starts_are_no_obstacle(run, chosen, caplog):
    (run / "environment.json").write_text("[{")
    train(chosen, run, progress=False)
    assert "environment.json was damaged" in caplog.text
    assert len(json.loads((run / "environment.json").read_text())) == 1


def test_damaged_models_are_not_measured_nor_trained_further(corpus, whole, tmp_path):
    """Through the command line: one line that names the file, and exit code 1."""
    shutil.copytree(whole, tmp_path / "run")
    model = tmp_path / "run" / RunFolder(whole).result["model"]
    flip(model / MODEL)
    found = CliRunner().invoke(cli, ["lm", "evaluate", str(tmp_path / "run")])
    assert isinstance(found.exception, DamagedFile)
    assert f"{model / MODEL}" in str(found.exception)
    further = settings(corpus, model={"checkpoint": str(model)})
    with pytest.raises(DamagedFile, match=f"{MODEL}' is damaged"):
        train(further, tmp_path / "further", progress=False)


def test_checkpoints_without_checksums_still_resume(chosen, run, whole):
    """Version 2 had neither checksums nor copies of the logs."""
    for folder in checkpoints.found(run / "checkpoints"):
        state = json.loads((folder / STATE).read_text())
        for name in ("crc32", "files"):
            del state[name]
        (folder / STATE).write_text(json.dumps({**state, "version": 2}))
        for name in LOGS:
            (folder / name).unlink()
    train(chosen, run, progress=False)
    assert_same_model(run, whole)
    assert [r["step"] for r in RunFolder(run).steps.read()] == list(range(1, 25))


@pytest.mark.parametrize("name", [MODEL, OPTIMIZER])
def test_a_cut_checkpoint_without_checksums_is_named(chosen, run, name):
    folder = run / "checkpoints" / LAST
    state = json.loads((folder / STATE).read_text())
    del state["crc32"], state["files"]
    (folder / STATE).write_text(json.dumps({**state, "version": 2}))
    file = folder / name
    file.write_bytes(file.read_bytes()[:-100])
    with pytest.raises(DamagedFile, match=f"{name}' is damaged.*to resume from {BEFORE}"):
        train(chosen, run, progress=False)


def test_a_model_is_measured_although_its_optimizer_is_damaged(whole, tmp_path):
    shutil.copytree(whole, tmp_path, dirs_exist_ok=True)
    flip(tmp_path / RunFolder(whole).result["model"] / OPTIMIZER)
    (found,) = measure_run(RunFolder(tmp_path), RunFolder(tmp_path).settings)
    assert found["step"] == 24


def test_drafts_of_killed_processes_are_swept(chosen, run):
    drafts = [run / ".config.toml.0123abcd.new", run / "checkpoints" / ".step-00000099.new"]
    drafts[0].write_text("half")
    drafts[1].mkdir()
    held, folder = run / ".report.html.0123abcd.new", run / ".notes.new"
    folder.mkdir()
    with held.open("wb") as file:  # a process that is alive writes it
        fcntl.flock(file, fcntl.LOCK_EX)
        train(replace(chosen), run, progress=False)
        assert held.exists()
    assert folder.is_dir(), "it is none of ours"
    assert not any(draft.exists() for draft in drafts)
