"""The page about a training run of a language model."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from counterpoise.common.text import change, count, figure
from counterpoise.lm.report.run_sections import (
    UNIT,
    certificate_section,
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
    """Build the page about a training run: one HTML file that needs nothing else.

    Parameters
    ----------
    run_folder : path or RunFolder
        The folder of ``counterpoise lm train``; the run may still be under way.

    Returns
    -------
    str
        The text of the file.
    """
    folder = run_folder if isinstance(run_folder, RunFolder) else RunFolder(Path(run_folder))
    track = Track.of(folder)
    return Page(
        kind="run",
        title=_outcome(track),
        subject=f"Run {folder.path.resolve().name}",
        lead=_lead(folder, track),
        figures=_figures(track),
        sections=[
            loss_section(track, folder),
            mixture_section(track, folder),
            *[block for block in [certificate_section(folder)] if block is not None],
            training_section(folder),
            score_section(folder),
            setting_section(folder),
            repeat_section(folder),
        ],
    ).html()


def _outcome(track: Track) -> str:
    first, last = track.worst[0], track.worst[-1]
    if figure(first) == figure(last):
        return f"The worst domain's loss stays at {figure(last)} {UNIT}"
    share, *_ = change(first, last).split()
    by = f" by {share}," if share.endswith("%") else ""
    moved = "rises" if last > first else "falls"
    return f"The worst domain's loss {moved}{by} from {figure(first)} to {figure(last)} {UNIT}"


def _lead(folder: RunFolder, track: Track) -> list[str]:
    settings, result = folder.settings, folder.result
    who = "A model"
    if result is not None:
        who = f"A model of {result['parameters']:,} parameters"
    out = [
        f"The worst domain, {track.domains[track.hardest]}, ends with a held-out loss of "
        f"{figure(track.worst[-1])} {UNIT} ({figure(track.worst[0])} at the start). The average "
        f"over domains goes from {figure(track.average[0])} to {figure(track.average[-1])}.",
        f"{who} was trained on {track.tokens[-1]:,} tokens from "
        f"{count(len(track.domains), 'domain')}, with weights by the rule "
        f"{settings.reweight.rule}; losses are those of the split {settings.evaluate.report!r}.",
    ]
    if result is None:
        out.append(
            f"This run has not ended: it has read {track.tokens[-1]:,} of "
            f"{settings.train.tokens:,} tokens. Run the same command again to continue."
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
        b.key_figure("Gap between worst and best", figure(spread), f"{UNIT}, at the end"),
        b.key_figure(
            "Largest weight", f"{track.weights[-1].max():.1%}", f"{top}, at the end"
        ),
    ]  # fmt: skip
