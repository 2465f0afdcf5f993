"""Dry runs: every configuration of this repository, and what is wrong with others."""

import json
from pathlib import Path

import numpy as np
import pytest
from lm_problems import markov_corpus

from counterpoise.cli.main import main
from counterpoise.common.toml import build, to_toml
from counterpoise.lm.compare.dry_run import check_all as check_run
from counterpoise.lm.compare.plan import plan
from counterpoise.lm.training.domains import make_reweighter, named_weights
from counterpoise.lm.training.run_folder import RunFolder
from counterpoise.lm.training.settings import Settings, load_settings

CONFIGS = sorted((Path(__file__).parents[3] / "configs").glob("*.toml"))
PAPER = next(p for p in CONFIGS if p.stem == "paper-1.3b")
SPLITS = ("train", "validation", "test")

# LLM-Shearing's, in its order of domains.
DOMAINS = ["cc", "github", "book", "stackexchange", "wiki", "arxiv", "c4"]
START = dict(zip(DOMAINS, [0.2192, 0.0002, 0.0791, 0.0064, 0.0096, 0.001, 0.6845], strict=True))


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    """No corpus is where a configuration looks for it."""
    monkeypatch.chdir(tmp_path)


def table(**changes):
    found = {
        "out": "out",
        "corpus": {"folder": "corpus", "domains": ["x", "y", "z"]},
        "model": {"vocab_size": 32, "hidden_size": 16, "layers": 1, "heads": 2},
        "train": {"tokens": 16 * 8 * 4, "length": 16, "batch": 8},
        "evaluate": {"sequences": 8},
    }
    for name, inner in changes.items():
        found[name] = {**found.get(name, {}), **inner}
    return found


def settings(**changes):
    return build(Settings, table(**changes))


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_every_configuration_passes_a_dry_run(path, capsys):
    ranks = ["--ranks", "4"] if path == PAPER else []
    assert main(["lm", "train", str(path), "--dry-run", *ranks]) == 0
    shown = capsys.readouterr().out
    for row in ("model ", "memory ", "time ", "note: there is no corpus"):
        assert row in shown
    assert list(Path().iterdir()) == []  # nothing was made


