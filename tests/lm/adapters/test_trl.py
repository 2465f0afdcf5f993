"""TRL: real trainers with a tiny model, whose prompts are drawn by task or difficulty."""

import json
import warnings
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from lm_adapters import LENGTH, make_corpus, parameters
from lm_problems import small_llama
from paths import SUPPORT
from ranks import run_ranks
from trl_runs import (
    TASKS,
    WORDS,
    Judge,
    by_rows,
    grpo,
    prompts_of,
    quiet,
    tokenizer_of,
    weights_of,
)

from counterpoise import Reweighter, ReweightWarning
from counterpoise.lm import DifficultyBins, JsonlLog, Steering
from counterpoise.lm.adapters.group_sampler import GroupSampler
from counterpoise.lm.adapters.trl import GroupReweightingCallback, reweight

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Six steps that nothing stopped, with a checkpoint after three."""
    folder = tmp_path_factory.mktemp("whole")
    return *grpo(folder, 6, reweighter=weights_of(), save_steps=3), folder


def prompts(judge):
    return [prompts for prompts, _ in judge.calls]


def test_weights_move_to_the_harder_task_by_its_rewards(whole):
    _, callback, judge, folder = whole
    assert len(judge.calls) == callback.steering.reweighter.updates == 6
    expected = weights_of()
    for step, (texts, rewards) in enumerate(judge.calls, 1):
        by_task = {
            task: [1.0 - r for text, r in zip(texts, rewards, strict=True) if text.startswith(task)]
            for task in ("easy", "hard")
        }
        counts = {task: len(found) // 4 for task, found in by_task.items()}
        losses = {t: np.mean(found) if found else np.nan for t, found in by_task.items()}
        expected.update(losses, counts, step=step, absent_ok=True)
    np.testing.assert_allclose(callback.steering.weights, expected.weights, rtol=1e-6)
    assert callback.steering.weights[1] > 0.6
    assert [r["step"] for r in JsonlLog(folder / "tasks.jsonl").read()] == [1, 2, 3, 4, 5, 6]


def test_each_prompt_comes_with_all_its_generations(whole):
    for texts in prompts(whole[2]):
        assert len(texts) == 8
        assert [texts[i] for i in (0, 4) for _ in range(4)] == texts


def test_a_resume_draws_the_same_prompts_to_the_bit(whole, tmp_path):
    trainer, callback, judge, folder = whole
    resume = str(folder / "checkpoint-3")
    again, resumed, later = grpo(tmp_path, 6, reweighter=weights_of(), resume=resume, save_steps=3)
    assert later.calls == judge.calls[3:]
    assert resumed.steering.state_dict() == callback.steering.state_dict()
    assert torch.equal(parameters(trainer.model), parameters(again.model))


def test_generations_that_are_reused_count_once(tmp_path):
    _, callback, judge = grpo(
        tmp_path, 8, reweighter=weights_of(), gradient_accumulation_steps=2, num_iterations=2,
        batch=4, every=4,
    )  # fmt: skip
    assert len(judge.calls) == 8 * 2 / (2 * 2)
    assert callback.steering.reweighter.updates == 2
    report = callback.sampler.report()
    assert sum(report[task]["samples"] for task in ("easy", "hard")) == 4 * 2
    assert callback.sampler.done == 0


def test_a_checkpoint_within_a_batch_of_generations_warns(tmp_path):
    with pytest.warns(ReweightWarning, match="within a batch of generations"):
        grpo(tmp_path, 1, reweighter=weights_of(), num_iterations=2, save_steps=1)


class JudgeOfNumbers(Judge):
    """The last six prompts never pass, the first six always do, the others every other time."""

    def __call__(self, prompts, completion_ids, **columns):
        numbers = [int(prompt.split()[1][1:]) for prompt in prompts]
        rewards = [
            1.0 if n < 6 else 0.0 if n >= 12 else float(i % 2) for i, n in enumerate(numbers)
        ]
        self.calls.append((list(prompts), rewards))
        return rewards


def test_difficulty_bins_follow_pass_rates_and_resume(tmp_path):
    def run(folder, resume=None):
        bins = DifficultyBins(len(TASKS), edges=(0.25, 0.75), trust=1.0, memory=1.0)
        reweighter = Reweighter(bins.names, "static")
        found = grpo(folder, 12, groups=bins, reweighter=reweighter, judge=JudgeOfNumbers(),
                     save_steps=6, every=2, signal="spread", resume=resume)  # fmt: skip
        return *found, bins

    _, callback, judge, bins = run(tmp_path / "a")
    tried = bins.tries > 0
    known = np.repeat([2, 1, 0], 6)  # of bins
    assert tried.sum() >= 8
    passes = np.where(known == 2, bins.tries, np.where(known == 1, bins.tries / 2, 0.0))
    np.testing.assert_allclose(bins.passes, passes)
    np.testing.assert_array_equal(bins.codes[tried & (bins.tries >= 4)], known[tried])
    np.testing.assert_array_equal(callback.sampler._used.latest_codes, bins.codes)
    log = JsonlLog(tmp_path / "a" / "tasks.jsonl").read()
    losses = [v["loss"] for r in log for v in r["domains"].values() if v["loss"] is not None]
    assert 0.0 <= min(losses) < max(losses) <= 0.5, "a prompt's rewards deviate by 0 or by a half"
    _, resumed, later, again = run(tmp_path / "b", str(tmp_path / "a" / "checkpoint-6"))
    assert later.calls == judge.calls[6:]
    assert again.state_dict() == bins.state_dict()
    assert resumed.state() == callback.state()


@pytest.mark.distributed
def test_two_ranks_share_the_prompts(tmp_path):
    run_ranks(SUPPORT / "trl_runs.py", tmp_path / "two", ranks=2)
    _, _, alone = grpo(tmp_path / "one", 1, reweighter=weights_of())
    first, second = (json.loads((tmp_path / f"two/{rank}.json").read_text()) for rank in range(2))
    assert first["state"] == second["state"]
    assert first["state"]["mixture"]["counts"] != [0, 0]
    whole = [a[0] + b[0] for a, b in zip(first["calls"], second["calls"], strict=True)]
    assert whole[0] == alone.calls[0][0]
    # The weights are those of the rewards on both ranks.
    expected = weights_of()
    for step, (a, b) in enumerate(zip(first["calls"], second["calls"], strict=True), 1):
        pairs = list(zip(a[0] + b[0], a[1] + b[1], strict=True))
        found = {t: [1.0 - r for text, r in pairs if text.startswith(t)] for t in ("easy", "hard")}
        losses = {t: np.mean(v) if v else np.nan for t, v in found.items()}
        expected.update(losses, {t: len(v) for t, v in found.items()}, step, absent_ok=True)
    weights = first["state"]["reweighter"]["weights"]
    np.testing.assert_allclose(weights, expected.weights, rtol=1e-6)


def sft(folder, steps, resume=None, **options):
    from trl import SFTConfig, SFTTrainer

    def run():
        data = prompts_of().map(
            lambda row: {"text": row["prompt"] + " a b"}, load_from_cache_file=False
        )
        sets = {
            task: data.filter(lambda row, task=task: row["task"] == task) for task in set(TASKS)
        }
        trainer = SFTTrainer(
            model=small_llama(vocab_size=len(WORDS)),
            args=SFTConfig(
                output_dir=str(folder), max_steps=steps, per_device_train_batch_size=4,
                eval_strategy="steps", eval_steps=2, save_strategy="steps", save_steps=4,
                report_to=[], use_cpu=True, bf16=False, disable_tqdm=True, learning_rate=1e-2,
                lr_scheduler_type="constant", gradient_checkpointing=False, logging_steps=100,
                dataloader_pin_memory=False, **options,
            ),
            train_dataset=data.select_columns(["text"]), processing_class=tokenizer_of(),
            eval_dataset={task: part.select_columns(["text"]) for task, part in sets.items()},
        )  # fmt: skip
        callback = reweight(trainer, TASKS)
        trainer.train(resume_from_checkpoint=resume)
        return trainer, callback

    return quiet(run)


@pytest.mark.parametrize("workers", [0, 1])
def test_other_trainers_follow_evaluations_and_resume_to_the_bit(tmp_path, workers):
    trainer, callback = sft(tmp_path, 8, dataloader_num_workers=workers)
    assert callback.steering.reweighter.updates == 4
    assert callback.sampler.report()["easy"]["samples"] > 0
    losses = [e for e in trainer.state.log_history if "eval_hard_loss" in e]
    assert len(losses) == 4
    resume = str(tmp_path / "checkpoint-4")
    again, resumed = sft(tmp_path / "b", 8, resume, dataloader_num_workers=workers)
    assert resumed.state() == callback.state()
    assert torch.equal(parameters(trainer.model), parameters(again.model))


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("accumulation", [1, 2])
@pytest.mark.parametrize("strategy", ["steps", "epoch"])
def test_a_resume_is_exact_where_an_epoch_ends(tmp_path, strategy, accumulation, workers):
    """Nine batches are an epoch, or four steps of two; the logs' epochs are the same, too."""
    options = {
        "gradient_accumulation_steps": accumulation, "eval_strategy": strategy,
        "dataloader_num_workers": workers,
    }  # fmt: skip
    steps = 11 if accumulation == 1 else 7
    seen, whole, callback = by_rows(tmp_path, steps, **options)
    resume = str(tmp_path / "checkpoint-3")
    later, trainer, resumed = by_rows(tmp_path / "b", steps, resume, **options)
    assert later == seen[3 * accumulation :]
    assert resumed.state() == callback.state()
    assert callback.steering.reweighter.updates >= 1
    assert torch.equal(parameters(whole.model), parameters(trainer.model))
    keys = ("step", "epoch", "loss", "eval_hard_loss")
    logs = [[[e.get(k) for k in keys] for e in t.state.log_history] for t in (whole, trainer)]
    assert logs[0] == logs[1]


