"""What is proved about a ReLU neuron: gaps by radius, and what the proof costs beside the fit.

    python benchmarks/regions.py [--tables NAME ...]

For each table and synthetic problem: the gap, as a share of the risk, in regions of 10 %, 50 % and
100 % of the labels' spread; the widest region with a gap of at most 1 %; and the passes and seconds
of the fit alone, and of the fit with the search for that region (``certificate="region"``).
Compilation comes before the timing. Writes ``regions.json`` and ``regions.md`` to ``out/bench``.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import numpy as np
from datasets import SOURCES
from environments import Unavailable

from counterpoise import GroupDRONeuron

TABLES = (
    "flights-air-time", "diamonds", "bikeshare", "crime",
    "gaussian-5x2000x10", "gaussian-5x2000x50", "gaussian-5x20000x50",
)  # fmt: skip
SHARES = (0.1, 0.5, 1.0)
HEAD = (
    "| rows | nu | gap at 10 % of the spread | at 50 % | at 100 % | widest with a gap of 1 % "
    "| passes: fit, with region | seconds: fit, with region |\n|---|---|---|---|---|---|---|---|\n"
)


def gaussian(K, n, d, noise=0.3):
    """Groups whose ReLU neurons differ by a third, with noise."""
    rng = np.random.default_rng(0)
    X, groups = rng.normal(size=(K * n, d)), np.repeat(np.arange(K), n)
    w = rng.normal(size=d)
    own = w / np.linalg.norm(w) + 0.3 * rng.normal(size=(K, d)) / np.sqrt(d)
    y = np.maximum(np.sum(X * own[groups], axis=1), 0.0)
    return X, y + noise * rng.normal(size=K * n), groups


def rows_of(name, cache):
    if name.startswith("gaussian-"):
        return gaussian(*map(int, name.removeprefix("gaussian-").split("x")))
    return SOURCES[name].load("relu", cache)


def measured(name, X, y, groups, nu):
    """One line of the table."""
    begun = time.perf_counter()
    plain = GroupDRONeuron(nu=nu).fit(X, y, groups)
    middle = time.perf_counter()
    model = GroupDRONeuron(nu=nu, certificate="region").fit(X, y, groups)
    ended = time.perf_counter()
    proof = model.certificate_.proof
    widest = proof.widest()
    radii = [share * proof.spread for share in SHARES]
    regions = model.certify(X, y, groups, radii=radii)
    return {
        "rows": name, "shape": list(X.shape), "groups": len(np.unique(groups)), "nu": str(nu),
        "gaps": [region.gap / model.risk_ for region in regions],
        "widest": 0.0 if widest is None else widest.radius / proof.spread,
        "passes": [plain.n_passes_, model.n_passes_],
        "seconds": [middle - begun, ended - middle],
        "risks": [plain.risk_, model.risk_],
    }  # fmt: skip


def line(found):
    gaps = " | ".join(f"{100 * gap:.2g} %" for gap in found["gaps"])
    passes, seconds = found["passes"], found["seconds"]
    return (
        f"| {found['rows']} | {found['nu']} | {gaps} | {found['widest']:.3g} x spread "
        f"| {passes[0]}, {passes[1]} | {seconds[0]:.2f}, {seconds[1]:.2f} |\n"
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tables", nargs="+", default=TABLES)
    parser.add_argument("--out", type=Path, default=Path("out/bench"))
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    warm = gaussian(2, 100, 3)
    GroupDRONeuron(certificate="region").fit(*warm)
    done = []
    for name in args.tables:
        try:
            rows = rows_of(name, args.out / "packages")
        except Unavailable as error:
            print(f"{name}: {error}")
            continue
        for nu in ("auto", 0.0):
            done.append(measured(name, *rows, nu))
            print(line(done[-1]), end="", flush=True)
    (args.out / "regions.json").write_text(json.dumps(done, indent=1) + "\n")
    (args.out / "regions.md").write_text(HEAD + "".join(map(line, done)))


if __name__ == "__main__":
    main()
