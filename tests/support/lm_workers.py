"""Jobs that two processes run for the tests of distributed training; see `ranks.run_ranks`.

    lm_workers.py JOB,... CORPUS OUT

Each rank writes what it found in a job to OUT/JOB/RANK.json.
"""

from __future__ import annotations

import gc
import json
import os
import shutil
import sys
import warnings
from pathlib import Path
from unittest import mock

import torch
import torch.distributed as dist
from lm_problems import lightning_llama, small_llama
from lm_runs import STEP, run_settings

from counterpoise import Reweighter
from counterpoise.lm import Corpus, MixtureDataset, Steering, domain_losses, held_out
from counterpoise.lm.training.run_folder import RESULT
from counterpoise.lm.training.train import train
from counterpoise.storage import remembered

LENGTH, WHOLE, STEPS = 16, 8, 9


def steered(corpus, out, mesh=None, **options):
    mixture = MixtureDataset(corpus, LENGTH, seed=1, mesh=mesh)
    reweighter = Reweighter(mixture.domains, start=mixture.weights, **options)
    return mixture, Steering(reweighter, mixture, logs=out / "run.jsonl")


def plain(corpus, out, wrap=lambda net: net, workers=0, mesh=None):
    """A plain loop; the whole batch is the same whatever the number of ranks."""
    rank = dist.get_rank() if dist.is_initialized() else 0
    mixture, steering = steered(corpus, out, mesh)
    net = wrap(small_llama())
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    evaluation, read = held_out(corpus, LENGTH), []
    loader = mixture.loader(WHOLE // mixture.world_size, num_workers=workers, lag=4)
    for step, batch in enumerate(loader, 1):
        batch.pop("domain")
        read.append(batch["input_ids"].tolist())
        net(**batch).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if step % 3 == 0:
            losses, counts = domain_losses(net, evaluation, batch_size=5, mesh=mesh)
            steering.observe(losses, counts, step)
        if step == STEPS:
            break
    whole = [
        getattr(p, "full_tensor", lambda p=p: p)().detach().flatten() for p in net.parameters()
    ]
    return {
        "rank": rank,
        "read": read,
        "weights": steering.weights.tolist(),
        "losses": list(losses.values()),
        "state": steering.state_dict(),
        "parameters": torch.cat(whole).tolist(),
    }


def ddp(corpus, out):
    return plain(corpus, out, torch.nn.parallel.DistributedDataParallel)


def ddp_with_workers(corpus, out):
    return plain(corpus, out, torch.nn.parallel.DistributedDataParallel, workers=1)


def fsdp(corpus, out):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    return plain(corpus, out, lambda net: fully_shard(net, mesh=mesh))


def subgroups(corpus, out):
    """Each rank alone in a group of its own sees all samples."""
    groups = [dist.new_group([rank]) for rank in range(dist.get_world_size())]
    model, samples = small_llama(), held_out(corpus, LENGTH)
    alone = domain_losses(model, samples, group=groups[dist.get_rank()])
    return {"alone": alone.losses, "together": domain_losses(model, samples).losses}


def disagreeing(corpus, out):
    """Ranks that see different losses must not go on with different weights."""
    _, steering = steered(corpus, out)
    try:
        steering.observe([1.0, 2.0 + dist.get_rank(), 3.0], step=1)
    except RuntimeError as error:
        return {"error": str(error)}
    return {"error": None}


def trainer(corpus, out):
    """Hugging Face Trainer, which makes the process group itself."""
    from transformers import Trainer, TrainingArguments

    from counterpoise.lm.adapters.hf import reweight

    world = int(os.environ.get("WORLD_SIZE", "1"))
    args = TrainingArguments(
        output_dir=str(out), max_steps=6, per_device_train_batch_size=WHOLE // world,
        eval_strategy="steps", eval_steps=3, save_strategy="no", report_to=[], use_cpu=True,
        learning_rate=1e-2, disable_tqdm=True, max_grad_norm=0.0,
        ddp_backend="gloo" if world > 1 else None,
        lr_scheduler_type="constant", per_device_eval_batch_size=4,
    )  # fmt: skip
    mixture = MixtureDataset(corpus, LENGTH, seed=1)
    used = Trainer(
        model=small_llama(), args=args, train_dataset=mixture,
        eval_dataset=held_out(corpus, LENGTH, limit=8),
    )  # fmt: skip
    callback = reweight(used, Reweighter(mixture.domains, start=mixture.weights))
    used.train()
    return {
        "world": world,
        "weights": callback.steering.weights.tolist(),
        "state": callback.steering.state_dict(),
        "parameters": torch.cat([p.detach().flatten() for p in used.model.parameters()]).tolist(),
    }


def lightning(corpus, out):
    """Lightning's own DDP."""
    import lightning.pytorch as pl

    from counterpoise.lm.adapters.lightning import ReweightingCallback

    world = int(os.environ.get("WORLD_SIZE", "1"))
    mixture = MixtureDataset(corpus, LENGTH, seed=1)
    loader = mixture.loader(WHOLE // world)
    callback = ReweightingCallback(Reweighter(mixture.domains, start=mixture.weights), loader)
    evaluation = [
        torch.utils.data.DataLoader(data, batch_size=1)
        for data in held_out(corpus, LENGTH, limit=8).values()
    ]
    module = lightning_llama()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pl.Trainer(
            max_steps=6, val_check_interval=3, check_val_every_n_epoch=None, logger=False,
            callbacks=[callback], enable_progress_bar=False, enable_model_summary=False,
            enable_checkpointing=False, accelerator="cpu", devices=world,
            strategy="ddp" if world > 1 else "auto",
        ).fit(module, loader, evaluation)  # fmt: skip
    return {
        "world": world,
        "weights": callback.steering.weights.tolist(),
        "state": callback.state_dict(),
        "parameters": torch.cat([p.detach().flatten() for p in module.parameters()]).tolist(),
    }


def trained(corpus, out, parallel):
    """A run; then the same run again from its checkpoint at step 16 on."""
    chosen = {"parallel": parallel, "checkpoint_every": STEP * 8, "keep": 9}
    settings = run_settings(corpus, train=chosen)
    train(settings, out / "whole", progress=False)
    if dist.get_rank() == 0:
        shutil.copytree(out / "whole", out / "resumed")
        (out / "resumed" / RESULT).unlink()
        shutil.rmtree(out / "resumed" / "checkpoints" / "step-00000024")
    dist.barrier()
    return train(settings, out / "resumed", progress=False)


def trained_ddp(corpus, out):
    return trained(corpus, out, "ddp")


def trained_fsdp(corpus, out):
    return trained(corpus, out, "fsdp")


def continued(corpus, out):
    """A run from the model of another, where nothing can be remembered on disk.

    Returns the files that this rank reads in full.
    """
    if dist.get_rank() == 0:
        unseen = shutil.ignore_patterns(remembered.VERIFIED)
        shutil.copytree(corpus.folder, out / "corpus", ignore=unseen)
    dist.barrier()
    corpus = Corpus.open(out / "corpus")
    model = out.parent / "trained_ddp" / "whole" / "checkpoints" / "step-00000024"
    seen, real = [], remembered.checksum

    def read(path):
        seen.append(path.name)
        return real(path)

    def write(path, value):
        raise PermissionError(path)

    with (
        mock.patch.object(remembered, "checksum", read),
        mock.patch.object(remembered, "write_json", write),
        mock.patch.object(remembered, "SETTLED", -1),
        mock.patch.object(remembered, "_known", {}),
    ):
        train(run_settings(corpus, model={"checkpoint": str(model)}), out / "run", progress=False)
    return sorted(seen)


JOBS = {
    job.__name__: job
    for job in (
        lightning, trainer, ddp, ddp_with_workers, fsdp, subgroups, disagreeing, trained_ddp,
        trained_fsdp, continued,
    )
}  # fmt: skip
FRAMEWORKS = ("lightning", "trainer")  # they set up torch.distributed themselves


def main(jobs, corpus, out):
    torch.set_num_threads(1)
    for job in jobs.split(","):
        folder = Path(out, job)
        folder.mkdir(parents=True, exist_ok=True)
        if job not in FRAMEWORKS and not dist.is_initialized():
            dist.init_process_group("gloo")
        found = JOBS[job](Corpus.open(corpus), folder)
        (folder / f"{dist.get_rank()}.json").write_text(json.dumps(found))
        gc.collect()  # no wrapped model may outlive the process group
        dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])
