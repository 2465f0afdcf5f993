"""torchtitan: a dataloader over a mixture, and `reweight`, which steers it from a Trainer's steps.

Works with torchtitan 0.2.2 (``TrainSpec.build_dataloader_fn``) and 0.3
(``Trainer.Config.dataloader``), but not with its main branch since 20 August 2026, whose batches
are one row of tokens. Nothing here imports torchtitan 0.2; of 0.3, only the base classes of
dataloaders. The tests use a trainer with the public surface that `Trainer` writes down, because
torchtitan's own cannot be imported beside the tested packages without Triton.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Protocol

import torch
import torch.distributed as dist

from counterpoise.common.arguments import check_version, check_whole
from counterpoise.lm.corpus.tokens import Corpus
from counterpoise.lm.evaluate import DomainLosses, Sequences, domain_losses, held_out
from counterpoise.lm.mixture.dataset import MixtureDataset
from counterpoise.lm.sealed_tensor import from_tensor, room_for, to_tensor
from counterpoise.lm.steering import Steering
from counterpoise.reweight.reweighter import Reweighter, ReweightWarning
from counterpoise.torch.distributed import rank_of, reduce_sums, world_size

Batch = tuple[dict[str, torch.Tensor], torch.Tensor]
Found = DomainLosses[str] | Mapping[str, float] | None

STATE, STATE_VERSION = "counterpoise", 1
FIRST_VERSION, LAST_VERSION = (0, 2, 2), (0, 3)
FITTING = "Counterpoise works with torchtitan 0.2.2 and 0.3; install one of them"
REMEDY = "change the weights less often than the loader's lag passes, or lower the lag"


class Trainer(Protocol):
    """The parts of torchtitan's Trainer that `reweight` uses."""

    step: int
    ntokens_seen: int
    device: torch.device
    model_parts: list[torch.nn.Module]
    dataloader: Any
    parallel_dims: Any
    metrics_processor: Any
    loss_fn: Callable[..., Any]
    train_context: Callable[[], Any]

    def train_step(self, data_iterator: Iterator[Batch]) -> None: ...

    def post_dataloading_process(
        self, input_dict: dict[str, torch.Tensor], labels: torch.Tensor
    ) -> tuple[Any, ...]: ...


class PlainConfig:
    """What ``Configurable.Config`` of torchtitan 0.3 gives a configuration: ``build``."""

    __slots__ = ()

    def build(self, **kwargs: Any) -> Any:
        return MixtureDataLoader(self, **kwargs)


def _bases() -> tuple[Any, Any]:
    """Return torchtitan's classes for a dataloader and its configuration, if it has the latter."""
    try:
        before = version("torchtitan").startswith(("0.0.", "0.1.", "0.2."))
    except PackageNotFoundError:
        before = True
    if before:
        return object, PlainConfig
    try:
        base = import_module("torchtitan.components.dataloader").BaseDataLoader
    except ModuleNotFoundError as error:
        raise ImportError(
            f"torchtitan {version('torchtitan')} has no {error.name}: it is newer than this "
            f"adapter. {FITTING}"
        ) from error
    return base, base.Config


BaseDataLoader, BaseConfig = _bases()


