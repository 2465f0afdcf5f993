"""Where things are, and what a process of its own needs to find them."""

import os
import subprocess
import sys
from pathlib import Path

SUPPORT = Path(__file__).parent
ROOT = SUPPORT.parents[1]
DATA = ROOT / "tests" / "data"


def environment(**more):
    """This process's environment, where the package and these modules can be imported."""
    path = os.pathsep.join([str(ROOT / "src"), str(SUPPORT)])
    return {**os.environ, "PYTHONPATH": path, **more}


def printed(code):
    """What a fresh interpreter prints."""
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment())
    return done.stdout.strip()
