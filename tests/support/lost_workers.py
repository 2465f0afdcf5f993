"""Ranks for the tests of lost ranks: ``lost_workers.py JOB ARGUMENT...``."""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import time
import weakref
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

from counterpoise import Reweighter
from counterpoise.cli.main import main
from counterpoise.lm import Corpus, MixtureDataset, Steering
from counterpoise.lm.training import checkpoints, model, ranks, watch
from counterpoise.lm.training import train as training
from counterpoise.lm.training.settings import load_settings


def loop(corpus, mark):
    """A plain loop with `Steering`, whose process group and timeout are the user's."""
    dist.init_process_group("gloo", timeout=timedelta(seconds=4))
    mixture = MixtureDataset(Corpus.open(corpus), 16, seed=1)
    steering = Steering(Reweighter(mixture.domains, start=mixture.weights), mixture)
    for step, _ in enumerate(mixture.loader(4), 1):
        steering.observe(torch.rand(3, generator=torch.Generator().manual_seed(step)), step=step)
        Path(mark).write_text(str(step))


def slow_disk(config, seconds):
    """A run whose first rank takes long to write a checkpoint."""
    writing = model.save_tokenizer

    def slow(*args):
        time.sleep(float(seconds))
        writing(*args)

    training.save_tokenizer = slow
    training.train(load_settings(config), progress=False)


def full_disk(config):
    """A run whose first rank cannot write a checkpoint."""

    def full(*args):
        raise OSError(28, "No space left on device")

    checkpoints.sync_folder = full
    training.train(load_settings(config), progress=False)


def broken(config, rank=1):
    """A run of which one rank fails by itself."""
    advance = training.Trainer.advance

    def failing(self):
        advance(self)
        if self.step == 3 and self.process.rank == int(rank):
            raise ArithmeticError("no more numbers")

    training.Trainer.advance = failing
    training.train(load_settings(config), progress=False)


def tear_down(config, how):
    """Say what still holds on to the process group when it is destroyed."""
    wrapped = []
    make, destroy = torch.nn.parallel.DistributedDataParallel.__init__, dist.destroy_process_group
    advance = training.Trainer.advance

    def noted(self, *args, **kwargs):
        wrapped.append(weakref.ref(self))
        make(self, *args, **kwargs)

    def checked(*args):
        alive = [ref for ref in wrapped if ref() is not None]
        sys.stdout.write(f"{len(wrapped)} made, {len(alive)} alive\n")
        destroy(*args)

    def failing(self):
        advance(self)
        if self.step == 3:
            raise ArithmeticError("no more numbers")

    torch.nn.parallel.DistributedDataParallel.__init__ = noted
    dist.destroy_process_group = checked
    if how == "failing":
        training.Trainer.advance = failing
    training.train(load_settings(config), progress=False)


def dropped(config):
    """A run that loses its connections to the store, which still answers."""
    watch.GRACE = 1.0
    advance, port = training.Trainer.advance, int(os.environ["MASTER_PORT"])

    def cut(self):
        advance(self)
        if self.step == 3:
            found = 0
            for handle in range(3, 256):
                with contextlib.suppress(OSError), socket.socket(fileno=os.dup(handle)) as one:
                    if one.getpeername()[1] == port:
                        one.shutdown(socket.SHUT_RDWR)
                        found += 1
            assert found
            time.sleep(9.0)

    training.Trainer.advance = cut
    training.train(load_settings(config), progress=False)


def parting(error, *words):
    """The command, whose ranks do not part; if asked for, because one is lost."""
    ranks.TEAR_DOWN = 0.5
    dist.destroy_process_group = lambda *args: time.sleep(60)
    if error != "none":

        def failing(self):
            raise {"lost": RuntimeError("gloo: Connection closed by peer"),
                   "value": ValueError("no such number")}[error]  # fmt: skip

        training.Trainer.advance = failing
    sys.exit(main(list(words)))


if __name__ == "__main__":
    torch.set_num_threads(1)
    globals()[sys.argv[1]](*sys.argv[2:])
