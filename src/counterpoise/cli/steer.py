"""``counterpoise lm steer``: weights that follow the losses in a growing file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from counterpoise.cli.options import Amount, check_parent, names
from counterpoise.cli.printing import say
from counterpoise.lm.training.settings import RULES

if TYPE_CHECKING:
    from counterpoise.lm.published import PublishedWeights

SHOWN = 8  # domains in a line about an update


def numbers(ctx: Any, param: Any, given: tuple[str, ...]) -> dict[str, float] | None:
    """Read NAME=NUMBER pairs, separated by commas or given one by one."""
    found: dict[str, float] = {}
    for text in names(ctx, param, given):
        name, equals, number = text.rpartition("=")
        try:
            found[name] = float(number)
        except ValueError:
            equals = ""
        if not equals or not name:
            raise click.BadParameter(f"must be DOMAIN=NUMBER; got {text!r}", ctx, param)
    return found or None


@click.command(short_help="Publish weights that follow a file of losses.")
@click.option(
    "--losses",
    required=True,
    type=click.Path(dir_okay=False),
    metavar="FILE",
    help="File to which the trainer appends lines.",
)
@click.option(
    "--publish",
    required=True,
    type=click.Path(dir_okay=False),
    metavar="FILE",
    help="File of the weights, such as weights.json.",
)
@click.option(
    "--domains",
    multiple=True,
    callback=names,
    metavar="NAMES",
    help="Domains, separated by commas; those of the first line if not given.",
)
@click.option("--rule", type=click.Choice(RULES), help="Rule; adaptive if not given.")
@click.option("--step", type=Amount(min=0, min_open=True), help="Size of the dual step.")
@click.option("--nu", type=Amount(min=0), help="Strength of the pull towards the prior.")
@click.option("--extrapolation", type=Amount(min=0), help="Extrapolation of the weights.")
@click.option(
    "--prior",
    multiple=True,
    callback=numbers,
    metavar="DOMAIN=WEIGHT,...",
    help="Prior; uniform if not given.",
)
@click.option(
    "--start",
    multiple=True,
    callback=numbers,
    metavar="DOMAIN=WEIGHT,...",
    help="First weights; the prior if not given.",
)
@click.option(
    "--reference",
    multiple=True,
    callback=numbers,
    metavar="DOMAIN=LOSS,...",
    help="Losses that the domains can be expected to reach.",
)
@click.option(
    "--config",
    type=click.Path(dir_okay=False),
    help="TOML file with [reweight] and [references], as for lm train.",
)
@click.option("--corpus", help="Identity of the corpus, which readers of the weights check.")
@click.option(
    "--interval",
    default=1.0,
    show_default=True,
    type=Amount(min=0, min_open=True),
    help="Seconds between looks at the losses.",
)
@click.option("--once", is_flag=True, help="Read the lines that are there, and end.")
@click.pass_context
def steer(
    ctx: click.Context,
    /,
    losses: str,
    publish: str,
    domains: list[str],
    reference: dict[str, float] | None,
    config: str | None,
    corpus: str | None,
    interval: float,
    once: bool,
    **options: Any,
) -> None:
    """Publish weights that follow the losses in a growing file, for a trainer in any language.

    The trainer appends a line of JSON after every evaluation and reads the weights, a small JSON
    file that is replaced whole. A loss may be null; "counts", "errors", "pieces" and "total" are
    optional.

    \b
    {"step": 400, "losses": {"web": 2.9, "code": 1.4}}

    What was done is kept beside the weights, in weights.state.json, so the same command continues
    after it was stopped or killed.

    \b
    counterpoise lm steer --losses losses.jsonl --publish weights.json --domains web,code
    """
    from counterpoise.common.toml import read_toml

    ctx.obj.get("called", []).append(ctx.command)  # its options are the words for its errors
    check_parent("--publish", publish)
    table = {} if config is None else read_toml(config)
    from counterpoise.lm.published import Publisher
    from counterpoise.lm.watcher import Watcher, settings_of, watch

    settings, references = settings_of(table, {**options, "references": reference})
    watcher = Watcher(
        losses,
        Publisher(publish, corpus=corpus),
        settings,
        domains=domains or None,
        references=references,
    )
    watch(watcher, interval=interval, once=once, tell=_tell)


def _tell(published: PublishedWeights) -> None:
    pairs = [f"{name} {weight:.4f}" for name, weight in [*published.weights.items()][:SHOWN]]
    more = len(published.weights) - SHOWN
    rest = [f"and {more} more"] if more > 0 else []
    say(f"step {published.step}, update {published.update}: {', '.join([*pairs, *rest])}")
