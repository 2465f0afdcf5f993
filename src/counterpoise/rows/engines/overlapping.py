"""Engines for groups that overlap, which read every row once per pass.

If rows have few distinct patterns of membership, an engine of any kind sums over the rows of every
pattern, and `OverlappingEngine` adds the patterns up to groups. If there are many, as with shares
that differ from row to row, `SharesEngine` reads rows in memory, and rows of a source are copied
for each of their groups, a block at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy import sparse

from counterpoise.rows.engines.base import SumEngine, fingerprint_of
from counterpoise.rows.engines.chunked import ChunkedEngine, unpack
from counterpoise.rows.engines.memory import MemoryEngine
from counterpoise.rows.engines.questions import Question
from counterpoise.rows.engines.shares import SharesEngine
from counterpoise.rows.groups import GroupedData, check_sample_weight
from counterpoise.rows.memberships import (
    Memberships,
    Overlap,
    as_memberships,
    canonical,
    check_length,
    from_keys,
)
from counterpoise.rows.sample import RowSample
from counterpoise.rows.sources import Chunk, Source

Array = np.ndarray

# Beyond so many patterns there are too many, or if a matrix per pattern would take more numbers
# than this.
MOST_PATTERNS, MOST_NUMBERS = 4096, 1 << 26
# So many patterns are few for any number of rows; more are few if they have this many rows each.
FEW, ROWS_EACH = 32, 8
# Numbers in a block of copies.
BLOCK_NUMBERS = 1 << 18


class TooManyPatterns(ValueError):
    """There are more patterns of membership than an engine should sum over."""


def is_few(patterns: int, n_features: int) -> bool:
    """Return whether sums over every pattern fit in memory."""
    return patterns <= MOST_PATTERNS and patterns * (n_features + 1) ** 2 <= MOST_NUMBERS


def sum_patterns(
    inner: SumEngine, question: Question, shares_AK: Any, codes_A: Array | None = None
) -> Array:
    """Ask an engine whose groups are patterns, and add its answer up to groups.

    ``shares_AK`` are the patterns' shares in the groups. ``codes_A`` are the groups of patterns
    that belong to one group at most.
    """
    asked = question.on_patterns(shares_AK)
    if asked is None and codes_A is not None:
        asked = question.for_groups(codes_A)
    if asked is None:
        return inner.ask(PerMembership(question, shares_AK))
    answer = inner.ask(asked)
    if question.pooled:
        return answer
    flat = shares_AK.T @ answer.reshape(len(answer), -1)
    return np.asarray(flat.reshape(shares_AK.shape[1], *answer.shape[1:]))


class OverlappingEngine(SumEngine):
    """Sums over groups that overlap, from an engine whose groups are patterns of membership.

    ``patterns`` are the memberships of its groups, in order. ``plain`` opens an engine for all rows
    as one group; None if the rows of all patterns are all rows.
    """

    def __init__(
        self,
        inner: SumEngine,
        patterns: Memberships,
        overlap: Overlap,
        *,
        plain: Callable[[], SumEngine] | None = None,
    ) -> None:
        matrix, labels = patterns.matrix, patterns.labels
        there = np.flatnonzero(np.bincount(matrix.indices, minlength=len(labels)))
        if not there.size:
            raise ValueError("groups: no row (of positive weight) belongs to any group")
        if len(there) < len(labels):
            matrix, labels = canonical(matrix[:, there]), labels[there]
        self.inner, self.shares_AK, self._plain = inner, matrix, plain
        self.collective = inner.collective
        self._overlap = overlap
        self._drawn: RowSample | None = None
        totals = np.asarray(matrix.T @ inner.census.totals)
        census = replace(inner.census, labels=labels, totals=totals, notes=overlap.notes())
        super().__init__(census, inner.loss)
        self.counter.count = inner.passes

    @classmethod
    def of_patterns(cls, inner: SumEngine, patterns: Memberships) -> OverlappingEngine:
        """Wrap an engine whose groups are all patterns of the rows."""
        found = cls(inner, patterns, Overlap())
        found._overlap.add(patterns, found.drawn.counts)
        found.census = replace(found.census, notes=found._overlap.notes())
        return found

    def ask(self, question: Question) -> Array:
        before = self.inner.passes
        answer = sum_patterns(self.inner, question, self.shares_AK)
        self.counter.count += self.inner.passes - before
        return answer

    @property
    def even(self) -> bool:
        return self._overlap.even

    def pooled(self) -> SumEngine:
        if self._plain is None:
            A = self.shares_AK.shape[0]
            everything = Memberships.of(sparse.csr_matrix(np.ones((A, 1))), np.zeros(1, np.int64))
            overlap = Overlap().add(everything)
            whole: SumEngine = OverlappingEngine(self.inner, everything, overlap)
        else:
            whole = self._plain()
            self.counter.count += whole.passes
        return whole.like(self)

    @property
    def drawn(self) -> RowSample:
        """The sample of the inner engine, whose groups are patterns."""
        if self._drawn is None:
            self._drawn = self.inner.sample()
        return self._drawn

    def sample(self) -> RowSample:
        """Return sampled rows, with a copy for every group that a row belongs to.

        Patterns are sampled at different rates, which the weights of the copies make up for.
        """
        drawn = self.drawn
        memberships = self.shares_AK[drawn.codes]
        codes, index = memberships.indices, np.repeat(
            np.arange(len(drawn.codes)), np.diff(memberships.indptr)
        )  # fmt: skip
        K, present = self.n_groups, np.bincount(drawn.codes, minlength=len(drawn.counts))
        rate = drawn.counts / np.maximum(present, 1)
        weights = memberships.data * rate[drawn.codes[index]]
        if drawn.weights is not None:
            weights = weights * drawn.weights[index]
        counts = np.asarray((self.shares_AK != 0).T @ drawn.counts).astype(np.int64)
        weights = weights * (np.bincount(codes, minlength=K) / counts)[codes]
        return RowSample(
            X=drawn.X[index],
            y=drawn.y[index],
            weights=None if np.ptp(weights) <= 1e-12 * weights.max() else weights,
            codes=codes.astype(np.int64),
            labels=self.census.labels,
            counts=counts,
            keys=drawn.keys[index],
            budget=drawn.budget,
            notes=tuple(self._overlap.summary()),
            rows=(self._overlap.rows, len(drawn.y)),
        )

    def group_rows(self, k: int) -> GroupedData | None:
        if self._plain is not None:  # the groups of the inner engine are groups
            return self.inner.group_rows(k)
        if not isinstance(self.inner, MemoryEngine):
            return None
        data = self.inner.data
        shares = self.shares_AK[:, [k]].toarray().ravel()[data.codes]
        rows = np.flatnonzero(shares)
        weights = shares[rows] * (data.row_weights[rows] if data.row_weights.size else 1.0)
        return data.alone(rows, weights, self.census.labels[k : k + 1])

    def effective_sizes(self) -> Array:
        shares, inner = self.shares_AK, self.inner.effective_sizes()
        # A pattern of n rows worth m rows of equal weight has squared weights total^2 / m.
        squares = shares.multiply(shares).T @ (self.inner.census.totals**2 / inner)
        return np.asarray(self.census.totals**2 / squares)

    def fingerprint(self) -> str:
        m = self.shares_AK
        parts = [self.inner.fingerprint()]
        if self._plain is not None and self._overlap.outside:
            parts.append(self._plain().fingerprint())
        texts = np.frombuffer(" ".join(parts).encode(), dtype=np.uint8)
        return fingerprint_of([texts, m.indptr, m.indices, m.data])

    @property
    def rounding(self) -> float:
        return self.inner.rounding

    @property
    def additions(self) -> int:
        # The sums of patterns are multiplied by shares and added up, and so are the totals.
        return self.inner.additions + 2 * self.shares_AK.shape[0] + 4


@dataclass(frozen=True, eq=False)
class PerMembership(Question):
    """A question asked for every group that a row belongs to, one after the other.

    The groups of the engine are patterns; ``shares_AK`` are their shares in the groups.
    """

    question: Question
    shares_AK: Any

    @property
    def pooled(self) -> bool:
        return True

    def of_rows(self, X: Any, y: Array, weights: Array, group: int) -> Array:
        own = slice(self.shares_AK.indptr[group], self.shares_AK.indptr[group + 1])
        codes, shares = self.shares_AK.indices[own], self.shares_AK.data[own]
        sums = [
            np.asarray(self.question.of_rows(X, y, weights * share, int(k)), dtype=float)
            for k, share in zip(codes, shares, strict=True)
        ]
        if not sums:  # rows in no group; only the shape of the answer matters
            shape = np.shape(self.question.of_rows(X, y, np.zeros_like(weights), 0))
        else:
            shape = sums[0].shape
        if self.question.pooled:
            return np.sum(sums, axis=0) if sums else np.zeros(shape)
        out = np.zeros((self.shares_AK.shape[1], *shape))
        for k, answer in zip(codes, sums, strict=True):
            out[k] = answer
        return out


class PatternSource(Source):
    """Chunks whose memberships are replaced by their patterns, as text."""

    def __init__(self, source: Source) -> None:
        self.source, self.feature_names = source, source.feature_names
        self._seen: set[str] = set()

    def __iter__(self) -> Iterator[Chunk]:
        for index, chunk in enumerate(self.source):
            X, y, groups, weights = unpack(chunk, index)
            found = memberships_of_chunk(groups, X, f"chunk {index}")
            if not is_few(found.patterns[1].shape[0], X.shape[1]):
                raise TooManyPatterns
            keys = found.keys()
            self._seen.update(keys)
            if not is_few(len(self._seen), X.shape[1]):
                raise TooManyPatterns
            yield X, y, keys, weights

    @property
    def n_rows(self) -> int | None:
        return self.source.n_rows


class CopiesSource(Source):
    """Chunks in which a row is copied for each of its groups, weighted by its shares.

    ``overlap`` is known after the first pass.
    """

    def __init__(self, source: Source) -> None:
        self.source, self.feature_names = source, source.feature_names
        self.overlap: Overlap | None = None

    def __iter__(self) -> Iterator[Chunk]:
        overlap = Overlap()
        for index, chunk in enumerate(self.source):
            X, y, groups, weights = unpack(chunk, index)
            found = memberships_of_chunk(groups, X, f"chunk {index}")
            if self.overlap is None:
                overlap.add(found)
            X, y = X.tocsr() if sparse.issparse(X) else np.asarray(X), np.asarray(y)
            weights = None if weights is None else np.asarray(weights, dtype=float)
            for lo, hi in _blocks(found, X.shape[1]):
                yield _copied(X, y, found, weights, lo, hi)
        self.overlap = overlap if self.overlap is None else self.overlap


def memberships_of_chunk(groups: Any, X: Any, where: str) -> Memberships:
    """Return the memberships of a chunk; an error names it."""
    try:
        found = as_memberships(groups, X.shape[0])
        if found is None:
            raise ValueError(
                "groups has one label per row, but memberships in other chunks; give memberships "
                "in all chunks"
            )
        check_length(found, X.shape[0])
    except (TypeError, ValueError) as error:
        raise type(error)(f"{where}: {error}") from None
    return found


def _blocks(found: Memberships, n_features: int) -> Iterator[tuple[int, int]]:
    """Yield runs of rows whose copies make a block."""
    copies, target = found.matrix.indptr, max(64, BLOCK_NUMBERS // max(1, n_features))
    lo = 0
    while lo < len(found):
        hi = int(np.searchsorted(copies, copies[lo] + target, side="right")) - 1
        hi = min(max(hi, lo + 1), len(found))
        if copies[hi] > copies[lo]:
            yield lo, hi
        lo = hi


def _copied(
    X: Any, y: Array, found: Memberships, weights: Array | None, lo: int, hi: int
) -> tuple[Any, Array, Array, Array]:
    m = found.matrix
    own = slice(m.indptr[lo], m.indptr[hi])
    index = np.repeat(np.arange(lo, hi), np.diff(m.indptr[lo : hi + 1]))
    order = np.argsort(m.indices[own], kind="stable")  # by group, as sums need them
    index, shares = index[order], m.data[own][order]
    weights = shares if weights is None else shares * weights[index]
    return X[index], y[index], found.labels[m.indices[own][order]], weights


# -- opening -----------------------------------------------------------------------------------

Open = Callable[..., SumEngine]


def open_patterns(open_rows: Open, X: Any, y: Any, found: Memberships, weights: Any) -> SumEngine:
    """Open rows in memory or on a device by their patterns.

    ``open_rows`` opens an engine for labels, one per row.
    """
    codes, patterns = found.patterns
    inner = open_rows(X, y, codes, weights)
    present = patterns[inner.census.labels]
    return OverlappingEngine.of_patterns(inner, Memberships.of(present, found.labels))


def open_keys(open_rows: Open, X: Any, y: Any, keys: Any, weights: Any) -> OverlappingEngine:
    """Open rows that are not in memory by their patterns, which are given as text."""
    inner = open_rows(X, y, keys, weights)
    return OverlappingEngine.of_patterns(inner, from_keys(inner.census.labels.tolist()))


def open_copies(
    source: Source, loss: Any, *, intercept: bool, centred: bool, progress: Any = None
) -> OverlappingEngine:
    """Open chunks with memberships by copies of rows, a block at a time."""
    copies = CopiesSource(source)
    inner = ChunkedEngine(copies, loss, intercept=intercept, centred=centred, progress=progress)
    labels = inner.census.labels
    own = Memberships.of(sparse.eye(len(labels), format="csr"), labels)
    assert copies.overlap is not None

    def plain() -> SumEngine:
        return ChunkedEngine(
            WithoutGroups(source), loss, intercept=intercept, centred=centred,
            progress=progress,
        )  # fmt: skip

    return OverlappingEngine(inner, own, copies.overlap, plain=plain)


def open_shares(
    X: Any, y: Any, found: Memberships, weights: Any, loss: Any, *, intercept: bool, centred: bool
) -> OverlappingEngine:
    """Open rows in memory with many patterns."""
    weights = check_sample_weight(weights, len(found))
    if weights is not None and not weights.all():
        keep = np.flatnonzero(weights)
        X, y, found, weights = X[keep], np.asarray(y)[keep], found[keep], weights[keep]
    there = np.flatnonzero(np.bincount(found.matrix.indices, minlength=found.shape[1]))
    if len(there) < found.shape[1]:
        found = Memberships.of(canonical(found.matrix[:, there]), found.labels[there])
    data = GroupedData.build(X, y, None, weights, intercept=intercept)
    inner = SharesEngine(data, found, loss, centred=centred)
    own = Memberships.of(sparse.eye(len(found.labels), format="csr"), found.labels)
    overlap = Overlap().add(found)

    def plain() -> SumEngine:
        return MemoryEngine(data, loss, centred=centred)

    return OverlappingEngine(inner, own, overlap, plain=plain)


class WithoutGroups(Source):
    """Chunks of a source without their groups."""

    def __init__(self, source: Source) -> None:
        self.source, self.feature_names = source, source.feature_names

    def __iter__(self) -> Iterator[Chunk]:
        for index, chunk in enumerate(self.source):
            X, y, _, weights = unpack(chunk, index)
            yield X, y, None, weights

    @property
    def n_rows(self) -> int | None:
        return self.source.n_rows


def few_in_memory(found: Memberships, n_features: int) -> bool:
    """Return whether the rows should be summed by pattern rather than copied."""
    patterns = found.patterns[1].shape[0]
    return is_few(patterns, n_features) and patterns <= max(FEW, len(found) // ROWS_EACH)


def few_patterns(found: Memberships, n_features: int) -> bool:
    """Return whether rows that cannot be copied can be summed by pattern."""
    return is_few(found.patterns[1].shape[0], n_features)


def too_many(patterns: int, kind: str) -> TooManyPatterns:
    return TooManyPatterns(
        f"groups: rows have {patterns:,} distinct patterns of membership, too many for rows of the "
        f"kind {kind!r}; round the shares, or pass rows in memory or a source of chunks"
    )
