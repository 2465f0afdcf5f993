"""Jobs that processes run for the tests of the torchtitan adapter; see `ranks.run_ranks`.

    titan_workers.py JOB CORPUS FOLDER OUT

Each rank writes what it found to OUT/RANK.json. FOLDER has the checkpoints.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from lm_titan import StandIn

from counterpoise.lm.adapters.torchtitan import MixtureDataLoader, reweight

STEPS, EVERY, SAVED, WHOLE = 8, 2, 4, 8


def trained(corpus, folder, out, load_step=None, interval=None, evaluate=None, **dims):
    config = MixtureDataLoader.Config(corpus=corpus, seed=1, positions=True)
    trainer = StandIn(config, folder, steps=STEPS, whole=WHOLE, interval=interval, **dims)
    steering = reweight(
        trainer, every=EVERY, limit=20, batch_size=4, evaluate=evaluate, logs=out / "run.jsonl"
    )
    trainer.train(load_step)
    return {
        "place": trainer.dataloader.mixture.rank,
        "read": trainer.read,
        "seen": trainer.ntokens_seen,
        "logged": trainer.metrics_processor.logged,
        "state": steering.state_dict(),
        "parameters": torch.cat([p.detach().flatten() for p in trainer.model_parts[0].parameters()])
        .tolist(),
    }  # fmt: skip


def saved(corpus, folder, out):
    return trained(corpus, folder, out, interval=SAVED)


def resumed(corpus, folder, out):
    return trained(corpus, folder, out, load_step=SAVED)


def sharded(corpus, folder, out):
    """Two ranks of a tensor-parallel group in each place of the data-parallel one."""
    return trained(corpus, folder, out, tp=2)


def differing(corpus, folder, out):
    """Each rank measures other losses; those of the first one count."""

    def evaluate(trainer):
        return {"x": 1.0 + dist.get_rank(), "y": 2.0, "z": 3.0}

    return trained(corpus, folder, out, pp=2, evaluate=evaluate)


def staged(corpus, folder, out):
    """Only the last stage of a pipeline has losses."""

    def evaluate(trainer):
        return None if dist.get_rank() == 0 else {"x": 3.0, "y": 2.0, "z": 3.0}

    return trained(corpus, folder, out, pp=2, evaluate=evaluate)


def lacking(corpus, folder, out):
    """No rank has the losses of all domains."""

    def evaluate(trainer):
        return {"x": 1.0} if dist.get_rank() == 0 else {"x": 3.0, "y": 2.0}

    try:
        return trained(corpus, folder, out, pp=2, evaluate=evaluate)
    except ValueError as error:
        return {"error": str(error)}


JOBS = {job.__name__: job for job in (saved, resumed, sharded, differing, staged, lacking)}


def main(job, corpus, folder, out):
    torch.set_num_threads(1)
    out = Path(out)
    out.mkdir(parents=True, exist_ok=True)
    dist.init_process_group("gloo")
    found = JOBS[job](corpus, Path(folder), out)
    (out / f"{dist.get_rank()}.json").write_text(json.dumps(found))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])