def test_groups_may_be_integers(tmp_path):
    """Also where a Trainer takes only strings as names of evaluation sets."""
    _, trainer, callback = by_rows(tmp_path, 6, tasks=[7] * 9 + [12] * 9)
    assert callback.steering.reweighter.updates == 2
    assert callback.sampler.domains == [7, 12]
    assert sorted(trainer.eval_dataset) == ["12", "7"]
    state = json.loads((tmp_path / "checkpoint-6/trainer_state.json").read_text())
    saved = state["stateful_callbacks"]["GroupReweightingCallback"]["attributes"]["steering"]
    assert saved["mixture"]["names"] == [7, 12]
    with pytest.raises(ValueError, match=r"there is none for \[12\]"):
        by_rows(tmp_path, 1, tasks=[7] * 9 + [12] * 9, sets={"7": prompts_of()})


@pytest.mark.distributed
def test_ranks_of_one_model_read_the_same_rows(tmp_path):
    make_corpus(tmp_path / "corpus")
    run_ranks(SUPPORT / "trl_runs.py", tmp_path / "out", "split", tmp_path / "corpus", ranks=2)
    first, second = (json.loads((tmp_path / f"out/{rank}.json").read_text()) for rank in range(2))
    assert first == second
    assert first["drawn"] == sum(len(rows) for _, rows in first["seen"]) == 5 * 2
    alone, _, _ = by_rows(tmp_path / "alone", 5)
    assert first["seen"] == alone
    for mixture in ("early", "late"):
        assert "shares samples out to 2 of 2 ranks instead of 1" in first[mixture]
        assert "MixtureDataset(mesh=...)" in first[mixture]
    assert np.shape(first["meshed"]) == (2, 2, LENGTH)
    assert "TRL counts each rank's completions as others" in first["rewarded"]


