"""Everything a run depends on, as one file says it: frozen tables with defaults and checks."""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from counterpoise.common.arguments import check_choice, check_whole, is_number
from counterpoise.common.toml import as_table, build, read_toml, with_changes
from counterpoise.reweight.rules import NAMED

RECIPES = ("folders", "redpajama")
WEIGHTS = ("uniform", "size")


def _check(name: str, fits: bool, value: Any, allowed: str) -> None:
    if not fits:
        raise ValueError(f"{name} must be {allowed}; got {value!r}")


def _check_positive(table: str, of: Any, *names: str, zero: bool = False) -> None:
    for name in names:
        value = getattr(of, name)
        if value is not None:
            fits = is_number(value) and math.isfinite(value) and value >= 0 and (zero or value > 0)
            _check(f"{table}.{name}", fits, value, "0 or more" if zero else "above 0")


@dataclass(frozen=True)
class CorpusSettings:
    """Where documents come from, and where their tokens are kept."""

    folder: str
    """Of the token files, which `prepare` writes."""
    recipe: str = "folders"
    """``folders``: a file or folder of documents for each domain in ``source``; ``redpajama``: the
    same with RedPajama's names."""
    source: str | None = None
    domains: tuple[str, ...] | None = None
    """All that are there when it is not set."""
    text: str = "text"
    tokenizer: str = "train"
    """``train`` makes one from the documents, of ``vocab_size`` tokens; else ``bytes``, the path
    of a tokenizer.json, or a folder for AutoTokenizer."""
    begin: str | None = None
    """A token of the tokenizer that comes before every document, as ``<s>``, if the model was
    trained with it; every document is followed by the token that ends one."""
    vocab_size: int | None = None
    splits: dict[str, float] = field(
        default_factory=lambda: {"train": 0.9, "validation": 0.05, "test": 0.05}
    )
    pieces: int | None = None
    """Characters that longer documents are cut into pieces of, before the split."""

    def __post_init__(self) -> None:
        check_choice("corpus.recipe", self.recipe, RECIPES)
        if self.vocab_size is not None:
            check_whole("corpus.vocab_size", self.vocab_size, 2)


@dataclass(frozen=True)
class ModelSettings:
    """A checkpoint to go on from, or the shape of a LLaMA to start from nothing."""

    checkpoint: str | None = None
    """A folder of save_pretrained, a .gguf file, or the name of a model on the hub. Its shape is
    its own; one that is given as well serves estimates where the checkpoint is out of reach."""
    vocab_size: int | None = None
    """The corpus's, and for a checkpoint its own, when not set."""
    hidden_size: int = 128
    intermediate_size: int | None = None
    layers: int = 4
    heads: int = 4
    kv_heads: int | None = None
    tie_embeddings: bool = True
    rope_theta: float = 10000.0
    norm_eps: float = 1e-5

    def __post_init__(self) -> None:
        _check_positive("model", self, "vocab_size", "hidden_size", "intermediate_size", "layers",
                        "heads", "kv_heads", "rope_theta", "norm_eps")  # fmt: skip
        _check(
            "model.hidden_size",
            self.hidden_size % self.heads == 0,
            self.hidden_size,
            f"a multiple of model.heads = {self.heads}",
        )
        kv = self.kv_heads or self.heads
        _check("model.kv_heads", self.heads % kv == 0, kv, f"a divisor of heads = {self.heads}")

    @property
    def described(self) -> bool:
        """Whether a shape is given: anything but the one that there is by default."""
        return replace(self, checkpoint=None) != ModelSettings()


