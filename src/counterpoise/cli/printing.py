"""What commands print: paragraphs, and JSON."""

from __future__ import annotations

import json
import re
import shutil
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import click

from counterpoise.cli.wording import in_options
from counterpoise.common.text import CONTROLS, harmless

if TYPE_CHECKING:
    from counterpoise.assessment.classes import ClassScores

# Control characters that JSON does not escape by itself.
_CONTROL = re.compile(f"[{CONTROLS}]")


def say(text: str, *, err: bool = False) -> None:
    """Print text that may hold names and cells of a stranger's file: no control characters."""
    click.echo(harmless(text), err=err)


def say_notes(notes: Iterable[str], command: click.Command, *, err: bool = False) -> None:
    """Print remarks on the data in the words of a command; on stderr, only if not --quiet."""
    if err and not click.get_current_context().obj["progress"]:
        return
    for note in notes:
        say(wrapped(in_options(f"Note: {note.rstrip('.')}.", command)), err=err)


def show_json(value: Any) -> None:
    click.echo(as_text(value))


def as_text(value: Any) -> str:
    """Anything as JSON text, with control characters as escapes."""
    from counterpoise.common.jsonable import plain  # with numpy, for which --help need not wait

    text = json.dumps(plain(value), indent=2, ensure_ascii=False, allow_nan=False)
    return _CONTROL.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def scores_json(scores: ClassScores) -> dict[str, Any]:
    """The scores of a classifier, for JSON: over all rows, of the worst group, and by group."""
    right, losses = scores.accuracies, scores.log_losses
    found: dict[str, Any] = {
        "accuracy": {"average": 1.0 - scores.average_error, "worst": right.worst},
        "log_loss": losses and {"average": scores.average_log_loss, "worst": losses.worst},
        "classes": scores.classes,
        "groups": {},
    }
    for k, label in enumerate(right):
        calibration = None if scores.calibration is None else scores.calibration.groups[k]
        found["groups"][str(label)] = {
            "rows": right.sizes[k],
            "accuracy": right[label],
            "balanced_accuracy": 1.0 - scores.balanced_errors[k],
            "log_loss": losses and losses[label],
            "calibration_error": calibration and calibration.ece,
            "calibration_error_by_chance": calibration and calibration.ece_by_chance,
            "calibration_slope": calibration and calibration.slope,
            "confusion": scores.confusion[k],
        }
    return found


def wrapped(text: str) -> str:
    """A paragraph wrapped to the terminal, at most 100 characters wide."""
    wide = shutil.get_terminal_size().columns if sys.stdout.isatty() else 80
    # A number stays with its percent sign.
    kept = click.wrap_text(text.replace(" %", "\u00a0%"), width=min(wide, 100))
    return kept.replace("\u00a0%", " %")
