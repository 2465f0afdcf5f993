"""Drop-ins in the real frameworks: a run that is stopped and resumed equals one that is not."""

import importlib
import json
import sys
import types
import warnings

import numpy as np
import pytest
import torch
from lm_problems import lightning_llama, markov_corpus, small_llama

from counterpoise import Reweighter, ReweightWarning
from counterpoise.lm import JsonlLog, MixtureDataset, Steering, domain_losses, held_out

SIZES = {"x": 6000, "y": 3000, "z": 1500}
LENGTH = 16


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return markov_corpus(tmp_path_factory.mktemp("lm") / "corpus", SIZES)


def begin(corpus, **options):
    mixture = MixtureDataset(corpus, LENGTH, seed=1)
    return mixture, Reweighter(mixture.domains, start=mixture.weights, **options)


def parameters(model):
    return torch.cat([p.detach().flatten() for p in model.parameters()])


# ---------------------------------------------------------------- plain loop


def plain(corpus, steps, folder, resume=False, workers=0):
    mixture, reweighter = begin(corpus)
    steering = Steering(reweighter, mixture, logs=folder / "run.jsonl")
    model = small_llama()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    validation = held_out(corpus, LENGTH)
    step = 0
    if resume:
        steering.load(folder / "steering.json")
        saved = torch.load(folder / "model.pt", weights_only=True)
        model.load_state_dict(saved["model"])
        step = saved["step"]
    for batch in mixture.loader(4, num_workers=workers, lag=4):
        batch.pop("domain")
        model(**batch).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        step += 1
        if step % 3 == 0:
            steering.observe(*domain_losses(model, validation), step=step)
        if step == steps:
            break
    steering.save(folder / "steering.json")
    torch.save({"model": model.state_dict(), "step": step}, folder / "model.pt")
    return model, steering


@pytest.mark.parametrize("workers", [0, 2])
def test_plain_loop_resumes_to_the_bit(corpus, tmp_path, workers):
    (tmp_path / "whole").mkdir()
    (tmp_path / "parts").mkdir()
    model, steering = plain(corpus, 12, tmp_path / "whole")
    plain(corpus, 7, tmp_path / "parts", workers=workers)
    again, resumed = plain(corpus, 12, tmp_path / "parts", resume=True, workers=workers)
    assert torch.equal(parameters(model), parameters(again))
    assert resumed.state_dict() == steering.state_dict()
    assert (tmp_path / "whole/run.jsonl").read_text() == (tmp_path / "parts/run.jsonl").read_text()
    assert steering.reweighter.updates == 4


# ---------------------------------------------------------------- Hugging Face Trainer


def hf(
    corpus, steps, folder, resume=None, workers=0, dropout=0.0, metric="loss", collator=None,
    more_sets=None, **options,
):  # fmt: skip
    from transformers import Trainer, TrainingArguments

    from counterpoise.lm.adapters.hf import reweight

    mixture, reweighter = begin(corpus)
    trainer = Trainer(
        model=small_llama(dropout=dropout),
        args=TrainingArguments(
            output_dir=str(folder), max_steps=steps, per_device_train_batch_size=4,
            eval_strategy="steps", eval_steps=3, save_strategy="steps", save_steps=6,
            logging_steps=100, report_to=[], use_cpu=True, learning_rate=1e-2, disable_tqdm=True,
            lr_scheduler_type="constant", dataloader_num_workers=workers, **options,
        ),
        train_dataset=mixture,
        eval_dataset=held_out(corpus, LENGTH) | (more_sets or {}),
        data_collator=collator,
    )  # fmt: skip
    logs = folder / "run.jsonl"
    callback = reweight(trainer, reweighter, lag=4, metric=metric, logs=logs)
    trainer.train(resume_from_checkpoint=resume)
    return trainer, callback.steering


