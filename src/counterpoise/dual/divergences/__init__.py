"""Divergences on the simplex. A new one needs a file here and a line in ``NAMED``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from counterpoise.common.arguments import chosen
from counterpoise.dual.divergences.base import Divergence, SimplexPoint
from counterpoise.dual.divergences.chi_square import ChiSquare
from counterpoise.dual.divergences.cvar import CVaR
from counterpoise.dual.divergences.fixed import Fixed
from counterpoise.dual.divergences.kl import KL

__all__ = [
    "KL",
    "NAMED",
    "CVaR",
    "ChiSquare",
    "Divergence",
    "Fixed",
    "SimplexPoint",
    "check_nu",
    "check_prior",
    "from_config",
    "get_divergence",
    "risk",
]

Array = np.ndarray

NAMED: dict[str, type[Divergence]] = {"kl": KL, "chi2": ChiSquare, "cvar": CVaR}


def get_divergence(divergence: str | Divergence) -> Divergence:
    """Return the divergence with this name, or the object itself."""
    found: Divergence = chosen("divergence", divergence, Divergence, NAMED, " or a Divergence")
    return found


def from_config(config: Mapping[str, Any]) -> Divergence:
    """Return the divergence that :meth:`Divergence.config` describes."""
    options = {key: item for key, item in config.items() if key != "name" and item is not None}
    return NAMED[str(config["name"])](**options)


def check_prior(prior: Array | None, n_groups: int) -> Array:
    """Return the prior as a positive probability vector; uniform if None."""
    if prior is None:
        return np.full(n_groups, 1.0 / n_groups)
    p = np.asarray(prior, dtype=float)
    if p.shape != (n_groups,):
        raise ValueError(f"prior must hold one weight for each of {n_groups} groups; got {p.shape}")
    if not np.isfinite(p).all() or (p <= 0).any():
        bad = int(np.flatnonzero(~(np.isfinite(p) & (p > 0)))[0])
        raise ValueError(
            f"prior must be positive and finite; entry {bad} is {p[bad]!r}. "
            "To give a group no weight, leave out its rows."
        )
    if abs(p.sum() - 1.0) > 1e-6:
        raise ValueError(f"prior must sum to 1; it sums to {p.sum():.6g}. Divide it by its sum.")
    return p / p.sum()


def check_nu(nu: float) -> float:
    """Return ``nu`` as a float >= 0, possibly infinite."""
    if isinstance(nu, bool) or not isinstance(nu, (int, float, np.integer, np.floating)):
        raise ValueError(f"nu must be a number >= 0, in units of the loss; got {nu!r}")
    if not nu >= 0:
        raise ValueError(
            f"nu must be >= 0; got {nu!r}. nu = 0 is the worst group alone, inf the plain average."
        )
    return float(nu)


def risk(
    losses: Array,
    nu: float,
    divergence: str | Divergence = "kl",
    prior: Array | None = None,
) -> float:
    """Compute the risk ``R = max_lam sum_i lam_i losses_i - nu d_f(lam, prior)``.

    Parameters
    ----------
    losses : array of shape (K,)
        One loss per group.
    nu : float
        Strength of the pull towards the prior, in units of the loss. Zero gives the largest
        loss; infinity gives the prior-weighted mean.
    divergence : {"kl", "chi2", "cvar"} or Divergence
    prior : array of shape (K,), optional
        Uniform if None.

    Examples
    --------
    >>> risk([1.0, 3.0], nu=0.0)
    3.0
    >>> round(risk([1.0, 3.0], nu=1e9), 6)
    2.0
    """
    values = np.asarray(losses, dtype=float)
    if values.ndim != 1 or values.size == 0:
        raise ValueError(f"losses must be a vector with one entry per group; got {values.shape}")
    if not np.isfinite(values).all():
        raise ValueError("losses must be finite numbers")
    d_f = Fixed() if check_nu(nu) == np.inf else get_divergence(divergence)
    return d_f.risk(values, check_prior(prior, values.size), float(nu))
