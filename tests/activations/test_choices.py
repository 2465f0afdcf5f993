"""Whoever may choose an activation is told which ones there are."""

from __future__ import annotations

import click
import numpy as np
import pytest

import counterpoise
from counterpoise import baselines
from counterpoise.activations import NAMED
from counterpoise.cli.main import cli, main

X, Y = np.ones((4, 1)), np.arange(4.0)


def commands():
    """Commands with the option, by their own parameters."""
    with click.Context(cli) as context:
        for name in cli.list_commands(context):
            command = cli.get_command(context, name)
            if any(param.name == "activation" for param in command.params):
                yield name


def classes():
    yield counterpoise.GroupDRONeuron
    for name in sorted(baselines.__all__):
        if name.endswith("Neuron"):
            yield getattr(baselines, name)


def test_commands_that_fit_neurons_have_the_option():
    assert {"fit", "frontier", "compare", "diagnose"} <= set(commands())


@pytest.mark.parametrize("name", list(commands()))
def test_commands_list_the_choices(name, capsys):
    assert main([name, "--help"]) == 0
    assert f"--activation [{'|'.join(NAMED)}]" in capsys.readouterr().out
    assert main([name, "t.csv", "--target", "y", "--activation", "tanh"]) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert "'tanh' is not one of " + ", ".join(map(repr, NAMED)) in said


@pytest.mark.parametrize("made", list(classes()), ids=lambda made: made.__name__)
def test_classes_list_the_choices(made):
    described = " ".join(made.__doc__.split())
    assert ", ".join(f'"{name}"' for name in NAMED) in described
    with pytest.raises(ValueError, match="activation='tanh' is not known") as caught:
        made(activation="tanh").fit(X, Y)
    assert all(repr(name) in str(caught.value) for name in NAMED)
