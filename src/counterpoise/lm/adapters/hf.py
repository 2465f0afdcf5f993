"""Hugging Face Trainer: `reweight` sets up everything in one call."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from typing import Any

from counterpoise.common.packages import TRAINER, not_installed

try:
    import accelerate  # noqa: F401  the Trainer fails without it, and late
    import torch
    from transformers import Trainer, TrainerCallback, default_data_collator
    from transformers.trainer_callback import ExportableState
except ImportError as error:
    raise not_installed("the adapter for the Trainer needs", *TRAINER, error=error) from error

from counterpoise.lm.adapters.hf_loss import check_order, weigh_losses_of
from counterpoise.lm.adapters.hf_ranks import check_mixture
from counterpoise.lm.mixture.dataset import MixtureDataset
from counterpoise.lm.mixture.loader import name_of
from counterpoise.lm.steering import Steering, default_reweighter
from counterpoise.reweight.reweighter import Reweighter, ReweightWarning
from counterpoise.reweight.sampling import Sampling, get_sampling

DOMAIN = "domain"


class ReweightingCallback(TrainerCallback, ExportableState):
    """Update the weights when all domains have been evaluated; made by `reweight`.

    Its state is part of every checkpoint's ``trainer_state.json``.
    """

    def __init__(self, steering: Steering, metric: str, sets: Iterable[Any]) -> None:
        self.steering, self.metric = steering, metric
        self._domains = {str(name): name for name in steering.reweighter.domains}
        names = map(str, sets)
        self._sets = sorted(names, key=len, reverse=True)  # "web_code" before "web"
        self._found: dict[Any, float] = {}
        self._step = -1

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        name = type(self).__name__
        saved = state.stateful_callbacks.get(name)
        if state.global_step > 0 and saved:
            self.steering.load_state_dict(saved["attributes"]["steering"])
        elif state.global_step > 0:
            warnings.warn(
                f"the checkpoint of step {state.global_step} was made without reweighting; the "
                "weights and the mixture start anew",
                ReweightWarning,
                stacklevel=2,
            )
        state.stateful_callbacks.setdefault(name, self.state())  # Trainer looks it up when saving
        self.steering.reweighter.begin_run(state.global_step)

    def on_evaluate(  # type: ignore[override]
        self, args: Any, state: Any, control: Any, metrics: dict[str, float], **kwargs: Any
    ) -> None:
        # With a dictionary of evaluation sets this is called once for each of them.
        if state.global_step != self._step:
            self._found, self._step = {}, state.global_step
        name = self._evaluated(metrics)
        if name in self._domains:
            key = f"eval_{name}_{self.metric}"
            if key not in metrics:
                raise ValueError(
                    f"metric={self.metric!r}: the evaluation of domain {name!r} has no {key!r}; "
                    f"choose from {sorted(metrics)[:10]!r}"
                )
            self._found[self._domains[name]] = metrics[key]
        if len(self._found) == len(self.steering.reweighter.domains):
            found, self._found = self._found, {}
            self.steering.observe(found, step=state.global_step)

    def state(self) -> dict[str, Any]:
        return {"args": {}, "attributes": {"steering": self.steering.state_dict()}}

    def _evaluated(self, metrics: dict[str, float]) -> str:
        """Return the name of the set that metrics are of; an empty one if it has none.

        All keys begin with it. Those of "web" may do so with "web_samples", too, since a Trainer
        adds "samples_per_second".
        """
        keys = [key for key in metrics if key.startswith("eval_")]
        whole = [n for n in self._sets if keys and all(k.startswith(f"eval_{n}_") for k in keys)]
        exact = [n for n in self._sets if f"eval_{n}_{self.metric}" in metrics]
        return next(iter(whole + exact), "")


def reweight(
    trainer: Trainer,
    reweighter: Reweighter | None = None,
    *,
    metric: str = "loss",
    lag: int | None = None,
    update_at_start: bool | None = None,
    sampling: str | Sampling = "weights",
    logs: Any = (),
) -> ReweightingCallback:
    """Let the weights of a Trainer's domains follow their evaluation losses.

    Parameters
    ----------
    trainer : transformers.Trainer
        Its ``train_dataset`` must be a `MixtureDataset` and its ``eval_dataset`` a dictionary with
        a dataset for every domain; set ``max_steps`` for the length of training.
    reweighter : Reweighter, optional
        Over the mixture's domains; by default one with the rule ``"adaptive"``.
    metric : str, default "loss"
        Evaluation metric that drives the weights.
    lag : int, optional
        See `MixtureLoader`.
    update_at_start : bool, optional
        Whether the evaluation before the first batch, ``TrainingArguments(eval_on_start=True)``,
        moves the weights; see `Steering`.
    sampling : {"weights", "fixed"} or Sampling, default "weights"
        Shares that samples are drawn by; see `Steering`. With ``"fixed"``, the Trainer's loss is
        weighed. It must then be the mean loss of next tokens, and ``data_collator`` must leave each
        sample in a row of its own. ``"variance"`` needs the spread of losses within domains, which
        a Trainer does not measure.
    logs : optional
        See `Steering`.

    Notes
    -----
    The Trainer then reads the mixture through its own loader. Ranks and workers share it without
    reading for one another, and a checkpoint resumes exactly, without skipping batches. With tensor
    or context parallelism, give the mixture the model's mesh.
    """
    mixture, args = trainer.train_dataset, trainer.args
    if not isinstance(mixture, MixtureDataset):
        raise ValueError(
            f"the Trainer's train_dataset must be a MixtureDataset; got {type(mixture).__name__}"
        )
    if reweighter is None:
        reweighter = default_reweighter(mixture)
    sets = trainer.eval_dataset
    known = set(sets) if isinstance(sets, dict) else set()
    missing = [name for name in reweighter.domains if name not in known]
    if missing:
        raise ValueError(
            "the Trainer's eval_dataset must be a dictionary with a dataset for every domain; "
            f"there is none for {missing[:5]!r}. counterpoise.lm.held_out() makes one."
        )
    if any(isinstance(c, ReweightingCallback) for c in trainer.callback_handler.callbacks):
        raise ValueError("this Trainer is reweighted already; make a new one")
    check_arguments(args)
    check_mixture(trainer, mixture)
    if args.eval_strategy == "no":
        warnings.warn(
            "eval_strategy='no': without evaluations the weights will not move; use 'steps'",
            ReweightWarning,
            stacklevel=2,
        )
    if update_at_start and not args.eval_on_start:
        raise ValueError(
            "update_at_start=True needs an evaluation before the first batch; set "
            "TrainingArguments(eval_on_start=True)"
        )
    chosen = get_sampling(sampling)
    if chosen.measures:
        raise ValueError(
            f"sampling={chosen.name!r} needs the spread of losses within domains, which a Trainer "
            "does not measure; use sampling='fixed', or a loop of your own with domain_losses"
        )
    if chosen.apart:
        weigh_losses_of(trainer)
    steering = Steering(
        reweighter, mixture, update_at_start=update_at_start, sampling=chosen, logs=logs
    )
    plain = trainer.data_collator is default_data_collator
    loader = mixture.loader(
        args.train_batch_size,
        num_workers=args.dataloader_num_workers,
        prefetch_factor=args.dataloader_prefetch_factor if args.dataloader_num_workers else None,
        pin_memory=args.dataloader_pin_memory and torch.cuda.is_available(),
        lag=lag,
        with_domain=False,
        collate_fn=None if plain else _WithDomain(trainer.data_collator, chosen.apart),
    )
    args.ignore_data_skip = True
    vars(trainer)["get_train_dataloader"] = lambda: loader
    callback = ReweightingCallback(steering, metric, known)
    trainer.add_callback(callback)
    return callback


def check_arguments(args: Any) -> None:
    """Refuse arguments of a Trainer with which samples or the callback's state would be lost."""
    if args.auto_find_batch_size:
        raise ValueError(
            "auto_find_batch_size=True starts over with another batch size and would lose samples "
            "of the mixture; set per_device_train_batch_size instead"
        )
    if args.restore_callback_states_from_checkpoint:
        raise ValueError(
            "restore_callback_states_from_checkpoint=True would replace this callback by one "
            "without a mixture; leave it False, since the callback restores itself"
        )


class _WithDomain:
    """Wrap a collator that does not know domains, and add them to what it returns.

    If samples have factors of their losses, rows in another order are refused.
    """

    def __init__(self, collator: Callable[[list[Any]], Any], weighed: bool) -> None:
        self.collator, self.weighed = collator, weighed
        self.__name__ = name_of(collator)

    def __call__(self, samples: list[dict[str, Any]]) -> Any:
        domains = torch.stack([s.pop(DOMAIN) for s in samples])
        ids = [s.get("input_ids") for s in samples]
        batch = self.collator(samples)
        if self.weighed:
            check_order(ids, batch, self.__name__)
        return {**batch, DOMAIN: domains}
