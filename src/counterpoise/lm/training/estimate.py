"""What a run will need, from its settings alone: memory, work, time, disk."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from counterpoise.common.arguments import check_whole
from counterpoise.lm.corpus.tokens import Corpus
from counterpoise.lm.training.devices import Device, get_device
from counterpoise.lm.training.domains import corpus_of, known_domains
from counterpoise.lm.training.memory import FLOAT32, Memory
from counterpoise.lm.training.memory_advice import Need, advice_for
from counterpoise.lm.training.settings import Settings, TrainSettings
from counterpoise.lm.training.shape import Shape, shape_of

MARGIN = 0.1  # of a device's memory, for its context and what lies between allocations


@dataclass(frozen=True)
class Estimate:
    """What a run will need; prints as a table.

    Attributes
    ----------
    shape : Shape
        The model's.
    device : Device
    ranks, parts, micro_batch : int
        Processes, parts of a step on each, sequences in each part.
    memory : Memory
        Of one rank.
    steps, step_tokens : int
    evaluations : int
        Both splits are evaluated at each.
    evaluated_tokens : int or None
        Of all evaluations; None before the domains or their sizes are known.
    flops, evaluation_flops : float or None
        Of training and of the evaluations.
    rate : float or None
        Operations per second of one rank; None where nothing is assumed of the device.
    measured : bool
        Whether ``rate`` was measured here.
    checkpoints : int
        That are kept at the end.
    checkpoint_bytes, disk_bytes : int
        Of one checkpoint with the optimizer, and of all that are kept; while one is written,
        there is one more.
    advice : tuple of str
        What would make it fit.
    """

    shape: Shape
    device: Device
    ranks: int
    parts: int
    micro_batch: int
    memory: Memory
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
        """Bytes that a rank may use, the margin left free."""
        return room_on(self.device, self.ranks)

    @property
    def fits(self) -> bool | None:
        """Whether a rank's memory is enough; None where the device's is not known."""
        return None if self.room is None else self.memory.total <= self.room

    @property
    def hours(self) -> float | None:
        """Training and evaluations; without start, checkpoints and downstream tasks."""
        if self.rate is None:
            return None
        return (self.flops + (self.evaluation_flops or 0.0)) / (self.rate * self.ranks) / 3600

    def as_dict(self) -> dict[str, Any]:
        """Plain numbers, for JSON."""
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
    """What a run will need.

    Neither the corpus nor the model need be there: the vocabulary is ``model.vocab_size``, and a
    checkpoint that cannot be reached has the shape of ``[model]``.

    Parameters
    ----------
    settings : Settings
    ranks : int
        Processes, one for each device.
    device : str or Device
        ``a100-80gb``, ``a100-40gb``, ``h100-80gb``, ``cpu``, or one's own.
    calibrate : bool
        Measure the speed here by some micro batches of the model, rather than to assume it.

    Notes
    -----
    A token costs ``6 N`` operations in training and ``2 N`` in evaluation, ``N`` being the
    parameters it is multiplied by, and attention ``12 length`` and ``4 length`` times the width of
    all layers (whole matrices, as is the custom where utilisation is stated). Activation
    checkpointing makes it 4/3 as much.
    """
    check_whole("ranks", ranks, 1)
    found, train = get_device(device), settings.train
    corpus = corpus_of(settings)
    shape = shape_of(settings, corpus)
    parts, micro = train.micro_batches(ranks)
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
        parts=parts,
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
    """One before the first step, one every so often, one at the end."""
    return 1 + -(-train.steps // train.evaluate_steps)


def room_on(device: Device, ranks: int) -> float | None:
    if device.memory is None:
        return None
    return (1 - MARGIN) * device.memory / (ranks if device.shared else 1)


def _evaluated_tokens(settings: Settings, corpus: Corpus | None) -> int | None:
    """Tokens of one evaluation."""
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
    """Checkpoints that are there at the end: parameters and, in some, two moments."""
    model = FLOAT32 * shape.parameters
    written = 1 + (train.steps - 1) // train.checkpoint_steps
    kept = min(train.keep, written)
    optimizers = min(kept, train.keep_optimizers or kept) - (0 if train.save_optimizer else 1)
    disk = (kept + 2 * optimizers) * model
    return {"checkpoints": kept, "checkpoint_bytes": 3 * model, "disk_bytes": disk}
