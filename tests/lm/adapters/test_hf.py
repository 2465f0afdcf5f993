"""Hugging Face Trainer: a run that is stopped and resumed equals one that is not."""

import json
import shutil

import numpy as np
import pytest
import torch
from lm_adapters import LENGTH, SIZES, begin, make_corpus, parameters
from lm_problems import markov_corpus, small_llama

from counterpoise import ReweightWarning
from counterpoise.lm import JsonlLog, held_out
from counterpoise.lm.adapters.hf_loss import _WeighedLoss
from counterpoise.reweight import Fixed

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return make_corpus(tmp_path_factory.mktemp("lm") / "corpus")


def hf(
    corpus, steps, folder, resume=None, workers=0, dropout=0.0, metric="loss", collator=None,
    more_sets=None, save_steps=6, update_at_start=False, sampling="weights", model=None,
    **options,
):  # fmt: skip
    from transformers import Trainer, TrainingArguments

    from counterpoise.lm.adapters.hf import reweight

    mixture, reweighter = begin(corpus)
    trainer = Trainer(
        model=model or small_llama(dropout=dropout),
        args=TrainingArguments(
            output_dir=str(folder), max_steps=steps, per_device_train_batch_size=4,
            eval_strategy="steps", eval_steps=3, save_strategy="steps", save_steps=save_steps,
            logging_steps=100, report_to=[], use_cpu=True, learning_rate=1e-2, disable_tqdm=True,
            lr_scheduler_type="constant", dataloader_num_workers=workers, **options,
        ),
        train_dataset=mixture,
        eval_dataset=held_out(corpus, LENGTH, limit=8) | (more_sets or {}),
        data_collator=collator,
    )  # fmt: skip
    logs = folder / "run.jsonl"
    callback = reweight(
        trainer, reweighter, lag=4, metric=metric, update_at_start=update_at_start,
        sampling=sampling, logs=logs,
    )  # fmt: skip
    trainer.train(resume_from_checkpoint=resume)
    return trainer, callback.steering


@pytest.fixture(scope="module")
def whole(corpus, tmp_path_factory):
    """Twelve steps that nothing stopped: the trainer, its steering, its folder."""
    folder = tmp_path_factory.mktemp("whole")
    return *hf(corpus, 12, folder), folder


def test_trainer_updates_at_evaluations_and_saves_its_state(whole):
    _, steering, folder = whole
    assert steering.reweighter.updates == 4
    assert steering.reweighter.global_step == 12
    assert steering.mixture.number == 48
    state = json.loads((folder / "checkpoint-12/trainer_state.json").read_text())
    saved = state["stateful_callbacks"]["ReweightingCallback"]["attributes"]["steering"]
    assert saved == json.loads(json.dumps(steering.state_dict()))


def test_trainer_resumes_to_the_bit_with_workers(corpus, whole, tmp_path):
    hf(corpus, 6, tmp_path, workers=2)
    resumed, steering = hf(corpus, 12, tmp_path, resume=str(tmp_path / "checkpoint-6"), workers=2)
    assert torch.equal(parameters(whole[0].model), parameters(resumed.model))
    assert steering.state_dict() == whole[1].state_dict()
    assert [r["step"] for r in JsonlLog(tmp_path / "run.jsonl").read()] == [3, 6, 9, 12]


def test_trainer_resumes_to_the_bit_with_dropout(corpus, tmp_path):
    """From the checkpoint in the middle of a longer run, whose random numbers it holds."""
    long, _ = hf(corpus, 9, tmp_path, dropout=0.3)
    again, _ = hf(corpus, 9, tmp_path, resume=str(tmp_path / "checkpoint-6"), dropout=0.3)
    assert torch.equal(parameters(long.model), parameters(again.model))


def test_trainer_evaluations_at_start_up_add_no_update(corpus, tmp_path):
    late = {"save_steps": 3, "eval_on_start": True, "update_at_start": False}
    _, steering = hf(corpus, 6, tmp_path, **late)
    assert (steering.reweighter.updates, steering.reweighter.repeated) == (2, 1)
    resume = str(tmp_path / "checkpoint-3")
    again, resumed = hf(corpus, 6, tmp_path, resume=resume, **late)
    assert (resumed.reweighter.updates, resumed.reweighter.repeated) == (2, 2)
    again.evaluate()
    assert resumed.reweighter.updates == 2
    assert resumed.reweighter.dual.total == 2.0
    np.testing.assert_array_equal(resumed.weights, steering.weights)


