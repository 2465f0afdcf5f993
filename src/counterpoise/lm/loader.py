"""`MixtureLoader`: a DataLoader that knows how much of a mixture has been consumed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch.utils.data import DataLoader

from counterpoise.lm.mixture import MixtureDataset, check_whole
from counterpoise.lm.samples import collated, packed_up, unpacked

OURS = ("shuffle", "sampler", "batch_sampler", "drop_last", "in_order", "persistent_workers")


class MixtureLoader(DataLoader[Any]):
    """Batches of a `MixtureDataset`; weights may be changed while it runs.

    Workers read ahead, but what counts as consumed is what was handed out: ``mixture`` itself
    always stands there. A new iteration goes on from that place. Draws depend on nothing that
    happens in a worker, so workers keep no state that would have to be collected and saved.

    Parameters
    ----------
    mixture : MixtureDataset
    batch_size : int, optional
        Samples of a batch on this rank; the mixture's when None.
    num_workers, prefetch_factor : int
        As for a DataLoader.
    lag : int, optional
        New weights hold so many batches after the last one handed out: at least
        ``num_workers * prefetch_factor``, which is what workers may have drawn already, and that
        by default. Runs with unlike numbers of workers give the same samples if ``lag`` is alike.
    with_domain : bool, default True
        Whether a batch says which ``domain`` its samples are of; models that are called with the
        whole batch do not know it.
    **options
        Of a DataLoader: ``collate_fn``, ``pin_memory``, ``multiprocessing_context``, ...
    """

    def __init__(
        self,
        mixture: MixtureDataset,
        batch_size: int | None = None,
        *,
        num_workers: int = 0,
        prefetch_factor: int | None = None,
        lag: int | None = None,
        with_domain: bool = True,
        **options: Any,
    ) -> None:
        refused = [name for name in OURS if name in options]
        if refused:
            raise ValueError(
                f"{refused[0]}={options[refused[0]]!r} cannot be set: the mixture itself decides "
                "which samples come, and a new iteration goes on where the last one stopped"
            )
        ahead = num_workers * (2 if prefetch_factor is None else prefetch_factor)
        if lag is not None and lag < ahead:
            raise ValueError(
                f"lag={lag!r} is too small: {num_workers} workers may draw {ahead} batches ahead; "
                f"use lag={ahead} or more, or fewer workers"
            )
        self.lag = ahead if lag is None else check_whole("lag", lag)
        # Its own: seeds of workers must not be taken from the numbers that a model's dropout uses.
        options.setdefault("generator", torch.Generator())
        if num_workers:
            options["prefetch_factor"] = prefetch_factor
        # Batches of one's own making, and those that a thread pins, travel as they are.
        self._packs = options.get("collate_fn") is None and not options.get("pin_memory")
        self._with_domain = with_domain
        if options.get("collate_fn") is None:
            options["collate_fn"] = packed_up if self._packs else collated
        self._reader = mixture._be_loaded(batch_size, self.lag)
        super().__init__(self._reader, self._reader.batch_size, num_workers=num_workers, **options)
        self.mixture = mixture
        self.handed = 0
        self._made = mixture._loads
        self.count_untrained: Callable[[], int] | None = None

    def untrained(self) -> int:
        """Batches that were handed out and not trained on, by ``count_untrained`` of a framework
        that fetches ahead. They are not in the state, and come again in the next iteration."""
        return 0 if self.count_untrained is None else self.count_untrained()

    def __iter__(self) -> Iterator[Any]:
        if self._made != self.mixture._loads:
            raise RuntimeError("the mixture has another loader by now; use that one")
        if back := self.untrained():
            self.mixture.load_state_dict(self.state_dict())
            self.handed -= back
        mine = self.mixture._begin(self._reader)
        batches = super().__iter__()
        self._reader._entered = False
        for batch in batches:
            if mine != self.mixture._iteration:
                raise RuntimeError(
                    "a later iteration has begun, or a state was loaded; iterate anew"
                )
            self.mixture._pass_batch()
            self.handed += 1
            if self._packs:
                batch = unpacked(batch)
            if not self._with_domain:
                batch.pop("domain")
            yield batch

    def set_weights(self, weights: Any) -> int:
        """`MixtureDataset.set_weights`; returns the first sample that the weights hold for."""
        return self.mixture.set_weights(weights)

    def state_dict(self) -> dict[str, Any]:
        """`MixtureDataset.state_dict`, of what has been trained on."""
        return self.mixture.state_dict(self.untrained())

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """`MixtureDataset.load_state_dict`; an iteration that has begun ends with an error."""
        self.mixture.load_state_dict(state)
