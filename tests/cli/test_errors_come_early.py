"""Errors that need no data are reported before numpy is imported."""

import json
import subprocess
import sys

import pytest
from paths import environment

from counterpoise.activations import NAMED as ACTIVATIONS
from counterpoise.cli import models
from counterpoise.dual.divergences import NAMED as DIVERGENCES
from counterpoise.lm.training import settings
from counterpoise.reweight.rules import NAMED as RULES

HEAVY = ("numpy", "scipy", "pandas", "pyarrow", "sklearn", "numba", "torch")
TABLE = "--target y --group g"


@pytest.fixture
def called(tmp_path):
    """Call a command in a process of its own: exit code, heavy modules, output, errors."""
    (tmp_path / "table.csv").write_text("y,g\n1,a\n")
    (tmp_path / "empty.csv").write_text("")
    (tmp_path / "table.xlsx").write_text("x")
    (tmp_path / "folder").mkdir()
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "model.json").write_text("{}")
    (tmp_path / "wrong.toml").write_text("[corpus")

    def call(words):
        code = (
            "import json, sys; from counterpoise.cli.main import main; "
            f"code = main({words.split()!r}); "
            f"print(json.dumps([code, [name for name in {HEAVY!r} if name in sys.modules]]))"
        )
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True,
            env=environment(), cwd=tmp_path,
        )  # fmt: skip
        *shown, last = done.stdout.splitlines()
        return *json.loads(last), "\n".join(shown), done.stderr

    return call


HELP = ["fit", "predict", "report", "diagnose", "frontier", "compare", "show", "export", "sample"]
LM = ["prepare", "train", "references", "compare", "evaluate", "steer", "tasks", "figures"]


@pytest.mark.parametrize(
    "words", ["--version", "--help", "completion bash", "sample", "lm --help"]
    + [f"{name} --help" for name in HELP] + [f"lm {name} --help" for name in LM],
)  # fmt: skip
def test_help_needs_no_numpy(called, words):
    code, heavy, shown, errors = called(words)
    assert (code, heavy, errors) == (0, [], "")
    assert shown


NO_FILE = "error: there is no file or folder 'nowhere.csv'; check the path"
NO_MODEL = "error: 'nowhere' holds no model.json; give a folder that a model was stored in"
NO_TOML = "error: there is no configuration file 'nowhere.toml'; check the path"


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        ("nosuch", 2, "No such command 'nosuch'"),
        ("fit", 2, "Missing argument 'DATA'"),
        ("fit table.csv -y y --activation nosuch", 2, "'nosuch' is not one of 'identity'"),
        ("fit table.csv -y y --activation relu --alpha 1", 2, "leave out --alpha or --activation"),
        ("fit table.csv -y y --out table.csv", 2, "--out"),
        ("fit table.csv -y y --out table.csv/fit", 1, "'table.csv/fit' cannot be created"),
        ("fit table.csv -y y --cv --nu 1", 2, "--cv chooses this itself"),
        ("fit table.csv -y y -g y", 3, "column 'y' cannot be target and group at once"),
        ("fit table.csv -y y --encoding nosuch", 1, "one that Python knows"),
        ("fit table.csv -y y --delimiter ab", 1, "must be one character; got 'ab'"),
        ("fit empty.csv -y y", 3, "error: 'empty.csv' is empty"),
        ("fit table.xlsx -y y", 3, "is an Excel workbook and cannot be read"),
        ("fit wrong.toml -y y", 3, "has an unknown suffix"),
        ("fit folder -y y --format csv", 3, "'folder' is a folder"),
        *((f"{name} nowhere.csv {TABLE}", 1, NO_FILE)
          for name in ("fit", "compare", "diagnose", "frontier")),
        (f"fit nowhere.csv {TABLE} --out new", 1, NO_FILE),
        (f"compare table.csv {TABLE} --out nowhere/x.json", 2, "there is no folder 'nowhere'"),
        (f"frontier table.csv {TABLE} --plot x.txt", 2, "--plot: 'x.txt' must end with"),
        ("predict nowhere table.csv", 4, NO_MODEL),
        ("predict table.csv table.csv", 4, "'table.csv' is a file; give the folder of a model"),
        ("predict model nowhere.csv", 1, NO_FILE),
        ("predict model table.csv --json", 2, "--json needs --score"),
        ("predict model table.csv --score --proba", 2, "--score prints only risks"),
        ("predict model table.csv --out x.txt", 1, "predictions are written as .csv"),
        ("predict model table.csv --out nowhere/x.csv", 1, "there is no folder 'nowhere'"),
        ("show nowhere", 4, NO_MODEL),
        ("export nowhere x.onnx", 4, NO_MODEL),
        ("report nowhere", 4, "error: there is no folder 'nowhere'; give one that"),
        ("report folder", 4, "error: 'folder' holds neither a fit"),
        ("sample nosuch", 2, "'nosuch' is not one of 'diamonds'"),
        *((f"lm {name} nowhere.toml", 1, NO_TOML)
          for name in ("prepare", "train", "references", "compare")),
        ("lm train wrong.toml", 1, "'wrong.toml' is not TOML"),
        ("lm compare nowhere.toml --seeds a", 2, "--seeds must be whole numbers"),
        ("lm evaluate x --config nowhere.toml", 1, NO_TOML),
        ("lm steer --losses x --publish y --config nowhere.toml", 1, NO_TOML),
        ("lm steer --losses x --publish nowhere/y", 2, "--publish: there is no folder 'nowhere'"),
        ("lm steer --losses x --publish y --prior web", 2, "must be DOMAIN=NUMBER; got 'web'"),
    ],
)  # fmt: skip
def test_errors_that_need_no_data_need_no_numpy(called, tmp_path, words, code, message):
    found, heavy, shown, errors = called(words)
    assert message in errors
    assert (found, heavy, shown) == (code, [], "")
    assert not (tmp_path / "new").exists(), "nothing is left of a fit that did not start"


def test_names_that_were_written_down_are_those_of_the_library():
    assert list(models.ACTIVATIONS) == list(ACTIVATIONS)
    assert list(models.DIVERGENCES) == list(DIVERGENCES)
    assert list(settings.RULES) == list(RULES)
