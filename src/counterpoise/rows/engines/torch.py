"""The engine for rows in a torch tensor, which stay on their device.

Rows are sorted by group once, on their device, and read in blocks, which bound the extra memory.
Sums are double, even for float32 rows. Only group sums move to the host, as well as scores for an
activation or loss that only Python can evaluate.

A device without double precision (MPS) sums blocks in float32, and the host adds them up in double.
Losses then have about six correct digits, and ``tol`` should not be smaller.

On one CPU or CUDA device, the same input gives the same bits for the same number of torch threads.
Other devices add short groups in an order of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import lru_cache
from itertools import chain, pairwise
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from torch import Tensor

from counterpoise.activations import Activation
from counterpoise.losses import Loss, NeuronLoss
from counterpoise.rows.census import Census
from counterpoise.rows.engines import questions as asked
from counterpoise.rows.engines.base import SumEngine, fingerprint_of
from counterpoise.rows.frames import given
from counterpoise.rows.groups import GroupedData
from counterpoise.rows.sample import BUDGET, RowSample

Array = np.ndarray

# Numbers in a block: it should fit the cache of a CPU, need few calls on CUDA, and make short sums
# on float32 devices.
CPU_NUMBERS, CUDA_NUMBERS, OTHER_NUMBERS = 1 << 18, 1 << 24, 1 << 20
# A group larger than 1 / LONG_SHARE of a block is read by itself. No thread adds more than RUN
# rows.
LONG_SHARE, RUN = 8, 1024


class Block(NamedTuple):
    """Rows ``lo:hi`` of one long group, or of several short groups starting at ``first``.

    ``codes`` are the groups of the rows. ``levels`` are the numbers of rows, and then of partial
    sums, to add up.
    """

    lo: int
    hi: int
    first: int
    sizes: list[int]
    codes: Tensor
    levels: list[Tensor]

    def sums(self, values: Tensor, c: Tensor | None = None) -> Tensor:
        """Sum the rows of ``values``, times ``c``, for each group of the block: (groups, m)."""
        if len(self.sizes) == 1:
            return (values.sum(0) if c is None else c @ values)[None]
        if c is not None:
            values = c[:, None] * values
        if not self.levels:
            out = values.new_zeros((len(self.sizes), values.shape[1]))
            return out.index_add_(0, self.codes - self.first, values)
        for lengths in self.levels:
            values = torch.segment_reduce(values, "sum", lengths=lengths, unsafe=True)
        return values


class TorchEngine(SumEngine):
    """All rows on one device; they are copied only if they are not sorted by group."""

    def __init__(self, X: Tensor, y: Any, groups: Any, sample_weight: Any, loss: Loss | Activation,
                 *, intercept: bool = True, centred: bool = True) -> None:  # fmt: skip
        X, y = check_matrix(X), check_labels(y, len(X))
        numbers = np.arange(len(X), dtype=float)[:, None]  # sorted in place of the rows
        data = GroupedData.build(numbers, y, host(groups), host(sample_weight), intercept=intercept)
        order = np.asarray(data.X)[:, 0].astype(np.int64)
        if not np.array_equal(order, numbers[:, 0]):
            X = X.index_select(0, torch.from_numpy(order).to(X.device))
        self.X, self.dtype = X, working_dtype(X.device)
        self.y = self._tensor(data.y)
        self.weights = self._tensor(data.row_weights) if data.row_weights.size else None
        self.sizes = np.diff(data.offsets)
        self.blocks = list(cut(data.offsets, block_rows(X), X.device))
        shift = host(X[:: max(1, len(X) // 4096)].to(self.dtype).mean(0)).astype(float)
        narrow = torch.float32 in (X.dtype, self.dtype)
        census = Census(
            labels=data.labels, totals=data.totals, n_rows=len(X), n_features=X.shape[1],
            intercept=intercept, pivot=data.centre()[1],
            shift=shift if intercept and centred else np.zeros_like(shift),
            precision=float(np.finfo(np.float32 if narrow else np.float64).eps),
            label_size=float(np.abs(data.y).max(initial=0.0)),
        )  # fmt: skip
        super().__init__(census, loss)

    def sample(self) -> RowSample:
        numbers = np.arange(len(self.X), dtype=float)[:, None]  # drawn in place of the rows
        codes = np.repeat(np.arange(self.n_groups), self.sizes)
        budget = max(1, BUDGET // self.n_features)
        weights = None if self.weights is None else host(self.weights)
        drawn = RowSample.draw(
            numbers, host(self.y), codes, self.census.labels, weights, budget=budget
        )
        rows = torch.from_numpy(drawn.X[:, 0].astype(np.int64)).to(self.X.device)
        return replace(drawn, X=host(self.X.index_select(0, rows)), budget=BUDGET)

    @property
    def rounding(self) -> float:
        return float(torch.finfo(self.dtype).eps)

    def fingerprint(self) -> str:
        """Copy the rows to the host block by block."""
        others = [host(self.y), self.sizes, *([] if self.weights is None else [host(self.weights)])]
        return fingerprint_of(chain((host(self.X[b.lo : b.hi]) for b in self.blocks), others))

    def ask(self, question: asked.Question) -> Array:
        """Add up the blocks in order and in double, on the device if it supports that."""
        self.counter.count += not isinstance(question, asked.Labels)
        known, total = vars(question).items(), None
        answer = getattr(self, f"_add_{type(question).__name__.lower()}", None)  # _add_evaluate, ..
        if answer is None:
            answer = self._add_by_rows
        else:
            arrays = {name: self._tensor(v) for name, v in known if isinstance(v, np.ndarray)}
            question = replace(question, **arrays)
        for b in self.blocks:
            part = answer(question, b)
            if self.dtype is not torch.float64:
                part = part.cpu().double()
            if total is None:
                shape = part.shape if question.pooled else (self.n_groups, *part.shape[1:])
                total = part.new_zeros(shape)
            into = total if question.pooled else total[b.first : b.first + len(b.sizes)]
            into += part
        return host(total)

    # -- sums over a block; the question's arrays are tensors by now -----------------------

    def _add_by_rows(self, q: asked.Question, b: Block) -> Tensor:
        """Answer a question by its own method ``of_rows``, on the host."""
        edges, weights = np.cumsum([0, *b.sizes]), self._weights_of(b)
        X, y = host(self._rows(b)).astype(float), host(self.y[b.lo : b.hi]).astype(float)
        share = np.ones(len(y)) if weights is None else host(weights).astype(float)
        sums = [
            np.asarray(q.of_rows(X[a:c], y[a:c], share[a:c], b.first + i), dtype=float)
            for i, (a, c) in enumerate(pairwise(edges))
        ]
        return self._tensor(np.sum(sums, axis=0) if q.pooled else np.array(sums))

    def _add_evaluate(self, q: asked.Evaluate, b: Block) -> Tensor:
        rows, (coef, bias) = self._rows(b), self._split(q.w)
        y = self._labels_of(b, q.truncate)
        return self._gradient(b, rows, *terms(q.loss, rows @ coef + bias, y, q.surrogate))

    def _add_moments(self, q: asked.Moments, b: Block) -> Tensor:
        rows, (coef, bias) = self._rows(b), self._split(q.directions)
        if len(b.sizes) == 1:
            z = rows @ coef[b.first] + bias[b.first]
        else:
            z = (rows * coef[b.codes]).sum(1) + bias[b.codes]
        return self._gradient(b, rows, z * z, z)

    def _gradient(self, b: Block, rows: Tensor, values: Tensor, c: Tensor) -> Tensor:
        """Sum ``c x``, ``c`` and losses."""
        if self.weights is not None:
            weights = self.weights[b.lo : b.hi]
            values, c = values * weights, c * weights
        return torch.cat([b.sums(rows, c), b.sums(torch.stack([c, values], 1))], 1)

    def _add_separation(self, q: asked.Separation, b: Block) -> Tensor:
        points, w = _tensor_of(q.points), _tensor_of(q.w)
        coef, bias = self._split(torch.cat([points, w[None]]))
        values, _ = activate(q.activation, self._rows(b) @ coef.T + bias)
        return b.sums((values[:, :-1] - values[:, -1:]) ** 2, self._weights_of(b))

    def _add_squares(self, q: asked.Squares, b: Block) -> Tensor:
        return b.sums((self._rows(b) - _tensor_of(q.shift)) ** 2, self._weights_of(b))

    def _add_labels(self, q: asked.Labels, b: Block) -> Tensor:
        gap = self._labels_of(b, q.truncate) - q.pivot
        return b.sums(torch.stack([gap, gap * gap], 1), self._weights_of(b))

    def _add_gram(self, q: asked.Gram, b: Block) -> Tensor:
        X, weights = self._rows(b), self._weights_of(b)
        rows = X - _tensor_of(q.shift)
        if self.census.intercept:
            rows = torch.cat([rows, rows.new_ones((len(rows), 1))], 1)
        if q.basis is not None:
            rows = rows @ _tensor_of(q.basis)
        if weights is not None:
            rows = rows * weights.sqrt()[:, None]
        if q.w is not None:
            coef, bias = self._split(q.w)
            z = X @ coef + bias
            rows = rows * stretches(q.loss, z, self.y[b.lo : b.hi])[:, None]
        if q.share_K is None:
            return torch.stack([run.T @ run for run in rows.split(b.sizes)])
        rows = rows * _tensor_of(q.share_K)[b.codes].sqrt()[:, None]
        return rows.T @ rows

    def _rows(self, b: Block) -> Tensor:
        return self.X[b.lo : b.hi].to(self.dtype)

    def _weights_of(self, b: Block) -> Tensor | None:
        return None if self.weights is None else self.weights[b.lo : b.hi]

    def _labels_of(self, b: Block, truncate: float | None) -> Tensor:
        y = self.y[b.lo : b.hi]
        return y if truncate is None else y.clamp(-truncate, truncate)

    def _split(self, w: Any) -> tuple[Tensor, Tensor]:
        """Split a point, or every row of a matrix of points, into coefficients and intercept."""
        if self.census.intercept:
            return w[..., :-1], w[..., -1]
        return w, w.new_zeros(w.shape[:-1])

    def _tensor(self, values: Array) -> Tensor:
        return torch.tensor(values, dtype=self.dtype, device="cpu").to(self.X.device)


def _tensor_of(field: Array) -> Tensor:
    """Return a field of a question whose arrays ``ask`` has replaced by tensors."""
    return cast("Tensor", field)


def linear_scores(X: Tensor, coef: Array, intercept: Any) -> Tensor:
    """Compute ``X @ coef.T + intercept`` on the device of ``X``, in double if possible."""
    X = check_matrix(X)
    if X.shape[1] != coef.shape[-1]:
        raise ValueError(
            f"X has {X.shape[1]} features, but the fit was to {coef.shape[-1]}; pass the same "
            "columns"
        )
    dtype = working_dtype(X.device)
    w = torch.tensor(coef.T, dtype=dtype, device="cpu").to(X.device)
    bias = torch.tensor(intercept, dtype=dtype, device="cpu").to(X.device)
    return torch.cat([x.to(dtype) @ w for x in X.split(block_rows(X))]) + bias


def block_rows(X: Tensor) -> int:
    """Return the number of rows in a block."""
    numbers = {"cpu": CPU_NUMBERS, "cuda": CUDA_NUMBERS}.get(X.device.type, OTHER_NUMBERS)
    return max(64, numbers // X.shape[1])


def cut(offsets: Array, size: int, device: Any) -> Iterator[Block]:
    """Split long groups and batch short ones, into blocks of at most ``size`` rows."""
    edges, sizes = offsets.tolist(), np.diff(offsets)
    codes = torch.from_numpy(np.repeat(np.arange(len(sizes), dtype=np.int32), sizes)).to(device)
    ordered = device.type in ("cpu", "cuda")  # elsewhere there is no segment_reduce
    first, long = 0, max(1, size // LONG_SHARE)
    while first < len(sizes):
        lo, last, short = edges[first], first + 1, sizes[first] < long
        while short and last < len(sizes) and sizes[last] < long and edges[last + 1] - lo <= size:
            last += 1
        for a in range(lo, edges[last], size):
            z = min(a + size, edges[last])
            few = sizes[first:last] if short else np.array([z - a])
            levels = [torch.from_numpy(counts).to(device) for counts in runs(few)]
            yield Block(a, z, first, few.tolist(), codes[a:z], levels if ordered else [])
        first = last


def runs(sizes: Array) -> list[Array]:
    """Return how many rows to add at a time (at most ``RUN``), and then how many sums."""
    pieces = -(-sizes // RUN)
    lengths = np.full(pieces.sum(), RUN)
    lengths[np.cumsum(pieces) - 1] = sizes - (pieces - 1) * RUN
    return [lengths] if (pieces == 1).all() else [lengths, pieces]


@lru_cache
def working_dtype(device: Any) -> Any:
    """Return float64 if the device supports it, else float32."""
    try:
        return (torch.ones(1, dtype=torch.float64, device=device) * 2).dtype
    except (TypeError, RuntimeError):
        return torch.float32


def host(values: Any) -> Any:
    """Return a tensor as an array on the host, and anything else unchanged."""
    if isinstance(values, Tensor):
        values = values.detach().cpu()
        values = (values.float() if values.dtype is torch.bfloat16 else values).numpy()
    return values


def check_matrix(X: Tensor) -> Tensor:
    """Check for a dense matrix of finite real numbers; detach it without a copy."""
    X = X.detach()
    if X.layout is not torch.strided or X.is_complex() or X.is_quantized:
        kind = f"{X.dtype}, {X.layout}; use X.to_dense(), or a SciPy CSR matrix"
        raise ValueError(f"X must be a dense tensor of real numbers; got {kind}")
    if X.ndim != 2 or not X.numel():
        raise ValueError(f"X must have rows and columns; got a tensor of shape {tuple(X.shape)}")
    if not torch.stack([torch.isfinite(x).all() for x in X.split(block_rows(X))]).all():
        raise ValueError("X has missing or infinite values; impute or leave out these rows")
    return X


def check_labels(y: Any, n: int) -> Array:
    """Check for one finite label per row, and return them on the host."""
    y = given(y, "y")
    try:
        labels = np.asarray(host(y), dtype=float)
    except (TypeError, ValueError):
        raise ValueError(f"y must hold a number for each of the {n} rows of X") from None
    if labels.shape not in ((n,), (n, 1)):
        raise ValueError(f"X has {n} rows but y has shape {labels.shape}; give one label per row")
    if not np.isfinite(labels).all():
        raise ValueError("y has missing or infinite values; impute or leave out these rows")
    return labels.reshape(n)


def activate(sigma: Activation, z: Tensor) -> tuple[Tensor, Tensor]:
    """Compute values and slopes of ``sigma``, on the host if only Python can evaluate it."""
    found = sigma.on_tensor(z)
    return (on_host(sigma.value, z), on_host(sigma.slope, z)) if found is None else found


def terms(loss: Loss, z: Tensor, y: Tensor, surrogate: bool) -> tuple[Tensor, Tensor]:
    """Compute losses and pulls of rows."""
    if isinstance(loss, NeuronLoss):
        values, slopes = activate(loss.activation, z)
        residual = values - y
        return residual * residual, residual if surrogate else residual * slopes
    found = loss.on_tensor(z, y)
    if found is None:
        return on_host(loss.value, z, y), on_host(loss.slope, z, y)
    return found[0], found[1]


def stretches(loss: Loss, z: Tensor, y: Tensor) -> Tensor:
    """Compute the roots of second derivatives of rows."""
    if isinstance(loss, NeuronLoss):
        return activate(loss.activation, z)[1]
    found = loss.on_tensor(z, y)
    return on_host(loss.stretch, z, y) if found is None else found[2].sqrt()


def on_host(function: Callable[..., Array], *given: Tensor) -> Tensor:
    """Apply a function of arrays to copies of tensors, which it may modify."""
    answer = np.array(function(*(host(t).astype(float) for t in given)), dtype=float)
    return torch.from_numpy(answer).to(given[0].dtype).to(given[0].device)