@pytest.mark.parametrize("workers", [0, 2])
def test_trainer_resumes_to_the_bit(corpus, tmp_path, workers):
    whole, steering = hf(corpus, 12, tmp_path / "whole")
    assert steering.reweighter.updates == 4
    assert steering.reweighter.global_step == 12
    assert steering.mixture.number == 48
    hf(corpus, 6, tmp_path / "parts", workers=workers)
    parts, resumed = hf(
        corpus, 12, tmp_path / "parts", resume=str(tmp_path / "parts/checkpoint-6"), workers=workers
    )
    assert torch.equal(parameters(whole.model), parameters(parts.model))
    assert resumed.state_dict() == steering.state_dict()
    state = json.loads((tmp_path / "whole/checkpoint-12/trainer_state.json").read_text())
    saved = state["stateful_callbacks"]["ReweightingCallback"]["attributes"]["steering"]
    assert saved == json.loads(json.dumps(steering.state_dict()))
    assert [r["step"] for r in JsonlLog(tmp_path / "parts/run.jsonl").read()] == [3, 6, 9, 12]


def test_trainer_evaluations_at_start_up_add_no_update(corpus, tmp_path):
    _, steering = hf(corpus, 9, tmp_path / "a", eval_on_start=True)
    assert (steering.reweighter.updates, steering.reweighter.repeated) == (3, 1)
    again, resumed = hf(
        corpus, 9, tmp_path / "a", resume=str(tmp_path / "a/checkpoint-6"), eval_on_start=True
    )
    assert (resumed.reweighter.updates, resumed.reweighter.repeated) == (3, 2)
    again.evaluate()
    assert resumed.reweighter.updates == 3
    assert resumed.reweighter.dual.total == 3.0
    np.testing.assert_array_equal(resumed.weights, steering.weights)


def test_trainer_with_accumulation_counts_all_batches(corpus, tmp_path):
    _, steering = hf(corpus, 6, tmp_path / "a", gradient_accumulation_steps=2)
    assert steering.mixture.number == 6 * 2 * 4


def test_trainer_weights_follow_the_losses_it_reports(corpus, tmp_path):
    trainer, steering = hf(corpus, 6, tmp_path / "a")
    losses = {}
    for entry in trainer.state.log_history:
        for name in SIZES:
            if f"eval_{name}_loss" in entry:
                losses.setdefault(entry["step"], {})[name] = entry[f"eval_{name}_loss"]
    _, expected = begin(corpus)
    for step in (3, 6):
        expected.update(losses[step], step=step)
    np.testing.assert_allclose(steering.weights, expected.weights, atol=1e-9)


def test_trainer_s_domains_may_begin_alike(tmp_path):
    """Keys of "web_code" begin as those of "web"; so do those of a set that is no domain."""
    corpus = markov_corpus(tmp_path / "corpus", {"web": 3000, "web_code": 3000})
    extra = {"web_other": held_out(corpus, LENGTH)["web"]}
    _, steering = hf(corpus, 6, tmp_path / "a", more_sets=extra)
    assert steering.reweighter.updates == 2


def test_trainer_s_own_collator_is_used(corpus, tmp_path):
    from transformers import default_data_collator

    seen = []

    def collator(samples):
        seen.append(sorted(samples[0]))
        return default_data_collator(samples)

    whole, _ = hf(corpus, 6, tmp_path / "a")
    other, _ = hf(corpus, 6, tmp_path / "b", collator=collator)
    assert seen[0] == ["input_ids", "labels"]
    assert torch.equal(parameters(whole.model), parameters(other.model))


def test_trainer_may_train_on(corpus, tmp_path):
    """A second train() counts its steps from zero; the weights go on."""
    trainer, steering = hf(corpus, 6, tmp_path / "a")
    trainer.train()
    assert steering.reweighter.updates == 4
    assert steering.mixture.number == 48


def test_trainer_resumes_to_the_bit_with_dropout(corpus, tmp_path):
    whole, _ = hf(corpus, 12, tmp_path / "whole", dropout=0.3)
    hf(corpus, 6, tmp_path / "parts", dropout=0.3)
    resume = str(tmp_path / "parts/checkpoint-6")
    parts, _ = hf(corpus, 12, tmp_path / "parts", resume=resume, dropout=0.3)
    assert torch.equal(parameters(whole.model), parameters(parts.model))


def test_trainer_checkpoints_without_reweighting_can_be_continued(corpus, tmp_path):
    hf(corpus, 6, tmp_path / "a")
    path = tmp_path / "a/checkpoint-6/trainer_state.json"
    state = json.loads(path.read_text())
    del state["stateful_callbacks"]["ReweightingCallback"]
    path.write_text(json.dumps(state))
    with pytest.warns(ReweightWarning, match="step 6 was made without reweighting"):
        _, steering = hf(corpus, 9, tmp_path / "a", resume=str(tmp_path / "a/checkpoint-6"))
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


