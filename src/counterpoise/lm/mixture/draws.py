"""Decide which domain, and which of its samples, comes next, from seed and weights alone.

Samples of a mixture are numbered 0, 1, 2, ... over all ranks and workers. Sample ``n`` has a
number ``u_n`` in [0, 1) that depends only on the seed; its domain is where ``u_n`` falls among the
weights in force at ``n``. Within a domain, samples come in an order that depends on the seed, the
domain's name and its epoch. K counters are therefore all there is to remember: anyone can follow
the whole stream without reading a token, and changed weights neither repeat nor lose a sample.

The numbers ``u_n`` of every `BLOCK` of samples are spread evenly, in random order, so realised
shares stay closer to the weights than independent draws would.
"""

from __future__ import annotations

import copy
import hashlib
import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

Array = np.ndarray

BLOCK = 1024
ROUNDS = 4
MASK = (1 << 64) - 1
EXHAUSTION = ("repeat", "drop", "stop")


def key_of(*parts: object) -> int:
    """Hash all parts to 64 bits."""
    text = "\x1f".join(map(str, parts)).encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little")


def mix(x: int) -> int:
    """Mix 64 bits (splitmix64)."""
    x = (x + 0x9E3779B97F4A7C15) & MASK
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & MASK
    return x ^ (x >> 31)


