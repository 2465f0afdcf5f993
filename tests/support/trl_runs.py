"""Runs of TRL's trainers with a tiny model, in this process or as ranks; see `ranks.run_ranks`.

trl_runs.py OUT [JOB [CORPUS]]
"""

from __future__ import annotations

import json
import os
import sys
import warnings
from pathlib import Path

import torch
from lm_problems import small_llama

from counterpoise import Reweighter, ReweightWarning
from counterpoise.lm.adapters.trl import reweight

TASKS = ["easy"] * 12 + ["hard"] * 6  # of the rows
WORDS = [
    "<pad>",
    "<eos>",
    "easy",
    "hard",
    "sums",
    "proofs",
    *(f"n{i}" for i in range(18)),
    "a",
    "b",
    "c",
    "d",
]


def tokenizer_of():
    """One token per word; no file and no network."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(
        models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="<eos>")
    )
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="<pad>", eos_token="<eos>", unk_token="<eos>"
    )


def prompts_of(tasks=TASKS):
    from datasets import Dataset

    texts = [f"{task} n{i}" for i, task in enumerate(tasks)]
    return Dataset.from_dict({"prompt": texts, "task": list(tasks)})


class Judge:
    """A reward that differs by task and a little by completion; it remembers all prompts."""

    __name__ = "judge"

    def __init__(self, means=None):
        self.means = means or {"easy": 0.75, "hard": 0.125}
        self.calls = []

    def __call__(self, prompts, completion_ids, **columns):
        rewards = [
            self.means[prompt.split()[0]] + 0.125 * (sum(ids) % 2)
            for prompt, ids in zip(prompts, completion_ids, strict=True)
        ]
        self.calls.append((list(prompts), rewards))
        return rewards


def quiet(make):
    """Run without the advice that transformers and TRL give about tiny settings."""
    with warnings.catch_warnings():
        for category in (UserWarning, FutureWarning, DeprecationWarning):
            warnings.filterwarnings("ignore", category=category)
        warnings.filterwarnings("always", category=ReweightWarning)
        return make()


def grpo(folder, steps, groups="task", reweighter=None, resume=None, judge=None, every=1,
         signal="reward", save_steps=100, batch=8, **options):  # fmt: skip
    from trl import GRPOConfig, GRPOTrainer

    def run():
        judge_ = judge or Judge()
        args = GRPOConfig(
            output_dir=str(folder), max_steps=steps, per_device_train_batch_size=batch,
            num_generations=options.pop("num_generations", 4), max_completion_length=3,
            learning_rate=1e-3, lr_scheduler_type="constant", use_cpu=True, bf16=False,
            report_to=[], disable_tqdm=True, save_strategy="steps", save_steps=save_steps,
            logging_steps=100, gradient_checkpointing=False, dataloader_pin_memory=False,
            ddp_backend="gloo" if int(os.environ.get("WORLD_SIZE", "1")) > 1 else None, **options,
        )  # fmt: skip
        trainer = GRPOTrainer(
            model=small_llama(vocab_size=len(WORDS)), reward_funcs=judge_, args=args,
            train_dataset=prompts_of(), processing_class=tokenizer_of(),
        )  # fmt: skip
        callback = reweight(trainer, groups, reweighter, every=every, signal=signal,
                            logs=Path(folder) / "tasks.jsonl")  # fmt: skip
        trainer.train(resume_from_checkpoint=resume)
        return trainer, callback, judge_

    return quiet(run)


def by_rows(folder, steps, resume=None, tasks=TASKS, sets=None, **options):
    """A plain Trainer on rows of one repeated number each: the batches of every step, and it."""
    from datasets import Dataset
    from transformers import Trainer, TrainingArguments

    ids = [[i + 1] * 6 for i in range(len(tasks))]
    data = Dataset.from_dict({"input_ids": ids, "labels": ids})
    if sets is None:
        sets = {task: data.select([tasks.index(task)]) for task in dict.fromkeys(tasks)}
    args = {
        "eval_strategy": "steps", "eval_steps": 3, "save_strategy": "steps", "save_steps": 3,
        "per_device_train_batch_size": 2, "learning_rate": 1e-2, "logging_steps": 1,
    } | options  # fmt: skip
    trainer = Trainer(
        small_llama(vocab_size=40),
        args=TrainingArguments(
            str(folder), max_steps=steps, use_cpu=True, report_to=[], disable_tqdm=True,
            ddp_backend="gloo" if int(os.environ.get("WORLD_SIZE", "1")) > 1 else None, **args,
        ),
        train_dataset=data, eval_dataset=sets,
    )  # fmt: skip
    callback = reweight(trainer, tasks)
    seen, training_step = [], trainer.training_step

    def step(model, inputs, *rest, **more):
        rows = (inputs["input_ids"][:, 0] - 1).tolist()
        seen.append([trainer.state.global_step, rows])
        return training_step(model, inputs, *rest, **more)

    trainer.training_step = step
    trainer.train(resume_from_checkpoint=resume)
    return seen, trainer, callback


def weights_of():
    return Reweighter(["easy", "hard"], start=[0.5, 0.5], step=1.0)


def rewarded(out):
    batch = 8 // int(os.environ["WORLD_SIZE"])
    _, callback, judge = grpo(out / "run", 4, reweighter=weights_of(), batch=batch)
    return {"state": callback.steering.state_dict(), "calls": judge.calls}


def split(out, corpus):
    """All ranks hold parts of one model, as far as loaders can tell: a mesh like that of cards."""
    from accelerate import Accelerator
    from lm_adapters import LENGTH
    from torch.distributed.device_mesh import init_device_mesh
    from transformers import Trainer, TrainingArguments

    from counterpoise.lm import Corpus, MixtureDataset, held_out
    from counterpoise.lm.adapters import hf

    corpus = Corpus.open(corpus)
    early = MixtureDataset(corpus, LENGTH)  # before torch.distributed is set up
    args = TrainingArguments(
        str(out / "hf"), max_steps=2, per_device_train_batch_size=2, use_cpu=True, report_to=[],
        ddp_backend="gloo", disable_tqdm=True, eval_strategy="steps", save_strategy="no",
    )  # fmt: skip
    mesh = init_device_mesh("cpu", (1, args.world_size), mesh_dim_names=("dp_shard", "tp"))
    Accelerator.torch_device_mesh = property(lambda self: mesh)
    Trainer.get_tp_size = lambda self: args.world_size

    def read(mixture):
        trainer = Trainer(
            small_llama(), args=args, train_dataset=mixture,
            eval_dataset=held_out(corpus, LENGTH, limit=8),
        )  # fmt: skip
        try:
            hf.reweight(trainer)
        except ValueError as error:
            return str(error)
        batches = iter(trainer.get_train_dataloader())
        return [next(batches)["input_ids"].tolist() for _ in range(2)]

    seen, _, callback = by_rows(out / "rows", 5, save_strategy="no")
    try:
        grpo(out / "grpo", 1, batch=4)
        refused = ""
    except ValueError as error:
        refused = str(error)
    return {
        "early": read(early),
        "late": read(MixtureDataset(corpus, LENGTH)),
        "meshed": read(MixtureDataset(corpus, LENGTH, mesh=mesh)),
        "seen": seen,
        "drawn": callback.sampler.state_dict()["number"],
        "rewarded": refused,
    }


JOBS = {job.__name__: job for job in (rewarded, split)}


def main(out, job="rewarded", *words):
    torch.set_num_threads(1)
    import torch.distributed as dist

    out = Path(out)
    out.mkdir(parents=True, exist_ok=True)
    found = JOBS[job](out, *words)
    (out / f"{os.environ['RANK']}.json").write_text(json.dumps(found))
    if dist.is_initialized():
        dist.barrier()
        dist.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])
