"""A question for proofs about nonconvex losses: one parabola below every row's loss, summed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

from counterpoise.losses import NeuronLoss
from counterpoise.losses.minorants import Minorants
from counterpoise.rows.compilation import ready
from counterpoise.rows.engines.questions import Question
from counterpoise.rows.engines.scores import mapped_rows, scores_of

Array = np.ndarray


@dataclass(frozen=True, eq=False)
class SumMinorants(Question):
    """Quadratics below the losses, valid on an ellipsoid, pooled: (widths, 3 + D + D^2).

    With ``r = (x - shift, 1) @ basis``, coefficients ``w + basis (v - at)`` give a row the score
    ``z + r.(v - at)``, where ``z`` is its score at ``w``. The ellipsoid is ``||v|| <= 1``. For
    every one of ``widths``, in multiples of ``||r||`` rounded up, the answer holds the sums of

        value, |value| + |slope| q + |bend| q^2 / 2,  (|slope| + |bend| (q + e)) e,
        slope r,  bend r r^T

    with the row's parabola (:mod:`counterpoise.losses.minorants`), a bound ``q`` on
    ``|r.(v - at)|``, and a bound ``e`` on what rounding did to scores, given the relative
    ``rounding`` of the arithmetic and the ``sizes`` of the terms that coefficients anywhere in the
    ellipsoid were computed from. The second and third sums take the largest parabola of all widths;
    the second includes ``y^2``. ``share_K`` weights the groups.
    """

    alike = True

    w: Array
    at: Array
    loss: NeuronLoss
    share_K: Array
    shift: Array
    basis: Array
    sizes: Array
    intercept: bool
    widths: tuple[float, ...]
    truncate: float | None
    rounding: float

    @property
    def pooled(self) -> bool:
        return True

    def of_rows(self, X: Any, y: Array, weights: Array, group: int) -> Array:
        size, share = self.basis.shape[1], float(self.share_K[group])
        out = np.zeros((len(self.widths), 3 + size + size * size))
        if share == 0.0:
            return out
        if self.truncate is not None:
            y = np.clip(y, -self.truncate, self.truncate)
        c = share * weights
        rows = mapped_rows(X, self.shift, self.intercept, self.basis)
        norm = np.sqrt(np.einsum("ij,ij->i", rows, rows))
        z = scores_of(X, self.w, 1, self.intercept)[:, 0]
        moved = rows @ self.at
        reach = norm + np.abs(moved)
        error = self._score_error(X)
        # Intervals of scores, rounded outwards, which contain z.
        wide = norm * (1.0 + 64 * self.rounding) + error
        low, high = np.minimum(z - moved - wide, z), np.maximum(z - moved + wide, z)
        widths = np.array(self.widths)

        def bounds(first: int, last: int) -> Minorants:
            part = slice(first, last)
            given = (z[part], y[part], low[part], high[part], wide[part])
            return self.loss.minorants(*given, widths)

        ready("minorants", bounds)
        found = bounds(0, len(z))
        # What rounding may do is about the same for all widths.
        slope, bend = np.abs(found.slope).max(axis=0), np.abs(found.bend).max(axis=0)
        value = np.abs(found.value).max(axis=0) + y * y
        out[:, 0] = found.value @ c
        out[:, 1] = c @ (value + (slope + 0.5 * bend * reach) * reach)
        out[:, 2] = c @ ((slope + bend * (reach + error)) * error)
        out[:, 3 : 3 + size] = (c * found.slope) @ rows
        scaled = c * found.bend
        matrices = out[:, 3 + size :].reshape(-1, size, size)
        matrices[:] = (scaled[0][:, None] * rows).T @ rows
        for k in range(1, len(matrices)):  # they differ by rows near a kink alone
            changed = np.flatnonzero(scaled[k] != scaled[0])
            part = rows[changed]
            matrices[k] += ((scaled[k] - scaled[0])[changed][:, None] * part).T @ part
        return out

    def _score_error(self, X: Any) -> Array:
        """Bound what rounding does to scores anywhere in the ellipsoid."""
        d = X.shape[1]
        values = abs(X) if sparse.issparse(X) else np.abs(np.asarray(X, dtype=float))
        fixed = float(np.abs(self.shift) @ self.sizes[:d]) + float(self.sizes[d:].sum())
        sigma = self.loss.activation
        if not sigma.has_kink:  # outputs are rounded on a scale of their own
            fixed += 1.0 + float(np.abs(sigma.parameters).sum())
        total = np.asarray(values @ self.sizes[:d]).ravel() + fixed
        error: Array = 2.0 * (d + len(self.at) + 8) * self.rounding * total
        return error