# ---------------------------------------------------------------- Lightning


def lightning(
    corpus, steps, folder, resume=None, workers=0, every=None, other_loader=False, **options
):
    import lightning.pytorch as pl
    from lightning.pytorch.callbacks import ModelCheckpoint

    from counterpoise.lm.adapters.lightning import ReweightingCallback

    mixture, reweighter = begin(corpus)
    loader = mixture.loader(4, num_workers=workers, lag=4)
    callback = ReweightingCallback(reweighter, loader, logs=folder / "run.jsonl")
    validation = [
        torch.utils.data.DataLoader(data, batch_size=8)
        for data in held_out(corpus, LENGTH).values()
    ]
    if other_loader:
        loader = mixture.loader(4)
    keep = ModelCheckpoint(folder, filename="{step}", every_n_train_steps=every, save_top_k=-1)
    module = lightning_llama()
    trainer = pl.Trainer(
        max_steps=steps, val_check_interval=3, check_val_every_n_epoch=None, logger=False,
        callbacks=[callback, keep], enable_progress_bar=False, enable_model_summary=False,
        accelerator="cpu", **options,
    )  # fmt: skip
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Lightning's advice on workers and its own deprecations
        warnings.simplefilter("always", ReweightWarning)
        trainer.fit(module, loader, validation, ckpt_path=resume, weights_only=False)
    return module, callback.steering


@pytest.mark.parametrize("workers", [0, 2])
def test_lightning_resumes_to_the_bit(corpus, tmp_path, workers):
    whole, steering = lightning(corpus, 12, tmp_path / "whole")
    assert steering.reweighter.updates == 4
    lightning(corpus, 6, tmp_path / "parts", workers=workers)
    parts, resumed = lightning(
        corpus, 12, tmp_path / "parts", resume=str(tmp_path / "parts/step=6.ckpt"), workers=workers
    )
    assert torch.equal(parameters(whole), parameters(parts))
    assert resumed.weights.tolist() == steering.weights.tolist()
    records = JsonlLog(tmp_path / "parts/run.jsonl").read()
    assert [r["step"] for r in records] == [3, 6, 9, 12]
    given = [sum(d["samples"] for d in r["domains"].values()) for r in records]
    assert given == [12, 24, 36, 48]  # what was trained on, not what was fetched


def test_lightning_checkpoints_before_validation_are_warned_about(corpus, tmp_path):
    with pytest.warns(ReweightWarning, match="step 3 is written before this step's validation"):
        lightning(corpus, 3, tmp_path, every=3)


def test_lightning_checkpoints_between_validations_are_exact(corpus, tmp_path):
    whole, _ = lightning(corpus, 8, tmp_path / "whole")
    with warnings.catch_warnings():
        warnings.simplefilter("error", ReweightWarning)
        lightning(corpus, 5, tmp_path / "parts", every=5)
    parts, _ = lightning(
        corpus, 8, tmp_path / "parts", resume=str(tmp_path / "parts/step=5.ckpt"), every=5
    )
    assert torch.equal(parameters(whole), parameters(parts))


def test_lightning_s_sanity_check_adds_no_update(corpus, tmp_path):
    _, steering = lightning(corpus, 3, tmp_path, num_sanity_val_steps=2)
    assert steering.reweighter.updates == 1


def test_lightning_may_fit_again_and_again(corpus, tmp_path):
    """Four fits of three steps see the batches that one fit of twelve sees, and go on updating."""
    import lightning.pytorch as pl

    from counterpoise.lm.adapters.lightning import ReweightingCallback

    class Module(pl.LightningModule):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.ones(1))
            self.seen = []

        def training_step(self, batch, index):
            self.seen.append(batch["input_ids"].tolist())
            return self.weight.sum()

        def validation_step(self, batch, index, dataloader_idx=0):
            self.log("val_loss", self.weight.sum())

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.1)

    def fits(steps, times):
        mixture, _ = begin(corpus)
        reweighter = Reweighter(mixture.domains, "static", start=mixture.weights)
        loader, module = mixture.loader(4), Module()
        callback = ReweightingCallback(reweighter, loader)
        validation = [
            torch.utils.data.DataLoader(data, batch_size=8)
            for data in held_out(corpus, LENGTH).values()
        ]
        for _ in range(times):
            trainer = pl.Trainer(
                max_steps=steps, val_check_interval=3, check_val_every_n_epoch=None, logger=False,
                callbacks=[callback], enable_progress_bar=False, enable_model_summary=False,
                enable_checkpointing=False, accelerator="cpu",
            )  # fmt: skip
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                trainer.fit(module, loader, validation)
        return module.seen, callback

    once, _ = fits(12, 1)
    again, callback = fits(3, 4)
    assert again == once
    assert callback.steering.reweighter.updates == 4
    assert callback.state_dict()["mixture"]["number"] == 48


