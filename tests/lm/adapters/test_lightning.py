"""Lightning: a run that is stopped and resumed equals one that is not."""

import warnings

import pytest
import torch
from lm_adapters import LENGTH, begin, make_corpus, parameters
from lm_problems import lightning_llama

from counterpoise import Reweighter, ReweightWarning
from counterpoise.lm import JsonlLog, held_out

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return make_corpus(tmp_path_factory.mktemp("lm") / "corpus")


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
        for data in held_out(corpus, LENGTH, limit=8).values()
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


@pytest.fixture(scope="module")
def whole(corpus, tmp_path_factory):
    """Twelve steps that nothing stopped: the module and its steering."""
    return lightning(corpus, 12, tmp_path_factory.mktemp("whole"))


def test_lightning_resumes_to_the_bit_with_workers(corpus, whole, tmp_path):
    assert whole[1].reweighter.updates == 4
    lightning(corpus, 6, tmp_path, workers=2)
    resumed, steering = lightning(
        corpus, 12, tmp_path, resume=str(tmp_path / "step=6.ckpt"), workers=2
    )
    assert torch.equal(parameters(whole[0]), parameters(resumed))
    assert steering.weights.tolist() == whole[1].weights.tolist()
    records = JsonlLog(tmp_path / "run.jsonl").read()
    assert [r["step"] for r in records] == [3, 6, 9, 12]
    given = [sum(d["samples"] for d in r["domains"].values()) for r in records]
    assert given == [12, 24, 36, 48]  # what was trained on, not what was fetched


def test_lightning_checkpoints_before_validation_are_warned_about(corpus, tmp_path):
    with pytest.warns(ReweightWarning, match="step 3 is written before this step's validation"):
        lightning(corpus, 3, tmp_path, every=3)


def test_lightning_checkpoints_between_validations_are_exact(corpus, whole, tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("error", ReweightWarning)
        lightning(corpus, 5, tmp_path, every=5)
    resumed, _ = lightning(corpus, 12, tmp_path, resume=str(tmp_path / "step=5.ckpt"), every=5)
    assert torch.equal(parameters(whole[0]), parameters(resumed))


def test_lightning_sanity_check_adds_no_update(corpus, tmp_path):
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


def test_lightning_needs_the_loader_of_the_callback(corpus, tmp_path):
    with pytest.raises(ValueError, match="give both the same MixtureLoader"):
        lightning(corpus, 3, tmp_path, other_loader=True)


def test_lightning_epochs_lose_no_batch(corpus, whole, tmp_path):
    """Lightning fetches one batch ahead; what an epoch did not train on comes in the next."""
    epochs, _ = lightning(corpus, 12, tmp_path, limit_train_batches=5)
    assert torch.equal(parameters(whole[0]), parameters(epochs))


def test_lightning_refuses_to_sample_apart_from_the_weights(corpus):
    from counterpoise.lm.adapters.lightning import ReweightingCallback

    mixture, reweighter = begin(corpus)
    with pytest.raises(ValueError, match="a LightningModule computes its losses itself"):
        ReweightingCallback(reweighter, mixture.loader(4), sampling="fixed")
