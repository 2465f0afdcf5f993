"""The law of the features, group by group: tails and margin along a set of directions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy import sparse

from counterpoise import assumptions as theory
from counterpoise.activations import Activation
from counterpoise.engines.sample import RowSample
from counterpoise.polish import SECOND_ORDER_LIMIT
from counterpoise.verdicts import Verdict, margin_verdict, tail_verdict

Array = np.ndarray

# Directions to look along: features at most, and random ones.
FEATURES, RANDOM = 64, 16
# Multiplications that the margin may take in all.
MARGIN_WORK = 1.5e10
# What a group's calls along one direction cost, in multiplications.
CALLS = 2e5


class GroupLaw(NamedTuple):
    """What one group's features look like; ``zeta_fit`` is the margin at the fit's own active
    rows."""

    sharpness: theory.Sharpness
    zeta_fit: float
    tails: Verdict
    margin: Verdict


@dataclass(frozen=True)
class FeatureLaws:
    """Of every group, in coordinates where the pooled second moment is one (whitened), where
    features have mean square one (scaled), or in the user's own.

    ``size`` is the number of coordinates; ``norm`` maps coefficients to their norm there.
    """

    groups: list[GroupLaw]
    size: int
    matrix: Array

    def norm(self, coef: Array) -> float:
        """The norm of a neuron's coefficients in these coordinates."""
        mapped = self.matrix * coef if self.matrix.ndim == 1 else self.matrix @ coef
        return float(np.linalg.norm(mapped))

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
        """Along features, at random, and at the fit, whose linear scores are ``scores``."""
        Z, matrix, unit, alive = _coordinates(sample, intercept, precondition)
        rng = np.random.default_rng(seed)
        known = [f"feature {j}" for j in range(len(alive))] if names is None else list(names)
        directions, names = _directions(Z, unit, alive, known, rng)
        reaches = theory.REACHES if precondition is not None else theory.REACHES[:1]
        whole = Z.shape[1] <= SECOND_ORDER_LIMIT
        groups = []
        # Every direction costs a second moment of the rows, some eigenvalues, and calls for these.
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
                # Nothing is ever inactive: the loss is as sharp as the second moment says.
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
        return cls(groups, Z.shape[1], matrix)


def _coordinates(
    sample: RowSample, intercept: bool, precondition: str | None
) -> tuple[Array, Array, Array | None, Array]:
    """Rows in the coordinates, the map of coefficients to theirs, unit directions of features
    (None where these are the axes), and which features vary."""
    X = sample.X.toarray() if sparse.issparse(sample.X) else np.asarray(sample.X, dtype=float)
    # Groups count alike, however many of their rows were drawn.
    share = 1.0 / np.bincount(sample.codes)[sample.codes] / len(sample.labels)
    if sample.weights is not None:
        totals = np.bincount(sample.codes, sample.weights)
        share = sample.weights / totals[sample.codes] / len(sample.labels)
    if intercept:
        X = X - share @ X
    squares = share @ X**2
    alive = squares > 1e-20 * squares.max(initial=0.0)
    if precondition is None:
        d = X.shape[1]
        return X, np.ones(d), None, np.ones(d, dtype=bool)
    scale = np.sqrt(np.where(alive, squares, 1.0))
    scaled = np.where(alive, X / scale, 0.0)
    wide = int(alive.sum()) > SECOND_ORDER_LIMIT
    if precondition == "scale" or wide:
        return scaled, np.where(alive, scale, 0.0), None, alive
    values, vectors = np.linalg.eigh((scaled * share[:, None]).T @ scaled)
    keep = values > 1e-9 * values.max(initial=0.0)
    root, vectors = np.sqrt(values[keep]), vectors[:, keep]
    Z = scaled @ (vectors / root)
    # coefficients w of X are those of Z under diag(root) vectors^T diag(scale)
    back = (vectors * root).T
    units = back.T[alive]
    return Z, back * scale, units / np.linalg.norm(units, axis=1, keepdims=True), alive


def _directions(
    Z: Array, units: Array | None, alive: Array, names: list[str], rng: np.random.Generator
) -> tuple[Array, list[str]]:
    """Unit vectors along features that vary (those with the farthest rows, if many) and at
    random."""
    p, there = Z.shape[1], np.flatnonzero(alive)
    if len(there) > FEATURES:
        along = Z[:, there] if units is None else Z @ units.T
        far = np.argsort(-np.abs(along).max(axis=0), kind="stable")[:FEATURES]
        kept = np.sort(far)
    else:
        kept = np.arange(len(there))
    if units is None:
        chosen = np.zeros((len(kept), p))
        chosen[np.arange(len(kept)), there[kept]] = 1.0
    else:
        chosen = units[kept]
    drawn = rng.normal(size=(RANDOM if p > 1 else 0, p))
    drawn /= np.linalg.norm(drawn, axis=1, keepdims=True)
    named = [names[j] for j in there[kept]] + [""] * len(drawn)
    return np.concatenate([chosen, drawn]), named
