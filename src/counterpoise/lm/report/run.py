"""The page about a training run of a language model."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from counterpoise.common.text import change, count, figure
from counterpoise.lm.report.run_sections import (
    UNIT,
    loss_section,
    mixture_section,
    repeat_section,
    score_section,
    setting_section,
    training_section,
)
from counterpoise.lm.report.track import Track
from counterpoise.lm.training.run_folder import RunFolder
from counterpoise.report import blocks as b
from counterpoise.report.blocks import Block
from counterpoise.report.page import Page


def run_page(run_folder: str | os.PathLike[str] | RunFolder) -> str:
    """A page about a training run, as the text of one HTML file that needs nothing else.

    Parameters
    ----------
    run_folder : path or RunFolder
        What ``counterpoise lm train`` has written; the run need not have ended.
    """
    given = run_folder
    folder = given if isinstance(given, RunFolder) else RunFolder(Path(given))
    track = Track.of(folder)
    return Page(
        kind="run",
        title=f"{folder.path.resolve().name}: {_outcome(track)}",
        lead=_lead(folder, track),
        figures=_figures(track),
        sections=[
            loss_section(track, folder),
            mixture_section(track, folder),
            training_section(folder),
            score_section(folder),
            setting_section(folder),
            repeat_section(folder),
        ],
    ).html()


def _outcome(track: Track) -> str:
    said = change(track.worst[0], track.worst[-1])
    than = " than at the start" if said.endswith(("lower", "higher")) else ""
    return f"the worst domain's loss is {said}{than}"


def _lead(folder: RunFolder, track: Track) -> list[str]:
    settings, result = folder.settings, folder.result
    who = "A model"
    if result is not None:
        who = f"A model of {result['parameters']:,} parameters"
    out = [
        f"{who} was trained on {track.tokens[-1]:,} tokens of {count(len(track.domains), 'domain')}"
        f" whose weights follow the rule {settings.reweight.rule}. On the held-out split "
        f"{settings.evaluate.report!r} the worst domain ({track.domains[track.hardest]}) ends with "
        f"a loss of {figure(track.worst[-1])} {UNIT}, after {figure(track.worst[0])} at the start; "
        f"the average over domains goes from {figure(track.average[0])} to "
        f"{figure(track.average[-1])}."
    ]
    if result is None:
        out.append(
            f"This run has not ended: it is after {track.tokens[-1]:,} of "
            f"{settings.train.tokens:,} tokens. The same command goes on with it."
        )
    return out


def _figures(track: Track) -> list[Block]:
    spread = track.worst[-1] - float(np.min(track.losses[-1]))
    top = track.domains[int(np.argmax(track.weights[-1]))]
    return [
        b.key_figure(
            "Worst domain's loss", figure(track.worst[-1]),
            f"{UNIT}, {track.domains[track.hardest]}; {figure(track.worst[0])} at the start",
        ),
        b.key_figure(
            "Average loss", figure(track.average[-1]),
            f"{UNIT}, over domains; {figure(track.average[0])} at the start",
        ),
        b.key_figure("Between worst and best", figure(spread), f"{UNIT}, at the end"),
        b.key_figure(
            "Largest weight", f"{track.weights[-1].max():.1%}", f"{top}, in force at the end"
        ),
    ]  # fmt: skip
