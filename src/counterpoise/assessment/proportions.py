"""Confidence intervals for shares of rows: Wilson for a group's error, Bonett-Price for pairs.

Wilson's interval inverts the score test, ``|p - share| <= z sqrt(p (1 - p) / n)``, and holds its
level even for few rows and for shares near zero (E. B. Wilson, JASA 1927; L. Brown, T. Cai and A.
DasGupta, Statistical Science 2001). For rows of unequal weight, ``n`` is an effective number of
rows: the smaller of Kish's ``(sum w)^2 / sum w^2`` and the one that has the estimated variance
(E. Korn and B. Graubard, Survey Methodology 1998).

The difference between two classifiers on the same rows uses the rows on which exactly one is right,
as McNemar's test does. Its interval is that of D. Bonett and R. Price (Journal of Educational and
Behavioral Statistics 2012), a Wald interval after adding one to both counts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import binom, norm

from counterpoise.assessment.intervals import Interval, RiskIntervals, check_level
from counterpoise.assessment.metrics import grouped_rows, wrong_classes
from counterpoise.common.text import text_table
from counterpoise.rows.groups import label_list

Array = np.ndarray


def wilson_bounds(share: Array, rows: Array, tail: float) -> tuple[Array, Array]:
    """Return Wilson's bounds on a share, each missed with probability ``tail``; [0, 1] for no rows.

    >>> import numpy as np
    >>> low, high = wilson_bounds(np.array([0.0, 0.5]), np.array([10.0, 10.0]), 0.025)
    >>> low.round(4).tolist(), high.round(4).tolist()
    ([0.0, 0.2366], [0.2775, 0.7634])
    """
    z2 = float(norm.isf(tail)) ** 2
    share, rows = np.asarray(share, dtype=float), np.asarray(rows, dtype=float)
    known = rows > 0
    n = np.where(known, rows, 1.0)
    p = np.where(known, share, 0.0)
    middle = (p + z2 / (2.0 * n)) / (1.0 + z2 / n)
    half = np.sqrt(z2 * (p * (1.0 - p) / n + z2 / (4.0 * n * n))) / (1.0 + z2 / n)
    # Rounding must not exclude an estimate of exactly 0 or 1.
    low = np.where(known, np.clip(np.minimum(middle - half, p), 0.0, 1.0), 0.0)
    high = np.where(known, np.clip(np.maximum(middle + half, p), 0.0, 1.0), 1.0)
    return np.where(p <= 0.0, 0.0, low), np.where(known & (p >= 1.0), 1.0, high)


class ErrorSums(NamedTuple):
    """Weights and squared weights of every group's rows, in all and of the misclassified ones.

    Sums over chunks of rows can be merged.
    """

    mass: Array
    squares: Array
    wrong: Array
    wrong_squares: Array

    @classmethod
    def of(cls, wrong: Array, codes: Array, K: int, weights: Array | None) -> ErrorSums:
        """Sum rows; ``wrong`` is 1 where the class is wrong, ``codes`` number the groups."""
        w = np.ones(len(wrong)) if weights is None else weights
        amounts = (w, w * w, w * wrong, w * w * wrong)
        return cls(*(np.bincount(codes, amount, K) for amount in amounts))

    def merge(self, other: ErrorSums) -> ErrorSums:
        """Return the sums over the rows of both."""
        return ErrorSums(*(mine + theirs for mine, theirs in zip(self, other, strict=True)))

    @property
    def share(self) -> Array:
        """Weighted share of misclassified rows; NaN for a group without rows."""
        return _divide(self.wrong, self.mass)

    @property
    def average(self) -> float:
        """Weighted share of misclassified rows over all groups."""
        return float(self.wrong.sum() / self.mass.sum())

    @property
    def rows(self) -> Array:
        """Effective number of rows."""
        kish = np.nan_to_num(_divide(self.mass**2, self.squares))
        p = np.nan_to_num(self.share)
        # The variance of a weighted share: the squared weights of the rows' distances from it.
        spread = (1.0 - 2.0 * p) * self.wrong_squares + p * p * self.squares
        alike = np.nan_to_num(_divide(p * (1.0 - p) * self.mass**2, spread), posinf=0.0)
        return np.where(alike > 0, np.minimum(kish, alike), kish)

    def intervals(self, labels: Array, level: float) -> RiskIntervals:
        """Return the errors with Wilson intervals."""
        tail, share, rows = 0.5 * (1.0 - level), self.share, self.rows
        low, high = wilson_bounds(share, rows, tail)
        careful = wilson_bounds(share, rows, tail / len(labels))[0]
        worst = Interval(float(np.nanmax(share)), float(careful.max()), float(high.max()))
        return RiskIntervals(labels, rows, share, low, high, worst, float(level))


def error_intervals(
    y_true: Any, y_pred: Any, *, groups: Any, sample_weight: Any = None, level: float = 0.95
) -> RiskIntervals:
    """Share of misclassified rows of every group and of the worst one, with Wilson intervals.

    Use held-out rows. For accuracies, see :meth:`RiskIntervals.complement`.

    Examples
    --------
    >>> import numpy as np
    >>> groups = np.repeat(["large", "small"], [400, 10])
    >>> said = np.r_[np.repeat([0, 1], [360, 40]), np.repeat([0, 1], [8, 2])]
    >>> print(error_intervals(np.zeros(410, int), said, groups=groups))
    group       rows  risk [95% interval]
    large        400  0.1 [0.0743, 0.1333]
    small         10  0.2 [0.05668, 0.5098]
    worst             0.2 [0.07118, 0.5098]
    """
    wrong = wrong_classes(y_true, y_pred)
    found, weights = grouped_rows(groups, sample_weight, len(wrong))
    return wrong_intervals(
        found.listed(wrong), found.labels, found.codes, found.weights(weights), level=level
    )


def wrong_intervals(
    wrong: Array, labels: Array, codes: Array, weights: Array | None, *, level: float = 0.95
) -> RiskIntervals:
    """Intervals from rows whose class is ``wrong`` (1.0) or right (0.0); ``codes`` number groups.

    A group without rows gets NaN in [0, 1].
    """
    check_level(level)
    if not len(wrong):
        raise ValueError("there are no rows to estimate errors from; give at least one")
    return ErrorSums.of(wrong, codes, len(labels), weights).intervals(labels, level)


class PairSums(NamedTuple):
    """Weights of every group's rows: in all, squared, won and lost by the second classifier.

    ``number`` is the number of rows. Sums over chunks of rows can be merged.
    """

    number: Array
    mass: Array
    squares: Array
    gained: Array
    lost: Array

    @classmethod
    def of(
        cls, before: Array, after: Array, codes: Array, K: int, weights: Array | None
    ) -> PairSums:
        """Sum rows that two classifiers have wrong (1.0) or right (0.0)."""
        w = np.ones(len(codes)) if weights is None else weights
        amounts = (w > 0, w, w * w, w * (before > after), w * (after > before))
        return cls(*(np.bincount(codes, amount, K) for amount in amounts))

    def merge(self, other: PairSums) -> PairSums:
        """Return the sums over the rows of both."""
        return PairSums(*(mine + theirs for mine, theirs in zip(self, other, strict=True)))


@dataclass(frozen=True)
class PairedErrors:
    """Errors of two classifiers on the same rows, group by group; prints as a table.

    Attributes
    ----------
    labels : array of shape (K,)
    rows : array of shape (K,)
        Effective number of rows.
    gained, lost : arrays of shape (K,)
        Share of the rows that only the second classifier has right, and that only the first has.
    change, low, high : arrays of shape (K,)
        Error of the second minus that of the first, with bounds. The bounds of all groups hold
        together with probability ``level`` at least.
    p_value : array of shape (K,)
        McNemar's exact test that the classifiers err equally often, for one group alone. NaN if
        rows have unequal weights.
    level : float
    """

    labels: Array
    rows: Array
    gained: Array
    lost: Array
    change: Array
    low: Array
    high: Array
    p_value: Array
    level: float

    @classmethod
    def of(
        cls,
        before: Array,
        after: Array,
        labels: Array,
        codes: Array,
        weights: Array | None,
        level: float = 0.95,
    ) -> PairedErrors:
        """Compare rows that two classifiers have wrong (1.0) or right (0.0)."""
        return cls.of_sums(PairSums.of(before, after, codes, len(labels), weights), labels, level)

    @classmethod
    def of_sums(cls, sums: PairSums, labels: Array, level: float = 0.95) -> PairedErrors:
        """Compare from sums over rows."""
        check_level(level)
        K, mass = len(labels), sums.mass
        rows = np.nan_to_num(_divide(mass**2, sums.squares))
        gained, lost = _divide(sums.gained, mass), _divide(sums.lost, mass)
        z = float(norm.isf(0.5 * (1.0 - level) / K))
        known = rows > 0
        plus, minus = (
            (np.where(known, rows * share, 0.0) + 1.0) / (rows + 2.0) for share in (lost, gained)
        )
        middle = plus - minus
        half = z * np.sqrt((plus + minus - middle**2) / (rows + 2.0))
        low = np.where(known, np.clip(middle - half, -1.0, 1.0), -1.0)
        high = np.where(known, np.clip(middle + half, -1.0, 1.0), 1.0)
        # Rows of equal weight are worth as many as they are.
        whole = np.abs(rows - sums.number) <= 1e-6 * np.maximum(sums.number, 1.0)
        counts = (np.rint(np.where(whole, rows * share, 0.0)) for share in (gained, lost))
        p_value = np.where(whole & known, mcnemar(*counts), np.nan)
        return cls(labels, rows, gained, lost, lost - gained, low, high, p_value, float(level))

    def verdict(self, k: int) -> str:
        """Say whether the error of a group is lower, higher, or not distinguishable."""
        return direction(self.low[k], self.high[k])

    def __str__(self) -> str:
        head = ["group", "rows", f"change [{100 * self.level:g}% together]", "error"]
        table = [
            [
                str(label),
                f"{self.rows[k]:.0f}",
                f"{self.change[k]:+.4f} [{self.low[k]:+.4f}, {self.high[k]:+.4f}]",
                self.verdict(k),
            ]
            for k, label in enumerate(label_list(self.labels))
        ]
        return text_table(head, table, align="<><<", least=(0, 9))


def direction(low: float, high: float) -> str:
    """Say whether a change with these bounds is lower, higher, or not distinguishable from none."""
    if high < 0:
        return "lower"
    return "higher" if low > 0 else "not distinguishable"


def mcnemar(gained: Array, lost: Array) -> Array:
    """Return McNemar's exact two-sided p-values; 1 if the classifiers never differ.

    >>> import numpy as np
    >>> mcnemar(np.array([5.0, 0.0]), np.array([0.0, 0.0])).tolist()
    [0.0625, 1.0]
    """
    gained, lost = np.asarray(gained, dtype=float), np.asarray(lost, dtype=float)
    return np.asarray(
        np.minimum(2.0 * binom.cdf(np.minimum(gained, lost), gained + lost, 0.5), 1.0)
    )


def _divide(above: Array, below: Array) -> Array:
    return np.divide(above, below, out=np.full(np.shape(above), np.nan), where=below > 0)
