"""Runs of TRL's trainers with a tiny model, in this process or as ranks; see `ranks.run_ranks`.

trl_runs.py OUT
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


def weights_of():
    return Reweighter(["easy", "hard"], start=[0.5, 0.5], step=1.0)


def main(out):
    torch.set_num_threads(1)
    import torch.distributed as dist

    out = Path(out)
    out.mkdir(parents=True, exist_ok=True)
    batch = 8 // int(os.environ["WORLD_SIZE"])
    trainer, callback, judge = grpo(out / "run", 4, reweighter=weights_of(), batch=batch)
    found = {
        "state": callback.steering.state_dict(),
        "calls": judge.calls,
    }
    (out / f"{trainer.args.process_index}.json").write_text(json.dumps(found))
    if dist.is_initialized():
        dist.barrier()
        dist.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])
