"""Jobs that ranks of a `DeviceMesh` run for the tests; see `ranks.run_ranks`.

    mesh_workers.py MESH,... NUMBERED MARKOV OUT GIVEN

A mesh is ``dp=2:tp=1``. Each rank writes what it found to OUT/MESH/RANK.json; runs are resumed from
what another mesh left in GIVEN. ``sharded`` and ``trained`` in place of meshes are other jobs.
"""

from __future__ import annotations

import gc
import json
import os
import sys
from pathlib import Path
from unittest import mock

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from lm_problems import small_llama
from lm_runs import run_settings
from lm_workers import plain
from torch.utils._python_dispatch import TorchDispatchMode

from counterpoise import Reweighter
from counterpoise.lm import (
    Checkpointable,
    Corpus,
    MixtureDataset,
    Steering,
    domain_losses,
    held_out,
)
from counterpoise.lm.evaluate import sequence_loss
from counterpoise.lm.training import placing
from counterpoise.lm.training.model import make_model
from counterpoise.lm.training.ranks import Process
from counterpoise.torch import data_group

LENGTH, WHOLE, SAVED, STEPS = 4, 8, 5, 12
LOSSES = {2: [1.0, 2.0, 3.0], 4: [3.0, 1.0, 2.0], 5: [0.5, 3.0, 2.0], 8: [2.0, 2.0, 1.0]}


def steered(corpus, logs=(), **options):
    mixture = MixtureDataset(corpus, LENGTH, seed=1, **options)
    return mixture, Steering(Reweighter(mixture.domains, start=mixture.weights), mixture, logs=logs)