def mix_many(x: Array) -> Array:
    """Apply `mix` to every entry of a uint64 array."""
    x = x + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def permuted(position: int, size: int, key: int) -> int:
    """Return where ``position`` goes in a random order of ``range(size)``.

    Long orders are not stored: a Feistel network over a rectangle that just covers the range maps
    positions, and whatever falls outside the range is mapped again. Short orders, in which its
    steps would show, are sorted.

    >>> sorted(permuted(i, 10, key=7) for i in range(10))
    [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]
    """
    if size <= BLOCK:
        return int(_short_order(size, key)[position])
    wide = math.isqrt(size - 1) + 1
    high = -(-size // wide)
    x = position
    while True:
        y, x = divmod(x, wide)
        for turn in range(ROUNDS):
            x = (x + mix(key ^ mix(y + (2 * turn << 48)))) % wide
            y = (y + mix(key ^ mix(x + (2 * turn + 1 << 48)))) % high
        x += wide * y
        if x < size:
            return x


@lru_cache(maxsize=256)
def _short_order(size: int, key: int) -> Array:
    return np.argsort(mix_many(np.arange(size, dtype=np.uint64) ^ np.uint64(key)), kind="stable")


def even_uniforms(key: int, block: int) -> Array:
    """Return one number in each ``BLOCK``-th part of [0, 1), in random order."""
    numbers = np.arange(block * BLOCK, (block + 1) * BLOCK, dtype=np.uint64)
    bits = mix_many(numbers ^ np.uint64(key))
    order = np.argsort(bits, kind="stable")
    within = (mix_many(bits) >> np.uint64(11)).astype(float) * 2.0**-53
    return np.minimum((order + within) / BLOCK, np.nextafter(1.0, 0.0))


class Change(NamedTuple):
    """Weights that hold from sample ``at`` on, and factors of the domains' losses if not all 1."""

    at: int
    weights: Array
    loss_weights: Array | None = None

    def as_list(self) -> list[Any]:
        """Return it as JSON; factors only where losses have some."""
        factors = [] if self.loss_weights is None else [self.loss_weights.tolist()]
        return [self.at, self.weights.tolist(), *factors]

    @classmethod
    def from_list(cls, entry: Sequence[Any]) -> Change:
        """Restore what `as_list` returned."""
        at, *rows = entry
        return cls(int(at), *(np.array(row, dtype=float) for row in rows))


class Drawn(NamedTuple):
    """Domains of consecutive samples, and how many samples each domain had drawn before."""

    domains: Array
    ordinals: Array


@dataclass
class Draws:
    """The stream of draws at some sample.

    Parameters
    ----------
    names : list of str
    sizes : array of int
        Samples in an epoch of each domain.
    seed : int
    changes : list of Change
        The first holds the current weights; others may lie ahead.
    per_sample : array, optional
        Mean tokens per sample; weights are then shares of tokens instead of samples.
    exhaustion : {"repeat", "drop", "stop"}
        What happens when a domain runs out: a new epoch, the others continue without it, or the
        stream ends.

    Attributes
    ----------
    number : int
        Samples drawn so far.
    cursors, expected : arrays
        For each domain, samples drawn and samples that the weights asked for.
    """

    names: Sequence[str]
    sizes: Array
    seed: int
    changes: list[Change]
    per_sample: Array | None = None
    exhaustion: str = "repeat"
    number: int = 0
    cursors: Array = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    expected: Array = field(default_factory=lambda: np.zeros(0))

    def __post_init__(self) -> None:
        if self.cursors.size == 0:
            self.cursors = np.zeros(len(self.names), dtype=np.int64)
            self.expected = np.zeros(len(self.names))
        self._key = key_of(self.seed, "draws")
        self._block: tuple[int, Array] = (-1, np.zeros(0))

    def copy(self) -> Draws:
        """Make a copy that moves independently."""
        twin = copy.copy(self)
        twin.changes = list(self.changes)
        twin.cursors, twin.expected = self.cursors.copy(), self.expected.copy()
        return twin

    @property
    def weights(self) -> Array:
        """Weights in force at the next sample."""
        return self.pending()[0].weights

    def pending(self) -> list[Change]:
        """List the change in force and those ahead."""
        current = bisect_right(self.changes, self.number, key=lambda c: c.at) - 1
        del self.changes[: max(current, 0)]
        return self.changes

    def change(self, at: int, weights: Array, loss_weights: Array | None = None) -> None:
        """Let ``weights`` hold from sample ``at`` on; later changes are dropped."""
        kept = [c for c in self.changes if c.at < at]
        self.changes = [*kept, Change(at, weights, loss_weights)]

    def loss_weights(self, numbers: Array, domains: Array) -> Array | None:
        """Return what the losses of coming samples count; None if all count alike.

        ``numbers`` are those of the samples in the stream, ``domains`` what they are drawn from.
        """
        if all(change.loss_weights is None for change in self.changes):
            return None
        ones = np.ones(len(self.names))
        table = [ones if c.loss_weights is None else c.loss_weights for c in self.changes]
        in_force = np.searchsorted([c.at for c in self.changes], numbers, side="right") - 1
        return np.stack(table)[in_force, domains]

    def take(self, count: int) -> Drawn:
        """Draw the next ``count`` samples; fewer when the stream ends."""
        domains: list[Array] = []
        ordinals: list[Array] = []
        left = count
        while left > 0:
            drawn = self._take_alike(left)
            if len(drawn) == 0:
                break
            domains.append(drawn)
            ordinals.append(self._count(drawn))
            left -= len(drawn)
        if not domains:
            empty = np.zeros(0, dtype=np.int64)
            return Drawn(empty, empty)
        return Drawn(np.concatenate(domains), np.concatenate(ordinals))

    def sample(self, domain: int, ordinal: int) -> int:
        """Return which of a domain's samples its draw number ``ordinal`` is."""
        size = int(self.sizes[domain])
        epoch, position = divmod(ordinal, size)
        return permuted(position, size, key_of(self.seed, self.names[domain], epoch))

    def _uniforms(self) -> Array:
        """Return the numbers of samples from the next one to the end of its block."""
        block, offset = divmod(self.number, BLOCK)
        if self._block[0] != block:
            self._block = (block, even_uniforms(self._key, block))
        return self._block[1][offset:]

    def _take_alike(self, most: int) -> Array:
        """Draw domains while weights, block and available domains stay the same."""
        weights = self.weights
        if len(self.changes) > 1:
            most = min(most, self.changes[1].at - self.number)
        shares = weights if self.per_sample is None else weights / self.per_sample
        open_ = np.maximum(self.sizes - self.cursors, 0) if self.exhaustion != "repeat" else None
        if self.exhaustion == "drop" and open_ is not None:
            shares = np.where(open_ > 0, shares, 0.0)
            if not shares.any():
                return np.zeros(0, dtype=np.int64)
        ends = np.cumsum(shares / shares.sum())
        ends[np.flatnonzero(shares)[-1] :] = 1.0
        drawn = np.searchsorted(ends, self._uniforms()[:most], side="right")
        if open_ is not None:
            drawn = self._until_exhausted(drawn, open_)
        self.expected += len(drawn) * (shares / shares.sum())
        return drawn

    def _until_exhausted(self, drawn: Array, open_: Array) -> Array:
        """Keep as many draws as there are samples for."""
        counts = np.bincount(drawn, minlength=len(open_))
        beyond = [
            np.flatnonzero(drawn == domain)[open_[domain]]
            for domain in np.flatnonzero(counts > open_)
        ]
        return drawn[: min(beyond)] if beyond else drawn

    def _count(self, drawn: Array) -> Array:
        """Number the draws within their domains and advance the counters."""
        order = np.argsort(drawn, kind="stable")
        counts = np.bincount(drawn, minlength=len(self.cursors))
        first = np.cumsum(counts) - counts
        ordinals = np.empty(len(drawn), dtype=np.int64)
        ordinals[order] = np.arange(len(drawn)) - np.repeat(first - self.cursors, counts)
        self.cursors = self.cursors + counts
        self.number += len(drawn)
        return ordinals
