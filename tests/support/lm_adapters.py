"""A small corpus, a mixture of it and its weights, for the tests of adapters."""

from __future__ import annotations

import torch
from lm_problems import markov_corpus

from counterpoise import Reweighter
from counterpoise.lm import MixtureDataset

SIZES = {"x": 6000, "y": 3000, "z": 1500}
LENGTH = 16


def make_corpus(folder):
    return markov_corpus(folder, SIZES)


def begin(corpus, **options):
    mixture = MixtureDataset(corpus, LENGTH, seed=1)
    return mixture, Reweighter(mixture.domains, start=mixture.weights, **options)


def parameters(model):
    return torch.cat([p.detach().flatten() for p in model.parameters()])
