"""Ranks of a Hugging Face Trainer that hold parts of one model or sequence, and share samples."""

from __future__ import annotations

from typing import Any

from counterpoise.lm.mixture.dataset import MixtureDataset


def parallel_size(trainer: Any, kind: str) -> int:
    """Return the size of a Trainer's tensor ("tp"), context ("cp") or sequence ("sp") parallelism.

    Releases of transformers without such a method leave it to accelerate's ParallelismConfig.
    """
    own = getattr(trainer, f"get_{kind}_size", None)
    if own is not None:
        return int(own())
    config = getattr(trainer.accelerator, "parallelism_config", None)
    return int(getattr(config, f"{kind}_size", None) or 1)


def ranks_per_sample(trainer: Any) -> int:
    """Return how many ranks of a Trainer read each sample."""
    sequence = parallel_size(trainer, "sp")
    if sequence > 1:
        raise ValueError(
            f"the Trainer has sequence parallelism (sp_size={sequence}), where ranks train on one "
            "another's batches in turn, so that samples cannot be counted; use context or tensor "
            "parallelism"
        )
    return parallel_size(trainer, "tp") * parallel_size(trainer, "cp")


def check_mixture(trainer: Any, mixture: MixtureDataset) -> None:
    """Refuse a mixture that reads other samples on ranks that must read the same ones."""
    shared, ranks = ranks_per_sample(trainer), trainer.accelerator.num_processes
    if shared == 1:
        return
    # torch.distributed may have been set up since the mixture was made.
    mixture.find_rank()
    if mixture.world_size != ranks // shared:
        raise ValueError(
            f"{shared} ranks of the Trainer hold parts of one model or sequence and must read the "
            f"same samples, but the mixture shares samples out to {mixture.world_size} of {ranks} "
            f"ranks instead of {ranks // shared}; pass the model's mesh, MixtureDataset(mesh=...)"
        )