@dataclass(frozen=True)
class TrainSettings:
    """How long and how a model is trained. Lengths of training are in tokens."""

    tokens: int
    length: int = 256
    """Tokens in a sequence."""
    batch: int = 16
    """Sequences in a step, on all ranks together."""
    micro_batch: int | None = None
    """Sequences that one rank holds at a time; the rest of its share is accumulated."""
    learning_rate: float = 1e-3
    schedule: str = "cosine"
    schedule_tokens: int | None = None
    """Tokens that the learning rate is planned for, if not for all there are: where its cosine
    ends, and of which the warm-up is a share."""
    final: float = 0.1
    """Share of the learning rate that is left at the end of the cosine."""
    warmup: float = 0.03
    """Share of the schedule."""
    betas: tuple[float, ...] = (0.9, 0.95)
    eps: float = 1e-8
    weight_decay: float = 0.0
    clip: float = 1.0
    """Largest norm of the gradient."""
    precision: str = "float32"
    seed: int = 0
    """Of the first model and of the streams of samples."""
    stream: int = 0
    """Which of a seed's streams: a model that is trained further should not see the samples again
    in the order that it saw them in."""
    evaluate_every: int | None = None
    """Tokens between evaluations, which move the weights; a twentieth when not set."""
    checkpoint_every: int | None = None
    """Tokens between checkpoints; only at the end when not set."""
    keep: int = 1
    """Checkpoints that are kept, the latest ones."""
    keep_optimizers: int | None = None
    """Those among them that hold the optimizer too, the latest ones; all when not set. A run goes
    on from the latest of all, and the others are to be evaluated."""
    save_optimizer: bool = True
    """Whether the last checkpoint holds the optimizer too; all others do."""
    parallel: str = "ddp"
    """On several ranks: ``ddp`` or ``fsdp``."""
    compile: bool = False
    activation_checkpointing: bool = False
    workers: int = 0
    """Processes that read samples ahead, on every rank."""
    threads: int | None = None
    """Of the CPU; as many as torch likes when not set. Sums differ in the last bits by it."""

    def __post_init__(self) -> None:
        for name in ("tokens", "batch", "keep"):
            check_whole(f"train.{name}", getattr(self, name), 1)
        check_whole("train.length", self.length, 2)  # the first token of a sequence has no loss
        for name in (
            "micro_batch", "evaluate_every", "checkpoint_every", "keep_optimizers", "threads",
            "schedule_tokens",
        ):  # fmt: skip
            if getattr(self, name) is not None:
                check_whole(f"train.{name}", getattr(self, name), 1)
        check_whole("train.seed", self.seed)
        check_whole("train.stream", self.stream)
        check_whole("train.workers", self.workers)
        check_choice("train.schedule", self.schedule, ("cosine", "constant"))
        check_choice("train.precision", self.precision, ("float32", "bf16"))
        check_choice("train.parallel", self.parallel, ("ddp", "fsdp"))
        _check_positive("train", self, "learning_rate", "clip", "eps")
        _check_positive("train", self, "weight_decay", zero=True)
        for name in ("final", "warmup"):
            value = getattr(self, name)
            _check(f"train.{name}", 0 <= value <= 1, value, "between 0 and 1")
        two = len(self.betas) == 2 and all(0 <= b < 1 for b in self.betas)
        _check("train.betas", two, self.betas, "two numbers in [0, 1)")
        _check(
            "train.tokens",
            self.tokens >= self.step_tokens,
            self.tokens,
            f"at least one step of batch * length = {self.step_tokens} tokens",
        )

    @property
    def step_tokens(self) -> int:
        return self.batch * self.length

    @property
    def steps(self) -> int:
        return max(round(self.tokens / self.step_tokens), 1)

    def steps_in(self, tokens: int | None, default: int) -> int:
        """Steps between two things that are asked for every so many tokens."""
        return default if tokens is None else max(round(tokens / self.step_tokens), 1)

    @property
    def schedule_steps(self) -> int:
        return self.steps_in(self.schedule_tokens, self.steps)

    @property
    def evaluate_steps(self) -> int:
        return self.steps_in(self.evaluate_every, max(self.steps // 20, 1))

    @property
    def checkpoint_steps(self) -> int:
        return self.steps_in(self.checkpoint_every, self.steps)

    def micro_batches(self, ranks: int) -> tuple[int, int]:
        """Parts that a rank's share of a batch is taken in, and sequences in each."""
        mine, rest = divmod(self.batch, ranks)
        micro = self.micro_batch or mine
        if rest or mine == 0 or mine % micro:
            raise ValueError(
                f"train.batch={self.batch} must be a multiple of ranks * train.micro_batch = "
                f"{ranks} * {max(micro, 1)}"
            )
        return mine // micro, micro


@dataclass(frozen=True)
class ReweightSettings:
    """How the weights of the domains follow their losses; see `Reweighter`."""

    rule: str = "pd-kl"
    step: float = 1.0
    nu: float = 0.0
    extrapolation: float = 1.0
    smoothing: float = 1e-4
    prior: str | dict[str, float] = "uniform"
    """``uniform``, ``size`` (each domain's share of the corpus), or weights by name."""
    start: str | dict[str, float] | None = None
    """The same; the prior when not set."""
    clip: bool | None = None
    ema: float | None = None
    floor: float | dict[str, float] | None = None
    cap: float | dict[str, float] | None = None
    options: dict[str, float] = field(default_factory=dict)
    """Of the rule itself: ``temperature``, ``decay``."""
    losses: str = "evaluation"
    """Which losses move the weights: of every ``evaluation``, or of every step's ``batches``."""
    weigh: str = "samples"
    """What the weights are: shares of the ``samples`` drawn, or factors of the ``loss`` of domains
    that are drawn by the prior."""
    reference_model: str | None = None
    """A model whose loss is subtracted token by token, below at zero (DoReMi's proxy)."""

    def __post_init__(self) -> None:
        check_choice("reweight.rule", self.rule, tuple(NAMED))
        check_choice("reweight.losses", self.losses, ("evaluation", "batches"))
        check_choice("reweight.weigh", self.weigh, ("samples", "loss"))
        for name in ("prior", "start"):
            value = getattr(self, name)
            if isinstance(value, str):
                check_choice(f"reweight.{name}", value, WEIGHTS)
        if self.reference_model is not None and self.losses != "batches":
            raise ValueError(
                "reweight.reference_model compares the tokens of batches; set reweight.losses = "
                "'batches', or for evaluations make reference losses of it ([references])"
            )


@dataclass(frozen=True)
class ReferenceSettings:
    """The loss that each domain can be expected to reach."""

    losses: dict[str, float] | None = None
    """Given ones."""
    file: str | None = None
    """Where the others are kept, once they have been found."""
    model: str | None = None
    """A model whose losses they are; ``train`` makes one of the same shape."""
    sizes: tuple[dict[str, Any], ...] | None = None
    """Changes of [model] that make smaller models: they are trained, a scaling law is fitted to
    their losses, and what it foretells for the model itself is the reference."""
    tokens: int | None = None
    """That models are trained for here; as long as the model itself when not set."""
    weights: str | dict[str, float] = "uniform"
    """Of the domains that models are trained on here."""
    seed: int = 1000
    """Of the models that are trained here; not one of the runs', whose noise it would share."""

    def __post_init__(self) -> None:
        if self.tokens is not None:
            check_whole("references.tokens", self.tokens, 1)
        check_whole("references.seed", self.seed)
        ways = [n for n in ("losses", "model", "sizes") if getattr(self, n) is not None]
        if len(ways) > 1:
            raise ValueError(f"references.{ways[0]} and references.{ways[1]} exclude each other")
        if self.sizes is not None and len(self.sizes) < 3:
            raise ValueError(
                f"references.sizes must name three models or more, since three numbers are fitted "
                f"to each domain; got {len(self.sizes)}"
            )


@dataclass(frozen=True)
class EvaluateSettings:
    """What is measured."""

    driving: str = "validation"
    """The split whose losses move the weights."""
    report: str = "test"
    """The split whose losses are reported."""
    sequences: int = 64
    """Of each domain and split, evenly spread; all when 0."""
    final: int = 0
    """Of each domain of the reported split, for the closer look that finished models are given by
    ``evaluate`` and ``compare``; as `sequences`, and by ``compare`` none, when 0."""
    batch: int = 16
    tasks: tuple[str, ...] = ()
    """Downstream tasks after training: names, or ``paper`` for the paper's eleven."""
    task_data: str | None = None
    """A folder of local task data; the hub's when not set."""
    task_limit: int | None = None
    """Documents of each task; all when not set."""
    task_batch: int = 8

    def __post_init__(self) -> None:
        check_whole("evaluate.batch", self.batch, 1)
        check_whole("evaluate.sequences", self.sequences)
        check_whole("evaluate.final", self.final)
        check_whole("evaluate.task_batch", self.task_batch, 1)
        if self.task_limit is not None:
            check_whole("evaluate.task_limit", self.task_limit, 1)
        for name in ("driving", "report"):
            if getattr(self, name) == "train":
                raise ValueError(f"evaluate.{name}='train' is trained on; name a held-out split")
        if self.driving == self.report:
            raise ValueError(
                f"evaluate.driving and evaluate.report are both {self.report!r}: losses that move "
                "the weights cannot be reported as held out; use two splits"
            )


@dataclass(frozen=True)
class RunSettings:
    """One run of a comparison: a name, and what differs from the file."""

    name: str
    set: dict[str, Any] = field(default_factory=dict)
    seeds: tuple[int, ...] | None = None
    stage: bool = False
    """Whether it only serves other runs, and is left out of tables and figures."""
    group: str = ""
    """Runs of a group stand together; the first group is what curves are drawn of."""
    against: str | None = None
    """The run that its group is compared with; the baseline when not set."""

    def __post_init__(self) -> None:
        wrong = re.search(r'[/\\:*?"<>|\x00-\x1f]', self.name)
        edges = self.name != self.name.strip() or self.name.endswith(".")
        if not self.name or wrong or edges or self.name.startswith("."):
            raise ValueError(
                f"compare.run: {self.name!r} cannot be a run's name, which becomes a folder's; use "
                "letters, digits, blanks, ',', '-' and '_', and '.' within it"
            )


@dataclass(frozen=True)
class CompareSettings:
    """Many runs from one file."""

    seeds: tuple[int, ...] = (0,)
    baseline: str = ""
    launcher: tuple[str, ...] = ()
    """The command that starts a run, as ``["torchrun", "--nproc-per-node", "8", "-m",
    "counterpoise"]``; one process by itself when not set."""
    run: tuple[RunSettings, ...] = ()

    def __post_init__(self) -> None:
        names = [r.name for r in self.run]
        folded = [name.casefold() for name in names]
        twice = [n for n in names if folded.count(n.casefold()) > 1]
        if twice:
            raise ValueError(f"compare.run: the name {twice[0]!r} is there twice")
        if len(set(self.seeds)) < len(self.seeds):
            raise ValueError(f"compare.seeds={list(self.seeds)!r} names a seed twice")
        if self.baseline and self.baseline not in names:
            raise ValueError(f"compare.baseline={self.baseline!r} is not one of {names!r}")
        for run in self.run:
            if run.against is not None and run.against not in names:
                raise ValueError(
                    f"compare.run {run.name!r}: against={run.against!r} is not one of {names!r}"
                )
            unplanned = [seed for seed in run.seeds or () if seed not in self.seeds]
            if unplanned:
                raise ValueError(
                    f"compare.run {run.name!r}: the seed {unplanned[0]} is not one of compare.seeds"
                )
            first = next(other for other in self.run if other.group == run.group)
            if run.against not in (None, first.against):
                raise ValueError(
                    f"compare.run {run.name!r}: its group {run.group!r} is compared with "
                    f"{first.against or self.baseline!r}, as its first run says, and not with "
                    f"{run.against!r}"
                )


@dataclass(frozen=True)
class Settings:
    """A whole configuration file."""

    corpus: CorpusSettings
    train: TrainSettings
    out: str = "out/lm"
    """Folder of the run, or of all runs of a comparison."""
    model: ModelSettings = ModelSettings()
    reweight: ReweightSettings = ReweightSettings()
    references: ReferenceSettings = ReferenceSettings()
    evaluate: EvaluateSettings = EvaluateSettings()
    compare: CompareSettings = CompareSettings()

    def __post_init__(self) -> None:
        given = ("losses", "file", "model", "sizes")
        if self.reweight.reference_model is not None:
            for name in given:
                if getattr(self.references, name) is not None:
                    raise ValueError(
                        f"references.{name} and reweight.reference_model would both be subtracted; "
                        "use one of them"
                    )

    @property
    def table(self) -> dict[str, Any]:
        return as_table(self)

    @property
    def decisive(self) -> dict[str, Any]:
        """The settings that decide a run's numbers."""
        kept = {k: v for k, v in self.table.items() if k not in ("out", "compare")}
        kept["corpus"] = {k: kept["corpus"].get(k) for k in ("folder", "domains")}
        if self.model.checkpoint is not None:
            kept["model"] = {"checkpoint": self.model.checkpoint}
        for name in ("keep", "keep_optimizers", "checkpoint_every", "save_optimizer"):
            kept["train"].pop(name, None)
        for name in ("final", "tasks", "task_data", "task_limit", "task_batch"):
            kept["evaluate"].pop(name, None)
        return kept

    @property
    def closer_look(self) -> dict[str, Any]:
        """How finished models are measured."""
        asked = self.evaluate
        return {
            "split": asked.report,
            "sequences": asked.final or asked.sequences,
            "length": self.train.length,
            "precision": self.train.precision,
        }

    @property
    def identity(self) -> str:
        """Changes when anything changes that decides a run's numbers."""
        text = json.dumps(self.decisive, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def changed(self, changes: Mapping[str, Any]) -> Settings:
        return build(Settings, with_changes(self.table, changes))


def upgraded(table: Mapping[str, Any]) -> dict[str, Any]:
    """Return the table of a run that 0.1 made, without the recipe that left the package."""
    corpus = dict(table.get("corpus", {}))
    if corpus.get("recipe") == "registry":
        corpus["recipe"] = "folders"  # its source has a file for each domain
        corpus.pop("max_bytes", None)
    return {**table, "corpus": corpus} if corpus else dict(table)


def load_settings(
    path: str | os.PathLike[str], changes: Mapping[str, Any] | None = None
) -> Settings:
    """The settings of a file, some of them changed."""
    try:
        table = with_changes(read_toml(path), changes or {})
        if table.get("corpus", {}).get("recipe") == "registry":
            raise ValueError(
                "corpus.recipe='registry' has left the package; fetch the domains with `python -m "
                "experiments.corpora FOLDER`, set corpus.source to that folder, and remove "
                "corpus.recipe and corpus.max_bytes"
            )
        return build(Settings, table)
    except ValueError as error:
        raise ValueError(f"{os.fspath(path)}: {error}") from None
