"""A fit on two executors, one of which is killed meanwhile: ``lost_executor.py FOLDER``."""

from __future__ import annotations

import os
import shutil
import signal
import sys
from pathlib import Path

import numpy as np
import pyspark
from problems import neuron_data
from spark import start

from counterpoise.rows.engines.spark_parts import local_folder
from counterpoise.solver.solve import solve


def find_executor(_):
    """The executor that runs this task: how many partitions it holds, and its process.

    The process is the parent of the daemon whose children run tasks.
    """
    parent = os.getppid()
    while "Executor" not in Path(f"/proc/{parent}/cmdline").read_text():
        parent = int(Path(f"/proc/{parent}/stat").read_text().rsplit(")", 1)[1].split()[1])
    return len([*Path(local_folder()).glob("counterpoise-*/*.rows")]), parent


def main() -> None:
    session = start("local-cluster[2,1,1024]", Path(sys.argv[1]))
    context = session.sparkContext
    X, y, groups = neuron_data(K=3, n=300, d=3, seed=1)
    order = np.random.default_rng(0).permutation(len(y))
    table = np.column_stack([X, y, groups])[order].tolist()
    frame = session.createDataFrame(
        context.parallelize(table, 6), "a double, b double, c double, y double, g double"
    )
    undisturbed = solve(frame, "y", "g")
    killed = []

    def kill(progress):
        if not killed:
            killed.append(max(context.parallelize(range(2), 2).map(find_executor).collect()))
            os.kill(killed[0][1], signal.SIGKILL)

    found = solve(frame, "y", "g", callback=kill)
    held, process = killed[0]
    if held and not Path(f"/proc/{process}").exists():
        sys.stdout.write("killed\n")
    if np.array_equal(found.coef, undisturbed.coef) and found.converged:
        sys.stdout.write("same\n")
    # Logs of executors, which a cluster on one machine writes next to PySpark.
    logs = Path(pyspark.__file__).parent / "work" / context.applicationId
    session.stop()
    shutil.rmtree(logs)


if __name__ == "__main__":
    main()
