"""Losses of a finished model, domain by domain."""

from __future__ import annotations

from counterpoise.lm.evaluate import domain_losses, held_out
from counterpoise.lm.tokens import Corpus
from counterpoise.lm.training.domains import domains_of
from counterpoise.lm.training.losses import summed_loss
from counterpoise.lm.training.model import make_model
from counterpoise.lm.training.place import take_place
from counterpoise.lm.training.settings import Settings


def losses_of(settings: Settings, model: str, split: str) -> dict[str, float]:
    """The loss of a checkpoint on every domain of a split, as training measures it."""
    corpus = Corpus.open(settings.corpus.folder)
    with take_place(settings.train.threads) as place:
        found = make_model(settings.changed({"model.checkpoint": model}), corpus).to(place.device)
        samples = held_out(
            corpus,
            settings.train.length,
            split=split,
            domains=domains_of(settings, corpus),
            limit=settings.evaluate.sequences or None,
        )
        with place.precise(settings.train.precision):
            return domain_losses(
                found,
                samples,
                batch_size=settings.evaluate.batch,
                loss=summed_loss,
                device=place.device,
            ).losses
