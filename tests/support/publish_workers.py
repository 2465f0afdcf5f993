"""Ranks that publish, each to a file of its own: publish_workers.py CORPUS OUT"""

from __future__ import annotations

import sys
from pathlib import Path

import torch.distributed as dist

from counterpoise import Reweighter
from counterpoise.lm import MixtureDataset, Steering

if __name__ == "__main__":
    corpus, out = map(Path, sys.argv[1:])
    dist.init_process_group("gloo")
    mixture = MixtureDataset(corpus, 4)
    reweighter = Reweighter(mixture.domains, start=mixture.weights)
    steering = Steering(reweighter, mixture, publish=out / f"{dist.get_rank()}.json")
    steering.observe([1.0, 2.0, 3.0], step=5)
    dist.destroy_process_group()
