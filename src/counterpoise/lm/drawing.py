"""`Drawing`: hand weights to a mixture by one way of sampling."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from counterpoise.common.arguments import check_counts, one_each
from counterpoise.lm.mixture.dataset import MixtureDataset
from counterpoise.reweight.checks import check_errors, check_total, finite
from counterpoise.reweight.sampling import (
    Sampling,
    effective_sample_size,
    get_sampling,
    loss_factors,
)
from counterpoise.reweight.tags import Tags

Array = np.ndarray


class Drawing:
    """Shares that samples are drawn by, the factors of their losses, and the domains' spreads.

    Parameters
    ----------
    sampling : str or Sampling
    weighed : sequence
        Names of what has weights. The mixture's order may differ.
    mixture : MixtureDataset, optional
        Receives shares and factors.
    tags : Tags, optional
        If given, tags are weighed, and samples are drawn by patterns of tags.

    Attributes
    ----------
    domains : tuple
        Names of what is drawn, in the order of all arrays.
    shares, loss_factors : arrays of shape (K,)
        Those of the latest weights.
    spreads : array of shape (K,)
        Standard deviations of single losses, up to a common factor; NaN where unknown.
    """

    def __init__(
        self,
        sampling: str | Sampling,
        weighed: Sequence[Any],
        mixture: MixtureDataset | None,
        tags: Tags | None = None,
    ) -> None:
        self.sampling, self.mixture, self.tags = get_sampling(sampling), mixture, tags
        self.weighed = tuple(weighed)
        self.domains = self.weighed if tags is None else tags.domains
        if tags is not None and set(tags.tags) != set(self.weighed):
            raise ValueError(
                f"the tags are {list(tags.tags)[:10]!r}, the reweighter has "
                f"{list(self.weighed)[:10]!r}; use Reweighter(tags.tags, ...)"
            )
        if mixture is not None and set(mixture.domains) != set(self.domains):
            has = "the reweighter" if tags is None else "the tags have the patterns"
            use = "Reweighter(mixture.domains, ...)" if tags is None else "a pattern per domain"
            raise ValueError(
                f"the mixture has domains {mixture.domains!r}, {has} {list(self.domains)!r}; "
                f"use {use}"
            )
        if mixture is not None and self.apart and not isinstance(mixture, MixtureDataset):
            raise ValueError(
                f"sampling={self.sampling.name!r}: batches of a {type(mixture).__name__} carry no "
                "factors of their losses; use sampling='weights'"
            )
        self.spreads = np.full(len(self.domains), np.nan)
        self.shares = self.loss_factors = np.ones(len(self.domains))

    @property
    def apart(self) -> bool:
        """Whether losses must be weighed."""
        return self.sampling.apart

    def apply(self, weights: Array) -> None:
        """Draw samples for these weights from now on."""
        given = self._find(weights)
        if self.mixture is None:
            return
        if not self.apart:
            self.mixture.set_weights(self._named(self.shares))
            return
        if given is not None and np.allclose(given, self._of_mixture(), rtol=1e-12, atol=0.0):
            given = None  # new factors of unchanged shares need not wait for workers
        self.mixture.set_weights(
            None if given is None else self._named(given),
            loss_weights=self._named(self.loss_factors),
        )

    def _find(self, weights: Array) -> Array | None:
        """Find shares and factors; return the shares if the mixture needs new ones."""
        if self.tags is not None:
            weights = self.tags.weights(dict(zip(self.weighed, weights.tolist(), strict=True)))
        known = np.isfinite(self.spreads)
        usual = float(self.spreads[known].mean()) if known.any() else 1.0
        found = self.sampling.shares(self.domains, weights, np.where(known, self.spreads, usual))
        self.shares = self._of_mixture() if found is None else found
        self.loss_factors = loss_factors(weights, self.shares)
        return found

    def _of_mixture(self) -> Array:
        if self.mixture is None:
            raise ValueError(
                f"sampling={self.sampling!r} keeps the shares of a mixture, but there is none; "
                "give the shares, Fixed({...}), or a mixture"
            )
        shares: dict[Any, float] = dict(
            zip(self.mixture.domains, self.mixture.latest_weights.tolist(), strict=True)
        )
        return np.array([shares[name] for name in self.domains])

    def _named(self, values: Array) -> dict[Any, float]:
        return dict(zip(self.domains, values.tolist(), strict=True))

    def measured(self, errors: Any, counts: Any, spreads: Any) -> Array:
        """Return what is known of the spreads after a measurement, without keeping it."""
        if not self.sampling.measures:
            if spreads is not None:
                raise ValueError(
                    f"spreads have no effect on sampling={self.sampling.name!r}; leave them out, "
                    "or use sampling='variance'"
                )
            return self.spreads
        if spreads is not None:
            found = one_each(spreads, self.domains, "spreads")
            if (found < 0).any() or np.isinf(found).any():
                raise ValueError(
                    f"spreads must be standard deviations >= 0, or NaN if unknown; got {spreads!r}"
                )
        elif errors is not None and counts is not None:
            found = check_errors(errors, self.domains)
            found = found * np.sqrt(check_counts(counts, self.domains))
        else:
            found = np.full(len(self.domains), np.nan)
        found = np.where(np.isfinite(found), found, self.spreads)
        if np.isnan(found).all():
            raise ValueError(
                "sampling='variance' needs to know how widely losses vary within the domains: give "
                "errors and counts, as domain_losses does, or spreads; or use sampling='fixed'"
            )
        return found

    def tagged(
        self, losses: Any, counts: Any, errors: Any, pieces: Any, total: Any
    ) -> tuple[Any, Any, Any, Any]:
        """Return losses, counts, errors and pieces of tags, by name, from those of patterns."""
        assert self.tags is not None
        if total is not None:
            given = np.zeros(0) if counts is None else check_counts(counts, self.domains)
            check_total(given, total, counts)
        found = self.tags.losses(losses, counts, errors, pieces)
        columns = (None if c is None else dict(zip(self.tags.tags, c, strict=True)) for c in found)
        losses, counts, errors, pieces = columns
        return losses, counts, errors, pieces

    def report(self) -> dict[Any, dict[str, float]]:
        """Report what the mixture has drawn, by domain."""
        found: dict[Any, dict[str, float]] = {} if self.mixture is None else self.mixture.report()
        if self.apart:
            for name, share in self._named(self.shares).items():
                found.setdefault(name, {})["drawn_by"] = share
        return found

    def record(self) -> dict[str, float]:
        """Describe how far shares are from the weights."""
        weights = self.loss_factors * self.shares
        return {
            "effective_sample_size": effective_sample_size(weights, self.shares),
            "largest_ratio": float(self.loss_factors.max()),
        }

    def state_dict(self) -> dict[str, Any] | None:
        """Return what a resume needs, as JSON; None if it needs nothing."""
        if not self.apart:
            return None
        return {"domains": list(self.domains), "spreads": finite(self.spreads)}

    def check_state(
        self, mixture: Mapping[str, Any] | None, state: Mapping[str, Any] | None
    ) -> bool:
        """Return whether a mixture's state has factors of losses; refuse what does not fit."""
        if state is not None and set(state["domains"]) != set(self.domains):
            raise ValueError(
                f"the state's sampling is of the domains {state['domains'][:10]!r}, but these are "
                f"{list(self.domains)[:10]!r}; load the state of the same domains"
            )
        if self.mixture is None or mixture is None:
            return False
        weighed = any(len(change) > 2 for change in mixture.get("changes", ()))
        if weighed and not self.apart:
            raise ValueError(
                "the state draws samples by other shares than the weights, but sampling='weights' "
                "does not weigh losses; use the sampling that the state was saved with"
            )
        return weighed

    def restore(self, state: Mapping[str, Any] | None, weights: Array, weighed: bool) -> None:
        """Resume after the mixture has; one without factors of losses gets them now."""
        if state is not None:
            spreads = dict(zip(state["domains"], state["spreads"], strict=True))
            found = [spreads[name] for name in self.domains]
            self.spreads = np.array([np.nan if s is None else s for s in found], dtype=float)
        if self.apart and not weighed:
            self.apply(weights)
        else:
            self._find(weights)