def test_lightning_s_loader_must_be_the_callback_s(corpus, tmp_path):
    with pytest.raises(ValueError, match="give both the same MixtureLoader"):
        lightning(corpus, 3, tmp_path, other_loader=True)


def test_lightning_epochs_lose_no_batch(corpus, tmp_path):
    """Lightning fetches one batch ahead; what an epoch did not train on comes in the next."""
    whole, _ = lightning(corpus, 12, tmp_path / "a")
    parts, _ = lightning(corpus, 12, tmp_path / "b", limit_train_batches=5)
    assert torch.equal(parameters(whole), parameters(parts))


# ---------------------------------------------------------------- Composer


class Recorder:
    def __init__(self):
        self.metrics = {}

    def log_metrics(self, metrics):
        self.metrics.update(metrics)


def composer_state(step, losses, dataset=None):
    """What LLM-Shearing's callback reads of Composer's State."""
    metric = {
        f"{name}_LanguageCrossEntropy": types.SimpleNamespace(compute=lambda v=v: torch.tensor(v))
        for name, v in losses.items()
    }
    return types.SimpleNamespace(
        eval_metrics={"eval": metric},
        timestamp=types.SimpleNamespace(batch=types.SimpleNamespace(value=step)),
        train_dataloader=types.SimpleNamespace(dataset=dataset),
    )


@pytest.fixture
def composer(monkeypatch):
    """A stand-in of the package, which cannot be installed beside current torch: an empty Callback
    is all that the module takes from it."""
    monkeypatch.setitem(sys.modules, "composer", types.SimpleNamespace(Callback=type("C", (), {})))
    module = importlib.import_module("counterpoise.lm.adapters.composer")
    yield importlib.reload(module)
    monkeypatch.undo()
    importlib.reload(module)


def test_composer_s_callback_keeps_the_contract(composer, corpus):
    mixture, reweighter = begin(corpus)
    callback = composer.DynamicLoadingCallback(reweighter, mixture)
    assert type(callback).__mro__[1].__name__ == "C"
    logger, losses = Recorder(), {"x": 2.0, "y": 3.0, "z": 2.5}
    callback.fit_start(composer_state(0, losses), logger)
    callback.eval_end(composer_state(10, losses), logger)
    _, expected = begin(corpus)
    np.testing.assert_array_equal(mixture.weights, expected.update(losses))
    assert logger.metrics["metrics/train/y_weight"] == expected.weights[1]
    again = composer.DynamicLoadingCallback(*begin(corpus)[::-1])
    again.load_state_dict(json.loads(json.dumps(callback.state_dict())))
    again.eval_end(composer_state(10, {"x": 9.0, "y": 3.0, "z": 2.5}), logger)
    assert again.state_dict()["mixture"] == callback.state_dict()["mixture"]
    with pytest.raises(ValueError, match="has no 'z_LanguageCrossEntropy'"):
        callback.eval_end(composer_state(20, {"x": 2.0, "y": 3.0}), logger)


def test_composer_s_callback_drives_a_streaming_dataset(composer, corpus):
    seen = []
    dataset = types.SimpleNamespace(update_proportion=seen.append)
    callback = composer.DynamicLoadingCallback(begin(corpus)[1])
    losses = {"x": 2.0, "y": 3.0, "z": 2.5}
    callback.fit_start(composer_state(0, losses, dataset), Recorder())
    callback.eval_end(composer_state(10, losses, dataset), Recorder())
    assert len(seen) == 2
    assert seen[1] == callback.steering.weights.tolist()


def test_without_composer_the_error_says_what_to_do(corpus):
    module = importlib.import_module("counterpoise.lm.adapters.composer")
    with pytest.raises(ImportError, match="pip install mosaicml"):
        module.DynamicLoadingCallback(begin(corpus)[1])
