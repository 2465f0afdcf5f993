"""A Trainer with the public surface of torchtitan's, for the adapter's tests where it lacks.

It follows torchtitan 0.3: the same order of a step, its checkpoint and what else happens, the same
arguments to the dataloader's configuration, and a checkpoint by torch.distributed.checkpoint with
the same states. What is left out does not concern data: optimisers' containers, metrics, profiling.
"""

from __future__ import annotations

import contextlib
from dataclasses import make_dataclass
from types import SimpleNamespace

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_model_state_dict, set_model_state_dict
from torch.distributed.device_mesh import init_device_mesh

SEQ_LEN = 16


class TinyModel(torch.nn.Module):
    """Logits of the next token from the token before and its position in its document."""

    def __init__(self, vocab_size=64, width=16):
        super().__init__()
        self.embed = torch.nn.Embedding(vocab_size, width)
        self.places = torch.nn.Embedding(64, width)
        self.write = torch.nn.Linear(width, vocab_size)

    def forward(self, tokens, positions=None):
        h = self.embed(tokens)
        return self.write(torch.tanh(h if positions is None else h + self.places(positions)))


def sum_of_losses(pred, labels, global_valid_tokens=None):
    """A loss as torchtitan 0.3 has them: a sum and metrics."""
    found = torch.nn.functional.cross_entropy(
        pred.flatten(0, 1).float(), labels.flatten(0, 1), reduction="sum"
    )
    return (found if global_valid_tokens is None else found / global_valid_tokens), {}


class Dims:
    """ParallelDims: a world of data-parallel times tensor-parallel ranks."""

    def __init__(self, tp=1, cp=1, pp=1):
        world = dist.get_world_size() if dist.is_initialized() else 1
        self.dp, self.tp = world // tp, tp
        self.dp_enabled, self.cp_enabled, self.pp_enabled = self.dp > 1, cp > 1, pp > 1
        self.mesh = None
        if world > 1:
            self.mesh = init_device_mesh("cpu", (self.dp, tp), mesh_dim_names=("batch", "tp"))

    def get_mesh(self, name):
        if not self.dp_enabled:
            raise ValueError(f"Mesh '{name}' is not available.")
        return self.mesh[name]


class Metrics:
    """What torchtitan's metrics processor has for others: a logger."""

    def __init__(self):
        self.logger, self.logged = self, {}

    def log(self, metrics, step):
        self.logged[step] = metrics


class TrainState:
    def __init__(self, trainer):
        self.trainer = trainer

    def state_dict(self):
        return {"step": self.trainer.step, "ntokens_seen": self.trainer.ntokens_seen}

    def load_state_dict(self, state):
        self.trainer.step, self.trainer.ntokens_seen = state["step"], state["ntokens_seen"]


class ModelState:
    def __init__(self, model):
        self.model = model

    def state_dict(self):
        return get_model_state_dict(self.model)

    def load_state_dict(self, state):
        set_model_state_dict(self.model, state)


class StandIn:
    def __init__(self, config, folder=None, *, steps=6, whole=8, interval=None, tp=1, cp=1, pp=1):
        torch.manual_seed(0)
        self.device = torch.device("cpu")
        self.parallel_dims = Dims(tp, cp, pp)
        place = dist.get_rank() // tp if dist.is_initialized() else 0
        self.model_parts = [TinyModel()]
        self.optimizer = torch.optim.SGD(self.model_parts[0].parameters(), lr=0.5)
        self.loss_fn, self.train_context = sum_of_losses, contextlib.nullcontext
        self.metrics_processor = Metrics()
        self.step = self.ntokens_seen = 0
        self.dataloader = config.build(
            dp_world_size=self.parallel_dims.dp, dp_rank=place, tokenizer=None, seq_len=SEQ_LEN,
            local_batch_size=whole // self.parallel_dims.dp, snapshot_every_n_steps=interval,
        )  # fmt: skip
        self.states = {
            "train_state": TrainState(self),
            "model": ModelState(self.model_parts[0]),
            "dataloader": self.dataloader,
        }
        self.folder, self.steps, self.interval = folder, steps, interval
        self.read = []  # inputs of each step on this rank

    def post_dataloading_process(self, input_dict, labels):
        more = {key: value for key, value in input_dict.items() if key != "input"}
        self.ntokens_seen += labels.numel()
        return input_dict["input"], labels, more

    def train_step(self, data_iterator):
        input_dict, labels = next(data_iterator)
        self.read.append(input_dict["input"].tolist())
        inputs, labels, more = self.post_dataloading_process(input_dict, labels)
        self.optimizer.zero_grad()
        tokens = labels.numel() * self.parallel_dims.dp
        self.loss_fn(self.model_parts[0](inputs, **more), labels, tokens)[0].backward()
        for parameter in self.model_parts[0].parameters():
            if self.parallel_dims.dp_enabled:
                dist.all_reduce(parameter.grad, group=self.parallel_dims.mesh["batch"].get_group())
        self.optimizer.step()

    def checkpoint_id(self, step):
        return str(self.folder / f"step-{step}")

    def train(self, load_step=None):
        if load_step is not None:
            dcp.load(dict(self.states), checkpoint_id=self.checkpoint_id(load_step))
        data_iterator = iter(self.dataloader)
        while self.step < self.steps:
            self.step += 1
            self.train_step(data_iterator)
            if self.interval and self.step % self.interval == 0:
                dcp.save(dict(self.states), checkpoint_id=self.checkpoint_id(self.step))


def config_module(made):
    """A stand-in for ``torchtitan.models.llama3.config_registry``; trainers go to a list."""

    def llama3_debugmodel():
        config = SimpleNamespace(dataloader=None)

        def build():
            made.append(StandIn(config.dataloader, steps=8))
            return made[-1]

        config.build = build
        return config

    return SimpleNamespace(llama3_debugmodel=llama3_debugmodel)


def spec_module(specs):
    """A stand-in for ``torchtitan.protocols.train_spec`` of 0.2; registered ones go to a table."""
    made = make_dataclass("TrainSpec", [("build_dataloader_fn", object, None)])
    return SimpleNamespace(
        get_train_spec=lambda name: made(), register_train_spec=specs.__setitem__
    )
