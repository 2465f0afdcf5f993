"""What a user does with the installed package, outside of its repository.

Run by the Python of an environment that has the package, from any folder: `make package` makes such
an environment from nothing, the tests one that borrows other packages from theirs.
"""

from __future__ import annotations

import csv
import subprocess
import sys
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path

COMMAND = Path(sys.executable).with_name("counterpoise")
ROWS = 240


def run(*command: object) -> str:
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(map(str, command))}\n{done.stdout}{done.stderr}")
    return done.stdout


def seconds_of(code: str) -> float:
    """Of a fresh interpreter, the quicker of two."""
    taken = []
    for _ in range(2):
        start = time.perf_counter()
        run(sys.executable, "-c", code)
        taken.append(time.perf_counter() - start)
    return min(taken)


def check_installed() -> None:
    import counterpoise

    place = Path(counterpoise.__file__).resolve()
    assert place.is_relative_to(Path(sys.prefix).resolve()), place
    assert (place.parent / "py.typed").is_file()
    for command in ([COMMAND], [sys.executable, "-m", "counterpoise"]):
        assert counterpoise.__version__ in run(*command, "--version")
        assert "lm" in run(*command, "--help")
    assert "prepare" in run(COMMAND, "lm", "--help")


def check_fit() -> None:
    import numpy as np

    from counterpoise import GroupDRONeuron

    rng = np.random.default_rng(0)
    X, groups = rng.normal(size=(ROWS, 3)), np.arange(ROWS) % 3
    y = np.maximum(0.0, X @ [1.0, -2.0, 0.5])
    model = GroupDRONeuron("relu", tol=1e-9).fit(X, y, groups=groups)
    assert model.group_risks_.max() < 1e-6, model.group_risks_
    if find_spec("onnx") is None:
        from counterpoise.storage.onnx import to_onnx

        said = ""
        try:
            to_onnx(model)
        except ImportError as error:
            said = str(error)
        assert "pip install onnx" in said, said


def check_commands() -> None:
    """From a table to predictions by the command line alone."""
    import numpy as np

    rng = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with open(folder / "data.csv", "w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["a", "b", "colour", "place", "y"])
            for i, (a, b) in enumerate(rng.normal(size=(ROWS, 2)).tolist()):
                colour = ("red", "green")[i % 2]
                writer.writerow([a, b, colour, "NESW"[i % 4], a - 2 * b + (colour == "red")])
        run(COMMAND, "fit", folder / "data.csv", "--target", "y", "--group", "place",
            "--activation", "identity", "--out", folder / "model")  # fmt: skip
        found = folder / "predictions.csv"
        run(COMMAND, "predict", folder / "model", folder / "data.csv", "--out", found)
        assert len(found.read_text().split()) == ROWS + 1
        written = folder / "diamonds.csv"
        assert "counterpoise fit" in run(COMMAND, "sample", "diamonds", "--out", written)
        assert written.read_text().startswith("carat,")


def main() -> None:
    check_installed()
    check_fit()
    check_commands()
    if "--times" in sys.argv:
        bare = seconds_of("pass")
        for code in ("import counterpoise", "from counterpoise import GroupDRONeuron"):
            print(f"{code}: {seconds_of(code) - bare:.2f} s")
    print("the installed package works")


if __name__ == "__main__":
    main()
