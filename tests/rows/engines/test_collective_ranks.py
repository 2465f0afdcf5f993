"""Two processes end with one model, which is that of all rows in memory."""

from __future__ import annotations

import contextlib
import pickle
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from collective_workers import FITS, columns, part
from paths import ROOT, SUPPORT, environment
from ranks import SECONDS, run_ranks, start, start_ranks

from counterpoise import GroupDRONeuron, load

pytestmark = pytest.mark.distributed

WORKER = SUPPORT / "collective_workers.py"


def run(library, job, file, *more):
    """Run a job on two ranks; return what each found."""
    if library == "mpi":
        code, said = mpiexec(job, file, *more)
        assert code == 0, said
    else:
        run_ranks(WORKER, library, job, file, *more)
    return [pickle.loads(Path(f"{file}.{rank}").read_bytes()) for rank in range(2)]


def mpiexec(*words):
    """Run the worker on two ranks of MPI; return the exit code and what was printed.

    The packages of pip put the launcher beside the interpreter.
    """
    launcher = shutil.which("mpiexec", path=str(Path(sys.executable).parent))
    launcher = launcher or shutil.which("mpiexec")
    assert launcher, "mpiexec is not here; pip install mpi4py mpich"
    command = [launcher, "-n", "2", sys.executable, str(WORKER), "mpi", *map(str, words)]
    with contextlib.ExitStack() as stack:
        process = start(
            stack, command, env=environment(OMP_NUM_THREADS="1"),
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip
        said, _ = process.communicate(timeout=SECONDS)
    return process.returncode, said


@pytest.fixture(scope="module")
def memory():
    """The fits of all rows in memory."""
    found = {}
    for name, (model, make, _) in FITS.items():
        X, *others = make()
        model.fit(X, *others)
        found[name] = (model.coef_, model.intercept_, model.groups_, model.predict(X))
    return found


@pytest.fixture(scope="module")
def known():
    """The coefficients that the first library found."""
    return {}


@pytest.mark.parametrize("library", ["torch", "mpi", "allreduce"])
def test_fits_end_where_those_in_memory_do(library, memory, known, tmp_path):
    first, second = run(library, "fits", tmp_path / "found")
    for name, (coef, intercept, groups, predicted) in memory.items():
        ours, theirs = first[name], second[name]
        np.testing.assert_allclose(ours["coef_"], coef, rtol=0, atol=1e-10, err_msg=name)
        np.testing.assert_allclose(ours["intercept_"], intercept, rtol=0, atol=1e-10)
        np.testing.assert_array_equal(ours["groups_"], groups)
        bits = ours["coef_"].tobytes()
        assert known.setdefault(name, bits) == bits, "the library changes no bit"
        own = np.concatenate([rank[name]["predicted"] for rank in (first, second)])
        if predicted.dtype.kind == "f":
            np.testing.assert_allclose(own, predicted, rtol=0, atol=1e-9)
        else:
            np.testing.assert_array_equal(own, predicted)
        for fact, value in ours.items():
            if fact != "predicted":
                assert pickle.dumps(value) == pickle.dumps(theirs[fact]), (name, fact)
    assert second["frames"]["feature_names_in_"].tolist() == ["p", "q", "r", "s"]


@pytest.mark.parametrize("library", ["torch", "mpi"])
def test_an_error_on_one_rank_is_raised_on_all(library, tmp_path):
    first, second = run(library, "faults", tmp_path / "found")
    assert first["said"] == second["said"]
    rows, late, options, labels, folder = first["said"]
    assert rows[0] == "ValueError"
    assert rows[1].startswith("rank 1 of 2: its rows: X has missing or infinite values")
    assert late == ("OSError", "rank 1 of 2: the disk is gone")
    assert options[0] == "CollectiveError"
    assert "not in step" in options[1]
    assert labels[0] == "ValueError"
    assert labels[1].startswith("rank 1 of 2: y is missing at 1 row(s)")
    assert folder[1].startswith("rank 0 of 2: checkpoint=")
    assert first["coef"].tobytes() == second["coef"].tobytes()


@pytest.mark.parametrize("victim", [0, 1])
def test_a_lost_rank_is_an_error_and_the_fit_resumes(victim, tmp_path):
    whole, _ = run("torch", "kill", tmp_path / "whole", "none", 0, 0)
    journal, file = tmp_path / "fit.journal", tmp_path / "lost"
    with contextlib.ExitStack() as stack:
        ranks = start_ranks(stack, WORKER, "torch", "kill", file, journal, victim, 9)
        deadline = time.monotonic() + SECONDS
        while any(rank.code is None for rank in ranks) and time.monotonic() < deadline:
            time.sleep(0.05)
        codes = [rank.code for rank in ranks]
    assert codes[victim] == -9
    assert codes[1 - victim] == 3, ranks[1 - victim].code
    text = Path(f"{file}.{1 - victim}.said").read_text()
    assert text.startswith(f"CollectiveError: rank {1 - victim} of 2 cannot reach the others")
    resumes("torch", journal, whole, tmp_path / "again")


def test_mpi_ends_all_ranks_if_one_is_lost_and_the_fit_resumes(tmp_path):
    whole, _ = run("mpi", "kill", tmp_path / "whole", "none", 0, 0)
    journal = tmp_path / "fit.journal"
    code, _ = mpiexec("kill", tmp_path / "lost", journal, 1, 9)
    assert code != 0
    resumes("mpi", journal, whole, tmp_path / "again")


def resumes(library, journal, whole, file):
    assert journal.exists()
    first, second = run(library, "kill", file, journal, 0, 0)
    assert not journal.exists()
    assert first["read"] == second["read"] < whole["read"]
    for fact in ("coef_", "intercept_", "group_weights_", "risk_", "n_passes_", "status_"):
        for found in (first, second):
            assert pickle.dumps(found[fact]) == pickle.dumps(whole[fact]), fact


def test_the_script_on_the_page_runs(tmp_path):
    page = (ROOT / "docs" / "large-data.md").read_text(encoding="utf-8")
    (script,) = re.findall(r"<!-- not run: .*?-->\n```python\n(.*?)```", page, re.S)
    (tmp_path / "rows").mkdir()
    for rank in range(2):
        X, y, groups, _ = part(columns(), rank)
        table = pd.DataFrame(X, columns=list("abcd")).assign(y=y, g=groups)
        table.to_parquet(tmp_path / "rows" / f"{rank}.parquet")
    (tmp_path / "fit.py").write_text(f"import os\nos.chdir({str(tmp_path)!r})\n{script}")
    run_ranks(tmp_path / "fit.py")
    X, y, groups, _ = columns()
    expected = GroupDRONeuron("relu").fit(X, y, groups)
    found = load(tmp_path / "model")
    np.testing.assert_allclose(found.coef_, expected.coef_, rtol=0, atol=1e-10)
    assert found.feature_names_in_.tolist() == list("abcd")
