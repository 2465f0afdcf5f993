"""`mixed`: draw from any iterables by published weights."""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from counterpoise.common.arguments import check_choice, check_version, check_whole
from counterpoise.lm.mixture.draws import EXHAUSTION, Change, Draws
from counterpoise.lm.published import PublishedWeights, WeightsFile
from counterpoise.lm.readers.feed import Feed
from counterpoise.reweight.checks import check_domains

Name = str | int

STATE_VERSION = 1
# Draws between looks at the file.
EVERY = 100
# More samples than any source has: how many there are shows only at their end.
ENDLESS = 1 << 62


class Version(NamedTuple):
    """Published weights, and the first draw that was made by them."""

    draw: int
    update: int
    step: int


class MixedStream(Iterator[tuple[Name, Any]]):
    """Pairs of a domain and a sample, drawn by published weights; made by `mixed`.

    Attributes
    ----------
    domains : tuple
    number : int
        Draws so far.
    versions : list of Version
        Which draws were made by which update of the weights.
    """

    def __init__(
        self,
        sources: Mapping[Name, Iterable[Any]],
        weights: str | os.PathLike[str],
        *,
        seed: int = 0,
        every: int = EVERY,
        exhaustion: str = "stop",
        corpus: str | None = None,
    ) -> None:
        check_choice("exhaustion", exhaustion, EXHAUSTION)
        self.domains = check_domains(sources)
        self.every = check_whole("every", every, 1)
        self.seed, self.exhaustion = check_whole("seed", seed), exhaustion
        self._feeds = [Feed(name, source) for name, source in sources.items()]
        self._file = WeightsFile(weights, self.domains, corpus=corpus)
        first = self._file.current
        self._draws = Draws(
            list(map(str, self.domains)),
            np.full(len(self.domains), ENDLESS, dtype=np.int64),
            self.seed,
            [Change(0, first.array(self.domains))],
            exhaustion="drop" if exhaustion == "drop" else "repeat",
        )
        self.versions = [Version(0, first.update, first.step)]
        # Domains of the draws that are planned, and how many of them were made.
        self._plan: list[int] = []
        self._made = 0

    @property
    def number(self) -> int:
        return self._draws.number + self._made

    @property
    def weights(self) -> dict[Name, float]:
        """The weights that were read last."""
        return dict(self._file.current.weights)

    def version(self, draw: int | None = None) -> Version:
        """Return the version of the weights that a draw was made by; the last draw's if None."""
        at = self.number - 1 if draw is None else check_whole("draw", draw)
        return self.versions[max(bisect_right(self.versions, at, key=lambda v: v.draw) - 1, 0)]

    def __iter__(self) -> MixedStream:
        return self

    def __next__(self) -> tuple[Name, Any]:
        while True:
            if self._made == len(self._plan):
                self._look_ahead()
            k = self._plan[self._made]
            try:
                sample = self._feeds[k].draw(again=self.exhaustion == "repeat")
            except StopIteration:
                if self.exhaustion != "drop":
                    raise
                self._drop(k)
                continue
            self._made += 1
            return self.domains[k], sample

    def state_dict(self) -> dict[str, Any]:
        """Return where the stream stands; plain JSON if the states of the sources are."""
        draws = self._draws.copy()
        draws.take(self._made)
        return {
            "version": STATE_VERSION,
            **self._identity(),
            "number": draws.number,
            "cursors": draws.cursors.tolist(),
            "ended": [bool(size != ENDLESS) for size in draws.sizes],
            "versions": [list(version) for version in self.versions],
            "weights": self._file.current.as_dict(),
            "sources": [feed.state_dict() for feed in self._feeds],
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue where a state was taken: no sample is repeated or lost.

        The weights are those of the state until the next look at the file.
        """
        check_version(state, STATE_VERSION)
        for what, value in self._identity().items():
            if state[what] != value:
                raise ValueError(
                    f"state belongs to a stream with {what}={state[what]!r}, but this one has "
                    f"{value!r}; its remaining draws would be others"
                )
        seen = PublishedWeights.from_dict(state["weights"])
        self._file.resume(seen)
        self.versions = [Version(*map(int, version)) for version in state["versions"]]
        draws = self._draws.copy()
        draws.number = int(state["number"])
        draws.cursors = np.array(state["cursors"], dtype=np.int64)
        draws.sizes = np.where(state["ended"], draws.cursors, ENDLESS)
        draws.changes = [Change(self.versions[-1].draw, seen.array(self.domains))]
        self._draws, self._plan, self._made = draws, [], 0
        for feed, saved in zip(self._feeds, state["sources"], strict=True):
            feed.load_state_dict(saved)

    def _identity(self) -> dict[str, Any]:
        """Return what must not differ between saving and loading."""
        return {"domains": list(self.domains), "seed": self.seed, "exhaustion": self.exhaustion}

    def _settle(self) -> None:
        """Count the draws that were made, and forget the others."""
        self._draws.take(self._made)
        self._plan, self._made = [], 0

    def _look_ahead(self) -> None:
        """Plan the draws up to the next look at the file; look now if it is time."""
        self._settle()
        within = self.number % self.every
        if within == 0:
            self._look()
        self._plan = self._draws.copy().take(self.every - within).domains.tolist()
        if not self._plan:  # all sources have ended
            raise StopIteration

    def _look(self) -> None:
        found = self._file.newer()
        if found is None:
            return
        self._draws.change(self.number, found.array(self.domains))
        before = [version for version in self.versions if version.draw < self.number]
        self.versions = [*before, Version(self.number, found.update, found.step)]

    def _drop(self, k: int) -> None:
        """Continue without a source that has ended; the draw that found it is made again."""
        self._settle()
        sizes = self._draws.sizes.copy()
        sizes[k] = self._draws.cursors[k]
        self._draws.sizes = sizes

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={weight:.3g}" for name, weight in [*self.weights.items()][:8])
        return f"MixedStream({len(self.domains)} domains: {shown}; {self.number} draws)"


def mixed(
    sources: Mapping[Name, Iterable[Any]],
    weights: str | os.PathLike[str] = "weights.json",
    *,
    seed: int = 0,
    every: int = EVERY,
    exhaustion: str = "stop",
    corpus: str | None = None,
) -> MixedStream:
    """Draw from iterables by published weights.

    Parameters
    ----------
    sources : mapping of domains to iterables
        One with ``state_dict`` and ``load_state_dict`` resumes by them: its next iteration must
        continue where the state was taken, and later ones start anew. Others are read again up to
        where they were.
    weights : path, default "weights.json"
        The file that a run publishes. It must exist, and be of the same domains.
    seed : int, default 0
        Seed of the draws. Give one of its own to each rank and worker that has its own sources.
    every : int, default 100
        The file is looked at before draws 0, ``every``, ``2 * every``, ...; new weights hold from
        the draw before which they were found.
    exhaustion : {"stop", "repeat", "drop"}, default "stop"
        What happens when a source ends: the stream ends, the source starts again, or the others
        continue without it.
    corpus : str, optional
        Identity of the corpus; weights of another one are refused. If not given, that of the first
        weights.

    Returns
    -------
    stream : MixedStream
        An iterator of pairs of domain and sample.

    Notes
    -----
    The domain of draw ``n`` depends on the seed and on the weights in force at ``n`` alone. Every
    source is read in its own order, so new weights neither repeat nor lose a sample. Draws are
    spread evenly, as those of a `MixtureDataset` are.

    After an error in a source, the next draw continues the source where it was, as a resume does. A
    generator cannot continue: every further draw from it is an error.
    """
    return MixedStream(
        sources, weights, seed=seed, every=every, exhaustion=exhaustion, corpus=corpus
    )
