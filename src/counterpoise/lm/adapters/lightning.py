"""Lightning: a callback that steers a mixture by one validation loader per domain."""

from __future__ import annotations

import math
import warnings
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from counterpoise.lm.mixture.loader import MixtureLoader
from counterpoise.lm.steering import Steering
from counterpoise.reweight.reweighter import Reweighter, ReweightWarning
from counterpoise.reweight.sampling import Sampling, get_sampling

# Lightning is published under two names.
Callback: Any = import_module(
    "lightning.pytorch" if find_spec("lightning") else "pytorch_lightning"
).Callback


class ReweightingCallback(Callback):  # type: ignore[misc]
    """Update the weights after every validation.

    Its state is part of every checkpoint. A resume is exact from checkpoints written after
    validation (ModelCheckpoint's default) or between validations.

    Parameters
    ----------
    reweighter : Reweighter or None
        If None, one with the rule ``"adaptive"``.
    loader : MixtureLoader
        The training loader.
    metric : str, default "val_loss"
        What ``validation_step`` logs. With one validation loader per domain, in the order of the
        reweighter's domains, Lightning appends ``/dataloader_idx_<i>``. A module that logs domains
        by name uses a pattern such as ``"val_loss/{domain}"``. With several ranks, log with
        ``sync_dist=True``.
    sampling : {"weights"}
        Other ways of sampling need weighed losses, and a module computes its losses itself.
    logs : optional
        See `Steering`.
    """

    def __init__(
        self,
        reweighter: Reweighter | None,
        loader: MixtureLoader,
        *,
        metric: str = "val_loss",
        sampling: str | Sampling = "weights",
        logs: Any = (),
    ) -> None:
        if get_sampling(sampling).apart:
            raise ValueError(
                f"sampling={sampling!r} needs weighed losses, but a LightningModule computes its "
                "losses itself; use sampling='weights', the adapter for the Hugging Face Trainer, "
                "or Steering in a loop of your own that multiplies losses by batch['loss_weight']"
            )
        self.steering = Steering(reweighter, loader.mixture, logs=logs)
        self.loader, self.metric = loader, metric
        self._trained = loader.mixture.handed
        loader.mixture.count_untrained = self._untrained

    def _untrained(self) -> int:
        return self.loader.mixture.handed - self._trained

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        used = trainer.train_dataloader
        if used is not self.loader:
            raise ValueError(
                f"the Trainer trains on {type(used).__name__}, not on the loader of the "
                "ReweightingCallback; give both the same MixtureLoader"
            )
        self.steering.reweighter.begin_run(trainer.global_step)

    def on_train_batch_end(self, trainer: Any, *args: Any, **kwargs: Any) -> None:
        self._trained += 1

    def on_save_checkpoint(self, trainer: Any, pl_module: Any, checkpoint: dict[str, Any]) -> None:
        by_epoch = trainer.check_val_every_n_epoch is not None
        loop = trainer.fit_loop
        done = (loop.batch_idx if by_epoch else loop.total_batch_idx) + 1
        every = trainer.val_check_batch  # None where validation goes by time
        due = every is not None and math.isfinite(every) and done % every == 0
        if due and self.steering.reweighter.global_step < trainer.global_step:
            warnings.warn(
                f"the checkpoint of step {trainer.global_step} is written before this step's "
                "validation, which Lightning does not repeat when it resumes, so one update of "
                "the weights would be lost. Let ModelCheckpoint save after validation, which it "
                "does without every_n_train_steps",
                ReweightWarning,
                stacklevel=2,
            )

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        if trainer.sanity_checking or trainer.state.fn != "fit":
            return
        found = trainer.callback_metrics
        losses = {}
        for i, name in enumerate(self.steering.reweighter.domains):
            keys = [self.metric.format(domain=name)]
            if "{domain}" not in self.metric:
                keys = [f"{self.metric}/dataloader_idx_{i}"]
                if len(self.steering.reweighter.domains) == 1:
                    keys.append(self.metric)
            key = next((k for k in keys if k in found), None)
            if key is None:
                raise ValueError(
                    f"metric={self.metric!r}: validation logged no {keys[0]!r} for domain "
                    f"{name!r}; it logged {sorted(found)[:10]!r}. Give one validation loader per "
                    "domain, or name domains in the metric: 'val_loss/{domain}'"
                )
            losses[name] = float(found[key])
        self.steering.observe(losses, step=trainer.global_step)

    def state_dict(self) -> dict[str, Any]:
        return self.steering.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.steering.load_state_dict(state_dict)
        self._trained = self.loader.mixture.handed
