"""TRL: `reweight` draws a trainer's prompts, pairs or texts by group, with weights that follow.

Groups are tasks, sources, annotators or `DifficultyBins`. For GRPO and RLOO the weights follow the
rewards, for other trainers the losses of evaluations.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import torch

from counterpoise.common.arguments import check_choice, check_whole
from counterpoise.lm.adapters.group_sampler import GroupSampler
from counterpoise.lm.adapters.hf import ReweightingCallback, check_arguments
from counterpoise.lm.adapters.hf_ranks import ranks_per_sample
from counterpoise.lm.mixture.difficulty import DifficultyBins
from counterpoise.lm.steering import Steering
from counterpoise.reweight.reweighter import Reweighter, ReweightWarning

Array = np.ndarray

SIGNALS = ("reward", "spread")
# Methods of the trainers that have no public name.
SAMPLER, REWARDS = "_get_train_sampler", "_calculate_rewards"


class GroupReweightingCallback(ReweightingCallback):
    """Count what was trained on, and update the weights from rewards or evaluations.

    Made by `reweight`. Its state is part of every checkpoint's ``trainer_state.json``.
    """

    def __init__(
        self,
        steering: Steering,
        sampler: GroupSampler,
        *,
        every: int,
        best: float,
        signal: str,
        bins: DifficultyBins | None,
        metric: str,
        sets: Iterable[str],
    ) -> None:
        super().__init__(steering, metric, sets)
        self.sampler, self.bins = sampler, bins
        self.every, self.best, self.signal = every, best, signal
        self._sums = np.zeros((3, len(sampler.domains)))  # of 1, losses and their squares

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        super().on_train_begin(args, state, control, **kwargs)
        saved = state.stateful_callbacks[type(self).__name__]["attributes"]
        if state.global_step > 0:
            self.sampler.resume_after(state.global_step * args.gradient_accumulation_steps)
            self._sums = np.array(saved["sums"], dtype=float)
            if self.bins is not None and saved["bins"] is not None:
                self.bins.load_state_dict(saved["bins"])

    def on_substep_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.sampler.count_batch()

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.sampler.count_batch()
        if state.global_step % self.every == 0 and self._sums[0].any():
            self._update(state.global_step)

    def record(self, rewards: Array) -> None:
        """Take the rewards of a batch's completions on all ranks, in the sampler's order."""
        rows, repeats = self.sampler.batch, self.sampler.repeats
        if rewards.shape != (len(rows) * repeats,):
            raise RuntimeError(
                f"the trainer computed {rewards.shape} rewards for {len(rows)} prompts of "
                f"{repeats} completions; it does not read the GroupSampler's batches whole"
            )
        table = rewards.reshape(len(rows), repeats)
        tries = np.isfinite(table).sum(axis=1)
        rows, table, tries = rows[tries > 0], table[tries > 0], tries[tries > 0]
        means = np.nanmean(table, axis=1)
        losses = self.best - means if self.signal == "reward" else np.nanstd(table, axis=1)
        codes = self.sampler.codes[rows]
        for total, values in zip(self._sums, (np.ones(len(rows)), losses, losses**2), strict=True):
            total += np.bincount(codes, values, minlength=len(total))
        if self.bins is not None:
            self.bins.observe(rows, means, tries)

    def state(self) -> dict[str, Any]:
        if self.sampler.done:
            warnings.warn(
                "this checkpoint lies within a batch of generations, which TRL makes anew when it "
                "resumes, so that their rewards count twice. Let save_steps be a multiple of "
                "steps_per_generation * num_iterations / gradient_accumulation_steps",
                ReweightWarning,
                stacklevel=2,
            )
        found = super().state()
        bins = None if self.bins is None else self.bins.state_dict()
        found["attributes"] |= {"sums": self._sums.tolist(), "bins": bins}
        return found

    def _update(self, step: int) -> None:
        counts, sums, squares = self._sums
        with np.errstate(divide="ignore", invalid="ignore"):
            means = sums / counts
            errors = np.sqrt(np.maximum(squares / counts - means**2, 0.0) / (counts - 1.0))
        errors = np.where(counts > 1, errors, np.nan)
        if self.bins is not None:
            self.sampler.regroup(self.bins.codes)
        self.steering.observe(means, counts, step, errors=errors, pieces=counts, absent_ok=True)
        self._sums = np.zeros_like(self._sums)


def reweight(
    trainer: Any,
    groups: str | Sequence[Any] | DifficultyBins,
    reweighter: Reweighter | None = None,
    *,
    every: int = 1,
    signal: str = "reward",
    best: float = 1.0,
    metric: str = "loss",
    seed: int | None = None,
    logs: Any = (),
) -> GroupReweightingCallback:
    """Let a trainer of TRL draw its rows by group, with weights that follow how each group does.

    Call it between making the trainer and its ``train()``; set ``max_steps``.

    Parameters
    ----------
    trainer : GRPOTrainer, RLOOTrainer, SFTTrainer, DPOTrainer, ...
        With a map-style ``train_dataset``. Each prompt still comes ``num_generations`` times, and
        each batch of generations as often as TRL uses it.
    groups : str, sequence or DifficultyBins
        A column of the dataset, or the group of each of its rows. `DifficultyBins` regroup prompts
        by their rewards at every update; they need rewards between 0 and 1.
    reweighter : Reweighter, optional
        Over the groups; by default one with the rule ``"adaptive"``.
    every : int, default 1
        Steps between updates, if the weights follow rewards.
    signal : {"reward", "spread"}, default "reward"
        What the weights follow: the mean of ``best`` minus the reward, so that weight goes to
        groups that do badly, or the standard deviation of a prompt's rewards, so that weight goes
        to groups from which GRPO learns. Prompts that are always or never solved have none.
    best : float, default 1.0
        The highest reward.
    metric : str, default "loss"
        For other trainers, the evaluation metric that the weights follow. ``eval_dataset`` must be
        a dictionary with a dataset for every group.
    seed : int, optional
        Of the order of rows; ``args.seed`` if None.
    logs : optional
        See `Steering`.

    Returns
    -------
    callback : GroupReweightingCallback
        ``callback.sampler.report()`` says what each group has contributed.
    """
    args = trainer.args
    check_whole("every", every, 1)
    check_choice("signal", signal, SIGNALS)
    if any(isinstance(c, ReweightingCallback) for c in trainer.callback_handler.callbacks):
        raise ValueError("this Trainer is reweighted already; make a new one")
    check_arguments(args)
    if args.accelerator_config.dispatch_batches or args.accelerator_config.split_batches:
        raise ValueError(
            "accelerator_config has dispatch_batches or split_batches; leave both out, since every "
            "rank follows the same draws"
        )
    rewarded = callable(getattr(trainer, REWARDS, None))
    bins = groups if isinstance(groups, DifficultyBins) else None
    if bins is not None and not rewarded:
        raise ValueError("DifficultyBins need a trainer with rewards; pass groups by name")
    sampler = _make_sampler(trainer, groups, args.seed if seed is None else seed)
    sets = trainer.eval_dataset if isinstance(trainer.eval_dataset, dict) else {}
    sets = {str(name): data for name, data in sets.items()}
    missing = [name for name in sampler.domains if str(name) not in sets]
    if missing and not rewarded:
        raise ValueError(
            "the Trainer's eval_dataset must be a dictionary with a dataset for every group; there "
            f"is none for {missing[:5]!r}"
        )
    callback = GroupReweightingCallback(
        Steering(reweighter, sampler, logs=logs),  # type: ignore[arg-type]  # all that it uses
        sampler,
        every=every,
        best=best,
        signal=signal,
        bins=bins,
        metric=metric,
        sets=() if rewarded else sets,
    )
    if sets:
        trainer.eval_dataset = sets  # a Trainer takes no other names than strings
    args.ignore_data_skip = False  # it skips what the sampler yields instead of earlier rows
    vars(trainer)[SAMPLER] = lambda dataset=None: sampler
    vars(trainer)["get_train_dataloader"] = _with_generator(trainer.get_train_dataloader)
    if rewarded:
        vars(trainer)[REWARDS] = _observed(trainer, callback.record)
    trainer.add_callback(callback)
    return callback


def _make_sampler(trainer: Any, groups: Any, seed: int) -> GroupSampler:
    """Make a sampler that repeats rows and batches as often as the trainer's own does."""
    args, data = trainer.args, trainer.train_dataset
    if not (hasattr(data, "__len__") and hasattr(data, "__getitem__")):
        raise ValueError(
            f"the Trainer's train_dataset must be map-style; got {type(data).__name__}, whose rows "
            "cannot be drawn by number"
        )
    names = None
    if isinstance(groups, DifficultyBins):
        groups, names = [groups.names[k] for k in groups.codes.tolist()], groups.names
    elif isinstance(groups, str):
        groups = list(data[groups])
    if len(groups) != len(data):
        raise ValueError(
            f"groups has {len(groups)} entries for {len(data)} rows of train_dataset; give one for "
            "each row (a trainer that packs texts changes the rows)"
        )
    shared = ranks_per_sample(trainer)
    ahead = 1 + args.dataloader_num_workers * (args.dataloader_prefetch_factor or 2)  # accelerate
    own = getattr(trainer, SAMPLER)()
    if hasattr(own, "mini_repeat_count"):
        if shared > 1:
            raise ValueError(
                f"{shared} ranks hold parts of one model or sequence, but TRL counts each rank's "
                "completions as others; train with rewards without tensor and context parallelism"
            )
        rows, repeats, copies = own.batch_size, own.mini_repeat_count, own.repeat_count
    else:
        readers = trainer.accelerator.num_processes // shared
        rows, repeats, copies = args.train_batch_size * readers, 1, 1
    return GroupSampler(
        groups, names=names, seed=seed, rows=rows, repeats=repeats, copies=copies, ahead=ahead,
        together=args.gradient_accumulation_steps,
    )  # fmt: skip


def _with_generator(make: Callable[[], Any]) -> Callable[[], Any]:
    """Give the loader a generator of its own.

    Otherwise each iteration takes a random number from those of generations and dropout, and a
    resume, which begins one, would generate other completions.
    """

    def made() -> Any:
        loader = make()
        inner = getattr(loader, "base_dataloader", loader)
        if inner.generator is None:
            inner.generator = torch.Generator()
        return loader

    return made


def _observed(trainer: Any, record: Callable[[Array], None]) -> Callable[..., Any]:
    """Wrap the trainer's calculation of rewards, which returns those of all ranks."""
    calculate = getattr(trainer, REWARDS)

    def calculated(*args: Any, **kwargs: Any) -> Any:
        found = calculate(*args, **kwargs)
        if trainer.model.training:
            weights = trainer.reward_weights.to(found.device)
            rewards = (found * weights).nansum(dim=1).masked_fill(found.isnan().all(dim=1), np.nan)
            record(rewards.double().cpu().numpy())
        return found

    return calculated
