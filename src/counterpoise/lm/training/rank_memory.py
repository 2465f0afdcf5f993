"""Bytes that a rank needs, by purpose.

The formulas count what the training loop keeps: float32 parameters and moments, LLaMA blocks as
transformers implements them, attention without stored scores (SDPA), float32 logits and softmax.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

from counterpoise.lm.training.settings import TrainSettings
from counterpoise.lm.training.shape import Shape

FLOAT32, BF16 = 4, 2


@dataclass(frozen=True)
class RankMemory:
    """Bytes of one rank.

    Attributes
    ----------
    weights, gradients, moments : int
        In float32. ``gradients`` includes DDP's buckets, or the whole gradients that FSDP keeps
        while it accumulates a batch.
    copies : int
        Copies of parameters for computing (bf16), blocks that FSDP has gathered, and a gradient
        in transit.
    activations : int
        Kept from the forward to the backward pass, except logits.
    logits : int
        Logits, their softmax and its gradient.
    recomputed : int
        One block's activations under activation checkpointing; never at the same time as logits.
    evaluation : int
        A batch of an evaluation, which keeps nothing for a backward pass.
    reference : int
        Parameters of a proxy's reference model.
    """

    weights: int
    gradients: int
    moments: int
    copies: int
    activations: int
    logits: int
    recomputed: int
    evaluation: int
    reference: int = 0

    @property
    def training(self) -> int:
        """The most that a step needs at one time."""
        kept = self.weights + self.gradients + self.moments + self.copies + self.reference
        return kept + self.activations + max(self.logits, self.recomputed)

    @property
    def evaluating(self) -> int:
        """The most that an evaluation needs at one time."""
        return self.weights + self.moments + self.copies + self.reference + self.evaluation

    @property
    def total(self) -> int:
        return max(self.training, self.evaluating)

    def as_dict(self) -> dict[str, int]:
        found = {f.name: getattr(self, f.name) for f in fields(self)}
        return {**found, "total": self.total}


def rank_memory(
    shape: Shape, train: TrainSettings, ranks: int, evaluation_batch: int, reference: int = 0
) -> RankMemory:
    """Compute the bytes of one rank; ``reference`` counts a reference model's parameters."""
    micro_batches, micro = train.micro_batches(ranks)
    P, head = shape.parameters, shape.vocab * shape.hidden
    half = train.precision == "bf16"
    sharded = ranks > 1 and train.parallel == "fsdp"
    share = -(-P // ranks) if sharded else P
    gradients = FLOAT32 * share
    wide = BF16 if half else FLOAT32
    if sharded:
        gradients += FLOAT32 * P if micro_batches > 1 else 0
        outside = P - shape.layers * shape.block
        # Parameters of the current block, the next one and everything outside the blocks, and one
        # block's float32 gradients in transit.
        copies = wide * (outside + 2 * shape.block) + FLOAT32 * max(outside, shape.block)
    else:
        gradients += FLOAT32 * P if ranks > 1 else 0  # DDP's buckets
        copies = BF16 * shape.multiplied if half else 0
    copies += wide * head  # the largest gradient before it is accumulated
    tokens = micro * train.length
    stream = _stream(half, sharded)
    block = tokens * block_bytes(shape, half=half, sharded=sharded)
    checkpointed = train.activation_checkpointing
    inputs = tokens * shape.layers * shape.hidden * stream
    return RankMemory(
        weights=FLOAT32 * share,
        gradients=gradients,
        moments=2 * FLOAT32 * share,
        copies=copies,
        activations=(inputs if checkpointed else shape.layers * block)
        + tokens * norm_bytes(shape, 1, half=half, sharded=sharded),
        logits=tokens * 3 * FLOAT32 * shape.vocab,
        recomputed=block if checkpointed else 0,
        evaluation=evaluation_batch
        * train.length
        * max((wide + 2 * FLOAT32) * shape.vocab, block_bytes(shape, half=half, sharded=sharded)),
        reference=FLOAT32 * reference,
    )


def block_bytes(shape: Shape, *, half: bool, sharded: bool) -> int:
    """Bytes that one block keeps per token for the backward pass."""
    wide = BF16 if half else FLOAT32
    kv = 2 * shape.kv_heads * shape.head_size
    attention = wide * (2 * shape.attention_width + kv) + FLOAT32 * shape.heads
    mlp = wide * 4 * shape.intermediate
    before_attention = norm_bytes(shape, 3, half=half, sharded=sharded)  # query, key, value
    before_mlp = norm_bytes(shape, 2, half=half, sharded=sharded)  # gate, up
    return before_attention + attention + before_mlp + mlp


def norm_bytes(shape: Shape, readers: int, *, half: bool, sharded: bool) -> int:
    """Bytes that a norm keeps per token, including its output in the form its readers keep.

    The input is kept in float32 with one number for its length. Autocast makes a bf16 copy for
    every reader; a sharded model is in bf16 already.
    """
    stream = _stream(half, sharded)
    output = readers * BF16 if half and not sharded else stream
    return (FLOAT32 + stream + output) * shape.hidden + FLOAT32


def _stream(half: bool, sharded: bool) -> int:
    """Bytes of a number passed from block to block."""
    return BF16 if half and sharded else FLOAT32