def test_errors_rest_on_as_many_pieces_as_there_are_prompts():
    """So that the certificate allows for errors of few prompts."""
    sampler = GroupSampler(TASKS, names=["easy", "hard"], weights=[0.5, 0.5], rows=6, repeats=2)
    callback = GroupReweightingCallback(
        Steering(weights_of(), sampler), sampler, every=1, best=1.0, signal="reward", bins=None,
        metric="loss", sets=(),
    )  # fmt: skip
    losses = [np.linspace(0.1, 0.9, 6)[sampler.codes[sampler.batch] == k] for k in range(2)]
    callback.record(np.repeat(1.0 - np.linspace(0.1, 0.9, 6), 2))
    callback.on_step_end(None, SimpleNamespace(global_step=1), None)
    counts = [len(found) for found in losses]
    assert counts == [2, 4]
    errors = [found.std(ddof=1) / np.sqrt(len(found)) for found in losses]
    expected = weights_of()
    expected.update([found.mean() for found in losses], counts, 1, errors=errors, pieces=counts)
    account = callback.steering.reweighter.state_dict()["account"]
    assert account.keys() == expected.state_dict()["account"].keys()
    for key, value in expected.state_dict()["account"].items():
        assert account[key] == pytest.approx(value), key


def test_set_up_is_checked(tmp_path):
    from transformers import Trainer, TrainingArguments

    def make(data=None, **options):
        args = TrainingArguments(str(tmp_path), use_cpu=True, report_to=[], max_steps=1, **options)
        data = prompts_of() if data is None else data
        return Trainer(small_llama(), args=args, train_dataset=data)

    with pytest.raises(ValueError, match=r"there is none for \['easy', 'hard'\]"):
        reweight(make(), "task")
    with pytest.raises(ValueError, match="groups has 3 entries for 18 rows"):
        reweight(make(), ["a", "b", "c"])
    with pytest.raises(ValueError, match="DifficultyBins need a trainer with rewards"):
        reweight(make(), DifficultyBins(18))
    with pytest.raises(ValueError, match="must be map-style; got IterableDataset"):
        reweight(make(prompts_of().to_iterable_dataset()), TASKS)
    with pytest.raises(ValueError, match="signal must be one of"):
        reweight(make(), "task", signal="loss")
    with pytest.raises(ValueError, match="leave both out"):
        reweight(make(accelerator_config={"split_batches": True}), "task")
    with pytest.raises(ValueError, match="auto_find_batch_size"):
        reweight(make(auto_find_batch_size=True), "task")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(ValueError, match="every must be"):
            reweight(make(), "task", every=0)