def test_trainer_says_once_that_an_evaluation_at_start_up_makes_no_update(corpus, tmp_path):
    with pytest.warns(ReweightWarning, match="losses of step 0, before the first batch") as told:
        hf(corpus, 3, tmp_path, eval_on_start=True, update_at_start=None)
    assert len(told) == 1


def test_trainer_can_update_at_start(corpus, tmp_path):
    early = {"save_steps": 3, "eval_on_start": True, "update_at_start": True}
    one, steering = hf(corpus, 6, tmp_path, **early)
    assert (steering.reweighter.updates, steering.reweighter.repeated) == (3, 0)
    assert [r["step"] for r in JsonlLog(tmp_path / "run.jsonl").read()] == [0, 3, 6]
    again, resumed = hf(corpus, 6, tmp_path, resume=str(tmp_path / "checkpoint-3"), **early)
    assert (resumed.reweighter.updates, resumed.reweighter.repeated) == (3, 1)
    assert torch.equal(parameters(one.model), parameters(again.model))
    with pytest.raises(ValueError, match="eval_on_start=True"):
        hf(corpus, 6, tmp_path / "late", update_at_start=True)


def test_trainer_with_accumulation_counts_all_batches(corpus, tmp_path):
    _, steering = hf(corpus, 3, tmp_path, gradient_accumulation_steps=2)
    assert steering.mixture.number == 3 * 2 * 4


def test_trainer_weights_follow_the_losses_it_reports(corpus, whole):
    trainer, steering, _ = whole
    losses = {}
    for entry in trainer.state.log_history:
        for name in SIZES:
            if f"eval_{name}_loss" in entry:
                losses.setdefault(entry["step"], {})[name] = entry[f"eval_{name}_loss"]
    _, expected = begin(corpus)
    for step in (3, 6, 9, 12):
        expected.update(losses[step], step=step)
    np.testing.assert_allclose(steering.weights, expected.weights, atol=1e-9)


def test_trainer_domains_may_share_a_prefix(tmp_path):
    """Keys of "web_code" begin with "web"; so do those of a set that is not a domain."""
    corpus = markov_corpus(tmp_path / "corpus", {"web": 3000, "web_code": 3000})
    extra = {"web_other": held_out(corpus, LENGTH, limit=8)["web"]}
    _, steering = hf(corpus, 3, tmp_path / "a", more_sets=extra)
    assert steering.reweighter.updates == 1


def test_trainer_uses_its_own_collator(corpus, whole, tmp_path):
    from transformers import default_data_collator

    seen = []

    def collator(samples):
        seen.append(sorted(samples[0]))
        return default_data_collator(samples)

    other, _ = hf(corpus, 12, tmp_path, collator=collator)
    assert seen[0] == ["input_ids", "labels"]
    assert torch.equal(parameters(whole[0].model), parameters(other.model))


def test_trainer_can_train_again(corpus, tmp_path):
    """A second train() counts its steps from zero; the weights carry over."""
    trainer, steering = hf(corpus, 3, tmp_path)
    trainer.train()
    assert steering.reweighter.updates == 2
    assert steering.mixture.number == 24


def test_trainer_checkpoints_without_reweighting_can_be_continued(corpus, whole, tmp_path):
    shutil.copytree(whole[2] / "checkpoint-6", tmp_path / "checkpoint-6")
    path = tmp_path / "checkpoint-6/trainer_state.json"
    state = json.loads(path.read_text())
    del state["stateful_callbacks"]["ReweightingCallback"]
    path.write_text(json.dumps(state))
    with pytest.warns(ReweightWarning, match="step 6 was made without reweighting"):
        _, steering = hf(corpus, 9, tmp_path, resume=str(tmp_path / "checkpoint-6"))
    assert steering.reweighter.updates == 1


