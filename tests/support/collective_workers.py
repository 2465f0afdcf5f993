"""Fits that two processes make together, for the tests of collectives.

    collective_workers.py LIBRARY JOB FILE ...

LIBRARY is torch, mpi, or allreduce, where torch sums arrays for a function of the user. Every rank
pickles what it found to FILE.RANK.
"""

from __future__ import annotations

import os
import pickle
import signal
import sys
import warnings
from datetime import timedelta
from pathlib import Path

import numpy as np
import pandas as pd
from problems import neuron_data
from scipy import sparse

from counterpoise import (
    Chunks,
    Collective,
    GroupDROClassifier,
    GroupDRONeuron,
    GroupDRORegressor,
    Source,
)

CUT = 500  # of 1600 rows: the first rank lacks the last groups


def columns():
    X, y, groups = neuron_data(K=4, n=400, d=4, seed=3)
    weights = np.random.default_rng(0).uniform(0.5, 2.0, 1600)
    weights[::7] = 0.0
    return [X.astype(np.float32).astype(float), y, np.array(list("abcd"))[groups], weights]


def classes():
    X, y, groups, weights = columns()
    names = np.where(y > 0.5, "high", "low").astype("U8")
    names[1100:][X[1100:, 0] > 0.8] = "rare"  # which only the second rank has
    return [X, names, groups, weights]


def overlapping():
    X, y, groups, weights = columns()
    matrix = np.stack([groups == "a", groups != "d", X[:, 0] > 0], axis=1).astype(float)
    return [X, y, matrix, weights]


def part(all_rows, rank, cut=CUT):
    rows = slice(0, cut) if rank == 0 else slice(cut, None)
    return [column[rows] for column in all_rows]


def chunks(own):
    return Chunks([tuple(c[i : i + 200] for c in own) for i in range(0, len(own[0]), 200)])


def frame(X):
    return pd.DataFrame(X, columns=["p", "q", "r", "s"])


# Every fit: the model, all rows, and the rows of a rank in the storage that it has.
FITS = {
    "relu": (GroupDRONeuron("relu", nu=0.05), columns, None),
    "linear": (GroupDRONeuron("identity", nu=0.05), columns, None),
    "single": (GroupDRONeuron("identity", nu=0.05), columns,
               lambda own, rank: [own[0].astype(np.float32) if rank else own[0], *own[1:]]),
    "sparse": (GroupDRONeuron("relu", nu=0.05, precondition=None), columns,
               lambda own, rank: [sparse.csr_matrix(own[0]) if rank else own[0], *own[1:]]),
    "chunks": (GroupDRONeuron("relu", nu=0.05), columns,
               lambda own, rank: [chunks(own)] if rank else own),
    "frames": (GroupDRONeuron("relu", nu=0.05), columns,
               lambda own, rank: [frame(own[0]), *own[1:]]),
    "idle": (GroupDRONeuron("relu", nu=0.05), columns,
             lambda own, rank: columns() if rank else [None]),
    "huber": (GroupDRORegressor(loss="huber", nu=0.05), columns, None),
    "classes": (GroupDROClassifier(nu=0.05), classes, None),
    "class chunks": (GroupDROClassifier(nu=0.05), classes, lambda own, rank: [chunks(own)]),
    "overlapping": (GroupDRONeuron("identity", nu=0.05), overlapping, None),
}  # fmt: skip


def facts(model):
    return {
        name: getattr(model, name)
        for name in ("coef_", "intercept_", "group_weights_", "group_risks_", "risk_", "groups_",
                     "n_passes_", "status_", "classes_", "feature_names_in_")
        if hasattr(model, name)
    }  # fmt: skip


def fits(collective, file):
    """Every fit, and predictions of the rank's own rows."""
    found = {}
    for name, (model, make, stored) in FITS.items():
        own = part(make(), collective.rank)
        own = own if stored is None else stored(own, collective.rank)
        rows = collective.rows(*own)
        found[name] = facts(model.fit(rows)) | {"predicted": model.predict(rows)}
    return found


def said(work):
    try:
        work()
    except Exception as error:
        return type(error).__name__, str(error)
    return "", ""


class Failing(Source):
    """A source that fails in its third pass."""

    def __init__(self, own):
        self.own, self.passes = own, 0

    def __iter__(self):
        self.passes += 1
        if self.passes == 3:
            raise OSError("the disk is gone")
        yield tuple(self.own)


def faults(collective, file):
    """Errors that all ranks must raise; the ranks go on after each of them."""
    X, y, groups, _ = part(columns(), collective.rank)
    model, second = GroupDRONeuron("relu"), collective.rank == 1
    bad = np.where(np.arange(4) == 2, np.nan, X) if second else X
    late = [Failing([X, y, groups])] if second else [X, y, groups]
    found = [said(lambda: model.fit(collective.rows(bad, y, groups)))]
    found.append(said(lambda: model.fit(collective.rows(*late))))
    other = GroupDRONeuron("relu", nu=0.5 if second else 0.05)
    found.append(said(lambda: other.fit(collective.rows(X, y, groups))))
    label = GroupDROClassifier()
    names = np.where(y > 0, "up", "down")
    missing = np.where(np.arange(len(y)) == 3, None, names) if second else names
    found.append(said(lambda: label.fit(collective.rows(X, missing, groups))))
    no_folder = GroupDRONeuron("relu", checkpoint=f"{file}.missing/fit.journal")
    found.append(said(lambda: no_folder.fit(collective.rows(X, y, groups))))
    model.fit(collective.rows(X, y, groups))
    return {"said": found, "coef": model.coef_}


class Killing(Source):
    """Rows of a rank that kills its process in some pass."""

    def __init__(self, own, at):
        self.own, self.passes, self.at = own, 0, at

    def __iter__(self):
        self.passes += 1
        if self.passes == self.at:
            os.kill(os.getpid(), signal.SIGKILL)
        yield tuple(self.own)


def kill(collective, file, journal, rank, at):
    """A fit with a checkpoint in which one rank is killed in a pass; 0 is never."""
    at = int(at) if collective.rank == int(rank) else 0
    source = Killing(part(columns(), collective.rank), at)
    # The path of other ranks is not touched.
    path = journal if collective.rank == 0 else f"{file}.missing/never"
    model = GroupDRONeuron("relu", nu=0.05, checkpoint=None if journal == "none" else path)
    kind, text = said(lambda: model.fit(collective.rows(source)))
    if kind:
        Path(f"{file}.{collective.rank}.said").write_text(f"{kind}: {text}")
        os._exit(3)  # the process group cannot be torn down
    return facts(model) | {"read": source.passes}


def connect(library):
    if library == "mpi":
        return Collective.mpi()
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=timedelta(seconds=60))
    if library == "torch":
        return Collective.torch()

    def allreduce(values):
        dist.all_reduce(torch.from_numpy(values))
        return values

    return Collective(allreduce, rank=dist.get_rank(), size=dist.get_world_size())


def main():
    library, job, file, *more = sys.argv[1:]
    warnings.simplefilter("error")
    collective = connect(library)
    found = globals()[job](collective, file, *more)
    Path(f"{file}.{collective.rank}").write_bytes(pickle.dumps(found))
    if library != "mpi":
        import torch.distributed as dist

        dist.barrier()
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
