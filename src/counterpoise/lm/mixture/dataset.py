"""`MixtureDataset`: samples of several domains, drawn by weights that may change at any time."""

from __future__ import annotations

import copy
import os
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch.utils.data import IterableDataset, get_worker_info

from counterpoise.common.arguments import check_version, check_weights, check_whole, one_each
from counterpoise.lm.corpus.tokens import Corpus, Tokens
from counterpoise.lm.mixture.board import Board
from counterpoise.lm.mixture.draws import EXHAUSTION, Change, Draws
from counterpoise.lm.mixture.loader import MixtureLoader
from counterpoise.lm.mixture.samples import Samples
from counterpoise.torch.distributed import rank_of, world_size
from counterpoise.torch.mesh import data_rank

Array = np.ndarray
Sample = dict[str, torch.Tensor]

STATE_VERSION = 2
# Version 1 had no factors of losses; a state without them is still written as version 1.
READABLE = (1, 2)
RECENT = 64  # handed-out batches whose positions are remembered


class MixtureDataset(IterableDataset[Sample]):
    """Samples of several domains, in shares that follow the weights.

    Ranks and workers share one stream of numbered samples. Each follows all draws and reads only
    its own samples. The order therefore depends only on the seed and on the weights in force at
    each sample, and no sample repeats within an epoch of its domain.

    Use it through `loader`, which counts what was consumed. Changed weights then reach all workers,
    and a saved state can be resumed with other numbers of ranks and workers.

    Parameters
    ----------
    corpus : Corpus, path, or mapping of names to Tokens
    length : int
        Tokens per sample.
    weights : sequence or mapping, optional
        First weights of the domains, zero allowed; proportional to their tokens if None.
    split : str, default "train"
    domains : sequence of str, optional
        Domains of the corpus to use; all if None.
    packed : bool, default True
        See `Samples`.
    proportions : {"tokens", "samples"}, default "tokens"
        What the weights are shares of. The two differ if samples are documents of different
        lengths.
    exhaustion : {"repeat", "drop", "stop"}, default "repeat"
        What happens when a domain has been read: it starts again in another order, the others
        continue without it, or the stream ends. All ranks end together; an incomplete last batch
        is dropped.
    seed : int, default 0
    batch_size : int, default 1
        Samples per batch on one rank. Ranks and workers take turns by batches, so the loader must
        use the same size; `loader` takes care of it.
    rank, world_size : int, optional
        Which share of every batch is read here; those of torch.distributed if None.
    mesh : torch.distributed.device_mesh.DeviceMesh, optional
        Take both from its data-parallel dimensions, so that ranks that differ only in a tensor-,
        pipeline- or context-parallel dimension read the same samples; see `torch.data_rank`.

    Notes
    -----
    Every sample has the entries of `Samples` and its ``domain``, a position in ``domains``. Batches
    of a loader also have an entry ``loss_weight`` if `set_weights` was given factors of the losses.
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
        mesh: Any = None,
    ) -> None:
        if isinstance(corpus, (str, os.PathLike)):
            corpus = Corpus.open(corpus)
        if isinstance(corpus, Corpus):
            corpus = {name: corpus.tokens(name, split) for name in domains or corpus.domains}
        if not corpus:
            raise ValueError("corpus has no domains; prepare at least one")
        for tokens in corpus.values():  # here, since workers copy this object and check nothing
            tokens.verify()
        if proportions not in ("tokens", "samples"):
            raise ValueError(f"proportions must be 'tokens' or 'samples'; got {proportions!r}")
        if exhaustion not in EXHAUSTION:
            raise ValueError(f"exhaustion must be one of {EXHAUSTION}; got {exhaustion!r}")
        self.domains = list(corpus)
        self.samples = [Samples(tokens, length, packed=packed) for tokens in corpus.values()]
        self.length, self.packed, self.proportions = int(length), packed, proportions
        self.batch_size = check_whole("batch_size", batch_size, 1)
        self._ranks = (rank, world_size) if mesh is None else _rank_in(mesh, rank, world_size)
        self.find_rank()
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
        self._within = 0  # samples already yielded of the current batch
        self._placed = False  # whether the batches of earlier workers were skipped
        self._lag = 0  # batches that a loader may draw ahead of what was consumed,
        self._ahead = False  # once it runs
        self.loaders = 0  # loaders made so far; only the last one may be used
        self.iteration = 0  # of a loader; a later one, or loading a state, ends the others
        self.readable = True  # whether this object may be iterated; a reader only by its loader
        self.of_loader = False  # whether it is such a reader
        self._board = Board(len(self.domains))
        self._seen = 0
        self._recent: deque[Draws] = deque(maxlen=RECENT)
        self.handed = 0  # batches that loaders handed out
        self.count_untrained: Callable[[], int] | None = None

    def untrained(self) -> int:
        """Count the batches that were handed out but not trained on.

        A framework that fetches ahead sets ``count_untrained``. Such batches are neither reported
        nor part of the state, and they come again in the next iteration.
        """
        return 0 if self.count_untrained is None else self.count_untrained()

    def _trained(self) -> Draws:
        """Return the position that training has reached."""
        ahead = self.untrained()
        if ahead == 0:
            return self._draws
        if not 0 < ahead <= len(self._recent):
            raise RuntimeError(
                f"{ahead} batches are reported as untrained, but only the last "
                f"{len(self._recent)} are remembered; train on this mixture's own loader"
            )
        return self._recent[-ahead]

    @property
    def number(self) -> int:
        """Samples consumed so far, on all ranks."""
        return self._draws.number + (self._within > 0) * self.whole_batch

    @property
    def whole_batch(self) -> int:
        """Samples of one batch, on all ranks together."""
        return self.batch_size * self.world_size

    @property
    def weights(self) -> Array:
        """Weights in force at the next sample."""
        self._sync()
        return self._draws.weights

    @property
    def latest_weights(self) -> Array:
        """Weights of the last change, which may not be in force yet."""
        self._sync()
        return self._draws.pending()[-1].weights

    @property
    def loss_weights(self) -> Array | None:
        """What losses of the next sample count, by domain; None if all count alike."""
        self._sync()
        return self._draws.pending()[0].loss_weights

    def set_weights(self, weights: Any, *, at: int | None = None, loss_weights: Any = None) -> int:
        """Let weights hold from sample ``at`` of the whole stream; return ``at``.

        By default that is the first sample that cannot have been drawn yet: the next batch or,
        while a loader runs, ``loader.lag`` batches later. All ranks must set the same weights at
        the same time.

        Parameters
        ----------
        weights : sequence or mapping, or None
            Shares that samples are drawn by; None keeps the latest, so that ``loss_weights`` hold
            from the next batch on, whatever the lag.
        at : int, optional
        loss_weights : sequence or mapping, optional
            What the loss of a sample counts, by domain. Batches of a loader then have an entry
            ``loss_weight``, one factor for each sample: those in force where the sample stands in
            the stream. If left out, losses of samples drawn by these weights all count once.
        """
        found = None if weights is None else check_weights(weights, self.domains, zeros=True)
        factors = self._check_loss_weights(loss_weights, weights)
        self._sync()
        ahead = len(self._draws.pending()) > 1
        lag = 0 if found is None and not ahead else self._lag
        first = self.number + (lag * self.whole_batch if self._ahead else 0)
        at = first if at is None else check_whole("at", at)
        if at < first:
            raise ValueError(
                f"at={at!r} is too early: samples before {first} may have been drawn already; "
                "leave it out to use the first possible one"
            )
        drawn_by = self.latest_weights if found is None else found
        change = Change(at, drawn_by, factors)
        self._change(change)
        for draws in self._recent:
            if change.at >= draws.number:
                draws.change(*change)
        if found is not None or ahead:  # workers draw samples, and leave their losses alone
            self._board.post(change)
            self._seen = self._board.count
        return change.at

    def _check_loss_weights(self, loss_weights: Any, weights: Any) -> Array | None:
        if loss_weights is None:
            if weights is None:
                raise ValueError("weights=None keeps the weights; give loss_weights, or weights")
            return None
        if self._draws.exhaustion == "drop":
            raise ValueError(
                "exhaustion='drop' changes the shares of samples when a domain has been read, so "
                "loss_weights would no longer fit them; use exhaustion='repeat' or 'stop'"
            )
        found = one_each(loss_weights, self.domains, "loss_weights")
        if not (np.isfinite(found) & (found >= 0)).all():
            raise ValueError(f"loss_weights must be finite numbers >= 0; got {loss_weights!r}")
        return found

    def loader(self, batch_size: int | None = None, **options: Any) -> MixtureLoader:
        """Make a `MixtureLoader` of this dataset; it documents the options."""
        return MixtureLoader(self, batch_size, **options)

    def attach_loader(self, batch_size: int | None, lag: int) -> MixtureDataset:
        """Follow a new loader's consumer; return the copy that the loader's workers read."""
        self._finish_batch()
        if batch_size is not None:
            self.batch_size = check_whole("batch_size", batch_size, 1)
        self._lag = lag
        self.loaders += 1
        reader = copy.copy(self)
        reader.readable, reader.of_loader = False, True
        return reader

    def begin_iteration(self, reader: MixtureDataset) -> int:
        """Start an iteration of a loader, whose reader runs ahead; return its number."""
        self.find_rank()
        self._finish_batch()
        self._ahead = True
        self.iteration += 1
        self._board, self._seen = (
            Board(len(self.domains)),
            0,
        )  # shared with this iteration's workers
        reader.rank, reader.world_size = self.rank, self.world_size
        reader._draws, reader._within, reader._placed = self._draws.copy(), 0, False
        reader._board, reader._seen, reader.readable = self._board, 0, True
        return self.iteration

    def count_batch(self) -> Array | None:
        """Note that a loader handed out a batch; return what the losses of its samples count.

        None if all count alike.
        """
        before = self._draws.copy()
        self._recent.append(before)
        domains = self._draws.take(self.whole_batch).domains
        self.handed += 1
        mine = slice(self.rank * self.batch_size, (self.rank + 1) * self.batch_size)
        numbers = before.number + np.arange(len(domains))
        return before.loss_weights(numbers[mine], domains[mine])

    def rewind_untrained(self) -> None:
        """Return to where training stands, so that unused batches come again."""
        if ahead := self.untrained():
            self.load_state_dict(self.state_dict())
            self.handed -= ahead

    def _finish_batch(self) -> None:
        """Leave a batch that was read completely; refuse to lose samples of any other."""
        if self._placed or 0 < self._within < self.batch_size:
            raise RuntimeError(
                "the mixture is in the middle of a batch, or is the copy of one worker; load a "
                "state that a MixtureLoader returned"
            )
        if self._within:
            self._draws.take(self.whole_batch)
            self._within = 0

    def find_rank(self) -> None:
        """Find the rank late, since frameworks may set up torch.distributed late."""
        given, size = self._ranks
        if (given is None) != (size is None):
            raise ValueError(
                f"give both rank and world_size, or neither; got {given!r} and {size!r}"
            )
        if given is None or size is None:
            self.rank, self.world_size = rank_of(), world_size()
        elif 0 <= given < size:
            self.rank, self.world_size = given, size
        else:
            raise ValueError(
                f"rank must be between 0 and world_size - 1; got {given!r} of {size!r}"
            )

    def __iter__(self) -> Iterator[Sample]:
        """Yield the samples of this rank and worker from the current position on.

        There is no end unless the exhaustion policy sets one.
        """
        if not self.readable:
            raise RuntimeError(
                "samples of a MixtureLoader were read past it, so it cannot count them; iterate "
                "the loader itself, not one made from it (Accelerator.prepare). Or prepare "
                "DataLoader(mixture, batch_size=mixture.batch_size), without set_weights"
            )
        if self.loss_weights is not None and not self.of_loader:
            raise RuntimeError(
                "losses of this mixture count differently, and only batches of mixture.loader() "
                "carry their factors; iterate that"
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
            self._sync()  # the next batch is being asked for
            ahead.changes = self._draws.changes
            self._draws, self._within = ahead, 0
            self._draws.take((workers - 1) * self.whole_batch)

    def read(self, domain: int, ordinal: int) -> Sample:
        """Read the sample that a domain's draw number ``ordinal`` is."""
        sample = self.samples[domain][self._draws.sample(domain, ordinal)]
        sample["domain"] = torch.tensor(domain)
        return sample

    @property
    def own_samples(self) -> bool:
        """Whether a subclass makes the samples itself."""
        return type(self).read is not MixtureDataset.read

    def report(self) -> dict[str, dict[str, float]]:
        """Report what each domain has contributed so far, on all ranks.

        Each domain has ``samples``, ``tokens`` (estimated from the mean length of documents if
        these are not packed), ``epochs``, the current ``weight``, the realised ``share`` and the
        ``target`` share that the weights asked for. Shares are of tokens or samples, as
        ``proportions`` says.
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
        """Return the position of the stream, the same on all ranks.

        It is a few numbers per domain and per pending change of weights, however much was read.
        """
        self._sync()
        draws = self._trained()
        if draws is self._draws:
            return self._describe(draws, self._within, self._placed)
        return self._describe(draws)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume from the state of a mixture with the same domains, length and seed.

        The next sample is the one that would have come. A loader's state may be resumed with other
        numbers of ranks and workers and another batch size: samples and weights stay the same, and
        the stream is cut into the new batches from here on.
        """
        draws, within = self._restored(state), int(state["within"])
        self._draws, self._within, self._placed = draws, within, bool(state["placed"])
        self._recent.clear()
        self._ahead = False
        self.iteration += 1
        self._seen = self._board.count

    def _describe(self, draws: Draws, within: int = 0, placed: bool = False) -> dict[str, Any]:
        """Describe a position of the stream as plain numbers and strings."""
        changes = [change.as_list() for change in draws.pending()]
        weighed = any(change.loss_weights is not None for change in draws.changes)
        return {
            "version": STATE_VERSION if weighed else 1,
            **self._identity(),
            "number": draws.number,
            "cursors": draws.cursors.tolist(),
            "expected": draws.expected.tolist(),
            "changes": changes,
            "within": within,
            "placed": placed,
        }

    def _restored(self, state: Mapping[str, Any]) -> Draws:
        """Restore the position that a state describes."""
        check_version(state, *READABLE)
        for what, value in self._identity().items():
            if state[what] != value:
                raise ValueError(
                    f"state belongs to a mixture with {what}={state[what]!r}, but this one has "
                    f"{value!r}; its remaining samples would be others"
                )
        draws = self._draws.copy()
        draws.number = int(state["number"])
        draws.cursors = np.array(state["cursors"], dtype=np.int64)
        draws.expected = np.array(state["expected"], dtype=float)
        draws.changes = [Change.from_list(entry) for entry in state["changes"]]
        return draws

    def _identity(self) -> dict[str, Any]:
        """Return what must not differ between saving and loading."""
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
                f"weights for sample {change.at} arrived after {self.number} samples were drawn; "
                "let MixtureDataset.loader() choose when they hold, or raise its lag"
            )
        self._draws.change(*change)

    def _sync(self) -> None:
        """Apply changes of weights that the main process posted."""
        for change in self._board.since(self._seen):
            self._change(change)
            self._seen += 1

    def __repr__(self) -> str:
        pairs = zip(self.domains[:8], self._draws.weights[:8], strict=True)
        shown = ", ".join(f"{name}={weight:.3g}" for name, weight in pairs)
        return f"MixtureDataset({len(self.domains)} domains of {self.length} tokens: {shown})"


def _rank_in(mesh: Any, rank: int | None, world_size: int | None) -> tuple[int, int]:
    """Return rank and size as numbers, since workers cannot copy a mesh."""
    if rank is not None or world_size is not None:
        raise ValueError(
            f"give mesh, or rank and world_size; got rank={rank!r} and world_size={world_size!r} "
            "beside a mesh, which has its own"
        )
    return data_rank(mesh)
