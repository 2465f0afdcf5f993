"""The command ``counterpoise``: calls the library and reports errors on one line."""

from __future__ import annotations

import io
import logging
import os
import sys
import traceback
from pathlib import Path
from typing import Any

import click

from counterpoise import __version__
from counterpoise.cli.printing import say
from counterpoise.cli.wording import in_options
from counterpoise.common.packages import with_hint
from counterpoise.common.progress import StatusHandler
from counterpoise.common.stopping import STOPPED, Stopped

# Errors that users can fix: an argument, a file, a package that is missing.
EXPECTED = (ValueError, TypeError, ImportError, RuntimeError, OSError, FloatingPointError)


class Family(click.Group):
    """Commands whose modules are imported when one of them is called."""

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

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Remember the command, whose options are the words for its errors."""
        found = super().resolve_command(ctx, args)
        if found[1] is not None and "called" in (ctx.obj or {}):
            ctx.obj["called"].append(found[1])
        return found

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands for ``--help`` without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, about) for name, (_, about) in self.modules.items()])


# A command is the function of that name in the module of that name.
COMMANDS = {
    "fit": "Fit a table, and compare with least squares.",
    "predict": "Predict a table with a stored model.",
    "report": "Report on a fit or a training run as HTML.",
    "diagnose": "Check whether worst-group training suits the data.",
    "frontier": "Show what robustness costs and gains.",
    "compare": "Compare with least squares and other methods.",
    "show": "Describe a stored model.",
    "export": "Write a stored model as ONNX.",
    "sample": "Write a sample table to try commands on.",
    "lm": "Language models: prepare data, train, compare.",
    "completion": "Print shell completion for bash, zsh or fish.",
}


@click.group(
    cls=Family,
    modules={name: (f"counterpoise.cli.{name}", about) for name, about in COMMANDS.items()},
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Exit codes: 0 success; 1 error; 2 wrong usage; 3 unusable data; 4 missing or "
    "unusable stored model; 5 fit stored but not converged; 75 stopped, can be resumed; "
    "130 interrupted.",
)
@click.version_option(__version__, prog_name="counterpoise")
@click.option("--quiet", "-q", is_flag=True, help="Print only results and errors.")
@click.option("--verbose", "-v", is_flag=True, help="Report every pass over the data.")
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
@click.pass_context
def cli(ctx: click.Context, quiet: bool, verbose: bool, debug: bool) -> None:
    """Learning that holds up on the worst group.

    \b
    counterpoise sample diamonds
    counterpoise fit diamonds.csv --target price --group clarity --out fit
    counterpoise report fit
    counterpoise predict fit new.csv > predictions.csv
    """
    ctx.obj = {**(ctx.obj or {}), "progress": not quiet, "debug": debug}
    # Commands for tables show a line of progress and log warnings; those for language models log
    # more.
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
    called: list[click.Command] = []
    try:
        given = {"args": sys.argv[1:] if args is None else list(args), "called": called}
        return cli.main(args, "counterpoise", standalone_mode=False, obj=given) or 0
    except click.ClickException as error:
        usage = io.StringIO()
        error.show(usage)
        say(usage.getvalue().rstrip("\n"), err=True)
        return error.exit_code
    except click.exceptions.Abort:
        click.echo("stopped", err=True)
        return 130
    except Exception as error:
        if isinstance(error, Stopped):
            say(str(error), err=True)
            return STOPPED
        if debug:
            raise
        if not getattr(error, "logged", False):
            message = in_options(described(error), called[-1] if called else None)
            say(f"error: {message}", err=True)
        return exit_code(error)
    finally:  # a caller from Python has its own logging
        for handler in logger.handlers:
            if handler not in before[0]:
                handler.close()
        logger.handlers = before[0]
        logger.setLevel(before[1])


def described(error: Exception) -> str:
    """An error in words: what to change, or how to report it if it was not foreseen."""
    text = clipped_lines(str(error))
    frames = traceback.extract_tb(error.__traceback__)
    if isinstance(error, MemoryError):
        return (
            "there is not enough memory; use fewer rows or columns, or save tables as Parquet, "
            "which is read in chunks"
        )
    if isinstance(error, OSError) and error.strerror and error.errno is not None:
        at = "" if error.filename is None else f": {error.filename!r}"
        return f"{error.strerror}{at}"
    if isinstance(error, ImportError):
        return with_hint(error)
    if isinstance(error, EXPECTED) and not isinstance(error, RecursionError):
        return text
    at = f", {Path(frames[-1].filename).name} line {frames[-1].lineno}" if frames else ""
    return (
        f"unexpected {type(error).__name__}{at}: {text or 'no message'}. This is a bug in "
        f"counterpoise {__version__}; please report it with what `counterpoise --debug ...` prints"
    )


def clipped_lines(text: str, most: int = 4000) -> str:
    """A message of a length that a terminal can show."""
    return text if len(text) <= most else f"{text[:most]} ... ({len(text):,} characters)"


def exit_code(error: Exception) -> int:
    """The exit code for an error that users can fix."""
    from counterpoise.storage.folders import ModelFileError
    from counterpoise.tabular.errors import DataError

    if isinstance(error, DataError):
        return 3
    return 4 if isinstance(error, ModelFileError) else 1


def script() -> None:
    """Entry point of the installed command."""
    try:
        code = main()
        sys.stdout.flush()
        sys.exit(code)
    except KeyboardInterrupt:  # while modules are imported
        sys.exit(130)
    except BrokenPipeError:  # the reader closed the pipe
        _discard_output()
        sys.exit(1)
    except OSError as error:  # what was printed last could not be written
        _discard_output()
        say(f"error: standard output cannot be written ({described(error)})", err=True)
        sys.exit(1)


def _discard_output() -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
