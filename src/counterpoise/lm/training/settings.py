"""Settings of a run or a comparison: frozen tables with defaults and checks."""

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

# Rules by name (`counterpoise.reweight.rules`), whose import takes long; a test compares.
RULES = (
    "adaptive", "pd-kl", "pd-chi2", "static", "temperature", "sheared", "doremi", "group-dro", "odm"
)  # fmt: skip
RECIPES = ("folders", "redpajama")
WEIGHTS = ("uniform", "size")
# Far beyond any model, so that a slip of the pen neither takes hours nor all memory.
LARGEST_MODEL = {
    "layers": 10_000,
    "hidden_size": 1 << 20,
    "intermediate_size": 1 << 22,
    "vocab_size": 1 << 32,
}
TIMEOUT = 600.0  # seconds
# Settings that do not decide a run's numbers, and may be changed before it is resumed.
FREE = {
    "train": ("keep", "keep_optimizers", "checkpoint_every", "save_optimizer", "timeout"),
    "evaluate": ("final", "tasks", "task_data", "task_limit", "task_batch"),
}


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
    """Where documents come from and where their tokens are stored."""

    folder: str
    """Folder of the token files that `prepare` writes."""
    recipe: str = "folders"
    """``folders``: ``source`` holds a file or folder of documents for each domain. ``redpajama``:
    the same, with RedPajama's names."""
    source: str | None = None
    domains: tuple[str, ...] | None = None
    """Domains to use; all if not set."""
    text: str = "text"
    by: str | None = None
    """A field of the documents, such as ``meta.source``, that splits each source into domains
    ``<source>-<value>``."""
    by_missing: str | None = None
    """Name for documents without that field; they are an error if not set."""
    by_least: int = 1
    """Values with fewer documents are merged into ``<source>-other``."""
    tokenizer: str = "train"
    """``train`` learns one of ``vocab_size`` tokens from the documents. Otherwise ``bytes``, the
    path of a tokenizer.json, or a folder for AutoTokenizer."""
    begin: str | None = None
    """A token to put before every document, such as ``<s>``, if the model was trained with it.
    The end token follows every document in any case."""
    vocab_size: int | None = None
    splits: dict[str, float] = field(
        default_factory=lambda: {"train": 0.9, "validation": 0.05, "test": 0.05}
    )
    pieces: int | None = None
    """Length in characters of the pieces that longer documents are cut into before the split."""
    max_bytes: int | None = None
    """Most bytes of text to take from each domain, spread over its files in proportion to their
    sizes; everything if not set."""
    max_document_bytes: int | None = None
    """Longest document: a line of JSON, a text file, or a value of a table. A longer one is an
    error, before it fills the memory. If not set, 64 MB; text files that are not compressed may
    then have any size."""

    def __post_init__(self) -> None:
        check_choice("corpus.recipe", self.recipe, RECIPES)
        if self.vocab_size is not None:
            check_whole("corpus.vocab_size", self.vocab_size, 2)
        for name in ("by_least", "pieces", "max_bytes", "max_document_bytes"):
            if getattr(self, name) is not None:
                check_whole(f"corpus.{name}", getattr(self, name), 1)


@dataclass(frozen=True)
class ModelSettings:
    """A checkpoint to continue from, or the shape of a LLaMA to train from scratch."""

    checkpoint: str | None = None
    """A folder of save_pretrained, a .gguf file, or the name of a model on the hub. The model has
    the checkpoint's shape; a shape given here serves estimates while it is out of reach."""
    vocab_size: int | None = None
    """That of the corpus, or of the checkpoint, if not set."""
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
        for name, most in LARGEST_MODEL.items():
            value = getattr(self, name)
            if value is not None and value > most:
                _check(f"model.{name}", False, value, f"at most {most:,}")
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
        """Whether a shape other than the default is given."""
        return replace(self, checkpoint=None) != ModelSettings()


