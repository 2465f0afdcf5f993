"""A fit to rows on disk: seconds, passes, and the memory it takes.

    python benchmarks/larger_than_memory.py --gb 20

Makes .npy files of that size from a generator (in ``out/rows``; they are removed afterwards
unless ``--keep``), fits them with `Npy` in a process of its own, and prints its peak resident
memory. Pages of the file that the system caches are not the process's.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

FEATURES, GROUPS, CHUNK = 50, 10, 100_000


def write(folder: Path, gigabytes: float) -> int:
    """Rows of a ReLU neuron whose slope and noise differ by group, in random order."""
    n = int(gigabytes * 1e9 / (8 * FEATURES))
    folder.mkdir(parents=True, exist_ok=True)
    files = {
        name: np.lib.format.open_memmap(folder / f"{name}.npy", "w+", dtype, shape)
        for name, dtype, shape in (
            ("X", float, (n, FEATURES)), ("y", float, (n,)), ("groups", np.int8, (n,))
        )
    }  # fmt: skip
    centre = np.random.default_rng(0).normal(size=(GROUPS, FEATURES)) * 0.3 / FEATURES**0.5
    centre += np.random.default_rng(1).normal(size=FEATURES) / FEATURES**0.5
    for lo in range(0, n, CHUNK):
        rng = np.random.default_rng([2, lo])
        m = min(CHUNK, n - lo)
        X, g = rng.standard_normal((m, FEATURES)), rng.integers(0, GROUPS, m)
        scores = np.maximum(np.einsum("nj,nj->n", X, centre[g]), 0.0)
        files["X"][lo : lo + m], files["groups"][lo : lo + m] = X, g
        files["y"][lo : lo + m] = scores + (0.1 + 0.1 * g) * rng.standard_normal(m)
    for file in files.values():
        file.flush()
    return n


def fit(folder: Path, activation: str, tol: float) -> None:
    """What the process of its own does."""
    from counterpoise import GroupDRONeuron, Npy

    rows = Npy(folder / "X.npy", folder / "y.npy", folder / "groups.npy")
    start = time.perf_counter()
    model = GroupDRONeuron(activation, nu=0.0, tol=tol).fit(rows)
    seconds = time.perf_counter() - start
    peak = peak_memory()
    answer = {
        "activation": activation, "seconds": seconds, "passes": model.n_passes_,
        "peak_bytes": peak, "risk": model.risk_, "status": model.status_,
    }  # fmt: skip
    print(json.dumps(answer))


def peak_memory() -> int:
    """Most resident bytes of this process; ``ru_maxrss`` would count its parent's, too."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM"):
            return 1024 * int(line.split()[1])
    raise SystemExit("this system does not tell a process its peak memory")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gb", type=float, default=2.0)
    parser.add_argument("--folder", type=Path, default=Path("out/rows"))
    parser.add_argument("--tol", type=float, default=1e-3)
    parser.add_argument("--keep", action="store_true")
    parser.add_argument("--fit", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.fit:
        fit(options.folder, options.fit, options.tol)
        return
    free = shutil.disk_usage(options.folder.parent if options.folder.parent.exists() else ".").free
    if free < 1.1e9 * options.gb:
        raise SystemExit(f"{options.gb:g} GB do not fit: {free / 1e9:.0f} GB are free")
    n = write(options.folder, options.gb)
    print(f"{n:,} rows x {FEATURES}, {GROUPS} groups in random order, {options.gb:g} GB")
    for activation in ("identity", "relu"):
        command = [sys.executable, __file__, "--fit", activation, "--folder", str(options.folder),
                   "--tol", str(options.tol)]  # fmt: skip
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        a = json.loads(done.stdout.splitlines()[-1])
        print(
            f"{activation:>9}: {a['seconds']:.0f} s, {a['passes']} passes, "
            f"{a['passes'] * options.gb / a['seconds']:.2f} GB/s, peak memory "
            f"{a['peak_bytes'] / 1e6:.0f} MB, risk {a['risk']:.6g}"
        )
    if not options.keep:
        shutil.rmtree(options.folder)


if __name__ == "__main__":
    main()
