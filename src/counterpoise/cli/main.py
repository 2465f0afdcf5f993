"""The command ``counterpoise``: what it is told goes to the library, errors come back in a line."""

from __future__ import annotations

import logging
import os
import sys
from typing import Any

import click

from counterpoise import __version__
from counterpoise.common.progress import StatusHandler
from counterpoise.common.stopping import STOPPED, Stopped

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
    modules={
        "fit": ("counterpoise.cli.fit", "Fit a table, store the model, say what it is worth."),
        "predict": ("counterpoise.cli.use", "Predict rows of a table with a stored model."),
        "report": ("counterpoise.cli.use", "A page about a fit or a language-model run."),
        "diagnose": ("counterpoise.cli.explore", "Is worst-group training wise on these rows?"),
        "frontier": ("counterpoise.cli.explore", "What robustness costs and gains, held out."),
        "compare": ("counterpoise.cli.explore", "Against least squares and other methods."),
        "show": ("counterpoise.cli.use", "What a stored model is."),
        "export": ("counterpoise.cli.use", "A stored model as ONNX, for serving."),
        "lm": ("counterpoise.cli.lm", "Language models: prepare, train, compare."),
        "completion": ("counterpoise.cli.completion", "Completion for bash, zsh or fish."),
    },
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Exit codes: 0 done; 1 an error; 2 a wrong call; 3 data that cannot be used; 4 a stored "
    "model that cannot be used; 5 the fit did not converge (and is stored all the same); 75 "
    "stopped, and can go on; 130 interrupted.",
)
@click.version_option(__version__, prog_name="counterpoise")
@click.option("--quiet", "-q", is_flag=True, help="Print results and errors alone.")
@click.option("--verbose", "-v", is_flag=True, help="Tell of every pass over the rows.")
@click.option("--debug", is_flag=True, help="Show where an error arose.")
@click.pass_context
def cli(ctx: click.Context, quiet: bool, verbose: bool, debug: bool) -> None:
    """Learning that holds up on the worst group.

    \b
    counterpoise fit diamonds.csv --target price --group clarity --out fit
    counterpoise report fit
    counterpoise predict fit new.csv > predictions.csv
    """
    ctx.obj = {**(ctx.obj or {}), "progress": not quiet, "debug": debug}
    # Of fits to tables only warnings stay, and what is under way shows on a line; the commands for
    # language models tell more.
    told = logging.INFO if verbose or ctx.invoked_subcommand == "lm" else logging.WARNING
    handler = StatusHandler(least=logging.ERROR if quiet else told)
    logger = logging.getLogger("counterpoise")
    logger.handlers = [handler]
    live = handler.line.live and not quiet
    logger.setLevel(logging.DEBUG if live else handler.least)


def main(args: list[str] | None = None) -> int:
    """Run the command; returns its exit code (see ``counterpoise --help``)."""
    debug = "--debug" in (sys.argv[1:] if args is None else args)
    logger = logging.getLogger("counterpoise")
    before = logger.handlers, logger.level
    try:
        given = {"args": sys.argv[1:] if args is None else list(args)}
        return cli.main(args, "counterpoise", standalone_mode=False, obj=given) or 0
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
        return exit_code(error)
    finally:  # who calls this from Python has logging of their own
        for handler in logger.handlers:
            if handler not in before[0]:
                handler.close()
        logger.handlers = before[0]
        logger.setLevel(before[1])


def exit_code(error: Exception) -> int:
    """How the command ends after an error of the user's."""
    from counterpoise.storage.models import ModelFileError
    from counterpoise.tabular.errors import DataError

    if isinstance(error, DataError):
        return 3
    return 4 if isinstance(error, ModelFileError) else 1


def script() -> None:
    """Where the installed command starts."""
    try:
        sys.exit(main())
    except KeyboardInterrupt:  # while modules are imported
        sys.exit(130)
    except BrokenPipeError:  # whoever reads has enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
