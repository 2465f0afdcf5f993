"""Distribution of the features by group: tails and margin along a set of directions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy import sparse

from counterpoise.activations import Activation
from counterpoise.assessment.diagnosis import assumptions as theory
from counterpoise.assessment.diagnosis.verdicts import Verdict, margin_verdict, tail_verdict
from counterpoise.rows.sample import RowSample
from counterpoise.solver import coordinates as coords
from counterpoise.solver.polish import SECOND_ORDER_LIMIT
from counterpoise.solver.units import sample_units

Array = np.ndarray

# Number of directions to check: at most this many features, and this many random ones.
FEATURES, RANDOM = 64, 16
# Budget for computing the margin, in multiplications.
MARGIN_WORK = 1.5e10
# Overhead of a group along one direction, in multiplications.
CALLS = 2e5


class GroupLaw(NamedTuple):
    """Tails and margin of one group; ``zeta_fit`` is the margin on the fit's active rows."""

    sharpness: theory.Sharpness
    zeta_fit: float
    tails: Verdict
    margin: Verdict


@dataclass(frozen=True)
class FeatureLaws:
    """Tails and margins of every group.

    The coordinates make the pooled second moment the identity (whitened), or give features a mean
    square of one (scaled), or are the user's own. ``size`` is their number.
    """

    groups: list[GroupLaw]
    size: int
    frame: coords.Coordinates

    def norm(self, coef: Array) -> float:
        """Return the norm of a neuron's coefficients in these coordinates."""
        return float(np.linalg.norm(self.frame.from_user(coef)))

    @classmethod
    def of(
        cls,
        sample: RowSample,
        *,
        intercept: bool,
        precondition: str | None,
        activation: Activation,
        scores: Array,
        names: Sequence[str] | None = None,
        seed: int = 0,
    ) -> FeatureLaws:
        """Measure along features and random directions; ``scores`` are those of the fit."""
        Z, frame = _coordinates(sample, intercept, precondition)
        rng = np.random.default_rng(seed)
        known = [f"feature {j}" for j in range(len(frame.shift))] if names is None else list(names)
        directions, names = _directions(Z, frame, known, rng)
        reaches = theory.REACHES if precondition is not None else theory.REACHES[:1]
        whole = Z.shape[1] <= SECOND_ORDER_LIMIT
        groups = []
        # A direction costs a second moment of the rows, some eigenvalues, and the overhead.
        p, K = Z.shape[1], len(sample.labels)
        cost = len(Z) * p**2 + K * (60.0 * p**3 + CALLS)
        count = int(np.clip(MARGIN_WORK / max(2.0 * cost, 1.0), 2, len(directions)))
        chosen = directions[rng.permutation(len(directions))[:count]]
        for k in range(len(sample.labels)):
            own = sample.codes == k
            rows = Z[own]
            projections = rows @ directions.T
            B = theory.tail_table(projections, reaches).max(axis=1, initial=0.0)
            shape = theory.tail_shapes(projections)
            zetas, at_fit = np.zeros(len(theory.GAMMAS)), 0.0
            if whole and activation.is_identity:
                # No row is ever inactive, so the second moment gives the sharpness.
                at_fit = theory.whole_margin(rows)
                sharp = theory.Sharpness(*theory.first_tail(B), 0.0, at_fit, at_fit, at_fit)
            else:
                if whole:
                    at_fit = theory.whole_margin(rows, scores[own] > 0)
                    zetas = theory.margins(rows, chosen)
                sharp = theory.sharpness_from(B, zetas, activation.alpha)
            size = Z.shape[1] if whole else None
            groups.append(
                GroupLaw(
                    sharp,
                    at_fit,
                    tail_verdict(sharp.B, shape, names, len(rows)),
                    margin_verdict(sharp, at_fit, len(rows), size, linear=activation.is_identity),
                )
            )
        return cls(groups, Z.shape[1], frame)


def _coordinates(
    sample: RowSample, intercept: bool, precondition: str | None
) -> tuple[Array, coords.Coordinates]:
    """Map rows to solver coordinates, centred if there is an intercept."""
    X = sample.X.toarray() if sparse.issparse(sample.X) else np.asarray(sample.X, dtype=float)
    # Groups have equal weight, however many of their rows were drawn.
    weights = np.ones(len(X)) if sample.weights is None else sample.weights
    share = weights / np.bincount(sample.codes, weights)[sample.codes] / len(sample.labels)
    centre = share @ X if intercept else np.zeros(X.shape[1])
    X = X - centre
    units = sample_units(X)
    plain = X if units is None else X * units
    if precondition is None:
        frame = coords.unscaled(X.shape[1], False, None)
    elif precondition == "scale" or X.shape[1] > SECOND_ORDER_LIMIT:
        frame = coords.scaled(share @ plain**2, centre, False, None, units)
    else:
        moment = (plain * share[:, None]).T @ plain
        frame = coords.whitened(moment, centre, False, None, units=units)
    return (X * frame.basis if frame.basis.ndim == 1 else X @ frame.basis), frame


def _directions(
    Z: Array, frame: coords.Coordinates, names: list[str], rng: np.random.Generator
) -> tuple[Array, list[str]]:
    """Return unit vectors along features that vary, and random ones.

    Of many features, those with the most extreme rows are kept.
    """
    p, units = Z.shape[1], None
    if frame.basis.ndim == 1:
        there = np.flatnonzero(frame.basis)
    else:
        lengths = np.ones(len(names)) if frame.units is None else frame.units
        units = frame.from_user(np.diag(lengths)).T  # feature j as a direction
        sizes = np.linalg.norm(units, axis=1)
        there = np.flatnonzero(sizes > 0)
        units = units[there] / sizes[there, None]
    kept = np.arange(len(there))
    if len(there) > FEATURES:
        along = Z[:, there] if units is None else Z @ units.T
        kept = np.sort(np.argsort(-np.abs(along).max(axis=0), kind="stable")[:FEATURES])
    if units is None:
        chosen = np.zeros((len(kept), p))
        chosen[np.arange(len(kept)), there[kept]] = 1.0
    else:
        chosen = units[kept]
    drawn = rng.normal(size=(RANDOM if p > 1 else 0, p))
    drawn /= np.linalg.norm(drawn, axis=1, keepdims=True)
    named = [names[j] for j in there[kept]] + [""] * len(drawn)
    return np.concatenate([chosen, drawn]), named