def read(mixture, steering, first=1, save=None, **options):
    """Samples of each step, by name; weights change on the way, four batches after a step."""
    loader, found = mixture.loader(WHOLE // mixture.world_size, lag=4, **options), []
    for step, batch in enumerate(loader, first):
        found.append(batch["input_ids"][:, 0].tolist())
        if step in LOSSES:
            steering.observe(LOSSES[step], step=step)
        if step == SAVED and save is not None:
            save()
        if step == STEPS:
            return found
    raise AssertionError("the stream ended")


def written(steering, out):
    """What is saved, as JSON and for torch.distributed.checkpoint."""
    steering.save(out / "steering.json")
    dcp.save({"steering": Checkpointable(steering)}, checkpoint_id=out / "dcp")


def resumed(corpus, given, **options):
    mixture, steering = steered(corpus, **options)
    dcp.load({"steering": Checkpointable(steering)}, checkpoint_id=given / "dcp")
    return read(mixture, steering, SAVED + 1)


def noisy(mesh):
    """A loss whose last digits depend on the rank's place beside the data-parallel ranks."""
    off = 1.0 + 1e-12 * mesh.get_coordinate()[-1]

    def loss(model, batch):
        sums, counts = sequence_loss(model, batch)
        return sums * off, counts

    return loss


def stops(corpus):
    """What a rank says when it sees other losses than the ranks beside it."""
    _, steering = steered(corpus)
    try:
        steering.observe([1.0, 2.0 + dist.get_rank(), 3.0], step=1)
    except RuntimeError as error:
        return str(error)
    return None


def on_mesh(mesh, numbered, markov, out, given):
    mixture, steering = steered(numbered, mesh=mesh, logs=out / "run.jsonl")
    workers = int(mesh.size() == 2)
    found = read(mixture, steering, save=lambda: written(steering, out), num_workers=workers)
    evaluated = domain_losses(
        small_llama(), held_out(markov, 16), batch_size=5, mesh=mesh, loss=noisy(mesh)
    )
    return {
        "rank": mixture.rank,
        "size": mixture.world_size,
        "read": found,
        "resumed": resumed(numbered, given, mesh=mesh),
        "state": steering.state_dict(),
        "losses": evaluated.losses,
        "counts": evaluated.counts,
        "group": dist.get_process_group_ranks(data_group(mesh)),
        "stops": stops(numbered),
    }


class Largest(TorchDispatchMode):
    """Notes the size of the largest tensor of floats that was made, but for those on meta."""

    numbers = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        made = func(*args, **(kwargs or {}))
        for one in made if isinstance(made, (tuple, list)) else (made,):
            if isinstance(one, torch.Tensor) and one.is_floating_point() and not one.is_meta:
                self.numbers = max(self.numbers, one.numel())
        return made


def sharded(corpus, checkpoint):
    """How a sharded model comes to be, and whether it is the model that one process makes."""
    from torch.distributed import fsdp

    real, found = fsdp.fully_shard, {}
    process = Process(torch.device("cpu"), dist.get_rank(), dist.get_world_size())
    chosen = {
        "new": {"tie_embeddings": False},
        "tied": {"tie_embeddings": True},
        "checkpoint": {"checkpoint": checkpoint},
    }
    for name, change in chosen.items():
        settings = run_settings(corpus, model=change, train={"parallel": "fsdp"})
        made, empty = [], []

        def making(*args, made=made):
            made.append(1)
            return make_model(*args)

        def sharding(module, empty=empty, **options):
            empty.append(all(p.is_meta or p.numel() == 0 for p in module.parameters()))
            return real(module, **options)

        with (
            mock.patch.object(placing, "make_model", making),
            mock.patch.object(fsdp, "fully_shard", sharding),
            Largest() as largest,
        ):
            model = placing.place_model(settings, corpus, process)
        alone = make_model(settings, corpus)
        theirs = dict(alone.named_buffers())
        found[name] = {
            "made": len(made),
            "empty": empty,
            "largest": largest.numbers,
            "parameter": max(p.numel() for p in alone.parameters()),
            "held": sum(p.to_local().numel() for p in model.parameters()),
            "all": sum(p.numel() for p in alone.parameters()),
            "same": all(
                torch.equal(p.full_tensor(), q)
                for p, q in zip(model.parameters(), alone.parameters(), strict=True)
            ),
            "buffers": {k: torch.equal(v, theirs[k]) for k, v in model.named_buffers()},
            "tied": model.lm_head.weight is model.model.embed_tokens.weight,
            "config": model.config.to_dict() == alone.config.to_dict(),
            "training": model.training,
        }
        del model
        gc.collect()
    return found


def trained(corpus, out):
    """FSDP2 over two data-parallel ranks, tensor parallelism over two beside each."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor.parallel import (
        ColwiseParallel,
        RowwiseParallel,
        parallelize_module,
    )

    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    split = {f"self_attn.{name}_proj": ColwiseParallel() for name in "qkv"}
    split |= {f"mlp.{name}_proj": ColwiseParallel() for name in ("gate", "up")}
    split |= {"self_attn.o_proj": RowwiseParallel(), "mlp.down_proj": RowwiseParallel()}

    def wrap(net):
        for layer in net.model.layers:
            parallelize_module(layer, mesh["tp"], split)
        return fully_shard(net, mesh=mesh["dp"])

    return plain(corpus, out, wrap, mesh=mesh)


def main(meshes, numbered, markov, out, given):
    from torch.distributed.device_mesh import init_device_mesh

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    numbered, markov = Corpus.open(numbered), Corpus.open(markov)
    for name in meshes.split(","):
        folder = Path(out, name)
        folder.mkdir(parents=True, exist_ok=True)
        if name == "sharded":
            found = sharded(markov, given)
        elif name == "trained":
            found = trained(markov, folder)
        else:
            pairs = [pair.split("=") for pair in name.split(":")]
            names, shape = zip(*((name, int(size)) for name, size in pairs), strict=True)
            mesh = init_device_mesh("cpu", shape, mesh_dim_names=names)
            found = on_mesh(mesh, numbered, markov, folder, Path(given))
        (folder / f"{os.environ['RANK']}.json").write_text(json.dumps(found))
        dist.barrier()
    gc.collect()  # no sharded model may outlive the process group
    dist.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])
