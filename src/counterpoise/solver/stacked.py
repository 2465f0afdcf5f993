"""Coordinates of several scores: the same change of coordinates for each."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from counterpoise.solver.coordinates import Coordinates

Array = np.ndarray


@dataclass(frozen=True)
class Stacked:
    """Coordinates ``each`` for ``n_scores`` scores whose coefficients sum to zero.

    Adding the same coefficients to every score changes no probability, and a sum of zero makes the
    norm smallest. So there are ``n_scores - 1`` blocks of coordinates; an orthonormal ``contrast``
    maps them to scores, and norms are kept. The class has the methods of :class:`Coordinates`.
    """

    each: Coordinates
    n_scores: int

    @cached_property
    def contrast(self) -> Array:
        """The orthonormal map from blocks to scores: (scores, scores - 1)."""
        n = self.n_scores
        centred = np.eye(n) - 1.0 / n
        return np.linalg.qr(centred[:, :-1])[0]

    @property
    def blocks(self) -> int:
        return self.n_scores - 1

    @property
    def size(self) -> int:
        return self.blocks * self.each.size

    @property
    def radius(self) -> float | None:
        return self.each.radius

    @property
    def dropped(self) -> int:
        return self.each.dropped

    @property
    def shift(self) -> Array:
        return self.each.shift

    @property
    def stiff(self) -> bool:
        return True  # rows are mapped before matrices are summed

    @property
    def map(self) -> Array:
        """The map of one score's coordinates."""
        return self.each.map

    def to_user(self, u: Array) -> Array:
        out = self.contrast @ self.each.to_user(self._apart(u))
        return out.reshape(*u.shape[:-1], -1)

    def from_user(self, w: Array) -> Array:
        blocks = self.contrast.T @ w.reshape(self.n_scores, -1)
        return np.concatenate([self.each.from_user(v) for v in blocks])

    def pull(self, grad: Array) -> Array:
        blocks = self.contrast.T @ grad.reshape(*grad.shape[:-1], self.n_scores, -1)
        return self.each.pull(blocks).reshape(*grad.shape[:-1], -1)

    def pull_curvature(self, hess: Array) -> Array:
        """Contract matrices of mapped rows, (..., scores * r, scores * r), to these coordinates."""
        n, r = self.n_scores, self.each.size
        parts = hess.reshape(*hess.shape[:-2], n, r, n, r)
        out = np.einsum("sa,...sitj,tb->...aibj", self.contrast, parts, self.contrast,
                        optimize=True)  # fmt: skip
        return np.ascontiguousarray(out.reshape(*hess.shape[:-2], self.size, self.size))

    def coef(self, u: Array) -> Array:
        blocks = np.array([self.each.coef(v) for v in self._apart(u)])
        return (self.contrast @ blocks).reshape(-1)

    def coef_norm(self, u: Array) -> float:
        return float(np.linalg.norm([self.each.coef_norm(v) for v in self._apart(u)]))

    def coef_gram(self) -> Array:
        return np.kron(np.eye(self.blocks), self.each.coef_gram())

    def project(self, u: Array) -> Array:
        """Return the nearest ``u`` with ``||coef|| <= radius``."""
        if self.radius is None or self.coef_norm(u) <= self.radius:
            return u
        # All blocks share one multiplier, so they shrink along the path of one block whose
        # squared coordinates are the sums over blocks.
        vectors, values = self.each.ball
        v = self._apart(u) if vectors is None else self._apart(u) @ vectors
        sizes = np.linalg.norm(v, axis=0)
        alone = replace(self.each, basis=values, shift=np.zeros(len(values)), intercept=False)
        shrunk = alone.project(sizes)
        v = v * np.where(sizes > 0, shrunk / np.where(sizes > 0, sizes, 1.0), 0.0)
        out = v if vectors is None else v @ vectors.T
        norm = self.coef_norm(out.reshape(-1))
        if norm > self.radius:  # correct for rounding
            out = out.copy()
            features = self.each.size - int(self.each.intercept)
            out[:, :features] *= self.radius / norm * (1 - 2**-51)
        return out.reshape(-1)

    def _apart(self, u: Array) -> Array:
        return u.reshape(*u.shape[:-1], self.blocks, self.each.size)
