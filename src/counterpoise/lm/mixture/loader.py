"""`MixtureLoader`: a DataLoader that knows how much of a mixture has been consumed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.data import DataLoader

from counterpoise.common.arguments import check_whole
from counterpoise.lm.mixture.samples import collated, packed_up, unpacked

if TYPE_CHECKING:
    from counterpoise.lm.mixture.dataset import MixtureDataset

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
        if prefetch_factor is not None:
            check_whole("prefetch_factor", prefetch_factor, 1)
        ahead = num_workers * (prefetch_factor or 2)
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
        # Samples or batches of one's own making, and those that a thread pins, travel as they are.
        own = options.get("collate_fn") is not None or mixture.own_samples
        self._packs = not own and not options.get("pin_memory")
        self._with_domain = with_domain
        if options.get("collate_fn") is None:
            options["collate_fn"] = packed_up if self._packs else collated
        self._reader = mixture._be_loaded(batch_size, self.lag)
        super().__init__(self._reader, self._reader.batch_size, num_workers=num_workers, **options)
        self.mixture = mixture
        self._made = mixture._loads

    def __iter__(self) -> Iterator[Any]:
        if self._made != self.mixture._loads:
            raise RuntimeError("the mixture has another loader by now; use that one")
        self.mixture._go_back()
        mine = self.mixture._begin(self._reader)
        batches = super().__iter__()
        self._reader._entered = False
        for batch in batches:
            if mine != self.mixture._iteration:
                raise RuntimeError(
                    "a later iteration has begun, or a state was loaded; iterate anew"
                )
            self.mixture._pass_batch()
            if self._packs:
                batch = unpacked(batch)
            if not self._with_domain and isinstance(batch, dict):
                batch.pop("domain", None)
            yield batch

    def set_weights(self, weights: Any) -> int:
        """`MixtureDataset.set_weights`; returns the first sample that the weights hold for."""
        return self.mixture.set_weights(weights)

    def state_dict(self) -> dict[str, Any]:
        """`MixtureDataset.state_dict`."""
        return self.mixture.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """`MixtureDataset.load_state_dict`; an iteration that has begun ends with an error."""
        self.mixture.load_state_dict(state)
