"""Estimate memory, work, time and disk of a run from its settings alone."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from counterpoise.common.arguments import check_whole
from counterpoise.lm.corpus.tokens import Corpus
from counterpoise.lm.training.devices import Device, get_device
from counterpoise.lm.training.domains import corpus_of, known_domains
from counterpoise.lm.training.memory_advice import Need, advice_for
from counterpoise.lm.training.rank_memory import FLOAT32, RankMemory
from counterpoise.lm.training.settings import Settings, TrainSettings
from counterpoise.lm.training.shape import Shape, shape_of

MARGIN = 0.1  # of a device's memory, for its context and what lies between allocations


@dataclass(frozen=True)
class Estimate:
    """Needs of a run; prints as a table.

    Attributes
    ----------
    shape : Shape
        Shape of the model.
    device : Device
    ranks, micro_batches, micro_batch : int
        Processes, micro-batches of a step on each, sequences in each micro-batch.
    memory : RankMemory
        Memory of one rank.
    steps, step_tokens : int
    evaluations : int
        Number of evaluations; each covers both splits.
    evaluated_tokens : int or None
        Tokens of all evaluations; None until the domains and their sizes are known.
    flops, evaluation_flops : float or None
        Operations of training and of the evaluations.
    rate : float or None
        Operations per second of one rank; None if nothing is assumed about the device.
    measured : bool
        Whether ``rate`` was measured here.
    checkpoints : int
        Checkpoints kept at the end.
    checkpoint_bytes, disk_bytes : int
        Size of one checkpoint with its optimizer, and of all that are kept. One more exists while
        a checkpoint is written.
    advice : tuple of str
        Settings that would make the run fit.
    """

    shape: Shape
    device: Device
    ranks: int
    micro_batches: int
    micro_batch: int
    memory: RankMemory
    steps: int
    step_tokens: int
    evaluations: int
    evaluated_tokens: int | None
    flops: float
    evaluation_flops: float | None
    rate: float | None
    measured: bool
    checkpoints: int
    checkpoint_bytes: int
    disk_bytes: int
    advice: tuple[str, ...] = ()

    @property
    def tokens(self) -> int:
        return self.steps * self.step_tokens

    @property
    def room(self) -> float | None:
        """Bytes that a rank may use after leaving a margin."""
        return room_on(self.device, self.ranks)

    @property
    def fits(self) -> bool | None:
        """Whether a rank's memory suffices; None if the device's is unknown."""
        return None if self.room is None else self.memory.total <= self.room

    @property
    def hours(self) -> float | None:
        """Hours of training and evaluations, without start-up, checkpoints and tasks."""
        if self.rate is None:
            return None
        return (self.flops + (self.evaluation_flops or 0.0)) / (self.rate * self.ranks) / 3600

    def as_dict(self) -> dict[str, Any]:
        """Return plain numbers, for JSON."""
        plain = ("shape", "device", "memory", "advice")
        return {
            "parameters": self.shape.parameters,
            "non_embedding_parameters": self.shape.parameters - self.shape.embeddings,
            "tokens": self.tokens,
            **{name: value for name, value in vars(self).items() if name not in plain},
            "memory": self.memory.as_dict(),
            "device": asdict(self.device),
            "shape": asdict(self.shape),
            "fits": self.fits,
            "hours": self.hours,
            "advice": list(self.advice),
        }

    def __str__(self) -> str:
        from counterpoise.lm.training.estimate_table import table

        return table(self)


def estimate(
    settings: Settings,
    *,
    ranks: int = 1,
    device: str | Device = "a100-80gb",
    calibrate: bool = False,
) -> Estimate:
    """Estimate what a run will need.

    Neither the corpus nor the model has to exist. The vocabulary is then ``model.vocab_size``, and
    a checkpoint that cannot be reached is assumed to have the shape of ``[model]``.

    Parameters
    ----------
    settings : Settings
    ranks : int
        Number of processes, one per device.
    device : str or Device
        ``a100-80gb``, ``a100-40gb``, ``h100-80gb``, ``cpu``, or a `Device` of your own.
    calibrate : bool
        Measure the speed here with a few micro-batches instead of assuming it.

    Notes
    -----
    A token costs ``6 N`` operations in training and ``2 N`` in evaluation, where ``N`` counts the
    parameters it is multiplied by. Attention adds ``12 length`` and ``4 length`` times the width of
    all layers (whole matrices, as is customary when utilisation is reported). Activation
    checkpointing multiplies training by 4/3.
    """
    check_whole("ranks", ranks, 1)
    found, train = get_device(device), settings.train
    corpus = corpus_of(settings)
    shape = shape_of(settings, corpus)
    number, micro = train.micro_batches(ranks)
    other = None
    if (reference_model := settings.reweight.reference_model) is not None:
        other = shape_of(settings.changed({"model.checkpoint": reference_model}), corpus)
    need = Need(shape, settings.evaluate.batch, ranks, other.parameters if other else 0)
    memory = need.memory(train)
    forward = shape.forward_flops(train.length)
    token = 3 * forward * (4 / 3 if train.activation_checkpointing else 1)
    if other is not None:
        token += other.forward_flops(train.length)
    evaluations = evaluations_of(train)
    evaluated = _evaluated_tokens(settings, corpus)
    rate = found.rate(train.precision)
    if calibrate:
        from counterpoise.lm.training.calibrate import measured_rate

        rate = measured_rate(settings, corpus)
    return Estimate(
        shape=shape,
        device=found,
        ranks=ranks,
        micro_batches=number,
        micro_batch=micro,
        memory=memory,
        steps=train.steps,
        step_tokens=train.step_tokens,
        evaluations=evaluations,
        evaluated_tokens=None if evaluated is None else evaluations * evaluated,
        flops=train.steps * train.step_tokens * token,
        evaluation_flops=None if evaluated is None else evaluations * evaluated * forward,
        rate=rate,
        measured=calibrate,
        **_disk(train, shape),
        advice=advice_for(need, train, room_on(found, ranks)),
    )


def evaluations_of(train: TrainSettings) -> int:
    """Count evaluations: before the first step, at every interval, and at the end."""
    return 1 + -(-train.steps // train.evaluate_steps)


def room_on(device: Device, ranks: int) -> float | None:
    if device.memory is None:
        return None
    return (1 - MARGIN) * device.memory / (ranks if device.shared else 1)


def _evaluated_tokens(settings: Settings, corpus: Corpus | None) -> int | None:
    """Count the tokens of one evaluation."""
    chosen, length = settings.evaluate, settings.train.length
    domains = known_domains(settings, corpus)
    if domains is None or (corpus is None and not chosen.sequences):
        return None
    if corpus is None:
        return 2 * len(domains) * (chosen.sequences or 0) * length
    found = 0
    for split in (chosen.driving, chosen.report):
        for name in domains:
            there = corpus.sizes(split)[name] // length
            found += min(there, chosen.sequences or there) * length
    return found


def _disk(train: TrainSettings, shape: Shape) -> dict[str, int]:
    """Size up the checkpoints kept at the end: parameters and, in some, two moments."""
    model = FLOAT32 * shape.parameters
    written = 1 + (train.steps - 1) // train.checkpoint_steps
    kept = min(train.keep, written)
    optimizers = min(kept, train.keep_optimizers or kept) - (0 if train.save_optimizer else 1)
    disk = (kept + 2 * optimizers) * model
    return {"checkpoints": kept, "checkpoint_bytes": 3 * model, "disk_bytes": disk}
