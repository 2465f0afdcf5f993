"""The command ``counterpoise``: its help, and what it imports for it."""

import subprocess
import sys

import pytest

from counterpoise import __version__
from counterpoise.cli.main import main

LM = ["prepare", "references", "train", "evaluate", "compare", "figures", "tasks"]


def test_help_and_version(capsys):
    assert main(["--help"]) == 0
    assert "Learning that holds up on the worst group" in capsys.readouterr().out
    assert main(["--version"]) == 0
    assert __version__ in capsys.readouterr().out
    assert main(["lm", "--help"]) == 0
    shown = capsys.readouterr().out
    assert all(name in shown for name in LM)
    for name in LM:
        assert main(["lm", name, "--help"]) == 0


@pytest.mark.slow
def test_help_imports_no_torch():
    code = (
        "import sys; from counterpoise.cli.main import main; main(['lm', '--help']); "
        "print([m for m in ('torch', 'transformers', 'sklearn', 'numba') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