class MixtureDataLoader(BaseDataLoader):  # type: ignore[misc, valid-type]
    """Batches of a mixture as torchtitan wants them, and a state that fits its checkpoints.

    Made from a `MixtureDataLoader.Config`, with the data-parallel rank and size, the sequence
    length and the batch size that torchtitan hands over: in torchtitan 0.3 through
    ``Trainer.Config(dataloader=...)``, in 0.2 through `build_dataloader_fn`. A checkpoint resumes
    with any other data-parallel degree, batch size and number of workers.

    Parameters
    ----------
    config : MixtureDataLoader.Config
    dp_world_size, dp_rank : int
        Size of the data-parallel group, and this process's place in it. Ranks that differ only in
        tensor, context or pipeline parallelism have the same and read the same samples.
    seq_len, local_batch_size : int
        Samples are ``seq_len + 1`` tokens, so that each has ``seq_len`` inputs and labels.

    Notes
    -----
    An iteration yields ``({"input": ids}, labels)``; with ``positions``, also the position of each
    token in its document, which torchtitan 0.3 uses for its block-causal masks.
    """

    @dataclass(kw_only=True, slots=True)
    class Config(BaseConfig):  # type: ignore[misc, valid-type]
        """What to read: the arguments of `MixtureDataset` and `MixtureLoader`.

        ``positions`` says whether batches hold positions that start anew with each document; the
        default is that of torchtitan's own dataloaders: yes from 0.3 on.
        """

        corpus: str = ""
        weights: dict[str, float] | None = None
        split: str = "train"
        domains: list[str] | None = None
        exhaustion: str = "repeat"
        seed: int = 0
        num_workers: int = 0
        prefetch_factor: int | None = None
        lag: int | None = None
        positions: bool = BaseConfig is not PlainConfig

    def __init__(
        self,
        config: Any,
        *,
        dp_world_size: int,
        dp_rank: int,
        seq_len: int | None = None,
        local_batch_size: int | None = None,
        **unused: Any,
    ) -> None:
        if not config.corpus:
            raise ValueError("corpus='' is no folder; set MixtureDataLoader.Config(corpus=...)")
        if seq_len is None or local_batch_size is None:
            raise TypeError(
                "torchtitan must pass seq_len and local_batch_size to its dataloader; got "
                f"seq_len={seq_len!r}, local_batch_size={local_batch_size!r} and "
                f"{sorted(unused)!r}. Its main branch since 20 August 2026 passes "
                f"max_context_length and num_tokens_per_batch instead. {FITTING}"
            )
        self.config = config
        self.corpus = Corpus.open(config.corpus)
        self.mixture = MixtureDataset(
            self.corpus,
            seq_len + 1,
            weights=config.weights,
            split=config.split,
            domains=config.domains,
            exhaustion=config.exhaustion,
            seed=config.seed,
            rank=dp_rank,
            world_size=dp_world_size,
        )
        self.loader = self.mixture.loader(
            local_batch_size,
            num_workers=config.num_workers,
            prefetch_factor=config.prefetch_factor,
            lag=config.lag,
            with_domain=False,
        )
        self.steering: Steering | None = None
        self._end = self.mixture.samples[0].tokens.end

    def __iter__(self) -> Iterator[Batch]:
        for batch in self.loader:
            yield self.split(batch["input_ids"])

    def split(self, ids: torch.Tensor) -> Batch:
        """Split samples into inputs and the tokens that follow them."""
        inputs = {"input": ids[:, :-1].contiguous()}
        if self.config.positions:
            inputs["positions"] = document_positions(inputs["input"], self._end)
        return inputs, ids[:, 1:].contiguous()

    def state_dict(self) -> dict[str, torch.Tensor]:
        """Return the position of the stream and, once steered, the weights: one tensor of bytes.

        It is the same on all ranks, and as long for any state of these domains.
        """
        state: dict[str, Any] = {"reweighter": None, "mixture": self.mixture.state_dict()}
        if self.steering is not None:
            state = self.steering.state_dict()
        state["version"] = STATE_VERSION
        return {STATE: to_tensor(state, room_for(self.mixture.domains), REMEDY)}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Resume from the state of any number of ranks; an empty one changes nothing."""
        if not state_dict:
            return
        if STATE not in state_dict:
            raise ValueError(
                f"the checkpoint's dataloader has {sorted(state_dict)[:5]!r} but no {STATE!r}; it "
                "belongs to another dataloader. Set checkpoint.exclude_from_loading=['dataloader'] "
                "to start the mixture anew"
            )
        state = from_tensor(state_dict[STATE])
        check_version(state, STATE_VERSION)
        if self.steering is not None and state["reweighter"] is not None:
            self.steering.restore(state["reweighter"], state["mixture"])
            return
        self.mixture.load_state_dict(state["mixture"])
        if self.steering is not None:
            warnings.warn(
                "the checkpoint was made without reweighting; the mixture goes on where it was, "
                "with the weights that the reweighter starts from",
                ReweightWarning,
                stacklevel=2,
            )
            self.mixture.set_weights(self.steering.reweighter.as_dict())


def build_dataloader_fn(config: MixtureDataLoader.Config) -> Callable[..., MixtureDataLoader]:
    """Return the function that a ``TrainSpec`` of torchtitan 0.2 makes its dataloader with."""

    def build(*, dp_world_size: int, dp_rank: int, job_config: Any, **unused: Any) -> Any:
        training = job_config.training
        return MixtureDataLoader(
            config,
            dp_world_size=dp_world_size,
            dp_rank=dp_rank,
            seq_len=training.seq_len,
            local_batch_size=training.local_batch_size,
        )

    return build


def reweight(
    trainer: Trainer,
    reweighter: Reweighter | None = None,
    *,
    every: int,
    samples: Mapping[str, Sequences] | None = None,
    limit: int | None = None,
    batch_size: int | None = None,
    evaluate: Callable[[Trainer], Found] | None = None,
    update_at_start: bool | None = None,
    logs: Any = (),
) -> Steering:
    """Let the weights of a torchtitan Trainer's domains follow their held-out losses.

    Call it on every rank between making the Trainer and its ``train()``.

    Parameters
    ----------
    trainer : torchtitan.trainer.Trainer
        Its dataloader must be a `MixtureDataLoader`.
    reweighter : Reweighter, optional
        Over the mixture's domains; by default one with the rule ``"adaptive"``.
    every : int
        Steps between evaluations. They end a step, before its checkpoint is written, so a resume
        repeats or loses none. (torchtitan's Validator runs after the checkpoint.)
    samples : mapping of domains to datasets, optional
        Held-out samples; those of the corpus's split ``"validation"``, at most ``limit`` for each
        domain, if None.
    batch_size : int, optional
        Held-out samples per batch on each rank; that of training if None.
    evaluate : callable, optional
        Called with the trainer on every rank; returns each domain's loss, or what `domain_losses`
        returns. What the first rank finds that has all domains counts; the others may return None,
        as all but the last stage of a pipeline do. Needed with pipeline or context parallelism,
        where a model cannot simply be called.
    update_at_start : bool, optional
        Whether to evaluate before the first step as well; see `Steering`.
    logs : optional
        See `Steering`. The Trainer's own metrics get each domain's loss and weight in any case.

    Returns
    -------
    steering : Steering
        Its state is part of the Trainer's checkpoints.
    """
    check_whole("every", every, 1)
    _check_version()
    loader = trainer.dataloader
    if not isinstance(loader, MixtureDataLoader):
        raise ValueError(
            f"the Trainer's dataloader must be a MixtureDataLoader; got {type(loader).__name__}"
        )
    if loader.steering is not None:
        raise ValueError("this Trainer is reweighted already; make a new one")
    if evaluate is None:
        _check_plain(trainer.parallel_dims)
        if samples is None:
            samples = held_out(
                loader.corpus, loader.mixture.length, domains=loader.mixture.domains, limit=limit
            )
        evaluate = partial(
            held_out_losses,
            samples=samples,
            batch_size=batch_size or loader.mixture.batch_size,
            group=data_group(trainer.parallel_dims),
        )
    steering = Steering(reweighter, loader.mixture, update_at_start=update_at_start, logs=logs)
    loader.steering = steering
    train_step, started = trainer.train_step, False

    def observe(step: int) -> None:
        updates = steering.reweighter.updates
        steering.observe(_same_everywhere(evaluate(trainer), loader.mixture.domains), step=step)
        metrics = getattr(trainer.metrics_processor, "logger", None)
        if metrics is not None and steering.reweighter.updates > updates:
            metrics.log(_metrics(steering), step)

    def steered_step(*args: Any, **kwargs: Any) -> None:
        nonlocal started
        if not started:
            started = True
            steering.reweighter.begin_run(trainer.step - 1)
            if trainer.step == 1 and steering.reweighter.global_step < 0:
                observe(0)
        train_step(*args, **kwargs)
        if trainer.step % every == 0:
            observe(trainer.step)

    vars(trainer)["train_step"] = steered_step
    return steering


def held_out_losses(
    trainer: Trainer, samples: Mapping[str, Sequences], *, batch_size: int, group: Any
) -> DomainLosses[str]:
    """Compute the mean loss of each domain's samples with the Trainer's model and loss."""

    def loss(model: Any, batch: dict[str, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
        seen = trainer.ntokens_seen  # torchtitan 0.3 counts here what it trains on
        inputs, labels = trainer.dataloader.split(batch["input_ids"])
        inputs, labels, *more = trainer.post_dataloading_process(inputs, labels)
        trainer.ntokens_seen = seen
        kwargs = {key: value for extra in more for key, value in extra.items()}
        with trainer.train_context(), getattr(trainer, "maybe_enable_amp", nullcontext()):
            found = model(inputs, **kwargs)
            parts = [(found, labels)]
            if type(found) is torch.Tensor:  # a loss of each sequence; of a DTensor, one of all
                parts = [(found[i : i + 1], labels[i : i + 1]) for i in range(len(labels))]
                # Chunked losses gather weights: every rank must call them as often.
                parts += [parts[0]] * (batch_size - len(parts))
            sums = [_first(trainer.loss_fn(*part)) for part in parts]
        if len(parts) > 1:
            parts, sums = parts[: len(labels)], sums[: len(labels)]
        counts = torch.tensor([part[1].numel() for part in parts])
        return torch.stack([getattr(s, "full_tensor", lambda s=s: s)() for s in sums]), counts

    (model,) = trainer.model_parts
    return domain_losses(
        model, samples, batch_size=batch_size, loss=loss, device=trainer.device, group=group
    )


def document_positions(ids: torch.Tensor, end: int) -> torch.Tensor:
    """Number the tokens of each row from 0, and again after every end token.

    >>> document_positions(torch.tensor([[5, 6, 0, 7, 0, 0, 8]]), end=0).tolist()
    [[0, 1, 2, 0, 1, 0, 0]]
    """
    places = torch.arange(ids.shape[1], device=ids.device).expand_as(ids)
    starts = torch.zeros_like(places)
    starts[:, 1:] = torch.where(ids[:, :-1] == end, places[:, 1:], 0)
    return places - starts.cummax(dim=1).values


def data_group(parallel_dims: Any) -> Any:
    """Return the group of ranks that read different samples: this rank alone if there are none."""
    if parallel_dims.dp_enabled:
        return parallel_dims.get_mesh("batch").get_group()
    if world_size() == 1:
        return None
    alone = [dist.new_group([rank]) for rank in range(world_size())]
    return alone[rank_of()]


def _check_version() -> None:
    """Refuse releases whose loss functions return means instead of sums, and unknown ones."""
    try:
        found = version("torchtitan")
    except PackageNotFoundError:
        return
    public, _, _ = found.partition("+")
    numbers = tuple(int(part) for part in public.split(".")[:3] if part.isdigit())
    if numbers < FIRST_VERSION:
        raise RuntimeError(
            f"torchtitan {found} returns mean losses, which this adapter would take for sums; "
            f"install {'.'.join(map(str, FIRST_VERSION))} or 0.3"
        )
    if numbers[:2] > LAST_VERSION:
        raise RuntimeError(f"torchtitan {found} is newer than this adapter. {FITTING}")


def _check_plain(parallel_dims: Any) -> None:
    for name, enabled in (
        ("pipeline", parallel_dims.pp_enabled),
        ("context", parallel_dims.cp_enabled),
    ):
        if enabled:
            raise ValueError(
                f"with {name} parallelism, held-out losses need more than a call of the model; "
                "pass evaluate=, a function of the trainer that returns each domain's loss, for "
                "instance by torchtitan's Validator with one dataloader per domain"
            )


def _same_everywhere(found: Found, names: list[str]) -> DomainLosses[str]:
    """Give every rank, to the bit, what the first rank with the most domains found.

    Every rank joins both reductions, whatever it found, and all raise the same error.
    """
    columns = _columns(found)
    table = [[float(column.get(name, math.nan)) for name in names] for column in columns]
    has = [name in columns[0] for name in names]
    numbers = torch.zeros(world_size(), dtype=torch.float64)
    numbers[rank_of()] = sum(has)
    source = int(reduce_sums(numbers).argmax())
    values = torch.tensor([has, *table], dtype=torch.float64)
    if rank_of() != source:
        values = torch.zeros_like(values)
    there, *rows = reduce_sums(values).tolist()
    missing = [name for name, one in zip(names, there, strict=True) if not one]
    if missing:
        raise ValueError(
            f"evaluate returned no loss for {missing[:5]!r} on rank {source}, and no rank has one "
            "for more domains; return one per domain on at least one rank"
        )
    losses, counts, errors, *others = (dict(zip(names, row, strict=True)) for row in rows)
    unknown = [all(math.isnan(value) for value in column.values()) for column in others]
    known = [{} if none else column for none, column in zip(unknown, others, strict=True)]
    return DomainLosses(losses, counts, errors, *known)


def _columns(found: Found) -> list[Mapping[str, float]]:
    """Return losses and what else is known of them, in the order of `DomainLosses`."""
    if isinstance(found, DomainLosses):
        return list(vars(found).values())
    losses = dict(found or {})
    return [losses, dict.fromkeys(losses, 1.0), {}, {}, {}]


def _metrics(steering: Steering) -> dict[str, float]:
    domains = steering.record()["domains"]
    return {
        f"domains/{name}/{what}": domains[name][what]
        for name in domains
        for what in ("loss", "weight")
    }


def _first(found: Any) -> torch.Tensor:
    """Return the sum of a loss: torchtitan 0.3 returns metrics with it."""
    return found[0] if isinstance(found, tuple) else found