@dataclass(frozen=True)
class TrainSettings:
    """How a model is trained, and for how many tokens."""

    tokens: int
    length: int = 256
    """Tokens per sequence."""
    batch: int = 16
    """Sequences per step, on all ranks together."""
    micro_batch: int | None = None
    """Sequences that one rank processes at a time; gradients of its share are accumulated."""
    learning_rate: float = 1e-3
    schedule: str = "cosine"
    schedule_tokens: int | None = None
    """Length of the learning-rate schedule in tokens, if not that of the run: the end of the
    cosine, and the base of the warm-up."""
    final: float = 0.1
    """Learning rate at the end of the cosine, as a share of the full rate."""
    warmup: float = 0.03
    """Length of the warm-up, as a share of the schedule."""
    betas: tuple[float, ...] = (0.9, 0.95)
    eps: float = 1e-8
    weight_decay: float = 0.0
    clip: float = 1.0
    """Largest gradient norm."""
    precision: str = "float32"
    seed: int = 0
    """Seed of the initial model and of the streams of samples."""
    stream: int = 0
    """Which of a seed's streams to read. A model that is trained further should not see the same
    samples again in the same order."""
    evaluate_every: int | None = None
    """Tokens between evaluations, which move the weights; a twentieth of the run if not set."""
    checkpoint_every: int | None = None
    """Tokens between checkpoints; one at the end if not set."""
    keep: int = 1
    """Number of latest checkpoints to keep."""
    keep_optimizers: int | None = None
    """How many of these keep their optimizer; all if not set. A run resumes from the latest; the
    others are only evaluated."""
    save_optimizer: bool = True
    """Whether the final checkpoint holds the optimizer."""
    parallel: str = "ddp"
    """``ddp`` or ``fsdp``, with several ranks."""
    compile: bool = False
    activation_checkpointing: bool = False
    workers: int = 0
    """Processes per rank that read samples ahead."""
    threads: int | None = None
    """CPU threads; torch's choice if not set. The number changes the last bits of sums."""
    timeout: float = TIMEOUT
    """Seconds after which a rank that shows no sign of life ends the others. A rank that is only
    slow, such as one that writes a checkpoint, shows signs of life."""

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
        _check_positive("train", self, "learning_rate", "clip", "eps", "timeout")
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
        """Convert an interval in tokens to steps."""
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
        """Return the number of micro-batches per rank and step, and the sequences in each."""
        mine, rest = divmod(self.batch, ranks)
        micro = self.micro_batch or mine
        if rest or mine == 0 or mine % micro:
            raise ValueError(
                f"train.batch={self.batch} must be a multiple of ranks * train.micro_batch = "
                f"{ranks} * {max(micro, 1)}; change one of them"
            )
        return mine // micro, micro


