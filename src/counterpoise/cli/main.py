"""The command ``counterpoise``: what it is told goes to the library, errors come back in a line."""

from __future__ import annotations

import logging
import sys
from typing import Any

import click

from counterpoise import __version__
from counterpoise.lm.training.stopping import STOPPED, Stopped

# What users can put right: an argument, a file, a package that is missing.
EXPECTED = (ValueError, TypeError, ImportError, RuntimeError, OSError, FloatingPointError)


class Family(click.Group):
    """A group of commands whose modules are imported when one of them is called."""

    def __init__(self, *args: Any, modules: dict[str, tuple[str, str]], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.modules = modules

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.modules)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.modules:
            return None
        from importlib import import_module

        module, _ = self.modules[cmd_name]
        return getattr(import_module(module), cmd_name.replace("-", "_"))

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The list in ``--help``, from the table: nothing is imported for it."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, about) for name, (_, about) in self.modules.items()])


@click.group(
    cls=Family,
    modules={"lm": ("counterpoise.cli.lm", "Language models: prepare, train, compare.")},
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(__version__, prog_name="counterpoise")
@click.option("--quiet", "-q", is_flag=True, help="Say nothing but errors.")
@click.option("--debug", is_flag=True, help="Show where an error arose.")
@click.pass_context
def cli(ctx: click.Context, quiet: bool, debug: bool) -> None:
    """Learning that holds up on the worst group."""
    ctx.obj = {"progress": not quiet, "debug": debug}
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(message)s"))
    logger = logging.getLogger("counterpoise")
    logger.handlers = [handler]
    logger.setLevel(logging.ERROR if quiet else logging.INFO)


def main(args: list[str] | None = None) -> int:
    """Run the command; returns 0, or 1 after an error, 2 after a wrong call, 75 if it was stopped
    and can go on."""
    debug = "--debug" in (sys.argv[1:] if args is None else args)
    logger = logging.getLogger("counterpoise")
    before = logger.handlers, logger.level
    try:
        return cli.main(args, standalone_mode=False) or 0
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except click.exceptions.Abort:
        click.echo("stopped", err=True)
        return 130
    except Exception as error:
        if isinstance(error, Stopped):
            click.echo(str(error), err=True)
            return STOPPED
        if debug or not isinstance(error, EXPECTED):
            raise
        click.echo(f"error: {error}", err=True)
        return 1
    finally:  # who calls this from Python has logging of their own
        logger.handlers = before[0]
        logger.setLevel(before[1])


def script() -> None:
    """Where the installed command starts."""
    sys.exit(main())