def test_trainer_set_up_is_checked(corpus, tmp_path):
    from transformers import Trainer, TrainingArguments

    from counterpoise.lm.adapters.hf import reweight

    mixture, reweighter = begin(corpus)
    args = TrainingArguments(output_dir=str(tmp_path), max_steps=1, report_to=[], use_cpu=True)
    model, evaluation = small_llama(), held_out(corpus, LENGTH)
    trainer = Trainer(model=model, args=args, train_dataset=evaluation["x"])
    with pytest.raises(ValueError, match="must be a MixtureDataset; got Samples"):
        reweight(trainer, reweighter)
    del evaluation["y"]
    trainer = Trainer(model=model, args=args, train_dataset=mixture, eval_dataset=evaluation)
    with pytest.raises(ValueError, match=r"there is none for \['y'\]"):
        reweight(trainer, reweighter)
    evaluation = held_out(corpus, LENGTH)
    with pytest.raises(ValueError, match="has no 'eval_x_perplexity'"):
        hf(corpus, 3, tmp_path / "typo", metric="perplexity")
    trainer = Trainer(model=model, args=args, train_dataset=mixture, eval_dataset=evaluation)
    with pytest.warns(ReweightWarning, match="eval_strategy='no'"):
        reweight(trainer, reweighter)
    with pytest.raises(ValueError, match="reweighted already"):
        reweight(trainer, reweighter)
    args.auto_find_batch_size = True
    trainer = Trainer(model=model, args=args, train_dataset=mixture, eval_dataset=evaluation)
    with pytest.raises(ValueError, match="set per_device_train_batch_size"):
        reweight(trainer, reweighter)
    args.auto_find_batch_size, args.eval_strategy = False, "steps"
    args.restore_callback_states_from_checkpoint = True
    trainer = Trainer(model=model, args=args, train_dataset=mixture, eval_dataset=evaluation)
    with pytest.raises(ValueError, match="leave it False"):
        reweight(trainer, reweighter)


def test_trainer_weighs_losses_as_a_loop_does(corpus, tmp_path):
    """Samples by fixed shares; gradients, clipping aside, are those of factor times loss."""
    steps, plain = 6, {"optim": "sgd", "max_grad_norm": 0.0}
    shares = np.array([0.2, 0.3, 0.5])
    trainer, steering = hf(corpus, steps, tmp_path, sampling=Fixed(shares), **plain)
    np.testing.assert_array_equal(steering.mixture.weights, shares)
    (mixture, reweighter), model = begin(corpus), small_llama()
    mixture.set_weights(shares)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    losses = {}
    for entry in trainer.state.log_history:
        for name in SIZES:
            if f"eval_{name}_loss" in entry:
                losses.setdefault(entry["step"], {})[name] = entry[f"eval_{name}_loss"]
    factor = reweighter.weights / shares
    for step, batch in enumerate(mixture.loader(4, lag=4), 1):
        logits = model(input_ids=batch["input_ids"]).logits[:, :-1]
        each = torch.nn.functional.cross_entropy(
            logits.transpose(1, 2), batch["labels"][:, 1:], reduction="none"
        )
        (each.mean(1) * torch.tensor(factor)[batch["domain"]].float()).mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        if step in losses:
            factor = reweighter.update(losses[step], step=step) / shares
        if step == steps:
            break
    np.testing.assert_allclose(steering.weights, reweighter.weights, atol=1e-9)
    assert np.ptp(factor) > 1.0
    np.testing.assert_allclose(parameters(trainer.model), parameters(model), atol=2e-6)


def test_trainer_with_weighed_losses_resumes_and_accumulates(corpus, tmp_path):
    options = {"sampling": "fixed", "gradient_accumulation_steps": 2, "save_steps": 3}
    long, steering = hf(corpus, 6, tmp_path, **options)
    again, resumed = hf(corpus, 6, tmp_path, resume=str(tmp_path / "checkpoint-3"), **options)
    assert torch.equal(parameters(long.model), parameters(again.model))
    assert steering.state_dict() == resumed.state_dict()


@pytest.mark.parametrize("other", ["web_samples", "web_steps"])
def test_trainer_domains_may_look_like_its_own_metrics(tmp_path, other):
    """Those of "web" have "samples_per_second", too."""
    names = ("web", other)
    corpus = markov_corpus(tmp_path / "corpus", dict.fromkeys(names, 3000))
    trainer, steering = hf(corpus, 3, tmp_path / "a")
    losses = {name: e[k] for e in trainer.state.log_history for name in names
              if (k := f"eval_{name}_loss") in e}  # fmt: skip
    last = steering.record()["domains"]
    assert {name: last[name]["loss"] for name in names} == pytest.approx(losses)