@dataclass(frozen=True)
class ReweightSettings:
    """How the domains' weights follow their losses; see `Reweighter`."""

    rule: str = "adaptive"
    """``adaptive`` measures its step and its pull towards the prior. ``pd-kl`` is the paper's
    update, with ``step``, ``nu`` and ``extrapolation`` as set here."""
    step: float = 1.0
    nu: float = 0.0
    extrapolation: float = 1.0
    smoothing: float = 1e-4
    prior: str | dict[str, float] = "uniform"
    """``uniform``, ``size`` (shares of the corpus), or weights by name."""
    start: str | dict[str, float] | None = None
    """First weights, in the same form; the prior if not set."""
    clip: bool | None = None
    ema: float | None = None
    floor: float | dict[str, float] | None = None
    cap: float | dict[str, float] | None = None
    options: dict[str, float] = field(default_factory=dict)
    """Options of the rule itself: ``temperature``, ``decay``."""
    losses: str = "evaluation"
    """Losses that move the weights: those of every ``evaluation``, or of training ``batches``."""
    update_at_start: bool = False
    """Whether the evaluation before the first step moves the weights, as in LLM-Shearing. It is
    made and recorded in any case, and always moves those of the rule ``adaptive``."""
    weigh: str = "samples"
    """What the weights do: they are shares of the ``samples`` drawn, or factors of the ``loss``
    while samples are drawn by the prior. With ``both``, samples are drawn by the shares that give
    the weighted loss the least variance, and factors make up for the difference."""
    ratio: float = 2.0
    """With ``weigh = "both"``, how many times more often or more rarely than its weight says a
    domain may be drawn."""
    reference_model: str | None = None
    """A model whose token losses are subtracted, clipped at zero (DoReMi's proxy)."""

    def __post_init__(self) -> None:
        check_choice("reweight.rule", self.rule, RULES)
        check_choice("reweight.losses", self.losses, ("evaluation", "batches"))
        check_choice("reweight.weigh", self.weigh, ("samples", "loss", "both"))
        fits = math.isfinite(self.ratio) and self.ratio >= 1
        _check("reweight.ratio", fits, self.ratio, "a finite number >= 1")
        if self.weigh == "both" and self.losses == "batches":
            raise ValueError(
                "reweight.weigh='both' needs the spread of losses, which evaluations measure; set "
                "reweight.losses = 'evaluation', or weigh the 'samples' or the 'loss'"
            )
        for name in ("prior", "start"):
            value = getattr(self, name)
            if isinstance(value, str):
                check_choice(f"reweight.{name}", value, WEIGHTS)
        _check(
            "reweight.update_at_start",
            isinstance(self.update_at_start, bool),
            self.update_at_start,
            "true or false",
        )
        if self.update_at_start and self.losses != "evaluation":
            raise ValueError(
                "reweight.update_at_start moves the weights by the evaluation before the first "
                "step, but reweight.losses = 'batches' moves them by batches alone; leave one out"
            )
        if self.rule == "adaptive" and self.losses == "batches":
            raise ValueError(
                "reweight.rule='adaptive' goes half of the way to the response to every "
                "measurement, and single batches are too noisy for that; move the weights by "
                "evaluations, or set reweight.rule = 'pd-kl' and a reweight.step of 0.01 to 0.1"
            )
        if self.reference_model is not None and self.losses != "batches":
            raise ValueError(
                "reweight.reference_model compares the tokens of batches; set reweight.losses = "
                "'batches', or use the model in [references] for evaluations"
            )


@dataclass(frozen=True)
class ReferenceSettings:
    """The loss that each domain can be expected to reach."""

    losses: dict[str, float] | None = None
    """Losses given by name."""
    file: str | None = None
    """File of losses that `find_references` found."""
    model: str | None = None
    """A model whose losses are used; ``train`` trains one of the same shape."""
    sizes: tuple[dict[str, Any], ...] | None = None
    """Changes of [model] for smaller models. They are trained, a scaling law is fitted to their
    losses, and its prediction for the full model is the reference."""
    tokens: int | None = None
    """Training length of these models in tokens; that of the run if not set."""
    weights: str | dict[str, float] = "uniform"
    """Weights of the domains in their training."""
    seed: int = 1000
    """Seed of these models; not one of the runs', whose noise they would share."""

    def __post_init__(self) -> None:
        if self.tokens is not None:
            check_whole("references.tokens", self.tokens, 1)
        check_whole("references.seed", self.seed)
        ways = [n for n in ("losses", "model", "sizes") if getattr(self, n) is not None]
        if len(ways) > 1:
            raise ValueError(
                f"references.{ways[0]} and references.{ways[1]} exclude each other; keep one"
            )
        if self.sizes is not None and len(self.sizes) < 3:
            raise ValueError(
                f"references.sizes must name three models or more, because the law has three "
                f"parameters; got {len(self.sizes)}"
            )


@dataclass(frozen=True)
class EvaluateSettings:
    """What is evaluated, and how much of it."""

    driving: str = "validation"
    """The split whose losses move the weights."""
    report: str = "test"
    """The split whose losses are reported."""
    sequences: int = 64
    """Sequences per domain and split, evenly spread; 0 for all."""
    final: int = 0
    """Sequences per domain of the reported split for measuring finished models. If 0, ``evaluate``
    uses `sequences` and ``compare`` measures nothing more."""
    batch: int = 16
    tasks: tuple[str, ...] = ()
    """Downstream tasks to score after training: names, or ``paper`` for the paper's eleven."""
    task_data: str | None = None
    """Folder of local task data; the hub's data if not set."""
    task_limit: int | None = None
    """Documents per task; all if not set."""
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
    """Whether the run only serves others and is left out of tables and figures."""
    group: str = ""
    """Group that the run is shown in; curves show the first group."""
    against: str | None = None
    """Run that its group is compared with; the baseline if not set."""

    def __post_init__(self) -> None:
        wrong = re.search(r'[/\\:*?"<>|\x00-\x1f]', self.name)
        edges = self.name != self.name.strip() or self.name.endswith(".")
        if not self.name or wrong or edges or self.name.startswith("."):
            raise ValueError(
                f"compare.run: {self.name!r} cannot be a run's name, because it also names a "
                "folder; use letters, digits, blanks, ',', '-' and '_', and '.' inside"
            )


