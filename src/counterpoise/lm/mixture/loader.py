"""`MixtureLoader`: a DataLoader that knows how much of a mixture was consumed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.data import DataLoader

from counterpoise.common.arguments import check_whole
from counterpoise.lm.mixture.samples import collated, packed_up, unpacked, with_loss_weights

if TYPE_CHECKING:
    from counterpoise.lm.mixture.dataset import MixtureDataset

OURS = ("shuffle", "sampler", "batch_sampler", "drop_last", "in_order", "persistent_workers")


class MixtureLoader(DataLoader[Any]):
    """Batches of a `MixtureDataset`, whose weights may change while it runs.

    Workers read ahead, but only batches that were handed out count as consumed: that is where
    ``mixture`` itself stands, and where a new iteration continues. Draws depend on nothing that
    happens in a worker, so workers have no state to collect or save.

    Parameters
    ----------
    mixture : MixtureDataset
    batch_size : int, optional
        Samples per batch on this rank; the mixture's if None.
    num_workers, prefetch_factor : int
        As for a DataLoader.
    lag : int, optional
        Batches between handing one out and the first that uses new weights. At least (and by
        default) ``num_workers * prefetch_factor``, which workers may have drawn already. Runs with
        different numbers of workers give the same samples if their ``lag`` is equal.
    with_domain : bool, default True
        Whether a batch has an entry ``domain``. Leave it out for models that are called with the
        whole batch.
    **options
        Other options of a DataLoader: ``collate_fn``, ``pin_memory``, ...
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
                f"{refused[0]}={options[refused[0]]!r} cannot be set: the mixture decides which "
                "samples come, and a new iteration continues where the last one stopped; leave "
                "it out"
            )
        if prefetch_factor is not None:
            check_whole("prefetch_factor", prefetch_factor, 1)
        ahead = num_workers * (prefetch_factor or 2)
        if lag is not None and lag < ahead:
            raise ValueError(
                f"lag={lag!r} is too small: {num_workers} workers may draw {ahead} batches ahead; "
                f"use at least {ahead}, or fewer workers"
            )
        self.lag = ahead if lag is None else check_whole("lag", lag)
        # A generator of its own: seeding workers must not use up the random numbers of dropout.
        options.setdefault("generator", torch.Generator())
        if num_workers:
            options["prefetch_factor"] = prefetch_factor
        # Custom samples or batches, and those that a thread pins, travel unchanged.
        own = options.get("collate_fn") is not None or mixture.own_samples
        self._packs = not own and not options.get("pin_memory")
        self._with_domain = with_domain
        if options.get("collate_fn") is None:
            options["collate_fn"] = packed_up if self._packs else collated
        self._reader = mixture.attach_loader(batch_size, self.lag)
        super().__init__(self._reader, self._reader.batch_size, num_workers=num_workers, **options)
        self.mixture = mixture
        self._made = mixture.loaders

    def __iter__(self) -> Iterator[Any]:  # type: ignore[override]
        if self._made != self.mixture.loaders:
            raise RuntimeError("the mixture has a newer loader; use that one")
        self.mixture.rewind_untrained()
        mine = self.mixture.begin_iteration(self._reader)
        batches = super().__iter__()
        self._reader.readable = False
        for batch in batches:
            if mine != self.mixture.iteration:
                raise RuntimeError(
                    "a later iteration has started, or a state was loaded; iterate again"
                )
            loss_weights = self.mixture.count_batch()
            if self._packs:
                batch = unpacked(batch)
            if loss_weights is not None:
                batch = with_loss_weights(batch, loss_weights)
                check_rows(batch, len(loss_weights), self.collate_fn)
            if not self._with_domain and isinstance(batch, dict):
                batch.pop("domain", None)
            yield batch

    def set_weights(self, weights: Any) -> int:
        """Call `MixtureDataset.set_weights`; return the first sample with the new weights."""
        return self.mixture.set_weights(weights)

    def state_dict(self) -> dict[str, Any]:
        """Return `MixtureDataset.state_dict`."""
        return self.mixture.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Call `MixtureDataset.load_state_dict`; a running iteration then ends with an error."""
        self.mixture.load_state_dict(state)


def check_rows(batch: dict[str, Any], count: int, collate_fn: Callable[..., Any]) -> None:
    """Refuse a batch without one row for each sample, since the loss of each has a factor."""
    sizes = {key: len(v) for key, v in batch.items() if torch.is_tensor(v) and v.ndim > 0}
    tokens = [key for key in ("input_ids", "labels") if key in sizes]
    for key in tokens or list(sizes)[:1]:
        if sizes[key] != count:
            raise ValueError(
                f"the collator {name_of(collate_fn)} made {sizes[key]} rows of {key!r} from "
                f"{count} samples, but the loss of each sample has a factor of its own; use a "
                "collator that leaves each sample in its row, or draw samples by the weights"
            )


def name_of(function: Any) -> str:
    """Return what a function, or an object that is called like one, is known by."""
    return getattr(function, "__name__", type(function).__name__)
