"""Weights of tags that overlap, over documents that each have one pattern of tags.

A document may have several tags, such as ``code`` and ``en``. Documents with the same tags form a
*pattern*, and patterns do not overlap, so samples can be drawn by patterns. With ``n_p`` tokens in
pattern ``p`` and ``N_t`` in all patterns with tag ``t``,

- the loss of a tag is ``L_t = sum_p L_p n_p / N_t`` over its patterns, and
- weights ``w_t`` of tags stand for weights ``w_p = sum_t w_t n_p / N_t`` of patterns,

so that the weighted loss is the same in both: ``sum_t w_t L_t = sum_p w_p L_p``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from counterpoise.common.arguments import check_counts, check_weights, one_each
from counterpoise.reweight.checks import (
    check_domains,
    check_errors,
    check_pieces,
)

Array = np.ndarray

BETWEEN = "+"


class TagLosses(NamedTuple):
    """Losses, counts, standard errors of tags, and pieces behind them; None if not given."""

    losses: Array
    counts: Array | None
    errors: Array | None
    pieces: Array | None = None


class Tags:
    """Which tags each pattern has, and how large it is.

    Parameters
    ----------
    patterns : mapping from names of patterns to lists of tags
        Every pattern has a tag at least.
    sizes : sequence or mapping
        Tokens of each pattern.

    Attributes
    ----------
    domains : tuple
        Names of the patterns, which are the domains of a mixture.
    tags : tuple
        Sorted; the domains of a `Reweighter`.
    shares : array of shape (P, T)
        Share of each tag's tokens that is in each pattern; columns sum to 1.

    Examples
    --------
    >>> tags = Tags({"a": ["en"], "b": ["code", "en"]}, sizes=[3, 1])
    >>> tags.tags, tags.weights([0.5, 0.5]).tolist()
    (('code', 'en'), [0.375, 0.625])
    >>> tags.losses([2.0, 4.0]).losses.tolist()
    [4.0, 2.5]
    """

    def __init__(self, patterns: Mapping[Any, Iterable[str]], sizes: Any) -> None:
        self.domains = check_domains(patterns)
        lists = [[tags] if isinstance(tags, str) else list(tags) for tags in patterns.values()]
        untagged = [name for name, tags in zip(self.domains, lists, strict=True) if not tags]
        if untagged:
            raise ValueError(
                f"the pattern {untagged[0]!r} has no tag, so no weight would reach it; give it one "
                "of its own, or leave it out"
            )
        blank = [name for name, tags in zip(self.domains, lists, strict=True) if "" in tags]
        if blank:
            raise ValueError(f"the pattern {blank[0]!r} has an empty tag; name it, or leave it out")
        self.tags = check_domains(sorted({tag for tags in lists for tag in tags}))
        number = {tag: t for t, tag in enumerate(self.tags)}
        has = np.zeros((len(lists), len(self.tags)))
        for p, tags in enumerate(lists):
            has[p, [number[tag] for tag in tags]] = 1.0
        size_P = check_counts(sizes, self.domains)
        total_T = size_P @ has
        if not (total_T > 0).all():
            empty = self.tags[int(np.flatnonzero(total_T <= 0)[0])]
            raise ValueError(f"the tag {empty!r} has no tokens; leave it out")
        self.shares = size_P[:, None] * has / total_T

    @classmethod
    def of_names(
        cls, domains: Sequence[str], sizes: Any, *, prefix: str = "", between: str = BETWEEN
    ) -> Tags:
        """Read the tags from names such as ``web-code+en``.

        ``prefix`` is what all names begin with, such as ``"web-"``. Of a corpus that was prepared
        with ``by=``, `counterpoise.lm.domain_tags` knows the tags even where names were changed.
        """
        wrong = [name for name in domains if not name.startswith(prefix)]
        if wrong:
            raise ValueError(
                f"prefix={prefix!r}: {wrong[0]!r} does not begin with it; give the beginning of "
                "all names, or a mapping from names to tags, Tags({...}, sizes)"
            )
        lists = {name: name[len(prefix) :].split(between) for name in domains}
        empty = [name for name, tags in lists.items() if not all(tags)]
        if empty:
            raise ValueError(
                f"{empty[0]!r} has an empty tag between {between!r}; give a mapping from names to "
                "tags, Tags({...}, sizes)"
            )
        return cls(lists, sizes)

    def weights(self, weights: Any) -> Array:
        """Return the weights of patterns that weights of tags stand for."""
        found = self.shares @ check_weights(weights, self.tags, zeros=True)
        return found / found.sum()

    def losses(
        self, losses: Any, counts: Any = None, errors: Any = None, pieces: Any = None
    ) -> TagLosses:
        """Return the losses of tags, from those of patterns.

        A pattern counts by its size, however much of it was evaluated. Errors of patterns are taken
        to be independent. A tag's loss leaves out patterns with a count of zero, and is unknown
        if a loss of one of its other patterns is.
        """
        loss_P = one_each(losses, self.domains, "losses")
        given_P = None if counts is None else check_counts(counts, self.domains)
        here = np.ones(len(loss_P), dtype=bool) if given_P is None else given_P > 0
        broken = here & ~np.isfinite(loss_P)
        share = self.shares * here[:, None]
        with np.errstate(invalid="ignore"):
            share = share / share.sum(axis=0)  # NaN where a tag has no pattern with tokens
        loss_T = np.where(here & ~broken, loss_P, 0.0) @ share
        loss_T = np.where((broken[:, None] & (share > 0)).any(axis=0), np.nan, loss_T)
        count_T = error_T = piece_T = None
        if given_P is not None:
            count_T = given_P @ (self.shares > 0)
        if errors is not None:
            error_P = check_errors(errors, self.domains)
            part = np.where(share > 0, error_P[:, None] * share, 0.0) ** 2
            error_T = np.sqrt(np.where(np.isnan(loss_T), np.nan, part.sum(axis=0)))
            if pieces is not None:
                piece_T = _pooled_pieces(part, check_pieces(pieces, self.domains))
        return TagLosses(loss_T, count_T, error_T, piece_T)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({len(self.domains)} patterns of {len(self.tags)} tags)"


def _pooled_pieces(variances: Array, pieces: Array) -> Array:
    """Return the pieces that sums of variances stand for, by Welch and Satterthwaite.

    >>> _pooled_pieces(np.array([[1.0, 1.0], [1.0, 0.0]]), np.array([5.0, 9.0])).round(6).tolist()
    [11.666667, 5.0]
    """
    freedom = np.maximum(pieces - 1.0, 1.0)[:, None]
    with np.errstate(invalid="ignore", divide="ignore"):
        found = variances.sum(axis=0) ** 2 / (variances**2 / freedom).sum(axis=0) + 1.0
    return np.where(np.isfinite(found), found, float(pieces.max()))
