"""``counterpoise completion``: scripts for shell completion."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print a script that makes a shell complete commands and options.

    \b
    eval "$(counterpoise completion bash)"        # in ~/.bashrc
    eval "$(counterpoise completion zsh)"         # in ~/.zshrc
    counterpoise completion fish > ~/.config/fish/completions/counterpoise.fish
    """
    from counterpoise.cli.main import cli

    made = get_completion_class(shell)
    assert made is not None
    click.echo(made(cli, {}, "counterpoise", "_COUNTERPOISE_COMPLETE").source())
