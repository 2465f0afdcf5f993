"""``counterpoise export``: write a stored model as ONNX."""

from __future__ import annotations

import click

from counterpoise.cli.printing import say


@click.command()
@click.argument("model", type=click.Path())
@click.argument("out", type=click.Path(dir_okay=False))
@click.option("--single", is_flag=True, help="Use single precision instead of double.")
def export(model: str, out: str, single: bool) -> None:
    """Write a stored model as ONNX, for serving.

    The graph takes encoded features as X (see `counterpoise show`) and returns predictions.

    \b
    counterpoise export fit model.onnx
    """
    from counterpoise.storage.folders import check_stored

    check_stored(model)
    from counterpoise.storage.models import load
    from counterpoise.storage.onnx import to_onnx

    to_onnx(load(model), out, dtype="float32" if single else "float64")
    say(out)
