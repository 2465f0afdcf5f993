"""Messages of the library, in the words of the command that was called."""

import click
import pytest

from counterpoise.cli.main import cli
from counterpoise.cli.wording import in_options

CONTEXT = click.Context(cli)
FIT, PREDICT = cli.get_command(CONTEXT, "fit"), cli.get_command(CONTEXT, "predict")


@pytest.mark.parametrize(
    ("command", "message", "expected"),
    [
        (FIT, "use missing='drop', or missing='impute'", "use --missing drop, or --missing impute"),
        (FIT, "leave it out with drop=['row id'].", "leave it out with --drop 'row id'."),
        (FIT, 'drop=["it\'s", "a, b]"]', """--drop 'it'"'"'s,a,, b]'"""),
        (FIT, "such as max_levels=1000; then", "such as --max-levels 1000; then"),
        (FIT, "a comma with decimal=',', or", "a comma with --decimal ',', or"),
        (FIT, "with cv=True", "with --cv"),
        (FIT, "Raise max_iter or tol.", "Raise --max-iter or --tol."),
        (FIT, "column 'max_levels', max_levels.csv", "column 'max_levels', max_levels.csv"),
        (FIT, "or use polish=True.", "or leave out --no-polish."),
        (FIT, "fit with polish=True", "fit without --no-polish"),
        (FIT, "set fit_intercept=False", "set --no-intercept"),
        (PREDICT, "use polish=True, raise tol", "use polish=True, raise tol"),
        (FIT, "with cv=False", "with cv=False"),
        (FIT, "unseen='base' is no option of fit", "unseen='base' is no option of fit"),
        (FIT, "nu=auto is no literal", "nu=auto is no literal"),
        (PREDICT, "unseen='base', extra=['id']", "--unseen base, --with id"),
        (PREDICT, "folder=column=value", "folder=column=value"),
        (None, "missing='drop'", "missing='drop'"),
    ],
)
def test_arguments_become_options(command, message, expected):
    assert in_options(message, command) == expected