def test_the_papers_run_as_json(capsys):
    assert main(["lm", "train", str(PAPER), "--dry-run", "--ranks", "4", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["parameters"] == 1_345_423_360  # as the model on the hub has
    assert (found["steps"], found["step_tokens"], found["micro_batches"]) == (88, 1_048_576, 8)
    assert found["evaluations"] == 12
    assert found["checkpoints"] == 11
    assert found["fits"]
    assert found["hours"] < 24
    assert [note for note in found["notes"] if "ranks" in note] == []


def test_the_papers_weights_rules_and_references():
    given = load_settings(PAPER)
    six = [name for name in DOMAINS if name != "book"]
    assert list(given.corpus.domains) == six
    assert named_weights(START, DOMAINS, None) == pytest.approx(START)
    found = named_weights(given.reweight.prior, six, None)
    total = sum(START[name] for name in six)
    assert sum(found.values()) == pytest.approx(1.0)
    assert found == pytest.approx({n: START[n] / total for n in six}, abs=6e-6)
    references = {n: given.references.losses[n] for n in six}
    lam = np.array(list(found.values()))
    excess = np.array([0.3, -0.1, 0.05, 0.2, -0.02, 0.1])
    losses = dict(zip(six, excess + list(references.values()), strict=True))
    weights = {}
    for item in plan(given):
        rule = make_reweighter(item.settings(), six, None, references)
        weights[item.run.name] = rule.update(losses)
    # LLM-Shearing's lines, and the paper's
    c, n = 1e-4, len(six)
    ascent = lam * np.exp(excess) / (lam * np.exp(excess)).sum()
    np.testing.assert_allclose(weights["sheared"], (1 - c) * ascent + c / n, rtol=1e-9)
    new = (lam + 1e-6) * np.exp(excess)
    new /= new.sum()
    proposed = new + (new - lam)
    np.testing.assert_allclose(weights["pd-kl"], (1 - c) * proposed + c / n, rtol=1e-9)
    centred = lam + 0.15 * lam * (excess - lam @ excess)
    proposed = centred + (centred - lam)
    np.testing.assert_allclose(weights["pd-chi2"], (1 - c) * proposed + c / n, rtol=1e-9)


def test_notes_say_what_is_to_be_done():
    given = settings(
        references={"file": "references.json", "model": "nobody/nothing"},
        train={"parallel": "fsdp"},
        compare={
            "run": [{"name": "a"}],
            "launcher": ["torchrun", "--nproc-per-node", "4", "-m", "counterpoise"],
        },
    )
    notes = " | ".join(check_run(given))
    for part in (
        "no corpus in 'corpus' yet; make it with `counterpoise lm prepare`",
        "references.file='references.json' does not exist yet; make it with `counterpoise lm ref",
        "references.model='nobody/nothing' is not on this disk",
        "train.parallel = 'fsdp' has no effect with one rank",
        "compare.launcher starts 4 ranks; this check assumes 1",
    ):
        assert part in notes
    assert "rank" not in " ".join(check_run(given, 4))
    made = given.changed({"references.model": "train"})
    assert "references.model" not in " ".join(check_run(made))


def test_with_a_corpus_and_references_there_is_nothing_to_note():
    markov_corpus(Path("corpus"), dict.fromkeys("xyz", 2000), splits=SPLITS)
    given = settings(
        reweight={"prior": "size", "start": "uniform"},
        references={"losses": dict.fromkeys("xyz", 2.0)},
    )
    assert check_run(given, 2) == []


def test_a_model_that_another_run_makes_is_not_missed():
    proxy = {
        "reweight.rule": "doremi", "reweight.losses": "batches", "reweight.weigh": "loss",
        "reweight.reference_model": "model-of:first",
    }  # fmt: skip
    runs = [{"name": "first"}, {"name": "proxy", "set": proxy}]
    assert not any("reference_model" in note for note in check_run(settings(compare={"run": runs})))


def test_a_checkpoint_is_compared_with_what_is_said_of_it(tmp_path):
    from counterpoise.lm.training.model import llama_config

    llama_config(settings(), 32).save_pretrained("there")
    same = settings(model={"checkpoint": "there"})
    Path("there", "pytorch_model.bin").touch()
    with pytest.raises(
        FileNotFoundError, match=r"model\.checkpoint: .*pytorch_model\.bin, a pickle"
    ):
        check_run(same)
    Path("there", "model.safetensors").touch()
    assert len(check_run(same)) == 1  # the corpus
    other = settings(model={"checkpoint": "there", "hidden_size": 32})
    assert (
        "model.hidden_size=32 is not the checkpoint's; the checkpoint's own, 16"
        in check_run(other)[-1]
    )
    with pytest.raises(ValueError, match=r"train\.length=64 is longer than the 16 tokens"):
        check_run(settings(model={"checkpoint": "there"}, train={"length": 64}))
    markov_corpus(Path("corpus"), dict.fromkeys("xyz", 2000), vocab_size=33, splits=SPLITS)
    with pytest.raises(ValueError, match="knows 32 tokens, but the corpus has 33"):
        check_run(same)


BAD = {
    "batch": ({"train": {"micro_batch": 3}}, "train.batch=8 must be a multiple"),
    "setting": ({"train": {"batches": 3}}, "no setting 'train.batches'; did you mean 'batch'"),
    "sum": (
        {"reweight": {"prior": {"x": 0.5, "y": 0.1, "z": 0.1}}},
        "reweight.prior must sum to 1",
    ),
    "start": ({"reweight": {"start": {"x": 1.0, "y": 1.0, "z": 1.0}}}, "reweight.start must sum"),
    "name": (
        {"reweight": {"prior": {"x": 0.5, "y": 0.3, "w": 0.2}}},
        "[reweight] prior names domains that are not known: ['w']",
    ),
    "lacking": ({"reweight": {"prior": {"x": 0.5, "y": 0.5}}}, "[reweight] prior has no value for"),
    "reference": ({"references": {"losses": {"x": 1.0}}}, "no reference loss for ['y', 'z']"),
    "file": ({"references": {"file": "r.json"}}, "references.file='r.json' does not exist, and"),
    "kept": ({"references": {"model": "m"}}, "references.file must be set"),
    "smaller": (
        {"references": {"file": "r", "sizes": [{"layers": 1}, {"layer": 2}, {"layers": 3}]}},
        "references.sizes[1]: there is no setting 'model.layer'",
    ),
    "weights": (
        {"references": {"weights": {"x": 0.5, "w": 0.5}}},
        "references.weights names domains that are not known: ['w']",
    ),
    "split": (
        {"corpus": {"splits": {"train": 0.9, "test": 0.1}}},
        "evaluate.driving='validation' needs the split 'validation'; corpus.splits has",
    ),
    "train": (
        {"corpus": {"splits": {"all": 0.8, "validation": 0.1, "test": 0.1}}},
        "needs the split 'train'",
    ),
    "options": ({"reweight": {"options": {"heat": 1.0}}}, "reweight.options={'heat': 1.0} are not"),
    "step": ({"reweight": {"step": -1.0}}, "[reweight] step must be"),
    "floor": ({"reweight": {"floor": 0.5}}, "[reweight] no weights lie between floor=0.5"),
    "run": (
        {"compare": {"run": [{"name": "a", "set": {"reweight.nu": -1.0}}]}},
        "compare.run 'a': [reweight] nu must be",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_what_would_end_the_run_is_said_before_it(name, capsys):
    changes, message = BAD[name]
    Path("bad.toml").write_text(to_toml(table(**changes)))
    assert main(["lm", "train", "bad.toml", "--dry-run"]) == 1
    said = capsys.readouterr()
    assert message in said.err
    assert said.out == ""


def test_errors_that_only_a_corpus_shows():
    markov_corpus(
        Path("corpus"), dict.fromkeys("xyz", 2000), splits=("train", "validation", "late")
    )
    with pytest.raises(
        ValueError, match=r"evaluate.report='test' needs the split 'test'; the corp"
    ):
        check_run(settings())
    late = {"report": "late"}
    with pytest.raises(ValueError, match=r"corpus.domains names \['w'\]"):
        check_run(settings(corpus={"domains": ["x", "w"]}, evaluate=late))
    with pytest.raises(ValueError, match=r"train.length=256 is longer than the split 'valid"):
        check_run(settings(train={"length": 256, "tokens": 2048}, evaluate=late))


def test_ranks_and_devices_that_do_not_fit(capsys):
    Path("c.toml").write_text(to_toml(table()))
    for options, message in (
        (["--ranks", "3"], "train.batch=8 must be a multiple of ranks"),
        (["--ranks", "16"], "train.batch=8 must be a multiple of ranks"),
        (["--ranks", "0"], "ranks must be a whole number >= 1"),
        (["--device", "abacus"], "device='abacus' is unknown"),
    ):
        assert main(["lm", "train", "c.toml", "--dry-run", *options]) == 1
        assert message in capsys.readouterr().err
    assert main(["lm", "train", "c.toml", "--ranks", "2"]) == 2
    assert "need --dry-run" in capsys.readouterr().err


def test_a_folder_of_another_run_is_refused(capsys):
    given = settings()
    RunFolder(Path("out")).open(given, {}, {})
    assert check_run(given)
    with pytest.raises(ValueError, match=r"other settings \(train.seed\)"):
        check_run(settings(train={"seed": 1}))
    Path("c.toml").write_text(to_toml(table(train={"seed": 1})))
    assert main(["lm", "train", "c.toml", "--dry-run"]) == 1
    assert main(["lm", "train", "c.toml", "--dry-run", "--out", "new"]) == 0


@pytest.mark.parametrize(
    ("name", "value", "most"),
    [("layers", 10**6, "10,000"), ("hidden_size", 4 << 30, "1,048,576"),
     ("vocab_size", 10**15, "4,294,967,296"), ("intermediate_size", 10**12, "4,194,304")],
)  # fmt: skip
def test_a_model_beyond_any_is_refused_at_once(tmp_path, capsys, name, value, most):
    path = tmp_path / "run.toml"
    path.write_text(to_toml(table(model={name: value})))
    assert main(["lm", "train", str(path), "--dry-run"]) == 1
    said = capsys.readouterr().err
    assert f"model.{name} must be at most {most}; got {value}" in said
    assert len(said.splitlines()) == 1