@dataclass(frozen=True)
class CompareSettings:
    """Many runs from one file."""

    seeds: tuple[int, ...] = (0,)
    baseline: str = ""
    launcher: tuple[str, ...] = ()
    """Command that starts a run, such as ``["torchrun", "--nproc-per-node", "8", "-m",
    "counterpoise"]``; a single process if not set. It is run as it is, so a configuration that sets
    it is a program: read it before you run a file of others."""
    run: tuple[RunSettings, ...] = ()

    def __post_init__(self) -> None:
        names = [r.name for r in self.run]
        folded = [name.casefold() for name in names]
        twice = [n for n in names if folded.count(n.casefold()) > 1]
        if twice:
            raise ValueError(f"compare.run: the name {twice[0]!r} occurs twice; rename one")
        if len(set(self.seeds)) < len(self.seeds):
            raise ValueError(f"compare.seeds={list(self.seeds)!r} names a seed twice; remove one")
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
                        "use only one"
                    )

    @property
    def table(self) -> dict[str, Any]:
        return as_table(self)

    @property
    def decisive(self) -> dict[str, Any]:
        """Settings that decide a run's numbers."""
        return decisive(self.table)

    @property
    def closer_look(self) -> dict[str, Any]:
        """Describe how finished models are measured."""
        asked = self.evaluate
        return {
            "split": asked.report,
            "sequences": asked.final or asked.sequences,
            "length": self.train.length,
            "precision": self.train.precision,
        }

    @property
    def identity(self) -> str:
        """Hash of the settings that decide a run's numbers."""
        text = json.dumps(self.decisive, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def changed(self, changes: Mapping[str, Any]) -> Settings:
        return build(Settings, with_changes(self.table, changes))


def decisive(table: Mapping[str, Any]) -> dict[str, Any]:
    """Return what decides a run's numbers, of the table of its settings or of its file."""
    kept = {k: v for k, v in table.items() if k not in ("out", "compare")}
    corpus, model = kept.get("corpus"), kept.get("model")
    if isinstance(corpus, Mapping):
        kept["corpus"] = {k: corpus.get(k) for k in ("folder", "domains")}
    if isinstance(model, Mapping) and model.get("checkpoint") is not None:
        kept["model"] = {"checkpoint": model["checkpoint"]}
    for name, free in FREE.items():
        if isinstance(section := kept.get(name), Mapping):
            kept[name] = {k: v for k, v in section.items() if k not in free}
    return kept


def upgraded(table: Mapping[str, Any]) -> dict[str, Any]:
    """Return the table of a run that 0.1 made, without the recipe that left the package."""
    given = table.get("corpus", {})
    corpus = dict(given) if isinstance(given, Mapping) else {}
    if corpus.get("recipe") == "registry":
        corpus["recipe"] = "folders"  # its source has a file for each domain
        corpus.pop("max_bytes", None)
    return {**table, "corpus": corpus} if corpus else dict(table)


def load_settings(
    path: str | os.PathLike[str], changes: Mapping[str, Any] | None = None
) -> Settings:
    """Read settings from a file and change some of them."""
    try:
        table = with_changes(read_toml(path), changes or {})
        corpus = table.get("corpus")
        if isinstance(corpus, dict) and corpus.get("recipe") == "registry":
            raise ValueError(
                "corpus.recipe='registry' has left the package; fetch the domains with `python -m "
                "experiments.corpora FOLDER`, set corpus.source to that folder, and remove "
                "corpus.recipe and corpus.max_bytes"
            )
        return build(Settings, table)
    except ValueError as error:
        raise ValueError(f"{os.fspath(path)}: {error}") from None
