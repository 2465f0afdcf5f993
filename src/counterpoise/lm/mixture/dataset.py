"""`MixtureDataset`: samples of many domains, drawn by weights that may change at any time."""

from __future__ import annotations

import copy
import os
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch.utils.data import IterableDataset, get_worker_info

from counterpoise.common.arguments import check_weights, check_whole
from counterpoise.lm.corpus.tokens import Corpus, Tokens
from counterpoise.lm.mixture.board import Board
from counterpoise.lm.mixture.draws import EXHAUSTION, Change, Draws
from counterpoise.lm.mixture.loader import MixtureLoader
from counterpoise.lm.mixture.samples import Samples
from counterpoise.torch.distributed import rank_of, world_size

Array = np.ndarray
Sample = dict[str, torch.Tensor]

STATE_VERSION = 1
RECENT = 64  # batches handed out of which the position is remembered


class MixtureDataset(IterableDataset[Sample]):
    """Samples of several domains, in shares that follow the weights.

    One stream of numbered samples is shared out among ranks and workers: each follows all draws
    and reads its own. So the order of samples depends on the seed and on which weights held
    from which sample on, and on nothing else; no sample comes twice in an epoch of its domain.

    Use it through `loader`, which counts what was consumed; changed weights then reach all
    workers, and its state can be resumed with other numbers of ranks and workers.

    Parameters
    ----------
    corpus : Corpus, path, or mapping of names to Tokens
    length : int
        Tokens in a sample.
    weights : sequence or mapping, optional
        First weights of the domains; in proportion to their tokens when None. Zero is allowed.
    split : str, default "train"
    domains : sequence of str, optional
        Of the corpus; all when None.
    packed : bool, default True
        See `Samples`.
    proportions : {"tokens", "samples"}, default "tokens"
        What the weights are shares of. They differ when samples are documents of unlike lengths.
    exhaustion : {"repeat", "drop", "stop"}, default "repeat"
        When a domain has been read: it starts anew in another order; the others go on without it;
        or the stream ends. An end is the same for all ranks: what does not fill a batch of all of
        them is left out.
    seed : int, default 0
    batch_size : int, default 1
        Samples of a batch on one rank. Ranks and workers take turns by batches, so whoever loads
        them must use the same size; `loader` sees to it.
    rank, world_size : int, optional
        Which share of every batch is read here; by default those of torch.distributed.

    Every sample has, beside what `Samples` gives, its ``domain`` (position in ``domains``).
    """

    def __init__(
        self,
        corpus: Corpus | str | os.PathLike[str] | Mapping[str, Tokens],
        length: int,
        *,
        weights: Any = None,
        split: str = "train",
        domains: Sequence[str] | None = None,
        packed: bool = True,
        proportions: str = "tokens",
        exhaustion: str = "repeat",
        seed: int = 0,
        batch_size: int = 1,
        rank: int | None = None,
        world_size: int | None = None,
    ) -> None:
        if isinstance(corpus, (str, os.PathLike)):
            corpus = Corpus.open(corpus)
        if isinstance(corpus, Corpus):
            corpus = {name: corpus.tokens(name, split) for name in domains or corpus.domains}
        if not corpus:
            raise ValueError("corpus has no domains; prepare at least one")
        if proportions not in ("tokens", "samples"):
            raise ValueError(f"proportions must be 'tokens' or 'samples'; got {proportions!r}")
        if exhaustion not in EXHAUSTION:
            raise ValueError(f"exhaustion must be one of {EXHAUSTION}; got {exhaustion!r}")
        self.domains = list(corpus)
        self.samples = [Samples(tokens, length, packed=packed) for tokens in corpus.values()]
        self.length, self.packed, self.proportions = int(length), packed, proportions
        self.batch_size = check_whole("batch_size", batch_size, 1)
        self._ranks = (rank, world_size)
        self._find_rank()
        self.mean_tokens = np.array([s.mean_tokens() for s in self.samples])
        sizes = np.array([len(s) for s in self.samples], dtype=np.int64)
        tokens = sizes * self.mean_tokens
        first = tokens / tokens.sum()
        if weights is not None:
            first = check_weights(weights, self.domains, zeros=True)
        self._draws = Draws(
            self.domains,
            sizes,
            int(seed),
            [Change(0, first)],
            self.mean_tokens if proportions == "tokens" and not packed else None,
            exhaustion,
        )
        self._within = 0  # samples given out of the batch that starts where the draws stand
        self._placed = False  # whether the batches of workers before this one have been passed
        self._lag = 0  # batches that a loader may have had drawn ahead of what was consumed,
        self._ahead = False  # once it runs
        self._loads = 0  # loaders that were made; the last one counts
        self._iteration = 0  # of a loader; a later one, or a state that is loaded, ends the others
        self._entered = True  # whether this object may be iterated; a loader's reader only by it
        self._board = Board(len(self.domains))
        self._seen = 0
        self._recent: deque[Draws] = deque(maxlen=RECENT)
        self.handed = 0
        self.count_untrained: Callable[[], int] | None = None

    def untrained(self) -> int:
        """Batches that a loader handed out and that were not trained on, by ``count_untrained`` of
        a framework that fetches ahead. They are neither in the report nor in the state, and come
        again in the next iteration. ``handed`` counts the batches handed out."""
        return 0 if self.count_untrained is None else self.count_untrained()

    def _trained(self) -> Draws:
        """Where training stands."""
        ahead = self.untrained()
        if ahead == 0:
            return self._draws
        if not 0 < ahead <= len(self._recent):
            raise RuntimeError(
                f"{ahead} batches are said to be untrained, of {len(self._recent)} that are "
                "remembered; the framework's loop does not train on this mixture's loader"
            )
        return self._recent[-ahead]

    @property
    def number(self) -> int:
        """Samples consumed so far, on all ranks."""
        return self._draws.number + (self._within > 0) * self.whole_batch

    @property
    def whole_batch(self) -> int:
        """Samples of a batch on all ranks."""
        return self.batch_size * self.world_size

    @property
    def weights(self) -> Array:
        """Weights in force at the next sample."""
        self._sync()
        return self._draws.weights

    def set_weights(self, weights: Any, *, at: int | None = None) -> int:
        """Let weights hold from sample ``at`` of the whole stream on; returns ``at``.

        By default that is the first sample that nobody can have drawn yet: the next batch, or
        with a loader that runs, ``loader.lag`` batches later. On several ranks all must set the
        same weights at the same time.
        """
        found = check_weights(weights, self.domains, zeros=True)
        self._sync()
        first = self.number + (self._lag * self.whole_batch if self._ahead else 0)
        at = first if at is None else check_whole("at", at)
        if at < first:
            raise ValueError(
                f"at={at!r} is too early: samples up to {first} may have been drawn; leave it out "
                "to have the first one that was not"
            )
        change = Change(at, found)
        self._change(change)
        for draws in self._recent:
            if change.at >= draws.number:
                draws.change(*change)
        self._board.post(change)
        self._seen = self._board.count
        return change.at

    def loader(self, batch_size: int | None = None, **options: Any) -> MixtureLoader:
        """A `MixtureLoader` of this dataset; see there for the options."""
        return MixtureLoader(self, batch_size, **options)

    def _be_loaded(self, batch_size: int | None, lag: int) -> MixtureDataset:
        """From now on this object stands where a loader's consumer does; returned is the one whose
        samples the loader's workers read."""
        self._finish_batch()
        if batch_size is not None:
            self.batch_size = check_whole("batch_size", batch_size, 1)
        self._lag = lag
        self._loads += 1
        reader = copy.copy(self)
        reader._entered = False
        return reader

    def _begin(self, reader: MixtureDataset) -> int:
        """A loader's iteration: its reader starts here and runs ahead. Returns its number."""
        self._find_rank()
        self._finish_batch()
        self._ahead = True
        self._iteration += 1
        self._board, self._seen = Board(len(self.domains)), 0  # of this process and its workers
        reader.rank, reader.world_size = self.rank, self.world_size
        reader._draws, reader._within, reader._placed = self._draws.copy(), 0, False
        reader._board, reader._seen, reader._entered = self._board, 0, True
        return self._iteration

    def _pass_batch(self) -> None:
        """A batch was handed out by a loader."""
        self._recent.append(self._draws.copy())
        self._draws.take(self.whole_batch)
        self.handed += 1

    def _go_back(self) -> None:
        """To where training stands: batches that it did not use come again."""
        if ahead := self.untrained():
            self.load_state_dict(self.state_dict())
            self.handed -= ahead

    def _finish_batch(self) -> None:
        """Leave a batch that was read to its end; one that was not would lose samples."""
        if self._placed or 0 < self._within < self.batch_size:
            raise RuntimeError(
                "the mixture stands in the middle of a batch, or is one worker's part of it; load "
                "a state that a MixtureLoader gave"
            )
        if self._within:
            self._draws.take(self.whole_batch)
            self._within = 0

    def _find_rank(self) -> None:
        """Frameworks may set up torch.distributed after the mixture was made."""
        given, size = self._ranks
        if (given is None) != (size is None):
            raise ValueError(f"give both rank and world_size, or none; got {given!r}, {size!r}")
        if given is None or size is None:
            self.rank, self.world_size = rank_of(), world_size()
        elif 0 <= given < size:
            self.rank, self.world_size = given, size
        else:
            raise ValueError(f"rank must be in 0 to world_size - 1; got {given!r} of {size!r}")

    def __iter__(self) -> Iterator[Sample]:
        """This rank's (and this worker's) samples from where the stream stands, without end unless
        the exhaustion policy has one."""
        if not self._entered:
            raise RuntimeError(
                "a MixtureLoader's samples were asked for around it, so that it cannot count them; "
                "use the loader itself, not one that was made from it (Accelerator.prepare). Or "
                "prepare DataLoader(mixture, batch_size=mixture.batch_size), without set_weights"
            )
        return self._stream()

    def _stream(self) -> Iterator[Sample]:
        info = get_worker_info()
        worker, workers = (0, 1) if info is None else (info.id, info.num_workers)
        first = self.rank * self.batch_size
        if not self._placed:
            self._draws.take(worker * self.whole_batch)
        self._placed = info is not None
        while True:
            self._sync()
            ahead = self._draws.copy()
            domains, ordinals = ahead.take(self.whole_batch)
            if len(domains) < self.whole_batch:
                return
            while self._within < self.batch_size:
                i = first + self._within
                self._within += 1
                yield self.read(int(domains[i]), int(ordinals[i]))
            self._sync()  # now that the next batch is asked for
            ahead.changes = self._draws.changes
            self._draws, self._within = ahead, 0
            self._draws.take((workers - 1) * self.whole_batch)

    def read(self, domain: int, ordinal: int) -> Sample:
        """Draw number ``ordinal`` of a domain."""
        sample = self.samples[domain][self._draws.sample(domain, ordinal)]
        sample["domain"] = torch.tensor(domain)
        return sample

    @property
    def own_samples(self) -> bool:
        """Whether a subclass makes the samples itself."""
        return type(self).read is not MixtureDataset.read

    def report(self) -> dict[str, dict[str, float]]:
        """What each domain has given so far, on all ranks.

        ``samples``, ``tokens`` (of documents by themselves: by their mean length), ``epochs``,
        ``weight`` in force, realised ``share`` and the ``target`` share that the weights asked for
        over the whole stream, in tokens or samples as ``proportions`` says.
        """
        draws = self._trained()
        unit = self.mean_tokens if self.proportions == "tokens" else np.ones(len(self.domains))
        given, asked = draws.cursors * unit, draws.expected * unit
        columns = {
            "samples": draws.cursors,
            "tokens": draws.cursors * self.mean_tokens,
            "epochs": draws.cursors / draws.sizes,
            "weight": self.weights,
            "share": given / max(given.sum(), 1.0),
            "target": asked / max(asked.sum(), 1.0),
        }
        return {
            name: {key: float(values[k]) for key, values in columns.items()}
            for k, name in enumerate(self.domains)
        }

    def state_dict(self) -> dict[str, Any]:
        """Where the stream stands: a few numbers per domain, and per change of weights that lies
        ahead, whatever has been read; the same on all ranks.
        """
        self._sync()
        draws = self._trained()
        if draws is self._draws:
            return self._describe(draws, self._within, self._placed)
        return self._describe(draws)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a `state_dict` of the same domains, length and seed.

        The next sample is the one that would have come. With a loader's state, numbers of ranks,
        workers and samples in a batch may differ: the stream of samples and the weights that hold
        are kept, and from here on it is cut into the new batches.
        """
        draws, within = self._restored(state), int(state["within"])
        self._draws, self._within, self._placed = draws, within, bool(state["placed"])
        self._recent.clear()
        self._ahead = False
        self._iteration += 1
        self._seen = self._board.count

    def _describe(self, draws: Draws, within: int = 0, placed: bool = False) -> dict[str, Any]:
        """A position in this mixture's stream as plain numbers and strings."""
        return {
            "version": STATE_VERSION,
            **self._identity(),
            "number": draws.number,
            "cursors": draws.cursors.tolist(),
            "expected": draws.expected.tolist(),
            "changes": [[c.at, c.weights.tolist()] for c in draws.pending()],
            "within": within,
            "placed": placed,
        }

    def _restored(self, state: Mapping[str, Any]) -> Draws:
        """The position that a state describes."""
        version = state.get("version")
        if version != STATE_VERSION:
            raise ValueError(f"state has version {version!r}; this release reads {STATE_VERSION}")
        for what, value in self._identity().items():
            if state[what] != value:
                raise ValueError(
                    f"state is of a mixture with {what}={state[what]!r}, this one has {value!r}: "
                    "its samples would not be those that are left"
                )
        draws = self._draws.copy()
        draws.number = int(state["number"])
        draws.cursors = np.array(state["cursors"], dtype=np.int64)
        draws.expected = np.array(state["expected"], dtype=float)
        draws.changes = [Change(int(at), np.array(w, dtype=float)) for at, w in state["changes"]]
        return draws

    def _identity(self) -> dict[str, Any]:
        """What must not differ between saving and loading."""
        return {
            "domains": list(self.domains),
            "sizes": self._draws.sizes.tolist(),
            "length": self.length,
            "packed": self.packed,
            "seed": self._draws.seed,
        }

    def _change(self, change: Change) -> None:
        if change.at < self.number:
            raise RuntimeError(
                f"weights for sample {change.at} and later came when {self.number} samples had "
                "been drawn; let MixtureDataset.loader() choose when they hold, or raise its lag"
            )
        self._draws.change(*change)

    def _sync(self) -> None:
        """See changes of weights that were put up by the main process."""
        for change in self._board.since(self._seen):
            self._change(change)
            self._seen += 1

    def __repr__(self) -> str:
        pairs = zip(self.domains[:8], self._draws.weights[:8], strict=True)
        shown = ", ".join(f"{name}={weight:.3g}" for name, weight in pairs)
        return f"MixtureDataset({len(self.domains)} domains of {self.length} tokens: {shown})"
