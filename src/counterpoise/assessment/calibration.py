"""Calibration of probabilities, group by group.

Three questions about the probabilities of a group of rows, from coarse to fine:

in the large    Do classes occur as often as predicted? Observed minus predicted share.
slope           Are probabilities too extreme (slope below one) or too timid (above one)? The number
                ``b`` in the best recalibration ``softmax(a_c + b log p_c)``; for two classes, the
                slope of a logistic regression of the labels on ``logit p`` (D. Cox, 1958).
expected        How far are the observed shares from the predicted ones, over bins of rows with
calibration     similar probabilities? The binned figure of the literature is biased upwards, so the
error           value that perfect calibration would give by chance stands beside it, and so does a
                root mean square from which that bias is removed (A. Kumar, P. Liang and T. Ma,
                "Verified uncertainty calibration", NeurIPS 2019).

For two classes, bins are of the probability of the second class. For more, they are of the largest
probability, and a row counts as observed if that class is right ("top-label" calibration).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy.special import log_softmax, logsumexp
from scipy.stats import norm

from counterpoise.assessment.intervals import Interval
from counterpoise.assessment.metrics import class_probabilities, encode_classes, grouped_rows
from counterpoise.common.text import clipped, text_table
from counterpoise.rows.backends import to_host
from counterpoise.rows.frames import given
from counterpoise.rows.groups import label_list

Array = np.ndarray

# Bins of equal numbers of rows: at most so many, with at least so many rows each.
BINS, ROWS_PER_BIN = 15, 20
# Newton steps for the slope, and the size of the slope beyond which it is unknown.
STEPS, STEEPEST = 50, 1e3
# Size of the arrays from which the slope is estimated; of more rows, evenly spaced ones are used.
SLOPE_NUMBERS = 1 << 23
TINY = float(np.finfo(float).eps)


class CalibrationBin(NamedTuple):
    """Rows with similar probabilities: their number, mean prediction, and observed share."""

    rows: float
    predicted: float
    observed: float


@dataclass(frozen=True)
class Calibration:
    """Calibration of one group's probabilities.

    Attributes
    ----------
    rows : float
        Effective number of rows.
    in_the_large : list of Interval, one per class
        Observed share of the class minus the mean probability, with a normal interval.
    slope : Interval
        1 for perfect calibration, below 1 for overconfidence. NaN if it cannot be estimated:
        probabilities that do not vary, a single observed class, or separable rows.
    ece : float
        Expected calibration error over ``bins``: mean distance of observed from predicted shares.
    ece_by_chance : float
        What ``ece`` would be, on average, if the probabilities were right.
    rms : float
        Root mean squared distance without the part that chance explains; 0 if that is all.
    bins : list of CalibrationBin
    """

    rows: float
    in_the_large: list[Interval]
    slope: Interval
    ece: float
    ece_by_chance: float
    rms: float
    bins: list[CalibrationBin]

    @classmethod
    def of(
        cls, proba: Array, classes: Array, weights: Array | None = None, level: float = 0.95
    ) -> Calibration:
        """Measure rows with probabilities (n, C), whose ``classes`` number the columns."""
        w = np.ones(len(proba)) if weights is None else np.asarray(weights, dtype=float)
        kept = w > 0
        proba, classes, w = proba[kept], classes[kept], w[kept] / w[kept].mean()
        n, z = float(w.sum() ** 2 / (w**2).sum()), float(norm.isf(0.5 * (1.0 - level)))
        bins = _bins(proba, classes, w)
        share = np.array([part.rows for part in bins]) / sum(part.rows for part in bins)
        p, q = (
            np.array([getattr(part, name) for part in bins]) for name in ("predicted", "observed")
        )
        counts = share * n
        # The bias of the square is the variance of the observed share, estimated without bias.
        noise = q * (1.0 - q) / np.maximum(counts - 1.0, 1.0)
        chance = np.sqrt(2.0 / math.pi * p * (1.0 - p) / np.maximum(counts, 1.0))
        return cls(
            rows=n,
            in_the_large=_in_the_large(proba, classes, w, n, z),
            slope=_slope(proba, classes, w, n, z),
            ece=float(share @ np.abs(p - q)),
            ece_by_chance=float(share @ chance),
            rms=math.sqrt(max(float(share @ ((p - q) ** 2 - noise)), 0.0)),
            bins=bins,
        )


@dataclass(frozen=True)
class CalibrationByGroup:
    """Calibration of every group; prints as a table. ``found[label]`` is that of one group.

    Attributes
    ----------
    labels : array of shape (K,)
    classes : array of shape (C,)
    groups : list of Calibration, or None for a group without rows
    level : float
    """

    labels: Array
    classes: Array
    groups: list[Calibration | None]
    level: float

    def __getitem__(self, label: Any) -> Calibration | None:
        try:
            return self.groups[label_list(self.labels).index(label)]
        except ValueError:
            raise KeyError(label) from None

    def __str__(self) -> str:
        binary = len(self.classes) == 2
        shown = 1 if binary else 0
        name = label_list(self.classes)[shown]
        head = ["group", "rows", f"{name}: observed - predicted", "slope", "ECE", "by chance"]
        rows = []
        for label, found in zip(label_list(self.labels), self.groups, strict=True):
            if found is not None:
                rows.append([
                    clipped(str(label)), f"{found.rows:.0f}",
                    _bounds(found.in_the_large[shown], "+.3f"), _bounds(found.slope, ".2f"),
                    f"{found.ece:.3f}", f"{found.ece_by_chance:.3f}",
                ])  # fmt: skip
        return text_table(head, rows, align="<><<>>")


def calibration_by_group(
    y_true: Any,
    y_proba: Any,
    *,
    groups: Any,
    classes: Any = None,
    sample_weight: Any = None,
    level: float = 0.95,
) -> CalibrationByGroup:
    """Measure how well probabilities are calibrated in every group.

    Use held-out rows. Parameters are as in :func:`group_log_losses`; ``level`` is the confidence
    of each interval alone.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> p, groups = rng.uniform(0.1, 0.9, size=4000), np.repeat(["right", "timid"], 2000)
    >>> y = (rng.random(4000) < np.where(groups == "right", p, p > 0.5)).astype(int)
    >>> found = calibration_by_group(y, p, groups=groups)
    >>> bool(found["right"].slope.low < 1 < found["right"].slope.high)
    True
    >>> bool(found["timid"].slope.value != found["timid"].slope.value)  # separable: NaN
    True
    """
    y_true, y_proba = given(to_host(y_true), "y_true"), given(to_host(y_proba), "y_proba")
    known, codes_of_class = encode_classes(y_true, classes)
    proba = class_probabilities(y_proba, len(known), "classes" if classes is None else "")
    found, weights = grouped_rows(groups, sample_weight, len(codes_of_class))
    return calibrate_groups(
        found.listed(proba), found.listed(codes_of_class), known, found.labels, found.codes,
        found.weights(weights), level,
    )  # fmt: skip


def calibrate_groups(
    proba: Array,
    rows_class: Array,
    classes: Array,
    labels: Array,
    codes: Array,
    weights: Array | None,
    level: float,
) -> CalibrationByGroup:
    """`calibration_by_group` for checked rows, with ``codes`` of their groups."""
    found: list[Calibration | None] = []
    for k in range(len(labels)):
        own = np.flatnonzero(codes == k)
        part = None if weights is None else weights[own]
        if not len(own) or (part is not None and not part.sum() > 0):
            found.append(None)
        else:
            found.append(Calibration.of(proba[own], rows_class[own], part, level))
    return CalibrationByGroup(labels, classes, found, float(level))


def _bins(proba: Array, classes: Array, w: Array) -> list[CalibrationBin]:
    """Cut the rows into bins of equal numbers of rows, in order of their probability."""
    if proba.shape[1] == 2:
        said, seen = proba[:, 1], classes == 1
    else:
        said, seen = proba.max(axis=1), proba.argmax(axis=1) == classes
    count = int(np.clip(len(said) // ROWS_PER_BIN, 1, BINS))
    order = np.argsort(said, kind="stable")
    # Rows with equal probabilities belong to one bin: a bin begins where the probability changes.
    ranks = np.searchsorted(said[order], said[order], side="left")
    bins = ranks * count // len(said)
    return [
        CalibrationBin(
            float(w[part].sum()),
            float(np.average(said[part], weights=w[part])),
            float(np.average(seen[part], weights=w[part])),
        )
        for part in (order[bins == b] for b in range(count))
        if len(part)
    ]


def _in_the_large(proba: Array, classes: Array, w: Array, n: float, z: float) -> list[Interval]:
    out = []
    for c in range(proba.shape[1]):
        gap = float(np.average((classes == c) - proba[:, c], weights=w))
        # Under the model, a label has the variance p (1 - p).
        spread = float(np.average(proba[:, c] * (1.0 - proba[:, c]), weights=w))
        half = z * math.sqrt(spread / n)
        out.append(Interval(gap, gap - half, gap + half))
    return out


def _slope(proba: Array, classes: Array, w: Array, n: float, z: float) -> Interval:
    """Fit ``softmax(a_c + b log p_c)`` by Newton's method and return ``b``."""
    unknown = Interval(math.nan, -math.inf, math.inf)
    present = np.flatnonzero(np.bincount(classes, minlength=proba.shape[1]))
    if len(present) < 2:
        return unknown
    # Classes without rows have intercept minus infinity: they leave the model.
    logs = np.log(np.clip(proba[:, present], TINY, 1.0))
    logs -= logs.mean(axis=1, keepdims=True)
    C = len(present)
    y = np.searchsorted(present, classes)
    thin = 1 + len(y) * C * C // SLOPE_NUMBERS
    logs, y, w, n = logs[::thin], y[::thin], w[::thin], n / thin
    # One design row per class: b multiplies logs[:, c], and a_c is free for c >= 1.
    design = np.zeros((len(logs), C, C))
    design[:, :, 0] = logs
    for c in range(1, C):
        design[:, c, c] = 1.0
    theta = np.zeros(C)
    theta[0] = 1.0

    def loss(at: Array) -> float:
        scores = design @ at
        picked = scores[np.arange(len(y)), y]
        return float(w @ (logsumexp(scores, axis=1) - picked))

    value = loss(theta)
    for _ in range(STEPS):
        q = np.exp(log_softmax(design @ theta, axis=1))
        residual = q.copy()
        residual[np.arange(len(y)), y] -= 1.0
        grad = np.einsum("n,nc,nck->k", w, residual, design)
        mean = np.einsum("nc,nck->nk", q, design)
        hess = np.einsum("n,nc,nck,ncl->kl", w, q, design, design, optimize=True)
        hess -= (mean * w[:, None]).T @ mean
        size = np.abs(np.diag(hess)).max()
        if not size > 0 or np.linalg.cond(hess) > 1e12:
            return unknown
        step = np.linalg.solve(hess, grad)
        scale = 1.0
        while loss(theta - scale * step) > value + 1e-12 * abs(value) and scale > 1e-8:
            scale *= 0.5
        theta = theta - scale * step
        value = loss(theta)
        if abs(theta[0]) > STEEPEST:
            return unknown
        if np.abs(grad @ step) < 1e-12 * len(y):
            break
    error = math.sqrt(max(float(np.linalg.inv(hess)[0, 0]) * len(y) / n, 0.0))
    b = float(theta[0])
    # Separable rows: the slope grows without end, and its error faster.
    return unknown if error > 10.0 * max(abs(b), 1.0) else Interval(b, b - z * error, b + z * error)


def _bounds(found: Interval, spec: str) -> str:
    if math.isnan(found.value):
        return "unknown"
    return f"{found.value:{spec}} [{found.low:{spec}}, {found.high:{spec}}]"
