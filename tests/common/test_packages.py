"""Install hints name packages that can be installed, from a checkout and elsewhere."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

import counterpoise
from counterpoise.cli import main as cli
from counterpoise.common.packages import not_installed, with_hint

SOURCES = sorted(Path(counterpoise.__file__).parent.rglob("*.py"))


def test_no_message_names_an_extra_of_a_package_that_no_index_has():
    found = [p.name for p in SOURCES if re.search(r"pip install \S*counterpoise", p.read_text())]
    assert not found


def test_the_cause_is_told():
    error = not_installed("tasks need", "a", "b", "c", error=ImportError("No module named 'c'"))
    assert str(error) == "tasks need a, b and c: pip install a b c (No module named 'c')"


def test_a_module_that_is_missing_gets_a_hint(monkeypatch, capsys, tmp_path):
    def fail(*args, **kwargs):
        raise ModuleNotFoundError("No module named 'yaml'", name="yaml")

    monkeypatch.setattr(cli.cli, "main", fail)
    assert cli.main([]) == 1
    assert capsys.readouterr().err == "error: No module named 'yaml': pip install pyyaml\n"


def test_other_errors_stay_as_they_are():
    own = not_installed("reports need", "plotly")
    assert with_hint(own) == str(own)
    assert with_hint(ImportError("cannot import name 'x'")) == "cannot import name 'x'"


@pytest.mark.slow
def test_the_trainer_s_adapter_names_accelerate():
    code = (
        "import sys; sys.modules['accelerate'] = None\n"
        "try:\n    import counterpoise.lm.adapters.hf\n"
        "except ImportError as error:\n    print(error)\n"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert "needs torch, transformers and accelerate: pip install torch transf" in said.stdout