def test_trainer_collators_that_change_the_rows_of_weighed_losses_are_refused(corpus, tmp_path):
    from transformers import DataCollatorWithFlattening, default_data_collator

    flat = DataCollatorWithFlattening()
    hf(corpus, 3, tmp_path / "drawn", collator=flat)  # losses that count once may be in any row
    with pytest.raises(ValueError, match="DataCollatorWithFlattening made 1 rows of 'input_ids'"):
        hf(corpus, 3, tmp_path / "flat", collator=flat, sampling="fixed")

    def swapped(samples):
        return default_data_collator([samples[1], samples[0], *samples[2:]])

    with pytest.raises(ValueError, match="collator swapped put sample 1 of a batch in row 0"):
        hf(corpus, 3, tmp_path / "swapped", collator=swapped, sampling="fixed")

    def longer(samples):
        batch = default_data_collator(samples)
        more = {"input_ids": 0, "labels": -100}
        return {k: torch.nn.functional.pad(batch[k], (0, 3), value=v) for k, v in more.items()}

    plain, _ = hf(corpus, 3, tmp_path / "plain", sampling="fixed")
    padded, _ = hf(corpus, 3, tmp_path / "padded", collator=longer, sampling="fixed")
    torch.testing.assert_close(parameters(plain.model), parameters(padded.model))


def test_rows_that_change_on_the_way_to_the_loss_are_refused():
    weighed = _WeighedLoss(None, "flat")
    weighed._factors = torch.ones(4)
    logits, labels = torch.zeros(1, 8, 5), torch.ones(1, 8, dtype=torch.long)
    with pytest.raises(ValueError, match="collator flat made 1 rows from 4 samples"):
        weighed.of_tokens({"logits": logits}, labels)


def small_bert():
    from transformers import BertConfig, BertForMaskedLM

    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=32, hidden_size=16, num_hidden_layers=1, num_attention_heads=2,
        intermediate_size=32, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
    )  # fmt: skip
    return BertForMaskedLM(config)


def masked(samples):
    """Hide every fifth token, and ask for those."""
    ids = torch.stack([s["input_ids"] for s in samples])
    hidden = torch.arange(ids.shape[1]) % 5 == 0
    return {"input_ids": ids.masked_fill(hidden, 1), "labels": ids.masked_fill(~hidden, -100)}


@pytest.mark.parametrize("known", [True, False])
def test_trainer_models_of_other_tokens_than_the_next_are_refused(corpus, tmp_path, known):
    """By what transformers knows of their losses, or by the loss of the first batch."""
    model = small_bert()
    says = "this Trainer has a BertForMaskedLM, whose loss is another"
    if not known:
        model.loss_type = None
        says = "the model's own loss of the first batch is .* and that mean is .*sampling='weights'"
    with pytest.raises(ValueError, match=says):
        hf(corpus, 3, tmp_path, model=model, collator=masked, sampling="fixed")


def test_trainer_losses_of_gpt2_are_weighed(corpus, tmp_path):
    """transformers does not know its loss, which is that of next tokens."""
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(
        vocab_size=32, n_positions=LENGTH, n_embd=16, n_layer=1, n_head=2, bos_token_id=0,
        eos_token_id=0, pad_token_id=0,
    )  # fmt: skip
    _, steering = hf(corpus, 3, tmp_path, model=GPT2LMHeadModel(config), sampling="fixed")
    assert steering.reweighter.updates == 1


def test_comparing_the_first_loss_leaves_the_random_numbers_of_dropout_alone(corpus, tmp_path):
    """Before the first update all factors are 1, so that the plain loss is the same."""
    plain, _ = hf(corpus, 3, tmp_path / "a", dropout=0.3)
    weighed, _ = hf(corpus, 3, tmp_path / "b", dropout=0.3, sampling="fixed")
    torch.testing.assert_close(parameters(plain.model), parameters(weighed.model))


def test_trainer_losses_that_cannot_be_weighed_are_refused(corpus, tmp_path):
    with pytest.raises(ValueError, match="label_smoothing_factor; leave it out"):
        hf(corpus, 3, tmp_path, sampling="fixed", label_smoothing_factor=0.1)
    with pytest.raises(ValueError, match="a Trainer does not measure; use sampling='fixed'"):
        hf(corpus, 3, tmp_path, sampling="variance")
